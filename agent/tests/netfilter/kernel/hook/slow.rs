//! A kernel or a disk that takes its time, under a real agent: the session goes on as if it did not.

use std::time::Duration;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::Version;

use super::super::session::{applied, isolated, world};
use super::{COMPONENT_POINTS, POINT};

/// How long each update is held still.
const STALL_MS: u32 = 2_500;
/// How often both sides say that they live.
const LIVENESS_MS: u32 = 100;

#[test]
fn an_apply_that_takes_seconds_on_a_slow_disk_or_kernel_delays_no_sign_of_life_and_no_answer_to_status() {
    for point in ["an update: accepted, before it is on disk", "an update: on disk, before it is in the kernel"] {
        let (mut host, mut gateway, _far) = world();
        host.set_variable("HOLDFAST_TEST_STALL_POINT", Some(point));
        host.set_variable("HOLDFAST_TEST_STALL_MS", Some(&STALL_MS.to_string()));
        host.run_session();
        gateway.liveness_interval_ms = LIVENESS_MS;
        let (mut session, _) = gateway.open();
        let (report, signs, longest) = session.policy_by_signs_of_life(1, &isolated(&["10.0.0.1"]));
        applied(&report);
        // One each 100 ms and a fifth; a machine under load is late, but not by the seconds of the apply.
        let wanted = usize::try_from(STALL_MS / LIVENESS_MS / 2).unwrap();
        assert!(signs >= wanted, "{point}: {signs} signs of life in {STALL_MS} ms");
        assert!(longest < Duration::from_millis(u64::from(STALL_MS) / 2), "{point}: silent for {longest:?}");
        assert_eq!(host.applied_version(), Some(1), "{point}");
    }
}

#[test]
fn settings_and_credentials_that_a_slow_disk_takes_seconds_for_delay_no_sign_of_life() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_TEST_STALL_POINT", Some("a component: accepted, before it is on disk"));
    host.set_variable("HOLDFAST_TEST_STALL_MS", Some(&STALL_MS.to_string()));
    host.run_session();
    gateway.liveness_interval_ms = LIVENESS_MS;
    let (mut session, _) = gateway.open();
    for component in [Component::Settings, Component::Credentials] {
        let stamp = Stamp { version: Version::FIRST, digest: component.empty_digest() };
        let frames = session.frames_of_component(component, stamp, component.empty_bytes());
        let (report, signs, longest) = session.outcome_by_signs_of_life(&frames);
        assert_eq!((report.component, report.applied), (component, Some(stamp)));
        let wanted = usize::try_from(STALL_MS / LIVENESS_MS / 2).unwrap();
        assert!(signs >= wanted, "{component}: {signs} signs of life in {STALL_MS} ms");
        assert!(longest < Duration::from_millis(u64::from(STALL_MS) / 2), "{component}: silent for {longest:?}");
    }
}

#[test]
fn an_agent_that_is_killed_before_settings_are_on_disk_does_not_say_that_it_holds_them_and_takes_them_again() {
    let component = Component::Settings;
    let stamp = Stamp { version: Version::FIRST, digest: component.empty_digest() };
    for point in COMPONENT_POINTS {
        let (mut host, mut gateway, _far) = world();
        host.set_variable(POINT, Some(point));
        host.run_session();
        let (mut session, _) = gateway.open();
        let frames = session.frames_of_component(component, stamp, component.empty_bytes());
        session.write_bytes(&frames);
        assert_eq!(host.killed(), Some(9), "{point}");
        host.set_variable(POINT, None);
        host.run_session();
        let (mut session, hello) = gateway.open();
        assert!(hello.applied.iter().all(|(held, _)| *held != component), "{:?}", hello.applied);
        let frames = session.frames_of_component(component, stamp, component.empty_bytes());
        let (report, ..) = session.outcome_by_signs_of_life(&frames);
        assert_eq!((report.component, report.applied), (component, Some(stamp)));
    }
}
