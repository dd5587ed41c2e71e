//! What each host is to have: intent at the last revision, or at the one that a rollout holds it at.
//!
//! - One rollout is open at most, so one earlier revision is in force beside the last. Its intent is loaded once, when it is first asked for, and kept
//!   until nobody asks for it any more. Who asks meanwhile waits for that load; who waits for one that fails shares the next.
//! - What is judged of several hosts is judged for each by its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_api::status::ModeCounts;
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use holdfast_store::Store;
use holdfast_store::status::HeldAt;
use tokio::time::Instant;

use super::door::Door;
use super::fleet::JudgedFleet;
use super::intent::Snapshot;
use super::refuse::Refusal;
use super::shared::SharedRead;

/// The hosts that a rollout holds, and at which revision.
pub(crate) type HeldHosts = Vec<(HostId, HeldAt)>;

/// Those among the hosts of a fleet.
pub(crate) fn held_in(fleet: &JudgedFleet) -> HeldHosts {
    fleet.hosts.iter().filter_map(|host| Some((host.status.host, host.status.held?))).collect()
}

/// The intent that one rollout holds hosts at. A rollout's revision is of the history that the rollout is of: in another life of the database it is
/// another rollout.
type OfRollout = (RolloutId, Arc<Snapshot>);

/// The kept intent of the revision that hosts are held at.
#[derive(Debug)]
pub(crate) struct HeldIntent {
    store: Store,
    kept: Mutex<Option<OfRollout>>,
    loading: SharedRead<OfRollout>,
}

impl HeldIntent {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, kept: Mutex::new(None), loading: SharedRead::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Option<OfRollout>> {
        // Nothing that can panic runs under this lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The intent at a rollout's earlier revision: what is kept, or what one load for all who ask brings.
    async fn at(&self, rollout: RolloutId, revision: Revision) -> Result<Arc<Snapshot>, Refusal> {
        let is_it = |(of, snapshot): &OfRollout| (*of, snapshot.revision) == (rollout, revision);
        loop {
            if let Some((_, snapshot)) = self.kept().as_ref().filter(|kept| is_it(kept)) {
                return Ok(Arc::clone(snapshot));
            }
            let read = || async {
                // Another may have loaded it while this one waited for its turn.
                let kept = self.kept().clone().filter(|kept| is_it(kept));
                if let Some(kept) = kept { Ok(kept) } else { self.load(rollout, revision).await }
            };
            let loaded = self.loading.read_since(Instant::now(), read).await?;
            // Who waited for another rollout's asks anew.
            if is_it(&loaded) {
                return Ok(loaded.1);
            }
        }
    }

    async fn load(&self, rollout: RolloutId, revision: Revision) -> Result<OfRollout, Refusal> {
        let (revision, intent) = self.store.load_intent(Some(revision)).await?;
        let loaded = (rollout, Arc::new(Snapshot::new(revision, intent)));
        *self.kept() = Some(loaded.clone());
        Ok(loaded)
    }

    fn forget(&self) {
        *self.kept() = None;
        self.loading.forget();
    }
}

/// Intent as each host is to have it.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    /// At the last revision.
    pub(crate) latest: Arc<Snapshot>,
    held: BTreeSet<HostId>,
    /// What those are to have.
    earlier: Option<Arc<Snapshot>>,
}

impl Effective {
    /// The same for all.
    pub(crate) const fn same(latest: Arc<Snapshot>) -> Self {
        Self { latest, held: BTreeSet::new(), earlier: None }
    }

    #[cfg(test)]
    pub(crate) fn mk(latest: Snapshot, earlier: Snapshot, held: &[HostId]) -> Self {
        Self { latest: Arc::new(latest), held: held.iter().copied().collect(), earlier: Some(Arc::new(earlier)) }
    }

    /// What one host is to have.
    pub(crate) fn of(&self, host: HostId) -> &Arc<Snapshot> {
        self.earlier.as_ref().filter(|_| self.held.contains(&host)).unwrap_or(&self.latest)
    }

    /// The revision of that, if it is not the last.
    pub(crate) fn held_at(&self, host: HostId) -> Option<Revision> {
        self.earlier.as_ref().filter(|_| self.held.contains(&host)).map(|earlier| earlier.revision)
    }

    /// In which modes the hosts are to be of the namespaces that may be seen.
    pub(crate) fn modes(&self, sees: impl Fn(&Name) -> bool) -> ModeCounts {
        let mut counts = ModeCounts::default();
        for host in self.latest.intent.hosts.values().filter(|host| sees(&host.namespace)) {
            counts.add(self.of(host.id).mode_of(host));
        }
        counts
    }
}

impl Door {
    /// Intent as each host is to have it, with those that are held.
    pub(crate) async fn effective(&self, held: HeldHosts) -> Result<Effective, Refusal> {
        let latest = self.intent.current().await?;
        let Some((_, HeldAt { rollout, revision, .. })) = held.first().copied() else {
            return Ok(Effective::same(latest));
        };
        let earlier = Some(self.held.at(rollout, revision).await?);
        Ok(Effective { latest, held: held.into_iter().map(|(host, _)| host).collect(), earlier })
    }

    /// The same for whoever has not read the hosts.
    pub(crate) async fn effective_of(&self, hosts: Vec<HostId>) -> Result<Effective, Refusal> {
        self.effective(self.store.held_of(hosts).await?).await
    }

    /// The same for all hosts, of a fleet that was read; nobody held, nothing earlier is kept.
    pub(crate) async fn effective_in(&self, fleet: &JudgedFleet) -> Result<Effective, Refusal> {
        let held = held_in(fleet);
        if held.is_empty() {
            self.held.forget();
        }
        self.effective(held).await
    }
}
