//! What the kernel is to hold, as plain data: from a policy body to every chain, rule and set of `table inet holdfast`.
//!
//! - Pure: rendering a ruleset needs no kernel and no privilege (invariant A9).
//! - Stable: a rule has one place and one id for its life, a set one name, so that a change of the body becomes the smallest edit and counters live on.
//! - Complete: what is read back is compared with this description and with nothing else.
//!
//! It sends nothing; `crate::nft` does.

mod edit;
mod expr;
mod kept;
mod layout;
mod matching;
mod observed;
mod ruleset;
mod set;
mod tally;
mod text;

pub use edit::{ChainEdit, Edits, Frame, RulePut, SetEdit, edits_between, edits_from};
pub use expr::{CtKey, Expr, Header, MetaKey, Verdict};
pub use kept::{Kept, KeptError};
pub(crate) use layout::is_gateway_cut;
pub use layout::{CHAIN_NAMES, layout};
pub use matching::{End, Match, Ports};
pub use observed::{Difference, Observed, ObservedChain, ObservedRule, ObservedSet, Placed, compare, compare_chain};
pub use ruleset::{Chain, Effect, Hook, Rule, RuleId, Ruleset, TABLE};
pub use set::{Boundary, Key, Members, Span};
pub use tally::{Deviation, tally};

#[cfg(test)]
mod tests;
