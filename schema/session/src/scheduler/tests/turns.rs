//! Who goes when: reserve, floors, turns. All in steps, so that no machine is too slow for them.

use proptest::prelude::*;

use super::*;
use crate::random::Random;

#[test]
fn h06_a_fleet_pass_leaves_the_reserve_alone_and_a_host_starts_at_once() {
    let mut at = Shell::with_sessions(4, 1_000);
    at.publish_fleet();
    assert_eq!(lanes(&at.begin()), [Lane::Bulk; 3]);
    at.publish(7, 2);
    assert_eq!(lanes(&at.begin()), [Lane::Host]);
    at.publish(8, 2);
    assert_eq!(at.begin(), [], "all is under way");
    assert_eq!(lanes(&at.step()), [Lane::Host], "and the next is the host's");
}

#[test]
fn h06_a_hundred_busy_hosts_leave_the_fleet_its_floor() {
    let mut at = Shell::with_sessions(4, 200);
    (0..100).for_each(|host| at.publish(host, 2));
    at.publish_fleet();
    assert_eq!(lanes(&at.begin()), [Lane::Host, Lane::Host, Lane::Host, Lane::Bulk]);
}

#[test]
fn h07_a_pass_that_finds_nothing_gives_its_floor_away() {
    let mut at = Shell::with_sessions(4, 4);
    at.publish_fleet();
    at.run();
    (0..4).for_each(|host| at.publish(host, 2));
    // A pass over components that nobody held here has is none.
    at.scheduler.handle_published(&Scope::Fleet, &[], at.now);
    assert_eq!(lanes(&at.begin()), [Lane::Host; 4]);
}

/// The promise of the issue, in steps: a fleet-wide change over 1,000 sessions while single hosts change faster than they can be built.
#[test]
fn e25_a_fleet_pass_over_a_thousand_sessions_and_changes_of_single_hosts_do_not_starve_each_other() {
    const BUSY: u64 = 300;
    let mut at = Shell::with_sessions(8, 1_000);
    at.publish_fleet();
    at.begin();
    let (mut longest, mut waiting, mut since_bulk) = (0, BTreeMap::new(), 0);
    let mut passed = BTreeSet::new();
    for step in 0_u64..8_000 {
        let host = u128::from(step * 37 % BUSY);
        at.publish(host, step + 2);
        waiting.entry(mk_host(host)).or_insert(step);
        let started = at.step();
        since_bulk = if started.iter().any(|start| start.ticket.lane == Lane::Bulk) { 0 } else { since_bulk + 1 };
        if passed.len() < 700 {
            // Eight builds, each of which takes its eight steps: one of them is always the pass's.
            assert!(since_bulk <= 8, "step {step}: the pass stands at {}", passed.len());
        }
        let quiet = |start: &&Start| start.ticket.host >= mk_host(u128::from(BUSY));
        passed.extend(started.iter().filter(quiet).map(|start| start.ticket.host));
        for start in started.iter().filter(|start| start.ticket.lane == Lane::Host) {
            longest = longest.max(step - waiting.remove(&start.ticket.host).unwrap_or(step));
        }
    }
    assert_eq!(passed.len(), 700, "the pass came around");
    // Seven of eight ends are theirs, and there are never more marks than hosts.
    assert!(longest <= BUSY * 8 / 7 + 16, "{longest}");
}

