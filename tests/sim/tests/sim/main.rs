//! What the simulation shows about itself, and what single schedules show.

mod command;
#[cfg(feature = "mutants")]
mod mutants;
mod schedules;
