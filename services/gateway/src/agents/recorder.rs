//! Facts of many sessions, written together.
//!
//! - The first fact after quiet goes at once; then writes begin 3 ms apart at least, and all that came between goes in one transaction.
//! - Nothing is dropped while the database is away: facts wait, in memory that the sessions' own limits bound, and are tried again.
//! - What a host says over and over coalesces: of how it is as a whole the newest waits, one for each host and behind what came before it, so that a
//!   fleet that repeats itself for hours takes no more room than one that did so once. Of presence too, and one that was not written at once is none:
//!   the host is heard again.
//! - That the database is away is told once, however often it is tried, and so is its return.
//! - Who looks at evidence is woken by what is news, not by what is said again: a fleet at rest wakes nobody.
//! - A value that can never be written costs the one fact that it is in, loudly, and nobody else anything: a batch that is refused for one is split.
//! - What waits, what goes together and what is tried again is decided by the machine ([`holdfast_session::replica::Facts`]), which the simulation
//!   drives too.
//! - No write begins without the process's lease, each try anew: another may have declared this one dead meanwhile. One that is under way as the
//!   lease ends may still be done: what keeps it from harm is the session_epoch of each fact.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::Hint;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::{Chain, Shutdown};
pub(super) use holdfast_session::replica::NoRoom;
use holdfast_session::replica::{Facts, Kind, Limits, Sort};
use holdfast_store::session::{Fact, FactsRecorded, Seen};
use tokio::sync::{Notify, mpsc};

use super::absence::Absence;
use super::clock::Clock;
use super::gauges;
use super::lease::Lease;
use super::limits::{
    DRAIN_LOOK, FACTS_BATCH_MAX, FACTS_MAX, PRESENCE_GATHER, RECORD_GATHER, RECORD_RETRY, RECORD_RETRY_MAX,
};
use super::registry::Registry;
use super::session::FAR;
use super::store::{AgentsStore, OfAValue as _};
use super::words::seen_word;

const LIMITS: Limits = Limits {
    waiting_max: FACTS_MAX,
    batch_max: FACTS_BATCH_MAX,
    gather: RECORD_GATHER,
    presence_gather: PRESENCE_GATHER,
    retry: RECORD_RETRY,
    retry_max: RECORD_RETRY_MAX,
};

/// Where sessions put what they saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    facts: Mutex<Facts<StoreFacts>>,
    some: Notify,
    clock: Clock,
}

impl Default for Shared {
    fn default() -> Self {
        Self { facts: Mutex::new(Facts::new(LIMITS)), some: Notify::new(), clock: Clock::start() }
    }
}

/// Facts as the store takes them.
#[derive(Debug)]
struct StoreFacts;

impl Kind for StoreFacts {
    type Fact = Fact;

    fn place(fact: &Fact) -> (HostId, SessionEpoch) {
        (fact.host, fact.session_epoch)
    }

    fn sort(fact: &Fact) -> Sort {
        match fact.seen {
            Seen::Status(_) => Sort::Status,
            Seen::Closed(_) => Sort::Goodbye,
            Seen::Heard { .. } => Sort::Presence,
            Seen::Addresses(_) | Seen::Drift(_) | Seen::Fault { .. } | Seen::Outcome(_) | Seen::SnapshotSent { .. } => {
                Sort::Kept
            }
        }
    }

    fn presence(host: HostId, session_epoch: SessionEpoch, age: Duration) -> Fact {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Fact { host, session_epoch, seen: Seen::Heard { age_ms } }
    }
}

impl Recorder {
    fn facts(&self) -> MutexGuard<'_, Facts<StoreFacts>> {
        // Nothing that can panic runs under this lock.
        self.shared.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host was heard just now: it coalesces, so it is always taken.
    pub(super) fn put_heard(&self, host: HostId, session_epoch: SessionEpoch) {
        let mut facts = self.facts();
        let is_first = facts.waiting().1 == 0;
        facts.put_heard(host, session_epoch, self.shared.clock.now());
        drop(facts);
        if is_first {
            self.shared.some.notify_one();
        }
    }

    /// Takes a fact.
    pub(super) fn put(&self, fact: Fact) -> Result<(), NoRoom> {
        self.facts().put(fact, self.shared.clock.now())?;
        self.shared.some.notify_one();
        Ok(())
    }

    /// Leaves no room for any fact.
    #[cfg(test)]
    pub(super) fn fill(&self, fact: &Fact) {
        while self.facts().put(fact.clone(), self.shared.clock.now()).is_ok() {}
    }

