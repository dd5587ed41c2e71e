//! Rollouts: a change that goes through the fleet in stages, and stops where it does harm.
//!
//! - Who is in which stage is settled when a rollout begins ([`stage`]); a host that is in none of the opened stages is held at the revision before.
//! - Whether the next stage opens is decided by evidence alone ([`gate`]). No clock, no database: both come in.

pub mod gate;
pub mod stage;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far a rollout is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutState {
    /// It opens one stage after the other.
    Progressing,
    /// An operator wants no further stage to open.
    Paused,
    /// It opens no further stage: hosts failed, or are not heard, or it took too long.
    Halted,
    /// Every host has the change.
    Finished,
    /// What it changed is as it was before.
    Aborted,
}

/// The text is no state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the state of a rollout is one of progressing, paused, halted, finished, aborted")]
pub struct RolloutStateError;

impl RolloutState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Progressing, Self::Paused, Self::Halted, Self::Finished, Self::Aborted];

    /// The word in columns, events and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Progressing => "progressing",
            Self::Paused => "paused",
            Self::Halted => "halted",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
        }
    }

    /// Whether it still holds hosts back, or could.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Progressing | Self::Paused | Self::Halted => true,
            Self::Finished | Self::Aborted => false,
        }
    }
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for RolloutState {
    type Err = RolloutStateError;

    fn from_str(text: &str) -> Result<Self, RolloutStateError> {
        Self::ALL.into_iter().find(|one| one.word() == text).ok_or(RolloutStateError)
    }
}
