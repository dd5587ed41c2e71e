//! The `holdfast-lab` binary: parses the command line and hands over to [`holdfast_lab::command`].

use std::process::ExitCode;

use clap::Parser;
use holdfast_lab::command;

fn main() -> ExitCode {
    command::run(command::Cli::parse())
}
