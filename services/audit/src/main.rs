//! `holdfast-audit`: keeps a copy of every event that proves itself, and hands it out.

use std::process::ExitCode;

use clap::Parser;
use holdfast_audit::config::AuditConfig;
use holdfast_audit::run::{self, BUILD};
use holdfast_runtime::config::{self, ConfigFlags, Sources};
use holdfast_runtime::exit::{finish, parse_args};
use holdfast_runtime::service::{Common, Error, perform};

/// Keeps the audit log: every event of the control plane, in a chain that proves itself.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast-audit",
    version,
    before_help = "Examples:
  holdfast-audit --config /etc/holdfast/audit.toml run
  holdfast-audit healthcheck                     # is it ready
  holdfast-audit config                          # the settings in force
"
)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags<AuditConfig>,
    #[command(subcommand)]
    command: Option<Common>,
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    finish(start(parse_args()))
}

fn start(cli: Cli) -> Result<(), Error<run::Error>> {
    let loaded = config::load(Sources::<AuditConfig>::of_process(cli.config))?;
    let admin_listen = loaded.config.admin_listen;
    perform(BUILD, cli.command.unwrap_or(Common::Run), loaded, admin_listen, run::run)
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
