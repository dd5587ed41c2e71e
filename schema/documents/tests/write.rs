//! `read(write(x)) == x`, as JSON and as YAML, for generated objects of every kind.

use holdfast_documents::{Source, read, write};
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, DeclaredPort, EndpointSpec, HostSpec, NamespaceMatch, NamespaceSpec, Object, Peer,
    PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, IcmpKind, Mode, PortRange, protocol};
use ipnet::IpNet;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::net::IpAddr;

proptest! {
    #[test]
    fn every_object_is_read_back_as_it_was(objects in vec(object(), 1..4)) {
        let documents: Vec<serde_json::Value> = objects.iter().map(write).collect();
        let json: String = documents.iter().map(|document| format!("---\n{document}\n")).collect();
        let yaml: String = documents
            .iter()
            .map(|document| format!("---\n{}\n", serde_saphyr::to_string(document).expect("YAML")))
            .collect();
        for text in [json, yaml] {
            // One at a time: two generated objects may have one name.
            for (object, part) in objects.iter().zip(text.split("---\n").skip(1)) {
                let source = Source { name: "written".to_owned(), text: part.to_owned() };
                let found = read(&[source]).unwrap_or_else(|faults| panic!("{:#?}\n{part}", faults.list()));
                prop_assert_eq!(&found, std::slice::from_ref(object), "{}", part);
            }
        }
    }
}

#[test]
fn words_that_yaml_could_take_for_something_else_stay_text() {
    let labels: Labels = ["yes", "null", "1", "1e3", "0x1f", "true", "", "2024-01-01", "1.5", "y", "N", "off"]
        .iter()
        .enumerate()
        .map(|(index, value)| (format!("k{index}"), (*value).to_owned()))
        .collect();
    let object = Object {
        namespace: name("n"),
        name: name("1e3"),
        spec: Spec::Host(HostSpec { labels, ports: None, mode: None }),
    };
    let text = serde_saphyr::to_string(&write(&object)).expect("YAML");
    let found = read(&[Source { name: "written".to_owned(), text: text.clone() }]);
    assert_eq!(found.expect("reads"), [object], "{text}");
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn names() -> impl Strategy<Value = Name> {
    "[a-z0-9]([a-z0-9.-]{0,6}[a-z0-9])?".prop_map(|text| name(&text))
}

fn label_maps() -> impl Strategy<Value = Labels> {
    btree_map(keys(), values(), 0..4)
}

fn keys() -> impl Strategy<Value = String> {
    "([a-z]{1,3}\\.io/)?[a-zA-Z0-9]([a-z_.-]{0,3}[a-z0-9])?"
}

fn values() -> impl Strategy<Value = String> {
    "([a-zA-Z0-9]([a-z_.-]{0,3}[a-z0-9])?)?"
}

fn selectors() -> impl Strategy<Value = Selector> {
    let requirement = prop_oneof![
        (keys(), vec(values(), 1..3)).prop_map(|(key, values)| Requirement::In { key, values }),
        (keys(), vec(values(), 1..3)).prop_map(|(key, values)| Requirement::NotIn { key, values }),
        keys().prop_map(|key| Requirement::Exists { key }),
        keys().prop_map(|key| Requirement::DoesNotExist { key }),
        // The same key twice: only one of the two can stand among `matchLabels`.
        Just(Requirement::In { key: "k".to_owned(), values: vec!["a".to_owned()] }),
        Just(Requirement::In { key: "k".to_owned(), values: vec!["b".to_owned()] }),
    ];
    vec(requirement, 0..4).prop_map(Selector::new)
}

fn nets() -> impl Strategy<Value = IpNet> {
    let four = (any::<u32>(), 0..=32_u8).prop_map(|(bits, len)| (IpAddr::V4(bits.into()), len));
    // Not a mapped prefix: those are IPv4.
    let six = (any::<u128>(), 0..=128_u8).prop_map(|(bits, len)| (IpAddr::V6((bits | (1 << 127)).into()), len));
    prop_oneof![four, six].prop_map(|(address, len)| IpNet::new(address, len).expect("a length").trunc())
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}

fn blocks() -> impl Strategy<Value = Peer> {
    (nets(), any::<bool>()).prop_map(|(cidr, with_hole)| {
        let hole = cidr.subnets(cidr.prefix_len() + 1).ok().and_then(|mut halves| halves.next());
        Peer::Cidr { cidr, except: hole.filter(|_| with_hole).into_iter().collect() }
    })
}

fn selects() -> impl Strategy<Value = Peer> {
    let namespaces = prop_oneof![Just(NamespaceMatch::Own), selectors().prop_map(NamespaceMatch::Select)];
    (namespaces, selectors()).prop_map(|(namespaces, labels)| Peer::Select { namespaces, labels })
}

fn transports() -> impl Strategy<Value = u8> {
    prop_oneof![Just(protocol::TCP), Just(protocol::UDP), Just(protocol::SCTP)]
}

fn port_services() -> impl Strategy<Value = Service> {
    let range = (1..=u16::MAX, 1..=u16::MAX).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) });
    let ports = prop_oneof![
        range.prop_map(PortSpec::Range),
        (1..=u16::MAX).prop_map(|port| PortSpec::Range(PortRange::single(port))),
        "[a-z][a-z0-9]{0,5}".prop_filter("`any` is a word", |text| text != "any").prop_map(PortSpec::Named),
    ];
    (transports(), ports).prop_map(|(protocol, ports)| Service::Ports { protocol, ports })
}

