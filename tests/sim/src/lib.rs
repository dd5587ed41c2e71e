//! A simulation of Holdfast: its real machines over a network, a database, a bus, disks and clocks that fail, checked after every step.
//!
//! - One seed is one schedule: the same seed does the same, on any machine and by any number of threads.
//! - The reference model shares no code with what it judges; the decisions that it judges are the product's own.
//! - Two phases: everything fails, then everything is mended and must come to rest within a bound.
//!
//! What is real and what is modelled, and how to read a seed that failed: `docs/simulation.md`. Why it is as it is: ADR 0015.

mod estate;
mod keys;
mod pipe;
mod plan;
mod queue;
mod reference;
mod run;
mod store;
mod tally;
mod trace;
mod violation;
mod world;

pub use plan::{Kind, Plan, Repair};
pub use run::{Failure, Outcome, Report, Run, replay, run_schedule, seed_of};
pub use tally::Tally;
pub use violation::{Invariant, Violation};
