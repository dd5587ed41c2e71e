//! The `holdfast-agent` program: wiring only.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_agent::cli::main()
}
