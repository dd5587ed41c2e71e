//! The machine: sessions come and go, marks become builds, builds end.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::desired::Component;
use holdfast_model::ids::{HostId, ObjectId};
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};

use super::capacity::Capacity;
use super::counts::{Count, Counts, Happening};
use super::event::{Ended, Lane, News, PerLane, Start, Ticket};
use super::queues::Queues;
use super::slot::{Build, Mark, Phase, Slot, SlotId};
use crate::backoff::Backoff;
use crate::limits::{BUILD_TIMEOUT, REBUILD_BASE, REBUILD_CAP};
use crate::random::Random;
use crate::time::{Instant, sooner};

/// The deliveries of one gateway.
#[derive(Debug)]
pub struct Scheduler {
    capacity: Capacity,
    random: Random,
    /// Of the newest publication.
    pub(super) sequence: u64,
    /// The last place in a queue, and the last number of a build.
    pub(super) last: u64,
    pub(super) held: BTreeMap<HostId, Held>,
    pub(super) slots: BTreeMap<SlotId, Slot>,
    pub(super) queues: Queues,
    building: PerLane<usize>,
    /// What failed, by when it is tried again.
    delayed: BTreeSet<(Instant, SlotId)>,
    /// What is under way, by when it is given up.
    deadlines: BTreeSet<(Instant, SlotId)>,
    pub(super) counts: Counts,
    faults: Faults,
}

/// A session that is held here.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session_epoch: SessionEpoch,
    pub(super) namespace: Name,
    /// Which credentials its host uses; `None` as long as that is not known.
    pub(super) credentials: Option<BTreeSet<ObjectId>>,
}

impl Scheduler {
    /// A scheduler without sessions; the seed chooses the jitter.
    #[must_use]
    pub fn new(capacity: Capacity, seed: u64) -> Self {
        Self {
            capacity,
            random: Random::new(seed),
            sequence: 0,
            last: 0,
            held: BTreeMap::new(),
            slots: BTreeMap::new(),
            queues: Queues::default(),
            building: PerLane::default(),
            delayed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            counts: Counts::default(),
            faults: Faults::default(),
        }
    }

    /// The same with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// A session begins and an older one of its host ends; false if it is not the newest of its host. It asks for its first states by itself.
    pub fn handle_held(&mut self, host: HostId, namespace: Name, session_epoch: SessionEpoch) -> bool {
        if let Some(held) = self.held.get(&host) {
            if held.session_epoch >= session_epoch {
                return false;
            }
            let older = held.session_epoch;
            self.handle_released(host, older);
        }
        for component in Component::ALL {
            self.slots.insert((host, component), Slot::new(self.sequence));
        }
        self.queues.hold(&namespace, host);
        self.held.insert(host, Held { session_epoch, namespace, credentials: None });
        true
    }

    /// A session is over. One that is not held any more changes nothing.
    pub fn handle_released(&mut self, host: HostId, session_epoch: SessionEpoch) {
        let is_other = self.held.get(&host).is_none_or(|held| held.session_epoch != session_epoch);
        if is_other && !self.faults.has(Mutant::LateCleanupUnfenced) {
            return;
        }
        let Some(held) = self.held.remove(&host) else { return };
        for component in Component::ALL {
            let id = (host, component);
            let Some(slot) = self.slots.remove(&id) else { continue };
            let lane = match slot.phase {
                Phase::Idle | Phase::Parked => continue,
                Phase::Waiting(mark) => {
                    self.queues.remove(slot.lane, &held.namespace, mark.place, id);
                    slot.lane
                }
                Phase::Delayed { until, .. } => {
                    self.delayed.remove(&(until, id));
                    slot.lane
                }
                Phase::Building(build) => {
                    self.deadlines.remove(&(build.until, id));
                    *self.building.of_mut(build.lane) -= 1;
                    build.lane
                }
            };
            self.counts.add(lane, Happening::Abandoned);
        }
        self.queues.release(&held.namespace, host);
    }

