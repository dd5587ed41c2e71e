//! Probes that wait for an answer, by what the answer will say of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What tells a probe from all others of this helper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    /// The IP protocol.
    pub(super) protocol: u8,
    /// Our address.
    pub(super) local: IpAddr,
    /// The other's address.
    pub(super) remote: IpAddr,
    /// Our port or mark.
    pub(super) mark: u16,
    /// The other's port, 0 where there is none.
    pub(super) port: u16,
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The answer.
    Answered,
    /// A refusal, and by whom.
    Refused(IpAddr),
}

/// The waiting probes of this helper.
#[derive(Clone, Default)]
pub(super) struct Pending(Arc<Mutex<HashMap<Key, oneshot::Sender<Verdict>>>>);

/// A probe's place among the waiting; given up when dropped.
pub(super) struct Waiting {
    pending: Pending,
    key: Key,
    verdict: oneshot::Receiver<Verdict>,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, oneshot::Sender<Verdict>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a probe wait. It must be called before the probe is sent.
    pub(super) fn wait_for(&self, key: Key) -> Waiting {
        let (sender, verdict) = oneshot::channel();
        self.lock().insert(key, sender);
        Waiting { pending: self.clone(), key, verdict }
    }

    /// Tells the probe of this key, if it still waits.
    pub(super) fn tell(&self, key: &Key, verdict: Verdict) {
        if let Some(waiting) = self.lock().remove(key) {
            // A probe whose deadline passed just now does not listen any more.
            let _ = waiting.send(verdict);
        }
    }
}

impl Waiting {
    /// Waits for the verdict; `None` if another probe took the key.
    pub(super) async fn verdict(&mut self) -> Option<Verdict> {
        (&mut self.verdict).await.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.key);
    }
}
