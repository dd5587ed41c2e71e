//! A gateway cut off by the network, one that is asked to end, an agent held still, one that comes and goes, each process killed in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, wait_for};

use nix::sys::signal::Signal;

use super::super::fleet::{AGENTS_PORTS, nobody_complained_but};
use super::nats::everything_is_proven;
use super::postgres::gateway_id;
use super::watch::{TOUCHED, Watch, converges, is_rendered, sessions, settle_at};

/// Longer than any turn by the clock takes.
const BY_THE_CLOCK: Duration = Duration::from_secs(75);
/// Longer than silence goes unseen (45 s), and the way to another gateway.
const MOVES: Duration = Duration::from_secs(75);
/// How long a gateway that is asked to end may take: its agents leave within ten seconds, and then a moment.
const ENDS: Duration = Duration::from_secs(30);
/// How long a host may have no session between one gateway and the other.
const DIALS: Duration = Duration::from_secs(3);
/// How far apart the first and the last of some hosts leave at least, of the ten seconds that they have.
const SPREADS: Duration = Duration::from_secs(2);
/// What a hint and an apply take on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(4);

#[test]
fn hosts_enforce_and_converge_while_gateways_are_cut_off_agents_stall_and_processes_are_killed() {
    let plane = Plane::start(&[]);
    let watch = Watch::start(&plane);
    an_agent_that_is_held_still_keeps_no_edit_from_the_others(&plane, &watch);
    an_agent_that_comes_and_goes_is_reached_where_it_is_last(&plane, &watch, 10);
    the_audit_service_is_killed_under_load(&plane, &watch, 4);
    every_process_is_killed_in_turn(&plane, &watch);
    a_gateway_that_is_asked_to_end_hands_its_hosts_over_one_by_one(&plane, &watch);
    a_gateway_is_cut_off_by_the_network(&plane, &watch);
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_network);
    plane.wipe();
}

/// What the faults of the network and of single processes provoke.
pub(crate) fn is_of_network(complaint: &Complaint) -> bool {
    complaint.is_of_lost_nats()
        || complaint.is_of_absent_database()
        || AGENTS_PORTS.iter().any(|port| complaint.is_of_lost_gateway(*port))
}

/// P3: one of twelve stalls, twenty edits go to the others as if it did not.
pub(crate) fn an_agent_that_is_held_still_keeps_no_edit_from_the_others(plane: &Plane, watch: &Watch) {
    const STILL: &str = "cache-1";
    let still = plane.freeze_agent(STILL);
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        watch.edit(plane);
        let begun = Instant::now();
        wait_for("the others have the edit", AT_ONCE, || {
            is_rendered(plane) && behind(plane).iter().all(|host| host == STILL)
        });
        slowest = slowest.max(begun.elapsed());
    }
    assert_eq!(behind(plane), [STILL], "it holds what it had");
    drop(still);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// P75: an agent dies and comes back, and the gateways of its sessions do not learn that they are over; the last one is the one that is reached.
pub(crate) fn an_agent_that_comes_and_goes_is_reached_where_it_is_last(plane: &Plane, watch: &Watch, times: usize) {
    const FLAPS: &str = "api-1";
    let ends = plane.cut_ends(FLAPS, AGENTS_PORTS);
    let command = plane.agent_command(FLAPS);
    for nth in 0..times {
        let before = sessions(plane)[FLAPS].clone();
        // To the one gateway and the other in turn.
        let refused = plane.refuse_port(FLAPS, AGENTS_PORTS[nth % 2]);
        plane.kill_agent(FLAPS);
        plane.start_agents(&command);
        let is_other = |now: &(u64, String)| now.0 > before.0 && (nth == 0 || now.1 != before.1);
        wait_for("it has another session", BY_THE_CLOCK, || sessions(plane).get(FLAPS).is_some_and(is_other));
        drop(refused);
    }
    drop(ends);
    watch.edit(plane);
    let took = converges(plane, BY_THE_CLOCK);
    assert!(took < AT_ONCE, "the newest session is the one that is told: {took:?}");
    plane.histories_agree();
}