#[test]
fn e25_a_change_of_one_host_begins_at_once_whatever_the_fleet_and_the_newcomers_do() {
    const SESSIONS: u128 = 1_000;
    let mut at = Shell::with_sessions(16, SESSIONS);
    for newcomer in SESSIONS..2 * SESSIONS {
        at.hold(newcomer, 1);
        for component in Component::ALL {
            let epoch = SessionEpoch::from_raw(1);
            at.scheduler.handle_want(mk_host(newcomer), epoch, component, Asker::Session, at.now);
        }
    }
    at.publish_fleet();
    let (mut first, mut bulk) = (0, 0);
    at.begin();
    for step in 0..900_u64 {
        let mut started = Vec::new();
        // A build takes its sixteen steps, so with one change in five steps the reserve of four is never used up.
        if step % 5 == 0 {
            let host = u128::from(step);
            at.publish(host, 2);
            started = at.begin();
            let is_under_way = at.under_way.iter().any(|ticket| ticket.host == mk_host(host));
            assert!(is_under_way, "step {step}: it waits");
        }
        started.extend(at.step());
        let of = |lane| started.iter().filter(|start| start.ticket.lane == lane).count();
        (first, bulk) = (first + of(Lane::First), bulk + of(Lane::Bulk));
        if step % 100 == 99 {
            assert!(first > 0 && bulk > 0, "step {step}: {first} first states, {bulk} of the pass");
            (first, bulk) = (0, 0);
        }
    }
}

/// The bar in simulated time, where no machine is in the way: a build takes 20 to 60 ms whatever else is built, one host changes every 5 ms, and the
/// fleet changes again as soon as it has changed.
#[test]
fn e25_the_p99_of_changes_of_single_hosts_stays_within_three_times_its_idle_one() {
    let (idle, none) = simulate(false);
    let (busy, passes) = simulate(true);
    assert_eq!(none, 0);
    assert!(busy <= 3 * idle, "{busy} ms beside {idle} ms");
    // 1,000 builds of 40 ms by 47 at once are 0.85 s: five of them in 5 s, and something between.
    assert!(passes >= 4, "the fleet changed {passes} times");
}

/// The 99th percentile from a change of one host to the end of its build, in milliseconds, and how often the whole fleet was built meanwhile.
fn simulate(fleet_changes: bool) -> (u64, usize) {
    const SESSIONS: u128 = 1_000;
    let (mut at, mut random) = (Shell::with_sessions(64, SESSIONS), Random::new(11));
    let begun = at.now.as_millis();
    let mut ends = BTreeMap::<(u64, u128, u8), (Ticket, u64)>::new();
    let (mut published, mut times) = (BTreeMap::<HostId, u64>::new(), Vec::new());
    let (mut passed, mut passes) = (BTreeSet::new(), 0);
    for now in begun..begun + 5_000 {
        at.now = Instant::from_millis(now);
        if fleet_changes && passed.len() == 1_000 {
            passes += 1;
            passed.clear();
        }
        if fleet_changes && passed.is_empty() {
            at.publish_fleet();
        }
        if now % 5 == 0 {
            let host = u128::from(random.up_to(999));
            published.entry(mk_host(host)).or_insert(now);
            at.publish(host, now);
        }
        while let Some((ticket, started)) = ends.first_entry().filter(|end| end.key().0 <= now).map(|end| end.remove())
        {
            // It read as it began: what was published since makes one more.
            at.end(ticket, Ended::Built { version: mk_version(started) });
            passed.insert(ticket.host);
            if let Some(since) = published.get(&ticket.host).copied().filter(|since| *since <= started) {
                published.remove(&ticket.host);
                times.push(now - since);
            }
        }
        for start in at.begin() {
            let end = now + 20 + random.up_to(40);
            ends.insert(
                (end, start.ticket.host.uuid().as_u128(), start.ticket.component.number()),
                (start.ticket, now),
            );
        }
    }
    times.sort_unstable();
    assert!(times.len() > 800, "{}", times.len());
    (times[times.len() * 99 / 100], passes)
}

