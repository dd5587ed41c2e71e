//! The agent's half: when to dial, and one session.
//!
//! - [`Dialer`] lives as long as the agent and knows nothing of desired states; [`Session`] lives as long as its connection.
//! - Updates are checked and handed to the shell one at a time, in the order in which they came; each is answered once.
//! - A delta on another base is refused as a unit; nothing goes back under one authority; one version has one digest.
//! - Liveness does not wait for an apply.
//!
//! It does not apply, persist or read back: its shell does, and says how it went.

mod assembly;
mod content;
mod dial;
mod drift;
mod event;
mod session;
mod status;
mod updates;

pub use content::{ContentError, body_of_delta, body_of_snapshot, check_snapshot};
pub use dial::{DialState, Dialer, Ended};
pub use event::{Apply, ApplyResult, CloseCause, Config, Content, Event, Keys};
pub use session::Session;
pub use status::Settling;

#[cfg(test)]
mod tests;
