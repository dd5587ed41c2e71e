//! How fast events go from Postgres into JetStream and from there into the audit log, beside raw calls: P7 and P24.
//!
//! - Product: the renderer's relay under its lease, which numbers, reads, publishes and checks; the audit service's keeper, which checks the order,
//!   chains, writes and syncs.
//! - Floor: rows claimed and marked a thousand at a time; publishes with 256 acknowledgements under way; a durable pull that acknowledges each.
//! - Sides of one comparison move the same number of events of the same bytes. Servers are the benchmark's own; commits wait for the disk.

mod product;
mod raw;

use clap::Parser;
use holdfast_bench::Report;
use holdfast_bench::paired::{Bound, Compared, Paired, Role};
use holdfast_store::testing::TestPostgres;
use holdfast_suite::nats::{NatsServer, NatsVersion};

use crate::product::{Relay, catch_up};
use crate::raw::{Jet, Outbox};

/// Measures the relay of events and the audit service's catching up beside raw calls. Starts a Postgres and a nats-server of its own.
#[derive(Debug, Parser)]
struct Cli {
    /// 2,000 events a round instead of 10,000.
    #[arg(long)]
    quick: bool,
    /// How many events go through a round.
    #[arg(long, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    events: Option<u32>,
}

fn main() {
    holdfast_identity::tls::install_crypto_provider();
    let cli: Cli = holdfast_runtime::exit::parse_args();
    let events = cli.events.unwrap_or(if cli.quick { 2_000 } else { 10_000 });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Box::pin(measure(events, 5))).print();
}

async fn measure(events: u32, rounds: usize) -> Report {
    let mut report = Report::begin("bus");
    let mut postgres = TestPostgres::start_migrated().await;
    postgres.restart_durable();
    let nats = NatsServer::start(NatsVersion::Current);
    let relay = Relay::start(&postgres, &nats.url()).await;
    report.compared.push(relaying(&relay, &postgres, &nats, events, rounds).await);
    let held = relay.held().await;
    relay.stop().await;
    report.compared.push(auditing(&nats, held, rounds).await);
    report
}

/// P7.
async fn relaying(
    relay: &Relay<'_>,
    postgres: &TestPostgres,
    nats: &NatsServer,
    events: u32,
    rounds: usize,
) -> Compared {
    let (ours, claim, acks) =
        ("holdfast-renderer: numbered to acknowledged", "claim and mark, 1,000 a time", "publish, 256 acks under way");
    let mut paired = Paired::new(format!("{events} events from Postgres into JetStream"), rounds)
        .side(ours, Role::Product)
        .side(claim, Role::Floor)
        .side(acks, Role::Floor);
    let mut outbox = Outbox::start(postgres).await;
    let jet = Jet::start(&nats.url()).await;
    for round in 0..rounds {
        paired.push(round, ours, relay.carry(events).await);
        paired.push(round, claim, outbox.claim(events).await);
        paired.push(round, acks, jet.publish(events, relay.event_bytes().await).await);
    }
    // The bar is against the slower of the two: nobody relays faster than that.
    let measured = paired.compared();
    let p50 = |name: &str| measured.sides.iter().find(|side| side.name == name).map_or(0.0, |side| side.figure.p50_ms);
    let (slower, faster) = if p50(claim) >= p50(acks) { (claim, acks) } else { (acks, claim) };
    paired.ratio("P7", ours, slower, Bound::AtLeast(0.3)).ratio("", ours, faster, Bound::None).compared()
}

/// P24.
async fn auditing(nats: &NatsServer, held: u32, rounds: usize) -> Compared {
    let (ours, pull) = ("holdfast-audit: checked, chained, synced", "durable pull, each acknowledged");
    let mut paired = Paired::new(format!("{held} events from JetStream into the audit log"), rounds)
        .side(ours, Role::Product)
        .side(pull, Role::Floor);
    let jet = Jet::start(&nats.url()).await;
    for round in 0..rounds {
        paired.push(round, ours, catch_up(&nats.url(), held).await);
        paired.push(round, pull, jet.pull(round, held).await);
    }
    paired.ratio("P24", ours, pull, Bound::AtLeast(0.3)).compared()
}

#[cfg(test)]
mod tests {
    mod postgres {
        use crate::measure;

        #[tokio::test(flavor = "multi_thread")]
        async fn relay_and_audit_carry_every_event_and_are_compared_with_raw_calls() {
            let report = Box::pin(measure(150, 2)).await;
            let shape: Vec<_> = report.compared.iter().map(|c| (c.sides.len(), c.ratios.len())).collect();
            assert_eq!(shape, [(3, 2), (2, 1)]);
            assert!(report.compared.iter().flat_map(|c| &c.sides).all(|side| side.figure.p50_ms > 0.0), "{report}");
            assert!(report.compared.iter().flat_map(|c| &c.ratios).all(|ratio| ratio.ratio > 0.0), "{report}");
        }
    }
}
