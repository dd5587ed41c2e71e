//! Benchmarks, one example each: `cargo run --release -p holdfast-bench --example NAME`; here is what they share.
//!
//! - `change`: a change committed until its outcome is stored (P1).
//! - `kernel`: a policy into nftables and onto the disk (P2's half of a host, P20, P21, P22).
//! - `render`: the pure renderer over a large fleet.
//!
//! A figure is a ratio to a floor or peer that ran in turn with it; no test is timed, and each benchmark has a test that it still measures.

pub mod figures;
pub mod paired;
mod report;
pub mod typical;

pub use report::{Machine, Over, Report, Strict};
