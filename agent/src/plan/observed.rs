//! What was read back from the kernel, and whether it is what the plan says.
//!
//! - Equal means: the same chains with the same hooks, priorities and policies; per chain the same rules in the same order, expression by expression;
//!   the same sets with the same types and members; nothing more.
//! - The first difference is named, so that a person finds it.

use std::collections::BTreeMap;
use std::fmt;

use super::expr::Expr;
use super::ruleset::{Chain, Hook, RuleId, Ruleset};
use super::set::{Boundary, Members, Span};

/// A base chain's registration as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedChain {
    /// Its name.
    pub name: String,
    /// Hook number, priority, whether its policy is to drop, its type; absent for a chain that is jumped to.
    pub hook: Option<(u32, i32, bool, String)>,
}

/// A rule as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedRule {
    /// Its chain.
    pub chain: String,
    /// The kernel's name for it.
    pub handle: u64,
    /// Its comment; empty if it has none.
    pub id: RuleId,
    /// Its expressions.
    pub exprs: Vec<Expr>,
    /// Packets and bytes counted.
    pub counted: (u64, u64),
}

/// A set as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedSet {
    /// Its name.
    pub name: String,
    /// The number of its key's type, and the key's length in bytes.
    pub key_type: (u32, u32),
    /// Its flags.
    pub flags: u32,
    /// Its elements, ascending.
    pub boundaries: Vec<Boundary>,
}

/// The table as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The flags of the table.
    pub flags: u32,
    /// Its chains.
    pub chains: Vec<ObservedChain>,
    /// Its rules, in order within each chain.
    pub rules: Vec<ObservedRule>,
    /// Its sets.
    pub sets: Vec<ObservedSet>,
}

impl Observed {
    /// Whether a hook drops what nothing lets through.
    #[must_use]
    pub fn drops(&self) -> bool {
        self.chains.iter().any(|chain| chain.hook.as_ref().is_some_and(|(_, _, drops, _)| *drops))
    }
}

/// The first thing in which the kernel differs from the plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The table is not there.
    NoTable,
    /// The table has other flags.
    TableFlags(u32),
    /// A chain lacks, is too many, or hooks in otherwise.
    Chain(String),
    /// A chain has another number of rules.
    RuleCount {
        /// Which chain.
        chain: String,
        /// How many the plan has.
        planned: usize,
        /// How many the kernel has.
        observed: usize,
    },
    /// A rule is another one.
    Rule {
        /// In which chain.
        chain: String,
        /// The rule that should be there.
        id: RuleId,
    },
    /// A set lacks, is too many, or is of another type.
    Set(String),
    /// A set has other members.
    Members {
        /// Which set.
        set: String,
        /// How many boundaries the plan has.
        planned: usize,
        /// How many the kernel has.
        observed: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => f.write_str("the table is not in the kernel"),
            Self::TableFlags(flags) => write!(f, "the table has flags {flags}"),
            Self::Chain(name) => write!(f, "chain {name} is not as planned"),
            Self::RuleCount { chain, planned, observed } => {
                write!(f, "chain {chain} has {observed} rules and should have {planned}")
            }
            Self::Rule { chain, id } => write!(f, "chain {chain} holds something else than rule {id}"),
            Self::Set(name) => write!(f, "set {name} is not as planned"),
            Self::Members { set, planned, observed } => {
                write!(f, "set {set} has {observed} boundaries and should have {planned}, or others")
            }
        }
    }
}

/// Where the kernel keeps each rule: per chain, by id, its handle.
pub type Placed = BTreeMap<&'static str, BTreeMap<RuleId, u64>>;

/// `INTERVAL`, the only flag that sets of a plan have.
pub(super) const SET_FLAGS: u32 = 4;

/// Compares a whole table; the handles of all rules if it is as planned.
///
/// # Errors
/// The first difference.
pub fn compare(planned: &Ruleset, observed: &Observed) -> Result<Placed, Difference> {
    compare_chains(planned, observed)?;
    let mut placed = Placed::new();
    for chain in &planned.chains {
        let rules: Vec<&ObservedRule> = observed.rules.iter().filter(|rule| rule.chain == chain.name).collect();
        placed.insert(chain.name, compare_chain(chain, &rules)?);
    }
    for set in &observed.sets {
        let members = planned.sets.get(&set.name).ok_or_else(|| Difference::Set(set.name.clone()))?;
        compare_set(&set.name, members, set)?;
    }
    match planned.sets.keys().find(|name| !observed.sets.iter().any(|set| set.name == **name)) {
        None => Ok(placed),
        Some(missing) => Err(Difference::Set(missing.clone())),
    }
}

/// How the kernel tells a planned chain's registration.
pub(super) fn base_hook(chain: &Chain) -> Option<(u32, i32, bool, String)> {
    chain.hook.map(|hook| (hook.number(), Hook::PRIORITY, chain.drops, "filter".to_owned()))
}

fn compare_chains(planned: &Ruleset, observed: &Observed) -> Result<(), Difference> {
    for there in &observed.chains {
        let differs = || Difference::Chain(there.name.clone());
        let chain = planned.chain(&there.name).ok_or_else(differs)?;
        if base_hook(chain) != there.hook {
            return Err(differs());
        }
    }
    match planned.chains.iter().find(|chain| !observed.chains.iter().any(|there| there.name == chain.name)) {
        None => Ok(()),
        Some(missing) => Err(Difference::Chain(missing.name.to_owned())),
    }
}

/// Compares the rules of one chain; their handles if they are as planned.
///
/// # Errors
/// The first difference.
pub fn compare_chain(chain: &Chain, observed: &[&ObservedRule]) -> Result<BTreeMap<RuleId, u64>, Difference> {
    if chain.rules.len() != observed.len() {
        let (planned, observed) = (chain.rules.len(), observed.len());
        return Err(Difference::RuleCount { chain: chain.name.to_owned(), planned, observed });
    }
    let mut handles = BTreeMap::new();
    for (rule, there) in chain.rules.iter().zip(observed) {
        if rule.id != there.id || rule.lower() != there.exprs {
            return Err(Difference::Rule { chain: chain.name.to_owned(), id: rule.id.clone() });
        }
        handles.insert(rule.id.clone(), there.handle);
    }
    Ok(handles)
}

fn compare_set(name: &str, planned: &Members, observed: &ObservedSet) -> Result<(), Difference> {
    if observed.key_type != planned.key_type() || observed.flags != SET_FLAGS {
        return Err(Difference::Set(name.to_owned()));
    }
    let boundaries: Vec<Boundary> = planned.spans().into_iter().flat_map(Span::boundaries).collect();
    if boundaries == observed.boundaries {
        return Ok(());
    }
    Err(Difference::Members { set: name.to_owned(), planned: boundaries.len(), observed: observed.boundaries.len() })
}
