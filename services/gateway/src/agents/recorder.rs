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
//! - No write begins without the process's lease, each try anew: another may have declared this one dead meanwhile. One that is under way as the
//!   lease ends may still be done: what keeps it from harm is the session_epoch of each fact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::Hint;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::{Chain, Shutdown};
use holdfast_store::session::{Fact, FactsRecorded, Seen};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::absence::Absence;
use super::gauges;
use super::lease::Lease;
use super::limits::{
    DRAIN_LOOK, FACTS_BATCH_MAX, FACTS_MAX, PRESENCE_GATHER, RECORD_GATHER, RECORD_RETRY, RECORD_RETRY_MAX,
};
use super::registry::Registry;
use super::store::{AgentsStore, OfAValue as _};
use super::words::seen_word;

/// Where sessions put what they saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Gathering>,
    writing: Mutex<Writing>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Gathering {
    /// In the order in which they were seen.
    facts: Vec<Fact>,
    /// The newest word of each host of itself as a whole.
    statuses: BTreeMap<HostId, Fact>,
    heard: BTreeMap<HostId, (SessionEpoch, Instant)>,
}

/// What was taken to be written and is not yet.
#[derive(Clone, Copy, Debug, Default)]
struct Writing {
    facts: usize,
    /// Since when none of it was written.
    since: Option<Instant>,
}

/// There is no room for another fact: the session that saw it cannot go on, since it would be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

impl Recorder {
    fn waiting(&self) -> MutexGuard<'_, Gathering> {
        // Nothing that can panic runs under this lock.
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host was heard just now: it coalesces, so it is always taken.
    pub(super) fn put_heard(&self, host: HostId, session_epoch: SessionEpoch) {
        let mut waiting = self.waiting();
        let is_first = waiting.heard.is_empty();
        waiting.heard.insert(host, (session_epoch, Instant::now()));
        drop(waiting);
        if is_first {
            self.shared.some.notify_one();
        }
    }

    /// Takes a fact.
    pub(super) fn put(&self, fact: Fact) -> Result<(), NoRoom> {
        let mut waiting = self.waiting();
        match &fact.seen {
            // It takes the room of the one before it.
            Seen::Status(_) => {
                let newer = waiting.statuses.get(&fact.host).is_some_and(|one| one.session_epoch > fact.session_epoch);
                if !newer {
                    waiting.statuses.insert(fact.host, fact);
                }
            }
            // A goodbye is the last of its session: it is always taken, and the last status goes before it.
            Seen::Closed(_) => {
                let last = waiting.statuses.remove(&fact.host);
                waiting.facts.extend(last);
                waiting.facts.push(fact);
            }
            Seen::Addresses(_)
            | Seen::Drift(_)
            | Seen::Fault { .. }
            | Seen::Heard { .. }
            | Seen::Outcome(_)
            | Seen::SnapshotSent { .. } => {
                if waiting.facts.len() >= FACTS_MAX {
                    return Err(NoRoom);
                }
                waiting.facts.push(fact);
            }
        }
        drop(waiting);
        self.shared.some.notify_one();
        Ok(())
    }

    /// Leaves no room for any fact.
    #[cfg(test)]
    pub(super) fn fill(&self, fact: &Fact) {
        self.waiting().facts.resize(FACTS_MAX, fact.clone());
    }

    /// How many facts wait, and of how many hosts a sign of life.
    pub(super) fn count(&self) -> (usize, usize) {
        let waiting = self.waiting();
        (waiting.facts.len() + waiting.statuses.len(), waiting.heard.len())
    }

