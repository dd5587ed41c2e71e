//! The gateway's half of a session.
//!
//! - Hello → HelloAck → a snapshot of every component, whatever Hello claims → then whatever is newer, from this session's tip.
//! - One slot per component. It holds a mark, not work: what is written is read when the socket has room for it, never below the tip.
//! - Control goes before updates, liveness before all; a slow reader costs one staged update per component.
//! - An outcome counts only for an update of this session, with its version and digest. After a failure there is one recovery snapshot.
//!
//! It does not read the store, verify signatures or compute deltas: it asks, and its shell answers.

mod drift;
mod event;
mod flight;
mod inventory;
mod open;
mod session;
mod slot;
mod status;

pub use drift::DriftBudget;
pub use event::{
    Admission, Answer, AnswerError, Cause, CloseCause, Config, DeltaOffer, Event, FaultOrigin, Form, Supply, Want,
};
pub use inventory::InventoryTurns;
pub use session::Session;

#[cfg(test)]
mod tests;
