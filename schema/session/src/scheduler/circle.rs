//! The sessions of one namespace in a stable order, with what is marked among them and a cursor of what was published for all.
//!
//! - A publication for all costs nothing but its sequence: a pass visits one session after the other, from where the cursor stands, once around.
//! - A newer publication begins the circle anew from where the cursor stands: at most one more circle, whatever was published meanwhile.
//! - Sessions may come and go under the cursor: it is a position, not a place in a list.

use std::collections::BTreeSet;
use std::ops::Bound;

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;

use super::slot::SlotId;

#[derive(Debug, Default)]
pub(super) struct Circle {
    hosts: BTreeSet<HostId>,
    marked: BTreeSet<SlotId>,
    /// The mark that was taken last.
    taken: Option<SlotId>,
    /// The session that was visited last.
    visited: Option<HostId>,
    published: Vec<(Component, u64)>,
    pass: Option<Pass>,
}

/// A way around.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Where the cursor stood at the newest publication: the last one to be visited.
    origin: Option<HostId>,
    wrapped: bool,
}

impl Circle {
    pub(super) fn hold(&mut self, host: HostId) {
        self.hosts.insert(host);
    }

    pub(super) fn release(&mut self, host: HostId) {
        self.hosts.remove(&host);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.pass.is_some() || !self.marked.is_empty()
    }

    pub(super) fn has_marks(&self) -> bool {
        !self.marked.is_empty()
    }

    pub(super) fn mark(&mut self, slot: SlotId) -> bool {
        self.marked.insert(slot)
    }

    pub(super) fn unmark(&mut self, slot: SlotId) -> bool {
        self.marked.remove(&slot)
    }

    /// The next mark after the one that was taken last, around and around.
    pub(super) fn take_mark(&mut self) -> Option<SlotId> {
        let after = self.taken.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.marked.range((after, Bound::Unbounded)).next().or_else(|| self.marked.first());
        let slot = *next?;
        self.marked.remove(&slot);
        self.taken = Some(slot);
        Some(slot)
    }

    pub(super) fn publish(&mut self, components: &[Component], sequence: u64) {
        for component in components {
            self.published.retain(|(known, _)| known != component);
            self.published.push((*component, sequence));
        }
        self.pass = Some(Pass { origin: self.visited, wrapped: false });
    }

    /// What was published for all, by component.
    pub(super) fn published(&self) -> impl Iterator<Item = (Component, u64)> + '_ {
        self.published.iter().copied()
    }

    /// The next session to visit; `None` once around.
    pub(super) fn next_visit(&mut self) -> Option<HostId> {
        loop {
            let pass = self.pass.as_mut()?;
            let after = self.visited.map_or(Bound::Unbounded, Bound::Excluded);
            match self.hosts.range((after, Bound::Unbounded)).next().copied() {
                Some(host) if !pass.wrapped || pass.origin.is_some_and(|origin| host <= origin) => {
                    self.visited = Some(host);
                    return Some(host);
                }
                None if !pass.wrapped && pass.origin.is_some() => {
                    pass.wrapped = true;
                    self.visited = None;
                }
                Some(_) | None => self.pass = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn mk_host(n: u128) -> HostId {
        HostId::new(Uuid::from_u128(n))
    }

    fn mk_circle(count: u128) -> Circle {
        let mut circle = Circle::default();
        (0..count).for_each(|n| circle.hold(mk_host(n)));
        circle
    }

    fn visit(circle: &mut Circle, count: usize) -> Vec<u128> {
        std::iter::from_fn(|| circle.next_visit()).take(count).map(|host| host.uuid().as_u128()).collect()
    }

    #[test]
    fn a_pass_is_once_around_from_where_the_last_one_stood() {
        let mut circle = mk_circle(5);
        assert_eq!(visit(&mut circle, 9), [], "nothing was published");
        circle.publish(&[Component::Policy], 1);
        assert_eq!(visit(&mut circle, 2), [0, 1]);
        circle.publish(&[Component::Policy], 2);
        assert_eq!(visit(&mut circle, 99), [2, 3, 4, 0, 1]);
        assert!(!circle.is_busy());
        circle.publish(&[Component::Policy], 3);
        assert_eq!(visit(&mut circle, 99), [2, 3, 4, 0, 1], "every one, once");
    }

    #[test]
    fn sessions_that_come_and_go_under_the_cursor_leave_the_circle_whole() {
        let mut circle = mk_circle(6);
        circle.publish(&[Component::Policy], 1);
        assert_eq!(visit(&mut circle, 3), [0, 1, 2]);
        circle.publish(&[Component::Policy], 2);
        // The one under the cursor goes, which is the origin too, and so does the next.
        circle.release(mk_host(2));
        circle.release(mk_host(3));
        circle.hold(mk_host(9));
        assert_eq!(visit(&mut circle, 99), [4, 5, 9, 0, 1]);
        for n in [0, 1, 4, 5, 9] {
            circle.publish(&[Component::Policy], 3);
            circle.release(mk_host(n));
        }
        assert_eq!(visit(&mut circle, 99), []);
        assert!(circle.is_empty() && !circle.is_busy());
    }

    #[test]
    fn marks_are_taken_around_and_around_so_that_none_is_overtaken_twice() {
        let mut circle = mk_circle(4);
        let slot = |n| (mk_host(n), Component::Policy);
        (0..4).for_each(|n| _ = circle.mark(slot(n)));
        assert_eq!(circle.take_mark(), Some(slot(0)));
        assert_eq!(circle.take_mark(), Some(slot(1)));
        circle.mark(slot(0));
        circle.mark(slot(1));
        let rest: Vec<_> = std::iter::from_fn(|| circle.take_mark()).collect();
        assert_eq!(rest, [2, 3, 0, 1].map(slot));
    }
}
