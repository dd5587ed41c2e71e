//! What happens next: actions by their moment, and in the order in which they were planned within one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Actions that wait for their moment.
#[derive(Debug)]
pub(crate) struct Queue<A> {
    heap: BinaryHeap<Entry<A>>,
    order: u64,
}

#[derive(Debug)]
struct Entry<A> {
    at: u64,
    order: u64,
    action: A,
}

impl<A> PartialEq for Entry<A> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<A> Eq for Entry<A> {}

impl<A> PartialOrd for Entry<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A> Ord for Entry<A> {
    /// The heap gives its greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<A> Queue<A> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), order: 0 }
    }

    pub(crate) fn put(&mut self, at: u64, action: A) {
        self.order += 1;
        self.heap.push(Entry { at, order: self.order, action });
    }

    /// The next action with its moment.
    pub(crate) fn take(&mut self) -> Option<(u64, A)> {
        self.heap.pop().map(|entry| (entry.at, entry.action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_come_as_they_were_planned() {
        let mut queue = Queue::new();
        for (at, action) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.put(at, action);
        }
        let order: String = std::iter::from_fn(|| queue.take()).map(|(_, action)| action).collect();
        assert_eq!(order, "abcd");
    }
}
