//! `networking.k8s.io/v1` NetworkPolicy as it is, with the defaults of its own API.
//!
//! - An empty or absent pod selector is every host of the namespace; an empty or absent peer or port list is anybody or anything.
//! - Absent `policyTypes` mean Ingress, and Egress if there is an egress rule; rules of a direction that is not among the types mean nothing.
//! - What the server writes into metadata is skipped.

use holdfast_model::intent::{
    DEFAULT_ORDER, NamespaceMatch, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec,
};
use holdfast_model::label::Selector;
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, Direction, PortRange, protocol};

use super::peer;
use crate::cursor::{At, Fields, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::scalar;
use crate::selector::{Empty, selector};
use crate::tree::Value;

/// Fields of metadata that have no meaning for a policy.
const METADATA_SKIPPED: [&str; 11] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Namespace and name.
pub(super) fn metadata(at: &At<'_>, sink: &mut Sink) -> Option<(Name, Name)> {
    let mut fields = at.fields(sink, Nulls::Absent)?;
    let name = fields.need(sink, "name").and_then(|at| scalar::name(&at, sink));
    let namespace = match fields.take("namespace") {
        // Kubernetes takes an empty namespace for an absent one.
        Some(at) if matches!(&at.node.value, Value::Text(text) if text.is_empty()) => Some(Name::default_namespace()),
        Some(at) => scalar::name(&at, sink),
        None => Some(Name::default_namespace()),
    };
    fields.skip(&METADATA_SKIPPED);
    fields.skip(&["selfLink"]);
    fields.end(sink);
    Some((namespace?, name?))
}

/// The policy of a `spec`, which may be absent.
pub(super) fn policy(at: Option<&At<'_>>, sink: &mut Sink) -> Policy {
    let Some(mut fields) = at.and_then(|at| at.fields(sink, Nulls::Absent)) else {
        return Policy { isolate_ingress: true, ..Policy::default() };
    };
    let subject = match fields.take("podSelector") {
        Some(at) => selector(&at, sink, Empty::All).unwrap_or_default(),
        None => Selector::everything(),
    };
    let ingress = rules(&mut fields, Direction::Ingress, sink);
    let egress = rules(&mut fields, Direction::Egress, sink);
    let types = fields.take("policyTypes").map(|at| policy_types(&at, sink)).filter(|types| !types.is_empty());
    fields.end(sink);
    let (isolate_ingress, isolate_egress) = match types {
        Some(types) => (types.contains(&Direction::Ingress), types.contains(&Direction::Egress)),
        None => (true, !egress.is_empty()),
    };
    Policy {
        subject,
        isolate_ingress,
        isolate_egress,
        ingress: if isolate_ingress { ingress } else { Vec::new() },
        egress: if isolate_egress { egress } else { Vec::new() },
    }
}

fn policy_types(at: &At<'_>, sink: &mut Sink) -> Vec<Direction> {
    let mut types = Vec::new();
    for item in at.items(sink, limits::LIST_MAX).unwrap_or_default() {
        match item.text(sink) {
            Some("Ingress") => types.push(Direction::Ingress),
            Some("Egress") => types.push(Direction::Egress),
            Some(other) => item.fault(sink, RuleName::Direction, format!("{} is not Ingress or Egress", quote(other))),
            None => {}
        }
    }
    types
}

fn rules(fields: &mut Fields<'_>, direction: Direction, sink: &mut Sink) -> Vec<PolicyRule> {
    let (list, peers) = match direction {
        Direction::Ingress => ("ingress", "from"),
        Direction::Egress => ("egress", "to"),
    };
    let Some(at) = fields.take(list) else { return Vec::new() };
    let items = at.items(sink, limits::RULES_MAX).unwrap_or_default();
    items.iter().filter_map(|item| rule(item, peers, sink)).collect()
}

fn rule(at: &At<'_>, peers_field: &str, sink: &mut Sink) -> Option<PolicyRule> {
    if matches!(at.node.value, Value::Null) {
        return Some(allow(PeerSpec::Any, ServiceSpec::Any));
    }
    let mut fields = at.fields(sink, Nulls::Absent)?;
    let peers = match fields.take(peers_field).and_then(|at| at.items(sink, limits::LIST_MAX)) {
        Some(items) if !items.is_empty() => PeerSpec::Of(items.iter().filter_map(|item| peer_of(item, sink)).collect()),
        Some(_) | None => PeerSpec::Any,
    };
    let services = match fields.take("ports").and_then(|at| at.items(sink, limits::LIST_MAX)) {
        Some(items) if !items.is_empty() => {
            ServiceSpec::Of(items.iter().filter_map(|item| service_of(item, sink)).collect())
        }
        Some(_) | None => ServiceSpec::Any,
    };
    fields.end(sink);
    Some(allow(peers, services))
}

fn allow(peers: PeerSpec, services: ServiceSpec) -> PolicyRule {
    PolicyRule { order: DEFAULT_ORDER, action: Action::Allow, peers, services, local: None, log: false }
}

fn peer_of(at: &At<'_>, sink: &mut Sink) -> Option<Peer> {
    let mut fields = at.fields(sink, Nulls::Absent)?;
    let block_at = fields.take("ipBlock");
    let pods = fields.take("podSelector").map(|at| selector(&at, sink, Empty::All));
    let namespaces = fields.take("namespaceSelector").map(|at| selector(&at, sink, Empty::All));
    fields.end(sink);
    match (block_at, pods, namespaces) {
        (Some(block_at), None, None) => {
            let mut block = block_at.fields(sink, Nulls::Absent)?;
            let cidr = block.need(sink, "cidr").and_then(|at| scalar::cidr(&at, sink));
            let except = peer::except(block.take("except"), cidr, sink);
            block.end(sink);
            Some(Peer::Cidr { cidr: cidr?, except })
        }
        (None, None, None) => {
            at.fault(sink, RuleName::PeerEmpty, "a peer has podSelector, namespaceSelector or ipBlock");
            None
        }
        (None, pods, namespaces) => {
            let labels = pods.unwrap_or_else(|| Some(Selector::everything()))?;
            let namespaces = namespaces.map_or(Some(NamespaceMatch::Own), |found| found.map(NamespaceMatch::Select))?;
            Some(Peer::Select { namespaces, labels })
        }
        (Some(_), _, _) => {
            at.fault(sink, RuleName::PeerMixed, "ipBlock and selectors exclude each other: make two peers of them");
            None
        }
    }
}

fn service_of(at: &At<'_>, sink: &mut Sink) -> Option<Service> {
    let mut fields = at.fields(sink, Nulls::Absent)?;
    let protocol = match fields.take("protocol") {
        None => Some(protocol::TCP),
        Some(at) => at.text(sink).and_then(|word| {
            let found = scalar::transport(word).filter(|_| word.bytes().all(|c| c.is_ascii_uppercase()));
            if found.is_none() {
                at.fault(sink, RuleName::Protocol, format!("{} is not TCP, UDP or SCTP", quote(word)));
            }
            found
        }),
    };
    let port_at = fields.take("port");
    let end_at = fields.take("endPort");
    fields.end(sink);
    let ports = match (port_at, end_at) {
        (None, None) => return Some(Service::Protocol(protocol?)),
        (None, Some(end_at)) => {
            end_at.fault(sink, RuleName::EndPort, "endPort needs a port to start from");
            return None;
        }
        (Some(port_at), end_at) => match &port_at.node.value {
            Value::Text(text) => {
                let name = scalar::port_name(text, &port_at, sink);
                if let Some(end_at) = end_at {
                    end_at.fault(sink, RuleName::EndPort, "endPort needs a port that is a number");
                    return None;
                }
                PortSpec::Named(name?)
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::List(_) | Value::Map(_) => {
                let first = scalar::port(&port_at, sink);
                PortSpec::Range(match end_at {
                    None => PortRange::single(first?),
                    Some(end_at) => {
                        let last = scalar::port(&end_at, sink);
                        scalar::port_range(first?, last?, &end_at, sink)?
                    }
                })
            }
        },
    };
    Some(Service::Ports { protocol: protocol?, ports })
}
