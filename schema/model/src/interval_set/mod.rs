//! A canonical set of addresses of one family, as a persistent tree of prefix chunks.
//!
//! - Canonical: intervals are disjoint, none meets another, so equal sets have equal digests.
//! - Chunk boundaries depend on content, never on position: a prefix is one leaf while it holds at most [`LEAF_MAX`] intervals, else it branches
//!   by its next four bits. An interval belongs to the chunk of its first address.
//! - Copies share their chunks; an edit makes new chunks on one path only, and a comparison skips equal chunks by digest. Cost follows the change.
//!
//! It does not hold labels, sources or counts per element: that is the authored side.

mod edit;
mod tree;

pub use edit::{Edit, EditError};
use std::fmt;
use std::sync::Arc;
pub use tree::Node;

use crate::address::{Address, Interval, merge};
use crate::digest::Digest;

/// The most intervals in one leaf: 256 of 5 to 8 bytes make a chunk of 1 to 2 KiB, a row that Postgres keeps in line.
pub const LEAF_MAX: usize = 256;

/// A canonical set of addresses of one family. Cloning is cheap.
#[derive(Clone)]
pub struct IntervalSet<A: Address> {
    root: Arc<Node<A>>,
}

impl<A: Address> IntervalSet<A> {
    /// The set without members.
    #[must_use]
    pub fn empty() -> Self {
        Self { root: Arc::new(Node::build(&[], 0)) }
    }

    /// The set of all addresses that the intervals cover, which may overlap, meet and repeat in any order.
    #[must_use]
    pub fn covering(intervals: Vec<Interval<A>>) -> Self {
        Self { root: Arc::new(Node::build(&merge(intervals), 0)) }
    }

    /// Takes intervals that must already be canonical; `None` if they are not.
    #[must_use]
    pub fn from_canonical(intervals: &[Interval<A>]) -> Option<Self> {
        let canonical = intervals.is_sorted_by(|a, b| a.first() < b.first() && !a.meets(*b));
        canonical.then(|| Self { root: Arc::new(Node::build(intervals, 0)) })
    }

    /// How many intervals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.root.len()
    }

    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The digest of the root chunk, which names the whole content.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.root.digest()
    }

    /// The root chunk.
    #[must_use]
    pub fn root(&self) -> &Node<A> {
        &self.root
    }

    /// Whether an address is in the set.
    #[must_use]
    pub fn contains(&self, address: A) -> bool {
        self.root.at_or_below(0, address).is_some_and(|interval| interval.contains(address))
    }

    /// The intervals, ascending.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Interval<A>> {
        let mut all = Vec::with_capacity(self.len());
        self.root.for_each(&mut |interval| all.push(interval));
        all
    }

    /// Calls back with each interval, ascending.
    pub fn for_each(&self, mut visit: impl FnMut(Interval<A>)) {
        self.root.for_each(&mut visit);
    }
}

impl<A: Address> Default for IntervalSet<A> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<A: Address> PartialEq for IntervalSet<A> {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl<A: Address> Eq for IntervalSet<A> {}

impl<A: Address> fmt::Debug for IntervalSet<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.to_vec()).finish()
    }
}

impl<A: Address> FromIterator<Interval<A>> for IntervalSet<A> {
    fn from_iter<T: IntoIterator<Item = Interval<A>>>(intervals: T) -> Self {
        Self::covering(intervals.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
