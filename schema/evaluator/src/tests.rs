//! What the evaluator says of the corners of the language.

use std::net::IpAddr;

use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, DeclaredPort, EndpointSpec, EnrolledHost, HostSpec, Intent, Kind, NamespaceMatch,
    NamespaceSpec, Object, ObjectKey, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, Direction, IcmpKind, Mode, PortRange, protocol};

use super::*;

const TCP: u8 = protocol::TCP;

#[test]
fn a_host_that_no_policy_selects_is_open_and_an_outside_end_is_not_governed() {
    let intent = mk_intent(&[]);
    let verdict = judge(&intent, outside("192.0.2.9"), host(1), tcp(80));
    assert!(verdict.allowed);
    assert_eq!((verdict.egress, verdict.ingress), (Decision::NotGoverned, Decision::Open));
}

#[test]
fn an_isolated_host_denies_what_no_rule_allows_and_says_which_policies_isolate() {
    let intent = mk_intent(&[("a", role("web"), vec![allow(of_role("db"), ports(80, 80))])]);
    assert!(judge(&intent, host(2), host(1), tcp(80)).allowed);
    let verdict = judge(&intent, host(2), host(1), tcp(81));
    assert!(!verdict.allowed);
    assert_eq!(verdict.ingress, Decision::Isolated(vec![key(Kind::Policy, "a")]));
    assert_eq!(verdict.ingress_mode, Some(Mode::Enforced));
}

#[test]
fn the_rule_that_decides_is_named() {
    let intent =
        mk_intent(&[("a", role("web"), vec![allow(of_role("x"), ports(80, 80)), allow(of_role("db"), ports(80, 80))])]);
    let name = RuleRef { policy: key(Kind::Policy, "a"), direction: Direction::Ingress, index: 1 };
    assert_eq!(judge(&intent, host(2), host(1), tcp(80)).ingress, Decision::Allowed(name));
}

#[test]
fn a_lower_order_decides_first_and_a_deny_before_an_allow_of_its_order() {
    let rule = |order, action| PolicyRule { order, action, ..allow(PeerSpec::Any, ports(80, 80)) };
    let outcome =
        |rules: Vec<PolicyRule>| judge(&mk_intent(&[("a", role("web"), rules)]), host(2), host(1), tcp(80)).allowed;
    assert!(!outcome(vec![rule(5, Action::Allow), rule(5, Action::Deny)]));
    assert!(outcome(vec![rule(6, Action::Deny), rule(5, Action::Allow)]));
    assert!(!outcome(vec![rule(4, Action::Deny), rule(5, Action::Allow)]));
}

#[test]
fn a_deny_holds_on_an_open_host_too() {
    let mut intent = mk_intent(&[]);
    let deny = PolicyRule { action: Action::Deny, ..allow(PeerSpec::Any, ports(80, 80)) };
    put_policy(&mut intent, "a", Policy { subject: role("web"), ingress: vec![deny], ..Policy::default() });
    assert!(!judge(&intent, host(2), host(1), tcp(80)).allowed);
    assert!(judge(&intent, host(2), host(1), tcp(81)).allowed);
}

#[test]
fn a_host_that_does_not_enforce_lets_through_what_its_rules_deny() {
    for (mode, passes) in [(Mode::Visibility, true), (Mode::Simulation, true), (Mode::Enforced, false)] {
        let mut intent = mk_intent(&[("a", role("web"), vec![])]);
        put(&mut intent, "h1", Spec::Host(HostSpec { mode: Some(mode), ..HostSpec::default() }));
        let verdict = judge(&intent, host(2), host(1), tcp(80));
        assert_eq!(verdict.allowed, passes, "{mode}");
        assert!(!verdict.allowed_if_enforced());
    }
}

#[test]
fn a_new_host_is_in_visibility() {
    let mut intent = mk_intent(&[("a", role("web"), vec![])]);
    intent.objects.remove(&key(Kind::Host, "h1"));
    assert_eq!(judge(&intent, host(2), host(1), tcp(80)).ingress_mode, Some(Mode::Visibility));
}

#[test]
fn an_exception_takes_addresses_out_of_its_own_peer_only() {
    let except = Peer::Cidr { cidr: net("10.0.0.0/8"), except: vec![net("10.1.0.0/16")] };
    let other = Peer::Cidr { cidr: net("10.1.2.0/24"), except: vec![] };
    let intent = mk_intent(&[("a", role("web"), vec![allow(PeerSpec::Of(vec![except, other]), ServiceSpec::Any)])]);
    for (address, passes) in [("10.9.0.1", true), ("10.1.0.1", false), ("10.1.2.3", true), ("11.0.0.1", false)] {
        assert_eq!(judge(&intent, outside(address), host(1), tcp(1)).allowed, passes, "{address}");
    }
}

