//! The one derivation of truth about the fleet, used by the API, the commands, metrics and audit alike.
//!
//! - `converged` is a proof from complete, fresh evidence. Absence of evidence is `unknown`, never good news.
//! - An empty set of hosts is never converged.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::condition::{Condition, ConditionType, Holds};
use crate::desired::Stamp;

/// How long evidence is fresh, in milliseconds: three liveness intervals of 15 s.
pub const FRESH_MS: u64 = 45_000;

/// The state of one (host, component), of a host, or of a revision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Proven to hold the latest version.
    Converged,
    /// Holds the latest version, but a condition that does not block is false.
    Degraded,
    /// On its way.
    Progressing,
    /// Did not take the latest version; holds its last good one.
    Failed,
    /// Not known.
    Unknown,
}

impl State {
    /// The word in columns and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Degraded => "degraded",
            Self::Progressing => "progressing",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Evidence about one (host, component).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence<'a> {
    /// What was rendered last; absent before the first render.
    pub latest: Option<Stamp>,
    /// What the host last said that it holds, in a verified outcome of its current session.
    pub applied: Option<Stamp>,
    /// What the last verified outcome of the current session named, if it failed.
    pub failed: Option<Stamp>,
    /// How long ago the gateway last heard the host in its open session; absent without an open session.
    pub heard_ms_ago: Option<u64>,
    /// Conditions as last reported.
    pub conditions: &'a [Condition],
}

/// The state of one (host, component).
#[must_use]
pub fn derive(evidence: &Evidence<'_>) -> State {
    let (Some(latest), Some(heard_ms_ago)) = (evidence.latest, evidence.heard_ms_ago) else {
        return State::Unknown;
    };
    if heard_ms_ago >= FRESH_MS {
        return State::Unknown;
    }
    if evidence.failed == Some(latest) {
        return State::Failed;
    }
    if evidence.applied != Some(latest) {
        return State::Progressing;
    }
    let seen = |kind: ConditionType| {
        let at = |condition: &&Condition| condition.kind == kind && condition.observed_version == Some(latest.version);
        evidence.conditions.iter().find(at).map_or(Holds::Unknown, |condition| condition.status)
    };
    let (blocking, others): (Vec<_>, Vec<_>) = ConditionType::ALL.into_iter().partition(|kind| kind.is_blocking());
    match (blocking.into_iter().map(seen).max_by_key(rank), others.into_iter().map(seen).max_by_key(rank)) {
        (Some(Holds::False), _) => State::Failed,
        (Some(Holds::Unknown) | None, _) => State::Progressing,
        (Some(Holds::True), Some(Holds::False)) => State::Degraded,
        (Some(Holds::True), Some(Holds::True | Holds::Unknown) | None) => State::Converged,
    }
}

/// The worst comes last.
const fn rank(holds: &Holds) -> u8 {
    match holds {
        Holds::True => 0,
        Holds::Unknown => 1,
        Holds::False => 2,
    }
}

/// How many hosts are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// All of them.
    pub total: u64,
    /// See [`State::Converged`].
    pub converged: u64,
    /// See [`State::Degraded`].
    pub degraded: u64,
    /// See [`State::Progressing`].
    pub progressing: u64,
    /// See [`State::Failed`].
    pub failed: u64,
    /// See [`State::Unknown`].
    pub unknown: u64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, state: State) {
        self.total += 1;
        *match state {
            State::Converged => &mut self.converged,
            State::Degraded => &mut self.degraded,
            State::Progressing => &mut self.progressing,
            State::Failed => &mut self.failed,
            State::Unknown => &mut self.unknown,
        } += 1;
    }

    /// The state of them together: the first of failed, unknown, progressing, degraded that any is in. None at all is unknown.
    #[must_use]
    pub fn roll_up(&self) -> State {
        if self.total == 0 {
            return State::Unknown;
        }
        let worst = [
            (self.failed, State::Failed),
            (self.unknown, State::Unknown),
            (self.progressing, State::Progressing),
            (self.degraded, State::Degraded),
        ];
        worst.into_iter().find(|(count, _)| *count > 0).map_or(State::Converged, |(_, state)| state)
    }
}

impl FromIterator<State> for Counts {
    fn from_iter<T: IntoIterator<Item = State>>(states: T) -> Self {
        let mut counts = Self::default();
        states.into_iter().for_each(|state| counts.add(state));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Reason;
    use crate::digest::Digest;
    use crate::numbers::Version;

    fn mk_stamp(version: u64) -> Stamp {
        Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(&version.to_be_bytes()) }
    }

    fn mk_conditions(version: u64, status: Holds) -> Vec<Condition> {
        let observed_version = Version::from_raw(version);
        let one = |kind| Condition { kind, status, reason: Reason::Done, message: String::new(), observed_version };
        ConditionType::ALL.map(one).to_vec()
    }

    #[test]
    fn converged_needs_every_piece_of_evidence() {
        let conditions = mk_conditions(2, Holds::True);
        let proof = Evidence {
            latest: Some(mk_stamp(2)),
            applied: Some(mk_stamp(2)),
            failed: None,
            heard_ms_ago: Some(FRESH_MS - 1),
            conditions: &conditions,
        };
        assert_eq!(derive(&proof), State::Converged);
        assert_eq!(derive(&Evidence { latest: None, ..proof.clone() }), State::Unknown);
        assert_eq!(derive(&Evidence { heard_ms_ago: None, ..proof.clone() }), State::Unknown);
        assert_eq!(derive(&Evidence { heard_ms_ago: Some(FRESH_MS), ..proof.clone() }), State::Unknown);
        assert_eq!(derive(&Evidence { applied: Some(mk_stamp(1)), ..proof.clone() }), State::Progressing);
        assert_eq!(derive(&Evidence { applied: Some(mk_stamp(3)), ..proof.clone() }), State::Progressing);
        assert_eq!(derive(&Evidence { applied: None, failed: Some(mk_stamp(2)), ..proof.clone() }), State::Failed);
        assert_eq!(
            derive(&Evidence { conditions: &mk_conditions(1, Holds::True), ..proof.clone() }),
            State::Progressing
        );
        assert_eq!(derive(&Evidence { conditions: &mk_conditions(2, Holds::False), ..proof.clone() }), State::Failed);
        assert_eq!(derive(&Evidence { conditions: &conditions[..2], ..proof }), State::Progressing);
    }

    #[test]
    fn same_version_with_another_digest_is_not_converged() {
        let other = Stamp { digest: Digest::of(b"other"), ..mk_stamp(2) };
        let evidence = Evidence {
            latest: Some(mk_stamp(2)),
            applied: Some(other),
            failed: None,
            heard_ms_ago: Some(0),
            conditions: &mk_conditions(2, Holds::True),
        };
        assert_eq!(derive(&evidence), State::Progressing);
    }

    #[test]
    fn nobody_is_not_everybody() {
        assert_eq!(Counts::default().roll_up(), State::Unknown);
        assert_eq!(Counts::from_iter([State::Converged, State::Failed, State::Unknown]).roll_up(), State::Failed);
        assert_eq!(Counts::from_iter([State::Converged; 3]).roll_up(), State::Converged);
    }
}
