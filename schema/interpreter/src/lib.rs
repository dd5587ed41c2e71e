//! An independent reader of the flat bytes of a policy body, and what they let pass.
//!
//! - Written from `docs/artifact.md` alone; it depends on no other crate of the project and shares no code with renderer, codec or evaluator. What
//!   two readers agree on is what the bytes say.
//! - It refuses every byte string that is not the canonical encoding of a body, and memory stays in proportion to the bytes.
//! - It reads each address as itself: no selector, label or name is known here.
//!
//! It does not read the nodes of the artifact tree, compute digests or know hosts.

mod body;
mod bytes;
mod decide;
mod spans;

pub use body::{Action, Artifact, Error, Key, Mode};
pub use decide::{Decision, Direction, Packet, Services, Verdict};
pub use spans::Spans;
