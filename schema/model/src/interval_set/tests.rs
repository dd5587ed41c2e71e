//! What the canonical set holds to under generated intervals and edits.

use proptest::prelude::*;

use super::*;

fn iv(first: u32, last: u32) -> Interval<u32> {
    Interval::new(first, last).expect("ordered in the test")
}

/// Addresses crowd into few prefixes, so that leaves fill and split.
fn mk_members() -> impl Strategy<Value = Vec<Interval<u32>>> {
    let member = (0_u32..4, 0_u32..3_000, 0_u32..3).prop_map(|(block, offset, extent)| {
        let first = (block << 30) | (offset * 4);
        iv(first, first + extent)
    });
    prop::collection::vec(member, 0..900)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_edit_between_any_two_sets_leads_to_the_very_tree(base in mk_members(), target in mk_members()) {
        let (base, target) = (IntervalSet::covering(base), IntervalSet::covering(target));
        let edit = base.edit_to(&target);
        let reached = base.edited(&edit).expect("the edit was made for this base");
        prop_assert_eq!(reached.digest(), target.digest());
        prop_assert_eq!(reached.to_vec(), target.to_vec());
        prop_assert_eq!(reached.len(), target.len());
    }

    #[test]
    fn one_address_in_or_out_leads_to_the_very_tree(members in mk_members(), asked in any::<u32>(), at in any::<prop::sample::Index>()) {
        let set = IntervalSet::covering(members.clone());
        let near = members.get(at.index(members.len().max(1))).map(|interval| interval.last());
        for address in near.into_iter().flat_map(|last| [last, last + 1, last - last % 4]).chain([asked, 0, u32::MAX]) {
            let mut more = set.to_vec();
            more.push(Interval::single(address));
            prop_assert_eq!(set.including(address).digest(), IntervalSet::covering(more).digest());
            let less = crate::address::subtract(&set.to_vec(), &[Interval::single(address)]);
            prop_assert_eq!(set.excluding(address).digest(), IntervalSet::covering(less).digest());
        }
    }

    #[test]
    fn membership_equals_the_plain_list(members in mk_members(), asked in any::<u32>()) {
        let set = IntervalSet::covering(members.clone());
        for address in members.iter().map(|interval| interval.last()).chain([asked]) {
            prop_assert_eq!(set.contains(address), members.iter().any(|interval| interval.contains(address)));
        }
    }
}

#[test]
fn a_small_edit_of_a_large_set_makes_new_chunks_on_one_path_only() {
    let large = IntervalSet::covering((0..50_000).map(|n: u32| iv(n * 85_000, n * 85_000 + 3)).collect());
    let edited = large.edited(&Edit { remove: vec![], add: vec![iv(10, 11)] }).expect("10 is free");
    let mut old = std::collections::HashSet::new();
    collect(large.root(), &mut old);
    let mut new = std::collections::HashSet::new();
    collect(edited.root(), &mut new);
    let fresh = new.difference(&old).count();
    assert!((1..=4).contains(&fresh), "{fresh} chunks for one element");
}

#[test]
fn an_edit_for_another_base_is_refused_and_names_the_fault() {
    let set = IntervalSet::covering(vec![iv(10, 20)]);
    let refused = |remove: &[Interval<u32>], add: &[Interval<u32>]| {
        set.edited(&Edit { remove: remove.to_vec(), add: add.to_vec() }).expect_err("does not fit")
    };
    assert_eq!(refused(&[iv(10, 19)], &[]), EditError::Missing);
    assert_eq!(refused(&[], &[iv(15, 15)]), EditError::Meets);
    assert_eq!(refused(&[], &[iv(21, 25)]), EditError::Meets);
    assert_eq!(refused(&[], &[iv(0, 9)]), EditError::Meets);
}

#[test]
fn canonical_input_is_checked() {
    assert!(IntervalSet::from_canonical(&[iv(1, 2), iv(4, 5)]).is_some());
    assert!(IntervalSet::from_canonical(&[iv(1, 2), iv(3, 5)]).is_none());
    assert!(IntervalSet::from_canonical(&[iv(4, 5), iv(1, 2)]).is_none());
}

fn collect(node: &Node<u32>, into: &mut std::collections::HashSet<Digest>) {
    into.insert(node.digest());
    node.children().for_each(|child| collect(child, into));
}
