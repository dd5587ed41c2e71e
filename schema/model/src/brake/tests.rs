//! What is braked and what is not.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::address::Interval;
use crate::interval_set::IntervalSet;
use crate::policy::{Chain, PortRange, RuleKey, Set, SetKey, protocol};

fn mk_host(n: usize) -> HostId {
    HostId::new(Uuid::from_u128(n as u128))
}

/// A rule of each (name, port), and a deny of the rest if it is isolated.
fn mk_body(rules: &[(u8, u16)], isolated: bool, mode: Mode) -> Body {
    let rules = rules.iter().map(|(name, port)| Rule {
        key: RuleKey::from_bytes([*name; 16]),
        order: 1000,
        action: Action::Allow,
        statement: Statement::ports(protocol::TCP, vec![PortRange::single(*port)]),
        peers: Peers::Any,
        local: None,
        log: false,
    });
    Body { mode, ingress: Chain { isolated, rules: rules.collect() }, ..Body::default() }.canonical()
}

fn judged(limits: BrakeLimits, pairs: &[(Body, Body)], is_said: bool, others: bool) -> Option<Braked> {
    let mut toll = Toll::new(limits);
    for (n, (before, after)) in pairs.iter().enumerate() {
        toll.add(mk_host(n), Loss::between(before, after), Leaves::between(before.mode, after.mode, is_said));
    }
    toll.judged(others)
}

const FEW: BrakeLimits = BrakeLimits { hosts_max: 2, share_percent: 50 };
const FIVE: [(u8, u16); 5] = [(1, 80), (2, 443), (3, 53), (4, 22), (5, 25)];

#[test]
fn more_than_half_of_more_hosts_than_the_limit_is_braked_and_half_is_not() {
    let before = mk_body(&FIVE, true, Mode::Enforced);
    let half = (before.clone(), mk_body(&FIVE[..2], true, Mode::Enforced));
    let more = (before.clone(), mk_body(&FIVE[..1], true, Mode::Enforced));
    let braked = |pair: &(Body, Body), hosts: usize| judged(FEW, &vec![pair.clone(); hosts], true, true);
    assert_eq!(braked(&half, 9), None, "three of six are half");
    assert_eq!(braked(&more, 2), None, "the limit is no excess");
    let three = braked(&more, 3).expect("three hosts lose four of six");
    assert_eq!((three.losing.len(), three.emptied.len(), three.leaving.len()), (3, 0, 0));
}

#[test]
fn nothing_of_nothing_is_no_loss_and_a_first_policy_takes_nothing_away() {
    assert_eq!(judged(FEW, &[], false, false), None, "an empty fleet");
    let (none, some) = (Body::default(), mk_body(&FIVE, true, Mode::Enforced));
    assert_eq!(judged(FEW, &vec![(none, some); 9], false, false), None);
}

#[test]
fn hosts_that_hold_little_have_no_share_but_of_all_of_it_and_all_of_them_emptied_is_everything() {
    let body = |rules| mk_body(rules, true, Mode::Visibility);
    let (little, part) = ((body(&FIVE[..1]), Body::default()), (body(&FIVE[..1]), body(&[])));
    assert_eq!(judged(FEW, &vec![part; 9], false, true), None, "one of two is no share");
    let lost =
        judged(FEW, &vec![little.clone(); 9], false, true).expect("each loses everything, whoever holds something");
    assert_eq!((lost.losing.len(), lost.emptied.len()), (9, 0));
    assert_eq!(judged(FEW, &vec![little.clone(); 2], false, true), None, "the limit is no excess");
    let all = judged(FEW, &vec![little.clone(); 2], false, false).expect("nobody holds anything");
    assert_eq!((all.emptied.len(), all.losing.len()), (2, 0));
    assert_eq!(judged(FEW, &[little], false, false), None, "one host is no fleet");
}

#[test]
fn one_host_that_leaves_enforcement_unsaid_is_braked_and_a_few_of_which_it_is_said_are_not() {
    let pair = |after| (mk_body(&FIVE, true, Mode::Enforced), mk_body(&FIVE, true, after));
    for after in [Mode::Visibility, Mode::Simulation] {
        let silent = judged(FEW, &[pair(after)], false, true).expect("nobody said it");
        assert_eq!((silent.leaving, silent.silent), (vec![mk_host(0)], 1));
        assert_eq!(judged(FEW, &vec![pair(after); 2], true, true), None);
        assert_eq!(judged(FEW, &vec![pair(after); 3], true, true).expect("three").silent, 0);
    }
    assert_eq!(judged(FEW, &vec![pair(Mode::Enforced); 9], false, true), None);
}

