//! What the simulation shows about itself, and what single schedules show.

#[cfg(feature = "mutants")]
mod mutants;
mod schedules;
