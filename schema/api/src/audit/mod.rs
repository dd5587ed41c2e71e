//! The audit log: a chain of entries that proves itself.
//!
//! - An entry is one line of JSON. It holds one event exactly as it was received, and a hash over that event and the entry before it.
//! - A chain shows that nothing inside it was changed, taken out or moved; only a checkpoint shows that its end was not cut off or rewritten.
//! - A [`Checkpoint`] is a signed statement of the head. An auditor keeps one elsewhere and verifies against it later.
//!
//! Neither files nor signatures are handled here: the audit service writes, `holdfast-identity` signs.

mod chain;
mod checkpoint;
mod verify;

pub use chain::{Chain, Entry, EntryError, Hash, HashError, Head, Place};
pub use checkpoint::Checkpoint;
pub use verify::{Fault, FaultKind, Report, Verifier};
