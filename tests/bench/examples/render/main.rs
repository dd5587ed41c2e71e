//! How long a fleet takes to render and to store, beside the floor of the same run: P16, P17, P18 and P19.
//!
//! - Product: the renderer's `Fleet`, from intent to what is to be committed, and the store's commit of a render in a real, synced Postgres.
//! - Floor: an inverted index, an encoding and a SHA-256 a host; and raw statements that write as many rows of as many bytes.

mod fleet;
mod floor;
mod persisted;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_bench::Report;
use holdfast_bench::paired::{Bound, Paired, Role};
use holdfast_model::intent::Intent;
use holdfast_model::numbers::Revision;
use holdfast_render::fleet::{Fleet, MAX_WAIT_MS};
use holdfast_render::{Edit, Index, render_hosts};

use crate::fleet::{HOSTS_PER_APP, apps};
use crate::floor::Floor;

/// Measures the renderer beside its floors. Starts a Postgres of its own.
#[derive(Debug, Parser)]
struct Cli {
    /// 2,000 hosts instead of 10,000.
    #[arg(long)]
    quick: bool,
    /// How many hosts the fleet has.
    #[arg(long, value_parser = clap::value_parser!(u32).range(200..=20_000))]
    hosts: Option<u32>,
    /// Leaves Postgres out.
    #[arg(long)]
    pure: bool,
}

fn main() {
    let cli: Cli = holdfast_runtime::exit::parse_args();
    let hosts = cli.hosts.unwrap_or(if cli.quick { 2_000 } else { 10_000 });
    let mut report = Report::begin("render");
    let floor = Floor::new(hosts);
    rendering(&mut report, &floor, hosts, 5, 3);
    if !cli.pure {
        persisted::measure(&mut report, &floor, hosts, 5);
    }
    report.print();
}

/// The revision of the intent that is measured with.
const REVISION: Revision = Revision::from_raw(1);

fn rendering(report: &mut Report, floor: &Floor, hosts: u32, rounds: usize, repetitions: usize) {
    let intent = fleet::intent(hosts);
    let (product, raw) =
        ("holdfast-renderer: index, bodies, digests, nodes", "inverted index, SHA-256; and the diff gate");
    let paired = Paired::new(format!("full render of {hosts} hosts, in memory"), rounds)
        .side(product, Role::Product)
        .side(raw, Role::Floor)
        .ratio("P16", product, raw, Bound::AtMost(4.0));
    let works: &mut [&mut dyn FnMut() -> Duration] = &mut [
        &mut || {
            timed(|| {
                let fleet = Fleet::new(&intent, REVISION, Revision::default(), [], 0);
                let planned = fleet.poll_plan(MAX_WAIT_MS).expect("every host is due");
                assert_eq!(planned.plan.states.len() as u64, 4 * u64::from(hosts), "every state is new");
            })
        },
        &mut || {
            timed(|| {
                floor.render();
                assert_eq!(floor.gate(), 0, "nothing changed");
            })
        },
    ];
    report.compared.push(paired.run(repetitions, works));
    incremental(report, &intent, hosts, rounds, repetitions);
    edits(report, &intent, hosts, rounds, 7 * repetitions);
}

/// P19: what one rule's port touches, beside all.
fn incremental(report: &mut Report, intent: &Intent, hosts: u32, rounds: usize, repetitions: usize) {
    let all = Fleet::new(intent, REVISION, Revision::default(), [], 0);
    let planned = all.poll_plan(MAX_WAIT_MS).expect("every host is due");
    let latest: Vec<_> = planned.plan.states.clone();
    let mut fleet = Fleet::new(intent, REVISION, REVISION, latest, 0);
    fleet.handle_committed(&planned);
    let (mut revision, mut port, mut now) = (REVISION, 9_000, MAX_WAIT_MS);
    let (some, every) = (format!("{HOSTS_PER_APP} of {hosts} hosts"), "all hosts, index ready");
    let share = f64::from(HOSTS_PER_APP) / f64::from(hosts);
    let paired = Paired::new("one rule's port changed", rounds)
        .side(some.clone(), Role::Product)
        .side(every, Role::Product)
        .ratio("P19", &some, every, Bound::AtMost(share + 0.05));
    let works: &mut [&mut dyn FnMut() -> Duration] = &mut [
        &mut || {
            revision = revision.next().expect("far from the last");
            port += 1;
            now += 2 * MAX_WAIT_MS;
            let edit = Edit::PutObject(fleet::policy(3, 0, port, hosts));
            let begun = Instant::now();
            fleet.handle_edits([edit], revision, now);
            let planned = fleet.poll_plan(now + MAX_WAIT_MS).expect("hosts are due");
            let took = begun.elapsed();
            assert_eq!(planned.plan.states.len() as u64, u64::from(HOSTS_PER_APP), "only the hosts of the app change");
            fleet.handle_committed(&planned);
            took
        },
        &mut || timed(|| black_box(all.poll_plan(MAX_WAIT_MS))),
    ];
    report.compared.push(paired.run(repetitions, works));
}

/// Edits of the pure renderer that have no floor: what grows with the fleet and what does not.
fn edits(report: &mut Report, intent: &Intent, hosts: u32, rounds: usize, repetitions: usize) {
    let mut index = Index::new(intent);
    let mut flip = false;
    let paired = Paired::new("one host relabelled, affected rendered", rounds).side("holdfast-render", Role::Product);
    let relabel: &mut dyn FnMut() -> Duration = &mut || {
        flip = !flip;
        let edit = Edit::PutHost(fleet::host(0, if flip { apps(hosts) - 1 } else { 0 }, hosts));
        timed(|| {
            let affected = index.apply(edit);
            render_hosts(&index, affected.hosts)
        })
    };
    report.compared.push(paired.run(repetitions, &mut [relabel]));
    index.apply(Edit::PutObject(fleet::open_to_all()));
    let mut address = 0;
    let what = format!("one address of a set of {hosts} peers changed, one host rendered");
    let paired = Paired::new(what, rounds).side("holdfast-render", Role::Product);
    let move_one: &mut dyn FnMut() -> Duration = &mut || {
        address += 1;
        let mut moved = fleet::host(1, 1, hosts);
        moved.addresses = vec![IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + address))];
        timed(|| {
            let affected = index.apply(Edit::PutHost(moved));
            render_hosts(&index, affected.hosts.into_iter().take(1))
        })
    };
    report.compared.push(paired.run(repetitions, &mut [move_one]));
    let mut extra = 0;
    index.apply(Edit::PutObject(fleet::group(0)));
    index.apply(Edit::PutObject(fleet::from_group()));
    let what = "one entry more in an address group of 50,000, affected rendered";
    let paired = Paired::new(what, rounds).side("holdfast-render", Role::Product);
    let grow: &mut dyn FnMut() -> Duration = &mut || {
        extra += 1;
        let edit = Edit::PutObject(fleet::group(extra));
        timed(|| {
            let affected = index.apply(edit);
            render_hosts(&index, affected.hosts)
        })
    };
    report.compared.push(paired.run(repetitions.min(3), &mut [grow]));
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

#[cfg(test)]
mod tests;
