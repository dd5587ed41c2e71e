//! The reference model: what was really rendered, held, begun and ended, written down where it happens and nowhere derived.
//!
//! - It has no part of the product's code: a wrong decision there cannot make it wrong in the same way.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, SessionEpoch, Version};

use crate::world::facts::{Fact, Seen};

/// What is true.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    rendered: BTreeMap<(HostId, Component, Version), Digest>,
    held: BTreeSet<(HostId, Component, SessionEpoch, Stamp)>,
    newest: BTreeMap<HostId, SessionEpoch>,
    ended: BTreeSet<(HostId, SessionEpoch)>,
    /// The facts that each gateway took and that are not written, by their numbers.
    taken: BTreeMap<usize, BTreeMap<u64, Taken>>,
    /// When each host was last heard in a session.
    heard: BTreeMap<(HostId, SessionEpoch), u64>,
    /// When the authority's word to each gateway ends, as long as nobody's clock jumps.
    leases: BTreeMap<usize, u64>,
    /// Since when each gateway doubts hints without a compare that began later, and since when with one that has not ended.
    doubts: BTreeMap<usize, Doubts>,
    /// The newest term that anybody was given.
    pub(crate) term: LeaseTerm,
    /// The one that was numbered last.
    pub(crate) last_xid: u64,
    /// Transactions whose events have numbers.
    pub(crate) numbered: BTreeSet<u64>,
    /// When the latest of them had its locks.
    pub(crate) executed_max: u64,
}

/// A fact that waits.
#[derive(Clone, Copy, Debug)]
struct Taken {
    host: HostId,
    session_epoch: SessionEpoch,
    is_status: bool,
    is_end: bool,
}

/// The doubts of one gateway about hints.
#[derive(Clone, Copy, Debug, Default)]
struct Doubts {
    since: Option<u64>,
    /// One is being looked into.
    is_looked_into: bool,
}

impl Reference {
    /// A gateway took a fact, and answers for it as long as it lives.
    pub(crate) fn note_taken(&mut self, gateway: usize, fact: &Fact) {
        let (is_status, is_end) = (matches!(fact.seen, Seen::Status(_)), matches!(fact.seen, Seen::Closed));
        let taken = Taken { host: fact.host, session_epoch: fact.session_epoch, is_status, is_end };
        self.taken.entry(gateway).or_default().insert(fact.nth, taken);
    }

    /// A fact is written: with a status, every earlier one of its host is said.
    pub(crate) fn note_written(&mut self, gateway: usize, nth: u64, host: HostId, is_status: bool) {
        if let Some(taken) = self.taken.get_mut(&gateway) {
            taken.remove(&nth);
            taken.retain(|other, of| !(is_status && of.is_status && of.host == host && *other < nth));
        }
    }

    /// A fact is given up.
    pub(crate) fn note_left_out(&mut self, gateway: usize, nth: u64) {
        self.taken.entry(gateway).or_default().remove(&nth);
    }

    /// A fact of the same session that was taken before one that is written, and is not written itself. How a host is as a whole may wait for what it
    /// answered meanwhile, but for nothing that follows its session's end.
    pub(crate) fn overtaken_by(&self, gateway: usize, fact: &Fact) -> Option<u64> {
        let is_end = matches!(fact.seen, Seen::Closed);
        let is_kept = is_end || !matches!(fact.seen, Seen::Heard { .. } | Seen::Status(_));
        let mut before = self.taken.get(&gateway)?.range(..fact.nth).filter(|_| is_kept);
        let is_overtaken =
            |of: &Taken| (of.host, of.session_epoch) == (fact.host, fact.session_epoch) && (is_end || !of.is_status);
        before.find(|(_, of)| is_overtaken(of)).map(|(nth, _)| *nth)
    }

    /// How many facts wait on all gateways.
    pub(crate) fn taken(&self) -> usize {
        self.taken.values().map(BTreeMap::len).sum()
    }

    /// How many facts of a gateway were taken and are not written, and how many of them are the end of a session.
    pub(crate) fn unwritten(&self, gateway: usize) -> (usize, usize) {
        let Some(taken) = self.taken.get(&gateway) else { return (0, 0) };
        (taken.len(), taken.values().filter(|of| of.is_end).count())
    }

    /// A gateway died, with what it knew.
    pub(crate) fn forget_gateway(&mut self, gateway: usize) {
        self.taken.remove(&gateway);
        self.leases.remove(&gateway);
        self.doubts.remove(&gateway);
    }

    /// A host was heard.
    pub(crate) fn note_heard(&mut self, host: HostId, epoch: SessionEpoch, now: u64) {
        self.heard.insert((host, epoch), now);
    }

    pub(crate) fn heard_at(&self, host: HostId, epoch: SessionEpoch) -> Option<u64> {
        self.heard.get(&(host, epoch)).copied()
    }

