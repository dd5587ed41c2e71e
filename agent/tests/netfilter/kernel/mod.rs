//! Tests that write into a kernel.
#![expect(clippy::unwrap_used, clippy::unwrap_in_result, reason = "tests fail by panicking")]

mod apply;
mod beside;
#[cfg(feature = "test-hooks")]
mod confirm;
mod cut;
mod drift;
mod edit;
mod enrol;
mod failsafe;
mod faults;
mod flows;
mod forwarded;
mod gateways;
#[cfg(feature = "test-hooks")]
mod hook;
mod hosts;
mod lies;
mod local;
mod long_firewalls;
mod others;
mod polls;
mod process;
mod session;
mod size;
mod status;
mod steady;
mod units;
mod versions;
