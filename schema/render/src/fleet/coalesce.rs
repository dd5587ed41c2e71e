//! When a dirty host is rendered.
//!
//! - The first change after quiet goes at once. Later ones wait until nothing came for [`QUIET_MS`], but never longer than [`MAX_WAIT_MS`].
//! - A host that is held back is not due, however dirty: it stays so until it is let go.
//! - A host that is dirty keeps the first revision that made it so: the fleet is rendered up to just before the oldest of those.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::ids::HostId;
use holdfast_model::numbers::Revision;

/// Milliseconds on the caller's monotonic clock.
pub type Millis = u64;

/// A host is quiet when nothing touched it for this long (DESIGN §12).
pub const QUIET_MS: Millis = 50;
/// A host that is never quiet is rendered this often (DESIGN §12).
pub const MAX_WAIT_MS: Millis = 1_000;

#[derive(Clone, Copy, Debug)]
struct Dirty {
    since: Revision,
    first: Millis,
    last: Millis,
    /// Set for the first change after quiet.
    at_once: bool,
}

impl Dirty {
    fn due(self) -> Millis {
        if self.at_once { self.first } else { (self.last + QUIET_MS).min(self.first + MAX_WAIT_MS) }
    }
}

/// The dirty hosts and when they are due.
#[derive(Clone, Debug, Default)]
pub struct Coalescer {
    dirty: BTreeMap<HostId, Dirty>,
    /// When hosts were last touched: those of the last [`QUIET_MS`] only.
    touched: BTreeMap<HostId, Millis>,
    /// Those that are not due whatever happens.
    held: BTreeSet<HostId>,
}

impl Coalescer {
    /// Marks hosts that a revision touched.
    pub fn handle_touched(&mut self, hosts: impl IntoIterator<Item = HostId>, revision: Revision, now: Millis) {
        self.touched.retain(|_, at| *at + QUIET_MS > now);
        for host in hosts {
            let at_once = self.touched.insert(host, now).is_none();
            let fresh = Dirty { since: revision, first: now, last: now, at_once };
            self.dirty.entry(host).and_modify(|dirty| dirty.last = now).or_insert(fresh);
        }
    }

    /// From now on these are held back, and no others.
    pub fn handle_held(&mut self, hosts: BTreeSet<HostId>) {
        self.held = hosts;
    }

    /// Of those that are held back the ones that a revision up to this one touched, and that were not rendered since.
    #[must_use]
    pub fn held_since(&self, revision: Revision) -> BTreeSet<HostId> {
        let is_one = |(host, dirty): &(&HostId, &Dirty)| dirty.since <= revision && self.held.contains(host);
        self.dirty.iter().filter(is_one).map(|(host, _)| *host).collect()
    }

    /// Dirty hosts that were rendered as of the revision before this one: what made them dirty is of this one, or later.
    pub fn handle_rendered_before(&mut self, hosts: &BTreeSet<HostId>, since: Revision) {
        for (_, dirty) in self.dirty.iter_mut().filter(|(host, _)| hosts.contains(host)) {
            dirty.since = since;
        }
    }

    /// Hosts that are no longer enrolled.
    pub fn handle_gone(&mut self, hosts: &BTreeSet<HostId>) {
        self.dirty.retain(|host, _| !hosts.contains(host));
        self.touched.retain(|host, _| !hosts.contains(host));
    }

    /// The hosts that are due, which stay dirty until [`Coalescer::handle_rendered`].
    #[must_use]
    pub fn poll_due(&self, now: Millis) -> BTreeSet<HostId> {
        self.waiting().filter(|(_, dirty)| dirty.due() <= now).map(|(host, _)| *host).collect()
    }

