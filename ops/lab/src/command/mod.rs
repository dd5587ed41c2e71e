//! The sub-commands of `holdfast-lab`, one module each.
//!
//! - Data goes to stdout, words to stderr. Exit codes are those of the `holdfast` command line.

pub mod documents;
pub mod exec;
pub mod help;
pub mod hosts;
pub mod output;
pub mod packets;
pub mod probe;
pub mod publish;
pub mod up;
pub mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use holdfast_runtime::exit::tell_usage;
use holdfast_runtime::line::{pages, with_pages};
use output::complain;

use crate::prober;

/// Network namespaces, hosts and real packets: the lab that demo, tests and benches stand on.
#[derive(Parser, Debug)]
#[command(name = "holdfast-lab", version, before_help = help::ROOT)]
pub struct Cli {
    /// The lab's state folder; one lab a folder.
    #[arg(long, global = true, env = "HOLDFAST_LAB", default_value = ".holdfast/lab/default")]
    pub lab: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Writes the standing lab's estate as documents to apply and a list of hosts to enrol.
    #[command(before_help = help::DOCUMENTS)]
    Documents(documents::Args),
    /// Takes the lab away, with everything that runs in it.
    #[command(before_help = help::DOWN)]
    Down(up::DownArgs),
    /// Runs a program in the network namespace of a host.
    #[command(before_help = help::EXEC, after_help = help::EXEC_ENDS)]
    Exec(exec::ExecArgs),
    /// Lists the lab's hosts.
    #[command(before_help = help::HOSTS)]
    Hosts(hosts::Args),
    /// Tries one flow by real packets.
    #[command(before_help = help::PROBE, after_help = help::PROBE_ENDS)]
    Probe(probe::Args),
    /// Sends and answers probes in the namespace that it is started in, as its parent says on stdin.
    #[command(hide = true)]
    Prober,
    /// Carries ports of the control plane's namespace to this machine's loopback, until it is ended.
    #[command(before_help = help::PUBLISH)]
    Publish(publish::Args),
    /// Starts the agents of hosts.
    #[command(before_help = help::START)]
    Start(exec::StartArgs),
    /// Ends the agents of hosts.
    #[command(before_help = help::STOP)]
    Stop(exec::StopArgs),
    /// Makes the lab: namespaces, links and addresses, no agents.
    #[command(before_help = help::UP)]
    Up(up::UpArgs),
    /// Judges estates by real packets in the lab, or by what is rendered.
    #[command(before_help = help::VERIFY, after_help = help::VERIFY_ENDS)]
    Verify(verify::Args),
}

/// The exit code of a command line that means nothing.
const USAGE: u8 = 64;

/// Reads the command line; the code to end with if there is nothing to run.
///
/// # Errors
/// The exit code: of help, version, completions and the manual page success, of a command line that means nothing 64.
pub fn parse() -> Result<Cli, ExitCode> {
    let command = line();
    let parsed = command.clone().try_get_matches();
    if let Some(printed) = parsed.as_ref().ok().and_then(|matches| pages(&command, matches)) {
        return Err(if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| if tell_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::SUCCESS })
}

/// The whole command line, as it is parsed and printed.
#[must_use]
pub fn line() -> clap::Command {
    help::taught(with_pages(Cli::command()))
}

/// Runs one sub-command and says how the process ends.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let lab = cli.lab;
    let outcome = match cli.command {
        Command::Documents(args) => documents::run(&lab, &args).map_err(Into::into),
        Command::Down(args) => up::down(&lab, &args).map_err(Into::into),
        Command::Exec(args) => exec::exec(&lab, &args).map_err(Into::into),
        Command::Hosts(args) => hosts::run(&lab, &args).map_err(Into::into),
        Command::Probe(args) => probe::run(&lab, &args).map_err(Into::into),
        Command::Prober => prober::serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Publish(args) => publish::run(&lab, &args).map_err(Into::into),
        Command::Start(args) => exec::start(&lab, &args).map_err(Into::into),
        Command::Stop(args) => exec::stop(&lab, &args).map_err(Into::into),
        Command::Up(args) => up::up(&lab, &args).map_err(Into::into),
        Command::Verify(args) => verify::run(&lab, &args).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error: Box<dyn std::error::Error>| {
        complain(error.as_ref());
        ExitCode::FAILURE
    })
}
