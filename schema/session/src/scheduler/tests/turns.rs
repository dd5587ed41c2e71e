//! Who goes when: reserve, floors, turns. All in steps, so that no machine is too slow for them.

use super::*;

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