    /// When the next host is due, and why one would wake for it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, &'static str)> {
        self.waiting().map(|(_, dirty)| dirty.due()).min().map(|due| (due, "a dirty host is due"))
    }

    /// The dirty hosts that are not held back.
    fn waiting(&self) -> impl Iterator<Item = (&HostId, &Dirty)> {
        self.dirty.iter().filter(|(host, _)| !self.held.contains(host))
    }

    /// Hosts whose render was committed.
    pub fn handle_rendered(&mut self, hosts: &BTreeSet<HostId>) {
        self.dirty.retain(|host, _| !hosts.contains(host));
    }

    /// The first revision that is not rendered for some host once `rendered` are done; none if all are.
    #[must_use]
    pub fn oldest_after(&self, rendered: &BTreeSet<HostId>) -> Option<Revision> {
        self.dirty.iter().filter(|(host, _)| !rendered.contains(host)).map(|(_, dirty)| dirty.since).min()
    }

    /// The same of the hosts that are not held back.
    #[must_use]
    pub fn oldest_let_go_after(&self, rendered: &BTreeSet<HostId>) -> Option<Revision> {
        self.waiting().filter(|(host, _)| !rendered.contains(host)).map(|(_, dirty)| dirty.since).min()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn host(n: u128) -> HostId {
        HostId::new(Uuid::from_u128(n))
    }

    fn touch(coalescer: &mut Coalescer, revision: u64, now: Millis) {
        coalescer.handle_touched([host(1)], Revision::from_raw(revision), now);
    }

    fn render(coalescer: &mut Coalescer, now: Millis) -> bool {
        let due = coalescer.poll_due(now);
        coalescer.handle_rendered(&due);
        !due.is_empty()
    }

    #[test]
    fn the_first_change_after_quiet_is_due_at_once() {
        let mut coalescer = Coalescer::default();
        touch(&mut coalescer, 1, 1_000);
        assert!(render(&mut coalescer, 1_000));
        touch(&mut coalescer, 2, 1_000 + QUIET_MS);
        assert!(render(&mut coalescer, 1_000 + QUIET_MS));
        assert_eq!(coalescer.poll_timeout(), None);
    }

    #[test]
    fn a_change_right_after_another_waits_for_quiet() {
        let mut coalescer = Coalescer::default();
        touch(&mut coalescer, 1, 0);
        assert!(render(&mut coalescer, 0));
        touch(&mut coalescer, 2, 10);
        touch(&mut coalescer, 3, 40);
        assert!(!render(&mut coalescer, 10 + QUIET_MS));
        assert_eq!(coalescer.poll_timeout().map(|(due, _)| due), Some(40 + QUIET_MS));
        assert!(render(&mut coalescer, 40 + QUIET_MS));
    }

    #[test]
    fn a_host_that_is_never_quiet_is_rendered_after_the_longest_wait() {
        let mut coalescer = Coalescer::default();
        touch(&mut coalescer, 1, 0);
        assert!(render(&mut coalescer, 0));
        let mut rendered = Vec::new();
        for now in (1..=3 * MAX_WAIT_MS).step_by(10) {
            touch(&mut coalescer, 2, now);
            if render(&mut coalescer, now) {
                rendered.push(now);
            }
        }
        assert!(rendered.len() >= 2);
        assert!(rendered.windows(2).all(|pair| pair[1] - pair[0] <= MAX_WAIT_MS + 10), "{rendered:?}");
    }

    #[test]
    fn the_fleet_is_rendered_up_to_before_the_oldest_dirty_host() {
        let mut coalescer = Coalescer::default();
        coalescer.handle_touched([host(1)], Revision::from_raw(5), 0);
        coalescer.handle_touched([host(2)], Revision::from_raw(7), 0);
        coalescer.handle_touched([host(1)], Revision::from_raw(8), 1);
        assert_eq!(coalescer.oldest_after(&BTreeSet::from([host(2)])), Some(Revision::from_raw(5)));
        assert_eq!(coalescer.oldest_after(&BTreeSet::from([host(1)])), Some(Revision::from_raw(7)));
        assert_eq!(coalescer.oldest_after(&BTreeSet::from([host(1), host(2)])), None);
        coalescer.handle_gone(&BTreeSet::from([host(1), host(2)]));
        assert_eq!(coalescer.poll_timeout(), None);
    }
}
