//! The smallest change from one ruleset to another, for one kernel batch.
//!
//! - Rules that stay keep their handles and counters; members of a set change in place.
//! - Where the frame differs (chains, hooks, policies, a chain's first rule, a set's type) there is no edit: the whole table is replaced.
//! - Order inside a batch: rules out, members, sets in, rules in, sets out.

use std::collections::{BTreeMap, BTreeSet};

use super::ruleset::{Chain, Rule, RuleId, Ruleset};
use super::set::{Members, Span};

/// What changes in a set that stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetEdit {
    /// Its name.
    pub name: String,
    /// Intervals that go.
    pub remove: Vec<Span>,
    /// Intervals that come.
    pub add: Vec<Span>,
}

/// A rule that comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulePut {
    /// The rule that stays and that this one stands behind, others that come perhaps between them.
    pub after: RuleId,
    /// The rule.
    pub rule: Rule,
}

/// What changes in a chain that stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainEdit {
    /// Its name.
    pub name: &'static str,
    /// Rules that go.
    pub drop: Vec<RuleId>,
    /// Rules that come, in their order.
    pub put: Vec<RulePut>,
}

/// What turns one ruleset into another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edits {
    /// Chains whose rules change.
    pub chains: Vec<ChainEdit>,
    /// Sets whose members change.
    pub sets: Vec<SetEdit>,
    /// Sets that come.
    pub sets_put: BTreeMap<String, Members>,
    /// Sets that go.
    pub sets_drop: Vec<String>,
}

impl Edits {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty() && self.sets_put.is_empty() && self.sets_drop.is_empty()
    }
}

/// The edits that lead from `base` to `target`; `None` if only replacing the table does.
#[must_use]
pub fn edits_between(base: &Ruleset, target: &Ruleset) -> Option<Edits> {
    if base.chains.len() != target.chains.len() {
        return None;
    }
    let mut edits = Edits::default();
    for (old, new) in base.chains.iter().zip(&target.chains) {
        if old.name != new.name || old.hook != new.hook || old.drops != new.drops {
            return None;
        }
        edits.chains.extend(chain_edit(old, new)?);
    }
    for (name, new) in &target.sets {
        match base.sets.get(name) {
            None => {
                edits.sets_put.insert(name.clone(), new.clone());
            }
            Some(old) if old == new => {}
            Some(old) => {
                let (remove, add) = old.edit_to(new)?;
                edits.sets.push(SetEdit { name: name.clone(), remove, add });
            }
        }
    }
    edits.sets_drop.extend(base.sets.keys().filter(|name| !target.sets.contains_key(*name)).cloned());
    Some(edits)
}

/// `None`: no edit. `Some(None)`: nothing changes.
fn chain_edit(old: &Chain, new: &Chain) -> Option<Option<ChainEdit>> {
    if old.rules == new.rules {
        return Some(None);
    }
    let kept = kept_rules(&old.rules, &new.rules);
    if !kept.first().is_some_and(|first| *first) {
        return None;
    }
    let mut edit = ChainEdit { name: new.name, drop: Vec::new(), put: Vec::new() };
    let kept_ids: BTreeSet<&RuleId> =
        new.rules.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(rule, _)| &rule.id).collect();
    edit.drop.extend(old.rules.iter().filter(|rule| !kept_ids.contains(&rule.id)).map(|rule| rule.id.clone()));
    let mut after = None;
    for (rule, kept) in new.rules.iter().zip(&kept) {
        if *kept {
            after = Some(&rule.id);
        } else {
            edit.put.push(RulePut { after: after?.clone(), rule: rule.clone() });
        }
    }
    Some(Some(edit))
}

/// For each new rule whether the old one stays for it: the longest run of equal rules whose order is the same in both.
fn kept_rules(old: &[Rule], new: &[Rule]) -> Vec<bool> {
    let places: BTreeMap<&RuleId, usize> = old.iter().enumerate().map(|(at, rule)| (&rule.id, at)).collect();
    let equal = |rule: &Rule| places.get(&rule.id).copied().filter(|at| old.get(*at) == Some(rule));
    let candidates: Vec<(usize, usize)> =
        new.iter().enumerate().filter_map(|(index, rule)| equal(rule).map(|at| (index, at))).collect();
    // Longest ascending run of old places by patience sorting; `before` links each to its predecessor.
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(candidates.len());
    let place = |index: usize| candidates.get(index).map_or(usize::MAX, |(_, at)| *at);
    for index in 0..candidates.len() {
        let pile = tails.partition_point(|tail| place(*tail) < place(index));
        before.push(pile.checked_sub(1).and_then(|pile| tails.get(pile)).copied());
        match tails.get_mut(pile) {
            Some(tail) => *tail = index,
            None => tails.push(index),
        }
    }
    let mut kept = vec![false; new.len()];
    let mut at = tails.last().copied();
    while let Some(index) = at {
        if let Some(flag) = candidates.get(index).and_then(|(new_index, _)| kept.get_mut(*new_index)) {
            *flag = true;
        }
        at = before.get(index).copied().flatten();
    }
    kept
}
