//! How much of a table differs from the plan, in counts.
//!
//! - It is asked only where something differs, and tells what [`compare`](super::compare) tells the first of.
//! - Nothing that somebody else wrote is in it, but numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use holdfast_model::drift::DriftCounts;

use super::observed::{Difference, Observed, ObservedRule, SET_FLAGS, base_hook};
use super::ruleset::{RuleId, Ruleset};
use super::set::{Boundary, Span};

/// A table that is not as planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deviation {
    /// The first thing that differs.
    pub first: Difference,
    /// How much does.
    pub counts: DriftCounts,
}

impl Deviation {
    /// The table itself is gone, or another one.
    #[must_use]
    pub fn of_table(first: Difference) -> Self {
        Self { first, counts: DriftCounts { table: true, ..DriftCounts::default() } }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.first, self.counts)
    }
}

/// Counts what differs.
#[must_use]
pub fn tally(planned: &Ruleset, observed: &Observed) -> DriftCounts {
    let mut counts = DriftCounts::default();
    tally_chains(planned, observed, &mut counts);
    tally_sets(planned, observed, &mut counts);
    counts
}

fn add(count: &mut u32, more: usize) {
    *count = count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
}

fn tally_chains(planned: &Ruleset, observed: &Observed, counts: &mut DriftCounts) {
    let mut by_chain: BTreeMap<&str, Vec<&ObservedRule>> = BTreeMap::new();
    for rule in &observed.rules {
        by_chain.entry(&rule.chain).or_default().push(rule);
    }
    for chain in &planned.chains {
        let there = observed.chains.iter().find(|there| there.name == chain.name);
        add(&mut counts.chains, usize::from(there.is_none_or(|there| there.hook != base_hook(chain))));
        let rules = by_chain.remove(chain.name).unwrap_or_default();
        // The places of what is there, by id; each serves one rule of the plan.
        let mut places: BTreeMap<&RuleId, Vec<usize>> = BTreeMap::new();
        for (place, rule) in rules.iter().enumerate().rev() {
            places.entry(&rule.id).or_default().push(place);
        }
        let mut found = Vec::new();
        for rule in &chain.rules {
            let same = |place: &usize| rules.get(*place).is_some_and(|there| there.exprs == rule.lower());
            let candidates = places.get_mut(&rule.id);
            let taken = candidates.and_then(|places| {
                let at = places.iter().rposition(same)?;
                Some(places.remove(at))
            });
            match taken {
                Some(place) => found.push(place),
                None => add(&mut counts.rules_missing, 1),
            }
        }
        add(&mut counts.rules_foreign, rules.len() - found.len());
        let mut in_order = found.clone();
        in_order.sort_unstable();
        let moved = in_order.iter().zip(&found).filter(|(one, other)| one != other).count();
        add(&mut counts.rules_moved, moved);
    }
    let foreign = observed.chains.iter().filter(|there| planned.chain(&there.name).is_none());
    add(&mut counts.chains, foreign.count());
    add(&mut counts.rules_foreign, by_chain.values().map(Vec::len).sum());
}

fn tally_sets(planned: &Ruleset, observed: &Observed, counts: &mut DriftCounts) {
    let gone = planned.sets.keys().filter(|name| !observed.sets.iter().any(|set| set.name == **name));
    add(&mut counts.sets, gone.count());
    for set in &observed.sets {
        let Some(members) = planned.sets.get(&set.name) else {
            add(&mut counts.sets, 1);
            continue;
        };
        if set.key_type != members.key_type() || set.flags != SET_FLAGS {
            add(&mut counts.sets, 1);
            continue;
        }
        let wanted: BTreeSet<Boundary> = members.spans().into_iter().flat_map(Span::boundaries).collect();
        let there: BTreeSet<Boundary> = set.boundaries.iter().copied().collect();
        add(&mut counts.elements_missing, intervals(wanted.difference(&there)));
        add(&mut counts.elements_foreign, intervals(there.difference(&wanted)));
    }
}

/// How many intervals so many boundaries are of, at least.
fn intervals<'a>(boundaries: impl Iterator<Item = &'a Boundary>) -> usize {
    let (mut starts, mut ends) = (0, 0);
    for boundary in boundaries {
        if boundary.is_end { ends += 1 } else { starts += 1 }
    }
    starts.max(ends)
}

