//! `holdfast-renderer`: makes an installation's keys, migrates its database, renders.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use holdfast_renderer::config::RendererConfig;
use holdfast_renderer::init::{self, Names};
use holdfast_renderer::run;
use holdfast_runtime::config::{self, ConfigFlags, Loaded, Origin, Sources};
use holdfast_runtime::exit::{Fatal, finish, parse_args};
use holdfast_runtime::{Exit, admin};
use time::OffsetDateTime;

/// Renders what operators authored into one desired state per host, under a lease: start several, one works.
///
/// A new installation: `init`, then start Postgres and NATS with the files that it made, then `migrate`, then `run`.
#[derive(Debug, Parser)]
#[command(name = "holdfast-renderer", version)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<RendererConfig>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Renders (the default).
    Run,
    /// Makes keys, certificates and server configurations; a second run makes only what is missing.
    Init(InitArgs),
    /// Brings the database to the form of this build. Needs the owner's role and `--identity` with the CA's certificate.
    Migrate,
    /// Asks the running renderer whether it is ready; exit 0 if it is.
    Healthcheck,
    /// Prints the settings in force and where each came from.
    Config,
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
    #[error("the settings cannot be used")]
    Config(#[from] config::Error),
    #[error("the settings have no text form")]
    Show(#[from] toml::ser::Error),
    #[error("the renderer is not ready")]
    Healthcheck(#[from] admin::Error),
    #[error("the installation is not complete")]
    Init(#[from] init::Error),
    #[error("the renderer stopped")]
    Run(#[from] run::Error),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    #[error("nothing can be printed")]
    Print(#[source] std::io::Error),
    #[error("what was made has no text form")]
    Json(#[from] serde_json::Error),
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(error) => error.exit(),
            Self::Healthcheck(error) => error.exit(),
            Self::Run(error) => error.exit(),
            Self::Init(_) => Exit::Config,
            Self::Show(_) | Self::Runtime(_) | Self::Print(_) | Self::Json(_) => Exit::Software,
        }
    }
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    let cli: Cli = parse_args();
    finish(match cli.command.unwrap_or(Command::Run) {
        // It needs no settings: there is nothing yet that they could name.
        Command::Init(args) => make(args),
        command @ (Command::Run | Command::Migrate | Command::Healthcheck | Command::Config) => {
            start(command, cli.config)
        }
    })
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
    print(&format!("{}\n", serde_json::to_string_pretty(&made)?))
}

fn start(command: Command, flags: ConfigFlags<RendererConfig>) -> Result<(), Error> {
    let loaded: Loaded<RendererConfig> = config::load(Sources::of_process(flags))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    match command {
        Command::Run => Ok(runtime.block_on(run::run(loaded))?),
        Command::Migrate => {
            let migrated = runtime.block_on(run::migrate(&loaded.config))?;
            print(&format!("{} steps taken\n", migrated.steps))
        }
        Command::Healthcheck => {
            Ok(runtime.block_on(admin::healthcheck(loaded.config.admin_listen, Duration::from_secs(3)))?)
        }
        Command::Config => print(&loaded.show(Origin::Shown)?),
        Command::Init(args) => make(args),
    }
}

fn print(text: &str) -> Result<(), Error> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}
