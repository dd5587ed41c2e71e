//! The scheduler step by step: a step is one build that ends and those that begin for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_model::ids::{HostId, ObjectId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use uuid::Uuid;

use super::*;
use crate::limits::{BUILD_TIMEOUT, REBUILD_BASE, REBUILD_CAP};
use crate::time::Instant;

mod model;
mod turns;

const POLICY: Component = Component::Policy;

#[test]
fn h02_what_is_published_again_and_again_is_built_once_a_slot() {
    let mut at = Shell::with_sessions(8, 50);
    let both = [POLICY, Component::Settings];
    for _ in 0..50 {
        for host in 0..50 {
            at.scheduler.handle_published(&Scope::Host(mk_host(host)), &both, at.now);
        }
    }
    let started = at.run();
    assert_eq!(started.len(), 100);
    assert_eq!(at.count(Happening::Admitted), 100);
    assert_eq!(at.count(Happening::Coalesced), 100 * 49);
}

#[test]
fn e23_a_publication_during_a_build_makes_exactly_one_more() {
    let mut at = Shell::with_sessions(8, 1);
    at.publish(0, 2);
    let [first] = at.begin()[..] else { panic!("one begins") };
    for version in 3..60 {
        at.publish(0, version);
        assert_eq!(at.begin(), [], "never two builds of one slot at once");
    }
    at.end(first.ticket, Ended::Built { version: mk_version(2) });
    let [second] = at.begin()[..] else { panic!("one more begins") };
    assert_eq!(second.news, News::Newer(mk_version(59)));
    at.end(second.ticket, Ended::Built { version: mk_version(59) });
    assert_eq!(at.begin(), []);
}

#[test]
fn e23_what_the_build_read_already_is_not_built_again() {
    let mut at = Shell::with_sessions(8, 1);
    at.publish(0, 2);
    let [first] = at.begin()[..] else { panic!("one begins") };
    at.publish(0, 3);
    // It read after version 3 was committed.
    at.end(first.ticket, Ended::Built { version: mk_version(3) });
    assert_eq!(at.begin(), []);
    assert_eq!(at.count(Happening::Superseded), 1);
    at.publish(0, 3);
    assert_eq!(at.begin(), [], "a hint that comes twice");
    assert_eq!(at.count(Happening::Current), 1);
    // What names no version is looked for, whatever is known.
    at.scheduler.handle_published(&Scope::Host(mk_host(0)), &[POLICY], at.now);
    assert_eq!(at.begin().len(), 1);
}

#[test]
fn e24_a_publication_during_a_pass_costs_one_more_circle_at_most() {
    let mut at = Shell::with_sessions(4, 100);
    at.publish_fleet();
    let mut order = at.run_some(30);
    at.publish_fleet();
    at.publish_fleet();
    at.publish_fleet();
    order.extend(at.run());
    let order: Vec<u128> = order.iter().map(|start| start.ticket.host.uuid().as_u128()).collect();
    assert_eq!(order.len(), 130 + 3, "30 before, three under way, then all: {order:?}");
    // From where it stood, around.
    let mut around = order[33..].to_vec();
    assert_eq!(around[..3], [33, 34, 35]);
    around.sort_unstable();
    assert_eq!(around, (0..100).collect::<Vec<_>>());
    assert_eq!(at.run().len(), 0);
}

#[test]
fn a_wider_pass_takes_in_the_narrower_ones() {
    let mut at = Shell::with_sessions(8, 60);
    at.scheduler.handle_published(&Scope::Namespace(mk_namespace(0)), &[POLICY], at.now);
    at.scheduler.handle_published(&Scope::Namespace(mk_namespace(1)), &[POLICY], at.now);
    at.publish_fleet();
    assert_eq!(at.run().len(), 60, "each once");
    at.scheduler.handle_published(&Scope::Namespace(mk_namespace(1)), &[POLICY], at.now);
    let only: BTreeSet<u128> = at.run().iter().map(|start| start.ticket.host.uuid().as_u128() % 3).collect();
    assert_eq!(only, BTreeSet::from([1]), "its namespace alone");
    at.scheduler.handle_published(&Scope::Namespace("nobody".parse().unwrap()), &[POLICY], at.now);
    assert_eq!(at.run().len(), 0);
}

