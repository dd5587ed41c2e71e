//! Generated intents and edits over few names, labels and addresses.

use std::net::IpAddr;

use holdfast_interpreter::{Direction, Packet};
use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DeclaredPort, EndpointSpec, EnrolledHost, HostSpec, Intent, Kind, NamespaceMatch, NamespaceSpec,
    Object, ObjectKey, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, IcmpKind, Mode, PortRange, protocol};
use holdfast_render::Edit;
use ipnet::IpNet;
use proptest::prelude::*;

use super::{apply_to_intent, host_id, ip, name, net};

pub(crate) const ADDRESSES: [&str; 10] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.3",
    "10.0.0.9",
    "10.0.1.1",
    "192.0.2.7",
    "fd00::1",
    "fd00::2",
    "fd00:0:0:1::1",
    "2001:db8::9",
];

const PREFIXES: [&str; 9] = [
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/24",
    "10.0.0.2/31",
    "10.0.0.1/32",
    "10.0.0.0/16",
    "fd00::/16",
    "fd00::/64",
    "::ffff:10.0.0.0/126",
];

pub(crate) const PORTS: [u16; 6] = [0, 80, 81, 443, 8080, 65535];

/// Every packet that tells rules of these worlds apart.
pub(crate) fn packets() -> Vec<(Direction, Packet)> {
    type Service = (u8, Option<u16>, Option<(u8, u8)>);
    let with_port = |protocol: u8| PORTS.map(|port| (protocol, Some(port), None));
    let kinds = [0_u8, 3, 8, 128].into_iter().flat_map(|kind| (0_u8..3).map(move |code| (kind, code)));
    let mut services: Vec<Service> = [6, 17, 132].map(with_port).concat();
    services.extend(kinds.flat_map(|kind| [(1, None, Some(kind)), (58, None, Some(kind))]));
    services.extend([(0, None, None), (47, None, None), (255, None, None)]);
    let mut packets = Vec::new();
    for (local, peer) in ADDRESSES.iter().flat_map(|local| ADDRESSES.iter().map(|peer| (ip(local), ip(peer)))) {
        if local.is_ipv4() != peer.is_ipv4() {
            continue;
        }
        for (protocol, port, icmp) in &services {
            let packet = Packet { local, peer, protocol: *protocol, port: *port, icmp: *icmp };
            packets.extend([(Direction::Ingress, packet), (Direction::Egress, packet)]);
        }
    }
    packets
}

pub(crate) fn address() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(&ADDRESSES[..]).prop_map(ip)
}

pub(crate) fn host() -> impl Strategy<Value = HostId> {
    (0_u32..6).prop_map(host_id)
}

fn prefix() -> impl Strategy<Value = IpNet> {
    prop::sample::select(&PREFIXES[..]).prop_map(net)
}

fn namespace() -> impl Strategy<Value = Name> {
    prop::sample::select(&["default", "prod"][..]).prop_map(name)
}

fn short_name() -> impl Strategy<Value = Name> {
    prop::sample::select(&["n0", "n1", "n2"][..]).prop_map(name)
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(&["app", "env"][..]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    prop::sample::select(&["a", "b"][..]).prop_map(str::to_owned)
}

fn some_labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map(key(), value(), 0..3)
}

fn selector() -> impl Strategy<Value = Selector> {
    let values = || prop::collection::vec(value(), 1..3);
    let requirement = prop_oneof![
        3 => (key(), values()).prop_map(|(key, values)| Requirement::In { key, values }),
        1 => (key(), values()).prop_map(|(key, values)| Requirement::NotIn { key, values }),
        1 => key().prop_map(|key| Requirement::Exists { key }),
        1 => key().prop_map(|key| Requirement::DoesNotExist { key }),
    ];
    prop::collection::vec(requirement, 0..3).prop_map(Selector::new)
}

fn namespace_selector() -> impl Strategy<Value = Selector> {
    let by_name = namespace().prop_map(|name| {
        let key = "kubernetes.io/metadata.name".to_owned();
        Selector::new(vec![Requirement::In { key, values: vec![name.to_string()] }])
    });
    prop_oneof![selector(), by_name]
}

fn protocol_with_ports() -> impl Strategy<Value = u8> {
    prop::sample::select(&[protocol::TCP, protocol::UDP, protocol::SCTP][..])
}

fn port_name() -> impl Strategy<Value = String> {
    prop::sample::select(&["web", "db"][..]).prop_map(str::to_owned)
}

