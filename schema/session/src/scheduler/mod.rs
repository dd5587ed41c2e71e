//! The delivery scheduler of a gateway: which session's component is built next.
//!
//! - A *build* is one answer to what a session wants: a row read, a body found, a delta computed. Builds are what costs; so many are under way at
//!   most, and never two of one slot.
//! - Admission never drops. A publication leaves one mark per slot, however often it is repeated, and its place in a sequence: a build that began
//!   before it does not answer it. What concerns a namespace or the fleet is a cursor over the held sessions, and no mark until the cursor comes by.
//! - Three lanes share the builds: what concerns few hosts has a reserve that nobody else may use, first states and wide work have floors. So no
//!   lane waits for another one's end, under any load.
//! - A failed build comes again after a wait with full jitter; the result of a build whose session is over is dropped.
//! - A slow reader holds a mark and no body, and nothing is ever taken from it: there is no input that evicts a session.
//! - Control and liveness do not pass through here.
//!
//! It reads nothing and writes nothing: the shell runs the builds and tells how they ended. Why there are three lanes: ADR 0011.

mod capacity;
mod circle;
mod counts;
mod event;
mod machine;
mod marks;
mod queues;
mod slot;
mod turns;

pub use capacity::{Capacity, CapacityError};
pub use counts::{Count, Happening};
pub use event::{Asker, Ended, Lane, News, PerLane, Reach, Scope, Start, Ticket};
pub use machine::Scheduler;
pub use turns::{Asked, Turns};

#[cfg(test)]
mod tests;