#[test]
fn e37_a_build_that_fails_after_a_pass_went_by_comes_again_by_itself() {
    let mut at = Shell::with_sessions(8, 3);
    at.publish_fleet();
    let started = at.begin();
    assert_eq!(started.len(), 3);
    // The next pass meets builds that began before it, and the third one that began after.
    at.end(started[2].ticket, Ended::Unchanged);
    at.publish_fleet();
    let later = at.begin();
    let [again] = later[..] else { panic!("{later:?}") };
    assert_eq!(again.ticket.host, started[2].ticket.host);
    at.end(again.ticket, Ended::Failed);
    at.end(started[0].ticket, Ended::Failed);
    at.end(started[1].ticket, Ended::Unchanged);
    // Published since it began: at once. The failed ones: after a wait.
    let next: Vec<HostId> = at.run().iter().map(|start| start.ticket.host).collect();
    assert_eq!(next, [started[1].ticket.host]);
    at.now = at.now.plus(REBUILD_BASE);
    at.scheduler.handle_timeout(at.now);
    let last: BTreeSet<HostId> = at.run().iter().map(|start| start.ticket.host).collect();
    assert_eq!(last, BTreeSet::from([started[0].ticket.host, started[2].ticket.host]));
    assert_eq!(at.run().len(), 0);
}

#[test]
fn what_was_not_read_does_not_answer_a_pass_that_counted_on_it() {
    let mut at = Shell::with_sessions(4, 10);
    at.publish_fleet();
    assert_eq!(at.begin().len(), 3, "the pass is far from the last one");
    at.publish(9, 6);
    let [narrow] = at.begin()[..] else { panic!("one begins") };
    assert_eq!((narrow.ticket.lane, narrow.news), (Lane::Host, News::Newer(mk_version(6))));
    // It stays under way while the pass goes by, and then the session says that it has that version already.
    at.under_way.retain(|ticket| *ticket != narrow.ticket);
    assert_eq!(at.run().len(), 6, "all but the one under way");
    at.end(narrow.ticket, Ended::Declined);
    let looked = at.run();
    assert_eq!(looked.len(), 1);
    assert_eq!((looked[0].ticket.host, looked[0].news), (mk_host(9), News::Unnamed));
    assert_eq!(at.run().len(), 0);
}

#[test]
fn what_a_session_has_by_a_build_that_was_given_up_is_offered_once_and_not_at_every_compare() {
    let mut at = Shell::with_sessions(4, 1);
    at.publish(0, 2);
    let [start] = at.begin()[..] else { panic!("one begins") };
    at.end(start.ticket, Ended::Declined);
    assert!(!at.scheduler.is_news(mk_host(0), POLICY, mk_version(2)));
    at.publish(0, 2);
    assert_eq!(at.begin(), []);
    at.publish(0, 3);
    assert_eq!(at.begin().len(), 1);
}

#[test]
fn e26_a_credential_that_is_published_while_it_is_being_attached_is_read_again() {
    let mut at = Shell::with_sessions(8, 4);
    let [one, other] = [1, 2].map(|n| ObjectId::new(Uuid::from_u128(n)));
    for (host, used) in [(0, vec![one]), (1, vec![other]), (2, vec![])] {
        at.scheduler.handle_credentials(mk_host(host), EPOCH, used.into_iter().collect());
    }
    let publish = |at: &mut Shell| {
        at.scheduler.handle_published(&Scope::Credential(one), &[Component::Credentials], at.now);
    };
    publish(&mut at);
    let hosts = |starts: &[Start]| starts.iter().map(|start| start.ticket.host).collect::<BTreeSet<_>>();
    let covered = at.run();
    assert_eq!(hosts(&covered), BTreeSet::from([mk_host(0), mk_host(3)]), "who uses it, and who may");
    assert!(covered.iter().all(|start| start.ticket.component == Component::Credentials));

    // Host 2 is just being given it: the build that is under way may have read before the change.
    at.scheduler.handle_published(&Scope::Host(mk_host(2)), &[Component::Credentials], at.now);
    let [attaching] = at.begin()[..] else { panic!("one begins") };
    publish(&mut at);
    at.scheduler.handle_credentials(mk_host(2), EPOCH, BTreeSet::from([one]));
    at.end(attaching.ticket, Ended::Built { version: mk_version(9) });
    assert!(hosts(&at.run()).contains(&mk_host(2)));
    // The word of a session that is over changes nothing.
    at.scheduler.handle_credentials(mk_host(2), SessionEpoch::from_raw(1), BTreeSet::new());
    publish(&mut at);
    assert!(hosts(&at.run()).contains(&mk_host(2)));
}

