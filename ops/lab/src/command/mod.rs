//! The sub-commands of `holdfast-lab`, one module each.
//!
//! - Data goes to stdout, words to stderr. Exit codes are those of the `holdfast` command line.

pub mod hosts;
pub mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::complain;

/// Network namespaces, hosts and real packets: the lab that demo, tests and benches stand on.
#[derive(Parser, Debug)]
#[command(name = "holdfast-lab", version)]
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
    /// Lists the lab's hosts.
    Hosts(hosts::Args),
}

/// Runs one sub-command and says how the process ends.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let lab = cli.lab;
    let outcome = match cli.command {
        Command::Hosts(args) => hosts::run(&lab, &args).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error: Box<dyn std::error::Error>| {
        complain(error.as_ref());
        ExitCode::FAILURE
    })
}
