//! Long-running processes on hosts: the agents.
//!
//! - One a host. It runs in the host's namespace, in a process group of its own, and lives on when the command that started it ends.
//! - In its arguments `{host}` and `{state}` stand for the host's name and its state folder. Its environment is the caller's.
//!
//! What an agent does is its own business; the lab starts it, finds it and ends it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::lab::{self, Lab};
use crate::netns::{self, StopError};
use crate::record::{Host, Process};

/// The file in a host's state folder that takes what its agent writes.
const LOG_FILE: &str = "agent.log";

/// Why an agent does not start or end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// Its namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// Its log cannot be written.
    #[error("cannot open the log {}", .file.display())]
    Log {
        /// The log.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program does not start.
    #[error("cannot start `{program}` on the host `{host}`")]
    Start {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended before it could be written down.
    #[error("`{program}` ended at once on the host `{host}`; {} may say why", .log.display())]
    Ended {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// Its log.
        log: PathBuf,
    },
    /// It lives on.
    #[error("cannot end the agent of the host `{host}`")]
    Stop {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: StopError,
    },
}

/// The agent of a host, if it runs.
#[must_use]
pub fn find(host: &Host) -> Option<Process> {
    host.agent.filter(|agent| netns::find_process(agent.pid) == Some(*agent))
}

/// Starts the agent of a host, unless one runs.
///
/// # Errors
/// See [`Error`].
pub fn start(lab: &mut Lab, name: &str, program: &str, arguments: &[String]) -> Result<Process, Error> {
    let host = lab.host(name)?.clone();
    if let Some(running) = find(&host) {
        return Ok(running);
    }
    let log = host.state.join(LOG_FILE);
    let open = File::options().create(true).append(true).open(&log);
    let file = open.and_then(|file| Ok((file.try_clone()?, file)));
    let (out, errors) = file.map_err(|source| Error::Log { file: log.clone(), source })?;
    let state = host.state.display().to_string();
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| argument.replace("{host}", name).replace("{state}", &state)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .process_group(0);
    let spawned = netns::within(&host.namespace, || command.spawn())?;
    let child =
        spawned.map_err(|source| Error::Start { host: name.to_owned(), program: program.to_owned(), source })?;
    let process = netns::find_process(child.id().cast_signed()).ok_or_else(|| Error::Ended {
        host: name.to_owned(),
        program: program.to_owned(),
        log,
    })?;
    lab.set_agent(name, Some(process))?;
    Ok(process)
}

/// Ends the agent of a host, if one runs.
///
/// # Errors
/// See [`Error`].
pub fn stop(lab: &mut Lab, name: &str) -> Result<(), Error> {
    if let Some(agent) = lab.host(name)?.agent {
        netns::stop_processes(&[agent]).map_err(|source| Error::Stop { host: name.to_owned(), source })?;
        lab.set_agent(name, None)?;
    }
    Ok(())
}
