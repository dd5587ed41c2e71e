//! Both halves of a session as pure machines, with the waiting between sessions, the watching within one, the scheduler over many, and what a gateway's
//! process does beside them.
//!
//! - No clock, no socket, no task: `now` comes in as [`time::Instant`], bytes go out by `poll_transmit`, and `poll_timeout` says when to come back
//!   and why. The same inputs give the same outputs; randomness is a seed.
//! - What belongs to a session lives inside its open state and dies with it (invariant A6): no tip, delta or update crosses a session.
//! - Every queue has a cap in [`limits`].
//!
//! It does not read desired states, check certificates, hold keys or touch a kernel: shells do, and answer what the machines ask.

pub mod agent;
pub mod backoff;
mod budget;
pub mod gateway;
pub mod limits;
pub mod liveness;
pub mod random;
pub mod replica;
pub mod scheduler;
pub mod time;
