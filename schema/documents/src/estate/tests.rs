//! What the reader of estates takes, and what it refuses by name.

use std::collections::BTreeMap;

use holdfast_model::intent::{Kind, PeerSpec, Spec};
use holdfast_model::policy::{Mode, PortRange, protocol};

use super::*;
use crate::Source;

const SMALL: &str = r#"{
  "format": "estate/1", "id": "small", "title": "t", "truth": "source", "needs": ["egress", "time_travel"], "source": [],
  "workloads": [
    {"id": "x/a", "labels": {"pod": "a"}, "addresses": ["10.0.0.1", "fd00::1"], "ports": [{"proto": "tcp", "port": 80, "name": "web"}, {"proto": "udp", "port": 53}]},
    {"id": "b", "labels": {"pod": "b"}, "addresses": ["10.0.0.2"], "ports": []}],
  "ipsets": [{"id": "list", "file": "list.txt"}],
  "enforced": {"in": [{"labels": {"pod": "a"}, "policy": "x/p"}, {"all": true}], "out": []},
  "rules": [{"id": "r", "policy": "x/p", "dir": "in", "subject": {"labels": {"pod": "a"}},
    "peers": [{"ipset": "list"}, {"sel": {"expr": [{"key": "pod", "op": "exists"}, {"key": "gone", "op": "absent"}]}}],
    "services": [{"proto": "tcp", "name": "web"}, {"proto": "ipip"}], "dst": ["10.0.0.1/32"]}],
  "expect": [
    {"kind": "probe", "proto": "tcp", "port": 80, "rows": ["-0", "1-"]},
    {"kind": "conn", "family": 4, "at": "inbound", "protos": ["tcp"], "from": ["net:10.0.0.0-10.255.255.255"], "to": ["b", "x/a"],
     "legend": {"n": "none", "s": [{"proto": "tcp", "port": 80}, {"proto": "tcp", "port": 81, "end": 90}]}, "rows": ["ns"]},
    {"kind": "list", "flows": [{"from": "ip:192.0.2.1", "to": "b", "proto": "tcp", "port": 80, "allow": false, "family": 4}]}],
  "steps": [
    {"edits": [{"op": "set_labels", "workloads": ["b"], "labels": {"pod": "c", "new": "yes"}}, {"op": "put_ipset", "ipset": {"id": "list", "cidrs": ["192.0.2.0/24"]}}], "expect": []},
    {"edits": [{"op": "drop_rules", "policy": "x/p"}, {"op": "drop_workload", "id": "b"}], "expect": []}]
}"#;

fn small() -> Estate {
    let mut beside = |file: &str| (file == "list.txt").then(|| "10.9.0.0/16\n\n10.9.1.0/24\n".to_owned());
    match read(SMALL, &mut beside).expect("an estate") {
        Input::Estate(estate) => *estate,
        Input::Churn(_) => panic!("not a churn"),
    }
}

#[test]
fn workloads_are_enforcing_hosts_of_the_default_namespace_with_stable_ids() {
    let (one, two) = (small(), small());
    assert_eq!(one.states[0].intent, two.states[0].intent);
    let intent = &one.states[0].intent;
    let host = intent.hosts.values().find(|host| host.labels["pod"] == "a").expect("the host");
    assert!(host.name.as_str().starts_with("x-a-"), "{}", host.name);
    assert_eq!(host.ports.iter().map(|port| (port.name.as_str(), port.port)).collect::<Vec<_>>(), [("web", 80)]);
    assert_eq!(one.host_names[&host.id], "x/a");
    let modes: Vec<Option<Mode>> = intent
        .objects
        .values()
        .filter_map(|spec| if let Spec::Host(spec) = spec { Some(spec.mode) } else { None })
        .collect();
    assert_eq!(modes, [Some(Mode::Enforced); 2]);
}

#[test]
fn isolation_is_apart_from_rules_and_any_dst_narrows_the_subject() {
    let estate = small();
    let policies: Vec<_> = estate.states[0]
        .intent
        .objects
        .values()
        .filter_map(|spec| if let Spec::Policy(policy) = spec { Some(policy) } else { None })
        .collect();
    assert_eq!(policies.len(), 2);
    let with_rule = policies.iter().find(|policy| !policy.ingress.is_empty()).expect("the rule's policy");
    assert!(with_rule.isolate_ingress && !with_rule.isolate_egress);
    assert_eq!(with_rule.ingress[0].local.as_ref().map(Vec::len), Some(1));
    assert!(matches!(&with_rule.ingress[0].peers, PeerSpec::Of(peers) if peers.len() == 2));
    let all = policies.iter().find(|policy| policy.subject.is_everything()).expect("the enforcing selector");
    assert!(all.isolate_ingress && all.ingress.is_empty());
}