#[test]
fn a_prefix_of_one_family_never_matches_the_other() {
    let peers = PeerSpec::Of(vec![Peer::Cidr { cidr: net("0.0.0.0/0"), except: vec![] }]);
    let intent = mk_intent(&[("a", role("web"), vec![allow(peers, ServiceSpec::Any)])]);
    assert!(judge(&intent, outside("192.0.2.1"), host(1), tcp(1)).allowed);
    let to = End::host(id(1), ip("2001:db8::1"));
    assert!(!judge(&intent, outside("2001:db8::9"), to.clone(), tcp(1)).allowed);
    let flow = Flow { from: outside("192.0.2.1"), to, packet: tcp(1) };
    assert!(matches!(evaluate(&intent, &flow), Err(FlowError::Families(..))));
}

#[test]
fn a_group_is_read_in_the_policys_namespace_and_a_missing_one_has_no_members() {
    let peers = || PeerSpec::Of(vec![Peer::Group(name("g"))]);
    let mut intent = mk_intent(&[("a", role("web"), vec![allow(peers(), ServiceSpec::Any)])]);
    assert!(!judge(&intent, outside("192.0.2.1"), host(1), tcp(1)).allowed);
    let group = Spec::AddressGroup(AddressGroupSpec { cidrs: vec![net("192.0.2.0/25")] });
    intent.put(Object { namespace: name("other"), name: name("g"), spec: group.clone() });
    assert!(!judge(&intent, outside("192.0.2.1"), host(1), tcp(1)).allowed);
    put(&mut intent, "g", group);
    assert!(judge(&intent, outside("192.0.2.1"), host(1), tcp(1)).allowed);
}

#[test]
fn a_selector_never_matches_an_outside_end_and_matches_an_endpoint() {
    let mut intent = mk_intent(&[("a", role("web"), vec![allow(of_role("db"), ServiceSpec::Any)])]);
    let spec = EndpointSpec { labels: labels("db"), addresses: vec![ip("192.0.2.50")], ports: vec![] };
    put(&mut intent, "e", Spec::Endpoint(spec));
    assert!(judge(&intent, End::endpoint(key(Kind::Endpoint, "e"), ip("192.0.2.50")), host(1), tcp(1)).allowed);
    assert!(!judge(&intent, outside("192.0.2.50"), host(1), tcp(1)).allowed);
}

#[test]
fn namespaces_are_chosen_by_their_labels_and_always_have_their_name() {
    let select = |requirement| Peer::Select {
        namespaces: NamespaceMatch::Select(Selector::new(vec![requirement])),
        labels: Selector::everything(),
    };
    let by = |key: &str, value: &str| Requirement::In { key: key.to_owned(), values: vec![value.to_owned()] };
    for (requirement, passes) in [
        (by("kubernetes.io/metadata.name", "default"), true),
        (by("kubernetes.io/metadata.name", "other"), false),
        (by("tier", "inner"), true),
    ] {
        let peers = PeerSpec::Of(vec![select(requirement.clone())]);
        let mut intent = mk_intent(&[("a", role("web"), vec![allow(peers, ServiceSpec::Any)])]);
        let spec = NamespaceSpec { labels: Labels::from([("tier".to_owned(), "inner".to_owned())]) };
        intent.put(Object { namespace: name("default"), name: name("default"), spec: Spec::Namespace(spec) });
        assert_eq!(judge(&intent, host(2), host(1), tcp(1)).allowed, passes, "{requirement:?}");
    }
}

#[test]
fn a_named_port_is_the_destinations_in_both_directions() {
    let named = || ServiceSpec::Of(vec![Service::Ports { protocol: TCP, ports: PortSpec::Named("p".to_owned()) }]);
    let mut intent = mk_intent(&[("a", role("web"), vec![allow(PeerSpec::Any, named())])]);
    assert!(judge(&intent, host(2), host(1), tcp(8001)).allowed);
    assert!(!judge(&intent, host(2), host(1), tcp(8002)).allowed);
    let policy = Policy {
        subject: role("web"),
        isolate_egress: true,
        egress: vec![allow(PeerSpec::Any, named())],
        ..Policy::default()
    };
    put_policy(&mut intent, "b", policy);
    assert!(judge(&intent, host(1), host(2), tcp(8002)).allowed);
    assert!(!judge(&intent, host(1), host(2), tcp(8001)).allowed);
    assert!(!judge(&intent, host(1), outside("192.0.2.1"), tcp(8001)).allowed);
}

