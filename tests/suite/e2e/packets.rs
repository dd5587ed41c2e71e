//! What real packets see while the plane works: hosts turned to enforcing, a permission removed, everything restarted, gateways that go over to polls
//! and back, gateways that lie.
//!
//! - Packets flow without a pause from before each change to after it; one that is lost though allowed, or comes though denied, fails.
//! - What counts as denied came through the same sockets while the hosts only watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Output;
use std::time::Duration;

use holdfast_suite::plane::{Plane, wait_for};
use holdfast_suite::traffic::{Fate, Flow, Kind, Place, Places, Route, Traffic};
use serde_json::Value;

use super::dishonest::{ALTERED, SWAPPED, a_gateway_that_alters_or_swaps_is_refused_by_the_agents};
use super::fleet::{
    AGENTS_PORTS, converged, converges_anew, moved, nobody_complained, nobody_complained_but, versions,
};

/// Packets of each flow that are sent at least in every state that is looked at.
pub(crate) const PACKETS: u64 = 300;

#[test]
fn packets_are_neither_lost_nor_let_through_by_a_removed_permission_a_restart_or_a_lying_gateway() {
    let plane = Plane::start(&[]);
    let places = plane.places();
    a_removed_permission_stops_what_flows_by_it_and_nothing_else(&plane, &places);
    a_restart_of_everything_is_seen_by_no_packet(&plane, &places);
    nobody_complained(&plane);
    a_plane_that_goes_over_to_polls_and_back_is_seen_by_no_packet(&plane, &places);
    a_gateway_that_alters_or_swaps_is_refused_by_the_agents(&plane, &places);
    nobody_complained_but(&plane, |complaint| {
        let gone =
            AGENTS_PORTS.iter().any(|port| complaint.is_of_killed_gateway(*port) || complaint.is_of_killed_poll(*port));
        // The altered body of one host reached the engine; what is signed for another host does not come so far.
        let swapped = SWAPPED.iter().any(|host| complaint.is_of_refused_update(host, "bad_signature"));
        gone || swapped || complaint.is_of_refused_policy(ALTERED, "wrong_digest")
    });
    plane.wipe();
}

/// The cache host has a second permission from the same peers, which stays.
fn a_removed_permission_stops_what_flows_by_it_and_nothing_else(plane: &Plane, places: &Places) {
    beacons(plane, "[api, jobs, cache]", &["--wait"]);
    let host = |name: &str| places.host(name);
    let cut = vec![
        udp(host("api-1"), host("cache-1"), 7000),
        udp(host("cache-1"), host("api-1"), 7000),
        udp(places.host_v6("jobs-1"), places.host_v6("cache-1"), 7000),
        tcp(host("api-1"), host("cache-1"), 7001),
        tcp(host("cache-1"), host("jobs-1"), 7001),
    ];
    let kept = vec![
        udp(host("api-1"), host("api-2"), 7000),
        udp(host("jobs-1"), host("api-1"), 7000),
        udp(places.host_v6("api-2"), places.host_v6("jobs-1"), 7000),
        tcp(host("jobs-1"), host("api-1"), 7001),
        tcp(host("api-1"), host("cache-1"), 6379),
        tcp(host("api-1"), host("db-1"), 5432),
        tcp(host("metrics-1"), host("cache-1"), 9100),
        udp(host("cache-1"), places.outside("10.71.0.53"), 53),
    ];
    let cut_count = cut.len();
    let touched = ["api-1", "api-2", "jobs-1", "cache-1"];
    let traffic = Traffic::start([cut, kept].concat());
    traffic.wait_for_more(PACKETS);
    let came = |flow: &Flow| flow.tally().there.arrived > 0 && flow.tally().back.arrived > 0;
    traffic.wait_until("everything flows", |flows| flows.iter().all(came));
    let (versions_before, rules_before) = (versions(plane), rules_of(plane));

    beacons(plane, "[api, jobs]", &["--wait"]);
    // From here on: a higher number was sent after the change was proven on every host that it touches.
    let marks: Vec<_> = traffic.flows().iter().map(Flow::tally).collect();
    traffic.wait_for_more(PACKETS);
    traffic.wait_until("words are sent after the change", |flows| {
        flows.iter().zip(&marks).all(|(flow, mark)| flow.tally().there.sent > mark.there.sent + 20)
    });

    let moved = moved(&versions_before, &versions(plane));
    let expected = touched.map(|name| (format!("booking/{name}"), 1));
    assert_eq!(moved, BTreeMap::from(expected), "who gave or had the permission, by one");
    let rules_after = rules_of(plane);
    for (name, before) in &rules_before {
        let gone: BTreeSet<_> = before.difference(&rules_after[name]).collect();
        let new: BTreeSet<_> = rules_after[name].difference(before).collect();
        // Peers of the others are elements of a set; the cache host has no rule for what it lost.
        assert!(new.is_empty(), "{name}: {new:?}");
        assert_eq!(gone.is_empty(), name != "cache-1", "{name}: {gone:?}");
    }
    for (at, (flow, fate)) in traffic.end().into_iter().enumerate() {
        let (tally, mark) = (flow.tally(), marks[at]);
        if at < cut_count {
            let ends = (tally.there.end, tally.back.end);
            assert!(ends.0 <= mark.there.sent, "came after the change: {}: {tally:?}, {mark:?}", flow.route());
            assert!(ends.1 <= mark.back.sent, "came back after the change: {}: {tally:?}, {mark:?}", flow.route());
        } else {
            whole(&flow, fate);
        }
    }
}

