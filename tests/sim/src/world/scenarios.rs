//! Single cases, scripted: one fault at the moment that matters, and what must come of it. Named after the edge cases `C1` to `C29` that they are.

use std::time::Duration;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::Version;
use holdfast_model::status::State;
use holdfast_session::random::Random;
use holdfast_session::replica::Limits;
use holdfast_wire::message::SessionLimits;

use super::*;
use crate::plan::{Kind, PACE};
use crate::store::Observed;

const POLICY: Component = Component::Policy;

#[test]
fn c01_an_ack_that_is_lost_with_its_link_leaves_the_host_pending_and_the_next_session_proves_it() {
    let mut world = Scripted::at_rest(1, 1);
    world.change();
    world.until("the agent holds the second version", |world| world.held(0) == Some(2));
    let conn = world.conn(0);
    world.swallow(conn);
    world.break_link(conn);
    assert_eq!((world.state(0), world.recorded(0)), (State::Progressing, Some(1)));
    let before = world.tally;
    world.until("the ack of the next session counts", |world| world.is_at_rest());
    assert_eq!(world.tally.snapshots - before.snapshots, 4, "one of each component, whatever the host said it has");
    assert_eq!((world.held(0), world.recorded(0)), (Some(2), Some(2)));
}

#[test]
fn c02_a_host_that_failed_and_stayed_behind_gets_everything_whole_when_it_comes_back() {
    let mut world = Scripted::at_rest(1, 1);
    world.agents[0].disk.kernel_fails_until = u64::MAX;
    world.change();
    world.until("it failed", |world| world.state(0) == State::Failed);
    assert_eq!((world.held(0), world.recorded(0)), (Some(1), Some(1)));
    let conn = world.conn(0);
    world.break_link(conn);
    world.until("the link is gone", |world| world.agents[0].conn != Some(conn));
    world.agents[0].disk.kernel_fails_until = 0;
    let before = world.tally;
    world.until("it holds the newest", Scripted::is_at_rest);
    assert_eq!((world.held(0), world.tally.deltas), (Some(2), before.deltas));
}

#[test]
fn c03_a_host_that_starts_from_an_older_file_says_what_it_has_and_is_brought_to_the_newest() {
    let mut world = Scripted::at_rest(1, 1);
    let old = world.agents[0].disk.clone();
    for version in 2..=3 {
        world.change();
        world.until("it holds the change", |world| world.held(0) == Some(version) && world.is_at_rest());
    }
    world.kill_agent(0);
    world.agents[0].disk = old;
    world.agents[0].disk.kernel = None;
    world.until("it is there again, with what it had", |world| world.agents[0].is_up);
    assert_eq!(world.held(0), Some(1));
    world.until("it holds the newest", |world| world.held(0) == Some(3) && world.is_at_rest());
}

#[test]
fn c04_updates_that_were_in_flight_behind_a_failed_one_lead_to_one_recovery() {
    let mut world = Scripted::at_rest(1, 1);
    world.agents[0].disk.slow_ms = 6_000;
    for _ in 0..4 {
        world.change();
        let conn = world.conn(0);
        let before = world.sent(conn);
        world.until("it is on its way", |world| world.sent(conn) > before);
    }
    world.agents[0].disk.kernel_fails_until = u64::MAX;
    world.until("the first of them failed", |world| world.tally.failed > 0);
    world.agents[0].disk.kernel_fails_until = 0;
    world.until("it holds the newest", |world| world.held(0) == Some(5) && world.is_at_rest());
    assert_eq!(world.recoveries(), 1);
    assert!(world.tally.refused >= 2, "the others were relative to what failed");
}

#[test]
fn c05_a_recovery_that_fails_too_is_not_tried_again_before_there_is_something_newer() {
    let mut world = Scripted::at_rest(1, 1);
    world.agents[0].disk.kernel_fails_until = u64::MAX;
    world.change();
    world.until("it failed", |world| world.state(0) == State::Failed && world.recoveries() == 1);
    let before = world.tally;
    world.wait(120_000);
    assert_eq!((world.recoveries(), world.state(0)), (1, State::Failed));
    assert_eq!(world.tally.snapshots - before.snapshots, 0);
    world.agents[0].disk.kernel_fails_until = 0;
    world.change();
    world.until("the newer version is in force", |world| world.held(0) == Some(3) && world.is_at_rest());
    assert_eq!((world.tally.deltas, world.recoveries()), (before.deltas, 1), "whole: there was no base");
}

