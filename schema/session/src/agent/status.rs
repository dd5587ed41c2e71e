//! What an agent has to say of its host as a whole, and when.
//!
//! - At once when the session is open, whenever it changes, after answers, when the gateway asks, and every five minutes.
//! - What is about to settle by itself is waited for a moment, so that one change is mostly told once.
//! - So many at once and then one back after each while: well within what a gateway takes. What came meanwhile is told as one.
//! - What the gateway did not take is said again less and less often, whatever asks for it: that it did not is told by it, or by its asking again.
//!   Nothing tells that it took one, so the pauses begin anew once a report was neither refused nor asked for again for as long as reports stand.

use std::time::Duration;

use holdfast_model::digest::Digest;
use holdfast_model::report::HostReport;

use crate::budget::Budget;
use crate::limits::{REPORT_AT_ONCE, REPORT_INTERVAL, REPORT_PAUSE, REPORT_REFUSED_PAUSE, REPORT_SETTLE};
use crate::time::{Instant, sooner};

/// Whether what is said is about to become something else by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settling {
    /// It stands.
    Stands,
    /// It is about to: a policy is on trial.
    Settles,
}

/// What is known of a gateway that does not take what is said.
#[derive(Debug, Default)]
struct Refusals {
    /// The pause after each report, since one was refused and until one stood.
    pause: Option<Duration>,
    /// Nothing is said before.
    until: Option<Instant>,
    /// When the first report since the last refusal was said.
    said_at: Option<Instant>,
}

impl Refusals {
    const fn new() -> Self {
        Self { pause: None, until: None, said_at: None }
    }

    fn handle_said(&mut self, now: Instant) {
        self.said_at.get_or_insert(now);
        self.until = self.pause.map(|pause| now.plus(pause));
    }

    /// The gateway did not take what was said last; it counts once, however it is told.
    fn handle_refused(&mut self, now: Instant) {
        self.advance(now);
        if self.said_at.take().is_none() {
            return;
        }
        let pause = self.pause.map_or(REPORT_REFUSED_PAUSE, |pause| (pause * 2).min(REPORT_INTERVAL));
        (self.pause, self.until) = (Some(pause), Some(now.plus(pause)));
    }

    /// The gateway asks for what it was told: without a refusal before it, that is no other one.
    fn handle_asked(&mut self, now: Instant) {
        if self.pause.is_some() {
            self.handle_refused(now);
        }
    }

    /// Time went on: what stood for so long was taken.
    fn advance(&mut self, now: Instant) {
        if self.said_at.is_some_and(|at| now >= at.plus(REPORT_INTERVAL)) {
            (self.pause, self.until) = (None, None);
        }
    }
}

/// What is to be said.
#[derive(Debug)]
pub(super) struct Reports {
    newest: Option<HostReport>,
    /// What the session said last.
    said: Option<Digest>,
    seq: u64,
    /// When it is to be written.
    due_at: Option<Instant>,
    /// Whether it is written also if it is what was said.
    is_wanted: bool,
    /// To be written.
    is_ready: bool,
    /// When it is said again though it is the same.
    again_at: Option<Instant>,
    budget: Budget,
    refusals: Refusals,
}

