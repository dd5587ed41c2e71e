//! `holdfast-renderer`: makes an installation's keys, migrates its database, renders.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use holdfast_renderer::config::RendererConfig;
use holdfast_renderer::init::{self, Names};
use holdfast_renderer::run;
use holdfast_renderer::run::BUILD;
use holdfast_runtime::Exit;
use holdfast_runtime::config::{self, ConfigFlags, Loaded, Sources};
use holdfast_runtime::exit::{Fatal, finish, parse_args};
use holdfast_runtime::service::{self, Common, block_on, perform, print};
use time::OffsetDateTime;

/// Renders what operators authored into one desired state per host, under a lease: start several, one works.
///
/// A new installation: `init`, then start Postgres and NATS with the files that it made, then `migrate`, then `run`.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast-renderer",
    version,
    before_help = "Examples:
  holdfast-renderer init --dir keys --gateway-agents-name gateway.example
  holdfast-renderer migrate                      # by the owner's role
  holdfast-renderer --config /etc/holdfast/renderer.toml run
  holdfast-renderer config                       # the settings in force
"
)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<RendererConfig>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Common(Common),
    /// Makes keys, certificates and server configurations; a second run makes only what is missing.
    #[command(before_help = "Examples:
  holdfast-renderer init --dir keys --gateway-agents-name gateway.example \\
    --gateway-operators-name holdfast.example
")]
    Init(InitArgs),
    /// Brings the database to the form of this build. Needs the owner's role and `--identity` with the CA's certificate.
    Migrate,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// The folder that gets one folder for each process.
    #[arg(long)]
    dir: PathBuf,
    /// A name or address of the agents' doors, beside localhost; may be given several times.
    #[arg(long, value_name = "NAME")]
    gateway_agents_name: Vec<String>,
    /// A name or address of the operators' doors.
    #[arg(long, value_name = "NAME")]
    gateway_operators_name: Vec<String>,
    /// A name or address of the audit service.
    #[arg(long, value_name = "NAME")]
    audit_name: Vec<String>,
    /// A name or address of NATS.
    #[arg(long, value_name = "NAME")]
    nats_name: Vec<String>,
    /// A name or address of Postgres.
    #[arg(long, value_name = "NAME")]
    postgres_name: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Service(#[from] service::Error<run::Error>),
    #[error("the installation is not complete")]
    Init(#[from] init::Error),
    #[error("what was made has no text form")]
    Json(#[from] serde_json::Error),
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Service(error) => error.exit(),
            Self::Init(_) => Exit::Config,
            Self::Json(_) => Exit::Software,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Service(error) => error.rule(),
            Self::Init(error) => error.rule(),
            Self::Json(_) => "print",
        }
    }
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    let cli: Cli = parse_args();
    finish(match cli.command.unwrap_or(Command::Common(Common::Run)) {
        // It needs no settings: there is nothing yet that they could name.
        Command::Init(args) => make(args),
        Command::Common(command) => load(cli.config).and_then(|loaded| {
            let admin_listen = loaded.config.admin_listen;
            Ok(perform(BUILD, command, loaded, admin_listen, run::run)?)
        }),
        Command::Migrate => load(cli.config).and_then(|loaded| migrate(&loaded)),
    })
}

fn load(flags: ConfigFlags<RendererConfig>) -> Result<Loaded<RendererConfig>, Error> {
    Ok(config::load(Sources::of_process(flags)).map_err(service::Error::Config)?)
}

fn migrate(loaded: &Loaded<RendererConfig>) -> Result<(), Error> {
    let migrated = block_on(run::migrate(&loaded.config))?;
    let migrated = migrated.map_err(|source| service::Error::Run { service: BUILD.service, source })?;
    Ok(print(&format!("{} steps taken\n", migrated.steps))?)
}

fn make(args: InitArgs) -> Result<(), Error> {
    let names = Names {
        gateway_agents: args.gateway_agents_name,
        gateway_operators: args.gateway_operators_name,
        audit: args.audit_name,
        nats: args.nats_name,
        postgres: args.postgres_name,
    };
    let made = init::init(&args.dir, &names, OffsetDateTime::now_utc())?;
    Ok(print(&format!("{}\n", serde_json::to_string_pretty(&made)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_teaches() {
        let line = holdfast_runtime::line::line::<Cli>(holdfast_runtime::exit::ENDS);
        assert_eq!(holdfast_runtime::line::faults(&line), Vec::<String>::new());
    }
}