#[test]
fn expectations_become_one_cell_per_judged_pair() {
    let estate = small();
    let cells = estate.expectations_of(0);
    assert_eq!(cells.len(), 2 + 2 + 1);
    assert!(matches!(cells[0].want, Want::Packet { probe: Probe::Port { protocol: 6, port: 80 }, allow: false }));
    let Want::Services(services) = &cells[3].want else { panic!("a set") };
    assert_eq!(**services, BTreeMap::from([(protocol::TCP, vec![PortRange { first: 80, last: 90 }])]));
    assert_eq!((cells[3].at, cells[3].family), (At::Destination, Some(Family::V4)));
    assert!(matches!(cells[4].from, Party::Address(_)));
    assert_eq!(estate.name_of(&cells[3].from), "net:10.0.0.0-10.255.255.255");
}

#[test]
fn steps_edit_the_state_before_them() {
    let estate = small();
    assert_eq!(estate.states.len(), 3);
    let labels = |k: usize| {
        let intent = estate.intent_after(k).expect("a state");
        let host = intent.hosts.values().find(|host| host.name.as_str() == "b").expect("host b");
        let key = ObjectKey { kind: Kind::Host, namespace: Name::default_namespace(), name: host.name.clone() };
        let Spec::Host(spec) = &intent.objects[&key] else { panic!("a host document") };
        spec.labels.clone()
    };
    assert!(labels(0).is_empty());
    assert_eq!(labels(1).get("pod").map(String::as_str), Some("c"));
    let last = estate.intent_after(2).expect("a state");
    assert_eq!(last.hosts.len(), 1);
    assert_eq!(last.objects.keys().filter(|key| key.kind == Kind::Policy).count(), 1);
    assert!(estate.intent_after(3).is_none());
}

#[test]
fn a_need_that_is_not_known_is_unmet() {
    assert_eq!(small().unmet(), ["time_travel"]);
}

#[test]
fn what_is_not_understood_is_an_error() {
    for (from, to) in [
        (r#""op": "exists""#, r#""op": "like""#),
        (r#""dst":"#, r#""dest":"#),
        (r#""proto": "ipip""#, r#""proto": "carrier-pigeon""#),
        (r#""rows": ["-0", "1-"]"#, r#""rows": ["-0"]"#),
        (r#""rows": ["-0", "1-"]"#, r#""rows": ["-0", "x-"]"#),
        (r#""op": "drop_rules""#, r#""op": "paint_rules""#),
        (r#""at": "inbound""#, r#""at": "noon""#),
        (r#""file": "list.txt""#, r#""file": "other.txt""#),
        (r#""format": "estate/1""#, r#""format": "estate/2""#),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL);
        let mut beside = |file: &str| (file == "list.txt").then(|| "10.9.0.0/16\n".to_owned());
        assert!(read(&text, &mut beside).is_err(), "{to}");
    }
}

#[test]
fn our_own_form_reads_documents_expectations_and_steps() {
    let files = BTreeMap::from([
        (
            "p.yaml",
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  hostSelector: {all: true}\n  isolate: [ingress]\n",
        ),
        (
            "e.yaml",
            "apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {name: e}\nspec: {addresses: [192.0.2.9]}\n",
        ),
    ]);
    let text = "format: holdfast-estate/1\nid: own\nhosts:\n- {name: a, addresses: [10.0.0.1]}\n- {name: b, addresses: [10.0.0.2]}\n\
        documents: [p.yaml, e.yaml]\nexpect:\n- {from: [a, b, 'endpoint:e', 'ip:192.0.2.1'], to: [a, b], tcp: [80, 443], icmp: echo-request, allow: false}\n\
        - {from: a, to: b, exactly: {udp: any}}\nsteps:\n- delete: [Policy/default/p]\n  expect: [{from: a, to: b, protocol: 47, allow: true}]\n";
    let source = Source { name: "estate.yaml".to_owned(), text: text.to_owned() };
    let estate = read_own(&source, &mut |file| files.get(file).map(|text| (*text).to_owned())).expect("an estate");
    assert_eq!(estate.states.len(), 2);
    assert_eq!(estate.expectations_of(0).len(), (1 + 1 + 2 + 2) * 3 + 1);
    assert_eq!(estate.intent_after(1).map(|intent| intent.objects.len()), Some(1));
    assert!(matches!(estate.expectations_of(1)[0].want, Want::Packet { probe: Probe::Protocol(47), allow: true }));

    let broken = Source { name: "estate.yaml".to_owned(), text: text.replace("from: a, to: b", "from: a, to: nobody") };
    let error = read_own(&broken, &mut |file| files.get(file).map(|text| (*text).to_owned())).expect_err("faults");
    assert!(matches!(error, Error::Faults(faults) if faults.list().len() == 2));
}
