//! Bodies in few words.

use holdfast_agent::plan::Kept;
use holdfast_model::address::{Either, Family, interval_of};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};

/// A key whose last byte is `n`.
pub(crate) fn set_key(n: u8) -> SetKey {
    SetKey::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

pub(crate) fn rule_key(n: u16) -> RuleKey {
    let [high, low] = n.to_be_bytes();
    RuleKey::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
}

/// A set of prefixes and addresses of both families.
pub(crate) fn set(n: u8, prefixes: &[&str]) -> Set {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        let address = |text: &str| text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
        match interval_of(prefix.parse().or_else(|_| address(prefix)).expect("a prefix or an address")) {
            Either::V4(interval) => v4.push(interval),
            Either::V6(interval) => v6.push(interval),
        }
    }
    Set { key: set_key(n), v4: IntervalSet::covering(v4), v6: IntervalSet::covering(v6) }
}

pub(crate) fn allow(n: u16, statement: Statement, peers: Peers) -> Rule {
    Rule { key: rule_key(n), order: 1000, action: Action::Allow, statement, peers, local: None, log: false }
}

pub(crate) fn deny(n: u16, statement: Statement, peers: Peers) -> Rule {
    Rule { action: Action::Deny, ..allow(n, statement, peers) }
}

pub(crate) fn tcp(ranges: &[(u16, u16)]) -> Statement {
    ports(protocol::TCP, ranges)
}

pub(crate) fn udp(ranges: &[(u16, u16)]) -> Statement {
    ports(protocol::UDP, ranges)
}

pub(crate) fn ports(protocol: u8, ranges: &[(u16, u16)]) -> Statement {
    Statement::ports(protocol, ranges.iter().map(|(first, last)| PortRange { first: *first, last: *last }).collect())
}

/// One of everything: two sets, both directions, ports, ranges, lists, ICMP of both families, a protocol, denies, a log.
pub(crate) fn rich(mode: Mode) -> Body {
    let peers = |n| Peers::Set(set_key(n));
    let echo = |family, kind| Statement::Icmp { family, kinds: vec![IcmpKind { kind, code: Some(0) }] };
    let mut logged = deny(6, udp(&[(514, 514)]), Peers::Any);
    logged.log = true;
    let mut local = allow(8, tcp(&[(9000, 9000)]), peers(1));
    local.local = Some(set_key(3));
    Body {
        mode,
        ingress: Chain {
            isolated: true,
            rules: vec![
                allow(1, tcp(&[(80, 80), (8000, 8099)]), peers(1)),
                allow(2, udp(&[(53, 53)]), Peers::Any),
                allow(3, echo(Family::V4, 8), peers(1)),
                allow(4, echo(Family::V6, 128), peers(1)),
                deny(5, Statement::Any, peers(2)),
                logged,
                local,
            ],
        },
        egress: Chain {
            isolated: true,
            rules: vec![
                allow(1, tcp(&[(5432, 5432)]), peers(1)),
                allow(2, Statement::Protocol(47), peers(1)),
                allow(3, Statement::Any, peers(3)),
            ],
        },
        sets: vec![
            set(1, &["10.0.0.0/24", "10.0.2.0/24", "192.0.2.7/32", "2001:db8::/64"]),
            set(2, &["10.0.0.13/32", "255.255.255.0/24"]),
            set(3, &["10.77.0.1/32", "fd77::1/128"]),
        ],
    }
    .canonical()
}

/// Something of everything that the agent keeps open.
pub(crate) fn kept() -> Kept {
    Kept {
        is_unguarded: false,
        gateways: vec![
            "192.0.2.10:7443".parse().expect("an address"),
            "[2001:db8::10]:7443".parse().expect("an address"),
        ],
        resolvers: vec!["192.0.2.53".parse().expect("an address")],
        failsafe_ports: vec![PortRange::single(22)],
        uplinks: vec!["eth0".to_owned()],
    }
}