#[test]
fn the_subjects_own_address_narrows_a_rule() {
    let rule = PolicyRule { local: Some(vec![net("198.51.100.1/32")]), ..allow(PeerSpec::Any, ServiceSpec::Any) };
    let intent = mk_intent(&[("a", role("web"), vec![rule])]);
    assert!(judge(&intent, outside("192.0.2.1"), host(1), tcp(1)).allowed);
    assert!(!judge(&intent, outside("2001:db8::9"), End::host(id(1), ip("2001:db8::1")), tcp(1)).allowed);
}

#[test]
fn icmp_kinds_belong_to_their_family_and_two_empty_lists_are_all_of_it() {
    let kind = |kind, code| IcmpKind { kind, code };
    let outcome = |v4: Vec<IcmpKind>, v6: Vec<IcmpKind>, v6_flow: bool, packet| {
        let services = ServiceSpec::Of(vec![Service::Icmp { v4, v6 }]);
        let intent = mk_intent(&[("a", role("web"), vec![allow(PeerSpec::Any, services)])]);
        let (from, to) = if v6_flow { ("2001:db8::9", "2001:db8::1") } else { ("192.0.2.9", "198.51.100.1") };
        judge(&intent, outside(from), End::host(id(1), ip(to)), packet).allowed
    };
    let echo = Packet::Icmp { kind: 8, code: 0 };
    assert!(outcome(vec![kind(8, None)], vec![], false, echo));
    assert!(!outcome(vec![kind(8, None)], vec![], true, echo));
    assert!(!outcome(vec![kind(8, Some(1))], vec![], false, echo));
    assert!(outcome(vec![], vec![], true, Packet::Icmp { kind: 128, code: 0 }));
    assert!(!outcome(vec![], vec![], false, tcp(1)));
    assert!(!outcome(vec![], vec![], false, Packet::Other(47)));
}

#[test]
fn a_protocol_by_number_is_that_one_alone() {
    let outcome = |number, packet| {
        let services = ServiceSpec::Of(vec![Service::Protocol(number)]);
        judge(&mk_intent(&[("a", role("web"), vec![allow(PeerSpec::Any, services)])]), host(2), host(1), packet).allowed
    };
    assert!(outcome(47, Packet::Other(47)));
    assert!(!outcome(47, Packet::Other(4)));
    assert!(outcome(TCP, tcp(65_535)));
    assert!(outcome(protocol::ICMP, Packet::Icmp { kind: 8, code: 0 }));
    assert!(!outcome(protocol::ICMPV6, Packet::Icmp { kind: 8, code: 0 }));
}

#[test]
fn an_empty_list_of_peers_or_services_allows_nothing() {
    for rule in [allow(PeerSpec::Of(vec![]), ServiceSpec::Any), allow(PeerSpec::Any, ServiceSpec::Of(vec![]))] {
        assert!(!judge(&mk_intent(&[("a", role("web"), vec![rule])]), host(2), host(1), tcp(1)).allowed);
    }
}

#[test]
fn the_set_of_ports_is_what_judging_every_port_finds() {
    let deny = PolicyRule { order: 1, action: Action::Deny, ..allow(PeerSpec::Any, ports(150, 300)) };
    let named = ServiceSpec::Of(vec![Service::Ports { protocol: TCP, ports: PortSpec::Named("p".to_owned()) }]);
    let rules = vec![
        deny,
        allow(PeerSpec::Any, ports(100, 200)),
        allow(PeerSpec::Any, ports(201, 400)),
        allow(PeerSpec::Any, ports(65_000, 65_535)),
        allow(PeerSpec::Any, named),
    ];
    let intent = mk_intent(&[("a", role("web"), rules)]);
    let pair = Pair::of(&intent, host(2), host(1)).expect("both are there");
    let by_port: Vec<u16> = (0..=u16::MAX).filter(|port| pair.judge(tcp(*port)).allowed).collect();
    let by_set: Vec<u16> = pair.allowed_ports(TCP).iter().flat_map(|range| range.first..=range.last).collect();
    assert_eq!(by_set, by_port);
    assert_eq!(pair.allowed_ports(TCP).len(), 4);
    assert_eq!(pair.allowed_ports(protocol::UDP), []);
}

