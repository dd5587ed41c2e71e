//! What every process of Holdfast needs: configuration, logs, supervised tasks, shutdown, health, metrics, exit codes.
//!
//! - A process never loses a task in silence: every one has a name, a panic is a log line, and the end of a critical one ends the process in order.
//! - A setting that nobody knows stops the start; a secret is never shown, not by `Debug`, not by `config show`.
//! - The admin listener has no dependency of its own: it answers while everything else is away.
//!
//! It knows nothing of hosts, policies, databases or brokers.

pub mod accept;
pub mod admin;
pub mod body;
pub mod chain;
pub mod config;
pub mod exit;
pub mod fail_point;
pub mod health;
pub mod https;
pub mod line;
pub mod log;
pub mod metrics;
pub mod process;
pub mod service;
pub mod shutdown;
pub mod tasks;
mod unstalled;

pub use chain::Chain;
pub use exit::Exit;
pub use fail_point::fail_point;
pub use health::{Check, Health};
pub use process::Process;
pub use shutdown::Shutdown;
pub use tasks::Tasks;

/// What a binary says of itself in logs, metrics and `/version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Build {
    /// The service's name, such as `gateway`; also the prefix of its own variables.
    pub service: &'static str,
    /// The version of its crate.
    pub version: &'static str,
    /// The commit that it was built from, where the build knew it.
    pub commit: Option<&'static str>,
}