    /// How many facts wait, and of how many hosts a sign of life.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        self.facts().waiting()
    }

    /// For how long the facts that are being written wait for that; nothing if there are none.
    pub(super) fn waits(&self) -> Option<Duration> {
        self.facts().waits(self.shared.clock.now())
    }

    /// Writes until the end is asked for, the last session has left and nothing waits any more.
    pub(super) async fn run<S: AgentsStore>(
        self,
        store: S,
        registry: Registry,
        bell: mpsc::Sender<Hint>,
        mut lease: Lease,
        shutdown: Shutdown,
    ) {
        let writer = Writer { store, registry, bell, recorder: self, absence: Absence::default() };
        let Shared { some, clock, .. } = &*writer.recorder.shared;
        loop {
            let (due, is_soonest) = writer.due();
            if due.is_none() && shutdown.is_asked() && writer.registry.is_empty() {
                return;
            }
            tokio::select! {
                // A sign of life wakes too, and waits for the others.
                () = some.notified(), if !is_soonest => continue,
                () = tokio::time::sleep_until(due.unwrap_or_else(|| tokio::time::Instant::now() + FAR)) => {}
                // Sessions leave one by one while draining, and each leaves a goodbye.
                () = tokio::time::sleep(DRAIN_LOOK), if due.is_none() && shutdown.is_asked() => continue,
                () = shutdown.asked(), if !shutdown.is_asked() => continue,
            }
            // While the database was away the lease may have lapsed: a try after that waits until it is held again.
            if !lease.held().await {
                return;
            }
            let batch = writer.recorder.facts().poll_batch(clock.now());
            if let Some(batch) = batch {
                writer.write(batch).await;
            }
        }
    }
}

/// What writes one batch after the other.
struct Writer<S> {
    store: S,
    registry: Registry,
    bell: mpsc::Sender<Hint>,
    recorder: Recorder,
    absence: Absence,
}

impl<S: AgentsStore> Writer<S> {
    /// When there is something to write, and whether nothing that comes can make that sooner.
    fn due(&self) -> (Option<tokio::time::Instant>, bool) {
        let facts = self.recorder.facts();
        let due = facts.poll_timeout().map(|(at, _)| self.recorder.shared.clock.instant_of(at));
        (due, facts.waiting().0 > 0 || facts.writing() > 0)
    }

    /// Tries to write one batch. Of one that is refused for a value in it, all the rest is written.
    async fn write(&self, batch: Vec<Fact>) {
        self.show_waiting();
        let count = batch.len();
        let answer = self.store.record(batch).await;
        let now = self.recorder.shared.clock.now();
        match answer {
            Ok(recorded) => {
                let facts = self.recorder.facts().handle_written(now);
                self.handle_recorded(&facts, &recorded);
            }
            Err(error) if error.is_of_a_value() => {
                let left_out = self.recorder.facts().handle_refused(now);
                left_out.iter().for_each(|fact| tell_left_out(fact, &error));
            }
            Err(error) => {
                self.handle_failure(&error, count);
                self.recorder.facts().handle_failed(now);
            }
        }
        self.show_waiting();
    }

    fn show_waiting(&self) {
        let facts = self.recorder.facts();
        let waiting = facts.waiting().0 + facts.writing();
        drop(facts);
        metrics::gauge!("holdfast_gateway_facts_waiting").set(u32::try_from(waiting).unwrap_or(u32::MAX));
    }

    fn handle_failure(&self, error: &dyn std::error::Error, facts: usize) {
        let error = Chain(error);
        if self.absence.is_news(&error) {
            tracing::warn!(%error, facts, "facts cannot be written; trying again until they can");
        } else {
            tracing::debug!(%error, facts, "facts cannot be written yet");
        }
    }

    fn handle_recorded(&self, facts: &[Fact], recorded: &FactsRecorded) {
        if let Some(failures) = self.absence.ended() {
            tracing::info!(failures, "facts are written again");
        }
        tracing::debug!(facts = facts.len(), "facts written");
        self.registry.supersede(&recorded.stale);
        recorded.faults.iter().for_each(|fault| gauges::record_other_fault(*fault));
        if is_news(facts, recorded) {
            ring(&self.bell, Hint::Event);
        }
        if recorded.requests > 0 {
            ring(&self.bell, Hint::Request);
        }
    }
}

/// Whether those who look at evidence are to look again: not for what only says that a host is still there, or still as it was.
fn is_news(facts: &[Fact], recorded: &FactsRecorded) -> bool {
    let is_always = |fact: &Fact| match &fact.seen {
        Seen::Closed(_) | Seen::Drift(_) | Seen::Fault { .. } | Seen::Outcome(_) | Seen::SnapshotSent { .. } => true,
        // Of these the store says whether they are.
        Seen::Addresses(_) | Seen::Heard { .. } | Seen::Status(_) => false,
    };
    recorded.statuses_new > 0 || facts.iter().any(is_always)
}

/// A fact that can never be written is left out: it would be refused for ever, and what waits behind it with it.
fn tell_left_out(fact: &Fact, error: &dyn std::error::Error) {
    let (host, session_epoch) = (fact.host, fact.session_epoch);
    tracing::error!(%host, %session_epoch, error = %Chain(error), fact = seen_word(&fact.seen), "a fact can never be written and is left out");
    metrics::counter!("holdfast_gateway_facts_refused_total").increment(1);
}

