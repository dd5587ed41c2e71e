//! Intent read as its words say, one packet at a time: slow, plain, and with nothing in common with the renderer.

use std::net::IpAddr;

use holdfast_interpreter::{Direction, Packet, Verdict};
use holdfast_model::intent::{
    DeclaredPort, EnrolledHost, Intent, Kind, NamespaceMatch, ObjectKey, Peer, PeerSpec, Policy, PolicyRule, PortSpec,
    Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, IcmpKind};
use ipnet::IpNet;

/// A host or endpoint.
struct Thing {
    namespace: Name,
    labels: Labels,
    ports: Vec<DeclaredPort>,
    addresses: Vec<IpAddr>,
}

fn thing_of(intent: &Intent, host: &EnrolledHost) -> Thing {
    let key = ObjectKey { kind: Kind::Host, namespace: host.namespace.clone(), name: host.name.clone() };
    let mut labels = host.labels.clone();
    let mut ports = host.ports.clone();
    if let Some(Spec::Host(spec)) = intent.objects.get(&key) {
        labels.extend(spec.labels.clone());
        ports = spec.ports.clone().unwrap_or(ports);
    }
    Thing { namespace: host.namespace.clone(), labels, ports, addresses: host.addresses.clone() }
}

fn things(intent: &Intent) -> Vec<Thing> {
    let mut all: Vec<Thing> = intent.hosts.values().map(|host| thing_of(intent, host)).collect();
    for (key, spec) in &intent.objects {
        if let Spec::Endpoint(spec) = spec {
            let (labels, ports, addresses) = (spec.labels.clone(), spec.ports.clone(), spec.addresses.clone());
            all.push(Thing { namespace: key.namespace.clone(), labels, ports, addresses });
        }
    }
    all
}

fn namespace_matches(intent: &Intent, name: &Name, selector: &Selector) -> bool {
    let key = ObjectKey { kind: Kind::Namespace, namespace: name.clone(), name: name.clone() };
    let mut labels = match intent.objects.get(&key) {
        Some(Spec::Namespace(spec)) => spec.labels.clone(),
        _ => Labels::new(),
    };
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_string());
    selector.matches(&labels)
}

fn within(net: &IpNet, address: IpAddr) -> bool {
    let unmapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6.network().to_ipv4_mapped().map(|v4| (v4, v6.prefix_len() - 96)),
        IpNet::V6(_) | IpNet::V4(_) => None,
    };
    match unmapped {
        Some((v4, len)) => IpNet::new(v4.into(), len).expect("at most 32").contains(&address),
        None => net.contains(&address),
    }
}

/// What the rules of a host say of a packet.
pub(crate) fn verdict(intent: &Intent, host: &EnrolledHost, direction: Direction, packet: &Packet) -> Verdict {
    let subject = thing_of(intent, host);
    let mut isolated = false;
    let mut hits: Vec<(i32, Action)> = Vec::new();
    for (key, spec) in &intent.objects {
        let (Spec::NetworkPolicy(policy) | Spec::Policy(policy)) = spec else { continue };
        if key.namespace != subject.namespace || !policy.subject.matches(&subject.labels) {
            continue;
        }
        let (isolates, rules) = half(policy, direction);
        isolated |= isolates;
        let hit = rules.iter().filter(|rule| rule_hits(intent, &key.namespace, rule, direction, &subject, packet));
        hits.extend(hit.map(|rule| (rule.order, rule.action)));
    }
    match hits.into_iter().min() {
        Some((_, Action::Allow)) => Verdict::Allowed,
        Some((_, Action::Deny)) => Verdict::Denied,
        None if isolated => Verdict::Denied,
        None => Verdict::Allowed,
    }
}

fn half(policy: &Policy, direction: Direction) -> (bool, &[PolicyRule]) {
    match direction {
        Direction::Ingress => (policy.isolate_ingress, &policy.ingress),
        Direction::Egress => (policy.isolate_egress, &policy.egress),
    }
}

fn rule_hits(
    intent: &Intent,
    namespace: &Name,
    rule: &PolicyRule,
    direction: Direction,
    subject: &Thing,
    packet: &Packet,
) -> bool {
    if rule.local.as_ref().is_some_and(|nets| !nets.iter().any(|net| within(net, packet.local))) {
        return false;
    }
    let all = things(intent);
    // Each way to be a peer: with the declared ports of a party that has the address, or without any.
    let ways: Vec<Option<&Thing>> = match &rule.peers {
        PeerSpec::Any => by_address(&all, packet.peer),
        PeerSpec::Of(peers) => peers.iter().flat_map(|peer| ways(intent, namespace, peer, &all, packet.peer)).collect(),
    };
    ways.into_iter().any(|way| {
        let declared = match direction {
            Direction::Ingress => &subject.ports[..],
            Direction::Egress => way.map_or(&[][..], |thing| &thing.ports),
        };
        services_hit(&rule.services, declared, packet)
    })
}

fn by_address(all: &[Thing], address: IpAddr) -> Vec<Option<&Thing>> {
    all.iter().filter(|thing| thing.addresses.contains(&address)).map(Some).chain([None]).collect()
}

fn ways<'a>(
    intent: &Intent,
    namespace: &Name,
    peer: &Peer,
    all: &'a [Thing],
    address: IpAddr,
) -> Vec<Option<&'a Thing>> {
    match peer {
        Peer::Select { namespaces, labels } => {
            let here = |thing: &Thing| match namespaces {
                NamespaceMatch::Own => thing.namespace == *namespace,
                NamespaceMatch::Select(selector) => namespace_matches(intent, &thing.namespace, selector),
            };
            let is =
                |thing: &&Thing| here(thing) && labels.matches(&thing.labels) && thing.addresses.contains(&address);
            all.iter().filter(is).map(Some).collect()
        }
        Peer::Cidr { cidr, except } => {
            let inside = within(cidr, address) && !except.iter().any(|net| within(net, address));
            if inside { by_address(all, address) } else { vec![] }
        }
        Peer::Group(name) => {
            let key = ObjectKey { kind: Kind::AddressGroup, namespace: namespace.clone(), name: name.clone() };
            match intent.objects.get(&key) {
                Some(Spec::AddressGroup(group)) if group.cidrs.iter().any(|net| within(net, address)) => {
                    by_address(all, address)
                }
                _ => vec![],
            }
        }
    }
}

fn services_hit(services: &ServiceSpec, declared: &[DeclaredPort], packet: &Packet) -> bool {
    let ServiceSpec::Of(services) = services else { return true };
    let kind_hits = |kinds: &[IcmpKind]| {
        packet.icmp.is_some_and(|(kind, code)| {
            kinds.iter().any(|wanted| wanted.kind == kind && wanted.code.is_none_or(|wanted| wanted == code))
        })
    };
    services.iter().any(|service| match service {
        Service::Protocol(protocol) => *protocol == packet.protocol,
        Service::Ports { protocol, ports } => {
            let hit = |port: u16| match ports {
                PortSpec::Range(range) => range.contains(port),
                PortSpec::Named(name) => {
                    declared.iter().any(|p| p.name == *name && p.protocol == *protocol && p.port == port)
                }
            };
            *protocol == packet.protocol && packet.port.is_some_and(hit)
        }
        Service::Icmp { v4, v6 } if v4.is_empty() && v6.is_empty() => matches!(packet.protocol, 1 | 58),
        Service::Icmp { v4, v6 } => match packet.protocol {
            1 => packet.peer.is_ipv4() && kind_hits(v4),
            58 => packet.peer.is_ipv6() && kind_hits(v6),
            _ => false,
        },
    })
}
