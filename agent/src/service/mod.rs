//! The running agent: one thread for kernel and disk, one for everything that waits.
//!
//! - Start: lock → last good from disk into the kernel → only then anything else.
//! - Nothing that waits for the kernel holds up what answers; commands to the worker queue up to a cap.
//! - Ending, by signal or crash, leaves everything enforced.

mod confirm;
mod drift;
mod forwarding;
mod lock;
mod notices;
mod run;
mod starts;
mod status;
mod war;
mod worker;

pub use drift::DriftLog;
pub use forwarding::Forwarded;
pub(crate) use forwarding::default_route_interfaces;
pub use lock::{Lock, LockError};
pub use run::{Config, Error, Source, run, take_down};
pub use status::{Counter, LastDrift, LastOutcome, LedgerState, PolicyStatus, Status, TableStatus};
pub(crate) use worker::{Standing, unix_ms};
pub use worker::{Worker, WorkerGone};
