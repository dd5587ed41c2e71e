//! Many agents and one gateway, beside a bare TLS server in a process of its own: P3, P8, P9 and P11, and handshakes in memory.
//!
//! - Product: the agents' door with a real Postgres and NATS behind it, and agents that are the real session machine without a kernel.
//! - Floor: rustls and a task a connection; 4 kB out, a byte back; for a change, one read of all rows before.
//! - Each round kills the server, starts another and lets all agents dial at once, without the jitter that real ones have.
//! - A change ends when the last agent has written its answer, on both sides.
//! - Changes of single hosts beside a change of all, over those beside nothing: what the delivery scheduler is for.
//! - An agent that reads nothing while a thousand versions come for it: what it costs the server, and single changes of others.

#[path = "../change/agent.rs"]
mod agent;
mod agents;
mod fleet;
mod handshake;
mod serve;
mod server;
mod slow;

use std::time::Duration;

use clap::{Parser, Subcommand};
use holdfast_bench::figures::Times;
use holdfast_bench::paired::{Bound, Paired, Role};
use holdfast_bench::{Report, Strict};
use holdfast_store::testing::TestPostgres;
use holdfast_suite::nats::{NatsServer, NatsVersion};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::agents::{Crowd, Threads};
use crate::fleet::Fleet;
use crate::serve::{Kind, Order};
use crate::server::{Place, Server};

/// Measures sessions beside a bare TLS server. Starts a Postgres, a nats-server and one server process at a time.
#[derive(Debug, Parser)]
struct Cli {
    /// 200 agents instead of 1,000.
    #[arg(long)]
    quick: bool,
    /// How many agents there are.
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    agents: Option<u32>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What the benchmark starts by itself: one server.
    #[command(hide = true)]
    Serve {
        /// What to serve, as JSON.
        order: String,
    },
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    agents: u32,
    rounds: usize,
    changes: usize,
    /// Changes of single hosts while nothing else changes, in a round.
    singles: usize,
    handshakes: usize,
    /// Versions that come for an agent that reads nothing.
    unread: usize,
    /// How many peers those have: some bytes each.
    large_peers: u32,
    /// How long a server is left alone before its memory is read: what handshakes needed is given back, what sessions need stays.
    settle: Duration,
}

fn main() {
    holdfast_identity::tls::install_crypto_provider();
    let cli: Cli = holdfast_runtime::exit::parse_args();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a process has limits");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a process may open what it is allowed to");
    if let Some(Command::Serve { order }) = cli.command {
        let order: Order = serde_json::from_str(&order).expect("the benchmark wrote it");
        serve::run(order, std::io::stdin().lock(), std::io::stdout());
        return;
    }
    let agents = cli.agents.unwrap_or(if cli.quick { 200 } else { 1_000 });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let size = Size {
        agents,
        rounds: 5,
        changes: 3,
        singles: 100,
        handshakes: 100,
        unread: 1_000,
        large_peers: 100_000,
        settle: Duration::from_millis(1_500),
    };
    runtime.block_on(Box::pin(measure(size, Place::Process))).print();
}

