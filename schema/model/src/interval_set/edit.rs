//! Differences of interval sets, and applying them as a unit.

use std::sync::Arc;

use super::tree::{Kind, Node};
use super::{IntervalSet, LEAF_MAX};
use crate::address::{Address, Interval};

/// What turns one canonical set into another: whole intervals out, whole intervals in, both ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit<A: Address> {
    /// Intervals of the base that the target lacks.
    pub remove: Vec<Interval<A>>,
    /// Intervals of the target that the base lacks.
    pub add: Vec<Interval<A>>,
}

/// Why an edit does not fit its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EditError {
    /// An interval to remove is not there, exactly so.
    #[error("an interval to remove is not in the set")]
    Missing,
    /// An interval to add meets one that is there.
    #[error("an interval to add meets one that is in the set")]
    Meets,
}

impl<A: Address> Edit<A> {
    /// An edit that changes nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { remove: Vec::new(), add: Vec::new() }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

impl<A: Address> IntervalSet<A> {
    /// The smallest edit from this set to `target`, at a cost that follows the difference.
    #[must_use]
    pub fn edit_to(&self, target: &Self) -> Edit<A> {
        let mut edit = Edit::none();
        difference(Some(&self.root), Some(&target.root), &mut edit);
        edit
    }

    /// This set after an edit.
    ///
    /// # Errors
    /// [`EditError`] if the edit was made for another base; this set is untouched either way.
    pub fn edited(&self, edit: &Edit<A>) -> Result<Self, EditError> {
        let mut root = Arc::clone(&self.root);
        for interval in &edit.remove {
            root = without(&root, 0, *interval).ok_or(EditError::Missing)?;
        }
        for interval in &edit.add {
            let below = root.at_or_below(0, interval.first());
            let above = root.above(0, interval.first());
            if below.into_iter().chain(above).any(|there| there.meets(*interval)) {
                return Err(EditError::Meets);
            }
            root = with(&root, 0, *interval);
        }
        Ok(Self { root })
    }

    /// This set with one address in it, at a cost that does not follow the size of the set.
    #[must_use]
    pub fn including(&self, address: A) -> Self {
        let below = self.root.at_or_below(0, address);
        if below.is_some_and(|interval| interval.contains(address)) {
            return self.clone();
        }
        let below = below.filter(|interval| interval.last().above() == Some(address));
        let above = self.root.above(0, address).filter(|interval| address.above() == Some(interval.first()));
        let first = below.map_or(address, Interval::first);
        let last = above.map_or(address, Interval::last);
        self.exchanged(below.into_iter().chain(above), Interval::new(first, last))
    }

    /// This set with one address out of it, at a cost that does not follow the size of the set.
    #[must_use]
    pub fn excluding(&self, address: A) -> Self {
        let Some(whole) = self.root.at_or_below(0, address).filter(|interval| interval.contains(address)) else {
            return self.clone();
        };
        let below = address.below().and_then(|last| Interval::new(whole.first(), last));
        let above = address.above().and_then(|first| Interval::new(first, whole.last()));
        self.exchanged([whole], below.into_iter().chain(above))
    }

    /// This set after intervals that were just read from it gave way to others that meet nothing else.
    fn exchanged(
        &self,
        remove: impl IntoIterator<Item = Interval<A>>,
        add: impl IntoIterator<Item = Interval<A>>,
    ) -> Self {
        let edit = Edit { remove: remove.into_iter().collect(), add: add.into_iter().collect() };
        self.edited(&edit).expect("what goes was read from this set, and what comes takes only its place")
    }
}

/// Collects what differs below two chunks of one prefix; equal digests end the walk.
fn difference<A: Address>(base: Option<&Arc<Node<A>>>, target: Option<&Arc<Node<A>>>, edit: &mut Edit<A>) {
    if base.map(|node| node.digest()) == target.map(|node| node.digest()) {
        return;
    }
    if let (Some(base), Some(target)) = (base, target)
        && let (Kind::Branch(base), Kind::Branch(target)) = (&base.kind, &target.kind)
    {
        for (base, target) in base.iter().zip(target.iter()) {
            difference(base.as_ref(), target.as_ref(), edit);
        }
        return;
    }
    let flat = |node: Option<&Arc<Node<A>>>| {
        let mut all = Vec::new();
        if let Some(node) = node {
            node.for_each(&mut |interval| all.push(interval));
        }
        all
    };
    let (base, target) = (flat(base), flat(target));
    edit.remove.extend(base.iter().filter(|interval| target.binary_search(interval).is_err()));
    edit.add.extend(target.iter().filter(|interval| base.binary_search(interval).is_err()));
}

fn with<A: Address>(node: &Arc<Node<A>>, depth: usize, interval: Interval<A>) -> Arc<Node<A>> {
    Arc::new(match &node.kind {
        Kind::Leaf(intervals) => {
            let mut intervals = intervals.clone();
            intervals.insert(intervals.partition_point(|there| *there < interval), interval);
            Node::build(&intervals, depth)
        }
        Kind::Branch(children) => {
            let mut children = children.as_ref().clone();
            if let Some(slot) = children.get_mut(interval.first().nibble(depth)) {
                *slot = Some(match slot {
                    Some(child) => with(child, depth + 1, interval),
                    None => Arc::new(Node::leaf(vec![interval])),
                });
            }
            Node::branch(children)
        }
    })
}

fn without<A: Address>(node: &Arc<Node<A>>, depth: usize, interval: Interval<A>) -> Option<Arc<Node<A>>> {
    match &node.kind {
        Kind::Leaf(intervals) => {
            let mut intervals = intervals.clone();
            intervals.remove(intervals.binary_search(&interval).ok()?);
            Some(Arc::new(Node::leaf(intervals)))
        }
        Kind::Branch(children) => {
            let mut children = children.as_ref().clone();
            let slot = children.get_mut(interval.first().nibble(depth))?;
            *slot = Some(without(slot.as_ref()?, depth + 1, interval)?).filter(|child| !child.is_empty());
            let branch = Node::branch(children);
            Some(Arc::new(if branch.len() > LEAF_MAX {
                branch
            } else {
                // A prefix that fits a leaf is a leaf, whatever it was before: the shape depends on content only.
                let mut intervals = Vec::with_capacity(branch.len());
                branch.for_each(&mut |there| intervals.push(there));
                Node::leaf(intervals)
            }))
        }
    }
}
