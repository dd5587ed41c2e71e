//! The rendered policy of one host: concrete, canonical, selector-free.
//!
//! - A body holds addresses and numbers only; no name, label or text of an operator reaches a host.
//! - Canonical: rules ascend by (order, denies first, key); sets ascend by key; port ranges ascend and do not meet. [`Body::check`] says so.
//! - A body names no host and no version: hosts of one role share it.
//!
//! Meaning, per direction, for the packet that opens a connection: the first rule that matches decides; when none does, an isolated direction
//! denies and an open one allows.

pub mod delta;
mod statement;

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
pub use statement::{IcmpKind, PortRange, Statement, protocol};

use crate::interval_set::IntervalSet;

/// How far a host enforces its policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing is dropped; a new host starts here.
    #[default]
    Visibility,
    /// The very rules of enforcement, but what they would drop is accepted and counted.
    Simulation,
    /// What the rules do not allow is dropped.
    Enforced,
}

impl Mode {
    /// All of them, the mildest first.
    pub const ALL: [Self; 3] = [Self::Visibility, Self::Simulation, Self::Enforced];

    /// The word in documents, JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Visibility => "visibility",
            Self::Simulation => "simulation",
            Self::Enforced => "enforced",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The direction of the packet that opens a connection, seen from the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Toward the host.
    Ingress,
    /// From the host.
    Egress,
}

impl Direction {
    /// Both, in canonical order.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// What a matching rule does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Drops; sorts before allows of the same order.
    Deny,
    /// Accepts.
    Allow,
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps the bytes of a key.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}

keys! {
    /// Names a rule across versions: it depends on the authored unit, direction, order, action and statement, not on who the peers are.
    RuleKey;
    /// Names a set across versions: it depends on the authored rule that the set belongs to, not on its members.
    SetKey;
}

/// Whose traffic a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peers {
    /// Anybody's.
    Any,
    /// That of the members of a set of the same body.
    Set(SetKey),
}

/// One concrete rule of one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name across versions.
    pub key: RuleKey,
    /// Lower orders decide first.
    pub order: i32,
    /// What it does.
    pub action: Action,
    /// Protocol and destination ports.
    pub statement: Statement,
    /// The other end.
    pub peers: Peers,
    /// Which of the host's own addresses; all of them if absent.
    pub local: Option<SetKey>,
    /// Whether a match is logged.
    pub log: bool,
}

impl Rule {
    fn rank(&self) -> (i32, Action, RuleKey) {
        (self.order, self.action, self.key)
    }

    /// The place of a rule among the rules of its direction.
    #[must_use]
    pub fn cmp_place(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The rules of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Whether traffic that no rule matches is denied.
    pub isolated: bool,
    /// Ascending by [`Rule::cmp_place`], keys unique.
    pub rules: Vec<Rule>,
}

/// A named set of addresses, both families.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Its name across versions.
    pub key: SetKey,
    /// Its IPv4 members.
    pub v4: IntervalSet<u32>,
    /// Its IPv6 members.
    pub v6: IntervalSet<u128>,
}

/// The whole policy of one host. The default is what a host has before anything selects it: visibility, open, no rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// How far it is enforced.
    pub mode: Mode,
    /// Rules for connections toward the host.
    pub ingress: Chain,
    /// Rules for connections from the host.
    pub egress: Chain,
    /// The sets that the rules name: ascending by key, each named by a rule.
    pub sets: Vec<Set>,
}

/// Why a body is not canonical.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// Rules out of place, or two with one key.
    #[error("rules of a chain are not in canonical order or share a key")]
    RuleOrder,
    /// Sets out of place, or two with one key.
    #[error("sets are not in canonical order or share a key")]
    SetOrder,
    /// A rule names a set that the body lacks.
    #[error("a rule names a set that the body lacks")]
    SetMissing,
    /// A set that no rule names.
    #[error("a set is named by no rule")]
    SetUnused,
    /// Ports out of order or meeting, or an empty list.
    #[error("a statement is not in canonical form")]
    Statement,
}

impl Body {
    /// The chain of a direction.
    #[must_use]
    pub fn chain(&self, direction: Direction) -> &Chain {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    /// The chain of a direction, to change.
    pub fn chain_mut(&mut self, direction: Direction) -> &mut Chain {
        match direction {
            Direction::Ingress => &mut self.ingress,
            Direction::Egress => &mut self.egress,
        }
    }

    /// The set with this key.
    #[must_use]
    pub fn set(&self, key: SetKey) -> Option<&Set> {
        self.sets.binary_search_by_key(&key, |set| set.key).ok().and_then(|index| self.sets.get(index))
    }

    /// Puts rules and sets in their canonical places and leaves out sets that no rule names.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        for direction in Direction::ALL {
            let rules = &mut self.chain_mut(direction).rules;
            rules.sort_by(Rule::cmp_place);
            rules.dedup_by_key(|rule| rule.rank());
        }
        let named = self.named_sets();
        self.sets.retain(|set| named.binary_search(&set.key).is_ok());
        self.sets.sort_by_key(|set| set.key);
        self.sets.dedup_by_key(|set| set.key);
        self
    }

    /// Checks that the body is canonical.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), BodyError> {
        for direction in Direction::ALL {
            let rules = &self.chain(direction).rules;
            if !rules.is_sorted_by(|a, b| a.rank() < b.rank()) {
                return Err(BodyError::RuleOrder);
            }
            let mut keys: Vec<RuleKey> = rules.iter().map(|rule| rule.key).collect();
            keys.sort_unstable();
            if !keys.is_sorted_by(|a, b| a < b) {
                return Err(BodyError::RuleOrder);
            }
            if !rules.iter().all(|rule| rule.statement.is_canonical()) {
                return Err(BodyError::Statement);
            }
        }
        if !self.sets.is_sorted_by(|a, b| a.key < b.key) {
            return Err(BodyError::SetOrder);
        }
        let named = self.named_sets();
        if named.iter().any(|key| self.set(*key).is_none()) {
            return Err(BodyError::SetMissing);
        }
        if named.len() != self.sets.len() {
            return Err(BodyError::SetUnused);
        }
        Ok(())
    }

    /// The keys of the sets that rules name, ascending and unique.
    fn named_sets(&self) -> Vec<SetKey> {
        let mut named: Vec<SetKey> = Direction::ALL
            .iter()
            .flat_map(|direction| &self.chain(*direction).rules)
            .flat_map(|rule| {
                let peers = match rule.peers {
                    Peers::Any => None,
                    Peers::Set(key) => Some(key),
                };
                peers.into_iter().chain(rule.local)
            })
            .collect();
        named.sort_unstable();
        named.dedup();
        named
    }
}
