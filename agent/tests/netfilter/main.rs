//! The agent against a real kernel, in network namespaces that the tests make and that end with them.
//!
//! - Needs root; nothing is written into the machine's own ruleset.

mod kernel;
mod support;
