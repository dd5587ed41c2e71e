//! What an agent has to say of drift, and when.
//!
//! - One report of each kind waits, the newest: its total counts those that it took the place of.
//! - The first of a kind goes at once; then so long must pass before another one of it does, however often the kernel changes.
//! - What was said in this session is not said again in it.

use holdfast_model::drift::DriftKind;
use holdfast_wire::message::DriftReport;

use crate::limits::DRIFT_PAUSE;
use crate::time::{Instant, sooner};

/// One kind.
#[derive(Debug, Default)]
struct Slot {
    /// To be written.
    due: Option<DriftReport>,
    /// To be written once the pause is over.
    waiting: Option<DriftReport>,
    /// The total that was written, or is about to be.
    said: Option<u64>,
    not_before: Option<Instant>,
}

/// All kinds.
#[derive(Debug, Default)]
pub(super) struct Drifts {
    slots: [Slot; DriftKind::ALL.len()],
}

const fn index(kind: DriftKind) -> usize {
    match kind {
        DriftKind::Found => 0,
        DriftKind::Repaired => 1,
        DriftKind::Contended => 2,
        DriftKind::Settled => 3,
    }
}

impl Drifts {
    /// Takes a report in place of an older one of its kind.
    pub(super) fn put(&mut self, report: DriftReport, now: Instant) {
        let Some(slot) = self.slots.get_mut(index(report.kind)) else { return };
        if slot.said == Some(report.total) {
            return;
        }
        slot.waiting = Some(report);
        slot.advance(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.slots.iter_mut().for_each(|slot| slot.advance(now));
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let waiting = self.slots.iter().filter(|slot| slot.waiting.is_some());
        let until = waiting.filter_map(|slot| slot.not_before).map(|until| Some((until, "more of drift")));
        until.fold(None, sooner)
    }

    /// The next to write: what is oldest first, and of one moment in the order in which kinds come.
    pub(super) fn next(&mut self) -> Option<DriftReport> {
        let due = self.slots.iter_mut().rev().filter(|slot| slot.due.is_some());
        due.max_by_key(|slot| slot.due.as_ref().map(|report| report.age_ms))?.due.take()
    }
}

impl Slot {
    fn advance(&mut self, now: Instant) {
        let may_go = self.not_before.is_none_or(|until| now >= until) || self.due.is_some();
        let Some(report) = self.waiting.take_if(|_| may_go) else { return };
        if self.due.is_none() {
            self.not_before = Some(now.plus(DRIFT_PAUSE));
        }
        self.said = Some(report.total);
        self.due = Some(report);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::drift::DriftCounts;
    use uuid::Uuid;

    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn report(kind: DriftKind, total: u64, age_ms: u64) -> DriftReport {
        let instance = Uuid::from_u128(1);
        DriftReport { kind, instance, total, age_ms, writer: None, counts: DriftCounts::default() }
    }

    fn said(drifts: &mut Drifts) -> Vec<(DriftKind, u64)> {
        std::iter::from_fn(|| drifts.next()).map(|report| (report.kind, report.total)).collect()
    }

    #[test]
    fn the_first_of_each_kind_goes_at_once_and_the_rest_as_one_after_a_pause() {
        let mut drifts = Drifts::default();
        drifts.put(report(DriftKind::Repaired, 1, 0), at(0));
        drifts.put(report(DriftKind::Found, 1, 20), at(0));
        assert_eq!(said(&mut drifts), [(DriftKind::Found, 1), (DriftKind::Repaired, 1)]);
        for total in 2..=9 {
            drifts.put(report(DriftKind::Found, total, 0), at(100 * total));
        }
        assert_eq!((said(&mut drifts), drifts.poll_timeout().map(|(until, _)| until)), (vec![], Some(at(2_000))));
        drifts.handle_timeout(at(1_999));
        assert_eq!(said(&mut drifts), []);
        drifts.handle_timeout(at(2_000));
        assert_eq!((said(&mut drifts), drifts.poll_timeout()), (vec![(DriftKind::Found, 9)], None));
        drifts.put(report(DriftKind::Found, 9, 4_000), at(9_000));
        assert_eq!(said(&mut drifts), [], "it was said");
    }

    #[test]
    fn one_that_was_not_written_yet_is_replaced_and_those_of_one_moment_keep_the_order_of_kinds() {
        let mut drifts = Drifts::default();
        for (kind, total) in DriftKind::ALL.into_iter().rev().zip(1..) {
            drifts.put(report(kind, total, 0), at(0));
        }
        drifts.put(report(DriftKind::Found, 8, 0), at(1));
        assert_eq!(
            said(&mut drifts),
            [(DriftKind::Found, 8), (DriftKind::Repaired, 3), (DriftKind::Contended, 2), (DriftKind::Settled, 1)]
        );
    }
}