    /// Whether a version is news to the session of a host that is held here.
    #[must_use]
    pub fn is_news(&self, host: HostId, component: Component, version: Version) -> bool {
        self.slots.get(&(host, component)).is_some_and(|slot| slot.taken.is_none_or(|taken| taken < version))
    }

    /// The newest version of each component that was built for the session of a host that is held here, in the order of [`Component::ALL`].
    #[must_use]
    pub fn built(&self, host: HostId) -> [Option<Version>; Component::ALL.len()] {
        Component::ALL.map(|component| self.slots.get(&(host, component)).and_then(|slot| slot.taken))
    }

    /// The next build that may begin; ask until there is none.
    pub fn poll_start(&mut self, now: Instant) -> Option<Start> {
        let waits = PerLane {
            host: self.queues.waiting(Lane::Host) > 0,
            first: self.queues.waiting(Lane::First) > 0,
            bulk: self.has_bulk(now),
        };
        let allowed = |lane: &Lane| *waits.of(*lane) && self.capacity.allows(*lane, &self.building, &waits);
        let lane = Lane::ALL.into_iter().find(allowed)?;
        if lane == Lane::Bulk
            && let Some(namespace) = self.queues.next_turn()
        {
            // Marks that were made one by one do not keep a pass from going on.
            self.visit(&namespace, now);
        }
        let id = self.queues.take(lane)?;
        self.start(id, now)
    }

    fn start(&mut self, id: SlotId, now: Instant) -> Option<Start> {
        let (host, component) = id;
        let session_epoch = self.held.get(&host)?.session_epoch;
        let slot = self.slots.get_mut(&id)?;
        let Phase::Waiting(mark) = slot.phase else { return None };
        self.last += 1;
        let (number, lane, until) = (self.last, slot.lane, now.plus(BUILD_TIMEOUT));
        let (sequence, news) = (self.sequence, mark.news);
        let build = Build { number, lane, sequence, until, news, again: None, is_counted_on: false };
        slot.phase = Phase::Building(build);
        self.deadlines.insert((until, id));
        *self.building.of_mut(lane) += 1;
        self.counts.add(lane, Happening::Started);
        let ticket = Ticket { host, session_epoch, component, lane, number };
        Some(Start { ticket, news, waited: now.since(mark.since) })
    }

    /// A build ended; false if nobody waits for it any more.
    pub fn handle_ended(&mut self, ticket: Ticket, ended: Ended, now: Instant) -> bool {
        let id = (ticket.host, ticket.component);
        // A number is given once, so it names the session too.
        let build = match self.slots.get(&id).map(|slot| &slot.phase) {
            Some(Phase::Building(build)) if build.number == ticket.number => *build,
            Some(Phase::Building(_) | Phase::Idle | Phase::Parked | Phase::Waiting(_) | Phase::Delayed { .. })
            | None => {
                self.counts.add(ticket.lane, Happening::Stale);
                return false;
            }
        };
        self.end(id, build, ended, now);
        true
    }

