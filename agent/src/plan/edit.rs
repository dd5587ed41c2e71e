//! The smallest change from what the table holds to what it is to hold, for the kernel's batches.
//!
//! - Rules that stay keep their handles and counters; members of a set change in place.
//! - From a state that is known ([`edits_between`]) or from whatever was read ([`edits_from`]); both end in the same table.
//! - Sets that come are in force before anything asks for them: [`Edits::split`] says what goes first.
//! - Order inside a batch: rules out, chains out, sets out, members, sets in, chains in, policies, rules in.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{Observed, ObservedRule, ObservedSet, Placed, SET_FLAGS, base_hook};
use super::ruleset::{Chain, Hook, Rule, RuleId, Ruleset};
use super::set::{Members, Span, spans_of};

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
    /// The handle of the rule that stays and that this one stands before, others that come perhaps between them; the end of the chain if absent.
    pub before: Option<u64>,
    /// The rule.
    pub rule: Rule,
}

/// What changes in a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainEdit {
    /// Its name.
    pub name: &'static str,
    /// Handles of rules that go.
    pub drop: Vec<u64>,
    /// Rules that come, in their order.
    pub put: Vec<RulePut>,
}

/// A chain without its rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its name.
    pub name: &'static str,
    /// Where it hooks in, if it does.
    pub hook: Option<Hook>,
    /// Whether it drops what it does not decide.
    pub drops: bool,
}

/// What turns one table into another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edits {
    /// Whether the table goes, with all that it holds.
    pub table_drop: bool,
    /// Whether the table comes.
    pub table_put: bool,
    /// Chains that go, with all their rules.
    pub chains_drop: Vec<String>,
    /// Chains that come, without their rules.
    pub chains_put: Vec<Frame>,
    /// Base chains that stay and whose policy changes.
    pub policies: Vec<Frame>,
    /// Chains whose rules change.
    pub chains: Vec<ChainEdit>,
    /// Sets whose members change.
    pub sets: Vec<SetEdit>,
    /// Sets that come.
    pub sets_put: BTreeMap<String, Members>,
    /// Sets that go; one of the same name may come.
    pub sets_drop: Vec<String>,
}

impl Edits {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether only rules and sets change, no chain and no table.
    #[must_use]
    pub fn keeps_the_frame(&self) -> bool {
        let chains = self.chains_drop.is_empty() && self.chains_put.is_empty() && self.policies.is_empty();
        chains && !self.table_drop && !self.table_put
    }

    /// What puts everything in the place of a table of our name, whatever it holds.
    #[must_use]
    pub fn replacing(target: &Ruleset) -> Self {
        Self { table_drop: true, ..edits_from(None, target) }
    }

    /// The sets that come, and the rest; absent if one batch does.
    ///
    /// Linux 6.18 puts the rules of a batch in force a moment before the members of the sets that came with them: an allowed packet of that
    /// moment would find its set empty. Sets that nothing asks for yet change no verdict.
    #[must_use]
    pub fn split(&self) -> Option<(Self, Self)> {
        let goes = |name: &String| self.sets_drop.contains(name);
        if self.table_drop || self.chains.is_empty() || self.sets_put.keys().all(goes) {
            return None;
        }
        let mut rest = self.clone();
        let sets_put = std::mem::take(&mut rest.sets_put);
        let (again, first) = sets_put.into_iter().partition(|(name, _)| goes(name));
        (rest.sets_put, rest.table_put) = (again, false);
        Some((Self { table_put: self.table_put, sets_put: first, ..Self::default() }, rest))
    }
}

/// The edits that lead from `base`, whose rules are `placed`, to `target`; `None` if a rule of `base` has no place.
#[must_use]
pub fn edits_between(base: &Ruleset, placed: &Placed, target: &Ruleset) -> Option<Edits> {
    let mut edits = Edits::default();
    for chain in &base.chains {
        if target.chain(chain.name).is_none_or(|new| new.hook != chain.hook) {
            edits.chains_drop.push(chain.name.to_owned());
        }
    }
    for new in &target.chains {
        let Some(old) = base.chain(new.name).filter(|old| old.hook == new.hook) else {
            edits.put_chain(new);
            continue;
        };
        if old.drops != new.drops {
            edits.policies.push(frame(new));
        }
        if old.rules != new.rules {
            let handles = placed.get(old.name)?;
            let old_rules: Option<Vec<OldRule<'_>>> =
                old.rules.iter().map(|rule| Some((&rule.id, *handles.get(&rule.id)?))).collect();
            let old_rules = old_rules?;
            edits.chains.extend(chain_edit(new, &old_rules, |at, rule| old.rules.get(at) == Some(rule)));
        }
    }
    for (name, new) in &target.sets {
        match base.sets.get(name) {
            None => edits.put_set(name, new),
            Some(old) if old == new => {}
            Some(old) => match old.edit_to(new) {
                Some((remove, add)) => edits.sets.push(SetEdit { name: name.clone(), remove, add }),
                None => edits.retype_set(name, new),
            },
        }
    }
    edits.sets_drop.extend(base.sets.keys().filter(|name| !target.sets.contains_key(*name)).cloned());
    Some(edits)
}

