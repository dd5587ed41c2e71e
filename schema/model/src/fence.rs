//! Under which session a write about a host counts: the decisions of the authority, made under the lock of the host's row.
//!
//! - Numbers of sessions only rise per host, and a new session ends the one before it.
//! - A write counts under the newest session while that is open, and under no other; an end ends its own session and no other.
//! - An outcome counts once, in the order of the session's updates.

use crate::mutant::{Faults, Mutant};
use crate::numbers::{SessionEpoch, UpdateSeq};

/// A host's newest session as a writer finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSession {
    session_epoch: SessionEpoch,
    is_open: bool,
    faults: Faults,
}

/// What the beginning of a session did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The number of the new session.
    pub session_epoch: SessionEpoch,
    /// The session that was open and ended by it.
    pub superseded: Option<SessionEpoch>,
}

impl HostSession {
    /// As it is stored; the number is zero before the first session.
    #[must_use]
    pub fn new(session_epoch: SessionEpoch, is_open: bool) -> Self {
        Self { session_epoch, is_open, faults: Faults::default() }
    }

    /// The same in an authority with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// Its number; zero before the first.
    #[must_use]
    pub const fn session_epoch(self) -> SessionEpoch {
        self.session_epoch
    }

    /// Whether it was begun and has not ended.
    #[must_use]
    pub const fn is_open(self) -> bool {
        self.is_open
    }

    /// Whether a write under this number counts.
    #[must_use]
    pub fn admits(self, session_epoch: SessionEpoch) -> bool {
        let is_newest = self.session_epoch == session_epoch || self.faults.has(Mutant::StaleEpochAdmitted);
        self.is_open && is_newest
    }

    /// Begins the next session; `None` past the last number, which no host reaches.
    pub fn begin(&mut self) -> Option<Begun> {
        let session_epoch = self.session_epoch.next()?;
        let superseded = self.is_open.then_some(self.session_epoch);
        (self.session_epoch, self.is_open) = (session_epoch, true);
        Some(Begun { session_epoch, superseded })
    }

    /// Ends the session of this number; false if it is not the newest, or has ended already.
    pub fn end(&mut self, session_epoch: SessionEpoch) -> bool {
        let is_its_own = self.session_epoch == session_epoch || self.faults.has(Mutant::LateCleanupUnfenced);
        let ends = self.is_open && is_its_own;
        self.is_open &= !ends;
        ends
    }
}

/// The last outcome of one (host, component) that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastOutcome<S> {
    /// Of which session.
    pub session_epoch: SessionEpoch,
    /// Of which update.
    pub update_seq: UpdateSeq,
    /// What the host signed, if anything was recorded.
    pub signature: Option<S>,
}

/// What comes of an outcome that is to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// It is what is known of the host now.
    Current,
    /// It was recorded before: the same report, after an answer that was lost.
    Repeated,
    /// It is from a session that is not the host's; recorded as a fault, nothing else.
    StaleSession,
    /// A later update of this session was answered before; recorded as a fault, nothing else.
    OutOfOrder,
    /// The host is not enrolled; not recorded.
    UnknownHost,
}

/// Judges an outcome by the host's session and by what was recorded last.
pub fn judge<S: PartialEq>(
    session: HostSession,
    last: &LastOutcome<S>,
    (session_epoch, update_seq): (SessionEpoch, UpdateSeq),
    signature: &S,
) -> Recorded {
    let is_same = last.session_epoch == session_epoch && last.update_seq == update_seq;
    if is_same && last.signature.as_ref() == Some(signature) {
        return Recorded::Repeated;
    }
    if !session.admits(session_epoch) {
        return Recorded::StaleSession;
    }
    if last.session_epoch == session_epoch && last.update_seq >= update_seq {
        return Recorded::OutOfOrder;
    }
    Recorded::Current
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn epoch(raw: u64) -> SessionEpoch {
        SessionEpoch::from_raw(raw)
    }

    #[test]
    fn the_newest_open_session_counts_and_no_other() {
        let mut session = HostSession::new(SessionEpoch::ZERO, false);
        assert!(!session.admits(epoch(0)), "there was none yet");
        assert_eq!(session.begin(), Some(Begun { session_epoch: epoch(1), superseded: None }));
        assert_eq!(session.begin(), Some(Begun { session_epoch: epoch(2), superseded: Some(epoch(1)) }));
        assert_eq!([1, 2, 3].map(|raw| session.admits(epoch(raw))), [false, true, false]);
        assert_eq!(HostSession::new(epoch(u64::MAX), true).begin(), None);
    }

    #[test]
    fn a_late_end_of_an_older_session_leaves_the_newer_one_open() {
        let mut session = HostSession::new(epoch(2), true);
        assert!(!session.end(epoch(1)) && session.is_open());
        assert!(session.end(epoch(2)) && !session.is_open());
        assert!(!session.end(epoch(2)), "it ends once");
        assert!(!session.admits(epoch(2)));
    }

    #[test]
    fn an_outcome_counts_once_and_in_the_order_of_its_session() {
        let session = HostSession::new(epoch(2), true);
        let seq = UpdateSeq::from_raw;
        let last = LastOutcome { session_epoch: epoch(2), update_seq: seq(3), signature: Some("signed") };
        assert_eq!(judge(session, &last, (epoch(2), seq(4)), &"other"), Recorded::Current);
        assert_eq!(judge(session, &last, (epoch(2), seq(3)), &"signed"), Recorded::Repeated);
        assert_eq!(judge(session, &last, (epoch(2), seq(3)), &"other"), Recorded::OutOfOrder);
        assert_eq!(judge(session, &last, (epoch(2), seq(2)), &"other"), Recorded::OutOfOrder);
        assert_eq!(judge(session, &last, (epoch(1), seq(9)), &"other"), Recorded::StaleSession);
        let of_before = LastOutcome { session_epoch: epoch(1), ..last };
        assert_eq!(judge(session, &of_before, (epoch(2), seq(1)), &"other"), Recorded::Current);
        assert_eq!(
            judge(HostSession::new(epoch(2), false), &of_before, (epoch(2), seq(1)), &"x"),
            Recorded::StaleSession
        );
    }
}
