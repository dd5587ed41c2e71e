//! `holdfast-lab exec`, `start` and `stop`: programs on the lab's hosts.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::agents;
use crate::lab::{self, Lab};
use crate::netns;

/// Flags of `exec`.
#[derive(clap::Args, Debug)]
pub struct ExecArgs {
    /// A host, or `@bridge`, `@control` or `@outside`.
    host: String,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Flags of `start`.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// The hosts; all of them if none is named.
    hosts: Vec<String>,
    /// The agent's program and arguments; `{host}` and `{state}` stand for the host's name and state folder.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Flags of `stop`.
#[derive(clap::Args, Debug)]
pub struct StopArgs {
    /// The hosts; all of them if none is named.
    hosts: Vec<String>,
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// Its namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// An agent fails.
    #[error(transparent)]
    Agent(#[from] agents::Error),
    /// The program is not there or may not be run.
    #[error("cannot run `{program}`")]
    Run {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Becomes a program in a namespace of the lab.
///
/// # Errors
/// See [`Error`]; on success it does not return.
pub fn exec(folder: &Path, args: &ExecArgs) -> Result<ExitCode, Error> {
    let lab = Lab::open(folder)?;
    let record = lab.record();
    let namespace = match args.host.as_str() {
        "@bridge" => &record.bridge,
        "@control" => &record.control,
        "@outside" => &record.outside,
        name => &lab.host(name)?.namespace,
    };
    netns::enter(namespace)?;
    let (program, arguments) = args.command.split_first().expect("the command line demands a program");
    let source = Command::new(program).args(arguments).exec();
    Err(Error::Run { program: program.clone(), source })
}

fn chosen(lab: &Lab, hosts: &[String]) -> Vec<String> {
    if hosts.is_empty() { lab.record().hosts.iter().map(|host| host.name.clone()).collect() } else { hosts.to_vec() }
}

/// Starts agents.
///
/// # Errors
/// See [`Error`].
pub fn start(folder: &Path, args: &StartArgs) -> Result<ExitCode, Error> {
    let mut lab = Lab::open(folder)?;
    let (program, arguments) = args.command.split_first().expect("the command line demands a program");
    for host in chosen(&lab, &args.hosts) {
        agents::start(&mut lab, &host, program, arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends agents.
///
/// # Errors
/// See [`Error`].
pub fn stop(folder: &Path, args: &StopArgs) -> Result<ExitCode, Error> {
    let mut lab = Lab::open(folder)?;
    for host in chosen(&lab, &args.hosts) {
        agents::stop(&mut lab, &host)?;
    }
    Ok(ExitCode::SUCCESS)
}