#[test]
fn c06_what_is_rendered_while_a_recovery_is_on_its_way_is_relative_to_that_recovery() {
    let mut world = Scripted::at_rest(1, 1);
    world.agents[0].disk.kernel_fails_until = u64::MAX;
    world.change();
    world.until("the first try failed", |world| world.tally.failed == 1);
    world.agents[0].disk.kernel_fails_until = 0;
    world.agents[0].disk.slow_ms = 4_000;
    world.until("the recovery is on its way", |world| world.recoveries() == 1);
    let before = world.tally;
    world.change();
    world.until("it holds the newest", |world| world.held(0) == Some(3) && world.is_at_rest());
    assert_eq!((world.tally.deltas - before.deltas, world.tally.failed), (1, before.failed));
}

#[test]
fn c09_a_render_whose_hint_was_never_published_reaches_its_host_by_the_compare() {
    let mut world = Scripted::at_rest(1, 1);
    let before = world.versions(0);
    world.change();
    world.until("it is committed", |world| world.versions(0) > before);
    for renderer in 0..world.renderers.len() {
        world.kill_renderer(renderer);
    }
    let committed_at = world.now;
    world.until("it is in force", |world| world.held(0) == Some(2));
    assert!(world.now - committed_at <= 37_000, "within one compare");
    world.until("every event is in the stream", Scripted::is_at_rest);
}

#[test]
fn c10_a_gateway_that_heard_nothing_of_several_renders_sends_one_delta_across_all() {
    let mut world = Scripted::at_rest(1, 1);
    world.plan.repair = Repair::CompareOnly;
    let before = world.tally;
    for version in 2..=4 {
        world.change();
        world.until("it is rendered", |world| world.versions(0) == version);
    }
    assert_eq!((world.held(0), world.tally.deltas), (Some(1), before.deltas), "nobody told it");
    world.until("it is in force", |world| world.held(0) == Some(4));
    assert_eq!(world.tally.deltas - before.deltas, 1);
}

#[test]
fn c14_an_ack_below_what_was_sent_last_leaves_the_host_pending() {
    let mut world = Scripted::at_rest(1, 1);
    world.agents[0].disk.slow_ms = 3_000;
    for version in 2..=3 {
        world.change();
        world.until("it is committed", |world| world.versions(0) == version);
    }
    world.until("the older of the two is recorded", |world| world.recorded(0) == Some(2));
    assert_eq!(world.state(0), State::Progressing);
    world.until("the newer is recorded", |world| world.recorded(0) == Some(3));
    assert_eq!(world.state(0), State::Converged);
}

#[test]
fn c15_an_ack_of_a_version_that_was_never_sent_counts_for_nothing() {
    let mut world = Scripted::at_rest(1, 1);
    let (recorded, counted) = (world.tally.recorded, world.tally.applied);
    for _ in 0..20 {
        world.lie();
        world.wait(100);
    }
    assert_eq!(world.tally.lies, 20);
    assert_eq!((world.tally.recorded, world.tally.applied), (recorded, counted));
    assert_eq!((world.state(0), world.recorded(0)), (State::Converged, Some(1)));
}

#[test]
fn c29_what_is_read_for_a_session_that_moved_to_another_gateway_is_sent_by_nobody_and_ends_it() {
    let mut world = Scripted::at_rest(2, 1);
    let old = world.conn(0);
    // The host is gone from there, and that gateway does not know it yet.
    world.swallow(old);
    world.kill_agent(0);
    world.until("it is on another session", |world| world.agents[0].conn.is_some_and(|conn| conn != old));
    world.until("everything is at rest", Scripted::is_at_rest);
    let (written, now) = (world.conns[old].updates, world.now);
    assert!(written > 0 && world.conns[old].gateway_side.is_some(), "it is still held there");
    world.change();
    world.until("the old session is over", |world| world.conns[old].gateway_side.is_none());
    assert!(world.now < now + 3_000, "by what was read, not by silence");
    assert_eq!(world.conns[old].updates, written);
    world.until("the new one is in force", |world| world.held(0) == Some(2));
    assert!(world.violation.is_none());
}

