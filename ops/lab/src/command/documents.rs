//! `holdfast-lab documents`: files for the control plane of the standing lab.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::say;
use crate::documents::{MODES, hosts, modes, objects};
use crate::lab::{self, Lab};
use crate::plan::{self, load_estate};

/// Flags of `documents`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder that gets `objects.yaml` (everything to apply), `visibility.yaml`, `simulation.yaml`, `enforced.yaml` (the hosts in that mode) and
    /// `hosts.tsv` (each host's name in the lab, its agent's folder, and what its enrolment token says).
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Why there are no files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// The lab was made from a list of hosts.
    #[error("the lab was made without an estate")]
    NoEstate,
    /// The estate cannot be read.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// A file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Stderr is closed.
    #[error("cannot say what was done")]
    Say(#[source] io::Error),
}

/// Writes the files of the estate's first state.
///
/// # Errors
/// See [`Error`].
pub fn run(folder: &Path, args: &Args) -> Result<ExitCode, Error> {
    let lab = Lab::open(folder)?;
    let file = lab.record().estate.as_deref().ok_or(Error::NoEstate)?;
    let estate = load_estate(file, lab.record().hosts_wanted)?;
    let state = estate.states.first().ok_or(Error::NoEstate)?;
    let list = hosts(&estate, state, |host| lab.record().host(host).map(|host| host.state.clone()));
    let mut files = vec![("objects.yaml".to_owned(), objects(state)), ("hosts.tsv".to_owned(), list)];
    files.extend(MODES.map(|mode| (format!("{mode}.yaml"), modes(state, mode))));
    fs::create_dir_all(&args.to).map_err(|source| Error::Write { path: args.to.clone(), source })?;
    for (name, text) in files {
        let path = args.to.join(name);
        fs::write(&path, text).map_err(|source| Error::Write { path, source })?;
    }
    let (hosts, objects) = (state.intent.hosts.len(), state.intent.objects.len());
    say(&format!("{}: {objects} objects for {hosts} hosts in {}", estate.id, args.to.display())).map_err(Error::Say)?;
    Ok(ExitCode::SUCCESS)
}
