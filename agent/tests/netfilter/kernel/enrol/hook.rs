//! With the feature `test-hooks`: an agent that dies at every named point of its enrolment.

use super::{Gateway, World, said};
use crate::kernel::hook::POINT;

/// Every point of an enrolment.
pub(in crate::kernel) const POINTS: &[&str] = &[
    "an enrolment: on disk, before it is asked for",
    "an enrolment: answered, before it is in place",
    "an enrolment: in place, before what was begun is removed",
];

#[test]
fn an_enrolment_that_is_cut_at_any_point_is_finished_by_the_same_command() {
    for point in POINTS {
        let mut world = World::new();
        world.host.set_variable(POINT, Some(point));
        world.begin();
        let first = (!point.contains("before it is asked")).then(|| world.gateway.enrol());
        assert_eq!(world.host.killed(), Some(9), "{point}");
        world.host.set_variable(POINT, None);
        assert!(world.has("pending.json"), "{point}");
        if world.has("enrolment.json") {
            let (again, ()) = world.enrol("web-1", |_| ());
            assert!(said(&again).contains("[enrolled-already]"), "{point}: {again:?}");
        } else {
            let (again, second) = world.enrol("web-1", Gateway::enrol);
            assert!(again.status.success() && !said(&again).contains("not used"), "{point}: {again:?}");
            assert!(first.is_none_or(|first| first == second), "{point}");
        }
        world.serves();
    }
}

#[test]
fn what_an_enrolment_leaves_behind_at_its_very_end_goes_when_the_agent_starts() {
    let mut world = World::new();
    world.host.set_variable(POINT, POINTS.last().copied());
    world.begin();
    world.gateway.enrol();
    assert_eq!(world.host.killed(), Some(9));
    world.host.set_variable(POINT, None);
    world.host.run_session();
    let host = &world.host;
    host.wait_until("the agent answers", || host.ask(&["status"]).status.success());
    assert!(!world.has("pending.json") && world.has("enrolment.json"));
}