fn declared_ports() -> impl Strategy<Value = Vec<DeclaredPort>> {
    let port = (port_name(), protocol_with_ports(), prop::sample::select(&PORTS[..]))
        .prop_map(|(name, protocol, port)| DeclaredPort { name, protocol, port });
    prop::collection::vec(port, 0..4)
}

fn range() -> impl Strategy<Value = PortRange> {
    let port = || prop::sample::select(&PORTS[..]);
    (port(), port()).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) })
}

fn icmp_kinds() -> impl Strategy<Value = Vec<IcmpKind>> {
    let kind = (prop::sample::select(&[0_u8, 3, 8, 128][..]), prop::option::of(0_u8..2));
    prop::collection::vec(kind.prop_map(|(kind, code)| IcmpKind { kind, code }), 0..3)
}

fn service() -> impl Strategy<Value = Service> {
    prop_oneof![
        2 => prop::sample::select(&[1_u8, 6, 17, 47, 58, 132][..]).prop_map(Service::Protocol),
        4 => (protocol_with_ports(), range())
            .prop_map(|(protocol, range)| Service::Ports { protocol, ports: PortSpec::Range(range) }),
        4 => (protocol_with_ports(), port_name())
            .prop_map(|(protocol, name)| Service::Ports { protocol, ports: PortSpec::Named(name) }),
        2 => (icmp_kinds(), icmp_kinds()).prop_map(|(v4, v6)| Service::Icmp { v4, v6 }),
    ]
}

fn services() -> impl Strategy<Value = ServiceSpec> {
    prop_oneof![1 => Just(ServiceSpec::Any), 5 => prop::collection::vec(service(), 0..4).prop_map(ServiceSpec::Of)]
}

fn peer() -> impl Strategy<Value = Peer> {
    let place = prop_oneof![Just(NamespaceMatch::Own), namespace_selector().prop_map(NamespaceMatch::Select),];
    prop_oneof![
        4 => (place, selector()).prop_map(|(namespaces, labels)| Peer::Select { namespaces, labels }),
        2 => (prefix(), prop::collection::vec(prefix(), 0..2)).prop_map(|(cidr, except)| Peer::Cidr { cidr, except }),
        1 => short_name().prop_map(Peer::Group),
    ]
}

fn peers() -> impl Strategy<Value = PeerSpec> {
    prop_oneof![1 => Just(PeerSpec::Any), 6 => prop::collection::vec(peer(), 0..3).prop_map(PeerSpec::Of)]
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let order = prop_oneof![2 => Just(1000), 1 => Just(-5), 1 => Just(2000)];
    let action = prop_oneof![3 => Just(Action::Allow), 1 => Just(Action::Deny)];
    let local = prop::option::weighted(0.2, prop::collection::vec(prefix(), 0..2));
    (order, action, peers(), services(), local, prop::bool::weighted(0.2)).prop_map(
        |(order, action, peers, services, local, log)| PolicyRule { order, action, peers, services, local, log },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let rules = || prop::collection::vec(rule(), 0..4);
    (selector(), any::<(bool, bool)>(), rules(), rules()).prop_map(
        |(subject, (isolate_ingress, isolate_egress), ingress, egress)| Policy {
            subject,
            isolate_ingress,
            isolate_egress,
            ingress,
            egress,
        },
    )
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(&[Mode::Visibility, Mode::Simulation, Mode::Enforced][..])
}

fn addresses(most: usize) -> impl Strategy<Value = Vec<IpAddr>> {
    prop::collection::btree_set(address(), 0..=most).prop_map(|set| set.into_iter().collect())
}

fn spec() -> impl Strategy<Value = Spec> {
    let host = (some_labels(), prop::option::of(declared_ports()), prop::option::of(mode()));
    prop_oneof![
        1 => prop::collection::vec(prefix(), 0..4).prop_map(|cidrs| Spec::AddressGroup(AddressGroupSpec { cidrs })),
        1 => (some_labels(), addresses(2), declared_ports())
            .prop_map(|(labels, addresses, ports)| Spec::Endpoint(EndpointSpec { labels, addresses, ports })),
        2 => host.prop_map(|(labels, ports, mode)| Spec::Host(HostSpec { labels, ports, mode })),
        1 => some_labels().prop_map(|labels| Spec::Namespace(NamespaceSpec { labels })),
        2 => policy().prop_map(Spec::NetworkPolicy),
        4 => policy().prop_map(Spec::Policy),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    (namespace(), short_name(), spec()).prop_map(|(namespace, name, spec)| {
        // A namespace is named by itself.
        let name = if spec.kind() == Kind::Namespace { namespace.clone() } else { name };
        Object { namespace, name, spec }
    })
}

fn object_key() -> impl Strategy<Value = ObjectKey> {
    (prop::sample::select(&Kind::ALL[..]), namespace(), short_name()).prop_map(|(kind, namespace, name)| {
        let name = if kind == Kind::Namespace { namespace.clone() } else { name };
        ObjectKey { kind, namespace, name }
    })
}

fn enrolled() -> impl Strategy<Value = EnrolledHost> {
    (host(), namespace(), short_name(), some_labels(), declared_ports(), addresses(3)).prop_map(
        |(id, namespace, name, labels, ports, addresses)| EnrolledHost {
            id,
            namespace,
            name,
            labels,
            ports,
            addresses,
        },
    )
}

/// One change of anything.
pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => object().prop_map(Edit::PutObject),
        2 => object_key().prop_map(Edit::DeleteObject),
        5 => enrolled().prop_map(Edit::PutHost),
        1 => host().prop_map(Edit::RemoveHost),
    ]
}

