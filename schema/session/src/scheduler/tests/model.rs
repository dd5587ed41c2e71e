//! The scheduler against a naive model: sessions that read a version and remember it, under random schedules.
//!
//! After every step: never two builds of a slot, no more builds than there may be, the reserve unused by others, no more kept than there are
//! slots. After quiet: every held session has what was published last of everything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::random::Random;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_publication_is_built_in_the_end_for_every_session_that_it_covers(seed in any::<u64>()) {
        let mut world = World::new(seed);
        // Quiet now and then: what the last publications before it left behind is what shows a loss.
        for _ in 0..8 {
            for _ in 0..60 {
                world.step();
                world.check();
            }
            world.quiet();
        }
    }
}

#[test]
fn the_schedule_reaches_everything_that_can_become_of_a_mark() {
    let mut seen: BTreeMap<Happening, u64> = BTreeMap::new();
    for seed in 0..40 {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step());
        world.quiet();
        for count in world.scheduler.take_counts() {
            *seen.entry(count.happening).or_default() += count.count;
        }
    }
    // A session of this model refuses nothing.
    let may_be = Happening::ALL.iter().filter(|happening| **happening != Happening::Refused);
    let rare: Vec<_> = may_be.filter(|one| seen.get(one).is_none_or(|count| *count < 10)).collect();
    assert!(rare.is_empty(), "{rare:?} of {seen:?}");
}

const HOSTS: u128 = 9;

/// A session as its shell keeps it: what it has, whether it would ask, whether it asked.
#[derive(Default)]
struct Session {
    epoch: u64,
    has_room: bool,
    slots: BTreeMap<Component, Slot>,
}

#[derive(Default, Clone)]
struct Slot {
    taken: Option<Version>,
    marked: bool,
    asked: bool,
}

/// A build, and what it read: at its very beginning, which is the worst moment, or at its end.
struct Read {
    ticket: Ticket,
    early: Option<Version>,
}

