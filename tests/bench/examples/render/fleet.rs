//! A fleet: hosts of apps, 20 each, and 6 rules an app, each of which admits another app; so 6 rules and 120 peers a host.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, EnrolledHost, Intent, NamespaceMatch, Object, Peer, PeerSpec, Policy, PolicyRule,
    PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, PortRange, protocol};
use ipnet::{IpNet, Ipv4Net};

/// How many hosts an app has.
pub(crate) const HOSTS_PER_APP: u32 = 20;
/// How many rules an app has, each admitting one app.
pub(crate) const RULES_PER_APP: u32 = 6;

/// Everything that is authored and enrolled.
pub(crate) fn intent(hosts: u32) -> Intent {
    let mut intent = Intent::default();
    for number in 0..hosts {
        let host = host(number, number % apps(hosts), hosts);
        intent.hosts.insert(host.id, host);
    }
    for app in 0..apps(hosts) {
        (0..RULES_PER_APP).for_each(|rule| intent.put(policy(app, rule, 8000, hosts)));
    }
    intent
}

/// How many apps so many hosts are of.
pub(crate) const fn apps(hosts: u32) -> u32 {
    hosts / HOSTS_PER_APP
}

/// Whom a rule of an app admits.
pub(crate) const fn admitted(app: u32, rule: u32, hosts: u32) -> u32 {
    (app * 7 + rule * 31) % apps(hosts)
}

/// The address of a host: two apart, so that no two join into one interval.
pub(crate) const fn address(number: u32) -> u32 {
    0x0a00_0000 + 2 * number
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn app(number: u32) -> Selector {
    Selector::equal_to(&labels(number))
}

fn labels(app: u32) -> Labels {
    [("app".to_owned(), format!("app-{app}"))].into_iter().collect()
}

/// A host of an app.
pub(crate) fn host(number: u32, app: u32, hosts: u32) -> EnrolledHost {
    assert!(app < apps(hosts), "there is such an app");
    EnrolledHost {
        id: format!("ho_00000000-0000-0000-0000-{number:012x}").parse::<HostId>().expect("an id"),
        namespace: Name::default_namespace(),
        name: name(&format!("host-{number}")),
        labels: labels(app),
        ports: vec![],
        addresses: vec![IpAddr::V4(Ipv4Addr::from_bits(address(number)))],
    }
}

fn allow(peers: PeerSpec, port: u16) -> PolicyRule {
    let services = ServiceSpec::Of(vec![Service::Ports {
        protocol: protocol::TCP,
        ports: PortSpec::Range(PortRange::single(port)),
    }]);
    PolicyRule { order: DEFAULT_ORDER, action: Action::Allow, peers, services, local: None, log: false }
}

fn object(name_of: &str, policy: Policy) -> Object {
    Object { namespace: Name::default_namespace(), name: name(name_of), spec: Spec::Policy(policy) }
}

/// One rule of an app.
pub(crate) fn policy(subject: u32, rule: u32, port: u16, hosts: u32) -> Object {
    let peer = Peer::Select { namespaces: NamespaceMatch::Own, labels: app(admitted(subject, rule, hosts)) };
    let ingress = vec![allow(PeerSpec::Of(vec![peer]), port)];
    let policy = Policy { subject: app(subject), isolate_ingress: true, ingress, ..Policy::default() };
    object(&format!("app-{subject}-{rule}"), policy)
}

/// One app that admits every host.
pub(crate) fn open_to_all() -> Object {
    let peer = Peer::Select { namespaces: NamespaceMatch::Own, labels: Selector::everything() };
    let ingress = vec![allow(PeerSpec::Of(vec![peer]), 9)];
    object("open", Policy { subject: app(3), isolate_ingress: true, ingress, ..Policy::default() })
}

/// A list of 50,000 networks and one more.
pub(crate) fn group(extra: u32) -> Object {
    let entries = (0..50_000).map(|n| 0x1400_0000 + 512 * n).chain([0x3000_0000 + extra * 512]);
    let net = |first| IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(first), 24).expect("at most 32"));
    let spec = Spec::AddressGroup(AddressGroupSpec { cidrs: entries.map(net).collect() });
    Object { namespace: Name::default_namespace(), name: name("list"), spec }
}

/// One app that admits them.
pub(crate) fn from_group() -> Object {
    let ingress = vec![allow(PeerSpec::Of(vec![Peer::Group(name("list"))]), 10)];
    object("listed", Policy { subject: app(4), isolate_ingress: true, ingress, ..Policy::default() })
}