/// A world in which nothing fails but what the script says, and the words of the scripts.
struct Scripted(World);

impl std::ops::Deref for Scripted {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl std::ops::DerefMut for Scripted {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

impl Scripted {
    /// Every host holds its first versions.
    fn at_rest(gateways: usize, hosts: usize) -> Self {
        let plan = Plan {
            gateways,
            hosts,
            chaos_ms: 10_000_000,
            edits: 0,
            repair: Repair::Both,
            kinds: Vec::<Kind>::new(),
            fault_gap_ms: 1,
            limits: SessionLimits { body_bytes_max: 64 * 1024, updates_in_flight_max: 16, bytes_in_flight_max: 64_000 },
            builds_max: 8,
            facts: Limits {
                waiting_max: 1_000,
                batch_max: 32,
                gather: Duration::from_millis(3),
                presence_gather: Duration::from_millis(250),
                retry: Duration::from_millis(100),
                retry_max: Duration::from_secs(5),
            },
            pace: PACE,
            socket_bytes: 16 * 1024,
            latency_ms: 3,
            read_ms: 3,
        };
        let mut world = Self(World::of(plan, Random::new(11), None, Trace::told()));
        world.until("the first versions are in force", Self::is_at_rest);
        world
    }

    /// Lets things happen until something is so, within ten minutes.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = self.now + 600_000;
        while !is_so(self) {
            let goes_on = self.0.step();
            assert_eq!(self.violation, None, "before {what}");
            assert!(goes_on && self.now < deadline, "never: {what}; {:?}", self.missing());
        }
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now + ms;
        self.until("time goes on", |world| world.now >= until);
    }

    /// One prefix of the first host's own policy comes or goes.
    fn change(&mut self) {
        let edit = self.0.estate.toggle(0, 7);
        self.0.store.edits.push(edit);
        self.0.store.revision = self.0.store.revision.next().expect("few revisions");
        self.0.insert_events(1);
        self.0.ring_renderers();
    }

    fn is_at_rest(&self) -> bool {
        self.missing().is_none()
    }

    fn conn(&self, agent: usize) -> usize {
        self.agents[agent].conn.expect("it is connected")
    }

    /// How many updates a session wrote that are not answered.
    fn sent(&self, conn: usize) -> usize {
        self.conns[conn].gateway_side.as_ref().map_or(0, |side| side.sent.len())
    }

    /// How many recoveries of policies were written, in all sessions that are there.
    fn recoveries(&self) -> u64 {
        let sides = self.conns.iter().filter_map(|conn| conn.gateway_side.as_ref());
        sides.flat_map(|side| &side.recoveries).filter(|((component, _), _)| *component == POLICY).map(|(_, n)| n).sum()
    }

    /// The version that a host's kernel enforces.
    fn held(&self, agent: usize) -> Option<u64> {
        self.agents[agent].disk.kernel.as_ref().map(|entry| entry.stamp.version.raw())
    }

    /// The version that was committed last.
    fn versions(&self, agent: usize) -> u64 {
        let row = self.store.latest.get(&(host_id(agent), POLICY));
        row.map_or(0, |row| row.stamp.version.raw())
    }

    /// The version that the authority has recorded as in force.
    fn recorded(&self, agent: usize) -> Option<u64> {
        let observed: Option<&Observed> = self.store.observed.get(&(host_id(agent), POLICY));
        observed.and_then(|observed| observed.applied).map(|stamp: Stamp| Version::raw(stamp.version))
    }

    fn state(&self, agent: usize) -> State {
        self.store.state_of(host_id(agent), POLICY, self.clock())
    }
}