/// Services, servers and agents end and start again while packets flow, into enforcing and through everything after it.
fn a_restart_of_everything_is_seen_by_no_packet(plane: &Plane, places: &Places) {
    let host = |name: &str| places.host(name);
    let banned = || places.outside("198.51.100.66");
    let denied = vec![
        udp(host("web-1"), host("db-1"), 7000),
        udp(places.host_v6("db-1"), places.host_v6("web-1"), 7000),
        udp(banned(), host("edge-1"), 443),
        udp(host("db-1"), places.outside("192.0.2.80"), 53),
        attempts(banned(), host("edge-1"), 443),
        attempts(host("web-1"), host("db-2"), 5432),
        attempts(host("db-1"), host("web-1"), 8080),
    ];
    let allowed = vec![
        udp(host("api-1"), host("api-2"), 7000),
        udp(places.host_v6("api-2"), places.host_v6("jobs-1"), 7000),
        udp(places.outside("10.71.200.3"), host("jobs-1"), 514),
        udp(host("edge-1"), places.outside("10.71.0.53"), 53),
        tcp(host("web-1"), host("api-1"), 9090),
        tcp(host("api-2"), host("db-1"), 5432),
        tcp(places.host_v6("db-2"), places.host_v6("db-1"), 5432),
        tcp(host("bastion-1"), host("web-2"), 22),
        attempts(places.outside("198.51.100.7"), host("edge-2"), 443),
    ];
    let denied_count = denied.len();
    plane.set_mode("visibility");
    let traffic = Traffic::start([denied, allowed].concat());
    traffic.wait_until("everything comes through while hosts watch", |flows| {
        flows.iter().all(|flow| flow.tally().there.arrived > 0)
    });
    plane.set_mode("enforced");
    let marks: Vec<_> = traffic.flows().iter().map(Flow::tally).collect();
    traffic.wait_for_more(PACKETS);
    let (versions_before, rules_before, tables_before) = (versions(plane), rules_of(plane), tables_of(plane));

    plane.down_but_for_hosts();
    traffic.wait_for_more(PACKETS);
    assert_eq!(rules_of(plane), rules_before, "hosts enforce what they last proved");
    plane.up();
    converged(plane, 12);
    traffic.wait_for_more(PACKETS);

    assert_eq!(versions(plane), versions_before);
    assert_eq!((rules_of(plane), tables_of(plane)), (rules_before, tables_before), "no agent replaced anything");
    for (at, (flow, fate)) in traffic.end().into_iter().enumerate() {
        let (tally, mark) = (flow.tally(), marks[at]);
        if at < denied_count {
            assert!(tally.there.end <= mark.there.sent, "denied, and came: {}: {tally:?}, {mark:?}", flow.route());
        } else {
            whole(&flow, fate);
        }
    }
}

