//! What is published and asked for, and how it becomes marks.

use std::collections::BTreeSet;

use holdfast_model::desired::Component;
use holdfast_model::ids::{HostId, ObjectId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};

use super::counts::Happening;
use super::event::{Asker, Lane, News, Reach, Scope};
use super::machine::{Held, Scheduler};
use super::slot::{Mark, Phase, SlotId};
use crate::time::Instant;

impl Scheduler {
    /// Desired states were published, with their versions; those of sessions that are not held are nothing to this scheduler.
    pub fn handle_states(&mut self, states: &[(HostId, Component, Version)], reach: Reach, now: Instant) {
        self.sequence += 1;
        let lane = match reach {
            Reach::Narrow => Lane::Host,
            Reach::Wide => Lane::Bulk,
        };
        for (host, component, version) in states {
            self.mark((*host, *component), lane, News::Newer(*version), now);
        }
    }

    /// Something was published whose versions are not named: the covered sessions are to look.
    pub fn handle_published(&mut self, scope: &Scope, components: &[Component], now: Instant) {
        self.sequence += 1;
        match scope {
            Scope::Host(host) => {
                for component in components {
                    self.mark((*host, *component), Lane::Host, News::Unnamed, now);
                }
            }
            Scope::Namespace(namespace) => self.queues.publish(Some(namespace), components, self.sequence),
            Scope::Credential(credential) => {
                for host in self.users_of(*credential) {
                    for component in components {
                        self.mark((host, *component), Lane::Bulk, News::Unnamed, now);
                    }
                }
            }
            Scope::Fleet => self.queues.publish(None, components, self.sequence),
        }
    }

    /// Who uses a credential, or may: it is not known yet, or just being read anew.
    fn users_of(&self, credential: ObjectId) -> Vec<HostId> {
        let may_use = |(host, held): (&HostId, &Held)| {
            let slot = self.slots.get(&(*host, Component::Credentials));
            let is_read = slot.is_some_and(|slot| matches!(slot.phase, Phase::Building(_)));
            let uses = held.credentials.as_ref().is_none_or(|used| used.contains(&credential));
            (uses || is_read).then_some(*host)
        };
        self.held.iter().filter_map(may_use).collect()
    }

    /// Which credentials a host uses, as a build of its credentials found.
    pub fn handle_credentials(&mut self, host: HostId, session_epoch: SessionEpoch, used: BTreeSet<ObjectId>) {
        if let Some(held) = self.held.get_mut(&host).filter(|held| held.session_epoch == session_epoch) {
            held.credentials = Some(used);
        }
    }

    /// A session has room and asks for a component; false if it is not held.
    pub fn handle_want(
        &mut self,
        host: HostId,
        session_epoch: SessionEpoch,
        component: Component,
        asker: Asker,
        now: Instant,
    ) -> bool {
        let id = (host, component);
        let is_held = self.held.get(&host).is_some_and(|held| held.session_epoch == session_epoch);
        let Some(slot) = self.slots.get_mut(&id).filter(|_| is_held) else { return false };
        let lane = match asker {
            // Where it came from: what fails for many at once does not become urgent by that.
            Asker::Session => slot.lane,
            Asker::Operator => Lane::Host,
        };
        if matches!(slot.phase, Phase::Parked) {
            // The session gives the mark back.
            slot.phase = Phase::Idle;
        }
        self.mark(id, lane, News::Asked, now);
        true
    }

    /// Makes a mark, or finds that there is one.
    fn mark(&mut self, id: SlotId, lane: Lane, news: News, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if let News::Newer(version) = news
            && slot.taken.is_some_and(|taken| version <= taken)
        {
            return self.counts.add(lane, Happening::Current);
        }
        let mut moved = None;
        match &mut slot.phase {
            Phase::Idle => {
                self.counts.add(lane, Happening::Admitted);
                return self.enqueue(id, lane, now, news);
            }
            Phase::Parked => slot.lane = slot.lane.min(lane),
            Phase::Waiting(mark) => {
                mark.news = mark.news.max(news);
                if lane < slot.lane {
                    moved = Some((slot.lane, *mark));
                }
            }
            Phase::Delayed { mark, .. } => {
                mark.news = mark.news.max(news);
                slot.lane = slot.lane.min(lane);
            }
            Phase::Building(build) => build.mark(lane, news, now),
        }
        self.counts.add(lane, Happening::Coalesced);
        if let (Some((from, mark)), Some(held)) = (moved, self.held.get(&id.0)) {
            self.queues.remove(from, &held.namespace, mark.place, id);
            self.enqueue(id, lane, mark.since, mark.news);
        }
    }

    pub(super) fn enqueue(&mut self, id: SlotId, lane: Lane, since: Instant, news: News) {
        let (Some(slot), Some(held)) = (self.slots.get_mut(&id), self.held.get(&id.0)) else { return };
        self.last += 1;
        let place = self.last;
        slot.lane = lane;
        slot.phase = Phase::Waiting(Mark { place, since, news });
        self.queues.put(lane, &held.namespace, place, id);
    }

    /// Whether there is bulk work, led on to the next that there is: a pass that finds nothing is none.
    pub(super) fn has_bulk(&mut self, now: Instant) -> bool {
        while self.queues.waiting(Lane::Bulk) == 0 {
            let Some(namespace) = self.queues.next_turn() else { return false };
            self.visit(&namespace, now);
        }
        true
    }

    /// Leads the pass of a namespace on until it marked one session, or is once around.
    pub(super) fn visit(&mut self, namespace: &Name, now: Instant) {
        let before = self.queues.waiting(Lane::Bulk);
        while self.queues.waiting(Lane::Bulk) == before
            && let Some((host, published)) = self.queues.next_visit(namespace)
        {
            for (component, sequence) in published {
                self.visit_slot((host, component), sequence, now);
            }
        }
    }

    fn visit_slot(&mut self, id: SlotId, sequence: u64, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let is_current = match &mut slot.phase {
            Phase::Building(build) if build.sequence >= sequence => {
                // A failure of it comes again by itself.
                build.is_counted_on = true;
                true
            }
            Phase::Idle | Phase::Waiting(_) | Phase::Delayed { .. } => slot.read >= sequence,
            Phase::Building(_) | Phase::Parked => false,
        };
        if is_current {
            self.counts.add(Lane::Bulk, Happening::Current);
        } else {
            self.mark(id, Lane::Bulk, News::Unnamed, now);
        }
    }
}
