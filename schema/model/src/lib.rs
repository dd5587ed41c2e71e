//! The contracts that every part of Holdfast shares: identities, intent, rendered policy, digests, deltas, conditions, status.
//!
//! - Pure: no clock, no socket, no file, no randomness (invariant A1); `now` and seeds come in as values.
//! - What is rendered has one canonical form, one digest and one difference, and both ends link this one code for all three.
//!
//! It does not say how things travel (`holdfast-wire`), how they are authored in text (`holdfast-documents`) or how they are stored (`holdfast-store`).

pub mod address;
pub mod artifact;
pub mod brake;
pub mod condition;
pub mod desired;
pub mod digest;
pub mod drift;
pub mod fence;
pub mod ids;
pub mod intent;
pub mod interval_set;
pub mod label;
pub mod mutant;
pub mod name;
pub mod numbers;
pub mod operation;
pub mod policy;
pub mod report;
pub mod rollout;
pub mod secret;
pub mod silence;
pub mod statement;
pub mod status;
