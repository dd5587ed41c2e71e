//! The audit service: a consumer of the event stream that keeps its own log, apart from the control plane's database.
//!
//! - It reads the stream and writes files; it has no way into Postgres and none to change anything in NATS.
//! - Its door reads: entries, checkpoints, health.

pub mod config;
pub mod door;
pub mod keeper;
pub mod log;
pub mod order;
pub mod run;
