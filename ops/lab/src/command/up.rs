//! `holdfast-lab up` and `holdfast-lab down`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::say;
use super::packets::STANDALONE_FOLDER;
use crate::lab::{self, Ensured, HostState, Lab};
use crate::plan::{self, load_plans};

/// Flags of `up`.
#[derive(clap::Args, Debug)]
pub struct UpArgs {
    /// The hosts: an estate, of which only hosts and addresses are read, or a JSON array of `{name, addresses}`.
    #[arg(long, value_name = "PATH")]
    estate: PathBuf,
    /// Brings the estate to this number of hosts, its roles repeated or left out.
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// A program that puts every host into the mode that its one argument names (`visibility`, `enforced`) and returns when all of them are;
    /// `verify` runs it.
    #[arg(long, value_name = "PROGRAM")]
    mode_command: Option<PathBuf>,
}

/// Flags of `down`.
#[derive(clap::Args, Debug)]
pub struct DownArgs {
    /// The hosts' state goes too.
    #[arg(long)]
    wipe: bool,
}

/// Why a lab does not go up or down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not say what hosts there are.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// A path that shall be remembered leads nowhere.
    #[error("cannot find {}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Stderr is closed.
    #[error("cannot say what was done")]
    Write(#[source] io::Error),
}

/// Makes the lab in this folder.
///
/// # Errors
/// See [`Error`].
pub fn up(folder: &Path, args: &UpArgs) -> Result<ExitCode, Error> {
    let plans = load_plans(&args.estate, args.hosts)?;
    let estate = absolute(&args.estate)?;
    let mode_command = args.mode_command.as_deref().map(absolute).transpose()?;
    let (mut lab, ensured) = Lab::ensure(folder, &plans)?;
    lab.set_purpose(Some(estate), args.hosts, mode_command)?;
    let count = lab.record().hosts.len();
    let done = match ensured {
        Ensured::Made => "made",
        Ensured::Stood => "stands already:",
    };
    say(&format!("{done} a lab of {count} hosts in {}", lab.folder().display())).map_err(Error::Write)?;
    Ok(ExitCode::SUCCESS)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|source| Error::Path { path: path.to_owned(), source })
}

/// Takes the lab in this folder away.
///
/// # Errors
/// See [`Error`].
pub fn down(folder: &Path, args: &DownArgs) -> Result<ExitCode, Error> {
    // A run of `verify --standalone` that was cut off has left its lab below this one.
    Lab::remove(&folder.join(STANDALONE_FOLDER), HostState::Wipe)?;
    Lab::remove(folder, if args.wipe { HostState::Wipe } else { HostState::Keep })?;
    Ok(ExitCode::SUCCESS)
}
