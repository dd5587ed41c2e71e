//! The reference answer: may this connection be opened, and who says so.
//!
//! - Reads intent as it was authored and decides one flow at a time, in the plainest way; it shares nothing with the renderer, so that each can
//!   be held against the other.
//! - Every decision names its cause: the rule that matched, the policies that isolate, or that nothing governs that end.
//!
//! It does not model what enforcement always lets through (loopback, neighbour discovery, related ICMP errors, gateways, failsafe ports), nor
//! replies: it judges the packet that opens a connection.

mod facts;
mod flow;
mod pair;
mod verdict;

pub use flow::{End, Flow, FlowError, Packet, Who};
pub use pair::Pair;
pub use verdict::{Decision, RuleRef, Verdict};

use holdfast_model::intent::Intent;

/// Decides one flow.
///
/// # Errors
/// [`FlowError`] if an end is not in the intent or the two addresses are of different families.
pub fn evaluate(intent: &Intent, flow: &Flow) -> Result<Verdict, FlowError> {
    Ok(Pair::of(intent, flow.from.clone(), flow.to.clone())?.judge(flow.packet))
}

#[cfg(test)]
mod tests;
