//! One edit of one host's policy, from before it is asked for until its outcome is stored, beside the floor of the same run: P1.
//!
//! - A figure is a ratio to a floor or peer that ran in turn with it on the same machine; absolute times are printed and not judged.
//! - Servers are real and the benchmark's own: Postgres with fsync, nats-server, TLS on loopback.

mod agent;
mod beside;
mod floor;
mod product;
mod stages;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use holdfast_bench::Machine;
use holdfast_bench::figures::{Figure, Times};
use holdfast_bench::paired::{Bound, Compared, Paired, ROUNDS_MIN, Role};
use holdfast_identity::Ca;
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use serde::Serialize;
use time::OffsetDateTime;

use crate::beside::Beside;
use crate::floor::Floor;
use crate::product::Product;
use crate::stages::{Stage, Stages, Stamps};

/// Measures Holdfast beside the floor of the same run.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A change of one peer: committed until its outcome is stored, spaced and back to back, beside P1's floor.
    Change {
        /// How many changes of each kind.
        #[arg(long, default_value_t = 1_000)]
        count: u32,
        /// The space between spaced changes, in milliseconds.
        #[arg(long, default_value_t = 100)]
        spaced_ms: u64,
        /// In how many documents of the same size the 60 rules of the host's policy are authored; a change edits one.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=60))]
        documents: u16,
        /// Commits wait for the disk, as they must; `false` takes the disk out of both sides, for comparing builds.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
        synced: bool,
    },
}

const PRODUCT: &str = "holdfast";
const FLOOR: &str = "raw calls";

/// One way of asking for changes, measured.
#[derive(Serialize)]
struct Measured {
    /// From before the transaction on.
    asked_to_done: Figure,
    /// From its commit on.
    committed_to_done: Figure,
}

/// The product's own spaced changes: done means that the outcome is stored.
#[derive(Serialize)]
struct Spaced {
    #[serde(flatten)]
    measured: Measured,
    /// Until the gateway has verified the agent's word: P1's own end, which the floor's 8 bytes stand for.
    asked_to_acked: Figure,
    /// Where the time went.
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    /// The bar by rounds of spaced changes, and whether the floor stood still enough to tell.
    by_rounds: Compared,
    spaced: Spaced,
    spaced_floor: Measured,
    /// Asked to acked over the floor, as P1 has it: it wants at most 4 of each.
    acked_p50_ratio: f64,
    acked_p99_ratio: f64,
    /// Asked to stored over the same floor, which stores nothing at its end.
    stored_p50_ratio: f64,
    stored_p99_ratio: f64,
    /// Closed loop on one host: within the 50 ms of quiet, so the coalescing shows.
    back_to_back: Measured,
    back_to_back_floor: Measured,
    /// What is done beside a change, over the same without it.
    beside: Beside,
    /// What parts warned of meanwhile.
    warnings: Vec<String>,
}

#[derive(Default)]
struct Both {
    asked: Times,
    committed: Times,
}

impl Both {
    fn push(&mut self, (asked, committed): (Duration, Duration)) {
        self.asked.push(asked);
        self.committed.push(committed);
    }

    fn measured(&self) -> Measured {
        Measured { asked_to_done: self.asked.figure(), committed_to_done: self.committed.figure() }
    }
}

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    let cli: Cli = holdfast_runtime::exit::parse_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match cli.command {
        Command::Change { count, spaced_ms, documents, synced } => {
            let report = runtime.block_on(change(count, Duration::from_millis(spaced_ms), documents, synced));
            let text = serde_json::to_string_pretty(&report).expect("figures have a text form");
            print(&text);
        }
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn print(text: &str) {
    println!("{text}");
}

async fn change(count: u32, space: Duration, documents: u16, synced: bool) -> Report {
    let stamps = Stamps::listen();
    let mut postgres = TestPostgres::start_migrated().await;
    // A test's server does not sync; what is measured here does.
    if synced {
        postgres.restart_durable();
        assert_eq!(postgres.sql("SHOW fsync"), "on\n", "commits are synced");
    }
    let nats = NatsServer::start(NatsVersion::Current);
    let ca = Arc::new(Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).expect("a CA"));
    let mut product = Product::start(&postgres, &nats.url(), Arc::clone(&ca), documents).await;
    let mut floor = Floor::start(&postgres.config("postgres"), &nats.url(), &ca).await;
    let before = product.version().await;

    let mut machine = Machine::observe();
    let mut by_rounds = Paired::new("one change, asked to acked", ROUNDS_MIN as usize)
        .side(PRODUCT, Role::Product)
        .side(FLOOR, Role::Floor)
        .ratio("P1", PRODUCT, FLOOR, Bound::AtMost(4.0));
    let (mut spaced, mut spaced_floor, mut stages) = (Both::default(), Both::default(), Stages::new());
    for n in 0..count {
        tokio::time::sleep(space / 2).await;
        stamps.clear();
        let begun = Instant::now();
        let (asked, committed) = product.change().await;
        let acked = stages.push(&stamps, begun, asked - committed);
        spaced.push((asked, committed));
        tokio::time::sleep(space / 2).await;
        let raw = floor.change(n).await;
        spaced_floor.push(raw);
        let round = (n * ROUNDS_MIN / count) as usize;
        by_rounds.push(round, PRODUCT, acked);
        by_rounds.push(round, FLOOR, raw.0);
    }
    let (mut back_to_back, mut back_to_back_floor) = (Both::default(), Both::default());
    for n in 0..count {
        back_to_back_floor.push(floor.change(n).await);
    }
    for _ in 0..count {
        back_to_back.push(product.change().await);
    }
    // Each change was one version, or something else was measured than what it says.
    assert_eq!(product.version().await - before, u64::from(2 * count));
    let beside = beside::measure(&mut product, count).await;
    product.stop().await;

    let (own, raw, acked) = (spaced.measured(), spaced_floor.measured(), stages.acked());
    machine.observe_end();
    Report {
        machine,
        by_rounds: by_rounds.compared(),
        acked_p50_ratio: acked.p50_ms / raw.asked_to_done.p50_ms,
        acked_p99_ratio: acked.p99_ms / raw.asked_to_done.p99_ms,
        stored_p50_ratio: own.asked_to_done.p50_ms / raw.asked_to_done.p50_ms,
        stored_p99_ratio: own.asked_to_done.p99_ms / raw.asked_to_done.p99_ms,
        spaced: Spaced { measured: own, asked_to_acked: acked, stages: stages.figures() },
        spaced_floor: raw,
        back_to_back: back_to_back.measured(),
        back_to_back_floor: back_to_back_floor.measured(),
        beside,
        warnings: stamps.warnings(),
    }
}

#[cfg(test)]
mod tests {
    mod postgres {
        use std::time::Duration;

        #[tokio::test(flavor = "multi_thread")]
        async fn changes_are_measured_stage_by_stage_beside_their_floor() {
            holdfast_identity::tls::install_crypto_provider();
            let report = Box::pin(crate::change(5, Duration::from_millis(2), 12, false)).await;
            assert_eq!(report.spaced.stages.len(), 10);
            assert!([report.acked_p50_ratio, report.stored_p50_ratio].iter().all(|ratio| *ratio > 1.0));
            assert_eq!(report.by_rounds.ratios.len(), 1);
            for beside in [&report.beside.brake, &report.beside.status] {
                assert!(beside.sides.iter().all(|side| side.figure.count == 5 && side.figure.p50_ms > 0.0));
            }
            assert!(report.by_rounds.sides.iter().all(|side| side.figure.count == 5 && side.figure.p50_ms > 0.0));
        }
    }
}
