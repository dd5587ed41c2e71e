//! The `holdfast-lab` binary: parses the command line and hands over to [`holdfast_lab::command`].

use std::process::ExitCode;

use holdfast_lab::command;

fn main() -> ExitCode {
    command::parse().map_or_else(|code| code, command::run)
}
