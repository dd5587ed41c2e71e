//! Facts of many sessions, written together.
//!
//! - The first fact after quiet goes at once; then writes begin 3 ms apart at least, and all that came between goes in one transaction.
//! - Nothing is dropped while the database is away: facts wait, in memory that the sessions' own limits bound, and are tried again.
//!   Presence alone coalesces: the latest word per host, and one that was not written at once is none: the host is heard again.
//! - Nothing is written without the process's lease, each try anew: another may have declared this one dead meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::Hint;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::{Chain, Shutdown};
use holdfast_store::session::{Fact, Seen};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::lease::Lease;
use super::limits::{
    DRAIN_LOOK, FACTS_BATCH_MAX, FACTS_MAX, PRESENCE_GATHER, RECORD_GATHER, RECORD_RETRY, RECORD_RETRY_MAX,
};
use super::registry::Registry;
use super::store::AgentsStore;

/// Where sessions put what they saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Gathering>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Gathering {
    /// In the order in which they were seen.
    facts: Vec<Fact>,
    heard: BTreeMap<HostId, (SessionEpoch, Instant)>,
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
        // A goodbye is the last of its session: it is always taken.
        if waiting.facts.len() >= FACTS_MAX && !matches!(fact.seen, Seen::Closed(_)) {
            return Err(NoRoom);
        }
        waiting.facts.push(fact);
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
        (waiting.facts.len(), waiting.heard.len())
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
        let mut written_at = Instant::now();
        loop {
            let (facts, heard) = self.count();
            if facts == 0 {
                if heard == 0 && shutdown.is_asked() && registry.is_empty() {
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
            if !lease.held().await {
                return;
            }
            written_at = Instant::now();
            let batch = self.waiting().take();
            if !write(&store, batch, &registry, &bell, &mut lease).await {
                return;
            }
        }
    }
}

impl Gathering {
    /// The next facts to write; signs of life after them, as old as they are now.
    fn take(&mut self) -> Vec<Fact> {
        let count = self.facts.len().min(FACTS_BATCH_MAX);
        let mut batch: Vec<Fact> = self.facts.drain(..count).collect();
        while batch.len() < FACTS_BATCH_MAX
            && let Some((host, (session_epoch, at))) = self.heard.pop_first()
        {
            let age_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
            batch.push(Fact { host, session_epoch, seen: Seen::Heard { age_ms } });
        }
        batch
    }
}

/// Writes one batch, however long it takes; false if nobody claims the lease any more. While the database was away the lease may have lapsed: a try
/// after that waits until it is held again.
async fn write<S: AgentsStore>(
    store: &S,
    mut batch: Vec<Fact>,
    registry: &Registry,
    bell: &mpsc::Sender<Hint>,
    lease: &mut Lease,
) -> bool {
    let mut wait = RECORD_RETRY;
    let recorded = loop {
        match store.record(batch.clone()).await {
            Ok(recorded) => break recorded,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), facts = batch.len(), "facts cannot be written; trying again");
            }
        }
        // How long ago a host was heard was true of the first try.
        batch.retain(|fact| !matches!(fact.seen, Seen::Heard { .. }));
        if batch.is_empty() {
            return true;
        }
        tokio::time::sleep(wait).await;
        wait = Duration::min(wait * 2, RECORD_RETRY_MAX);
        if !lease.held().await {
            return false;
        }
    };
    tracing::debug!(facts = batch.len(), "facts written");
    registry.supersede(&recorded.stale);
    if batch.iter().any(|fact| !matches!(fact.seen, Seen::Heard { .. } | Seen::Addresses(_))) {
        ring(bell, Hint::Event);
    }
    if recorded.requests > 0 {
        ring(bell, Hint::Request);
    }
    true
}

/// Rings a bell. One that cannot be rung costs time: the listener's own clock looks too.
pub(super) fn ring(bell: &mpsc::Sender<Hint>, hint: Hint) {
    if bell.try_send(hint).is_err() {
        tracing::debug!("a hint is not rung: the bus lags");
    }
}
