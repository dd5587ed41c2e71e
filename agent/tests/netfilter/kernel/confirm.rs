//! A policy that cuts the host off is taken back, told and not tried again; one whose gateway is down stays.
//!
//! - What no policy can do on a host, a hook of the test does: it leaves gateways to the policy.

use std::time::{Duration, Instant};

use holdfast_model::condition::{Holds, Reason};
use holdfast_model::policy::Body;
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::message::OutcomeReport;
use nix::sys::signal::Signal;

use super::local::{SHUT, overridden};
use super::session::{applied, isolated, ruleset, world};
use crate::support::agent::Host;
use crate::support::gateway::{Gateway, stamp};
use crate::support::namespace::Namespace;

const WINDOW_MS: u64 = 1_500;

/// Leads to the gateway: nobody isolates what the host sends.
fn open() -> Body {
    open_to("10.0.0.1")
}

/// The same with another peer.
fn open_to(peer: &str) -> Body {
    let mut body = isolated(&[peer]);
    body.egress.isolated = false;
    body
}

/// A host whose gateways are left to the policy, with a confirmed one.
fn unguarded() -> (Host, Gateway, Namespace) {
    let (mut host, mut gateway, far) = world();
    host.set_variable("HOLDFAST_AGENT_TEST_UNGUARDED", Some("1"));
    host.set_variable("HOLDFAST_AGENT_CONFIRM_WINDOW_MS", Some(&WINDOW_MS.to_string()));
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &open()));
        session.echo_until(|| is_confirmed(&host));
    }
    (host, gateway, far)
}

fn is_confirmed(host: &Host) -> bool {
    let policy = host.status()["policy"].clone();
    policy["on_trial"] == false && policy["applied"]["version"].is_u64()
}

/// Puts a policy into force that cuts the host off: its outcome reaches nobody.
fn cut_off(host: &Host, gateway: &mut Gateway) {
    let (mut session, _) = gateway.open();
    let frames = session.frames_of(2, &isolated(&["10.0.0.1"]));
    session.write_bytes(&frames);
    host.wait_until("it is in force", || host.applied_version() == Some(2));
    assert_eq!(host.status()["policy"]["on_trial"], true);
}

fn assert_refused(report: &OutcomeReport) {
    let first = &report.conditions[0];
    assert_eq!((report.kind, first.status, first.reason), (OutcomeKind::Failed, Holds::False, Reason::SelfIsolation));
    assert_eq!(report.applied, Some(stamp(1, &open())), "what is in force is what was confirmed");
}

#[test]
fn a_policy_that_cuts_the_host_off_is_taken_back_told_and_refused_by_its_content_ever_after() {
    let (host, mut gateway, _far) = unguarded();
    let before = ruleset(&host);
    let began = Instant::now();
    cut_off(&host, &mut gateway);
    assert_ne!(ruleset(&host), before);
    host.wait_until("it is taken back", || host.applied_version() == Some(1));
    assert!(began.elapsed() >= Duration::from_millis(WINDOW_MS / 2), "it had its time: {:?}", began.elapsed());
    assert_eq!(ruleset(&host), before);
    {
        let (mut session, hello) = gateway.open();
        assert!(hello.applied.iter().any(|(_, applied)| *applied == stamp(1, &open())), "{hello:?}");
        // As it was, as the one recovery snapshot that follows, and under another version.
        for version in [2, 2, 3] {
            assert_refused(&session.policy(version, &isolated(&["10.0.0.1"])));
        }
        assert_eq!(ruleset(&host), before, "it was not tried");
    }
    host.end(Signal::SIGKILL);
    host.run_session();
    let (mut session, _) = gateway.open();
    assert_refused(&session.policy(4, &isolated(&["10.0.0.1"])));
    // Another content is tried.
    applied(&session.policy(5, &open_to("10.0.0.9")));
}

#[test]
fn an_agent_that_is_killed_in_the_window_takes_the_policy_back_when_it_runs_again() {
    let (host, mut gateway, _far) = unguarded();
    let before = ruleset(&host);
    cut_off(&host, &mut gateway);
    host.end(Signal::SIGKILL);
    assert_ne!(ruleset(&host), before, "the kernel enforces on");
    host.run_session();
    host.wait_until("it is taken back", || {
        let told = host.ask(&["status", "-o", "json"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
        told["policy"]["applied"]["version"] == 1
    });
    assert_eq!(ruleset(&host), before);
    let (mut session, _) = gateway.open();
    assert_refused(&session.policy(2, &isolated(&["10.0.0.1"])));
}

#[test]
fn a_policy_that_was_kept_beside_a_local_one_is_on_trial_once_that_is_gone_and_taken_back_if_it_cuts_the_host_off() {
    let (host, mut gateway, _far) = unguarded();
    let before = ruleset(&host);
    host.write_policy(SHUT);
    let (session, _) = gateway.open();
    overridden(&host, &[&host.path("policy.json").display().to_string()]);
    drop(session);
    let (mut session, _) = gateway.open();
    let kept = session.policy(2, &isolated(&["10.0.0.1"]));
    assert_eq!((kept.kind, kept.applied), (OutcomeKind::RetainedLocalOverride, None));
    // What the disk has of it is what counts.
    host.end(Signal::SIGKILL);
    drop(session);
    host.run_session();
    host.wait_until("the local policy is in force", || host.ask(&["healthcheck"]).status.success());
    assert_ne!(ruleset(&host), before);
    let (session, _) = gateway.open();
    overridden(&host, &["--clear"]);
    drop(session);
    host.wait_until("it is taken back", || host.applied_version() == Some(1));
    assert_eq!(ruleset(&host), before);
    let (mut session, _) = gateway.open();
    assert_refused(&session.policy(3, &isolated(&["10.0.0.1"])));
}

#[test]
fn a_policy_whose_gateway_is_down_or_silent_stays_unconfirmed_until_it_is_back() {
    let (host, mut gateway, _far) = unguarded();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(2, &open_to("10.0.0.9")));
    }
    // Nobody answers now: what is dialled waits in the queue of a process that is held still.
    let until = Instant::now() + Duration::from_millis(2 * WINDOW_MS);
    host.wait_until("two windows pass", || Instant::now() > until);
    assert_eq!((host.applied_version(), &host.status()["policy"]["on_trial"]), (Some(2), &true.into()));
    gateway.echo_until(|| is_confirmed(&host));
    assert_eq!(host.applied_version(), Some(2));
}
