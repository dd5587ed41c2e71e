//! The renderer as a pure machine: what is dirty, when it is due, what it becomes.
//!
//! - No clock, no database, no key: `now` comes in, commits and signatures are the shell's.
//! - A plan changes nothing here until the shell says that it was committed, so a failed commit is simply planned again.

mod coalesce;
mod fleet;

pub use coalesce::{Coalescer, MAX_WAIT_MS, Millis, QUIET_MS};
pub use fleet::{Fleet, Plan, Planned};
