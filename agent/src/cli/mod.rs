//! The command line of `holdfast-agent`.
//!
//! - Every flag has a variable `HOLDFAST_AGENT_…`; flags win.
//! - Data on stdout, words on stderr; exit code 0 done, 1 failed, 64 for a line that is no command.

mod kept;
mod print;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::local::{self, Answer, Question};
use crate::nft::TableOwner;
use crate::service::{self, Config, Source, Status};
use kept::KeptArguments;

const STATE_FOLDER: &str = "/var/lib/holdfast-agent";
const USAGE: u8 = 64;

/// Enforces rendered network policies on this host through nftables, and proves it by reading the kernel back.
#[derive(Parser, Debug)]
#[command(name = "holdfast-agent", version, about, arg_required_else_help = true)]
struct Arguments {
    /// Where the agent keeps its last good policy, its lock and its socket
    #[arg(long, global = true, env = "HOLDFAST_AGENT_STATE", default_value = STATE_FOLDER, value_name = "FOLDER")]
    state: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run: enforce the last good policy from disk at once, then what the source says
    Run {
        /// Take the policy from this file, without a gateway: flat artifact bytes (*.hfp) or JSON; read again on SIGHUP and by `reload`
        #[arg(long, env = "HOLDFAST_AGENT_STANDALONE", value_name = "FILE")]
        standalone: PathBuf,
        /// Whether other programs are kept from changing the table: auto, on or off
        #[arg(long, env = "HOLDFAST_AGENT_TABLE_OWNER", default_value = "auto", value_name = "WHEN")]
        table_owner: TableOwner,
        #[command(flatten)]
        kept: KeptArguments,
    },
    /// Show what is in force and how that is known
    Status {
        /// How to print it
        #[arg(short, long, default_value = "table")]
        output: Output,
        /// With what every rule counted
        #[arg(long)]
        counters: bool,
    },
    /// Make the running agent read its standalone file again; fails if the policy is not in force afterwards
    Reload {
        /// How to print the outcome
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Take our table out of the kernel and end the agent; the last good policy stays on disk
    Down,
    /// Succeed if an agent runs here and the kernel was read back and holds its policy
    Healthcheck,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Service(#[from] service::Error),
    #[error(transparent)]
    Local(#[from] local::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("{0}")]
    Agent(String),
    #[error("the kernel is not known to hold the policy")]
    Unproven,
    #[error("cannot print")]
    Print(#[source] std::io::Error),
}

/// Runs the command of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let failed = error.use_stderr();
            drop(error.print());
            return if failed { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match execute(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn execute(Arguments { state, command }: Arguments) -> Result<(), Error> {
    match command {
        Command::Run { standalone, table_owner, kept } => {
            print::start_log();
            let config =
                Config { state_folder: state, source: Source::File(standalone), kept: kept.into_kept(), table_owner };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
            Ok(runtime.block_on(service::run(config))?)
        }
        Command::Status { output, counters } => {
            let status = status(&state, if counters { Question::Counters } else { Question::Status })?;
            match output {
                Output::Json => print::json(&status),
                Output::Table => print::status(&status),
            }
            .map_err(Error::Print)
        }
        Command::Reload { output } => match local::ask(&state, Question::Reload)? {
            Answer::Reloaded(outcome) => {
                match output {
                    Output::Json => print::json(&outcome),
                    Output::Table => print::outcome(&outcome),
                }
                .map_err(Error::Print)?;
                if outcome.is_applied() { Ok(()) } else { Err(Error::Agent("the policy is not in force".to_owned())) }
            }
            other @ (Answer::Status(_) | Answer::Down { .. } | Answer::Failed(_)) => Err(unexpected(other)),
        },
        Command::Down => {
            let removed = service::take_down(&state)?;
            print::down(removed, &state).map_err(Error::Print)
        }
        Command::Healthcheck => {
            let status = status(&state, Question::Status)?;
            if status.policy.proven { Ok(()) } else { Err(Error::Unproven) }
        }
    }
}

fn status(state: &std::path::Path, question: Question) -> Result<Status, Error> {
    match local::ask(state, question)? {
        Answer::Status(status) => Ok(*status),
        other @ (Answer::Reloaded(_) | Answer::Down { .. } | Answer::Failed(_)) => Err(unexpected(other)),
    }
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed(reason) => Error::Agent(reason),
        other @ (Answer::Status(_) | Answer::Reloaded(_) | Answer::Down { .. }) => {
            Error::Agent(format!("an unexpected answer: {other:?}"))
        }
    }
}
