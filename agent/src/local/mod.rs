//! The local socket: what a person on this host asks the running agent.
//!
//! - 0600 in a 0700 folder: whoever may open it may read the state folder.
//! - One question and one answer a connection, each a line of JSON, both bounded in size and time.
//! - Reached through the folder's descriptor, so that a deep state folder does not meet the 108 bytes of a socket's path.

mod client;
mod server;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use client::{ask, ask_within, tell};
pub use server::Server;

pub(crate) use server::{read_question, write_answer};

use crate::service::Status;

/// The socket's name in the state folder.
pub const SOCKET: &str = "agent.sock";
/// A question fits a line of this size, an answer of a host with 10,000 rules one of that size.
const QUESTION_BYTES_MAX: u64 = 4 << 10;
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// What is in force, and how it is known.
    Status,
    /// The same, with every rule's counters.
    Counters,
    /// Read the standalone file again, or the local policy of a host that gateways serve.
    Reload,
    /// Take our table away and end.
    Down,
}

/// What comes back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Question::Status`] and [`Question::Counters`].
    Status(Box<Status>),
    /// To [`Question::Reload`]: the outcome.
    Reloaded(crate::service::LastOutcome),
    /// To [`Question::Reload`] of a host that gateways serve: its local policy was read again.
    Local {
        /// Whether there is one; it is in force then.
        in_force: bool,
    },
    /// To [`Question::Down`].
    Down {
        /// Whether there was a table.
        removed: bool,
    },
    /// It could not be done.
    Failed(
        /// Why.
        String,
    ),
}

/// Why the socket does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there.
    #[error("no agent runs on {}", .0.display())]
    NotRunning(PathBuf),
    /// The socket fails.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody listens and says nothing: it is held still, or busy.
    #[error("the agent on {} says nothing for {} s: it is held still, or busy", .path.display(), limit.as_secs())]
    Silent {
        /// Where it listens.
        path: PathBuf,
        /// For how long it was waited.
        limit: Duration,
    },
    /// The answer cannot be read.
    #[error("the agent's answer cannot be read")]
    Answer(#[source] serde_json::Error),
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::NotRunning(_) => "agent-not-running",
            Self::Io { .. } => "agent-socket",
            Self::Silent { .. } => "agent-silent",
            Self::Answer(_) => "agent-answer",
        }
    }
}
