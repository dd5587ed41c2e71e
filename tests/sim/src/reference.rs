//! The reference model: what was really rendered, held, begun and ended, written down where it happens and nowhere derived.
//!
//! - It has no part of the product's code: a wrong decision there cannot make it wrong in the same way.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, SessionEpoch, Version};

/// What is true.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    rendered: BTreeMap<(HostId, Component, Version), Digest>,
    held: BTreeSet<(HostId, Component, SessionEpoch, Stamp)>,
    newest: BTreeMap<HostId, SessionEpoch>,
    ended: BTreeSet<(HostId, SessionEpoch)>,
    /// The newest term that anybody was given.
    pub(crate) term: LeaseTerm,
    /// The one that was numbered last.
    pub(crate) last_xid: u64,
    /// Transactions whose events have numbers.
    pub(crate) numbered: BTreeSet<u64>,
    /// When the latest of them had its locks.
    pub(crate) executed_max: u64,
}

impl Reference {
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
