//! What is told of drift: how often what happened, the newest of each kind, and whether another tool fights for the table.
//!
//! - Kept in memory, over every session, one report of a kind: what nobody could be told is counted by what is told next.
//! - The process that wrote is the one that the kernel named before the table was read, and nobody where it named nobody.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_model::condition::bounded;
use holdfast_model::drift::{DriftCounts, DriftKind, WRITER_BYTES_MAX};
use holdfast_wire::message::{DriftReport, Writer};
use uuid::Uuid;

use super::war::War;

/// How long a name is waited for whose notice is on its way: the kernel gives both in one go, this host's threads may not.
const NAME_PATIENCE: Duration = Duration::from_millis(100);

/// The newest of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    total: u64,
    at: Instant,
    writer: Option<Writer>,
    counts: DriftCounts,
}

/// What can be told of all kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriftLog {
    instance: Uuid,
    entries: [Option<Entry>; DriftKind::ALL.len()],
}

impl DriftLog {
    /// Nothing happened since the agent started.
    #[must_use]
    pub(crate) fn new(instance: Uuid) -> Self {
        Self { instance, entries: Default::default() }
    }

    /// The newest of each kind, as it is told now.
    #[must_use]
    pub(crate) fn reports(&self, now: Instant) -> Vec<DriftReport> {
        let report = |(kind, entry): (DriftKind, &Option<Entry>)| {
            let entry = entry.as_ref()?;
            let age_ms = u64::try_from(now.saturating_duration_since(entry.at).as_millis()).unwrap_or(u64::MAX);
            let (total, writer, counts) = (entry.total, entry.writer.clone(), entry.counts);
            Some(DriftReport { kind, instance: self.instance, total, age_ms, writer, counts })
        };
        DriftKind::ALL.into_iter().zip(&self.entries).filter_map(report).collect()
    }

    fn add(&mut self, kind: DriftKind, now: Instant, writer: Option<Writer>, counts: DriftCounts) {
        let place = DriftKind::ALL.iter().position(|one| *one == kind);
        if let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) {
            let total = entry.as_ref().map_or(0, |entry| entry.total) + 1;
            *entry = Some(Entry { total, at: now, writer, counts });
        }
    }
}

/// What the kernel was found to hold, and whether that is a war.
#[derive(Debug)]
pub(super) struct Drift {
    log: DriftLog,
    war: War,
    /// Whether the war that is on was told of.
    is_told: bool,
}

impl Drift {
    pub(super) fn new(instance: Uuid) -> Self {
        Self { log: DriftLog::new(instance), war: War::default(), is_told: false }
    }

    /// Whether another tool undoes what is repaired.
    pub(super) fn is_contended(&self, now: Instant) -> bool {
        self.war.is_on(now)
    }

    /// The kernel holds something else; whether a war begins with it.
    pub(super) fn found(&mut self, now: Instant, writer: Option<Writer>, counts: DriftCounts) -> bool {
        self.tick(now);
        self.log.add(DriftKind::Found, now, writer.clone(), counts);
        self.war.found(now);
        let begins = self.war.is_on(now) && !self.is_told;
        if begins {
            self.is_told = true;
            self.log.add(DriftKind::Contended, now, writer, counts);
        }
        begins
    }

    /// It was put right.
    pub(super) fn repaired(&mut self, now: Instant, writer: Option<Writer>, counts: DriftCounts) {
        self.log.add(DriftKind::Repaired, now, writer, counts);
    }

    /// Time went on; whether a war is over since the last look.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        let ends = self.is_told && !self.war.is_on(now);
        if ends {
            self.is_told = false;
            self.log.add(DriftKind::Settled, now, None, DriftCounts::default());
        }
        ends
    }

    pub(super) fn log(&self) -> &DriftLog {
        &self.log
    }
}

/// Who wrote to our table last, as far as the kernel told: from the thread that hears to the one that reads.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWriter(Arc<(Mutex<Option<Writer>>, Condvar)>);

