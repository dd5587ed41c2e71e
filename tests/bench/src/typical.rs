//! The policies that benchmarks measure with: the 60 rules that every floor of the comparison has.

use holdfast_model::address::Interval;
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};

/// How many rules the typical policy has.
pub const RULES: u16 = 60;
/// In how many sets their peers are.
pub const SETS: u16 = 12;
/// How many peers each set has.
pub const PEERS: u32 = 20;

/// The address of a peer. No two meet, so that each is an interval of its own; `generation` tells one policy's peers from another's.
#[must_use]
pub const fn peer(generation: u32, set: u16, peer: u32) -> u32 {
    // A set has the room of 2^17 peers: generations are 2^26 apart, sets 2^19, peers 4.
    0x0a00_0000_u32.wrapping_add(generation << 26).wrapping_add((set as u32) << 19).wrapping_add(peer << 2)
}

/// An address between two peers that meets neither.
#[must_use]
pub const fn between(generation: u32, set: u16, before: u32) -> u32 {
    peer(generation, set, before) + 2
}

/// A policy of [`RULES`] rules over so many sets of [`PEERS`] peers. Policies of two generations share no rule, no set and no peer.
#[must_use]
pub fn policy(generation: u8, sets: u16) -> Body {
    let rules = (0..RULES).map(|n| Rule {
        key: RuleKey::from_bytes(key(generation, n)),
        order: 1_000,
        action: Action::Allow,
        statement: Statement::ports(protocol::TCP, vec![PortRange::single(1_000 + n)]),
        peers: Peers::Set(SetKey::from_bytes(key(generation, n % sets))),
        local: None,
        log: false,
    });
    let ingress = Chain { isolated: true, rules: rules.collect() };
    let sets = (0..sets).map(|n| set(generation, n, u32::from(generation), 0..PEERS));
    Body { mode: Mode::Enforced, ingress, egress: Chain::default(), sets: sets.collect() }.canonical()
}

/// A policy of one rule over one set with these peers of a generation.
#[must_use]
pub fn one_set(generation: u32, peers: std::ops::Range<u32>) -> Body {
    let mut body = Body { mode: Mode::Enforced, ..policy(0, 1) };
    body.ingress.rules.truncate(1);
    body.sets = vec![set(0, 0, generation, peers)];
    body.canonical()
}

fn set(of: u8, number: u16, generation: u32, peers: std::ops::Range<u32>) -> Set {
    let member = |n| {
        let address = peer(generation, number, n);
        Interval::new(address, address).expect("one address is an interval")
    };
    Set {
        key: SetKey::from_bytes(key(of, number)),
        v4: IntervalSet::covering(peers.map(member).collect()),
        v6: IntervalSet::empty(),
    }
}

/// Keys are digests: their bytes are spread, so that no encoding finds a pattern in them that real ones do not have.
fn key(generation: u8, number: u16) -> [u8; 16] {
    let mut key = [0; 16];
    let name = [generation, number.to_be_bytes()[0], number.to_be_bytes()[1]];
    let digest = holdfast_model::digest::Digest::of(&name);
    key.copy_from_slice(&digest.as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_policy_is_what_the_floors_have() {
        let body = policy(0, SETS);
        body.check().unwrap();
        assert_eq!((body.ingress.rules.len(), body.sets.len()), (60, 12));
        assert!(body.sets.iter().all(|set| set.v4.len() == 20));
        let other = policy(1, SETS);
        assert!(other.ingress.rules.iter().all(|rule| body.ingress.rules.iter().all(|old| old.key != rule.key)));
        let large = one_set(1, 0..100_000);
        large.check().unwrap();
        assert_eq!(large.sets[0].v4.len(), 100_000);
    }
}
