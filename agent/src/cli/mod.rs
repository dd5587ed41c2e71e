//! The command line of `holdfast-agent`.
//!
//! - Every flag but `--anew` has a variable `HOLDFAST_AGENT_…`; flags win.
//! - Data on stdout, words on stderr; exit code 0 done, 1 failed, 64 for a line that is no command.

mod doctor;
mod kept;
mod own_policy;
mod print;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use holdfast_identity::{CaPin, tls};
use holdfast_model::name::Name;
use holdfast_runtime::Build;
use holdfast_runtime::exit::{self, Fatal as _};
use holdfast_runtime::line;
use holdfast_runtime::log::{self, LogFormat};

use crate::enrolment::{Begun, Enrol, EnrolError, enrol};
use crate::local::{self, Answer, Question};
use crate::nft::TableOwner;
use crate::service::{self, Config, Source, Status};
use kept::KeptArguments;

const STATE_FOLDER: &str = "/var/lib/holdfast-agent";
const USAGE: u8 = 64;
/// How every command ends, for its pages.
const ENDS: &str = "\
Exit codes: 0 done, 1 failed or not well, 64 wrong usage.
Environment: HOLDFAST_LOG (default: info), HOLDFAST_LOG_FORMAT (text or json), and the variables that flags name.";
const BUILD: Build = Build { service: "agent", version: env!("CARGO_PKG_VERSION"), commit: None };

/// Enforces rendered network policies on this host through nftables, and proves it by reading the kernel back.
#[derive(Parser, Debug)]
#[command(
    name = "holdfast-agent",
    version,
    about,
    arg_required_else_help = true,
    before_help = "Examples:
  holdfast-agent enrol --token-file web.token --gateway https://10.71.0.1:7443 \\
    --ca-pin sha256:0000000000000000000000000000000000000000000000000000000000000000
  holdfast-agent run                             # from disk, then what gateways say
  holdfast-agent status                          # what is in force
  holdfast-agent doctor                          # what is wrong, and what to do
"
)]
struct Arguments {
    /// Where the agent keeps its last good policy, its lock and its socket
    #[arg(long, global = true, env = "HOLDFAST_AGENT_STATE", default_value = STATE_FOLDER, value_name = "FOLDER")]
    state: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Enforce the last good policy from disk at once, then what the source says
    #[command(before_help = "Examples:
  holdfast-agent run
  holdfast-agent run --standalone policy.json    # docs/agent.md has its form
")]
    Run {
        /// Take the policy from this file instead of a gateway: flat artifact bytes (*.hfp) or JSON; read again on SIGHUP and by `reload`
        #[arg(long, env = "HOLDFAST_AGENT_STANDALONE", value_name = "FILE")]
        standalone: Option<PathBuf>,
        /// Whether other programs are kept from changing the table: auto, on or off
        #[arg(long, env = "HOLDFAST_AGENT_TABLE_OWNER", default_value = "auto", value_name = "WHEN")]
        table_owner: TableOwner,
        /// How often the whole table is read though nobody said that it changed, in milliseconds
        #[arg(long, env = "HOLDFAST_AGENT_VERIFY_INTERVAL_MS", default_value = "30000", value_name = "MS",
            value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
        verify_interval_ms: u64,
        /// How long a policy has to prove that it leads to a gateway before it is taken back, if it drops what is a gateway's, in milliseconds
        #[arg(long, env = "HOLDFAST_AGENT_CONFIRM_WINDOW_MS", default_value = "20000", value_name = "MS",
            value_parser = clap::value_parser!(u64).range(500..=600_000))]
        confirm_window_ms: u64,
        #[command(flatten)]
        kept: KeptArguments,
    },
    /// Get this host's identity from a gateway, once
    #[command(
        before_help = "The token is made by `holdfast enrol-token create`, the pin is keys/public/ca.pin of the plane.
Where it was cut off, the same command takes it up again.

Examples:
  holdfast-agent enrol --token-file web.token --gateway https://10.71.0.1:7443 \\
    --ca-pin sha256:0000000000000000000000000000000000000000000000000000000000000000
"
    )]
    Enrol {
        /// The file that holds the enrolment token; readable by its owner only
        #[arg(long, env = "HOLDFAST_AGENT_TOKEN_FILE", value_name = "FILE")]
        token_file: PathBuf,
        /// A gateway's door for agents
        #[arg(long, env = "HOLDFAST_AGENT_GATEWAY", value_name = "https://HOST:PORT")]
        gateway: String,
        /// The SHA-256 of the CA's public key, given out of band
        #[arg(long, env = "HOLDFAST_AGENT_CA_PIN", value_name = "sha256:HEX")]
        ca_pin: CaPin,
        /// The name of the host in its token's namespace [default: what the host calls itself]
        #[arg(long, env = "HOLDFAST_AGENT_NAME", value_name = "NAME")]
        name: Option<Name>,
        /// Forget an enrolment that was begun here and never answered; if it was granted, the control plane keeps a host that nobody serves
        #[arg(long)]
        anew: bool,
    },
    /// Show what is in force and how that is known
    #[command(before_help = "Examples:
  holdfast-agent status
  holdfast-agent status --counters -o json
")]
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
    /// Enforce a policy of this host's own in place of what was rendered for it, until it is cleared
    #[command(
        before_help = "For the hour in which the control plane is wrong or away. What gateways send meanwhile is kept and not in force,
and they are told so; it is in force again once this is cleared. It stays over restarts of agent and host.

Examples:
  holdfast-agent override policy.json    # docs/agent.md has its form
  holdfast-agent override --clear
