//! The sessions that this replica holds, by host.
//!
//! - A host has at most one session here: the one with the higher session_epoch stays, whatever came first.
//! - A session leaves only for itself: a late goodbye of an older one does not remove the newer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_store::session::HostNewest;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::Drain;

use super::mailbox::Mailbox;

/// All sessions of one gateway process.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    sessions: Arc<Mutex<HashMap<HostId, Held>>>,
}

#[derive(Debug)]
struct Held {
    session_epoch: SessionEpoch,
    mailbox: Arc<Mailbox>,
}

impl Registry {
    fn sessions(&self) -> MutexGuard<'_, HashMap<HostId, Held>> {
        // Nothing that can panic runs under this lock.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session in and ends an older one of its host; false if a newer one is here already.
    pub(super) fn insert(&self, host: HostId, session_epoch: SessionEpoch, mailbox: Arc<Mailbox>) -> bool {
        let mut sessions = self.sessions();
        if sessions.get(&host).is_some_and(|held| held.session_epoch > session_epoch) {
            return false;
        }
        if let Some(older) = sessions.insert(host, Held { session_epoch, mailbox }) {
            older.mailbox.put(|mail| mail.close = Some(RefusalCode::Superseded));
        }
        true
    }

    /// A session is over.
    pub(super) fn remove(&self, host: HostId, session_epoch: SessionEpoch) {
        let mut sessions = self.sessions();
        if sessions.get(&host).is_some_and(|held| held.session_epoch == session_epoch) {
            sessions.remove(&host);
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sessions().len()
    }

    /// Whose sessions are held.
    pub(super) fn hosts(&self) -> Vec<HostId> {
        self.sessions().keys().copied().collect()
    }

    /// Versions that were rendered; those of hosts that are elsewhere are nothing to this replica.
    pub(super) fn hint(&self, states: &[(HostId, Component, Version)]) {
        let sessions = self.sessions();
        for (host, component, version) in states {
            if let Some(held) = sessions.get(host) {
                held.mailbox.put_version(*component, *version);
            }
        }
    }

    /// What the authority holds of hosts: newer versions wake their session, a newer session ends it.
    pub(super) fn compare(&self, newest: &[HostNewest]) {
        let sessions = self.sessions();
        for host in newest {
            let Some(held) = sessions.get(&host.host) else { continue };
            if held.session_epoch < host.session_epoch {
                held.mailbox.put(|mail| mail.close = Some(RefusalCode::Superseded));
                continue;
            }
            for (component, version) in &host.versions {
                held.mailbox.put_version(*component, *version);
            }
        }
    }

    /// Ends the sessions of hosts that have a newer one elsewhere.
    pub(super) fn supersede(&self, hosts: &[HostId]) {
        let sessions = self.sessions();
        for held in hosts.iter().filter_map(|host| sessions.get(host)) {
            held.mailbox.put(|mail| mail.close = Some(RefusalCode::Superseded));
        }
    }

    /// Sends a host its whole state once more; false if it has no session here.
    pub(super) fn resend(&self, host: HostId) -> bool {
        let sessions = self.sessions();
        let held = sessions.get(&host);
        if let Some(held) = held {
            held.mailbox.put(|mail| mail.resend = [true; Component::ALL.len()]);
        }
        held.is_some()
    }

    /// Tells every agent when to leave, each at its own moment of `spread_ms`.
    pub(super) fn drain(&self, spread_ms: u64) {
        let sessions = self.sessions();
        let count = u64::try_from(sessions.len()).unwrap_or(u64::MAX).max(1);
        for (nth, held) in (0_u64..).zip(sessions.values()) {
            let reconnect_after_ms = u32::try_from(spread_ms.saturating_mul(nth) / count).unwrap_or(u32::MAX);
            held.mailbox.put(|mail| mail.drain = Some(Drain { reconnect_after_ms, gateways: Vec::new() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_newer_session_stays_whatever_came_first() {
        let registry = Registry::default();
        let host = HostId::new(Uuid::from_u128(1));
        let (old, new) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
        assert!(registry.insert(host, SessionEpoch::from_raw(1), Arc::clone(&old)));
        assert!(registry.insert(host, SessionEpoch::from_raw(3), Arc::clone(&new)));
        assert_eq!(old.take().close, Some(RefusalCode::Superseded));
        assert!(!registry.insert(host, SessionEpoch::from_raw(2), Arc::clone(&old)), "late, and older");
        registry.remove(host, SessionEpoch::from_raw(1));
        assert_eq!(registry.len(), 1, "the loser does not take the winner with it");
        assert_eq!(new.take().close, None);
        registry.remove(host, SessionEpoch::from_raw(3));
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn a_compare_wakes_with_versions_and_ends_what_moved_elsewhere() {
        let registry = Registry::default();
        let hosts = [1, 2].map(|n| HostId::new(Uuid::from_u128(n)));
        let boxes = hosts.map(|host| {
            let mailbox = Arc::new(Mailbox::default());
            registry.insert(host, SessionEpoch::from_raw(5), Arc::clone(&mailbox));
            mailbox
        });
        let version = Version::FIRST.next().expect("a second one");
        let newest = |host, epoch| HostNewest {
            host,
            session_epoch: SessionEpoch::from_raw(epoch),
            versions: vec![(Component::Policy, version), (Component::Policy, Version::FIRST)],
        };
        registry.compare(&[newest(hosts[0], 5), newest(hosts[1], 6)]);
        let mails = boxes.map(|mailbox| mailbox.take());
        assert_eq!((mails[0].close, mails[0].versions[0]), (None, Some(version)), "the highest counts");
        assert_eq!((mails[1].close, mails[1].versions[0]), (Some(RefusalCode::Superseded), None));
    }

    #[test]
    fn a_drain_gives_each_session_its_own_moment() {
        let registry = Registry::default();
        let boxes: Vec<_> = (0..10_u128)
            .map(|n| {
                let mailbox = Arc::new(Mailbox::default());
                registry.insert(HostId::new(Uuid::from_u128(n)), SessionEpoch::from_raw(1), Arc::clone(&mailbox));
                mailbox
            })
            .collect();
        registry.drain(10_000);
        let mut moments: Vec<u32> = boxes.iter().filter_map(|b| b.take().drain).map(|d| d.reconnect_after_ms).collect();
        moments.sort_unstable();
        assert_eq!(moments, (0..10).map(|n| n * 1_000).collect::<Vec<_>>());
    }
}
