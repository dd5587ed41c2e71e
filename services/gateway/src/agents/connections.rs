//! The connections of HTTP that hosts have open here.
//!
//! - A host has [`HTTP_PER_HOST_MAX`] of them: one more closes its oldest, so that what it leaves unread costs so much and no more.
//! - Strangers have no host; the door's own cap is theirs.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_model::ids::HostId;
use tokio::sync::oneshot;

use super::limits::HTTP_PER_HOST_MAX;

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// Of each host, by number; what is dropped is told to its connection.
    hosts: HashMap<HostId, BTreeMap<u64, oneshot::Sender<Infallible>>>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing that can panic runs under this lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another connection of a host; its oldest goes if there are too many.
    pub(super) fn enter(&self, host: HostId) -> Place {
        let (held, gone) = oneshot::channel();
        let mut open = self.open();
        open.last += 1;
        let number = open.last;
        let of_host = open.hosts.entry(host).or_default();
        of_host.insert(number, held);
        while of_host.len() > HTTP_PER_HOST_MAX {
            of_host.pop_first();
        }
        drop(open);
        Place { all: self.clone(), host, number, gone }
    }
}

/// One connection's place.
#[derive(Debug)]
pub(super) struct Place {
    all: Connections,
    host: HostId,
    number: u64,
    gone: oneshot::Receiver<Infallible>,
}

impl Place {
    /// Ends when a newer connection of the host took the place.
    pub(super) async fn lost(&mut self) {
        if let Ok(never) = (&mut self.gone).await {
            match never {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.all.open();
        if let Some(of_host) = open.hosts.get_mut(&self.host) {
            of_host.remove(&self.number);
            if of_host.is_empty() {
                open.hosts.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_host_has_so_many_connections_and_one_more_ends_its_oldest_and_nobody_elses() {
        let (connections, host) = (Connections::default(), |n| HostId::new(Uuid::from_u128(n)));
        let mut other = connections.enter(host(2));
        let mut places: Vec<Place> = (0..HTTP_PER_HOST_MAX).map(|_| connections.enter(host(1))).collect();
        let is_lost = |place: &mut Place| place.lost().now_or_never().is_some();
        assert!(places.iter_mut().all(|place| !is_lost(place)));
        let mut newest = connections.enter(host(1));
        let lost: Vec<bool> = places.iter_mut().map(is_lost).collect();
        assert_eq!(lost, [true, false, false, false]);
        // One that left makes room.
        drop(places.pop());
        let mut again = connections.enter(host(1));
        assert!(!is_lost(&mut places[1]) && !is_lost(&mut newest) && !is_lost(&mut again) && !is_lost(&mut other));
        drop((places, newest, again, other));
        assert!(connections.open().hosts.is_empty(), "nothing is kept of who left");
    }
}