"
    )]
    Override {
        /// The policy: flat artifact bytes (*.hfp) or JSON
        #[arg(required_unless_present = "clear", conflicts_with = "clear", value_name = "FILE")]
        file: Option<PathBuf>,
        /// Enforce again what was rendered
        #[arg(long)]
        clear: bool,
    },
    /// Take our table out of the kernel and end the agent; the last good policy stays on disk
    Down,
    /// Succeed if an agent runs here and the kernel was read back and holds its policy
    Healthcheck,
    /// What is wrong on this host, and what to do: kernel, rights, state, identity, gateways, clock
    #[command(before_help = "Nothing is changed: the kernel is tried in a network namespace of its own.

Examples:
  sudo holdfast-agent doctor
  sudo holdfast-agent doctor -o json
")]
    Doctor {
        /// How to print it
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
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
    Log(#[from] log::Error),
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    #[error("`{0}` is no name of a host; give one with --name")]
    Name(String),
    #[error(transparent)]
    Service(#[from] service::Error),
    #[error(transparent)]
    Local(#[from] local::Error),
    #[error(transparent)]
    Override(#[from] own_policy::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("{0}")]
    Agent(String),
    #[error("something is not well; what to do is said beside it")]
    Unwell,
    #[error("the kernel is not known to hold the policy")]
    Unproven,
    #[error("cannot print")]
    Print(#[source] std::io::Error),
}

impl Error {
    fn rule(&self) -> &str {
        match self {
            Self::Log(error) => error.rule(),
            Self::Enrol(error) => error.rule(),
            Self::Name(_) => "host-name",
            Self::Service(error) => error.rule(),
            Self::Local(error) => error.rule(),
            Self::Override(error) => error.rule(),
            Self::Runtime(_) => "runtime",
            Self::Agent(_) => "agent-failed",
            Self::Unproven => "unproven",
            Self::Unwell => "unwell",
            Self::Print(_) => "print",
        }
    }
}

/// Runs the command of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match line::parse::<Arguments>(ENDS) {
        Ok(arguments) => arguments,
        Err(error) => {
            return if exit::tell_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match execute(arguments) {
        Ok(()) => {
            log::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            print::error(&error, error.rule());
            ExitCode::FAILURE
        }
    }
}

fn execute(Arguments { state, command }: Arguments) -> Result<(), Error> {
    match command {
        Command::Run { standalone, table_owner, verify_interval_ms, confirm_window_ms, kept } => {
            start_log()?;
            let source = standalone.map_or(Source::Gateways, Source::File);
            let verify_interval = Duration::from_millis(verify_interval_ms);
            let confirm_window = Duration::from_millis(confirm_window_ms);
            let kept = kept.into_kept();
            let config = Config { state_folder: state, source, kept, table_owner, verify_interval, confirm_window };
            Ok(runtime()?.block_on(service::run(config))?)
        }
        Command::Enrol { token_file, gateway, ca_pin, name, anew } => {
            let name = match name {
                Some(name) => name,
                None => own_name()?,
            };
            let begun = if anew { Begun::GiveUp } else { Begun::Finish };
            let with = Enrol { state_folder: state, token_file, gateway, ca_pin, name, begun };
            let enrolled = runtime()?.block_on(enrol(&with))?;
            print::enrolled(enrolled, &with.name).map_err(Error::Print)
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
            // A host that gateways serve has no other file to read.
            Answer::Local { in_force } => print::local(in_force).map_err(Error::Print),
            other @ (Answer::Status(_) | Answer::Down { .. } | Answer::Failed(_)) => Err(unexpected(other)),
        },
        Command::Override { file, clear: _ } => Ok(own_policy::replace(&state, file.as_deref())?),
        Command::Down => {
            let removed = service::take_down(&state)?;
            print::down(removed, &state).map_err(Error::Print)
        }
        Command::Doctor { output } => {
            let findings = runtime()?.block_on(doctor::look(&state));
            match output {
                Output::Json => print::json(&findings),
                Output::Table => findings.print(),
            }
            .map_err(Error::Print)?;
            if findings.is_well() { Ok(()) } else { Err(Error::Unwell) }
        }
        Command::Healthcheck => {
            let status = status(&state, Question::Status)?;
            if status.policy.proven { Ok(()) } else { Err(Error::Unproven) }
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tls::install_crypto_provider();
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)
}

/// Logs to stderr: `HOLDFAST_LOG` filters, `HOLDFAST_LOG_FORMAT` is `text` or `json`.
fn start_log() -> Result<(), log::Error> {
    let filter = std::env::var("HOLDFAST_LOG").unwrap_or_else(|_| log::FILTER.to_owned());
    let format = std::env::var("HOLDFAST_LOG_FORMAT").ok().and_then(|format| format.parse().ok());
    log::init(BUILD, &filter, format.unwrap_or_else(LogFormat::of_terminal))
}

/// The host's own name, in the form that names of hosts have.
fn own_name() -> Result<Name, Error> {
    let hostname = crate::session::inventory::observe().hostname.to_lowercase();
    hostname.parse().map_err(|_| Error::Name(hostname))
}

fn status(state: &std::path::Path, question: Question) -> Result<Status, Error> {
    match local::ask(state, question)? {
        Answer::Status(status) => Ok(*status),
        other @ (Answer::Reloaded(_) | Answer::Local { .. } | Answer::Down { .. } | Answer::Failed(_)) => {
            Err(unexpected(other))
        }
    }
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed(reason) => Error::Agent(reason),
        Answer::Status(_) | Answer::Reloaded(_) | Answer::Local { .. } | Answer::Down { .. } => {
            Error::Agent("an answer to another question came: another build's agent runs, restart it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_teaches() {
        assert_eq!(line::faults(&line::line::<Arguments>(ENDS)), Vec::<String>::new());
    }
}
