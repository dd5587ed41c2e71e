//! `networking.k8s.io/v1` NetworkPolicy.

use holdfast_model::intent::{NamespaceMatch, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec};
use holdfast_model::label::Selector;
use serde_json::{Map, Value, json};

use super::{selector, texts, transport};

/// The `spec` of a policy.
pub(super) fn policy(policy: &Policy) -> Value {
    let mut spec = Map::new();
    spec.insert("podSelector".to_owned(), pods(&policy.subject));
    let directions = [("Ingress", policy.isolate_ingress), ("Egress", policy.isolate_egress)];
    let types: Vec<&str> = directions.into_iter().filter(|(_, isolates)| *isolates).map(|(word, _)| word).collect();
    spec.insert("policyTypes".to_owned(), json!(types));
    for (list, peers, rules) in [("ingress", "from", &policy.ingress), ("egress", "to", &policy.egress)] {
        if !rules.is_empty() {
            spec.insert(list.to_owned(), rules.iter().map(|one| rule(one, peers)).collect());
        }
    }
    Value::Object(spec)
}

fn pods(subject: &Selector) -> Value {
    Value::Object(selector(subject))
}

fn rule(rule: &PolicyRule, peers_field: &str) -> Value {
    let mut written = Map::new();
    if let PeerSpec::Of(peers) = &rule.peers {
        written.insert(peers_field.to_owned(), peers.iter().map(peer).collect());
    }
    if let ServiceSpec::Of(services) = &rule.services {
        written.insert("ports".to_owned(), services.iter().map(service).collect());
    }
    Value::Object(written)
}

fn peer(peer: &Peer) -> Value {
    match peer {
        Peer::Select { namespaces: NamespaceMatch::Own, labels } => json!({ "podSelector": pods(labels) }),
        Peer::Select { namespaces: NamespaceMatch::Select(namespaces), labels } => {
            json!({ "namespaceSelector": pods(namespaces), "podSelector": pods(labels) })
        }
        Peer::Cidr { cidr, except } if except.is_empty() => json!({ "ipBlock": { "cidr": cidr.to_string() } }),
        Peer::Cidr { cidr, except } => json!({ "ipBlock": { "cidr": cidr.to_string(), "except": texts(except) } }),
        // No Kubernetes document has a group; one that was made by hand is not read back, and that is said by its field.
        Peer::Group(name) => json!({ "addressGroup": name.as_str() }),
    }
}

fn service(service: &Service) -> Value {
    let word = |number: u8| transport(number).to_ascii_uppercase();
    match service {
        Service::Protocol(number) => json!({ "protocol": word(*number) }),
        Service::Ports { protocol, ports: PortSpec::Named(name) } => {
            json!({ "protocol": word(*protocol), "port": name })
        }
        Service::Ports { protocol, ports: PortSpec::Range(range) } if range.first == range.last => {
            json!({ "protocol": word(*protocol), "port": range.first })
        }
        Service::Ports { protocol, ports: PortSpec::Range(range) } => {
            json!({ "protocol": word(*protocol), "port": range.first, "endPort": range.last })
        }
        Service::Icmp { .. } => json!({ "protocol": "ICMP" }),
    }
}
