//! Benchmarks, one example each: `cargo run --release -p holdfast-bench --example NAME`.
//!
//! - `change`: a change committed until its outcome is stored, beside P1's floor of the same run.
//! - `render`: the pure renderer over a large fleet.
//!
//! A figure is a ratio to a floor or peer that ran in turn with it; nothing here is a test, and no test is timed.
