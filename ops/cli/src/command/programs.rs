//! Commands that ask nobody: the lab beside this program, completions, manual pages.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::args;
use crate::error::{End, Error};
use crate::output::word;

/// Becomes `holdfast-lab`: the one beside this program, else the one on the path.
pub(super) fn lab(arguments: &[OsString]) -> Result<End, Error> {
    let name = PathBuf::from("holdfast-lab");
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(&name)).filter(|path| path.exists());
    let program = beside.unwrap_or(name);
    // Returns only if it could not.
    let source = std::process::Command::new(&program).args(arguments).exec();
    Err(Error::Exec { program, source })
}

/// Prints the completions of a shell.
pub(super) fn completion(shell: clap_complete::Shell) -> Result<End, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "holdfast", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(End::Done)
}

/// Prints the manual page, or writes one for every command.
pub(super) fn man(folder: Option<&Path>) -> Result<End, Error> {
    let Some(folder) = folder else {
        clap_mangen::Man::new(args::command()).render(&mut std::io::stdout().lock())?;
        return Ok(End::Done);
    };
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(args::command(), folder)?;
    word(&format!("manual pages are in {}", folder.display()));
    Ok(End::Done)
}
