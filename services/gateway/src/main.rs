//! `holdfast-gateway`: holds the sessions of agents and serves the API of operators.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use holdfast_gateway::config::GatewayConfig;
use holdfast_gateway::run::{self, BUILD};
use holdfast_runtime::config::{self, ConfigFlags, Origin, Sources};
use holdfast_runtime::exit::{Fatal, finish, parse_args};
use holdfast_runtime::{Exit, admin};

/// Holds the sessions of agents and serves the API of operators.
#[derive(Debug, Parser)]
#[command(name = "holdfast-gateway", version)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<GatewayConfig>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Opens the doors (the default).
    Run,
    /// Asks the running gateway whether it is ready; exit 0 if it is.
    Healthcheck,
    /// Prints the settings in force and where each came from.
    Config,
    /// Makes an API token for everything and prints it, this once. Needs the database role of the operators' door.
    AdminToken {
        /// What the token is called in lists and events.
        #[arg(long, default_value = "admin")]
        name: String,
    },
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the settings cannot be used")]
    Config(#[from] config::Error),
    #[error("the settings have no text form")]
    Show(#[from] toml::ser::Error),
    #[error("the gateway is not ready")]
    Healthcheck(#[from] admin::Error),
    #[error("the gateway stopped")]
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
        Command::AdminToken { name } => {
            use std::io::Write as _;
            let token = runtime.block_on(run::admin_token(loaded, &name))?;
            writeln!(std::io::stdout(), "{}", token.reveal()).map_err(Error::Print)
        }
    }
}
