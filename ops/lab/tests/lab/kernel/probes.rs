//! Probes of every kind between hosts and outside, and what drops and refusals look like to them.

use std::net::IpAddr;

use holdfast_lab::flow::Flow;
use holdfast_lab::party::Party;
use holdfast_lab::prober::{Mesh, Outcome, Patience, Shot};
use serde_json::Value;

use super::stand::{Stand, program};

const FLOWS: [Flow; 7] = [
    Flow::Tcp(443),
    Flow::Tcp(65535),
    Flow::Udp(53),
    Flow::Sctp(2905),
    Flow::Icmp,
    Flow::Protocol(47),
    Flow::Protocol(50),
];

#[test]
fn without_rules_every_probe_gets_through_in_two_labs_with_the_same_addresses() {
    let stands = [Stand::new(), Stand::new()];
    for stand in &stands {
        let shots = every_shot(stand);
        let answers = Mesh::new(stand.lab(), program()).fire(&shots, &Patience::for_allowed(), &|_| {}).unwrap();
        for (shot, answer) in shots.iter().zip(&answers) {
            assert_eq!(answer.outcome, Outcome::Passed, "{shot:?}");
        }
    }
}

#[test]
fn dropped_and_refused_probes_are_told_apart_with_the_refuser() {
    let stand = Stand::new();
    stand.nft(
        "x/b",
        "table inet t { chain in { type filter hook input priority 0;
            tcp dport 444 drop; tcp dport 445 reject with tcp reset; tcp dport 446 reject with icmpx admin-prohibited;
            udp dport 54 drop; udp dport 55 reject; sctp dport 77 drop; sctp dport 78 reject;
            meta l4proto 47 drop; meta l4proto 50 reject; icmp type echo-request drop; icmpv6 type echo-request drop; }
        chain out { type filter hook output priority 0; tcp dport 447 drop; udp dport 57 drop; sctp dport 79 drop;
            meta l4proto 51 drop; }\n}",
    );
    let dropped = [Flow::Tcp(444), Flow::Udp(54), Flow::Sctp(77), Flow::Protocol(47), Flow::Icmp];
    let refused = [Flow::Tcp(445), Flow::Tcp(446), Flow::Udp(55), Flow::Sctp(78), Flow::Protocol(50)];
    let dropped_at_source = [Flow::Tcp(447), Flow::Udp(57), Flow::Sctp(79), Flow::Protocol(51)];
    for (from, to, flows, refuses) in [
        ("x/a", "x/b", &dropped[..], false),
        ("x/a", "x/b", &refused[..], true),
        ("x/b", "x/a", &dropped_at_source[..], false),
    ] {
        let shots = shots_between(&stand, &host(from), &host(to), flows);
        let answers = Mesh::new(stand.lab(), program()).fire(&shots, &Patience::for_denied(), &|_| {}).unwrap();
        for (shot, answer) in shots.iter().zip(&answers) {
            let wanted = if refuses { Outcome::Refused { by: shot.destination } } else { Outcome::Dropped };
            assert_eq!(answer.outcome, wanted, "{shot:?}");
        }
    }
}

#[test]
fn the_command_probes_all_pairs_of_addresses_and_its_exit_code_says_whether_all_got_through() {
    let stand = Stand::new();
    let passed = stand.run(&["probe", "x/a", "y/c[Deployment]", "443/tcp", "-o", "json"]);
    let outcomes: Value = serde_json::from_slice(&passed.stdout).unwrap();
    assert_eq!(outcomes.as_array().map(Vec::len), Some(4));
    assert_eq!((passed.status.code(), &outcomes[0]["outcome"]), (Some(0), &Value::from("passed")));

    stand.nft("x/a", "table inet t { chain out { type filter hook output priority 0; udp dport 53 drop; }\n}");
    let dropped = stand.run(&["probe", "x/a", "ip:192.0.2.53", "53/udp", "-o", "json"]);
    let outcomes: Value = serde_json::from_slice(&dropped.stdout).unwrap();
    assert_eq!((dropped.status.code(), &outcomes[0]["outcome"]), (Some(1), &Value::from("dropped")));
}

fn host(name: &str) -> Party {
    Party::Host(name.to_owned())
}

fn shots_between(stand: &Stand, from: &Party, to: &Party, flows: &[Flow]) -> Vec<Shot> {
    let pairs = from.pairs(to, stand.lab().record()).unwrap();
    let shot = |(source, destination), flow: &Flow| Shot { source, destination, flow: *flow };
    pairs.into_iter().flat_map(|pair| flows.iter().map(move |flow| shot(pair, flow))).collect()
}

/// Every flow between every two hosts, and both ways between hosts and outside.
fn every_shot(stand: &Stand) -> Vec<Shot> {
    let mut parties: Vec<Party> = stand.lab().record().hosts.iter().map(|one| host(&one.name)).collect();
    let outside = ["8.8.8.8", "223.255.255.255", "2001:db8::53"].map(|text| Party::Outside(text.parse().unwrap()));
    let hosts = parties.len();
    parties.extend(outside);
    let mut shots = Vec::new();
    for (place, from) in parties.iter().enumerate() {
        for (other, to) in parties.iter().enumerate() {
            if place != other && (place < hosts || other < hosts) {
                shots.extend(shots_between(stand, from, to, &FLOWS));
            }
        }
    }
    assert!(shots.iter().any(|shot| matches!(shot.source, IpAddr::V6(_))));
    shots
}