#[test]
fn e27_a_session_that_comes_during_a_pass_gets_what_was_published_by_its_first_state() {
    let mut at = Shell::with_sessions(4, 10);
    at.publish_fleet();
    at.run_some(5);
    at.hold(3, 8);
    at.hold(99, 1);
    let rest = at.run();
    let of = |host| rest.iter().filter(|start| start.ticket.host == mk_host(host)).count();
    assert_eq!((of(3), of(99)), (0, 0), "they ask by themselves");
    at.publish(99, 7);
    assert_eq!(at.begin(), [], "also before what was published for it alone");
    assert!(at.scheduler.handle_want(mk_host(99), SessionEpoch::from_raw(1), POLICY, Asker::Session, at.now));
    let [first] = at.begin()[..] else { panic!("one begins") };
    assert_eq!(
        (first.ticket.lane, first.news),
        (Lane::Host, News::Asked),
        "what an operator changed just now is urgent"
    );
}

#[test]
fn e28_what_was_built_for_a_session_is_nothing_to_the_next_one() {
    let mut at = Shell::with_sessions(4, 1);
    at.publish(0, 2);
    let [old] = at.begin()[..] else { panic!("one begins") };
    at.hold(0, 8);
    assert_eq!(at.scheduler.building(), PerLane::default(), "its share is free");
    assert!(!at.end(old.ticket, Ended::Built { version: mk_version(2) }));
    assert!(at.scheduler.is_news(mk_host(0), POLICY, mk_version(1)), "the new session has nothing yet");
    assert!(!at.scheduler.handle_want(mk_host(0), EPOCH, POLICY, Asker::Session, at.now), "the old one asks in vain");
    assert!(at.scheduler.handle_want(mk_host(0), SessionEpoch::from_raw(8), POLICY, Asker::Session, at.now));
    let [new] = at.begin()[..] else { panic!("one begins") };
    assert!(!at.end(old.ticket, Ended::Failed), "nor does its end end the new one's build");
    assert!(at.end(new.ticket, Ended::Built { version: mk_version(2) }));
    assert!(!at.end(new.ticket, Ended::Failed), "an end counts once");
    // A late goodbye, and a session that is older than the one that is held.
    at.scheduler.handle_released(mk_host(0), EPOCH);
    assert!(!at.scheduler.handle_held(mk_host(0), mk_namespace(0), EPOCH));
    at.publish(0, 3);
    assert_eq!(at.begin().len(), 1);
    assert_eq!((at.count(Happening::Stale), at.count(Happening::Abandoned)), (3, 1));
}

#[test]
fn e22_a_slow_reader_holds_one_mark_and_asks_when_it_has_room() {
    let mut at = Shell::with_sessions(8, 2);
    at.publish(0, 2);
    let [start] = at.begin()[..] else { panic!("one begins") };
    at.end(start.ticket, Ended::Parked);
    for version in 3..1_003 {
        at.publish(0, version);
        assert_eq!(at.begin(), [], "nothing is built for it");
    }
    at.publish_fleet();
    let others = at.run();
    assert!(others.iter().all(|start| start.ticket.host == mk_host(1)));
    assert_eq!(at.scheduler.waiting(), PerLane::default());
    assert!(at.scheduler.handle_want(mk_host(0), EPOCH, POLICY, Asker::Session, at.now));
    assert_eq!(at.run().len(), 1);
    assert_eq!(at.run().len(), 0, "one build for all of them");
}

#[test]
fn a_want_that_came_while_its_build_was_under_way_is_served_whatever_became_of_that() {
    for ended in [Ended::Parked, Ended::Declined, Ended::Unchanged, Ended::Built { version: mk_version(9) }] {
        let mut at = Shell::with_sessions(8, 1);
        at.publish(0, 2);
        let [start] = at.begin()[..] else { panic!("one begins") };
        assert!(at.scheduler.handle_want(mk_host(0), EPOCH, POLICY, Asker::Session, at.now));
        at.publish(0, 3);
        at.end(start.ticket, ended);
        assert_eq!(at.begin().len(), 1, "{ended:?}");
    }
}

