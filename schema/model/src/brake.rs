//! How much a change takes away, and whether that is so much that somebody has to say so.
//!
//! - What counts is what a body lets hosts do or keeps them from: its rules that match somebody, and each direction in which it denies what no rule
//!   allows. What these are called, in which order they decide and who exactly is meant is not counted: a policy under another name, or with other
//!   peers, takes nothing away.
//! - A host that holds little is no measure of a share; that it loses all of it is, and that nobody holds anything afterwards.
//! - A host leaves enforcement silently when nobody said in which mode it is to be afterwards.
//!
//! It knows bodies before and after, not what was asked for, and refuses nothing by itself.

use std::collections::BTreeMap;

use crate::ids::HostId;
use crate::policy::{Action, Body, Direction, Mode, Peers, Rule, Statement};

#[cfg(test)]
mod tests;

/// The fewest units of a host of which a share says anything, short of all: one policy of one rule has two.
pub const UNITS_MIN: usize = 3;

/// How much a change may take away without anybody saying so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrakeLimits {
    /// Of how many hosts at most.
    pub hosts_max: u32,
    /// How much of each of them, in percent.
    pub share_percent: u32,
}

impl Default for BrakeLimits {
    fn default() -> Self {
        Self { hosts_max: 10, share_percent: 50 }
    }
}

/// What of one body is not in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// How many units it has before.
    pub before: usize,
    /// How many of those are gone after.
    pub lost: usize,
    /// How many units there are after.
    pub after: usize,
}

/// One thing that a body does.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Unit<'a> {
    Isolation(Direction),
    Rule(Direction, Action, &'a Statement),
}

fn units(body: &Body) -> BTreeMap<Unit<'_>, usize> {
    let mut units = BTreeMap::new();
    for direction in Direction::ALL {
        let chain = body.chain(direction);
        if chain.isolated {
            units.insert(Unit::Isolation(direction), 1);
        }
        for rule in chain.rules.iter().filter(|rule| matches_somebody(body, rule)) {
            *units.entry(Unit::Rule(direction, rule.action, &rule.statement)).or_default() += 1;
        }
    }
    units
}

fn matches_somebody(body: &Body, rule: &Rule) -> bool {
    let has_members = |key| body.set(key).is_some_and(|set| !(set.v4.is_empty() && set.v6.is_empty()));
    let has_peers = match rule.peers {
        Peers::Any => true,
        Peers::Set(key) => has_members(key),
    };
    has_peers && rule.local.is_none_or(has_members)
}

impl Loss {
    /// What of `before` is not in `after`.
    #[must_use]
    pub fn between(before: &Body, after: &Body) -> Self {
        let (old, new) = (units(before), units(after));
        let lost = old.iter().map(|(unit, count)| count.saturating_sub(new.get(unit).copied().unwrap_or_default()));
        Self { before: old.values().sum(), lost: lost.sum(), after: new.values().sum() }
    }

    /// Whether a body does anything at all.
    #[must_use]
    pub fn does_something(body: &Body) -> bool {
        !units(body).is_empty()
    }

    fn is_beyond(self, limits: BrakeLimits) -> bool {
        let is_total = self.before > 0 && self.lost == self.before;
        // No body has so many rules that a hundred times as many is no number.
        let is_more = self.lost * 100 > self.before * limits.share_percent as usize;
        is_more && (is_total || self.before >= UNITS_MIN)
    }
}

/// Whether a host that enforced goes on, and if not, whether anybody said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// It goes on, or did not enforce.
    Not,
    /// Somebody said in which other mode it is to be.
    Said,
    /// Nobody did.
    Silently,
}

impl Leaves {
    /// What becomes of a host's enforcement; `is_said` if its mode is one that somebody gives it by this change.
    #[must_use]
    pub const fn between(before: Mode, after: Mode, is_said: bool) -> Self {
        match (before, after, is_said) {
            (Mode::Visibility | Mode::Simulation, _, _) | (Mode::Enforced, Mode::Enforced, _) => Self::Not,
            (Mode::Enforced, Mode::Visibility | Mode::Simulation, true) => Self::Said,
            (Mode::Enforced, Mode::Visibility | Mode::Simulation, false) => Self::Silently,
        }
    }
}

/// What a change takes away, host by host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Toll {
    limits: BrakeLimits,
    losing: Vec<HostId>,
    emptied: Vec<HostId>,
    is_something_left: bool,
    leaving: Vec<HostId>,
    silent: usize,
}

impl Toll {
    /// Nothing yet.
    #[must_use]
    pub const fn new(limits: BrakeLimits) -> Self {
        Self {
            limits,
            losing: Vec::new(),
            emptied: Vec::new(),
            is_something_left: false,
            leaving: Vec::new(),
            silent: 0,
        }
    }

    /// Takes in one host that the change touches.
    pub fn add(&mut self, host: HostId, loss: Loss, leaves: Leaves) {
        if loss.is_beyond(self.limits) {
            self.losing.push(host);
        }
        if loss.after > 0 {
            self.is_something_left = true;
        } else if loss.before > 0 {
            self.emptied.push(host);
        }
        match leaves {
            Leaves::Not => {}
            Leaves::Said => self.leaving.push(host),
            Leaves::Silently => {
                self.leaving.push(host);
                self.silent += 1;
            }
        }
    }

    /// Whether it depends on the hosts that the change does not touch if anything is left.
    #[must_use]
    pub fn asks_for_others(&self) -> bool {
        // Whoever has one host empties it by taking back the one policy that there is.
        !self.is_something_left && self.emptied.len() > 1
    }

    /// The judgement; `others_do_something` of the hosts that the change does not touch.
    #[must_use]
    pub fn judged(self, others_do_something: bool) -> Option<Braked> {
        let is_everything = self.asks_for_others() && !others_do_something;
        let is_many = |hosts: &[HostId]| hosts.len() > self.limits.hosts_max as usize;
        let losing = if is_many(&self.losing) { self.losing } else { Vec::new() };
        let leaving = if self.silent > 0 || is_many(&self.leaving) { self.leaving } else { Vec::new() };
        let emptied = if is_everything { self.emptied } else { Vec::new() };
        let braked = Braked { losing, emptied, leaving, silent: self.silent };
        (!braked.hosts().is_empty()).then_some(braked)
    }
}

/// A change that takes so much away that somebody has to say so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Braked {
    /// Hosts that lose more than the share; empty if those are few.
    pub losing: Vec<HostId>,
    /// The hosts that did something, all of which do nothing afterwards; empty if any does.
    pub emptied: Vec<HostId>,
    /// Hosts that enforce no longer; empty if those are few and it was said of each of them.
    pub leaving: Vec<HostId>,
    /// Of how many of those nobody said in which mode they are to be.
    pub silent: usize,
}

impl Braked {
    /// All of them, each once, in the order of their ids.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> =
            [&self.losing, &self.emptied, &self.leaving].into_iter().flatten().copied().collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}
