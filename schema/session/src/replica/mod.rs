//! What a gateway's process does beside each single session, as pure machines: its lease, the facts that it writes, when it compares, whom it holds.
//!
//! - The gateway's shell and the simulation drive the same ones: limits and seeds come in, nothing of either is known here.
//! - They share nothing: a shell asks the lease before it writes or opens, and hands from one to the other what concerns both.

mod compares;
mod facts;
mod lease;
mod sessions;

pub use compares::{Compares, Pace};
pub use facts::{Facts, Kind, Limits, NoRoom, Sort};
pub use lease::Lease;
pub use sessions::{HeldNow, Newest, Outlived, Sessions, ahead};