#[test]
fn failed_builds_come_again_after_full_jitter_that_doubles_to_its_cap_and_a_read_resets_it() {
    let mut windows = vec![Vec::new(); 8];
    for seed in 0..200 {
        let mut at = Shell::of(Scheduler::new(Capacity::of(8).unwrap(), seed));
        at.hold(0, 7);
        at.first_states(0, 7);
        at.publish(0, 2);
        for window in &mut windows {
            let [start] = at.begin()[..] else { panic!("one begins") };
            let failed_at = at.now;
            at.end(start.ticket, Ended::Failed);
            // Publications do not shorten the wait.
            at.publish(0, 3);
            let (until, _) = at.scheduler.poll_timeout().unwrap();
            window.push(until.since(failed_at));
            if until > failed_at {
                at.now = Instant::from_millis(until.as_millis() - 1);
                at.scheduler.handle_timeout(at.now);
                assert_eq!(at.begin(), [], "not before its time");
            }
            at.now = until;
            at.scheduler.handle_timeout(at.now);
        }
        let [start] = at.begin()[..] else { panic!("one begins") };
        at.end(start.ticket, Ended::Built { version: mk_version(2) });
        at.publish(0, 4);
        let [start] = at.begin()[..] else { panic!("one begins") };
        at.end(start.ticket, Ended::Failed);
        let (until, _) = at.scheduler.poll_timeout().unwrap();
        assert!(until.since(at.now) <= REBUILD_BASE, "it began anew");
    }
    for (attempt, waits) in windows.iter().enumerate() {
        let window = (REBUILD_BASE * (1 << attempt)).min(REBUILD_CAP);
        assert!(waits.iter().all(|wait| *wait <= window), "{attempt}");
        let low = waits.iter().filter(|wait| **wait <= window / 2).count();
        assert!((60..140).contains(&low), "attempt {attempt}: {low} of 200 in the lower half");
    }
}

#[test]
fn what_the_session_refuses_is_not_tried_again_before_there_is_something_newer() {
    let mut at = Shell::with_sessions(4, 1);
    at.publish(0, 2);
    let [start] = at.begin()[..] else { panic!("one begins") };
    at.end(start.ticket, Ended::Refused);
    assert_eq!((at.begin().len(), at.scheduler.poll_timeout()), (0, None));
    at.publish(0, 3);
    assert_eq!(at.begin().len(), 1);
}

#[test]
fn a_build_whose_end_nobody_tells_is_given_up_and_comes_again() {
    let mut at = Shell::with_sessions(4, 1);
    at.publish(0, 2);
    let [lost] = at.begin()[..] else { panic!("one begins") };
    assert_eq!(at.scheduler.poll_timeout(), Some((at.now.plus(BUILD_TIMEOUT), "a build is overdue")));
    at.now = at.now.plus(BUILD_TIMEOUT);
    at.scheduler.handle_timeout(at.now);
    assert_eq!(at.scheduler.building(), PerLane::default());
    at.now = at.now.plus(REBUILD_BASE);
    at.scheduler.handle_timeout(at.now);
    let [again] = at.begin()[..] else { panic!("one begins") };
    assert!(!at.end(lost.ticket, Ended::Built { version: mk_version(2) }), "too late");
    assert!(at.end(again.ticket, Ended::Built { version: mk_version(2) }));
    assert_eq!((at.count(Happening::Overdue), at.count(Happening::Stale)), (1, 1));
}

#[test]
fn what_a_session_asks_stays_where_it_came_from_and_what_an_operator_asks_is_urgent() {
    let mut at = Shell::with_sessions(8, 3);
    at.publish_fleet();
    at.run();
    // A wide change that fails everywhere: recoveries are as wide.
    for host in 0..3 {
        assert!(at.scheduler.handle_want(mk_host(host), EPOCH, POLICY, Asker::Session, at.now));
    }
    assert_eq!(at.scheduler.waiting(), PerLane { host: 0, first: 0, bulk: 3 });
    assert!(at.scheduler.handle_want(mk_host(1), EPOCH, POLICY, Asker::Operator, at.now));
    assert_eq!(at.scheduler.waiting(), PerLane { host: 1, first: 0, bulk: 2 });
    assert_eq!(at.begin()[0].ticket.host, mk_host(1));
}