    fn end(&mut self, id: SlotId, mut build: Build, ended: Ended, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        self.deadlines.remove(&(build.until, id));
        *self.building.of_mut(build.lane) -= 1;
        slot.phase = Phase::Idle;
        let happening = match ended {
            Ended::Built { version } => {
                slot.taken = slot.taken.max(Some(version));
                slot.read = build.sequence;
                Happening::Built
            }
            Ended::Unchanged => {
                slot.read = build.sequence;
                Happening::Unchanged
            }
            Ended::Refused => {
                slot.read = build.sequence;
                Happening::Refused
            }
            Ended::Declined => {
                if let News::Newer(version) = build.news {
                    // By a build that was given up, and that it took all the same.
                    slot.taken = slot.taken.max(Some(version));
                }
                if build.is_counted_on {
                    build.mark(Lane::Bulk, News::Unnamed, now);
                }
                Happening::Declined
            }
            Ended::Parked => {
                slot.phase = Phase::Parked;
                Happening::Parked
            }
            Ended::Failed => Happening::Failed,
        };
        self.counts.add(build.lane, happening);
        if ended == Ended::Failed {
            return self.delay(id, build, now);
        }
        if matches!(happening, Happening::Built | Happening::Unchanged | Happening::Refused) {
            slot.backoff = None;
        }
        let Some(again) = build.again.filter(|_| !self.faults.has(Mutant::MarkDropped)) else { return };
        let is_taken = |version| slot.taken.is_some_and(|taken| version <= taken);
        if matches!(again.news, News::Newer(version) if is_taken(version)) && !again.asked {
            self.counts.add(again.lane, Happening::Superseded);
        } else if matches!(slot.phase, Phase::Parked) && !again.asked {
            slot.lane = slot.lane.min(again.lane);
        } else {
            self.enqueue(id, again.lane, again.since, again.news);
        }
    }

    /// Puts a failed build off: full jitter, so that what failed together does not come back together.
    fn delay(&mut self, id: SlotId, build: Build, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let seed = self.random.next_u64();
        let backoff =
            slot.backoff.get_or_insert_with(|| Box::new(Backoff::with_bounds(seed, REBUILD_BASE, REBUILD_CAP)));
        let until = now.plus(backoff.next_wait());
        slot.lane = build.again.map_or(build.lane, |again| again.lane.min(build.lane));
        // What the mark told is not known to be answered, so only a read tells.
        let mark = Mark { place: 0, since: now, news: News::Unnamed };
        slot.phase = Phase::Delayed { until, mark };
        self.delayed.insert((until, id));
    }

    /// Time went on.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((until, id)) = self.deadlines.first().copied().filter(|(until, _)| *until <= now) {
            self.deadlines.remove(&(until, id));
            if let Some(Phase::Building(build)) = self.slots.get(&id).map(|slot| &slot.phase) {
                let build = *build;
                self.counts.add(build.lane, Happening::Overdue);
                self.end(id, build, Ended::Failed, now);
            }
        }
        while let Some((until, id)) = self.delayed.first().copied().filter(|(until, _)| *until <= now) {
            self.delayed.remove(&(until, id));
            let Some(slot) = self.slots.get(&id) else { continue };
            if let Phase::Delayed { mark, .. } = slot.phase {
                let lane = slot.lane;
                self.counts.add(lane, Happening::Retried);
                self.enqueue(id, lane, mark.since, mark.news);
            }
        }
    }

    /// When to call [`Self::handle_timeout`] next, and why. After it, ask for starts again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let delayed = self.delayed.first().map(|(until, _)| (*until, "a failed build comes again"));
        let overdue = self.deadlines.first().map(|(until, _)| (*until, "a build is overdue"));
        sooner(delayed, overdue)
    }

    /// How many slots wait in each lane, those that a pass has not come to yet left out.
    #[must_use]
    pub fn waiting(&self) -> PerLane<usize> {
        let waiting = |lane| self.queues.waiting(lane);
        PerLane { host: waiting(Lane::Host), first: waiting(Lane::First), bulk: waiting(Lane::Bulk) }
    }

    /// How many builds are under way in each lane.
    #[must_use]
    pub const fn building(&self) -> PerLane<usize> {
        self.building
    }

    /// What became of marks and builds since this was asked last.
    pub fn take_counts(&mut self) -> Vec<Count> {
        self.counts.take()
    }

    /// How much is held: sessions, slots, and what is kept of slots beside them. For tests of its bounds.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let waiting = self.waiting();
        let kept = waiting.host + waiting.first + waiting.bulk + self.delayed.len() + self.deadlines.len();
        (self.held.len(), self.slots.len(), kept)
    }
}