/// Each gateway in turn is killed and started again as one that delivers by poll, and in turn as one that pushes: agents follow, each way brings a
/// change into every kernel that it touches, and nothing else is touched.
fn a_plane_that_goes_over_to_polls_and_back_is_seen_by_no_packet(plane: &Plane, places: &Places) {
    const GATEWAYS: [&str; 2] = ["gateway-agents-1", "gateway-agents-2"];
    let host = |name: &str| places.host(name);
    let granted = || udp(host("api-1"), host("cache-1"), 7000);
    let kept = vec![
        udp(host("api-1"), host("api-2"), 7000),
        udp(places.host_v6("api-2"), places.host_v6("jobs-1"), 7000),
        tcp(host("jobs-1"), host("api-1"), 7001),
        tcp(host("api-1"), host("db-1"), 5432),
    ];
    let holds = |gateway: &str, name: &str| plane.metric(gateway, name);
    let all = |name: &str| GATEWAYS.iter().map(|gateway| holds(gateway, name)).sum::<f64>();
    let traffic = Traffic::start(kept);
    let mut before = versions(plane);
    for (delivery, roles, came) in [("poll", "[api, jobs, cache]", true), ("push", "[api, jobs]", false)] {
        for gateway in GATEWAYS {
            let recipe = plane.recipe(gateway).with("HOLDFAST_DELIVERY_MODE", delivery);
            plane.kill(gateway);
            plane.start_service(&recipe);
            plane.wait_ready(gateway, true);
        }
        // Whoever was held by the first that was killed went to the second, and from there to the first: both deliver so now.
        let (one_way, other) = ("holdfast_gateway_sessions", "holdfast_gateway_polls");
        let (held, none) = if delivery == "poll" { (other, one_way) } else { (one_way, other) };
        wait_for("every host is there as its gateway delivers", Duration::from_secs(60), || {
            (all(held) - 12.0).abs() < 0.5 && all(none) < 0.5
        });
        converges_anew(plane, 12);
        assert_eq!(versions(plane), before, "another way of delivery is no change");
        beacons(plane, roles, &["--wait"]);
        let after = versions(plane);
        let touched = ["api-1", "api-2", "jobs-1", "cache-1"].map(|name| (format!("booking/{name}"), 1));
        assert_eq!(moved(&before, &after), BTreeMap::from(touched), "{delivery}");
        before = after;
        let probe = Traffic::start(vec![granted()]);
        if came {
            probe.wait_until("what was granted by poll comes", |flows| flows[0].tally().there.arrived > 0);
        } else {
            probe.wait_for_more(PACKETS);
            assert_eq!(probe.flows()[0].tally().there.arrived, 0, "what was taken back by a session still comes");
        }
        drop(probe.end());
    }
    traffic.wait_for_more(PACKETS);
    traffic.end().into_iter().for_each(|(flow, fate)| whole(&flow, fate));
}

pub(crate) fn whole(flow: &Flow, fate: Fate) {
    assert!(fate.is_whole, "allowed, and lost: {}: {:?}, {fate:?}", flow.route(), flow.tally());
}

/// Applies a policy by which the hosts of these roles may beckon to each other.
pub(crate) fn beacons(plane: &Plane, roles: &str, how: &[&str]) {
    let applied = try_beacons(plane, roles, how);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// The same, whatever comes of it.
pub(crate) fn try_beacons(plane: &Plane, roles: &str, how: &[&str]) -> Output {
    let members = format!("{{matchExpressions: [{{key: role, operator: In, values: {roles}}}]}}");
    let services = "[{udp: 7000}, {tcp: 7001}]";
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: beacons, namespace: booking}}\nspec:\n  \
         hostSelector: {members}\n  \
         ingress: [{{from: [{{hostSelector: {members}}}], services: {services}}}]\n  \
         egress: [{{to: [{{hostSelector: {members}}}], services: {services}}}]\n"
    );
    let file = plane.folder().join("beacons.yaml");
    fs::write(&file, text).expect("the folder is ours");
    let applied = plane.holdfast(&[&["apply", "-f", file.to_str().expect("a plain path")], how].concat());
    fs::remove_file(&file).expect("it is there");
    applied
}

/// The rules of every host by chain and handle: a rule that was replaced has another handle.
pub(crate) fn rules_of(plane: &Plane) -> BTreeMap<String, BTreeSet<(String, u64)>> {
    plane.hosts().into_iter().map(|name| (name.clone(), rules_on(plane, &name))).collect()
}

/// The same of one host.
pub(crate) fn rules_on(plane: &Plane, host: &str) -> BTreeSet<(String, u64)> {
    let rules = objects(plane, host, "rule").into_iter();
    rules.map(|rule| (text(&rule["chain"]), rule["handle"].as_u64().expect("a handle"))).collect()
}

/// The handles of tables, sets and chains of every host, and the elements of sets.
fn tables_of(plane: &Plane) -> BTreeMap<String, Vec<Value>> {
    plane.hosts().into_iter().map(|name| (name.clone(), table_on(plane, &name))).collect()
}

/// The same of one host.
pub(crate) fn table_on(plane: &Plane, host: &str) -> Vec<Value> {
    ["table", "set", "chain"].iter().flat_map(|kind| objects(plane, host, kind)).collect()
}

fn objects(plane: &Plane, host: &str, kind: &str) -> Vec<Value> {
    let listed = plane.table(host);
    let objects = listed["nftables"].as_array().expect("a list");
    objects.iter().filter_map(|object| object.get(kind)).cloned().collect()
}

pub(crate) fn udp(from: Place, to: Place, port: u16) -> Route {
    Route { kind: Kind::Udp, from, to, port }
}

pub(crate) fn tcp(from: Place, to: Place, port: u16) -> Route {
    Route { kind: Kind::Tcp, from, to, port }
}

pub(crate) fn attempts(from: Place, to: Place, port: u16) -> Route {
    Route { kind: Kind::Attempts, from, to, port }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
