//! What a gateway takes of a host's word of itself as a whole, and when it asks for it.
//!
//! - A status that is refused costs the host nothing but that status: it counts against no session, however many there are.
//! - Refusals are told a few at once and then seldom; they are counted all.
//! - The full status is asked for where liveness names another one than was taken last, at most once in a while: an agent that names another one
//!   each time gets no more questions for it, and one of which nothing can be taken is asked half as often each time, down to what it says unasked.

use holdfast_model::digest::Digest;
use holdfast_wire::code::FaultCode;
use holdfast_wire::message::StatusReport;

use crate::budget::Budget;
use crate::limits::{
    REFUSAL_PAUSE, REFUSALS_AT_ONCE, REPORT_ASK_PAUSE, REPORT_INTERVAL, REPORTS_TAKEN_AT_ONCE, REPORTS_TAKEN_PAUSE,
};
use crate::time::Instant;

/// What was taken in one session.
#[derive(Debug)]
pub(super) struct Statuses {
    seq: u64,
    taken: Option<Digest>,
    budget: Budget,
    refusals: Budget,
    asked_at: Option<Instant>,
    /// How often it was asked for since one was taken.
    asked: u32,
}

impl Statuses {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            seq: 0,
            taken: None,
            budget: Budget::new(REPORTS_TAKEN_AT_ONCE, REPORTS_TAKEN_PAUSE, now),
            refusals: Budget::new(REFUSALS_AT_ONCE, REFUSAL_PAUSE, now),
            asked_at: None,
            asked: 0,
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
        (self.seq, self.taken, self.asked) = (status.seq, Some(status.report.digest()), 0);
        Ok(())
    }

    /// Whether a refusal is told, beside being counted.
    pub(super) fn is_told(&mut self, now: Instant) -> bool {
        self.refusals.take(now)
    }

    /// Whether the agent is to be asked, by what its liveness names.
    pub(super) fn is_asked(&mut self, named: Option<Digest>, now: Instant) -> bool {
        let is_other = named.is_some() && named != self.taken;
        let doubled = 1_u32.checked_shl(self.asked.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = REPORT_ASK_PAUSE.saturating_mul(doubled).min(REPORT_INTERVAL);
        let is_soon = self.asked_at.is_some_and(|at| now < at.plus(pause));
        if !is_other || is_soon {
            return false;
        }
        (self.asked_at, self.asked) = (Some(now), self.asked.saturating_add(1));
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
        assert_eq!(asked.count(), 4, "one that names another each time");
    }

    /// Its liveness names the status that it said, each 15 s, and none of them is ever taken.
    #[test]
    fn one_of_which_nothing_can_be_taken_is_asked_ever_more_seldom_until_something_is() {
        let mut statuses = Statuses::new(at(0));
        let named = Some(mk_status(1).report.digest());
        let mut asked = Vec::new();
        for ms in (0..3_600_000).step_by(15_000) {
            if statuses.is_asked(named, at(ms)) {
                asked.push(ms / 1_000);
            }
        }
        assert_eq!(asked.get(..7), Some(&[0, 15, 45, 90, 180, 345, 645][..]));
        assert!(asked.windows(2).skip(5).all(|two| two[1] - two[0] == 300), "{asked:?}");
        assert_eq!(statuses.take(&mk_status(1), at(3_600_000)), Ok(()));
        let other = Some(Component::Policy.empty_digest());
        assert!(statuses.is_asked(other, at(3_900_000)) && statuses.is_asked(other, at(3_910_000)), "as at first");
    }
}
