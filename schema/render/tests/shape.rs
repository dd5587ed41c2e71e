//! The shape of bodies: which authored rules are one rule, what keeps its key, what becomes of names, families and protocols.

mod support;

use holdfast_model::address::{Family, Interval};
use holdfast_model::intent::{
    AddressGroupSpec, DeclaredPort, EndpointSpec, EnrolledHost, HostSpec, Intent, NamespaceMatch, Object, Peer,
    PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::Selector;
use holdfast_model::policy::delta::{Change, diff};
use holdfast_model::policy::{Action, Body, IcmpKind, Mode, Peers, PortRange, Rule, Set, Statement, protocol};
use holdfast_render::{Edit, Index, render_host};
use support::{host_id, ip, labels, name, net};

#[test]
fn a_host_that_nothing_selects_is_open_in_visibility_with_no_rules() {
    let body = render(&mk_intent(Policy { subject: app("nobody"), isolate_ingress: true, ..Policy::default() }));
    assert_eq!(body, Body::default());
}

#[test]
fn rules_that_differ_in_peers_only_are_one_rule_whatever_their_order() {
    let first = || allow(vec![cidr("10.1.0.0/16")], tcp(80));
    let second = || allow(vec![cidr("10.2.0.0/16"), cidr("10.1.3.0/24")], tcp(80));
    let other = || allow(vec![cidr("10.3.0.0/16")], tcp(81));
    let body = render(&mk_intent(ingress(vec![first(), other(), second()])));
    assert_eq!(body.ingress.rules.len(), 2);
    let union = set_for(&body, &body.ingress.rules, &Statement::ports(protocol::TCP, vec![PortRange::single(80)]));
    assert_eq!(union.v4.to_vec(), [interval("10.1.0.0", "10.2.255.255")]);
    assert_eq!(body, render(&mk_intent(ingress(vec![second(), first(), other()]))));
}

#[test]
fn a_rule_for_several_protocols_is_one_rule_each_over_one_set() {
    let icmp =
        Service::Icmp { v4: vec![IcmpKind { kind: 8, code: None }, IcmpKind { kind: 8, code: Some(0) }], v6: vec![] };
    let services = vec![
        port(protocol::TCP, 80, 90),
        port(protocol::TCP, 91, 95),
        port(protocol::UDP, 53, 53),
        Service::Protocol(47),
        icmp,
    ];
    let body = render(&mk_intent(ingress(vec![allow(vec![cidr("10.0.0.0/8")], ServiceSpec::Of(services))])));
    let mut statements: Vec<Statement> = body.ingress.rules.iter().map(|rule| rule.statement.clone()).collect();
    statements.sort();
    let wanted = [
        Statement::Protocol(47),
        Statement::ports(protocol::TCP, vec![PortRange { first: 80, last: 95 }]),
        Statement::ports(protocol::UDP, vec![PortRange::single(53)]),
        Statement::Icmp { family: Family::V4, kinds: vec![IcmpKind { kind: 8, code: None }] },
    ];
    assert_eq!(statements, wanted);
    assert_eq!(body.sets.len(), 1);
}

#[test]
fn icmp_without_kinds_is_icmp_of_both_families() {
    let all = ServiceSpec::Of(vec![Service::Icmp { v4: vec![], v6: vec![] }]);
    let body = render(&mk_intent(ingress(vec![PolicyRule { peers: PeerSpec::Any, ..allow(vec![], all) }])));
    let mut statements: Vec<&Statement> = body.ingress.rules.iter().map(|rule| &rule.statement).collect();
    statements.sort();
    assert_eq!(statements, [&Statement::Protocol(protocol::ICMP), &Statement::Protocol(protocol::ICMPV6)]);
    assert!(body.sets.is_empty(), "anybody needs no set");
}

#[test]
fn a_rule_that_means_nobody_yet_stays_and_its_first_peer_is_an_edit() {
    let mut index = Index::new(&mk_intent(ingress(vec![allow(vec![select("late")], tcp(80))])));
    let before = render_host(&index, host_id(0)).expect("enrolled");
    assert_eq!(before.ingress.rules.len(), 1);
    let spec = EndpointSpec { labels: labels(&[("app", "late")]), addresses: vec![ip("192.0.2.1")], ports: vec![] };
    index.apply(put("appliance", Spec::Endpoint(spec)));
    let after = render_host(&index, host_id(0)).expect("enrolled");
    assert!(matches!(&diff(&before, &after).changes[..], [Change::EditSet { .. }]));
}

#[test]
fn named_ports_are_the_hosts_own_inward_and_one_set_a_port_outward() {
    let named =
        || ServiceSpec::Of(vec![Service::Ports { protocol: protocol::TCP, ports: PortSpec::Named("web".to_owned()) }]);
    let rule = || allow(vec![select("peer"), cidr("203.0.113.0/24")], named());
    let policy = Policy { ingress: vec![rule()], egress: vec![rule()], ..ingress(vec![]) };
    let body = render(&mk_intent(policy));

    let [inward] = &body.ingress.rules[..] else { panic!("{:?}", body.ingress) };
    assert_eq!(inward.statement, Statement::ports(protocol::TCP, vec![PortRange::single(8000)]));

    // Hosts 1 and 2 declare 8001 and 8002; the prefix has no known host, so that nobody there declares a name.
    let outward: Vec<(&Statement, Vec<Interval<u32>>)> =
        body.egress.rules.iter().map(|rule| (&rule.statement, set_of(&body, rule).v4.to_vec())).collect();
    for number in [1, 2] {
        let statement = Statement::ports(protocol::TCP, vec![PortRange::single(8000 + number)]);
        let address = format!("10.0.0.{}", number + 1);
        assert!(outward.contains(&(&statement, vec![interval(&address, &address)])), "{outward:?}");
    }
    assert_eq!(outward.len(), 2);
}

#[test]
fn a_prefix_that_holds_a_known_host_means_the_names_that_it_declares() {
    let named =
        ServiceSpec::Of(vec![Service::Ports { protocol: protocol::TCP, ports: PortSpec::Named("web".to_owned()) }]);
    let except = Peer::Cidr { cidr: net("10.0.0.0/24"), except: vec![net("10.0.0.3/32")] };
    let body = render(&mk_intent(Policy { egress: vec![allow(vec![except], named)], ..ingress(vec![]) }));
    let ports: Vec<&Statement> = body.egress.rules.iter().map(|rule| &rule.statement).collect();
    let own = Statement::ports(protocol::TCP, vec![PortRange::single(8000)]);
    let other = Statement::ports(protocol::TCP, vec![PortRange::single(8001)]);
    assert_eq!(ports.len(), 2);
    assert!(ports.contains(&&own) && ports.contains(&&other), "{ports:?}");
}

#[test]
fn a_host_object_overrides_labels_by_key_ports_as_a_whole_and_the_mode() {
    let mut intent = mk_intent(ingress(vec![allow(vec![cidr("10.0.0.0/8")], tcp(80))]));
    let spec = HostSpec { labels: labels(&[("app", "other")]), ports: Some(vec![]), mode: Some(Mode::Enforced) };
    intent.put(Object { namespace: name("default"), name: name("h0"), spec: Spec::Host(spec) });
    assert_eq!(render(&intent), Body { mode: Mode::Enforced, ..Body::default() });
}

#[test]
fn own_addresses_of_a_rule_are_a_set_of_its_own_and_part_of_its_identity() {
    let local = |text: &str| PolicyRule { local: Some(vec![net(text)]), ..allow(vec![cidr("10.0.0.0/8")], tcp(80)) };
    let body = render(&mk_intent(ingress(vec![local("10.0.0.1/32")])));
    let [rule] = &body.ingress.rules[..] else { panic!("{:?}", body.ingress) };
    let set = body.set(rule.local.expect("authored")).expect("the body is canonical");
    assert_eq!(set.v4.to_vec(), [interval("10.0.0.1", "10.0.0.1")]);
    let other = render(&mk_intent(ingress(vec![local("10.0.0.2/32")])));
    assert_ne!(other.ingress.rules[0].key, rule.key);
}

#[test]
fn a_large_address_group_with_overlaps_and_repetitions_is_one_canonical_set_shared_by_its_rules() {
    let nested = (0..50_000_u32).map(|n| 0x0b00_0000 + (n / 2) * 512).map(std::net::Ipv4Addr::from_bits);
    let cidrs = nested.enumerate().map(|(n, first)| net(&format!("{first}/{}", 23 + n % 2 * 2))).collect();
    let group = Spec::AddressGroup(AddressGroupSpec { cidrs });
    let rules = vec![allow(vec![Peer::Group(name("list"))], tcp(80)), allow(vec![Peer::Group(name("list"))], tcp(81))];
    let mut index = Index::new(&mk_intent(ingress(rules)));
    index.apply(put("list", group));
    let body = render_host(&index, host_id(0)).expect("enrolled");
    let [first, second] = &body.sets[..] else { panic!("{} sets", body.sets.len()) };
    // 25,000 prefixes of 512 addresses, side by side.
    assert_eq!(first.v4.to_vec(), [interval("11.0.0.0", "11.195.79.255")]);
    assert_eq!(first.v4.digest(), second.v4.digest());
}

#[test]
fn a_policy_of_another_namespace_governs_nobody_here_and_its_groups_are_its_own() {
    let mut intent = mk_intent(Policy::default());
    intent.objects.clear();
    let spec = Spec::Policy(ingress(vec![allow(vec![Peer::Group(name("list"))], tcp(80))]));
    intent.put(Object { namespace: name("prod"), name: name("p"), spec: spec.clone() });
    assert_eq!(render(&intent), Body::default());
    intent.put(Object { namespace: name("default"), name: name("p"), spec });
    let cidrs = vec![net("10.0.0.0/8")];
    let group = Spec::AddressGroup(AddressGroupSpec { cidrs });
    intent.put(Object { namespace: name("prod"), name: name("list"), spec: group });
    let body = render(&intent);
    assert!(body.ingress.isolated);
    assert!(set_of(&body, &body.ingress.rules[0]).v4.is_empty());
}

#[test]
fn a_fixed_intent_has_the_digest_that_it_always_had() {
    // A build that derives keys or bytes otherwise gives every host of every fleet a new version at its start: never by accident.
    let kinds = vec![IcmpKind { kind: 8, code: None }];
    let named = Service::Ports { protocol: protocol::TCP, ports: PortSpec::Named("web".to_owned()) };
    let services =
        vec![port(protocol::UDP, 53, 60), named, Service::Protocol(47), Service::Icmp { v4: kinds, v6: vec![] }];
    let rule = PolicyRule {
        order: -3,
        action: Action::Deny,
        local: Some(vec![net("10.0.0.0/24")]),
        log: true,
        ..allow(vec![select("peer"), cidr("2001:db8::/32")], ServiceSpec::Of(services))
    };
    let any = PolicyRule { peers: PeerSpec::Any, ..allow(vec![], ServiceSpec::Any) };
    let policy = Policy { egress: vec![rule.clone()], isolate_egress: true, ..ingress(vec![rule, any]) };
    let digest = render(&mk_intent(policy)).digest().to_string();
    assert_eq!(digest, "35b1d5f69751511baa11e6a60fd92a2d16a69bc912659e00fcc3b1860ddac7ad");
}

fn render(intent: &Intent) -> Body {
    render_host(&Index::new(intent), host_id(0)).expect("enrolled")
}

/// Host 0 is the target, hosts 1 and 2 its peers; each declares `web` as 8000 and its number.
fn mk_intent(policy: Policy) -> Intent {
    let mut intent = Intent::default();
    for number in 0..3 {
        let host = EnrolledHost {
            id: host_id(number),
            namespace: name("default"),
            name: name(&format!("h{number}")),
            labels: labels(&[("app", if number == 0 { "target" } else { "peer" })]),
            ports: vec![DeclaredPort {
                name: "web".to_owned(),
                protocol: protocol::TCP,
                port: 8000 + u16::try_from(number).expect("small"),
            }],
            addresses: vec![ip(&format!("10.0.0.{}", number + 1)), ip(&format!("fd00::{}", number + 1))],
        };
        intent.hosts.insert(host.id, host);
    }
    intent.put(Object { namespace: name("default"), name: name("p"), spec: Spec::Policy(policy) });
    intent
}

fn put(called: &str, spec: Spec) -> Edit {
    Edit::PutObject(Object { namespace: name("default"), name: name(called), spec })
}

fn app(value: &str) -> Selector {
    Selector::equal_to(&labels(&[("app", value)]))
}

fn select(value: &str) -> Peer {
    Peer::Select { namespaces: NamespaceMatch::Own, labels: app(value) }
}

fn cidr(text: &str) -> Peer {
    Peer::Cidr { cidr: net(text), except: vec![] }
}

fn ingress(rules: Vec<PolicyRule>) -> Policy {
    Policy { subject: app("target"), isolate_ingress: true, ingress: rules, ..Policy::default() }
}

fn allow(peers: Vec<Peer>, services: ServiceSpec) -> PolicyRule {
    PolicyRule { order: 1000, action: Action::Allow, peers: PeerSpec::Of(peers), services, local: None, log: false }
}

fn port(protocol: u8, first: u16, last: u16) -> Service {
    Service::Ports { protocol, ports: PortSpec::Range(PortRange { first, last }) }
}

fn tcp(number: u16) -> ServiceSpec {
    ServiceSpec::Of(vec![port(protocol::TCP, number, number)])
}

fn interval(first: &str, last: &str) -> Interval<u32> {
    let number = |text: &str| text.parse::<std::net::Ipv4Addr>().expect("an IPv4 address").to_bits();
    Interval::new(number(first), number(last)).expect("ordered")
}

fn set_of<'a>(body: &'a Body, rule: &Rule) -> &'a Set {
    match rule.peers {
        Peers::Set(key) => body.set(key).expect("the body is canonical"),
        Peers::Any => panic!("anybody"),
    }
}

fn set_for<'a>(body: &'a Body, rules: &[Rule], statement: &Statement) -> &'a Set {
    set_of(body, rules.iter().find(|rule| rule.statement == *statement).expect("there is such a rule"))
}
