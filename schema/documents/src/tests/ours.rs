//! Our own kinds.

use std::net::IpAddr;

use holdfast_model::intent::{NamespaceMatch, Peer, PeerSpec, PolicyRule, PortSpec, Service, ServiceSpec, Spec};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::policy::{Action, IcmpKind, Mode, PortRange, protocol};

use super::{objects, policy_of, source};
use crate::read;

fn ours(spec: &str) -> String {
    let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: p}}\nspec:\n{indented}")
}

fn services_of(text: &str) -> ServiceSpec {
    policy_of(&ours(&format!("hostSelector: {{all: true}}\ningress: [{{services: {text}}}]"))).ingress[0]
        .services
        .clone()
}

#[test]
fn a_policy_says_order_deny_peers_log_and_the_subjects_own_address() {
    let policy = policy_of(&ours(
        "hostSelector: {matchLabels: {role: web}}\norder: 500\ningress:\n- action: deny\n  order: 10\n  from:\n  - cidr: 192.0.2.0/24\n    except: [192.0.2.128/25]\n  - addressGroup: bad\n  log: true\n  local: [198.51.100.7/32]\n- services: [{tcp: 443}]",
    ));
    let net = |text: &str| text.parse().expect("a net");
    let deny = PolicyRule {
        order: 10,
        action: Action::Deny,
        peers: PeerSpec::Of(vec![
            Peer::Cidr { cidr: net("192.0.2.0/24"), except: vec![net("192.0.2.128/25")] },
            Peer::Group("bad".parse().expect("a name")),
        ]),
        services: ServiceSpec::Any,
        local: Some(vec![net("198.51.100.7/32")]),
        log: true,
    };
    assert_eq!(policy.ingress[0], deny);
    assert_eq!((policy.ingress[1].order, policy.ingress[1].action), (500, Action::Allow));
    assert!(policy.isolate_ingress && !policy.isolate_egress);
}

#[test]
fn isolation_is_what_is_said_or_else_where_something_is_allowed() {
    let isolation = |spec: &str| {
        let policy = policy_of(&ours(&format!("hostSelector: {{all: true}}\n{spec}")));
        (policy.isolate_ingress, policy.isolate_egress)
    };
    assert_eq!(isolation("isolate: [ingress, egress]"), (true, true));
    assert_eq!(isolation("isolate: []\ningress: [{}]"), (false, false));
    assert_eq!(isolation("egress: [{to: [{cidr: 0.0.0.0/0}]}]"), (false, true));
    assert_eq!(isolation("ingress: [{action: deny}]"), (false, false));
}

#[test]
fn an_absent_peer_list_is_anybody_and_an_empty_one_nobody() {
    let peers = |rule: &str| {
        policy_of(&ours(&format!("hostSelector: {{all: true}}\ningress: [{rule}]"))).ingress[0].peers.clone()
    };
    assert_eq!(peers("{}"), PeerSpec::Any);
    assert_eq!(peers("{from: []}"), PeerSpec::Of(vec![]));
    let everything = Selector::everything;
    let both =
        PeerSpec::Of(vec![Peer::Select { namespaces: NamespaceMatch::Select(everything()), labels: everything() }]);
    assert_eq!(peers("{from: [{namespaceSelector: {all: true}}]}"), both);
}

#[test]
fn services_are_ports_names_whole_protocols_and_icmp() {
    let ports = |protocol, first, last| Service::Ports { protocol, ports: PortSpec::Range(PortRange { first, last }) };
    let named = |protocol, name: &str| Service::Ports { protocol, ports: PortSpec::Named(name.to_owned()) };
    let (tcp, udp) = (protocol::TCP, protocol::UDP);
    let kind = |kind, code| IcmpKind { kind, code };
    let cases = [
        ("[{tcp: 443}]", vec![ports(tcp, 443, 443)]),
        (
            "[{tcp: [80, '443', 8000-8100, web]}]",
            vec![ports(tcp, 80, 80), ports(tcp, 443, 443), ports(tcp, 8000, 8100), named(tcp, "web")],
        ),
        ("[{udp: any}, {protocol: 47}]", vec![Service::Protocol(udp), Service::Protocol(47)]),
        ("[{icmp: any}]", vec![Service::Icmp { v4: vec![], v6: vec![] }]),
        ("[{icmp: echo-request}]", vec![Service::Icmp { v4: vec![kind(8, None)], v6: vec![kind(128, None)] }]),
        ("[{icmp: {v4: [{type: 3, code: 4}]}}]", vec![Service::Icmp { v4: vec![kind(3, Some(4))], v6: vec![] }]),
    ];
    for (text, mut want) in cases {
        want.sort_unstable();
        assert_eq!(services_of(text), ServiceSpec::Of(want), "{text}");
    }
    assert_eq!(services_of("[]"), ServiceSpec::Of(vec![]));
}

#[test]
fn the_other_kinds_are_read_with_their_defaults() {
    let found = objects(
        "---\napiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: edge}\nspec: {labels: {tier: outer}}\n---\n# nothing\n---\n\
         apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: web-1, namespace: edge}\nspec:\n  labels: {role: web}\n  ports: [{name: http, port: 80}]\n  mode: enforced\n---\n\
         apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {name: db}\nspec: {addresses: ['2001:db8::1', 192.0.2.1, '::ffff:192.0.2.9']}\n---\n\
         apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: a}\nspec: {cidrs: [10.0.0.0/8, 192.0.2.1]}\n---\n\
         apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: b}\nspec:\n  cidrs: |\n    # list\n    10.0.0.0/8\n    10.0.0.0/8\n",
    );
    assert_eq!(found.len(), 5);
    assert_eq!((found[0].namespace.as_str(), found[0].name.as_str()), ("edge", "edge"));
    let Spec::Host(host) = &found[1].spec else { panic!("a host") };
    assert_eq!(host.mode, Some(Mode::Enforced));
    assert_eq!(host.labels, Labels::from([("role".to_owned(), "web".to_owned())]));
    assert_eq!(host.ports.as_ref().map(|ports| (ports[0].protocol, ports[0].port)), Some((protocol::TCP, 80)));
    let Spec::Endpoint(endpoint) = &found[2].spec else { panic!("an endpoint") };
    let addresses: Vec<IpAddr> =
        ["192.0.2.1", "192.0.2.9", "2001:db8::1"].iter().map(|text| text.parse().expect("an address")).collect();
    assert_eq!(endpoint.addresses, addresses);
    let groups: Vec<usize> = found[3..]
        .iter()
        .map(|object| {
            let Spec::AddressGroup(group) = &object.spec else { panic!("a group") };
            group.cidrs.len()
        })
        .collect();
    assert_eq!(groups, [2, 2]);
}

#[test]
fn one_name_in_two_files_is_a_fault_that_names_the_first_place() {
    let text = "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: a}\n";
    let mut second = source(text);
    second.name = "second.yaml".to_owned();
    let faults = read(&[source(text), second]).expect_err("a repeated name");
    assert_eq!(faults.list().len(), 1);
    assert!(faults.list()[0].message.contains("in.yaml:1"), "{:?}", faults.list());
    assert_eq!(faults.list()[0].file, "second.yaml");
}