impl LastWriter {
    fn held(&self) -> MutexGuard<'_, Option<Writer>> {
        // Nothing that can panic runs under this lock.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel named a process; its name is whatever it gave itself.
    pub(super) fn put(&self, pid: u32, name: &str) {
        *self.held() = Some(Writer { pid, name: bounded(name, WRITER_BYTES_MAX) });
        self.0.1.notify_all();
    }

    /// Takes the name, which is waited for a moment.
    pub(super) fn take(&self) -> Option<Writer> {
        let waited = self.0.1.wait_timeout_while(self.held(), NAME_PATIENCE, |writer| writer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// What was written was this agent's own, or is put right already.
    pub(super) fn forget(&self) {
        *self.held() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(drift: &Drift, now: Instant) -> Vec<(DriftKind, u64)> {
        drift.log().reports(now).into_iter().map(|report| (report.kind, report.total)).collect()
    }

    fn nft() -> Option<Writer> {
        Some(Writer { pid: 7, name: "nft".to_owned() })
    }

    #[test]
    fn what_happens_again_is_counted_and_the_newest_is_told_with_its_age_and_its_process() {
        let (mut drift, begin) = (Drift::new(Uuid::from_u128(1)), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let counts = DriftCounts { rules_foreign: 1, ..DriftCounts::default() };
        assert_eq!(told(&drift, begin), []);
        drift.found(at(0), nft(), DriftCounts::default());
        drift.repaired(at(0), nft(), DriftCounts::default());
        drift.found(at(100), None, counts);
        assert_eq!(told(&drift, at(100)), [(DriftKind::Found, 2), (DriftKind::Repaired, 1)]);
        let reports = drift.log().reports(at(103));
        assert_eq!((reports[0].age_ms, &reports[0].writer, reports[0].counts), (3_000, &None, counts));
        assert_eq!((reports[1].age_ms, &reports[1].writer), (103_000, &nft()));
    }

    #[test]
    fn a_war_is_told_once_when_it_begins_and_once_when_it_is_over_and_so_is_the_next() {
        let (mut drift, begin) = (Drift::new(Uuid::from_u128(1)), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let began: Vec<bool> = (0..8).map(|second| drift.found(at(second), nft(), DriftCounts::default())).collect();
        assert_eq!(began, [false, false, false, false, false, true, false, false]);
        assert!(drift.is_contended(at(30)) && !drift.tick(at(30)));
        assert_eq!(told(&drift, at(30)), [(DriftKind::Found, 8), (DriftKind::Contended, 1)]);
        assert!(drift.tick(at(80)) && !drift.tick(at(110)) && !drift.is_contended(at(110)));
        assert_eq!(told(&drift, at(110)).last(), Some(&(DriftKind::Settled, 1)));
        for second in 200..206 {
            drift.found(at(second), nft(), DriftCounts::default());
        }
        assert!(told(&drift, at(206)).contains(&(DriftKind::Contended, 2)));
        // One that nobody looked at until something happens again.
        drift.found(at(900), nft(), DriftCounts::default());
        assert!(told(&drift, at(900)).contains(&(DriftKind::Settled, 2)) && !drift.is_contended(at(900)));
    }

    #[test]
    fn a_name_is_what_a_process_gave_itself_without_what_it_may_do_to_a_terminal() {
        let last = LastWriter::default();
        assert_eq!(last.take(), None, "nobody was named");
        last.put(9, "\u{1b}[2J evil and much longer than any kernel keeps");
        let writer = last.take().expect("named");
        assert_eq!((writer.pid, writer.name.as_str()), (9, " [2J evil and much longer than a"));
        assert_eq!(writer.name.len(), WRITER_BYTES_MAX);
        last.put(9, "nft");
        last.forget();
        assert_eq!(last.take(), None);
    }

    #[test]
    fn a_name_that_is_on_its_way_is_waited_for() {
        let last = LastWriter::default();
        let teller = last.clone();
        let told = std::thread::spawn(move || teller.put(3, "nft"));
        assert_eq!(last.take().map(|writer| writer.pid), Some(3));
        told.join().expect("it told");
    }
}
