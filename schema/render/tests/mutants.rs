//! Ten seeded faults of the renderer, each caught: by a case made for it, and by the generated worlds of the other tests.

mod support;

use holdfast_interpreter::{Artifact, Direction, Packet, Verdict};
use holdfast_model::artifact::encode;
use holdfast_model::intent::{
    DEFAULT_ORDER, DeclaredPort, EnrolledHost, Intent, NamespaceMatch, Object, Peer, PeerSpec, Policy, PolicyRule,
    PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Requirement, Selector};
use holdfast_model::policy::{Action, PortRange, protocol};
use holdfast_render::{Index, Mutant, render_all, render_host};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use support::{host_id, ip, judges, labels, naive, name, net, worlds};

#[test]
fn a_case_made_for_each_mutant_catches_it() {
    for mutant in Mutant::ALL {
        let case = mk_case(mutant);
        let host = &case.intent.hosts[&host_id(0)];
        assert_eq!(naive::verdict(&case.intent, host, case.direction, &case.packet), case.expected, "{mutant:?}");
        let judged = judges::verdict(&case.intent, host.id, case.direction, &case.packet);
        assert_eq!(judged, Some(case.expected), "{mutant:?}");
        assert_eq!(case.verdict(&Index::new(&case.intent)), case.expected, "{mutant:?}");
        assert_ne!(case.verdict(&Index::with_mutant(&case.intent, mutant)), case.expected, "{mutant:?}");
    }
}

#[test]
fn the_generated_worlds_catch_each_mutant() {
    let mut runner = TestRunner::deterministic();
    let worlds: Vec<Intent> = (0..400)
        .map(|_| worlds::intent().new_tree(&mut runner).expect("the strategy rejects nothing").current())
        .collect();
    for mutant in Mutant::ALL {
        assert!(worlds.iter().any(|intent| differs(intent, mutant)), "{mutant:?} went by unseen");
    }
}

/// Whether some packet of a world is decided otherwise than the intent says.
fn differs(intent: &Intent, mutant: Mutant) -> bool {
    let render = render_all(&Index::with_mutant(intent, mutant));
    // A seventh of the packets is enough, and seven divides neither addresses nor services.
    let packets: Vec<_> = worlds::packets().into_iter().step_by(7).collect();
    render.iter().any(|(id, body)| {
        let host = &intent.hosts[id];
        let artifact = Artifact::read(&encode(body)).expect("a mutant renders canonical bytes too");
        packets.iter().any(|(direction, packet)| {
            artifact.verdict(*direction, packet).verdict != naive::verdict(intent, host, *direction, packet)
        })
    })
}

/// One host, its policies, a packet and what is right.
struct Case {
    intent: Intent,
    direction: Direction,
    packet: Packet,
    expected: Verdict,
}

impl Case {
    fn verdict(&self, index: &Index) -> Verdict {
        let body = render_host(index, host_id(0)).expect("enrolled");
        let artifact = Artifact::read(&encode(&body)).expect("canonical");
        artifact.verdict(self.direction, &self.packet).verdict
    }
}

