//! What a gateway takes of a host's word of itself as a whole, and when it asks for it.
//!
//! - A status that is refused costs the host nothing but that status: it counts against no session, however many there are.
//! - Refusals are told a few at once and then seldom; they are counted all.
//! - The full status is asked for where liveness names another one than was taken last, at most once in a while: an agent that names another one
//!   each time gets no more questions for it.

use holdfast_model::digest::Digest;
use holdfast_wire::code::FaultCode;
use holdfast_wire::message::StatusReport;

use crate::budget::Budget;
use crate::limits::{REFUSAL_PAUSE, REFUSALS_AT_ONCE, REPORT_ASK_PAUSE, REPORTS_TAKEN_AT_ONCE, REPORTS_TAKEN_PAUSE};
use crate::time::Instant;

/// What was taken in one session.
#[derive(Debug)]
pub(super) struct Statuses {
    seq: u64,
    taken: Option<Digest>,
    budget: Budget,
    refusals: Budget,
    asked_at: Option<Instant>,
}

impl Statuses {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            seq: 0,
            taken: None,
            budget: Budget::new(REPORTS_TAKEN_AT_ONCE, REPORTS_TAKEN_PAUSE, now),
            refusals: Budget::new(REFUSALS_AT_ONCE, REFUSAL_PAUSE, now),
            asked_at: None,
        }
    }

    /// Takes one whose signature is good.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn take(&mut self, status: &StatusReport, now: Instant) -> Result<(), FaultCode> {
        if status.seq <= self.seq {
            return Err(FaultCode::StaleStatus);
        }
        if !self.budget.take(now) {
            return Err(FaultCode::TooOften);
        }
        (self.seq, self.taken) = (status.seq, Some(status.report.digest()));
        Ok(())
    }

    /// Whether a refusal is told, beside being counted.
    pub(super) fn is_told(&mut self, now: Instant) -> bool {
        self.refusals.take(now)
    }

    /// Whether the agent is to be asked, by what its liveness names.
    pub(super) fn is_asked(&mut self, named: Option<Digest>, now: Instant) -> bool {
        let is_other = named.is_some() && named != self.taken;
        let is_soon = self.asked_at.is_some_and(|at| now < at.plus(REPORT_ASK_PAUSE));
        if !is_other || is_soon {
            return false;
        }
        self.asked_at = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::desired::{Component, Stamp};
    use holdfast_model::numbers::{UpdateSeq, Version};
    use holdfast_model::report::HostReport;

    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn mk_status(seq: u64) -> StatusReport {
        let stamp = Stamp { version: Version::FIRST, digest: Component::Policy.empty_digest() };
        let report = HostReport::of_health(&[(Component::Policy, stamp)], UpdateSeq::ZERO, 0);
        StatusReport { seq, report, signature: [0; 64] }
    }

    #[test]
    fn one_that_is_not_newer_is_stale_and_a_flood_is_passed_over_without_end() {
        let mut statuses = Statuses::new(at(0));
        assert_eq!(statuses.take(&mk_status(2), at(0)), Ok(()));
        assert_eq!(statuses.take(&mk_status(2), at(0)), Err(FaultCode::StaleStatus));
        assert_eq!(statuses.take(&mk_status(1), at(0)), Err(FaultCode::StaleStatus));
        let taken = (3..1_000).filter(|seq| statuses.take(&mk_status(*seq), at(0)).is_ok()).count();
        assert!(taken < 32, "{taken}");
        assert_eq!(statuses.take(&mk_status(1_000), at(0)), Err(FaultCode::TooOften));
        assert_eq!(statuses.take(&mk_status(1_000), at(500)), Ok(()), "what was passed over may come again");
    }

    #[test]
    fn an_agent_that_keeps_its_own_pauses_is_never_passed_over() {
        use crate::limits::{REPORT_AT_ONCE, REPORT_PAUSE};
        let (mut statuses, mut theirs) = (Statuses::new(at(0)), Budget::new(REPORT_AT_ONCE, REPORT_PAUSE, at(0)));
        let mut seq = 0;
        for ms in (0..100_000).step_by(7).filter(|ms| theirs.take(at(*ms))) {
            seq += 1;
            assert_eq!(statuses.take(&mk_status(seq), at(ms)), Ok(()), "{seq} at {ms}");
        }
        assert!(seq > 100);
    }

    #[test]
    fn the_full_status_is_asked_for_where_another_one_is_named_and_not_without_end() {
        let mut statuses = Statuses::new(at(0));
        let (named, other) = (Some(mk_status(1).report.digest()), Some(Component::Policy.empty_digest()));
        assert!(!statuses.is_asked(None, at(0)), "an agent that said nothing yet");
        assert!(statuses.is_asked(named, at(0)));
        assert!(!statuses.is_asked(named, at(9_999)) && statuses.is_asked(named, at(10_000)));
        assert_eq!(statuses.take(&mk_status(1), at(10_000)), Ok(()));
        assert!(!statuses.is_asked(named, at(99_000)), "it was taken");
        let asked = (100_000..200_000).filter(|ms| statuses.is_asked(if ms % 2 == 0 { named } else { other }, at(*ms)));
        assert_eq!(asked.count(), 10, "one that names another each time");
    }
}