/// The edits that lead from what was read to `target`; from nothing if there is no table.
#[must_use]
pub fn edits_from(observed: Option<&Observed>, target: &Ruleset) -> Edits {
    let nothing = Observed::default();
    let mut edits = Edits { table_put: observed.is_none(), ..Edits::default() };
    let observed = observed.unwrap_or(&nothing);
    let mut rules: BTreeMap<&str, Vec<&ObservedRule>> = BTreeMap::new();
    for rule in &observed.rules {
        rules.entry(&rule.chain).or_default().push(rule);
    }
    for there in &observed.chains {
        let stays = target.chain(&there.name).is_some_and(|chain| is_at(chain, there.hook.as_ref()));
        if !stays {
            edits.chains_drop.push(there.name.clone());
        }
    }
    for new in &target.chains {
        let there = observed.chains.iter().find(|there| there.name == new.name && is_at(new, there.hook.as_ref()));
        let Some(there) = there else {
            edits.put_chain(new);
            continue;
        };
        if there.hook.as_ref().is_some_and(|(_, _, drops, _)| *drops != new.drops) {
            edits.policies.push(frame(new));
        }
        let old = rules.get(new.name).map_or(&[][..], Vec::as_slice);
        let old_rules: Vec<OldRule<'_>> = old.iter().map(|rule| (&rule.id, rule.handle)).collect();
        edits.chains.extend(chain_edit(new, &old_rules, |at, rule| {
            old.get(at).is_some_and(|there| there.id == rule.id && there.exprs == rule.lower())
        }));
    }
    let there: BTreeMap<&str, &ObservedSet> = observed.sets.iter().map(|set| (set.name.as_str(), set)).collect();
    for (name, new) in &target.sets {
        match there.get(name.as_str()) {
            None => edits.put_set(name, new),
            Some(old) => edits.edit_set(old, new),
        }
    }
    let goes = |set: &&ObservedSet| !target.sets.contains_key(&set.name);
    edits.sets_drop.extend(observed.sets.iter().filter(goes).map(|set| set.name.clone()));
    edits
}

impl Edits {
    fn put_chain(&mut self, new: &Chain) {
        self.chains_put.push(frame(new));
        self.chains.extend(chain_edit(new, &[], |_, _| false));
    }

    fn put_set(&mut self, name: &str, members: &Members) {
        self.sets_put.insert(name.to_owned(), members.clone());
    }

    fn retype_set(&mut self, name: &str, members: &Members) {
        self.sets_drop.push(name.to_owned());
        self.put_set(name, members);
    }

    fn edit_set(&mut self, old: &ObservedSet, new: &Members) {
        let is_ours = old.key_type == new.key_type() && old.flags == SET_FLAGS;
        let Some(old_spans) = spans_of(&old.boundaries).filter(|_| is_ours) else {
            return self.retype_set(&old.name, new);
        };
        let old_spans: BTreeSet<Span> = old_spans.into_iter().collect();
        let new_spans: BTreeSet<Span> = new.spans().into_iter().collect();
        if old_spans != new_spans {
            let remove = old_spans.difference(&new_spans).copied().collect();
            let add = new_spans.difference(&old_spans).copied().collect();
            self.sets.push(SetEdit { name: old.name.clone(), remove, add });
        }
    }
}

/// Whether a chain that was read hooks in where the plan says; its policy may differ.
fn is_at(chain: &Chain, hook: Option<&(u32, i32, bool, String)>) -> bool {
    let without_policy = |(number, priority, _, kind): (u32, i32, bool, String)| (number, priority, kind);
    base_hook(chain).map(without_policy) == hook.cloned().map(without_policy)
}

const fn frame(chain: &Chain) -> Frame {
    Frame { name: chain.name, hook: chain.hook, drops: chain.drops }
}

/// A rule that is there: its name and its handle.
type OldRule<'a> = (&'a RuleId, u64);

/// What makes a chain of these rules; `None` if it is. `is_same` says whether the rule at an old place is the new one.
fn chain_edit(new: &Chain, old: &[OldRule<'_>], is_same: impl Fn(usize, &Rule) -> bool) -> Option<ChainEdit> {
    let mut places: BTreeMap<&RuleId, usize> = BTreeMap::new();
    for (at, (id, _)) in old.iter().enumerate() {
        places.entry(id).or_insert(at);
    }
    let place_of = |rule: &Rule| places.get(&rule.id).copied().filter(|at| is_same(*at, rule));
    let kept = longest_run(&new.rules.iter().map(place_of).collect::<Vec<_>>());
    let stays: BTreeSet<usize> = kept.iter().flatten().copied().collect();
    let gone = old.iter().enumerate().filter(|(at, _)| !stays.contains(at)).map(|(_, (_, handle))| *handle);
    let mut edit = ChainEdit { name: new.name, drop: gone.collect(), put: Vec::new() };
    let mut before = None;
    for (rule, kept) in new.rules.iter().zip(&kept).rev() {
        match kept {
            Some(at) => before = old.get(*at).map(|(_, handle)| *handle),
            None => edit.put.push(RulePut { before, rule: rule.clone() }),
        }
    }
    edit.put.reverse();
    (!edit.drop.is_empty() || !edit.put.is_empty()).then_some(edit)
}

/// Of old places in their new order, those of the longest run that ascends; the others are absent.
fn longest_run(places: &[Option<usize>]) -> Vec<Option<usize>> {
    let candidates: Vec<(usize, usize)> =
        places.iter().enumerate().filter_map(|(index, place)| Some((index, (*place)?))).collect();
    // Patience sorting; `before` links each to its predecessor.
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
    let mut run = vec![None; places.len()];
    let mut at = tails.last().copied();
    while let Some(index) = at {
        if let Some((new_index, old_place)) = candidates.get(index)
            && let Some(kept) = run.get_mut(*new_index)
        {
            *kept = Some(*old_place);
        }
        at = before.get(index).copied().flatten();
    }
    run
}
