//! Commands that ask nobody: the lab beside this program, completions, manual pages.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

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
    // `holdfast help` has no page of its own.
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = folder else {
        std::io::stdout().lock().write_all(&page(&command)?)?;
        return Ok(End::Done);
    };
    std::fs::create_dir_all(folder)?;
    write_pages(&command, folder)?;
    word(&format!("manual pages are in {}", folder.display()));
    Ok(End::Done)
}

fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    let file = folder.join(Man::new(command.clone()).get_filename());
    std::fs::write(file, page(command)?)?;
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).try_for_each(|sub| write_pages(sub, folder))
}

/// One page, with what stands before and after the flags as it was written: an example that is filled cannot be copied.
fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    for (title, words) in [("EXAMPLES", command.get_before_help()), ("EXIT STATUS", command.get_after_help())] {
        let words = words.map(ToString::to_string).unwrap_or_default();
        writeln!(text, ".SH {title}\n.nf")?;
        for line in words.lines().filter(|line| !line.starts_with("Examples:")) {
            // A point or an apostrophe at its beginning would make a line a request.
            writeln!(text, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
        }
        writeln!(text, ".fi")?;
    }
    Ok(text)
}