impl Reports {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            newest: None,
            said: None,
            seq: 0,
            due_at: None,
            is_wanted: false,
            is_ready: false,
            again_at: None,
            budget: Budget::new(REPORT_AT_ONCE, REPORT_PAUSE, now),
            refusals: Refusals::new(),
        }
    }

    /// The host is so.
    pub(super) fn put(&mut self, report: HostReport, settling: Settling, now: Instant) {
        let report = report.bounded();
        let is_news = self.said != Some(report.digest());
        self.newest = Some(report);
        self.due_at = match (is_news || self.is_wanted, settling) {
            // It became again what was said: nothing was worth a word.
            (false, _) => None,
            (true, Settling::Stands) => Some(now),
            (true, Settling::Settles) => Some(self.due_at.unwrap_or_else(|| now.plus(REPORT_SETTLE))),
        };
        self.advance(now);
    }

    /// The gateway asks: it has something else than what was said, or nothing. After a refusal that is another one.
    pub(super) fn handle_asked(&mut self, now: Instant) {
        self.refusals.handle_asked(now);
        self.handle_wanted(now);
    }

    /// The gateway did not take what was said last. It is not said again for that, but when it is due.
    pub(super) fn handle_refused(&mut self, now: Instant) {
        self.refusals.handle_refused(now);
    }

    fn handle_wanted(&mut self, now: Instant) {
        if self.newest.is_some() {
            (self.due_at, self.is_wanted) = (Some(now), true);
            self.advance(now);
        }
    }

    /// An update was answered: what is said after it is newer than the answer, also where it is the same. With more under way it is told after that.
    pub(super) fn handle_answered(&mut self, is_more_under_way: bool) {
        if self.newest.is_none() || self.is_ready {
            // What is about to be written comes after the answer.
            return;
        }
        self.is_wanted = true;
        if !is_more_under_way && self.due_at.is_none() {
            self.due_at = Some(Instant::default());
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.again_at.take_if(|at| now >= *at).is_some() {
            self.handle_wanted(now);
        }
        self.advance(now);
    }

    fn advance(&mut self, now: Instant) {
        self.refusals.advance(now);
        let is_due = self.due_at.is_some_and(|at| now >= at) && self.refusals.until.is_none_or(|until| now >= until);
        if is_due && self.budget.take(now) {
            (self.due_at, self.is_ready) = (None, true);
            self.again_at = Some(now.plus(REPORT_INTERVAL));
            self.refusals.handle_said(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let not_before = self.refusals.until.unwrap_or_default().max(self.budget.next_at());
        let due = self.due_at.map(|at| (at.max(not_before), "a status"));
        sooner(due, self.again_at.map(|at| (at, "a status again")))
    }

    /// The digest of what was said last.
    pub(super) const fn said(&self) -> Option<Digest> {
        self.said
    }

    /// The next to write, with its number.
    pub(super) fn next(&mut self) -> Option<(u64, HostReport)> {
        let report = self.newest.as_ref().filter(|_| self.is_ready)?;
        (self.is_ready, self.is_wanted) = (false, false);
        self.said = Some(report.digest());
        self.seq += 1;
        Some((self.seq, report.clone()))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::desired::{Component, Stamp};
    use holdfast_model::numbers::{UpdateSeq, Version};

    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn mk_report(version: u64) -> HostReport {
        let version = Version::from_raw(version).expect("not zero");
        let stamp = Stamp { version, digest: Component::Policy.empty_digest() };
        HostReport::of_health(&[(Component::Policy, stamp)], UpdateSeq::ZERO, 0)
    }

    fn version(said: Option<(u64, HostReport)>) -> Option<u64> {
        said.and_then(|(_, report)| report.components.first()?.applied).map(|stamp| stamp.version.raw())
    }

    #[test]
    fn what_is_new_goes_at_once_the_same_after_five_minutes_and_what_is_asked_for_now() {
        let mut reports = Reports::new(at(0));
        assert_eq!((version(reports.next()), reports.poll_timeout(), reports.said()), (None, None, None));
        reports.handle_wanted(at(0));
        assert_eq!(version(reports.next()), None, "there is nothing yet");
        reports.put(mk_report(1), Settling::Stands, at(10));
        assert_eq!(reports.next(), Some((1, mk_report(1))));
        assert_eq!(reports.said(), Some(mk_report(1).digest()));
        reports.put(mk_report(1), Settling::Stands, at(20));
        assert_eq!(version(reports.next()), None);
        let again = 10 + 300_000;
        assert_eq!(reports.poll_timeout().map(|(until, _)| until), Some(at(again)));
        reports.handle_timeout(at(again - 1));
        assert_eq!(version(reports.next()), None);
        reports.handle_timeout(at(again));
        // What is the same by then does not undo that it is due.
        reports.put(mk_report(1), Settling::Stands, at(again));
        assert_eq!((reports.next(), reports.next()), (Some((2, mk_report(1))), None));
        reports.handle_wanted(at(again + 1));
        assert_eq!(reports.next(), Some((3, mk_report(1))));
    }

    #[test]
    fn what_is_about_to_settle_is_waited_for_a_moment_and_told_then_whatever_it_is() {
        let mut reports = Reports::new(at(0));
        reports.put(mk_report(1), Settling::Settles, at(0));
        assert_eq!(version(reports.next()), None);
        reports.put(mk_report(2), Settling::Stands, at(5));
        assert_eq!(version(reports.next()), Some(2));
        reports.put(mk_report(3), Settling::Settles, at(10));
        let settled = reports.poll_timeout().expect("it is due").0;
        reports.put(mk_report(4), Settling::Settles, at(100));
        reports.handle_timeout(settled);
        assert_eq!(version(reports.next()), Some(4), "it is not put off by what follows");
        reports.put(mk_report(5), Settling::Settles, at(1_000));
        reports.put(mk_report(4), Settling::Stands, at(1_001));
        reports.handle_timeout(at(9_000));
        assert_eq!(version(reports.next()), None, "it was said");
    }

    #[test]
    fn after_an_answer_the_same_is_said_again_once_no_more_is_under_way() {
        let mut reports = Reports::new(at(0));
        reports.handle_answered(false);
        assert_eq!((reports.poll_timeout(), reports.next()), (None, None), "there is nothing yet");
        reports.put(mk_report(1), Settling::Stands, at(0));
        reports.handle_answered(false);
        assert_eq!((version(reports.next()), reports.next()), (Some(1), None), "what was about to be written is newer");
        reports.handle_answered(true);
        reports.handle_timeout(at(1));
        assert_eq!(reports.next(), None);
        reports.handle_answered(false);
        assert!(reports.poll_timeout().is_some_and(|(until, _)| until <= at(1)));
        reports.handle_timeout(at(1));
        assert_eq!((reports.next(), reports.next()), (Some((2, mk_report(1))), None));
        reports.put(mk_report(2), Settling::Settles, at(10));
        reports.handle_answered(false);
        reports.handle_timeout(at(11));
        assert_eq!(reports.next(), None, "what settles is waited for");
    }

    /// How often a status is said within a time to a gateway that takes none: it tells of the first refusals, and asks again at each sign of life.
    fn said_to_one_that_takes_none(reports: &mut Reports, from_s: u64, seconds: u64, is_changing: bool) -> Vec<u64> {
        let (mut said, mut told) = (Vec::new(), 0);
        for second in from_s..from_s + seconds {
            let now = at(second * 1_000);
            if is_changing {
                reports.put(mk_report(second + 1), Settling::Stands, now);
            }
            if second % 15 == 0 {
                reports.handle_asked(now);
            }
            reports.handle_timeout(now);
            if reports.next().is_some() {
                said.push(second);
                told += 1;
                if told <= crate::limits::REFUSALS_AT_ONCE {
                    reports.handle_refused(now);
                }
            }
        }
        said
    }

    #[test]
    fn what_a_gateway_never_takes_is_said_less_and_less_often_though_it_asks_at_each_sign_of_life_and_the_host_changes()
    {
        for is_changing in [false, true] {
            let mut reports = Reports::new(at(0));
            reports.put(mk_report(1), Settling::Stands, at(0));
            let said = said_to_one_that_takes_none(&mut reports, 0, 3_600, is_changing);
            // 1 + 2 + 4 + … + 256 s, and then every 300 s or a sign of life later; without a pause there would be one each 15 s, or each second.
            let pauses: Vec<u64> = said.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(said.len() < 25, "{said:?}");
            assert!(pauses[pauses.len() - 4..].iter().all(|pause| (300..=315).contains(pause)), "{pauses:?}");
        }
    }

    #[test]
    fn a_refusal_counts_once_and_is_forgotten_once_a_status_stood_for_as_long_as_one_stands() {
        let mut reports = Reports::new(at(0));
        reports.put(mk_report(1), Settling::Stands, at(0));
        assert!(reports.next().is_some());
        reports.handle_refused(at(10));
        reports.handle_refused(at(20));
        reports.handle_asked(at(30));
        assert_eq!(reports.poll_timeout().map(|(until, _)| until), Some(at(1_010)), "one pause of a second");
        assert_eq!(version(reports.next()), None);
        reports.handle_timeout(at(1_010));
        assert_eq!(version(reports.next()), Some(1));
        // It is taken, which nobody tells: a change waits for the pause once more, and after five minutes for none.
        reports.put(mk_report(2), Settling::Stands, at(1_500));
        assert_eq!(version(reports.next()), None);
        reports.handle_timeout(at(2_010));
        assert_eq!(version(reports.next()), Some(2));
        let stood = 2_010 + 300_000;
        for (nth, ms) in (3..).zip([stood, stood + 1, stood + 2]) {
            reports.put(mk_report(nth), Settling::Stands, at(ms));
            assert_eq!(version(reports.next()), Some(nth));
        }
        reports.handle_refused(at(stood + 10));
        reports.handle_asked(at(stood + 20));
        assert_eq!(reports.poll_timeout().map(|(until, _)| until), Some(at(stood + 1_010)), "the first pause again");
    }

    #[test]
    fn a_host_that_changes_without_end_is_told_of_as_often_as_a_gateway_takes_it() {
        let mut reports = Reports::new(at(0));
        let mut said = 0;
        for ms in 0..60_000 {
            reports.put(mk_report(ms + 1), Settling::Stands, at(ms));
            said += u32::from(reports.next().is_some());
        }
        assert!((60..=70).contains(&said), "{said} in a minute");
        reports.handle_timeout(at(61_000));
        assert_eq!(version(reports.next()), Some(60_000), "the last is told");
    }
}
