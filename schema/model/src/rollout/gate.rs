//! What is to become of a rollout now: the gate between two of its stages.
//!
//! - The next stage opens when every host of the opened ones is rendered with the change and proven to have it (converged, or degraded), by evidence of
//!   the one derivation.
//! - A failure counts after [`FAILED_LASTS_MS`], silence after [`UNKNOWN_LASTS_MS`]: what recovers at once halts nothing. More of them than were allowed
//!   halt the rollout; those that are allowed keep nothing waiting.
//! - A host that enrolled meanwhile is waited for by nobody, and its silence counts for nothing; that it failed counts as any other's failure.
//! - A stage that takes longer than it may, or that has no host left, halts it too: absence of evidence never opens a stage, unless an operator says so
//!   of a stage that has no host left.
//! - So does a renderer that knows no rollouts: it holds nobody back.
//! - Nothing is kept that cannot be seen anew: a process that starts again, or that saw nothing for a while, counts from then.

use std::collections::BTreeMap;

use crate::ids::{HostId, RolloutId};
use crate::status::State;

/// Milliseconds on the caller's monotonic clock.
pub type Millis = u64;

/// How long a failure must last to count: the one recovery snapshot follows it at once.
pub const FAILED_LASTS_MS: Millis = 5_000;
/// How long a host must be unknown to count: longer than an agent takes to come back from a restart, of itself or of its gateway.
pub const UNKNOWN_LASTS_MS: Millis = 60_000;
/// Two looks that are further apart than this do not show what lasted between them.
pub const LOOKS_APART_MAX_MS: Millis = 15_000;

/// What a rollout allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// How many hosts may fail.
    pub max_failed: u32,
    /// How many hosts may be unknown.
    pub max_unknown: u32,
    /// How long a stage may take.
    pub stage_timeout_ms: Millis,
}

/// A rollout that progresses, as it is seen now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look<'a> {
    /// Which.
    pub rollout: RolloutId,
    /// The number of its row: another one is another attempt, and nothing of before counts.
    pub attempt: u64,
    /// What it allows.
    pub rules: Rules,
    /// Whether all its stages are opened.
    pub is_last: bool,
    /// How long ago the last of them was opened, by the authority's clock.
    pub stage_age_ms: Millis,
    /// Whether every host of the opened stages is rendered with the change.
    pub is_rendered: bool,
    /// The hosts of the opened stages that are hosts still, by their ids.
    pub hosts: &'a [(HostId, State)],
    /// Those that enrolled after it began, by their ids: they are in no stage, and have the change since they are there.
    pub late: &'a [(HostId, State)],
    /// How many of the opened stages' hosts are of the one that was opened last.
    pub in_last_stage: usize,
    /// Whether an operator lets that stage pass though no host of it is left.
    pub is_excused: bool,
    /// Whether the renderer that leads knows rollouts.
    pub is_known_to_renderer: bool,
}

/// What is to become of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// The next stage opens.
    Open,
    /// Every host has the change, but for those that may fail or be unknown.
    Finish,
    /// No further stage opens.
    Halt(Halt),
}

/// Why a rollout halts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// More hosts failed than may.
    Failed(
        /// Which, by their ids.
        Vec<HostId>,
    ),
    /// More hosts are unknown than may be.
    Unknown(
        /// Which, by their ids.
        Vec<HostId>,
    ),
    /// The stage takes too long.
    Late(
        /// Those that are waited for; none if it is the renderer.
        Vec<HostId>,
    ),
    /// No host of the stage is left.
    Nobody,
    /// The renderer that leads holds nobody back.
    Renderer,
}

impl Halt {
    /// The hosts that it is about.
    #[must_use]
    pub fn hosts(&self) -> &[HostId] {
        match self {
            Self::Failed(hosts) | Self::Unknown(hosts) | Self::Late(hosts) => hosts,
            Self::Nobody | Self::Renderer => &[],
        }
    }

    /// The word in events and commands.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Unknown(_) => "unknown",
            Self::Late(_) => "late",
            Self::Nobody => "nobody",
            Self::Renderer => "renderer",
        }
    }
}

/// Since when one process sees hosts in trouble.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    of: Option<(RolloutId, u64)>,
    looked: Millis,
    troubled: BTreeMap<HostId, (State, Millis)>,
}

impl Gate {
    /// Takes a look, and says what is to become of the rollout.
    pub fn handle_look(&mut self, look: &Look<'_>, now: Millis) -> Step {
        let of = (look.rollout, look.attempt);
        if self.of != Some(of) || now.saturating_sub(self.looked) > LOOKS_APART_MAX_MS {
            self.troubled.clear();
        }
        (self.of, self.looked) = (Some(of), now);
        let is_trouble = |state: State| matches!(state, State::Failed | State::Unknown);
        let late = look.late.iter().filter(|(_, state)| *state == State::Failed);
        let of_stages = look.hosts.iter().filter(|(_, state)| is_trouble(*state));
        let seen = of_stages.chain(late).filter(|_| look.is_rendered);
        let before = std::mem::take(&mut self.troubled);
        self.troubled = seen
            .map(|(host, state)| {
                let since = before.get(host).filter(|(was, _)| was == state).map_or(now, |(_, since)| *since);
                (*host, (*state, since))
            })
            .collect();
        self.step(look, now)
    }

    /// The hosts that are in this state for as long as it takes to count.
    fn lasting(&self, state: State, lasts: Millis, now: Millis) -> Vec<HostId> {
        let is_lasting = |(was, since): &(State, Millis)| *was == state && now.saturating_sub(*since) >= lasts;
        self.troubled.iter().filter(|(_, seen)| is_lasting(seen)).map(|(host, _)| *host).collect()
    }

    fn step(&self, look: &Look<'_>, now: Millis) -> Step {
        if !look.is_known_to_renderer {
            return Step::Halt(Halt::Renderer);
        }
        if look.in_last_stage == 0 && !look.is_excused {
            return Step::Halt(Halt::Nobody);
        }
        let failed = self.lasting(State::Failed, FAILED_LASTS_MS, now);
        if failed.len() > look.rules.max_failed as usize {
            return Step::Halt(Halt::Failed(failed));
        }
        let unknown = self.lasting(State::Unknown, UNKNOWN_LASTS_MS, now);
        if unknown.len() > look.rules.max_unknown as usize {
            return Step::Halt(Halt::Unknown(unknown));
        }
        let is_waited_for = |(host, state): &&(HostId, State)| match state {
            State::Converged | State::Degraded => false,
            // Both are in the order of ids.
            State::Failed => failed.binary_search(host).is_err(),
            State::Unknown => unknown.binary_search(host).is_err(),
            State::Progressing => true,
        };
        let waited_for: Vec<HostId> = look.hosts.iter().filter(is_waited_for).map(|(host, _)| *host).collect();
        if look.is_rendered && waited_for.is_empty() {
            return if look.is_last { Step::Finish } else { Step::Open };
        }
        if look.stage_age_ms >= look.rules.stage_timeout_ms {
            return Step::Halt(Halt::Late(if look.is_rendered { waited_for } else { Vec::new() }));
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests;
