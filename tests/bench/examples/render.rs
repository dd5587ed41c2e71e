//! How long rendering takes: 10,000 hosts under 3,000 rules between labels (6 rules and 120 peers a host), one edit of it, and large sets.
//!
//! `cargo run --release -p holdfast-bench --example render` prints medians.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use holdfast_model::artifact::encode;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, EnrolledHost, Intent, NamespaceMatch, Object, Peer, PeerSpec, Policy, PolicyRule,
    PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, PortRange, protocol};
use holdfast_render::{Edit, Index, render_all, render_host, render_hosts};
use ipnet::{IpNet, Ipv4Net};

const HOSTS: u32 = 10_000;
const APPS: u32 = 500;
const RULES_PER_APP: u32 = 6;

fn main() {
    let intent = fleet();
    report("index of the fleet", 5, || Index::new(&intent));
    let mut index = Index::new(&intent);
    report("full render, bodies shared by role", 5, || render_all(&index));
    report("full render, digest and bytes of every body", 5, || {
        let render = render_all(&index);
        // A body that hosts share is digested and encoded once, as the store would.
        let unique: BTreeSet<_> = render.values().map(std::sync::Arc::as_ptr).collect();
        let mut left = unique;
        let mut bytes = 0;
        for body in render.values().filter(|body| left.remove(&std::sync::Arc::as_ptr(body))) {
            black_box(body.digest());
            bytes += encode(body).len();
        }
        (render, bytes)
    });
    report("every host rendered alone, digest and bytes", 3, || {
        let bodies = index.hosts().filter_map(|host| render_host(&index, host));
        bodies.map(|body| (body.digest(), encode(&body).len())).collect::<Vec<_>>()
    });
    let mut flip = false;
    report("one host relabelled, affected rendered", 101, || {
        flip = !flip;
        let affected = index.apply(Edit::PutHost(host(0, if flip { APPS - 1 } else { 0 })));
        render_hosts(&index, affected.hosts)
    });
    let mut port = 1000;
    report("one rule's port changed, affected rendered", 101, || {
        port += 1;
        let affected = index.apply(Edit::PutObject(policy(7, 0, port)));
        render_hosts(&index, affected.hosts)
    });
    index.apply(Edit::PutObject(open_to_all()));
    let mut address = 0;
    report("one address of a 10,000-member peer set changed", 101, || {
        address += 1;
        let mut moved = host(1, 1);
        moved.addresses = vec![IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + address))];
        let affected = index.apply(Edit::PutHost(moved));
        render_hosts(&index, affected.hosts.into_iter().take(1))
    });
    let mut extra = 0;
    index.apply(Edit::PutObject(group(0)));
    index.apply(Edit::PutObject(from_group()));
    report("one entry more in an address group of 50,000", 21, || {
        extra += 1;
        let affected = index.apply(Edit::PutObject(group(extra)));
        render_hosts(&index, affected.hosts)
    });
}

fn report<T>(what: &str, times: usize, mut run: impl FnMut() -> T) {
    let mut spent: Vec<Duration> = (0..times)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed()
        })
        .collect();
    spent.sort_unstable();
    println!("{what:55} {:>12.3?}", spent[times / 2]);
}

fn fleet() -> Intent {
    let mut intent = Intent::default();
    for number in 0..HOSTS {
        let host = host(number, number % APPS);
        intent.hosts.insert(host.id, host);
    }
    for app in 0..APPS {
        (0..RULES_PER_APP).for_each(|rule| intent.put(policy(app, rule, 8000)));
    }
    intent
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

fn host(number: u32, app: u32) -> EnrolledHost {
    EnrolledHost {
        id: format!("ho_00000000-0000-0000-0000-{number:012x}").parse::<HostId>().expect("an id"),
        namespace: Name::default_namespace(),
        name: name(&format!("host-{number}")),
        labels: labels(app),
        ports: vec![],
        // Two apart, so that no two join into one interval.
        addresses: vec![IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + 2 * number))],
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

fn policy(subject: u32, rule: u32, port: u16) -> Object {
    let peer = Peer::Select { namespaces: NamespaceMatch::Own, labels: app((subject * 7 + rule * 31) % APPS) };
    let ingress = vec![allow(PeerSpec::Of(vec![peer]), port)];
    let policy = Policy { subject: app(subject), isolate_ingress: true, ingress, ..Policy::default() };
    object(&format!("app-{subject}-{rule}"), policy)
}

/// One app that admits every host.
fn open_to_all() -> Object {
    let peer = Peer::Select { namespaces: NamespaceMatch::Own, labels: Selector::everything() };
    let ingress = vec![allow(PeerSpec::Of(vec![peer]), 9)];
    object("open", Policy { subject: app(3), isolate_ingress: true, ingress, ..Policy::default() })
}

fn group(extra: u32) -> Object {
    let entries = (0..50_000).map(|n| 0x1400_0000 + 512 * n).chain([0x3000_0000 + extra * 512]);
    let net = |first| IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(first), 24).expect("at most 32"));
    let spec = Spec::AddressGroup(AddressGroupSpec { cidrs: entries.map(net).collect() });
    Object { namespace: Name::default_namespace(), name: name("list"), spec }
}

fn from_group() -> Object {
    let ingress = vec![allow(PeerSpec::Of(vec![Peer::Group(name("list"))]), 10)];
    object("listed", Policy { subject: app(4), isolate_ingress: true, ingress, ..Policy::default() })
}
