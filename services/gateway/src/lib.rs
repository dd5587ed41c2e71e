//! The gateway: the process with two doors, one for agents and one for operators.
//!
//! - Each door has its own database role, its own pool and its own user of the bus; the two share no state but what the authority holds.
//! - A gateway holds nothing that cannot be read again: any replica can take over any host.

pub mod agents;
pub mod bell;
pub mod config;
mod directives;
pub mod operators;
pub mod run;
