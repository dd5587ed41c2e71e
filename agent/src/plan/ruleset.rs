//! The description of the table: chains, rules, sets.

use std::collections::BTreeMap;
use std::fmt;

use super::expr::{Expr, Verdict};
use super::matching::Match;
use super::set::Members;

/// The name of the one table that is ours, family inet.
pub const TABLE: &str = "holdfast";

/// How many lines a second one logging rule may write, and how many at once.
const LOG_PER_SECOND: u64 = 10;
const LOG_BURST: u32 = 5;

/// Where a base chain hooks in, at priority filter + 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Packets to this host.
    Input,
    /// Packets that pass through this host.
    Forward,
    /// Packets of this host.
    Output,
}

impl Hook {
    /// The priority of all base chains: after the filter chains of others, so that their drop stays a drop.
    pub const PRIORITY: i32 = 10;

    /// The kernel's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
        }
    }

    /// The word in nft text.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
        }
    }
}

/// The name of a rule in its chain; kept in the kernel as the rule's comment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(String);

impl RuleId {
    /// Wraps a name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a rule does with a packet that it matches, beside counting it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing more: evaluation goes on.
    Count,
    /// It decides.
    Decide(Verdict),
    /// It logs, within a rate, with this prefix; evaluation goes on.
    Log(String),
}

/// One rule of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name, unique in its chain.
    pub id: RuleId,
    /// What it asks, all of it.
    pub matches: Vec<Match>,
    /// What it does.
    pub effect: Effect,
    /// Whether the policy does not let through what it matches: dropped where the host is enforced, accepted and counted in simulation.
    pub denies: bool,
}

impl Rule {
    /// The kernel's expressions for it, in order.
    #[must_use]
    pub fn lower(&self) -> Vec<Expr> {
        let mut exprs: Vec<Expr> = self.matches.iter().flat_map(Match::lower).collect();
        match &self.effect {
            Effect::Count => exprs.push(Expr::Counter),
            Effect::Decide(verdict) => exprs.extend([Expr::Counter, Expr::Verdict(verdict.clone())]),
            Effect::Log(prefix) => exprs.extend([
                Expr::Limit { per_second: LOG_PER_SECOND, burst: LOG_BURST },
                Expr::Counter,
                Expr::Log(prefix.clone()),
            ]),
        }
        exprs
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for word in &self.matches {
            write!(f, "{word} ")?;
        }
        match &self.effect {
            Effect::Count => f.write_str("counter")?,
            Effect::Decide(verdict) => write!(f, "counter {verdict}")?,
            Effect::Log(prefix) => write!(
                f,
                "limit rate {LOG_PER_SECOND}/second burst {LOG_BURST} packets counter log prefix \"{prefix}\" level info"
            )?,
        }
        write!(f, " comment \"{}\"", self.id)
    }
}

/// One chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Where it hooks in; a chain that others jump to if absent.
    pub hook: Option<Hook>,
    /// Whether a base chain drops what it does not decide.
    pub drops: bool,
    /// Its rules, in the order in which they are asked.
    pub rules: Vec<Rule>,
}

/// The whole table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruleset {
    /// Chains; one that is jumped to stands before those that jump.
    pub chains: Vec<Chain>,
    /// Sets by name.
    pub sets: BTreeMap<String, Members>,
}

impl Ruleset {
    /// The chain with a name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }
}