#[cfg(test)]
mod tests {
    use holdfast_model::policy::{Body, Chain, Mode};

    use super::*;
    use crate::plan::{Kept, ObservedChain, ObservedSet, layout};

    /// What a kernel tells that holds a plan.
    fn held(planned: &Ruleset) -> Observed {
        let chains = planned
            .chains
            .iter()
            .map(|chain| ObservedChain { name: chain.name.to_owned(), hook: base_hook(chain) })
            .collect();
        let rules = planned.chains.iter().flat_map(|chain| {
            chain.rules.iter().map(|rule| ObservedRule {
                chain: chain.name.to_owned(),
                handle: 1,
                id: rule.id.clone(),
                exprs: rule.lower(),
                counted: (0, 0),
            })
        });
        let sets = planned.sets.iter().map(|(name, members)| ObservedSet {
            name: name.clone(),
            key_type: members.key_type(),
            flags: SET_FLAGS,
            boundaries: members.spans().into_iter().flat_map(Span::boundaries).collect(),
        });
        Observed { flags: 0, chains, rules: rules.collect(), sets: sets.collect() }
    }

    fn plan() -> Ruleset {
        let ingress = Chain { isolated: true, rules: Vec::new() };
        let kept = Kept {
            gateways: vec!["192.0.2.1:7443".parse().unwrap(), "192.0.2.9:7443".parse().unwrap()],
            ..Kept::default()
        };
        layout(&Body { mode: Mode::Enforced, ingress, ..Body::default() }, &kept)
    }

    fn counted(change: impl FnOnce(&mut Observed)) -> DriftCounts {
        let planned = plan();
        let mut observed = held(&planned);
        change(&mut observed);
        tally(&planned, &observed)
    }

    #[test]
    fn what_is_as_planned_counts_nothing() {
        assert_eq!(counted(|_| {}), DriftCounts::default());
    }

    #[test]
    fn rules_that_lack_are_foreign_or_moved_are_counted_each_as_what_it_is() {
        let none = DriftCounts::default();
        assert_eq!(counted(|observed| drop(observed.rules.remove(1))), DriftCounts { rules_missing: 1, ..none });
        let foreign = |observed: &mut Observed| {
            let mut rule = observed.rules[0].clone();
            rule.id = RuleId::new("");
            observed.rules.insert(0, rule);
        };
        assert_eq!(counted(foreign), DriftCounts { rules_foreign: 1, ..none });
        let again = |observed: &mut Observed| observed.rules.push(observed.rules[0].clone());
        assert_eq!(counted(again), DriftCounts { rules_foreign: 1, ..none }, "one of ours once more");
        let other = |observed: &mut Observed| drop(observed.rules[0].exprs.pop());
        assert_eq!(
            counted(other),
            DriftCounts { rules_missing: 1, rules_foreign: 1, ..none },
            "another one in its place"
        );
        let moved = |observed: &mut Observed| {
            assert_eq!(observed.rules[0].chain, observed.rules[1].chain);
            observed.rules.swap(0, 1);
        };
        assert_eq!(counted(moved), DriftCounts { rules_moved: 2, ..none });
    }

    #[test]
    fn chains_sets_and_elements_are_counted() {
        let none = DriftCounts::default();
        let chain = |observed: &mut Observed| observed.chains[0].name = "other".to_owned();
        assert_eq!(counted(chain), DriftCounts { chains: 2, ..none }, "one lacks and one is foreign");
        let set = |observed: &mut Observed| drop(observed.sets.pop());
        assert_eq!(counted(set), DriftCounts { sets: 1, ..none });
        let at = |observed: &Observed| observed.sets.iter().position(|set| set.boundaries.len() >= 4).unwrap();
        let element = |observed: &mut Observed| {
            let at = at(observed);
            observed.sets[at].boundaries.drain(..2);
        };
        assert_eq!(counted(element), DriftCounts { elements_missing: 1, ..none });
        let shorter = |observed: &mut Observed| {
            let at = at(observed);
            let last = observed.sets[at].boundaries.pop();
            assert!(last.is_some_and(|last| last.is_end));
        };
        assert_eq!(counted(shorter), DriftCounts { elements_missing: 1, ..none });
    }
}
