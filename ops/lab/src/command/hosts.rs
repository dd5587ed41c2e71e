//! `holdfast-lab hosts`: what the lab's hosts are, from its record.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::output::{Format, write_json, write_table};
use crate::agents;
use crate::record::{self, Host, Record};

/// Flags of `hosts`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The form of the list.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no lab to list.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// Stdout does not take it.
    #[error("cannot write the list of hosts")]
    Write(#[source] io::Error),
}

/// One host as programs read it.
#[derive(Serialize)]
struct View<'a> {
    name: &'a str,
    namespace: &'a str,
    addresses: &'a [IpAddr],
    management: &'a [IpAddr],
    agent_pid: Option<i32>,
    state: &'a Path,
}

impl<'a> View<'a> {
    fn of(host: &'a Host) -> Self {
        Self {
            name: &host.name,
            namespace: &host.namespace,
            addresses: &host.addresses,
            management: &host.management,
            agent_pid: agents::find(host).map(|agent| agent.pid),
            state: &host.state,
        }
    }

    fn row(&self) -> Vec<String> {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        vec![
            self.name.to_owned(),
            self.namespace.to_owned(),
            addresses.join(" "),
            self.agent_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            self.state.display().to_string(),
        ]
    }
}

/// Lists the hosts of the lab in this folder.
///
/// # Errors
/// See [`Error`].
pub fn run(lab: &Path, args: &Args) -> Result<ExitCode, Error> {
    let record = Record::load(lab)?;
    let views: Vec<View<'_>> = record.hosts.iter().map(View::of).collect();
    match args.output {
        Format::Json => write_json(&views),
        Format::Table => {
            write_table(&["NAME", "NAMESPACE", "ADDRESSES", "AGENT", "STATE"], views.iter().map(View::row))
        }
    }
    .map_err(Error::Write)?;
    Ok(ExitCode::SUCCESS)
}