/// P89: it ends in the middle of what it writes, and goes on behind what is there.
pub(crate) fn the_audit_service_is_killed_under_load(plane: &Plane, watch: &Watch, times: usize) {
    for _ in 0..times {
        for _ in 0..3 {
            watch.edit(plane);
        }
        plane.kill_and_start("audit");
    }
    plane.wait_ready("audit", true);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// Each ends without a word and starts again, with an edit while it is gone if the edit can be made.
fn every_process_is_killed_in_turn(plane: &Plane, watch: &Watch) {
    for service in ["nats", "audit", "gateway-agents-1", "gateway-agents-2", "renderer"] {
        let recipe = plane.recipe(service);
        plane.kill(service);
        watch.edit(plane);
        plane.start_service(&recipe);
        if service != "nats" {
            plane.wait_ready(service, true);
        }
        converges(plane, BY_THE_CLOCK);
    }
    plane.kill_and_start("gateway-operators");
    plane.wait_ready("gateway-operators", true);
    plane.database().kill();
    plane.database().start();
    for service in ["renderer", "audit", "gateway-agents-1", "gateway-agents-2", "gateway-operators"] {
        plane.wait_ready(service, true);
    }
    let command = plane.agent_command("jobs-1");
    plane.kill_agent("jobs-1");
    watch.edit(plane);
    plane.start_agents(&command);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// F35: asked to end, it sends its hosts to the other one, each at its own moment, with an edit on its way; no host is away for longer than one dial.
fn a_gateway_that_is_asked_to_end_hands_its_hosts_over_one_by_one(plane: &Plane, watch: &Watch) {
    let of = |plane: &Plane, gateway: &str| {
        let all = sessions(plane).into_iter();
        all.filter(|(_, (_, theirs))| theirs == gateway).map(|(host, _)| host).collect::<BTreeSet<_>>()
    };
    // The one that has more: at least half of the twelve.
    let services = [("gateway-agents-1", gateway_id(plane, 1)), ("gateway-agents-2", gateway_id(plane, 2))];
    let fullest = services.into_iter().max_by_key(|(_, gateway)| of(plane, gateway).len());
    let (service, gateway) = fullest.expect("there are two");
    let theirs = |plane: &Plane| of(plane, &gateway);
    let held = theirs(plane);
    assert!(held.len() >= 6, "{held:?}");
    let recipe = plane.recipe(service);
    let begun = Instant::now();
    plane.signal(service, Signal::SIGTERM);
    watch.edit(plane);
    let (mut left, mut away) = (BTreeMap::new(), BTreeMap::new());
    while plane.runs(service) {
        assert!(begun.elapsed() < ENDS, "it does not end");
        let now = theirs(plane);
        for host in held.difference(&now) {
            left.entry(host.clone()).or_insert_with(|| begun.elapsed());
        }
        let hosts = plane.ask(&["get", "hosts"]);
        for host in hosts["items"].as_array().expect("a page of hosts") {
            let name = host["name"].as_str().expect("a name").to_owned();
            if host["session"]["open"] == true {
                away.remove(&name);
            } else {
                let since = *away.entry(name.clone()).or_insert_with(Instant::now);
                assert!(since.elapsed() < DIALS, "{name} is away: {host}");
            }
        }
    }
    // The last may have left between a look and the end.
    let moments: Vec<Duration> = left.into_values().collect();
    assert!(moments.len() + 1 >= held.len(), "{moments:?} of {held:?}");
    let spread = moments.iter().max().zip(moments.iter().min()).map(|(last, first)| last.saturating_sub(*first));
    assert!(spread.is_some_and(|spread| spread > SPREADS), "they left together: {moments:?}");
    wait_for("every host is at the other gateway", AT_ONCE, || theirs(plane).is_empty() && sessions(plane).len() == 12);
    converges(plane, BY_THE_CLOCK);
    plane.start_service(&recipe);
    plane.wait_ready(service, true);
}

/// Nobody reaches one gateway any more, and neither side is told: its agents go to the other one, and come to no harm meanwhile.
fn a_gateway_is_cut_off_by_the_network(plane: &Plane, watch: &Watch) {
    settle_at(plane, AGENTS_PORTS[0], &TOUCHED[..2]);
    let first = gateway_id(plane, 1);
    let there = |plane: &Plane| sessions(plane).values().filter(|(_, gateway)| *gateway == first).count();
    assert!(there(plane) >= 2, "the gateway has hosts");
    let cut = plane.cut_port(AGENTS_PORTS[0]);
    watch.edit(plane);
    wait_for("every agent is at the other gateway", MOVES, || there(plane) == 0 && sessions(plane).len() == 12);
    converges(plane, BY_THE_CLOCK);
    watch.edit(plane);
    converges(plane, AT_ONCE);
    drop(cut);
    thread::sleep(Duration::from_secs(1));
    watch.edit(plane);
    converges(plane, AT_ONCE);
    plane.histories_agree();
}

/// The hosts that have not said yet that they hold their newest policy.
fn behind(plane: &Plane) -> Vec<String> {
    let rows = plane.database().sql(
        "SELECT DISTINCT h.name FROM hosts h JOIN desired_latest d USING (host_id) JOIN observed o USING (host_id, component) \
         WHERE d.version IS DISTINCT FROM o.applied_version ORDER BY 1",
    );
    rows.lines().map(str::to_owned).collect()
}
