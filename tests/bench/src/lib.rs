//! Benchmarks, one example each: `cargo run --release -p holdfast-bench --example NAME`; here is what they share.
//!
//! - `bus`: events from Postgres into JetStream and into the audit log (P7, P24).
//! - `change`: a change committed until its outcome is stored (P1).
//! - `kernel`: a policy into nftables and onto the disk (P2's half of a host, P20, P21, P22).
//! - `render`: a fleet rendered and stored (P16, P17, P18, P19).
//! - `sessions`: many agents and one gateway (P3, P8, P9, P11).
//! - `wire`: bytes of policies and deltas (P14, P15).
//!
//! A figure is a ratio to a floor or peer that ran in turn with it; no test is timed, and each benchmark has a test that it still measures.

pub mod figures;
pub mod paired;
mod report;
pub mod typical;

pub use report::{Machine, Over, Report, Strict};
