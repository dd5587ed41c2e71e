//! `holdfast-bench`: how long things take, beside the floor of the same run.
//!
//! - A figure is a ratio to a floor or peer that ran in turn with it on the same machine; absolute times are printed and not judged.
//! - Servers are real and the benchmark's own: Postgres with fsync, nats-server, TLS on loopback.

mod agent;
mod figures;
mod floor;
mod product;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use figures::{Figure, Times};
use holdfast_identity::Ca;
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use serde::Serialize;
use time::OffsetDateTime;

use crate::floor::Floor;
use crate::product::Product;

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
    },
}

/// One way of asking for changes, measured.
#[derive(Serialize)]
struct Measured {
    /// From before the transaction on.
    asked_to_done: Figure,
    /// From its commit on.
    committed_to_done: Figure,
}

#[derive(Serialize)]
struct Report {
    spaced: Measured,
    spaced_floor: Measured,
    /// The product's p50 over the floor's, from before the transaction on: P1 wants at most 4.
    spaced_p50_ratio: f64,
    spaced_p99_ratio: f64,
    /// Closed loop on one host: within the 50 ms of quiet, so the coalescing shows.
    back_to_back: Measured,
    back_to_back_floor: Measured,
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
        Command::Change { count, spaced_ms } => {
            let report = runtime.block_on(change(count, Duration::from_millis(spaced_ms)));
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

async fn change(count: u32, space: Duration) -> Report {
    let postgres = TestPostgres::start_migrated().await;
    // A test's server does not sync; what is measured here does.
    postgres.sql("ALTER SYSTEM SET fsync = on");
    postgres.sql("ALTER SYSTEM SET synchronous_commit = on");
    postgres.sql("SELECT pg_reload_conf()");
    let nats = NatsServer::start(NatsVersion::Current);
    let ca = Arc::new(Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).expect("a CA"));
    let mut product = Product::start(&postgres, &nats.url(), Arc::clone(&ca)).await;
    let mut floor = Floor::start(&postgres.config("postgres"), &nats.url(), &ca).await;
    let before = product.version().await;

    let (mut spaced, mut spaced_floor) = (Both::default(), Both::default());
    for n in 0..count {
        tokio::time::sleep(space / 2).await;
        spaced.push(product.change().await);
        tokio::time::sleep(space / 2).await;
        spaced_floor.push(floor.change(n).await);
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
    product.stop().await;

    let (own, raw) = (spaced.measured(), spaced_floor.measured());
    Report {
        spaced_p50_ratio: own.asked_to_done.p50_ms / raw.asked_to_done.p50_ms,
        spaced_p99_ratio: own.asked_to_done.p99_ms / raw.asked_to_done.p99_ms,
        spaced: own,
        spaced_floor: raw,
        back_to_back: back_to_back.measured(),
        back_to_back_floor: back_to_back_floor.measured(),
    }
}
