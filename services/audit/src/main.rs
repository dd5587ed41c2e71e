//! `holdfast-audit`: keeps a copy of every event that proves itself, and hands it out.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use holdfast_audit::config::AuditConfig;
use holdfast_audit::run::{self, BUILD};
use holdfast_runtime::config::{self, ConfigFlags, Origin, Sources};
use holdfast_runtime::exit::{Fatal, finish, parse_args};
use holdfast_runtime::{Exit, admin};

/// Keeps the audit log: every event of the control plane, in a chain that proves itself.
#[derive(Debug, Parser)]
#[command(name = "holdfast-audit", version)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<AuditConfig>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keeps and serves the log (the default).
    Run,
    /// Asks the running service whether it is ready; exit 0 if it is.
    Healthcheck,
    /// Prints the settings in force and where each came from.
    Config,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the settings cannot be used")]
    Config(#[from] config::Error),
    #[error("the settings have no text form")]
    Show(#[from] toml::ser::Error),
    #[error("the service is not ready")]
    Healthcheck(#[from] admin::Error),
    #[error("the audit service stopped")]
    Run(#[from] run::Error),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    #[error("nothing can be printed")]
    Print(#[source] std::io::Error),
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(error) => error.exit(),
            Self::Healthcheck(error) => error.exit(),
            Self::Run(error) => error.exit(),
            Self::Show(_) | Self::Runtime(_) | Self::Print(_) => Exit::Software,
        }
    }
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    finish(start(parse_args()))
}

fn start(cli: Cli) -> Result<(), Error> {
    let loaded = config::load(Sources::of_process(cli.config))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => Ok(runtime.block_on(run::run(loaded))?),
        Command::Healthcheck => {
            Ok(runtime.block_on(admin::healthcheck(loaded.config.admin_listen, Duration::from_secs(3)))?)
        }
        Command::Config => {
            use std::io::Write as _;
            write!(std::io::stdout(), "# {}\n{}", BUILD.service, loaded.show(Origin::Shown)?).map_err(Error::Print)
        }
    }
}
