//! The agent of a host: puts rendered policies into the kernel, proves that they are there, keeps the last good one.
//!
//! - `plan` says what the kernel is to hold (pure); `nft` puts it there and reads it back (the only netlink); `ledger` keeps last good on disk;
//!   `engine` orders the three; `standalone` reads a policy from a file, `session` takes it from
//!   a gateway, `enrolment` is who the host is there; `local` is the socket for commands on this host.
//! - Stop or crash leaves everything enforced; only `down` takes our table away.
//!
//! It reaches neither the database nor the bus, and renders nothing: what it enforces is concrete.

pub mod cli;
pub mod engine;
pub mod enrolment;
pub mod ledger;
pub mod local;
pub mod nft;
pub mod plan;
pub mod service;
pub mod session;
pub mod standalone;