struct World {
    random: Random,
    now: Instant,
    scheduler: Scheduler,
    capacity: Capacity,
    authority: BTreeMap<(HostId, Component), Version>,
    attached: BTreeMap<HostId, ObjectId>,
    sessions: BTreeMap<HostId, Session>,
    /// Starts that their sessions have not seen yet.
    mail: Vec<Start>,
    reads: Vec<Read>,
    next_epoch: u64,
    is_quiet: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let capacity = Capacity::of(usize::try_from(4 + random.up_to(8)).unwrap()).unwrap();
        let slots = (0..HOSTS).flat_map(|n| Component::ALL.map(|component| (mk_host(n), component)));
        Self {
            now: Instant::from_millis(5),
            scheduler: Scheduler::new(capacity, random.next_u64()),
            capacity,
            authority: slots.map(|slot| (slot, Version::FIRST)).collect(),
            attached: (0..HOSTS).map(|n| (mk_host(n), mk_credential(n % 2))).collect(),
            sessions: BTreeMap::new(),
            mail: Vec::new(),
            reads: Vec::new(),
            next_epoch: 1,
            random,
            is_quiet: false,
        }
    }

    fn step(&mut self) {
        match self.random.up_to(13) {
            0 => self.connect(),
            1 if self.random.up_to(2) == 0 => self.disconnect(),
            2 => self.publish_states(Reach::Narrow, 1),
            3 => self.publish_states(Reach::Wide, 6),
            4 => self.publish_scope(),
            5 => self.toggle_room(),
            6 => self.recover(),
            7 => self.pass_time(),
            8 if self.random.up_to(3) == 0 => self.be_overdue(),
            9 | 10 => self.take_mail(),
            _ => self.end_one(),
        }
        self.begin();
    }

    fn pick(&mut self) -> HostId {
        mk_host(u128::from(self.random.up_to(u64::try_from(HOSTS).unwrap() - 1)))
    }

    fn pick_component(&mut self) -> Component {
        Component::ALL[usize::try_from(self.random.up_to(3)).unwrap()]
    }

    fn connect(&mut self) {
        let host = self.pick();
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let namespace = mk_namespace(host.uuid().as_u128());
        assert!(self.scheduler.handle_held(host, namespace, SessionEpoch::from_raw(epoch)));
        let slots = Component::ALL.map(|component| (component, Slot { marked: true, ..Slot::default() }));
        let has_room = self.random.up_to(3) > 0;
        self.sessions.insert(host, Session { epoch, has_room, slots: slots.into_iter().collect() });
        self.ask(host);
    }

    fn disconnect(&mut self) {
        let host = self.pick();
        if let Some(session) = self.sessions.remove(&host) {
            self.scheduler.handle_released(host, SessionEpoch::from_raw(session.epoch));
        }
    }

    fn publish_states(&mut self, reach: Reach, count: u64) {
        let mut states = Vec::new();
        for _ in 0..=self.random.up_to(count) {
            let (host, component) = (self.pick(), self.pick_component());
            states.push((host, component, self.bump(host, component)));
        }
        // A hint that is lost is found by the compare, which says the same.
        self.scheduler.handle_states(&states, reach, self.now);
    }

    fn bump(&mut self, host: HostId, component: Component) -> Version {
        let version = self.authority.get_mut(&(host, component)).unwrap();
        *version = version.next().unwrap();
        *version
    }

    fn publish_scope(&mut self) {
        let component = self.pick_component();
        let host = self.pick();
        let n = host.uuid().as_u128();
        let (scope, component) = match self.random.up_to(3) {
            0 => (Scope::Host(host), component),
            1 => (Scope::Namespace(mk_namespace(n)), component),
            2 => (Scope::Credential(mk_credential(n % 2)), Component::Credentials),
            _ => (Scope::Fleet, component),
        };
        for other in (0..HOSTS).map(mk_host) {
            let is_covered = match &scope {
                Scope::Host(host) => other == *host,
                Scope::Namespace(namespace) => mk_namespace(other.uuid().as_u128()) == *namespace,
                Scope::Credential(credential) => self.attached[&other] == *credential,
                Scope::Fleet => true,
            };
            if is_covered {
                self.bump(other, component);
            }
        }
        self.scheduler.handle_published(&scope, &[component], self.now);
    }

    fn toggle_room(&mut self) {
        let host = self.pick();
        if let Some(session) = self.sessions.get_mut(&host) {
            session.has_room = !session.has_room;
            self.ask(host);
        }
    }

    /// A failure on the host: the session marks itself.
    fn recover(&mut self) {
        let (host, component) = (self.pick(), self.pick_component());
        if let Some(session) = self.sessions.get_mut(&host) {
            session.slots.get_mut(&component).unwrap().marked = true;
            self.ask(host);
        }
    }

    /// What a session's machine does when its socket has room: it asks for what is marked and not asked for.
    fn ask(&mut self, host: HostId) {
        let Some(session) = self.sessions.get_mut(&host) else { return };
        let epoch = SessionEpoch::from_raw(session.epoch);
        let reads: BTreeSet<Component> = (self.reads.iter())
            .filter(|read| (read.ticket.host, read.ticket.session_epoch) == (host, epoch))
            .map(|read| read.ticket.component)
            .collect();
        for (component, slot) in &mut session.slots {
            let is_read = reads.contains(component);
            if session.has_room && slot.marked && !slot.asked && !is_read {
                (slot.marked, slot.asked) = (false, true);
                let asker = if self.random.up_to(4) == 0 { Asker::Operator } else { Asker::Session };
                assert!(self.scheduler.handle_want(host, epoch, *component, asker, self.now));
            }
        }
    }

    fn pass_time(&mut self) {
        self.now = self.now.plus(Duration::from_millis(self.random.up_to(4_000)));
        self.scheduler.handle_timeout(self.now);
    }

    fn begin(&mut self) {
        self.mail.extend(std::iter::from_fn(|| self.scheduler.poll_start(self.now)));
    }

    /// A session sees a ticket: it is for what the session asked, or the session looks whether there is something to ask.
    fn take_mail(&mut self) {
        if self.mail.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.next_u64() % self.mail.len() as u64).unwrap();
        let start = self.mail.swap_remove(at);
        let Ticket { host, session_epoch, component, .. } = start.ticket;
        let is_read = self.is_read(host, session_epoch, component);
        // Mail to a session that is over, or was given up meanwhile, is thrown away or answered in vain.
        let Some(session) = self.session_of(start.ticket) else { return };
        let has_room = session.has_room;
        let slot = session.slots.get_mut(&component).unwrap();
        let is_known = |version| slot.taken.is_some_and(|taken| version <= taken);
        let ended = if slot.asked {
            slot.asked = false;
            None
        } else if start.news == News::Asked || matches!(start.news, News::Newer(version) if is_known(version)) {
            Some(if slot.marked { Ended::Parked } else { Ended::Declined })
        } else {
            // Without room it is kept; while an overdue build is still being read too, so that there are never two.
            slot.marked = is_read || !has_room;
            slot.marked.then_some(Ended::Parked)
        };
        match ended {
            Some(ended) => _ = self.scheduler.handle_ended(start.ticket, ended, self.now),
            None => {
                let early = (self.random.up_to(1) == 0).then_some(self.authority[&(host, component)]);
                self.reads.push(Read { ticket: start.ticket, early });
            }
        }
    }

    fn session_of(&mut self, ticket: Ticket) -> Option<&mut Session> {
        self.sessions.get_mut(&ticket.host).filter(|session| session.epoch == ticket.session_epoch.raw())
    }

    fn is_read(&self, host: HostId, session_epoch: SessionEpoch, component: Component) -> bool {
        let of = |read: &Read| (read.ticket.host, read.ticket.session_epoch, read.ticket.component);
        self.reads.iter().any(|read| of(read) == (host, session_epoch, component))
    }

    fn end_one(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.next_u64() % self.reads.len() as u64).unwrap();
        let Read { ticket, early } = self.reads.swap_remove(at);
        let fails = !self.is_quiet && self.random.up_to(4) == 0;
        let version = early.unwrap_or(self.authority[&(ticket.host, ticket.component)]);
        let used = BTreeSet::from([self.attached[&ticket.host]]);
        let Some(session) = self.session_of(ticket) else {
            assert!(!self.scheduler.handle_ended(ticket, Ended::Built { version }, self.now), "nobody waits for it");
            return;
        };
        let slot = session.slots.get_mut(&ticket.component).unwrap();
        let ended = if fails {
            slot.marked = true;
            Ended::Failed
        } else if slot.taken.is_some_and(|taken| version <= taken) {
            Ended::Unchanged
        } else {
            slot.taken = Some(version);
            Ended::Built { version }
        };
        if ticket.component == Component::Credentials && !fails {
            self.scheduler.handle_credentials(ticket.host, ticket.session_epoch, used);
        }
        self.scheduler.handle_ended(ticket, ended, self.now);
        self.ask(ticket.host);
    }

    /// Everything under way takes too long; it ends all the same, later.
    fn be_overdue(&mut self) {
        self.now = self.now.plus(BUILD_TIMEOUT);
        self.scheduler.handle_timeout(self.now);
        assert_eq!(self.scheduler.building(), PerLane::default());
    }

    fn check(&self) {
        let building = self.scheduler.building();
        let all = building.host + building.first + building.bulk;
        assert!(all <= self.capacity.builds_max(), "{building:?}");
        let reserve = self.capacity.host_reserve();
        assert!(building.first + building.bulk <= self.capacity.builds_max() - reserve, "{building:?}");
        let current = |read: &&Read| {
            self.sessions.get(&read.ticket.host).is_some_and(|session| session.epoch == read.ticket.session_epoch.raw())
        };
        let reads: Vec<_> =
            self.reads.iter().filter(current).map(|read| (read.ticket.host, read.ticket.component)).collect();
        let distinct: BTreeSet<_> = reads.iter().collect();
        assert_eq!(reads.len(), distinct.len(), "two builds of one slot");
        let (held, slots, kept) = self.scheduler.sizes();
        assert_eq!((held, slots), (self.sessions.len(), self.sessions.len() * Component::ALL.len()));
        assert!(kept <= slots, "{kept} kept for {slots} slots");
    }

    /// Everybody reads, nothing fails: then everybody has everything, within a bounded number of steps.
    fn quiet(&mut self) {
        self.is_quiet = true;
        let hosts: Vec<HostId> = self.sessions.keys().copied().collect();
        for host in &hosts {
            self.sessions.get_mut(host).unwrap().has_room = true;
            self.ask(*host);
        }
        // What is on its way, and then each slot a few times: a mark, what was published meanwhile, what failed before, one circle, its own want.
        let on_their_way = self.mail.len() + self.reads.len();
        for _ in 0..on_their_way + 8 * hosts.len() * Component::ALL.len() + 8 {
            self.begin();
            self.take_mail();
            self.end_one();
            self.check();
            let is_still = self.reads.is_empty() && self.mail.is_empty();
            if let Some((until, _)) = self.scheduler.poll_timeout().filter(|_| is_still) {
                self.now = self.now.max(until);
                self.scheduler.handle_timeout(self.now);
            }
        }
        assert!(
            self.reads.is_empty() && self.mail.is_empty() && self.scheduler.poll_start(self.now).is_none(),
            "not quiet in time"
        );
        assert_eq!(self.scheduler.poll_timeout(), None);
        for (host, session) in &self.sessions {
            for (component, slot) in &session.slots {
                let published = self.authority[&(*host, *component)];
                assert_eq!(slot.taken, Some(published), "{host} {component:?}");
                assert!(!slot.asked && !slot.marked, "{host} {component:?} waits for ever");
            }
        }
        self.is_quiet = false;
    }
}

fn mk_credential(n: u128) -> ObjectId {
    ObjectId::new(Uuid::from_u128(100 + n))
}
