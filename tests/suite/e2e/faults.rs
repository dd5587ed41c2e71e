//! Faults of servers, network and processes through the whole plane: hosts go on enforcing, then all of it converges, and no history lost a line.
//!
//! - One story for each kind of fault; each ends with everything proven.
//! - The full spans of the catalogue of faults are in `long_faults`; the stories have the same faults, shorter.

mod broker;
mod long_chaos;
mod long_faults;
mod nats;
mod network;
mod postgres;
mod storm;
mod watch;

pub(crate) use watch::is_rendered;
