//! The bus: JetStream as a bell and a copy, never as the only holder of anything.
//!
//! - The only crate that names `async_nats` (A2). What travels is typed in `holdfast-events`, which cannot hold a secret (A5).
//! - A hint wakes and carries no work (A7). Losing one costs time: every way of losing hints ends in [`Wake::Lapsed`], on which the listener compares
//!   what it holds with Postgres.
//! - A directive is said past JetStream to whoever listens, and kept by nobody.
//! - The event stream is written by the relay alone, in order, each event once ([`EventLog`]); it can always be written again from Postgres.
//! - Only the renderer creates streams, and it refuses to run on one whose echoed configuration differs from the wanted one.
//!
//! It stores nothing and knows no Postgres.

mod connect;
mod directives;
mod error;
mod event_log;
mod event_reader;
mod hints;
mod streams;

pub use connect::{Bus, BusConfig, Link, StreamReplicas};
pub use error::BusError;
pub use event_log::{EventLog, OutgoingEvent, Published, TAIL_MAX};
pub use event_reader::{EventReader, Incoming, ReadFrom};
pub use hints::{HintListener, Wake};
pub use streams::{EVENTS_STREAM, HINTS_STREAM};
