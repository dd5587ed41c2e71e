//! `holdfast-lab probe FROM TO PORT/PROTO`: one flow by real packets. And `prober`, the hidden helper that sends them.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::output::{Format, Waiting, write_json, write_table};
use crate::flow::Flow;
use crate::lab::{self, Lab};
use crate::party::{Party, PartyError};
use crate::prober::{self, Mesh, Outcome, Patience, Shot};

/// Flags of `probe`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Who opens: a host (`web-1`, `booking/web-1`), or an address of somebody outside (`192.0.2.9`, `ip:192.0.2.9`).
    from: Party,
    /// Toward whom, likewise.
    to: Party,
    /// `443/tcp`, `53/udp`, `2905/sctp`, `icmp` or `protocol/47`.
    flow: Flow,
    /// The form of the outcomes.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Why nothing was probed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// One end has no address.
    #[error(transparent)]
    Party(#[from] PartyError),
    /// A helper fails.
    #[error(transparent)]
    Prober(#[from] prober::Error),
    /// This binary cannot be started again.
    #[error("cannot find this program's own file")]
    Program(#[source] io::Error),
    /// Stdout does not take it.
    #[error("cannot write the outcomes")]
    Write(#[source] io::Error),
}

/// One probe's end as programs read it.
#[derive(Serialize)]
struct View {
    source: IpAddr,
    destination: IpAddr,
    flow: Flow,
    outcome: Outcome,
}

impl View {
    fn row(&self) -> Vec<String> {
        vec![self.source.to_string(), self.destination.to_string(), self.flow.to_string(), self.outcome.to_string()]
    }
}

/// Probes a flow between every pair of addresses of one family. Exit code 0 if all got through, 1 otherwise.
///
/// # Errors
/// See [`Error`].
pub fn run(folder: &Path, args: &Args) -> Result<ExitCode, Error> {
    let lab = Lab::open(folder)?;
    let mut shots = Vec::new();
    for (source, destination) in args.from.pairs(&args.to, lab.record())? {
        shots.push(Shot { source, destination, flow: args.flow });
    }
    let program = std::env::current_exe().map_err(Error::Program)?;
    let patience = Patience::for_allowed();
    let longest_s = patience.attempts_ms.iter().sum::<u64>().div_ceil(1_000);
    let waiting =
        Waiting::begin(args.output, format!("no answer yet; waiting up to {longest_s} s: a dropped packet has none"));
    let answers = Mesh::new(&lab, program).fire(&shots, &patience, &|_| {})?;
    drop(waiting);
    let views: Vec<View> = shots
        .iter()
        .zip(answers)
        .map(|(shot, answer)| View {
            source: shot.source,
            destination: shot.destination,
            flow: shot.flow,
            outcome: answer.outcome,
        })
        .collect();
    match args.output {
        Format::Json => write_json(&views),
        Format::Table => write_table(&["SOURCE", "DESTINATION", "FLOW", "OUTCOME"], views.iter().map(View::row)),
    }
    .map_err(Error::Write)?;
    let all_passed = views.iter().all(|view| view.outcome == Outcome::Passed);
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
