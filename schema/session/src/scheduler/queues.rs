//! What waits for a build, by lane.
//!
//! - [`Lane::Host`] and [`Lane::First`] are served in the order in which marks were made.
//! - [`Lane::Bulk`] is served namespace by namespace in turn, and within one around its circle: no tenant's wide change keeps another's waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;

use super::circle::Circle;
use super::event::{Lane, PerLane};
use super::slot::SlotId;

#[derive(Debug, Default)]
pub(super) struct Queues {
    host: BTreeMap<u64, SlotId>,
    first: BTreeMap<u64, SlotId>,
    circles: BTreeMap<Name, Circle>,
    /// Namespaces with marks, or with a pass.
    busy: BTreeSet<Name>,
    /// The namespace that was served last.
    served: Option<Name>,
    waiting: PerLane<usize>,
}

impl Queues {
    pub(super) const fn waiting(&self, lane: Lane) -> usize {
        *self.waiting.of(lane)
    }

    pub(super) fn hold(&mut self, namespace: &Name, host: HostId) {
        if let Some(circle) = self.circles.get_mut(namespace) {
            return circle.hold(host);
        }
        self.circles.entry(namespace.clone()).or_default().hold(host);
    }

    /// The marks of the host's slots are out already.
    pub(super) fn release(&mut self, namespace: &Name, host: HostId) {
        if let Some(circle) = self.circles.get_mut(namespace) {
            circle.release(host);
            if circle.is_empty() {
                self.circles.remove(namespace);
                self.busy.remove(namespace);
            }
        }
    }

    pub(super) fn put(&mut self, lane: Lane, namespace: &Name, place: u64, slot: SlotId) {
        let is_new = match lane {
            Lane::Host => self.host.insert(place, slot).is_none(),
            Lane::First => self.first.insert(place, slot).is_none(),
            Lane::Bulk => self.change(namespace, |circle| circle.mark(slot)).unwrap_or(false),
        };
        *self.waiting.of_mut(lane) += usize::from(is_new);
    }

    pub(super) fn remove(&mut self, lane: Lane, namespace: &Name, place: u64, slot: SlotId) {
        let was_there = match lane {
            Lane::Host => self.host.remove(&place).is_some(),
            Lane::First => self.first.remove(&place).is_some(),
            Lane::Bulk => self.change(namespace, |circle| circle.unmark(slot)).unwrap_or(false),
        };
        *self.waiting.of_mut(lane) -= usize::from(was_there);
    }

    /// The next slot of a lane, taken out.
    pub(super) fn take(&mut self, lane: Lane) -> Option<SlotId> {
        let taken = match lane {
            Lane::Host => self.host.pop_first().map(|(_, slot)| slot),
            Lane::First => self.first.pop_first().map(|(_, slot)| slot),
            Lane::Bulk => {
                let namespace = self.next_busy(|circle| circle.has_marks())?;
                let slot = self.change(&namespace, Circle::take_mark).flatten();
                self.served = Some(namespace);
                slot
            }
        };
        *self.waiting.of_mut(lane) -= usize::from(taken.is_some());
        taken
    }

    /// Begins a pass in every namespace, or in one.
    pub(super) fn publish(&mut self, namespace: Option<&Name>, components: &[Component], sequence: u64) {
        let names: Vec<Name> = match namespace {
            Some(namespace) => vec![namespace.clone()],
            None => self.circles.keys().cloned().collect(),
        };
        for name in names {
            self.change(&name, |circle| circle.publish(components, sequence));
        }
    }

    /// The namespace whose turn is next and that has a pass or marks.
    pub(super) fn next_turn(&self) -> Option<Name> {
        self.next_busy(|_| true)
    }

    /// The next session that a namespace's pass visits, with what was published for all of that namespace.
    pub(super) fn next_visit(&mut self, namespace: &Name) -> Option<(HostId, Vec<(Component, u64)>)> {
        let visit = |circle: &mut Circle| Some((circle.next_visit()?, circle.published().collect()));
        self.change(namespace, visit).flatten()
    }

    fn next_busy(&self, wanted: impl Fn(&Circle) -> bool) -> Option<Name> {
        let after = self.served.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let around = self.busy.range::<Name, _>((after, Bound::Unbounded)).chain(&self.busy);
        around.into_iter().find(|name| self.circles.get(*name).is_some_and(&wanted)).cloned()
    }

    /// Changes a circle and knows afterwards whether it is busy.
    fn change<T>(&mut self, namespace: &Name, how: impl FnOnce(&mut Circle) -> T) -> Option<T> {
        let circle = self.circles.get_mut(namespace)?;
        let (before, result) = (circle.is_busy(), how(circle));
        match (before, circle.is_busy()) {
            (false, true) => _ = self.busy.insert(namespace.clone()),
            (true, false) => _ = self.busy.remove(namespace),
            (true, true) | (false, false) => {}
        }
        Some(result)
    }
}