async fn measure(size: Size, place: Place) -> Report {
    let mut report = Report::begin("sessions");
    report.compared.push(handshake::measure(size.rounds, size.handshakes));
    let mut postgres = TestPostgres::start_migrated().await;
    postgres.restart_durable();
    let nats = NatsServer::start(NatsVersion::Current);
    let mut fleet = Fleet::start(&postgres, &nats.url(), size.agents, size.large_peers).await;
    let order = |kind| fleet.order(kind);
    let orders = [order(Kind::Product), order(Kind::Floor)];
    let names = ["holdfast-gateway", "bare rustls"];
    let mut storm = Paired::new(
        format!("{} agents dial a server that has just started: to the last one's answer", size.agents),
        size.rounds,
    )
    .side(names[0], Role::Product)
    .side(names[1], Role::Floor)
    .ratio("P8", names[0], names[1], Bound::AtMost(2.0));
    let mut change =
        Paired::new(format!("a change of all {} agents: committed to the last one's answer", size.agents), size.rounds)
            .side(names[0], Role::Product)
            .side(names[1], Role::Floor)
            .ratio("P3", names[0], names[1], Bound::AtMost(3.0));
    let (mut cpu, mut rss) = ([Times::default(), Times::default()], [Vec::new(), Vec::new()]);
    for round in 0..size.rounds {
        for (side, order) in orders.iter().enumerate() {
            let mut server = Server::start(place, order);
            let before = server.usage();
            let mut crowd = Crowd::dial(&fleet, order.kind, server.address(), Threads::Alike);
            storm.push(round, names[side], crowd.all_answered().await);
            cpu[side].push((server.usage().cpu - before.cpu) / size.agents);
            tokio::time::sleep(size.settle).await;
            rss[side].push((server.usage().rss_bytes - before.rss_bytes) / f64::from(size.agents));
            for _ in 0..size.changes {
                let begun = match order.kind {
                    Kind::Product => fleet.change_all().await,
                    Kind::Floor => server.push(),
                };
                change.push(round, names[side], crowd.all_answered_since(begun, fleet.newest()).await);
            }
            crowd.leave().await;
        }
    }
    report.compared.extend([storm.compared(), change.compared()]);
    report.compared.push(singles(&mut fleet, &size, place, &orders[0]).await.compared());
    let slow = slow::measure(&mut fleet, Server::start(place, &orders[0]), size.unread).await;
    report.compared.push(slow.singles.compared());
    report.strict.extend(slow.memory);
    let [ours, floor] = cpu.map(|times| times.figure().p50_ms);
    let cpu = Strict::of("processor time of the server for a session that begins", ours, "ms");
    report.strict.push(cpu.over("P9", "bare rustls", floor, Some(2.0)));
    let [ours, floor] = rss.map(middle);
    let rss = Strict::of("memory of the server for a session that is idle", ours, "bytes");
    report.strict.push(rss.over("P11", "bare rustls", floor, Some(3.0)));
    report
}

/// Changes of single hosts while all change, beside the same while nothing else does.
async fn singles(fleet: &mut Fleet, size: &Size, place: Place, order: &Order) -> Paired {
    let sides = ["while all change", "while nothing else changes"];
    let mut single = Paired::new(
        format!("a change of one host of {}, committed to its answer: the 99th percentile of a round", size.agents),
        size.rounds,
    )
    .side(sides[0], Role::Product)
    .side(sides[1], Role::Product)
    .ratio("E25", sides[0], sides[1], Bound::AtMost(3.0));
    for round in 0..size.rounds {
        let server = Server::start(place, order);
        let mut crowd = Crowd::dial(fleet, Kind::Product, server.address(), Threads::GiveWay);
        crowd.all_answered().await;
        single.push(round, sides[1], p99(crowd.singles(fleet, size.singles).await));
        let mut times = Vec::new();
        for _ in 0..size.changes {
            times.extend(crowd.singles_beside(fleet).await);
        }
        single.push(round, sides[0], p99(times));
        crowd.leave().await;
    }
    single
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    mod postgres {
        use std::time::Duration;

        use crate::server::Place;
        use crate::{Size, measure};

        #[tokio::test(flavor = "multi_thread")]
        async fn storms_changes_and_handshakes_of_some_agents_are_compared_with_bare_tls() {
            holdfast_identity::tls::install_crypto_provider();
            let size = Size {
                agents: 20,
                rounds: 2,
                changes: 1,
                singles: 3,
                handshakes: 2,
                unread: 20,
                large_peers: 2_000,
                settle: Duration::ZERO,
            };
            let report = Box::pin(measure(size, Place::Thread)).await;
            let shape: Vec<_> = report.compared.iter().map(|c| (c.sides.len(), c.ratios.len())).collect();
            assert_eq!(shape, [(2, 1), (2, 1), (2, 1), (2, 1), (2, 1)]);
            assert!(report.compared.iter().flat_map(|c| &c.sides).all(|side| side.figure.p50_ms > 0.0), "{report}");
            assert!(report.compared.iter().flat_map(|c| &c.ratios).all(|ratio| ratio.ratio > 0.0), "{report}");
            let strict: Vec<_> = report.strict.iter().map(|strict| (strict.bar, strict.over.is_some())).collect();
            assert_eq!(strict, [("E22", true), ("E22", true), ("P9", true), ("P11", true)]);
        }
    }
}