/// An intent as edits make one.
pub(crate) fn intent() -> impl Strategy<Value = Intent> {
    prop::collection::vec(edit(), 4..24).prop_map(|edits| {
        let mut intent = Intent::default();
        edits.iter().for_each(|edit| apply_to_intent(&mut intent, edit));
        intent
    })
}

/// A small change of something that is there: what an operator's edit mostly is.
#[derive(Clone, Debug)]
pub(crate) enum Nudge {
    Subject(Selector),
    Peer(Peer),
    Service(Service),
    Isolation,
    HostLabels(Labels),
    HostAddresses(Vec<IpAddr>),
}

pub(crate) fn nudge() -> impl Strategy<Value = Nudge> {
    prop_oneof![
        selector().prop_map(Nudge::Subject),
        peer().prop_map(Nudge::Peer),
        service().prop_map(Nudge::Service),
        Just(Nudge::Isolation),
        some_labels().prop_map(Nudge::HostLabels),
        addresses(3).prop_map(Nudge::HostAddresses),
    ]
}

/// One edit of one thing of an intent, if it has one that can be nudged so.
pub(crate) fn nudged(intent: &Intent, at: prop::sample::Index, nudge: Nudge) -> Option<Edit> {
    if let Nudge::HostLabels(_) | Nudge::HostAddresses(_) = nudge {
        let hosts: Vec<&EnrolledHost> = intent.hosts.values().collect();
        let mut host = (!hosts.is_empty()).then(|| (*at.get(&hosts)).clone())?;
        match nudge {
            Nudge::HostLabels(labels) => host.labels = labels,
            Nudge::HostAddresses(addresses) => host.addresses = addresses,
            Nudge::Subject(_) | Nudge::Peer(_) | Nudge::Service(_) | Nudge::Isolation => {}
        }
        return Some(Edit::PutHost(host));
    }
    let is_policy = |spec: &Spec| matches!(spec, Spec::Policy(_) | Spec::NetworkPolicy(_));
    let policies: Vec<_> = intent.objects.iter().filter(|(_, spec)| is_policy(spec)).collect();
    let (key, spec) = (!policies.is_empty()).then(|| *at.get(&policies))?;
    let mut spec = spec.clone();
    if let Spec::Policy(policy) | Spec::NetworkPolicy(policy) = &mut spec {
        let rule = policy.ingress.iter_mut().chain(&mut policy.egress).next();
        match (nudge, rule) {
            (Nudge::Subject(subject), _) => policy.subject = subject,
            (Nudge::Isolation, _) => policy.isolate_egress = !policy.isolate_egress,
            (Nudge::Peer(peer), Some(rule)) => rule.peers = with_one(&rule.peers, peer),
            (Nudge::Service(service), Some(rule)) => rule.services = ServiceSpec::Of(vec![service]),
            (Nudge::Peer(_) | Nudge::Service(_) | Nudge::HostLabels(_) | Nudge::HostAddresses(_), _) => {}
        }
    }
    Some(Edit::PutObject(Object { namespace: key.namespace.clone(), name: key.name.clone(), spec }))
}

fn with_one(peers: &PeerSpec, peer: Peer) -> PeerSpec {
    match peers {
        PeerSpec::Any => PeerSpec::Of(vec![peer]),
        PeerSpec::Of(peers) => PeerSpec::Of(peers.iter().cloned().chain([peer]).collect()),
    }
}
