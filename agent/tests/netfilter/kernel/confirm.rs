//! A policy that cuts the host off is taken back, told and not tried again; one whose gateway is down stays.
//!
//! - What no policy can do on a host, a hook of the test does: it leaves gateways to the policy.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use holdfast_model::condition::{Holds, Reason};
use holdfast_model::policy::{Body, Peers, Statement};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::message::OutcomeReport;
use nix::sys::signal::Signal;

use super::hook::{NTH, POINT, TRIAL_POINTS};
use super::local::{SHUT, overridden};
use super::session::{applied, isolated, ruleset, world};
use crate::support::agent::Host;
use crate::support::bodies::{allow, deny, set, set_key, tcp};
use crate::support::gateway::{Gateway, Session, stamp};
use crate::support::namespace::Namespace;
use crate::support::output_of;

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

/// Each time long before a trial's time is over, so that no process of them ends one.
#[test]
fn an_agent_that_is_killed_again_and_again_under_a_trial_goes_back_all_the_same_and_never_from_one_whose_gateway_is_down()
 {
    const LONG_MS: u64 = 16_000;
    let (mut host, mut gateway, _far) = unguarded();
    let before = ruleset(&host);
    host.set_variable("HOLDFAST_AGENT_CONFIRM_WINDOW_MS", Some(&LONG_MS.to_string()));
    host.end(Signal::SIGTERM);
    host.run_session();
    let started_anew = |host: &Host, version| {
        host.end(Signal::SIGKILL);
        host.run_session();
        host.wait_until("it runs", || host.ask(&["healthcheck"]).status.success());
        (host.applied_version(), host.status()["policy"]["on_trial"] == true) == (Some(version), true)
    };
    cut_off(&host, &mut gateway);
    for nth in 1..=2 {
        assert!(started_anew(&host, 2), "start {nth}");
        assert_ne!(ruleset(&host), before, "the kernel enforces on");
    }
    host.end(Signal::SIGKILL);
    let began = Instant::now();
    host.run_session();
    host.wait_until("it runs", || host.ask(&["healthcheck"]).status.success());
    host.wait_until("it is taken back", || host.applied_version() == Some(1));
    assert!(began.elapsed() < Duration::from_millis(LONG_MS / 2), "sooner than in its time: {:?}", began.elapsed());
    assert_eq!(ruleset(&host), before);
    {
        let (mut session, _) = gateway.open();
        assert_refused(&session.policy(2, &isolated(&["10.0.0.1"])));
        // Another leads to the gateway, which is held still from now on.
        applied(&session.policy(3, &open_to("10.0.0.9")));
    }
    for nth in 1..=4 {
        assert!(started_anew(&host, 3), "start {nth}");
    }
    let until = Instant::now() + Duration::from_millis(LONG_MS / 2);
    host.wait_until("its short time is long over", || Instant::now() > until);
    assert_eq!((host.applied_version(), &host.status()["policy"]["on_trial"]), (Some(3), &true.into()));
    gateway.echo_until(|| is_confirmed(&host));
    assert_eq!(host.applied_version(), Some(3));
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
fn a_policy_that_denies_the_gateways_address_by_a_rule_is_taken_back_and_refused_like_one_that_isolates() {
    let (host, mut gateway, _far) = unguarded();
    let before = ruleset(&host);
    let mut denying = open();
    denying.egress.rules = vec![deny(2, Statement::Any, Peers::Set(set_key(2)))];
    denying.sets.push(set(2, &["10.77.0.2"]));
    {
        let (mut session, _) = gateway.open();
        let frames = session.frames_of(2, &denying);
        session.write_bytes(&frames);
        host.wait_until("it is in force", || host.applied_version() == Some(2));
    }
    host.wait_until("it is taken back", || host.applied_version() == Some(1));
    assert_eq!(ruleset(&host), before);
    let (mut session, _) = gateway.open();
    assert_refused(&session.policy(2, &denying));
}

#[test]
fn a_policy_that_follows_one_that_cuts_the_host_off_is_not_judged_by_what_that_one_dropped() {
    let (mut host, mut gateway, _far) = unguarded();
    host.end(Signal::SIGTERM);
    host.set_variable("HOLDFAST_TEST_STALL_POINT", Some("an update: on disk, before it is in the kernel"));
    host.set_variable("HOLDFAST_TEST_STALL_MS", Some("1000"));
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        // Both are there before the first is in force: for a second it drops what the agent says and asks, and then the other leads to the gateway.
        let mut frames = session.frames_of(2, &isolated(&["10.0.0.1"]));
        frames.extend(session.frames_of(3, &open_to("10.0.0.9")));
        session.write_bytes(&frames);
        host.wait_until("the second is in force", || host.applied_version() == Some(3));
    }
    // The gateway is held still: it has no echo either, and drops nothing.
    let until = Instant::now() + Duration::from_millis(3 * WINDOW_MS);
    host.wait_until("its time is over", || Instant::now() > until);
    assert_eq!((host.applied_version(), &host.status()["policy"]["on_trial"]), (Some(3), &true.into()));
    gateway.echo_until(|| is_confirmed(&host));
    assert_eq!(host.applied_version(), Some(3));
}