#[test]
fn a_rule_that_matches_nobody_any_more_is_gone() {
    let with = |v4| {
        let (one, key) = (mk_body(&FIVE, false, Mode::Enforced), SetKey::from_bytes([9; 16]));
        let mut body = Body { sets: vec![Set { key, v4, v6: IntervalSet::empty() }], ..one };
        body.ingress.rules.iter_mut().for_each(|rule| rule.peers = Peers::Set(key));
        body
    };
    let somebody = with(IntervalSet::covering(vec![Interval::new(1_u32, 2).expect("ascending")]));
    assert_eq!(Loss::between(&somebody, &with(IntervalSet::empty())), Loss { before: 5, lost: 5, after: 0 });
    let others = with(IntervalSet::covering(vec![Interval::new(7_u32, 9).expect("ascending")]));
    assert_eq!(Loss::between(&somebody, &others).lost, 0, "other peers are no loss");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn names_do_not_count_and_what_is_added_takes_nothing_away(
        ports in prop::collection::btree_set(1_u16..40, 0..9), more in prop::collection::btree_set(40_u16..80, 0..9),
        shift in 1_u8..90,
    ) {
        let named = |ports: &[u16], shift: u8| -> Vec<(u8, u16)> {
            ports.iter().enumerate().map(|(n, port)| (u8::try_from(n).expect("few") + shift, *port)).collect()
        };
        let ports: Vec<u16> = ports.into_iter().collect();
        let all: Vec<u16> = ports.iter().copied().chain(more).collect();
        let before = mk_body(&named(&ports, 0), false, Mode::Visibility);
        let after = mk_body(&named(&all, shift), true, Mode::Enforced);
        let loss = Loss::between(&before, &after);
        prop_assert_eq!((loss.before, loss.lost, loss.after), (ports.len(), 0, all.len() + 1));
    }

    /// However few rules each of them has, and however many others keep theirs.
    #[test]
    fn more_hosts_than_the_limit_that_lose_all_they_have_are_braked(
        held in prop::collection::vec(0_usize..=5, 1..12), kept in prop::collection::vec(1_usize..=5, 0..12),
        (hosts_max, share_percent) in (0_u32..12, 0_u32..100), others in any::<bool>(),
    ) {
        let body = |count: &usize| mk_body(&FIVE[..*count], false, Mode::Enforced);
        let emptied = held.iter().map(|count| (body(count), Body::default()));
        let pairs: Vec<(Body, Body)> = emptied.chain(kept.iter().map(|count| (body(count), body(count)))).collect();
        let by_hand = held.iter().filter(|count| **count > 0).count();
        let braked = judged(BrakeLimits { hosts_max, share_percent }, &pairs, true, others);
        let losing = braked.map_or(0, |braked| braked.losing.len());
        prop_assert_eq!(losing, if by_hand > hosts_max as usize { by_hand } else { 0 });
    }

    #[test]
    fn a_share_is_what_counting_by_hand_says_and_a_higher_limit_never_brakes_more(
        kept in prop::collection::vec(0_usize..=5, 1..12), hosts_max in 0_u32..12, share_percent in 0_u32..=100,
    ) {
        let before = mk_body(&FIVE, false, Mode::Enforced);
        let pairs: Vec<(Body, Body)> = kept
            .iter()
            .map(|kept| (before.clone(), mk_body(&FIVE[..*kept], false, Mode::Enforced)))
            .collect();
        let limits = BrakeLimits { hosts_max, share_percent };
        let by_hand = kept.iter().filter(|kept| (5 - **kept) * 20 > share_percent as usize).count();
        let braked = judged(limits, &pairs, false, true);
        prop_assert_eq!(braked.is_some(), by_hand > hosts_max as usize);
        prop_assert_eq!(braked.as_ref().map_or(0, |braked| braked.losing.len()), if braked.is_some() { by_hand } else { 0 });
        let higher = BrakeLimits { hosts_max: hosts_max + 1, share_percent };
        prop_assert!(judged(higher, &pairs, false, true).is_none() || braked.is_some());
    }
}