/// The session_epoch of [`Shell::with_sessions`].
const EPOCH: SessionEpoch = SessionEpoch::from_raw(7);

/// A scheduler with a hand clock, whose builds end when a test says so.
pub(super) struct Shell {
    scheduler: Scheduler,
    now: Instant,
    under_way: VecDeque<Ticket>,
    counted: BTreeMap<Happening, u64>,
}

impl Shell {
    pub(super) fn of(scheduler: Scheduler) -> Self {
        Self { scheduler, now: Instant::from_millis(1_000), under_way: VecDeque::new(), counted: BTreeMap::new() }
    }

    /// Sessions that have their first states, in three namespaces by turns.
    pub(super) fn with_sessions(builds_max: usize, count: u128) -> Self {
        let mut at = Self::of(Scheduler::new(Capacity::of(builds_max).unwrap(), 1));
        for host in 0..count {
            at.hold(host, 7);
            at.first_states(host, 7);
        }
        at.scheduler.take_counts();
        at.counted.clear();
        at
    }

    pub(super) fn hold(&mut self, host: u128, epoch: u64) {
        assert!(self.scheduler.handle_held(mk_host(host), mk_namespace(host), SessionEpoch::from_raw(epoch)));
    }

    pub(super) fn first_states(&mut self, host: u128, epoch: u64) {
        for component in Component::ALL {
            let epoch = SessionEpoch::from_raw(epoch);
            assert!(self.scheduler.handle_want(mk_host(host), epoch, component, Asker::Session, self.now));
            for start in self.begin() {
                self.end(start.ticket, Ended::Built { version: Version::FIRST });
            }
        }
    }

    /// A version of one host's policy.
    pub(super) fn publish(&mut self, host: u128, version: u64) {
        self.scheduler.handle_states(&[(mk_host(host), POLICY, mk_version(version))], Reach::Narrow, self.now);
    }

    pub(super) fn publish_fleet(&mut self) {
        self.scheduler.handle_published(&Scope::Fleet, &[POLICY], self.now);
    }

    /// Begins what may begin.
    pub(super) fn begin(&mut self) -> Vec<Start> {
        let started: Vec<Start> = std::iter::from_fn(|| self.scheduler.poll_start(self.now)).collect();
        self.under_way.extend(started.iter().map(|start| start.ticket));
        started
    }

    pub(super) fn end(&mut self, ticket: Ticket, ended: Ended) -> bool {
        self.under_way.retain(|under_way| *under_way != ticket);
        self.scheduler.handle_ended(ticket, ended, self.now)
    }

    /// One step: what began first ends, and others begin.
    pub(super) fn step(&mut self) -> Vec<Start> {
        if let Some(ticket) = self.under_way.front().copied() {
            self.end(ticket, Ended::Unchanged);
        }
        self.begin()
    }

    /// So many steps; what began.
    pub(super) fn run_some(&mut self, steps: usize) -> Vec<Start> {
        let mut started = self.begin();
        for _ in 0..steps {
            started.extend(self.step());
        }
        started
    }

    /// Steps until nothing is under way.
    pub(super) fn run(&mut self) -> Vec<Start> {
        let mut started = self.begin();
        while !self.under_way.is_empty() {
            started.extend(self.step());
        }
        started
    }

    pub(super) fn count(&mut self, happening: Happening) -> u64 {
        for counted in self.scheduler.take_counts() {
            *self.counted.entry(counted.happening).or_default() += counted.count;
        }
        self.counted.get(&happening).copied().unwrap_or_default()
    }
}

pub(super) fn mk_host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

pub(super) fn mk_namespace(host: u128) -> Name {
    ["amber", "blue", "coral"][usize::try_from(host % 3).unwrap()].parse().unwrap()
}

pub(super) fn mk_version(n: u64) -> Version {
    Version::from_raw(n).unwrap()
}
