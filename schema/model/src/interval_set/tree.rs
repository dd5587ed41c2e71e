//! The chunks of an [`IntervalSet`](super::IntervalSet) and the walks over them.

use std::array;
use std::sync::Arc;

use super::LEAF_MAX;
use crate::address::{Address, Interval};
use crate::artifact::nodes;
use crate::digest::Digest;

/// One chunk: all intervals whose first address has one prefix.
#[derive(Debug)]
pub struct Node<A: Address> {
    digest: Digest,
    len: usize,
    pub(super) kind: Kind<A>,
}

/// What a chunk holds.
#[derive(Debug)]
pub(super) enum Kind<A: Address> {
    /// The intervals themselves, ascending, at most [`LEAF_MAX`].
    Leaf(Vec<Interval<A>>),
    /// Sixteen smaller prefixes; an empty one is absent.
    Branch(Box<[Option<Arc<Node<A>>>; 16]>),
}

impl<A: Address> Node<A> {
    /// Builds the chunk at `depth` from canonical intervals that share its prefix.
    pub(super) fn build(intervals: &[Interval<A>], depth: usize) -> Self {
        if intervals.len() <= LEAF_MAX {
            return Self::leaf(intervals.to_vec());
        }
        let mut rest = intervals;
        let children = array::from_fn(|index| {
            let (mine, others) =
                rest.split_at(rest.partition_point(|interval| interval.first().nibble(depth) <= index));
            rest = others;
            (!mine.is_empty()).then(|| Arc::new(Self::build(mine, depth + 1)))
        });
        Self::branch(children)
    }

    pub(super) fn leaf(intervals: Vec<Interval<A>>) -> Self {
        let digest = Digest::of(&nodes::encode_leaf(&intervals));
        Self { digest, len: intervals.len(), kind: Kind::Leaf(intervals) }
    }

    pub(super) fn branch(children: [Option<Arc<Self>>; 16]) -> Self {
        let digests = children.each_ref().map(|child| child.as_ref().map(|node| node.digest));
        let digest = Digest::of(&nodes::encode_branch::<A>(&digests));
        let len = children.iter().flatten().map(|child| child.len).sum();
        Self { digest, len, kind: Kind::Branch(Box::new(children)) }
    }

    /// How many intervals are below this chunk.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no interval is below this chunk.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The digest of this chunk's bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The bytes that the digest names.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match &self.kind {
            Kind::Leaf(intervals) => nodes::encode_leaf(intervals),
            Kind::Branch(children) => {
                nodes::encode_branch::<A>(&children.each_ref().map(|child| child.as_ref().map(|node| node.digest)))
            }
        }
    }

    /// The chunks right below, none under a leaf.
    pub fn children(&self) -> impl Iterator<Item = &Arc<Self>> {
        let slots: &[Option<Arc<Self>>] = match &self.kind {
            Kind::Leaf(_) => &[],
            Kind::Branch(children) => children.as_slice(),
        };
        slots.iter().flatten()
    }

    pub(super) fn for_each(&self, visit: &mut impl FnMut(Interval<A>)) {
        match &self.kind {
            Kind::Leaf(intervals) => intervals.iter().copied().for_each(visit),
            Kind::Branch(children) => children.iter().flatten().for_each(|child| child.for_each(visit)),
        }
    }

    /// The interval with the greatest first address that is not above `address`.
    pub(super) fn at_or_below(&self, depth: usize, address: A) -> Option<Interval<A>> {
        match &self.kind {
            Kind::Leaf(intervals) => {
                let after = intervals.partition_point(|interval| interval.first() <= address);
                after.checked_sub(1).and_then(|index| intervals.get(index)).copied()
            }
            Kind::Branch(children) => {
                let index = address.nibble(depth);
                let here = children.get(index).and_then(Option::as_ref);
                here.and_then(|child| child.at_or_below(depth + 1, address))
                    .or_else(|| children.iter().take(index).rev().flatten().next().and_then(|child| child.greatest()))
            }
        }
    }

    /// The interval with the smallest first address above `address`.
    pub(super) fn above(&self, depth: usize, address: A) -> Option<Interval<A>> {
        match &self.kind {
            Kind::Leaf(intervals) => {
                intervals.get(intervals.partition_point(|interval| interval.first() <= address)).copied()
            }
            Kind::Branch(children) => {
                let index = address.nibble(depth);
                let here = children.get(index).and_then(Option::as_ref);
                here.and_then(|child| child.above(depth + 1, address))
                    .or_else(|| children.iter().skip(index + 1).flatten().next().and_then(|child| child.least()))
            }
        }
    }

    fn greatest(&self) -> Option<Interval<A>> {
        match &self.kind {
            Kind::Leaf(intervals) => intervals.last().copied(),
            Kind::Branch(children) => children.iter().rev().flatten().next().and_then(|child| child.greatest()),
        }
    }

    fn least(&self) -> Option<Interval<A>> {
        match &self.kind {
            Kind::Leaf(intervals) => intervals.first().copied(),
            Kind::Branch(children) => children.iter().flatten().next().and_then(|child| child.least()),
        }
    }
}
