//! Authored text to typed intent and back: documents of two dialects in YAML or JSON, and the estates that tests and the lab read.
//!
//! - Pure: text and names go in, values come out; nothing here opens a file.
//! - All faults of an input are found at once, each with its file, document, path and a rule name that never changes.
//! - What a document does not say is never guessed from a field that it misspells: an unknown field is a fault.
//! - Every size is bounded in `limits`, before memory is spent on it.
//!
//! It does not look across objects (a policy may name a group that is authored later); only a repeated name is seen here.

mod address_list;
mod cursor;
pub mod estate;
mod fault;
mod kinds;
pub mod limits;
pub mod near;
mod read;
mod scalar;
mod selector;
mod tree;
mod write;

pub use address_list::{AddressListError, read_address_list};
pub use fault::{Fault, Faults, RuleName};
pub use read::{Source, read};
pub use write::write;

#[cfg(test)]
mod tests;
