//! `holdfast.dev/v1` Policy.

use holdfast_model::intent::{
    DEFAULT_ORDER, NamespaceMatch, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec,
};
use holdfast_model::label::Selector;
use holdfast_model::policy::{Action, IcmpKind, protocol};
use serde_json::{Map, Value, json};

use super::{selector, texts, transport};

/// The `spec` of a policy.
pub(super) fn policy(policy: &Policy) -> Value {
    let mut spec = Map::new();
    spec.insert("hostSelector".to_owned(), hosts(&policy.subject));
    let directions = [("ingress", policy.isolate_ingress), ("egress", policy.isolate_egress)];
    let isolate: Vec<&str> = directions.into_iter().filter(|(_, isolates)| *isolates).map(|(word, _)| word).collect();
    spec.insert("isolate".to_owned(), json!(isolate));
    for (list, peers, rules) in [("ingress", "from", &policy.ingress), ("egress", "to", &policy.egress)] {
        if !rules.is_empty() {
            spec.insert(list.to_owned(), rules.iter().map(|one| rule(one, peers)).collect());
        }
    }
    Value::Object(spec)
}

fn hosts(labels: &Selector) -> Value {
    if labels.is_everything() { json!({ "all": true }) } else { Value::Object(selector(labels)) }
}

fn rule(rule: &PolicyRule, peers_field: &str) -> Value {
    let mut written = Map::new();
    if rule.action == Action::Deny {
        written.insert("action".to_owned(), json!("deny"));
    }
    if rule.order != DEFAULT_ORDER {
        written.insert("order".to_owned(), json!(rule.order));
    }
    if let PeerSpec::Of(peers) = &rule.peers {
        written.insert(peers_field.to_owned(), peers.iter().map(peer).collect());
    }
    if let ServiceSpec::Of(services) = &rule.services {
        written.insert("services".to_owned(), services.iter().map(service).collect());
    }
    if let Some(local) = &rule.local {
        written.insert("local".to_owned(), texts(local));
    }
    if rule.log {
        written.insert("log".to_owned(), json!(true));
    }
    Value::Object(written)
}

fn peer(peer: &Peer) -> Value {
    match peer {
        Peer::Select { namespaces: NamespaceMatch::Own, labels } => json!({ "hostSelector": hosts(labels) }),
        Peer::Select { namespaces: NamespaceMatch::Select(namespaces), labels } => {
            json!({ "namespaceSelector": hosts(namespaces), "hostSelector": hosts(labels) })
        }
        Peer::Cidr { cidr, except } if except.is_empty() => json!({ "cidr": cidr.to_string() }),
        Peer::Cidr { cidr, except } => json!({ "cidr": cidr.to_string(), "except": texts(except) }),
        Peer::Group(name) => json!({ "addressGroup": name.as_str() }),
    }
}

fn service(service: &Service) -> Value {
    let of = |number: u8, value: Value| {
        let mut written = Map::new();
        written.insert(transport(number).to_owned(), value);
        Value::Object(written)
    };
    match service {
        Service::Protocol(number @ (protocol::TCP | protocol::UDP | protocol::SCTP)) => of(*number, json!("any")),
        Service::Protocol(number) => json!({ "protocol": number }),
        Service::Ports { protocol, ports: PortSpec::Named(name) } => of(*protocol, json!(name)),
        Service::Ports { protocol, ports: PortSpec::Range(range) } if range.first == range.last => {
            of(*protocol, json!(range.first))
        }
        Service::Ports { protocol, ports: PortSpec::Range(range) } => {
            of(*protocol, json!(format!("{}-{}", range.first, range.last)))
        }
        Service::Icmp { v4, v6 } if v4.is_empty() && v6.is_empty() => json!({ "icmp": "any" }),
        Service::Icmp { v4, v6 } => json!({ "icmp": { "v4": kinds(v4), "v6": kinds(v6) } }),
    }
}

fn kinds(kinds: &[IcmpKind]) -> Value {
    let one = |kind: &IcmpKind| match kind.code {
        None => json!({ "type": kind.kind }),
        Some(code) => json!({ "type": kind.kind, "code": code }),
    };
    kinds.iter().map(one).collect()
}