fn own_services() -> impl Strategy<Value = Service> {
    let kinds = || {
        let kind = (any::<u8>(), any::<Option<u8>>()).prop_map(|(kind, code)| IcmpKind { kind, code });
        vec(kind, 0..3).prop_map(sorted)
    };
    prop_oneof![
        port_services(),
        any::<u8>().prop_map(Service::Protocol),
        (kinds(), kinds()).prop_map(|(v4, v6)| Service::Icmp { v4, v6 }),
    ]
}

fn own_rules() -> impl Strategy<Value = PolicyRule> {
    let peer = prop_oneof![blocks(), selects(), names().prop_map(Peer::Group)];
    let peers = prop_oneof![Just(PeerSpec::Any), vec(peer, 0..3).prop_map(|peers| PeerSpec::Of(sorted(peers)))];
    let services =
        prop_oneof![Just(ServiceSpec::Any), vec(own_services(), 0..3).prop_map(|all| ServiceSpec::Of(sorted(all)))];
    let local = proptest::option::of(vec(nets(), 0..3).prop_map(sorted));
    let action = prop_oneof![Just(Action::Allow), Just(Action::Deny)];
    let order = prop_oneof![Just(DEFAULT_ORDER), any::<i32>()];
    (order, action, peers, services, local, any::<bool>()).prop_map(|(order, action, peers, services, local, log)| {
        PolicyRule { order, action, peers, services, local, log }
    })
}

fn kubernetes_rules() -> impl Strategy<Value = PolicyRule> {
    let peer = prop_oneof![blocks(), selects()];
    let peers = prop_oneof![Just(PeerSpec::Any), vec(peer, 1..3).prop_map(PeerSpec::Of)];
    let service = prop_oneof![port_services(), transports().prop_map(Service::Protocol)];
    let services = prop_oneof![Just(ServiceSpec::Any), vec(service, 1..3).prop_map(ServiceSpec::Of)];
    (peers, services).prop_map(|(peers, services)| PolicyRule {
        order: DEFAULT_ORDER,
        action: Action::Allow,
        peers,
        services,
        local: None,
        log: false,
    })
}

fn own_policy() -> impl Strategy<Value = Spec> {
    (selectors(), any::<bool>(), any::<bool>(), vec(own_rules(), 0..3), vec(own_rules(), 0..3)).prop_map(
        |(subject, isolate_ingress, isolate_egress, ingress, egress)| {
            Spec::Policy(Policy { subject, isolate_ingress, isolate_egress, ingress, egress })
        },
    )
}

fn kubernetes_policy() -> impl Strategy<Value = Spec> {
    let types = prop_oneof![Just((true, false)), Just((false, true)), Just((true, true))];
    (selectors(), types, vec(kubernetes_rules(), 0..3), vec(kubernetes_rules(), 0..3)).prop_map(
        |(subject, (isolate_ingress, isolate_egress), ingress, egress)| {
            let ingress = if isolate_ingress { ingress } else { Vec::new() };
            let egress = if isolate_egress { egress } else { Vec::new() };
            Spec::NetworkPolicy(Policy { subject, isolate_ingress, isolate_egress, ingress, egress })
        },
    )
}

fn declared() -> impl Strategy<Value = Vec<DeclaredPort>> {
    let one = ("[a-z][a-z0-9]{0,5}", transports(), 1..=u16::MAX);
    vec(one.prop_map(|(name, protocol, port)| DeclaredPort { name, protocol, port }), 0..3).prop_map(|mut ports| {
        ports.sort_unstable();
        ports.dedup_by(|a, b| a.name == b.name && a.protocol == b.protocol);
        ports
    })
}

fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let four = any::<u32>().prop_map(|bits| IpAddr::V4(bits.into()));
    let six = any::<u128>().prop_map(|bits| IpAddr::V6((bits | (1 << 127)).into()));
    vec(prop_oneof![four, six], 1..4).prop_map(sorted)
}

fn object() -> impl Strategy<Value = Object> {
    let mode = prop_oneof![Just(Mode::Visibility), Just(Mode::Simulation), Just(Mode::Enforced)];
    let spec =
        prop_oneof![
            vec(nets(), 0..4).prop_map(|cidrs| Spec::AddressGroup(AddressGroupSpec { cidrs })),
            (label_maps(), addresses(), declared())
                .prop_map(|(labels, addresses, ports)| Spec::Endpoint(EndpointSpec { labels, addresses, ports })),
            (label_maps(), proptest::option::of(declared()), proptest::option::of(mode))
                .prop_map(|(labels, ports, mode)| Spec::Host(HostSpec { labels, ports, mode })),
            label_maps().prop_map(|labels| Spec::Namespace(NamespaceSpec { labels })),
            own_policy(),
            kubernetes_policy(),
        ];
    (names(), names(), spec).prop_map(|(namespace, name, spec)| {
        let namespace = if matches!(spec, Spec::Namespace(_)) { name.clone() } else { namespace };
        Object { namespace, name, spec }
    })
}