fn mk_case(mutant: Mutant) -> Case {
    let from_net =
        |text: &str, except: &[&str]| Peer::Cidr { cidr: net(text), except: except.iter().map(|t| net(t)).collect() };
    let ingress = |rules| vec![Policy { isolate_ingress: true, ingress: rules, ..Policy::default() }];
    let tcp = |first, last| ports(protocol::TCP, PortSpec::Range(PortRange { first, last }));
    let web = || ports(protocol::TCP, PortSpec::Named("web".to_owned()));
    let any = || PeerSpec::Any;
    let of = |peer| PeerSpec::Of(vec![peer]);
    let case =
        |policies, peer: &str, protocol, port, expected| mk_ingress(policies, packet(peer, protocol, port), expected);
    let (allowed, denied) = (Verdict::Allowed, Verdict::Denied);
    match mutant {
        Mutant::DropExcept => {
            let policies = ingress(vec![allow(of(from_net("10.0.0.0/8", &["10.1.0.0/16"])), ServiceSpec::Any)]);
            case(policies, "10.1.2.3", protocol::TCP, 80, denied)
        }
        Mutant::IgnoreFamily => {
            let policies = ingress(vec![allow(of(from_net("10.0.0.0/8", &[])), ServiceSpec::Any)]);
            case(policies, "fd00::9", protocol::TCP, 80, denied)
        }
        Mutant::IgnorePortEnd => case(ingress(vec![allow(any(), tcp(80, 90))]), "10.1.2.3", protocol::TCP, 90, allowed),
        Mutant::LeaveOpen => case(ingress(vec![]), "10.1.2.3", protocol::TCP, 80, denied),
        Mutant::LoseUdp => {
            let udp = ports(protocol::UDP, PortSpec::Range(PortRange::single(53)));
            case(ingress(vec![allow(any(), udp)]), "10.1.2.3", protocol::UDP, 53, allowed)
        }
        Mutant::MergeOrders => {
            let deny = PolicyRule { action: Action::Deny, ..allow(any(), tcp(80, 80)) };
            let first = PolicyRule { order: 10, ..allow(any(), tcp(80, 80)) };
            let policies = [ingress(vec![deny]), ingress(vec![first])].concat();
            case(policies, "10.1.2.3", protocol::TCP, 80, allowed)
        }
        // The host declares web as 80, its peer as 8080.
        Mutant::NamedPortAtWrongEnd => case(ingress(vec![allow(any(), web())]), "10.0.0.2", protocol::TCP, 80, allowed),
        Mutant::NotInNeedsKey => {
            let absent = Requirement::NotIn { key: "env".to_owned(), values: vec!["prod".to_owned()] };
            let peer = Peer::Select { namespaces: NamespaceMatch::Own, labels: Selector::new(vec![absent]) };
            case(ingress(vec![allow(of(peer), ServiceSpec::Any)]), "10.0.0.2", protocol::TCP, 80, allowed)
        }
        Mutant::PortOffByOne => case(ingress(vec![allow(any(), tcp(80, 90))]), "10.1.2.3", protocol::TCP, 91, denied),
        Mutant::SwapDirections => {
            let rule = allow(any(), ServiceSpec::Any);
            let policy = Policy { isolate_ingress: true, egress: vec![rule], ..Policy::default() };
            case(vec![policy], "10.1.2.3", protocol::TCP, 80, denied)
        }
    }
}

fn mk_ingress(policies: Vec<Policy>, packet: Packet, expected: Verdict) -> Case {
    let mut intent = Intent::default();
    for (number, port) in [(0, 80), (1, 8080)] {
        let host = EnrolledHost {
            id: host_id(number),
            namespace: name("default"),
            name: name(&format!("h{number}")),
            labels: labels(&[("app", if number == 0 { "target" } else { "peer" })]),
            ports: vec![DeclaredPort { name: "web".to_owned(), protocol: protocol::TCP, port }],
            addresses: vec![ip(&format!("10.0.0.{}", number + 1)), ip(&format!("fd00::{}", number + 1))],
        };
        intent.hosts.insert(host.id, host);
    }
    for (number, policy) in policies.into_iter().enumerate() {
        let subject = Selector::equal_to(&labels(&[("app", "target")]));
        let spec = Spec::Policy(Policy { subject, ..policy });
        intent.put(Object { namespace: name("default"), name: name(&format!("p{number}")), spec });
    }
    Case { intent, direction: Direction::Ingress, packet, expected }
}

fn allow(peers: PeerSpec, services: ServiceSpec) -> PolicyRule {
    PolicyRule { order: DEFAULT_ORDER, action: Action::Allow, peers, services, local: None, log: false }
}

fn ports(protocol: u8, ports: PortSpec) -> ServiceSpec {
    ServiceSpec::Of(vec![Service::Ports { protocol, ports }])
}

fn packet(peer: &str, protocol: u8, port: u16) -> Packet {
    let peer = ip(peer);
    let local = if peer.is_ipv4() { ip("10.0.0.1") } else { ip("fd00::1") };
    Packet { local, peer, protocol, port: Some(port), icmp: None }
}