/// Rings a bell. One that cannot be rung costs time: the listener's own clock looks too.
pub(super) fn ring(bell: &mpsc::Sender<Hint>, hint: Hint) {
    if bell.try_send(hint).is_err() {
        tracing::debug!("a hint is not rung: the bus lags");
    }
}

#[cfg(test)]
mod tests {
    use holdfast_events::CloseReason;
    use holdfast_model::numbers::UpdateSeq;
    use holdfast_model::report::HostReport;
    use holdfast_store::session::StatusSaid;
    use uuid::Uuid;

    use super::*;

    fn mk_status(seq: u64) -> Seen {
        let report = HostReport::of_health(&[], UpdateSeq::ZERO, 0);
        let signature = holdfast_events::SignatureBytes::from_bytes([0; 64]);
        Seen::Status(Box::new(StatusSaid { seq, report, signature }))
    }

    fn mk_fact(host: u128, seen: Seen) -> Fact {
        Fact { host: HostId::new(Uuid::from_u128(host)), session_epoch: SessionEpoch::from_raw(1), seen }
    }

    /// As the database is away for days: each host says every five minutes how it is, and nobody takes anything.
    #[test]
    fn a_fleet_that_repeats_itself_while_nothing_can_be_written_takes_the_room_of_one_word_for_each_host() {
        const HOSTS: u128 = 1_000;
        let recorder = Recorder::default();
        for seq in 1..=1_000 {
            for host in 1..=HOSTS {
                assert_eq!(recorder.put(mk_fact(host, mk_status(seq))), Ok(()));
            }
        }
        assert_eq!(recorder.count(), (1_000, 0));
        let fault = Seen::Fault { fault: holdfast_events::Fault::Malformed, component: None, update_seq: None };
        recorder.fill(&mk_fact(1, fault.clone()));
        assert_eq!(recorder.put(mk_fact(1, fault)), Err(NoRoom));
        assert_eq!(recorder.put(mk_fact(1, mk_status(1_001))), Ok(()), "it takes the room of the one before it");
        let mut newest = std::collections::BTreeMap::new();
        while recorder.count().0 > 0 {
            for fact in take(&recorder) {
                if let Seen::Status(said) = fact.seen {
                    assert_eq!(newest.insert(fact.host, said.seq), None, "each once");
                }
            }
        }
        assert_eq!(newest.len(), 1_000);
        assert!(newest.iter().all(|(host, seq)| *seq == 1_000 + u64::from(host.uuid().as_u128() == 1)), "the newest");
    }

    #[test]
    fn a_status_goes_after_what_was_answered_before_it_and_before_the_goodbye_of_its_session() {
        let recorder = Recorder::default();
        let snapshot = |seq| Seen::SnapshotSent {
            component: holdfast_model::desired::Component::Policy,
            stamp: holdfast_model::desired::Stamp {
                version: holdfast_model::numbers::Version::FIRST,
                digest: holdfast_model::desired::Component::Policy.empty_digest(),
            },
            update_seq: UpdateSeq::from_raw(seq),
        };
        let put = |host, seen| recorder.put(mk_fact(host, seen)).expect("there is room");
        put(1, mk_status(1));
        put(2, mk_status(1));
        put(1, snapshot(1));
        put(2, Seen::Closed(CloseReason::Lost));
        put(1, snapshot(2));
        recorder.put_heard(HostId::new(Uuid::from_u128(3)), SessionEpoch::from_raw(1));
        let order: Vec<(u128, &str)> =
            take(&recorder).iter().map(|fact| (fact.host.uuid().as_u128(), seen_word(&fact.seen))).collect();
        let (sent, status) = ("snapshot_sent", "status");
        assert_eq!(order, [(1, sent), (2, status), (2, "closed"), (1, sent), (1, status), (3, "heard")]);
    }

    /// The next batch, which is written.
    fn take(recorder: &Recorder) -> Vec<Fact> {
        let mut facts = recorder.facts();
        let (due, _) = facts.poll_timeout().expect("some wait");
        facts.poll_batch(due).expect("it is time");
        facts.handle_written(due)
    }

    #[test]
    fn a_fleet_that_says_the_same_again_wakes_nobody() {
        let fact = |seen| mk_fact(1, seen);
        let mut facts = vec![fact(mk_status(2)), fact(Seen::Heard { age_ms: 1 })];
        let (same, other) = (FactsRecorded::default(), FactsRecorded { statuses_new: 1, ..FactsRecorded::default() });
        assert!(!is_news(&facts, &same));
        assert!(is_news(&facts, &other));
        facts.push(fact(Seen::Closed(CloseReason::AgentLeft)));
        assert!(is_news(&facts, &same));
    }
}
