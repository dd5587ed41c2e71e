//! What a delta holds to: it makes the target of its base, and refuses every other base.

use proptest::prelude::*;

use super::*;
use crate::address::Interval;
use crate::interval_set::IntervalSet;
use crate::policy::{Action, Chain, Peers, PortRange, Statement, protocol};

const DIRECTIONS: [Direction; 2] = Direction::ALL;

proptest! {
    #[test]
    fn applying_a_difference_gives_the_target(base in mk_body(), target in mk_body()) {
        prop_assert_eq!(base.check(), Ok(()));
        let delta = diff(&base, &target);
        let reached = apply(&base, &delta).expect("the delta was made for this base");
        prop_assert_eq!(&reached, &target);
        prop_assert_eq!(reached.digest(), target.digest());
    }

    #[test]
    fn a_delta_on_another_base_is_refused_and_the_body_untouched(a in mk_body(), b in mk_body(), held in mk_body()) {
        prop_assume!(held.digest() != a.digest());
        let before = held.clone();
        let refused = apply(&held, &diff(&a, &b));
        prop_assert_eq!(refused, Err(DeltaError::WrongBase { delta: a.digest(), held: held.digest() }));
        prop_assert_eq!(held, before);
    }

    #[test]
    fn equal_digests_mean_equal_bodies(a in mk_body(), b in mk_body()) {
        prop_assert_eq!(a.digest() == b.digest(), a == b);
        prop_assert!(diff(&a, &a).changes.is_empty());
    }
}

#[test]
fn a_changed_peer_is_one_edit_and_touches_no_rule() {
    let base = mk_fixed(&[1, 2]);
    let target = mk_fixed(&[1, 2, 9]);
    let changes = diff(&base, &target).changes;
    let only = Change::EditSet {
        key: SetKey::from_bytes([1; 16]),
        v4: Edit { remove: vec![], add: vec![Interval::single(9)] },
        v6: Edit::none(),
    };
    assert_eq!(changes, [only]);
}

#[test]
fn b09_changes_come_by_mode_isolation_dropped_rules_sets_put_rules_and_dropped_sets() {
    let [kept, dropped, put] = [1, 2, 3].map(|key| mk_rule(key, Peers::Set(SetKey::from_bytes([key; 16]))));
    let chain = |isolated, rules: [&Rule; 2]| Chain { isolated, rules: rules.map(Rule::clone).to_vec() };
    let body = |mode, isolated, rules: [&Rule; 2], sets: [Set; 2]| {
        let (ingress, egress) = (chain(isolated, rules), chain(isolated, rules));
        Body { mode, ingress, egress, sets: sets.to_vec() }.canonical()
    };
    let base = body(Mode::Visibility, false, [&kept, &dropped], [mk_set(1, &[1]), mk_set(2, &[2])]);
    let target = body(Mode::Enforced, true, [&kept, &put], [mk_set(1, &[1, 9]), mk_set(3, &[3])]);
    let edit = Change::EditSet {
        key: SetKey::from_bytes([1; 16]),
        v4: Edit { remove: vec![], add: vec![Interval::single(9)] },
        v6: Edit { remove: vec![], add: vec![Interval::single(9 << 64)] },
    };
    let both = |change: &dyn Fn(Direction) -> Change| DIRECTIONS.map(change).to_vec();
    let wanted = [
        vec![Change::SetMode(Mode::Enforced)],
        both(&|direction| Change::SetIsolation { direction, isolated: true }),
        both(&|direction| Change::DropRule { direction, key: dropped.key }),
        vec![edit, Change::PutSet(mk_set(3, &[3]))],
        both(&|direction| Change::PutRule { direction, rule: put.clone() }),
        vec![Change::DropSet(SetKey::from_bytes([2; 16]))],
    ];
    let delta = diff(&base, &target);
    assert_eq!(delta.changes, wanted.concat());
    assert_eq!(apply(&base, &delta), Ok(target));
}

#[test]
fn b19_a_flip_of_mode_is_one_change_and_nothing_else() {
    let modes = [Mode::Visibility, Mode::Simulation, Mode::Enforced];
    for (from, to) in modes.into_iter().flat_map(|from| modes.map(|to| (from, to))) {
        let body = |mode| Body { mode, ..mk_fixed(&[1, 2]) };
        let flip = (from != to).then_some(Change::SetMode(to));
        assert_eq!(diff(&body(from), &body(to)).changes, Vec::from_iter(flip), "{from:?} to {to:?}");
    }
}

#[test]
fn a_forged_target_is_refused() {
    let base = mk_fixed(&[1]);
    let forged = Delta { target: Digest::of(b"forged"), ..diff(&base, &mk_fixed(&[5])) };
    assert!(matches!(apply(&base, &forged), Err(DeltaError::WrongTarget { .. })));
}

fn mk_rule(key: u8, peers: Peers) -> Rule {
    Rule {
        key: RuleKey::from_bytes([key; 16]),
        order: i32::from(key % 3),
        action: if key.is_multiple_of(4) { Action::Deny } else { Action::Allow },
        statement: Statement::ports(protocol::TCP, vec![PortRange::single(u16::from(key) + 80)]),
        peers,
        local: None,
        log: false,
    }
}

fn mk_set(key: u8, members: &[u32]) -> Set {
    Set {
        key: SetKey::from_bytes([key; 16]),
        v4: IntervalSet::covering(members.iter().copied().map(Interval::single).collect()),
        v6: IntervalSet::covering(members.iter().map(|m| Interval::single(u128::from(*m) << 64)).collect()),
    }
}

fn mk_fixed(members: &[u32]) -> Body {
    let set = Set { v6: IntervalSet::empty(), ..mk_set(1, members) };
    let rule = mk_rule(1, Peers::Set(set.key));
    Body { ingress: Chain { isolated: true, rules: vec![rule] }, sets: vec![set], ..Body::default() }
}

fn mk_body() -> impl Strategy<Value = Body> {
    let mode = prop_oneof![Just(Mode::Visibility), Just(Mode::Simulation), Just(Mode::Enforced)];
    let rules = prop::collection::vec((0_u8..12, 0_u8..2, 0_u8..4), 0..10);
    let sets = prop::collection::vec(prop::collection::vec(0_u32..40, 0..12), 4);
    (mode, any::<(bool, bool)>(), rules, sets).prop_map(|(mode, (ingress, egress), rules, sets)| {
        let mut body = Body { mode, ..Body::default() };
        body.ingress.isolated = ingress;
        body.egress.isolated = egress;
        for (key, direction, set) in rules {
            let peers = if set == 3 { Peers::Any } else { Peers::Set(SetKey::from_bytes([set; 16])) };
            body.chain_mut(DIRECTIONS[usize::from(direction)]).rules.push(mk_rule(key, peers));
        }
        body.sets = (0_u8..).zip(&sets).map(|(key, members)| mk_set(key, members)).collect();
        body.canonical()
    })
}