    /// The authority gave a gateway its lease until then.
    pub(crate) fn note_lease(&mut self, gateway: usize, until: u64) {
        self.leases.insert(gateway, until);
    }

    pub(crate) fn lease_is_over(&self, gateway: usize, now: u64) -> bool {
        self.leases.get(&gateway).is_none_or(|until| *until <= now)
    }

    /// A gateway has reason to doubt hints.
    pub(crate) fn note_doubt(&mut self, gateway: usize, now: u64) {
        self.doubts.entry(gateway).or_default().since.get_or_insert(now);
    }

    /// A compare began: it reads later than every doubt that there is.
    pub(crate) fn note_compare_begun(&mut self, gateway: usize) {
        let doubts = self.doubts.entry(gateway).or_default();
        doubts.is_looked_into |= doubts.since.take().is_some();
    }

    /// A compare ended; one that failed leaves the doubt that it was for.
    pub(crate) fn note_compare_ended(&mut self, gateway: usize, is_compared: bool, now: u64) {
        let doubts = self.doubts.entry(gateway).or_default();
        if std::mem::take(&mut doubts.is_looked_into) && !is_compared {
            doubts.since.get_or_insert(now);
        }
    }

    /// Since when a gateway doubts hints, without the time until which it stood still.
    pub(crate) fn doubted_since(&self, gateway: usize, stood_until: u64) -> Option<u64> {
        self.doubts.get(&gateway)?.since.map(|since| since.max(stood_until))
    }

    /// A render was committed; false if the version is known with another content, or does not follow the one before.
    pub(crate) fn note_rendered(&mut self, host: HostId, component: Component, stamp: Stamp) -> bool {
        let before = stamp.version.raw().checked_sub(1).and_then(Version::from_raw);
        let follows = before.is_none_or(|before| self.rendered.contains_key(&(host, component, before)));
        self.rendered.insert((host, component, stamp.version), stamp.digest).is_none() && follows
    }

    pub(crate) fn was_rendered(&self, host: HostId, component: Component, stamp: Stamp) -> bool {
        self.rendered.get(&(host, component, stamp.version)) == Some(&stamp.digest)
    }

    /// A host had this in force when it said so in a session.
    pub(crate) fn note_held(&mut self, host: HostId, component: Component, epoch: SessionEpoch, stamp: Stamp) {
        self.held.insert((host, component, epoch, stamp));
    }

    pub(crate) fn was_held(&self, host: HostId, component: Component, epoch: SessionEpoch, stamp: Stamp) -> bool {
        self.held.contains(&(host, component, epoch, stamp))
    }

    /// A session began; false if its number is not above all before.
    pub(crate) fn note_begun(&mut self, host: HostId, epoch: SessionEpoch) -> bool {
        self.newest.insert(host, epoch).is_none_or(|before| before < epoch)
    }

    /// The end of a session was written.
    pub(crate) fn note_ended(&mut self, host: HostId, epoch: SessionEpoch) {
        self.ended.insert((host, epoch));
    }

    /// Whether a session is its host's newest and has not ended.
    pub(crate) fn is_current(&self, host: HostId, epoch: SessionEpoch) -> bool {
        self.newest.get(&host) == Some(&epoch) && !self.ended.contains(&(host, epoch))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_version_has_one_content_and_follows_the_one_before() {
        let host = HostId::new(Uuid::from_u128(1));
        let stamp = |version, text: &[u8]| Stamp {
            version: Version::from_raw(version).expect("not zero"),
            digest: Digest::of(text),
        };
        let mut reference = Reference::default();
        assert!(reference.note_rendered(host, Component::Policy, stamp(1, b"a")));
        assert!(reference.note_rendered(host, Component::Policy, stamp(2, b"b")));
        assert!(reference.was_rendered(host, Component::Policy, stamp(2, b"b")));
        assert!(!reference.was_rendered(host, Component::Policy, stamp(2, b"a")));
        assert!(!reference.was_rendered(host, Component::Settings, stamp(2, b"b")));
        assert!(!reference.note_rendered(host, Component::Policy, stamp(2, b"c")), "known already");
        assert!(!reference.note_rendered(host, Component::Policy, stamp(4, b"d")), "the third is missing");
    }

    #[test]
    fn a_session_is_current_until_its_own_end_or_the_next_one() {
        let (host, epoch) = (HostId::new(Uuid::from_u128(1)), SessionEpoch::from_raw);
        let mut reference = Reference::default();
        assert!(reference.note_begun(host, epoch(1)) && reference.is_current(host, epoch(1)));
        assert!(reference.note_begun(host, epoch(2)) && !reference.is_current(host, epoch(1)));
        reference.note_ended(host, epoch(1));
        assert!(reference.is_current(host, epoch(2)));
        reference.note_ended(host, epoch(2));
        assert!(!reference.is_current(host, epoch(2)) && !reference.note_begun(host, epoch(2)));
    }
}