#[test]
fn first_states_do_not_wait_for_a_pass_nor_a_pass_for_first_states() {
    for order in ["pass first", "storm first"] {
        let mut at = Shell::with_sessions(8, 100);
        let storm = |at: &mut Shell| {
            for newcomer in 100..200 {
                at.hold(newcomer, 1);
                let epoch = SessionEpoch::from_raw(1);
                at.scheduler.handle_want(mk_host(newcomer), epoch, POLICY, Asker::Session, at.now);
            }
        };
        if order == "pass first" {
            at.publish_fleet();
            assert_eq!(at.begin().len(), 6);
            storm(&mut at);
        } else {
            storm(&mut at);
            assert_eq!(at.begin().len(), 6);
            at.publish_fleet();
        }
        let building = at.scheduler.building();
        assert_eq!(building.first + building.bulk, 6, "{order}: the reserve is nobody's");
        let other = at.step();
        assert_eq!(other.len(), 1);
        let of = |lane| other.iter().filter(|start| start.ticket.lane == lane).count();
        let wanted = if order == "pass first" { Lane::First } else { Lane::Bulk };
        assert_eq!(of(wanted), 1, "{order}: the other lane gets its floor with the first end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes in, in whatever mixture: a lane where something waits begins a build each time that all builds have ended once.
    #[test]
    fn every_lane_goes_on_under_any_load(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let builds_max = usize::try_from(4 + random.up_to(28)).unwrap();
        let weights = [random.up_to(9), random.up_to(9), random.up_to(9)];
        let mut at = Shell::with_sessions(builds_max, 120);
        let (mut epoch, mut since) = (10, PerLane::<usize>::default());
        for step in 0_u64..800 {
            let host = u128::from(random.up_to(119));
            for _ in 0..random.up_to(weights[0]) {
                at.publish(u128::from(random.up_to(119)), step + 2);
            }
            if random.up_to(9) < weights[1] {
                epoch += 1;
                at.under_way.retain(|ticket| ticket.host != mk_host(host));
                at.hold(host, epoch);
                for component in Component::ALL {
                    at.scheduler.handle_want(mk_host(host), SessionEpoch::from_raw(epoch), component, Asker::Session, at.now);
                }
            }
            if random.up_to(9) < weights[2] {
                at.publish_fleet();
            }
            let waited = at.scheduler.waiting();
            let started = at.step();
            for lane in Lane::ALL {
                let began = started.iter().any(|start| start.ticket.lane == lane);
                let since = since.of_mut(lane);
                *since = if began || *waited.of(lane) == 0 { 0 } else { *since + 1 };
                prop_assert!(*since <= builds_max + 2, "step {step}: {lane:?} of {builds_max} stands still");
            }
        }
    }
}

#[test]
fn namespaces_take_turns_however_much_one_of_them_has() {
    let mut at = Shell::of(Scheduler::new(Capacity::of(4).unwrap(), 1));
    let [small, large] = ["small", "large"].map(|name| name.parse::<Name>().unwrap());
    for host in 0..300 {
        let namespace = if host < 290 { &large } else { &small };
        assert!(at.scheduler.handle_held(mk_host(host), namespace.clone(), EPOCH));
        at.first_states(host, 7);
    }
    at.scheduler.handle_published(&Scope::Namespace(large), &[POLICY], at.now);
    at.run_some(20);
    at.scheduler.handle_published(&Scope::Namespace(small), &[POLICY], at.now);
    let started = at.run_some(25);
    let of_small = started.iter().filter(|start| start.ticket.host >= mk_host(290)).count();
    assert_eq!(of_small, 10, "all ten of the small one among 25");
}

#[test]
fn a_pass_goes_on_while_other_wide_marks_come_without_end() {
    let mut at = Shell::with_sessions(4, 300);
    at.publish_fleet();
    let mut passed = BTreeSet::new();
    for step in 0..1_200_u64 {
        // Lists of versions for the same few hosts, again and again.
        let states: Vec<_> = (0..9).map(|host| (mk_host(host), POLICY, mk_version(step + 2))).collect();
        at.scheduler.handle_states(&states, Reach::Wide, at.now);
        passed.extend(at.step().iter().filter(|start| start.news == News::Unnamed).map(|start| start.ticket.host));
    }
    assert_eq!(passed.len(), 300);
}

fn lanes(started: &[Start]) -> Vec<Lane> {
    started.iter().map(|start| start.ticket.lane).collect()
}
