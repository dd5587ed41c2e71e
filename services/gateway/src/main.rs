//! `holdfast-gateway`: holds the sessions of agents and serves the API of operators.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast_gateway::config::GatewayConfig;
use holdfast_gateway::run::{self, BUILD};
use holdfast_runtime::config::{self, ConfigFlags, Sources};
use holdfast_runtime::exit::{finish, parse_args};
use holdfast_runtime::service::{Common, Error, block_on, perform, print};

/// Holds the sessions of agents and serves the API of operators.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast-gateway",
    version,
    before_help = "Examples:
  holdfast-gateway --config /etc/holdfast/gateway.toml run
  holdfast-gateway --doors agents run                    # or both in one
  (umask 077; holdfast-gateway admin-token > admin.token)  # the first token
  holdfast-gateway config                                # the settings in force
"
)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<GatewayConfig>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Common(Common),
    /// Makes an API token for everything and prints it, this once. Needs the database role of the operators' door.
    #[command(before_help = "Examples:
  (umask 077; holdfast-gateway admin-token > admin.token)
")]
    AdminToken {
        /// What the token is called in lists and events.
        #[arg(long, default_value = "admin")]
        name: String,
    },
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    finish(start(parse_args()))
}

fn start(cli: Cli) -> Result<(), Error<run::Error>> {
    let loaded = config::load(Sources::<GatewayConfig>::of_process(cli.config))?;
    match cli.command.unwrap_or(Command::Common(Common::Run)) {
        Command::Common(command) => {
            let admin_listen = loaded.config.admin_listen;
            perform(BUILD, command, loaded, admin_listen, run::run)
        }
        Command::AdminToken { name } => {
            let token = block_on(run::admin_token(loaded, &name))?;
            let token = token.map_err(|source| Error::Run { service: BUILD.service, source })?;
            print(&format!("{}\n", token.reveal()))
        }
    }
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