#[test]
fn an_echo_of_one_gateway_is_enough_though_the_policy_drops_what_is_anothers() {
    let (mut host, mut gateway, far) = world();
    far.run(|| output_of("ip", &["address", "add", "10.77.0.3/24", "dev", "eth0"]));
    let other = Gateway::new(far.run(|| TcpListener::bind("10.77.0.3:7443").unwrap()));
    host.set_variable("HOLDFAST_AGENT_TEST_UNGUARDED", Some("1"));
    host.set_variable("HOLDFAST_AGENT_KEEP_GATEWAYS", Some("10.77.0.3:7443"));
    host.set_variable("HOLDFAST_AGENT_CONFIRM_WINDOW_MS", Some(&WINDOW_MS.to_string()));
    host.run_session();
    let mut second = isolated(&["10.0.0.1"]);
    second.egress.rules = vec![allow(2, tcp(&[(7443, 7443)]), Peers::Set(set_key(2)))];
    second.sets.push(set(2, &["10.77.0.3"]));
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &open()));
    session.echo_until(|| is_confirmed(&host));
    let frames = session.frames_of(2, &second);
    session.write_bytes(&frames);
    host.wait_until("it is in force", || host.applied_version() == Some(2));
    other.echo_until(|| is_confirmed(&host));
    assert_eq!(host.applied_version(), Some(2), "it leads to a gateway");
}

/// The agent is killed at a point that it passes once it is told of a second policy, and runs again without that.
fn killed_at(
    host: &mut Host,
    gateway: &mut Gateway,
    point: &str,
    second: &Body,
    meanwhile: impl Fn(&Host, &Session<'_>),
) {
    host.end(Signal::SIGTERM);
    host.set_variable(POINT, Some(point));
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        let frames = session.frames_of(2, second);
        session.write_bytes(&frames);
        meanwhile(host, &session);
        assert_eq!(host.killed(), Some(9), "{point}");
    }
    host.set_variable(POINT, None);
    host.set_variable(NTH, None);
    host.run_session();
}

#[test]
fn an_agent_that_is_killed_at_any_step_of_a_trial_goes_back_from_what_cuts_the_host_off_and_remembers_it() {
    for point in [
        "an update: in the kernel, before it is read back",
        "an update: read back, before it is good on disk",
        "an update: good on disk, before it is told",
        TRIAL_POINTS[0],
    ] {
        let (mut host, mut gateway, _far) = unguarded();
        let before = ruleset(&host);
        killed_at(&mut host, &mut gateway, point, &isolated(&["10.0.0.1"]), |_, _| {});
        host.wait_until("it is taken back", || {
            let told = host.ask(&["status", "-o", "json"]);
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
            told["policy"]["applied"]["version"] == 1 && told["policy"]["proven"] == true
        });
        assert_eq!(ruleset(&host), before, "{point}");
        let (mut session, _) = gateway.open();
        assert_refused(&session.policy(2, &isolated(&["10.0.0.1"])));
    }
}

#[test]
fn an_agent_that_is_killed_as_it_goes_back_from_the_first_policy_of_all_opens_the_host_when_it_runs_again() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_AGENT_TEST_UNGUARDED", Some("1"));
    host.set_variable("HOLDFAST_AGENT_CONFIRM_WINDOW_MS", Some(&WINDOW_MS.to_string()));
    host.set_variable(POINT, Some(TRIAL_POINTS[0]));
    host.run_session();
    let first = isolated(&["10.0.0.1"]);
    {
        let (mut session, _) = gateway.open();
        let frames = session.frames_of(1, &first);
        session.write_bytes(&frames);
        assert_eq!(host.killed(), Some(9));
    }
    let cut = ruleset(&host);
    host.set_variable(POINT, None);
    host.run_session();
    let (mut session, hello) = gateway.open();
    assert_eq!(hello.applied, [], "nothing is in force");
    assert_ne!(ruleset(&host), cut);
    let report = session.policy(1, &first);
    assert_eq!((report.kind, report.conditions[0].reason), (OutcomeKind::Failed, Reason::SelfIsolation));
    applied(&session.policy(2, &open()));
}

#[test]
fn an_agent_that_is_killed_as_it_keeps_that_a_policy_is_confirmed_has_it_confirmed_or_on_trial_and_in_force() {
    let second = open_to("10.0.0.9");
    for (point, on_trial) in [("the ledger: record written, before it is synced", None), (TRIAL_POINTS[1], Some(false))]
    {
        let (mut host, mut gateway, _far) = unguarded();
        if on_trial.is_none() {
            // Candidate, trial, confirmed: nothing is written of the echo that the first one is owed.
            host.set_variable(NTH, Some("3"));
        }
        let until = Instant::now() + Duration::from_secs(20);
        killed_at(&mut host, &mut gateway, point, &second, |host, session| {
            session.echo_until(|| !host.ask(&["status"]).status.success() || Instant::now() > until);
        });
        host.wait_until("it answers", || host.ask(&["status"]).status.success());
        let policy = host.status()["policy"].clone();
        assert_eq!(policy["applied"]["version"], 2, "{point}");
        assert!(on_trial.is_none_or(|on_trial| policy["on_trial"] == on_trial), "{point}: {policy}");
        gateway.echo_until(|| is_confirmed(&host));
        assert_eq!(host.applied_version(), Some(2), "{point}");
    }
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
