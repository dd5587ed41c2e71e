//! Facts of many sessions, written together in the order in which they were seen.
//!
//! - A fact waits 3 ms at most for others, then all go in one transaction; while one is under way the next gathers.
//! - Nothing is dropped while the database is away: facts wait, in memory that the sessions' own limits bound, and are tried again.
//!   Presence alone coalesces: the latest word per host.
//! - Nothing is written without the process's lease: another may have declared this one dead.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_events::Hint;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::{Chain, Shutdown};
use tokio::sync::{Notify, mpsc, watch};

use super::limits::{
    DRAIN_LOOK, FACTS_BATCH_MAX, FACTS_MAX, PRESENCE_GATHER, RECORD_GATHER, RECORD_RETRY, RECORD_RETRY_MAX,
};
use super::registry::Registry;
use super::store::{AgentsStore, Fact, Seen};

/// Where sessions put what they saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    facts: Vec<Fact>,
    heard: BTreeMap<HostId, SessionEpoch>,
}

/// There is no room for another fact: the session that saw it cannot go on, since it would be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

impl Recorder {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that can panic runs under this lock.
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a fact.
    pub(super) fn put(&self, fact: Fact) -> Result<(), NoRoom> {
        let mut waiting = self.waiting();
        let wakes = match fact.seen {
            Seen::Heard => {
                let first = waiting.heard.is_empty();
                waiting.heard.insert(fact.host, fact.session_epoch);
                first
            }
            Seen::Outcome(_)
            | Seen::SnapshotSent { .. }
            | Seen::Fault { .. }
            | Seen::Addresses(_)
            | Seen::Closed(_) => {
                // A goodbye is always taken: it is the last of its session.
                if waiting.facts.len() >= FACTS_MAX && !matches!(fact.seen, Seen::Closed(_)) {
                    return Err(NoRoom);
                }
                waiting.facts.push(fact);
                true
            }
        };
        drop(waiting);
        if wakes {
            self.shared.some.notify_one();
        }
        Ok(())
    }

    /// How many facts wait, and of how many hosts a sign of life.
    pub(super) fn count(&self) -> (usize, usize) {
        let waiting = self.waiting();
        (waiting.facts.len(), waiting.heard.len())
    }

    /// The next facts to write, in order; presence after what was seen.
    fn take(&self) -> Vec<Fact> {
        let mut waiting = self.waiting();
        let count = waiting.facts.len().min(FACTS_BATCH_MAX);
        let mut batch: Vec<Fact> = waiting.facts.drain(..count).collect();
        while batch.len() < FACTS_BATCH_MAX
            && let Some((host, session_epoch)) = waiting.heard.pop_first()
        {
            batch.push(Fact { host, session_epoch, seen: Seen::Heard });
        }
        batch
    }

    /// Writes until the end is asked for and nothing waits any more.
    pub(super) async fn run<S: AgentsStore>(
        self,
        store: S,
        registry: Registry,
        bell: mpsc::Sender<Hint>,
        mut lease: watch::Receiver<bool>,
        shutdown: Shutdown,
    ) {
        loop {
            let (facts, heard) = self.count();
            if facts == 0 {
                if heard == 0 && shutdown.is_asked() && registry.len() == 0 {
                    return;
                }
                tokio::select! {
                    () = self.shared.some.notified() => {
                        if self.count().0 > 0 {
                            tokio::time::sleep(RECORD_GATHER).await;
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
            if !*lease.borrow_and_update() && lease.changed().await.is_err() {
                return;
            }
            let batch = self.take();
            write(&store, batch, &registry, &bell).await;
        }
    }
}

/// Writes one batch, however long it takes.
async fn write<S: AgentsStore>(store: &S, batch: Vec<Fact>, registry: &Registry, bell: &mpsc::Sender<Hint>) {
    let mut wait = RECORD_RETRY;
    let superseded = loop {
        match store.record(batch.clone()).await {
            Ok(superseded) => break superseded,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), facts = batch.len(), "facts cannot be written; trying again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RECORD_RETRY_MAX);
            }
        }
    };
    registry.supersede(&superseded);
    if batch.iter().any(|fact| !matches!(fact.seen, Seen::Heard)) {
        ring(bell, Hint::Event);
    }
    if batch.iter().any(|fact| matches!(fact.seen, Seen::Addresses(_))) {
        ring(bell, Hint::Request);
    }
}

/// Rings a bell. One that cannot be rung costs time: the listener's own clock looks too.
pub(super) fn ring(bell: &mpsc::Sender<Hint>, hint: Hint) {
    if bell.try_send(hint).is_err() {
        tracing::debug!("a hint is not rung: the bus lags");
    }
}