    /// For how long the facts that are being written wait for that; nothing if there are none.
    pub(super) fn waits(&self) -> Option<Duration> {
        self.writing().since.map(|since| since.elapsed())
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        // Nothing that can panic runs under this lock.
        self.shared.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many facts are being written.
    fn set_writing(&self, facts: usize) {
        let waiting = self.count().0;
        let mut writing = self.writing();
        // Each that is written, or left out, is a step.
        if writing.facts != facts {
            writing.since = (facts > 0).then(Instant::now);
        }
        writing.facts = facts;
        drop(writing);
        let waiting = u32::try_from(waiting + facts).unwrap_or(u32::MAX);
        metrics::gauge!("holdfast_gateway_facts_waiting").set(waiting);
    }

    /// Writes until the end is asked for, the last session has left and nothing waits any more.
    pub(super) async fn run<S: AgentsStore>(
        self,
        store: S,
        registry: Registry,
        bell: mpsc::Sender<Hint>,
        lease: Lease,
        shutdown: Shutdown,
    ) {
        let mut written_at = Instant::now();
        let mut writer = Writer { store, registry, bell, lease, recorder: self.clone(), absence: Absence::default() };
        loop {
            let (facts, heard) = self.count();
            if facts == 0 {
                if heard == 0 && shutdown.is_asked() && writer.registry.is_empty() {
                    return;
                }
                tokio::select! {
                    () = self.shared.some.notified() => {
                        // A sign of life wakes too, and waits for the others.
                        if self.count().0 > 0 {
                            tokio::time::sleep_until(written_at + RECORD_GATHER).await;
                        }
                        continue;
                    }
                    // Presence alone is in no hurry: it is fresh for 45 s.
                    () = tokio::time::sleep(PRESENCE_GATHER), if heard > 0 => {}
                    // Sessions leave one by one while draining, and each leaves a goodbye.
                    () = tokio::time::sleep(DRAIN_LOOK), if heard == 0 && shutdown.is_asked() => continue,
                    () = shutdown.asked(), if !shutdown.is_asked() => continue,
                }
            }
            if !writer.lease.held().await {
                return;
            }
            written_at = Instant::now();
            let batch = self.waiting().take();
            if !writer.write(batch).await {
                return;
            }
        }
    }
}

impl Gathering {
    /// The next facts to write; how hosts are after what they answered, and signs of life after that, as old as they are now.
    fn take(&mut self) -> Vec<Fact> {
        let count = self.facts.len().min(FACTS_BATCH_MAX);
        let mut batch: Vec<Fact> = self.facts.drain(..count).collect();
        while batch.len() < FACTS_BATCH_MAX
            && let Some((_, status)) = self.statuses.pop_first()
        {
            batch.push(status);
        }
        while batch.len() < FACTS_BATCH_MAX
            && let Some((host, (session_epoch, at))) = self.heard.pop_first()
        {
            let age_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
            batch.push(Fact { host, session_epoch, seen: Seen::Heard { age_ms } });
        }
        batch
    }
}

/// What writes one batch after the other.
struct Writer<S> {
    store: S,
    registry: Registry,
    bell: mpsc::Sender<Hint>,
    lease: Lease,
    recorder: Recorder,
    absence: Absence,
}

impl<S: AgentsStore> Writer<S> {
    /// Writes one batch, however long it takes; false if nobody claims the lease any more. While the database was away the lease may have lapsed: a
    /// try after that waits until it is held again. Of a batch that is refused for a value in it, all the rest is written.
    async fn write(&mut self, batch: Vec<Fact>) -> bool {
        let (mut wait, mut parts) = (RECORD_RETRY, vec![batch]);
        while let Some(mut part) = parts.pop() {
            self.recorder.set_writing(part.len() + parts.iter().map(Vec::len).sum::<usize>());
            let error = match self.store.record(part.clone()).await {
                Ok(recorded) => {
                    wait = RECORD_RETRY;
                    self.handle_recorded(&part, &recorded);
                    continue;
                }
                Err(error) => error,
            };
            if error.is_of_a_value() {
                parts.extend(split(part, &error));
                continue;
            }
            self.handle_failure(&error, part.len());
            // How long ago a host was heard was true of the first try.
            parts.push(std::mem::take(&mut part));
            parts.iter_mut().for_each(|part| part.retain(|fact| !matches!(fact.seen, Seen::Heard { .. })));
            parts.retain(|part| !part.is_empty());
            if parts.is_empty() {
                break;
            }
            tokio::time::sleep(wait).await;
            wait = Duration::min(wait * 2, RECORD_RETRY_MAX);
            if !self.lease.held().await {
                return false;
            }
        }
        self.recorder.set_writing(0);
        true
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

/// The halves of a batch that was refused for a value in it, the later one first; of a single fact nothing: it would be refused for ever, and what
/// waits behind it with it.
fn split(mut facts: Vec<Fact>, error: &dyn std::error::Error) -> Vec<Vec<Fact>> {
    if let [fact] = facts.as_slice() {
        let (host, session_epoch) = (fact.host, fact.session_epoch);
        tracing::error!(%host, %session_epoch, error = %Chain(error), fact = seen_word(&fact.seen), "a fact can never be written and is left out");
        metrics::counter!("holdfast_gateway_facts_refused_total").increment(1);
        return Vec::new();
    }
    let later = facts.split_off(facts.len() / 2);
    vec![later, facts]
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
        recorder.waiting().facts.clear();
        let mut newest = BTreeMap::new();
        while recorder.count().0 > 0 {
            for fact in recorder.waiting().take() {
                let Seen::Status(said) = fact.seen else { panic!("{fact:?}") };
                assert_eq!(newest.insert(fact.host, said.seq), None, "each once");
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
        let order: Vec<(u128, &str)> =
            recorder.waiting().take().iter().map(|fact| (fact.host.uuid().as_u128(), seen_word(&fact.seen))).collect();
        let (sent, status) = ("snapshot_sent", "status");
        assert_eq!(order, [(1, sent), (2, status), (2, "closed"), (1, sent), (1, status)]);
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