#[test]
fn a_decision_says_its_cause_in_words() {
    let intent = mk_intent(&[
        ("a", role("web"), vec![allow(of_role("db"), ports(80, 80))]),
        ("b", Selector::everything(), vec![]),
    ]);
    let words = |port| judge(&intent, host(2), host(1), tcp(port)).ingress.to_string();
    assert_eq!(words(80), "allowed by Policy/default/a ingress[0]");
    assert_eq!(words(81), "denied: no rule allows it, isolated by Policy/default/a, Policy/default/b");
    assert_eq!(Decision::Open.to_string(), "open: no policy isolates this direction");
}

#[test]
fn both_ends_must_allow() {
    let mut intent = mk_intent(&[("a", role("web"), vec![allow(PeerSpec::Any, ServiceSpec::Any)])]);
    put_policy(&mut intent, "b", Policy { subject: role("db"), isolate_egress: true, ..Policy::default() });
    let verdict = judge(&intent, host(2), host(1), tcp(1));
    assert!(!verdict.allowed && verdict.ingress.allows());
    assert_eq!(verdict.egress, Decision::Isolated(vec![key(Kind::Policy, "b")]));
}

#[test]
fn a_policy_reaches_only_hosts_of_its_own_namespace() {
    let mut intent = mk_intent(&[]);
    let policy = Policy { subject: Selector::everything(), isolate_ingress: true, ..Policy::default() };
    intent.put(Object { namespace: name("other"), name: name("a"), spec: Spec::Policy(policy) });
    assert_eq!(judge(&intent, host(2), host(1), tcp(1)).ingress, Decision::Open);
}

// Host 1 is `h1`, role web; host 2 is `h2`, role db. Each declares port `p` as 8000 + its number, and enforces.
fn mk_intent(policies: &[(&str, Selector, Vec<PolicyRule>)]) -> Intent {
    let mut intent = Intent::default();
    for (number, word) in [(1, "web"), (2, "db")] {
        let enrolled = EnrolledHost {
            id: id(number),
            namespace: name("default"),
            name: name(&format!("h{number}")),
            labels: labels(word),
            ports: vec![DeclaredPort { name: "p".to_owned(), protocol: TCP, port: 8000 + u16::from(number) }],
            addresses: vec![ip(&format!("198.51.100.{number}")), ip(&format!("2001:db8::{number}"))],
        };
        intent.hosts.insert(enrolled.id, enrolled);
        let spec = HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() };
        put(&mut intent, &format!("h{number}"), Spec::Host(spec));
    }
    for (policy, subject, rules) in policies {
        let policy_spec =
            Policy { subject: subject.clone(), isolate_ingress: true, ingress: rules.clone(), ..Policy::default() };
        put_policy(&mut intent, policy, policy_spec);
    }
    intent
}

fn put(intent: &mut Intent, object: &str, spec: Spec) {
    intent.put(Object { namespace: name("default"), name: name(object), spec });
}

fn put_policy(intent: &mut Intent, object: &str, policy: Policy) {
    put(intent, object, Spec::Policy(policy));
}

fn judge(intent: &Intent, from: End, to: End, packet: Packet) -> Verdict {
    evaluate(intent, &Flow { from, to, packet }).expect("a flow of this intent")
}

fn allow(peers: PeerSpec, services: ServiceSpec) -> PolicyRule {
    PolicyRule { order: DEFAULT_ORDER, action: Action::Allow, peers, services, local: None, log: false }
}

fn of_role(word: &str) -> PeerSpec {
    PeerSpec::Of(vec![Peer::Select { namespaces: NamespaceMatch::Own, labels: role(word) }])
}

fn ports(first: u16, last: u16) -> ServiceSpec {
    ServiceSpec::Of(vec![Service::Ports { protocol: TCP, ports: PortSpec::Range(PortRange { first, last }) }])
}

fn labels(word: &str) -> Labels {
    Labels::from([("role".to_owned(), word.to_owned())])
}

fn role(word: &str) -> Selector {
    Selector::equal_to(&labels(word))
}

fn key(kind: Kind, object: &str) -> ObjectKey {
    ObjectKey { kind, namespace: name("default"), name: name(object) }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().expect("a prefix")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn id(number: u8) -> HostId {
    format!("ho_00000000-0000-0000-0000-0000000000{number:02}").parse().expect("an id")
}

fn host(number: u8) -> End {
    End::host(id(number), ip(&format!("198.51.100.{number}")))
}

fn outside(address: &str) -> End {
    End::outside(ip(address))
}

fn tcp(port: u16) -> Packet {
    Packet::Port { protocol: TCP, port }
}
