//! The bytes of a rendered policy, in two shapes that say the same.
//!
//! - **Tree** ([`tree_of`], [`assemble`]): one node per rule and per prefix chunk, each named by its digest; what Postgres stores. The root's digest
//!   names the whole body, and a one-element change makes new nodes on one path only.
//! - **Flat** ([`encode`], [`decode`]): the body in one piece; what a snapshot carries and the agent keeps. `docs/artifact.md` is its format.
//!
//! Both are canonical: one body has one encoding, and decoding refuses any other.

mod codec;
mod flat;
pub(crate) mod nodes;
mod tree;

pub use codec::CodecError;
pub use flat::{DecodeError, FORMAT, decode, encode};
pub use tree::{AssembleError, assemble, children, tree_of};

#[cfg(test)]
mod tests;
