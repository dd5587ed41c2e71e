//! The agents' door: sessions, polls, enrolment, echo.
//!
//! - Gateways carry, they do not decide: the renderer signs what goes out, hosts sign what comes back, and both are checked by the other end.
//! - Session state lives in the session's task and dies with it; what several share is by digest or by host.
//! - The authority is asked by arrays only, through [`store::AgentsStore`].
//!
//! It renders nothing, decides on no enrolment and serves no operator.

mod absence;
mod addresses;
mod admission;
mod answers;
mod batch;
mod cache;
mod clock;
mod compare;
mod connections;
mod context;
mod door;
mod enrol;
mod gauges;
mod hooks;
mod lease;
pub mod limits;
mod mailbox;
mod openings;
mod outgoing;
mod pace;
mod pg;
mod polls;
mod reader;
mod recorder;
mod registry;
mod renewals;
mod session;
mod start;
pub mod store;
mod sync;
mod words;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub use hooks::Hooks;
pub use limits::DRAIN_SPREAD_MAX;
pub use pace::Pace;
pub use pg::{PgAgents, PgError};
pub use start::{AgentsDoor, DoorConfig, start};
