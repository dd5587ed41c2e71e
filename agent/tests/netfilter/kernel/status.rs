//! What a running agent says of its host as a whole: complete, signed, after each outcome, and true.

use std::io::Write as _;

use holdfast_model::artifact;
use holdfast_model::condition::{Basis, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::Version;
use holdfast_model::policy::Body;
use holdfast_model::report::{HostReport, StatedCondition};
use holdfast_model::status::{Evidence, Link, Missing, Reported, Said, State, Verdict, Words, derive};
use holdfast_wire::code::DirectiveCode;
use holdfast_wire::message::{Directive, Message, OutcomeReport, StatusReport};
use nix::sys::signal::Signal;

use super::forwarded::{UPLINKS, forward_nothing};
use super::session::{applied, isolated, world};
use crate::support::agent::Host;
use crate::support::gateway::{Session, stamp};
use crate::support::load_nft;

const OWNER: &str = "HOLDFAST_AGENT_TABLE_OWNER";

pub(super) fn one(report: &HostReport, kind: ConditionType) -> &StatedCondition {
    let policy = report.of(Component::Policy).expect("every component");
    policy.conditions.iter().find(|one| one.condition.kind == kind).expect("every condition")
}

pub(super) fn of(report: &HostReport, kind: ConditionType) -> (Holds, Reason, Option<u64>) {
    let condition = &one(report, kind).condition;
    (condition.status, condition.reason, condition.observed_version.map(|version| version.raw()))
}

pub(super) fn yes(version: u64) -> (Holds, Reason, Option<u64>) {
    (Holds::True, Reason::Done, Some(version))
}

/// A policy is in force and confirmed.
pub(super) fn confirmed(host: &Host, session: &mut Session<'_>, version: u64, body: &Body) -> HostReport {
    applied(&session.policy(version, body));
    session.echo_until(|| host.status()["policy"]["on_trial"] == false);
    let is_confirmed = |report: &HostReport| of(report, ConditionType::Confirmed) == yes(version);
    session.status_until("it is confirmed", is_confirmed).report
}

#[test]
fn an_agent_says_how_its_host_is_as_it_dials_after_each_outcome_when_it_is_asked_and_with_its_own_signature() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.run_session();
    let (mut session, _) = gateway.open();
    let first = session.status();
    assert!(session.is_genuine(&first) && first.seq == 1, "{first:?}");
    assert_eq!((first.report.check(), first.report.answered.raw()), (Ok(()), 0));
    for kind in ConditionType::ALL.into_iter().filter(|kind| *kind != ConditionType::LedgerReadable) {
        assert_eq!(of(&first.report, kind), (Holds::Unknown, Reason::NotReached, None), "{kind}");
    }

    let body = isolated(&["10.0.0.1"]);
    applied(&session.policy(1, &body));
    let trial = session.status_until("it is on trial", |report| report.answered.raw() == 1);
    assert!(session.is_genuine(&trial));
    assert_eq!(of(&trial.report, ConditionType::Confirmed), (Holds::Unknown, Reason::OnTrial, Some(1)));
    let whole = confirmed(&host, &mut session, 2, &isolated(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(
        whole.of(Component::Policy).and_then(|policy| policy.applied),
        Some(stamp(2, &isolated(&["10.0.0.1", "10.0.0.3"])))
    );
    for kind in ConditionType::ALL.into_iter().filter(|kind| kind.is_blocking()) {
        assert_eq!(of(&whole, kind), yes(2), "{kind}");
    }
    let now_ms = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp() * 1_000).unwrap();
    let at = one(&whole, ConditionType::Verified).observed_at_ms;
    assert!(at > now_ms - 60_000 && at < now_ms + 60_000, "{at}");

    // Asked for, though nothing changed.
    session.write(&Message::Directive(Directive { code: DirectiveCode::ReportStatus, argument: Vec::new() }));
    let asked = session.status();
    assert_eq!(asked.report.digest(), whole.digest());

    // A failure: what it came to is of its version, what stands of the one in force.
    let other = stamp(3, &isolated(&["10.0.0.7"]));
    let signature = session.signature(Component::Policy, other);
    let refused = session.snapshot_as(Component::Policy, other, signature, &artifact::encode(&body));
    assert_eq!(refused.applied.map(|stamp| stamp.version.raw()), Some(2));
    let after = session.status_until("it is told", |report| report.answered > whole.answered).report;
    assert_eq!(of(&after, ConditionType::Confirmed), yes(2));
    assert_eq!(of(&after, ConditionType::SnapshotAccepted).0, Holds::False);
    assert_eq!(of(&after, ConditionType::Verified), (Holds::Unknown, Reason::NotReached, Some(3)));
}

/// What the derivation makes of a component by what a real agent answered and says, in a session that is heard.
fn judged(outcome: &OutcomeReport, session: &Session<'_>, said: &StatusReport) -> Verdict {
    let of = said.report.of(outcome.component).expect("every component");
    derive(&Evidence {
        component: outcome.component,
        words: Words::Reports,
        reported: Some(Reported {
            in_this_session: true,
            is_genuine: session.is_genuine(said),
            is_newer: outcome.update_seq <= said.report.answered,
            applied: of.applied,
            conditions: &of.conditions,
        }),
        untold_ms: 0,
        is_readable: true,
        latest: Some(outcome.wanted),
        link: Link::Open { heard_ms_ago: 0 },
        said: Some(Said {
            in_this_session: true,
            is_genuine: true,
            kind: outcome.kind,
            wanted: outcome.wanted,
            applied: outcome.applied,
            conditions: &outcome.conditions,
        }),
        is_held: false,
    })
}

/// The frames are a real agent's, of a real kernel and a real disk: what the plane derives of a host does not stand on statuses alone that tests make.
#[test]
fn what_a_real_agent_says_of_a_real_kernel_is_judged_converged_and_not_before_its_policy_led_to_a_gateway() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (mut session, _) = gateway.open();
    let first = session.status();
    let mut outcomes = vec![session.policy(1, &isolated(&["10.0.0.1"]))];
    let not_yet = judged(&outcomes[0], &session, &first);
    assert_eq!((not_yet.state, not_yet.missing), (State::Progressing, Some(Missing::NewerReport)));
    let trial = session.status_until("it is on trial", |report| report.answered >= outcomes[0].update_seq);
    let on_trial = judged(&outcomes[0], &session, &trial);
    assert_eq!((on_trial.state, on_trial.missing), (State::Progressing, Some(Missing::Trial)));
    for component in Component::ALL.into_iter().filter(|component| *component != Component::Policy) {
        let stamp = Stamp { version: Version::FIRST, digest: component.empty_digest() };
        let signature = session.signature(component, stamp);
        outcomes.push(session.snapshot_as(component, stamp, signature, &component.empty_bytes()));
    }
    session.echo_until(|| host.status()["policy"]["on_trial"] == false);
    let newest = outcomes.iter().map(|outcome| outcome.update_seq).max().unwrap();
    let whole = session.status_until("all of it is confirmed", |report| {
        report.answered >= newest && of(report, ConditionType::Confirmed) == yes(1)
    });
    for outcome in &outcomes {
        let Verdict { state, missing } = judged(outcome, &session, &whole);
        assert_eq!((state, missing), (State::Converged, None), "{}: {whole:?}", outcome.component);
    }
    // The same words under a signature that is not its own prove nothing.
    let mut forged = whole;
    forged.signature[7] ^= 1;
    assert_eq!(judged(&outcomes[0], &session, &forged).missing, Some(Missing::Signature));
}

#[test]
fn a_war_for_the_table_is_told_as_one_and_what_was_confirmed_before_a_restart_is_inferred_until_a_gateway_gives_an_echo()
 {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    // Longer than this takes: no tick comes between.
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("120000"));
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        confirmed(&host, &mut session, 1, &isolated(&["10.0.0.1"]));
        for nth in 1..=6 {
            host.namespace.run(|| load_nft("delete table inet holdfast"));
            host.wait_until("it is repaired", || host.status()["policy"]["drifts"] == nth);
        }
        let war = session.status_until("a war", |report| {
            of(report, ConditionType::NoDrift) == (Holds::False, Reason::Contended, Some(1))
        });
        assert!(session.is_genuine(&war));
        // Who is heard of now is not looked at before the tick: nothing of it was seen at this moment.
        let now = time::OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        host.namespace.run(|| load_nft("delete table inet holdfast"));
        let doubted = session.status_until("it is doubted", |report| {
            of(report, ConditionType::Verified) == (Holds::Unknown, Reason::Contended, Some(1))
        });
        let seen = one(&doubted.report, ConditionType::Verified).observed_at_ms;
        assert!(i128::from(seen) <= now, "seen at {seen}, told of at {now}");
    }
    host.end(Signal::SIGKILL);
    host.run_session();
    let (mut session, _) = gateway.open();
    let back = session.status().report;
    assert_eq!(of(&back, ConditionType::Confirmed), yes(1));
    assert_eq!(one(&back, ConditionType::Confirmed).basis, Basis::Inferred, "this process has had no echo");
    assert_eq!(host.status()["policy"]["on_trial"], false, "nothing is taken back");
    assert_eq!(of(&back, ConditionType::Verified), yes(1));
    assert_eq!(of(&back, ConditionType::NoDrift), yes(1), "a war is forgotten with its agent");
    // The same content under another version is no echo, and changes nothing of that.
    applied(&session.policy(2, &isolated(&["10.0.0.1"])));
    let again = session.status_until("it is answered", |report| of(report, ConditionType::Confirmed) == yes(2));
    assert_eq!(one(&again.report, ConditionType::Confirmed).basis, Basis::Inferred);
    let asked = std::cell::Cell::new(0);
    session.echo_until(|| asked.replace(asked.get() + 1) > 40);
    let echoed = |report: &HostReport| one(report, ConditionType::Confirmed).basis == Basis::Observed;
    let told = session.status_until("a gateway gave an echo", echoed);
    assert_eq!(of(&told.report, ConditionType::Confirmed), yes(2));
}

/// What passes through the host is told as not held to its policy in what it signs, and not on its own screen alone.
#[test]
fn forwarding_that_is_switched_on_makes_what_the_host_reports_of_it_unknown_and_off_again_true() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(UPLINKS, Some(""));
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("300"));
    forward_nothing(&host);
    host.run_session();
    let (mut session, _) = gateway.open();
    let whole = confirmed(&host, &mut session, 1, &isolated(&["10.0.0.1"]));
    assert_eq!(of(&whole, ConditionType::ForwardingCovered), yes(1));
    host.namespace.forward();
    let uncovered = (Holds::Unknown, Reason::ForwardedNotEnforced, Some(1));
    let told = session.status_until("it is told", |report| of(report, ConditionType::ForwardingCovered) == uncovered);
    assert!(session.is_genuine(&told));
    for kind in ConditionType::ALL.into_iter().filter(|kind| kind.is_blocking()) {
        assert_eq!(of(&told.report, kind), yes(1), "{kind}: nothing else is another");
    }
    forward_nothing(&host);
    let is_covered = |report: &HostReport| of(report, ConditionType::ForwardingCovered) == yes(1);
    session.status_until("it is covered", is_covered);
}

/// The update is whole and its session gone before it was answered, or half of it came: what is said next has everything, and claims nothing of what was
/// not reached.
#[test]
fn a_session_that_is_cut_in_the_middle_of_an_apply_is_followed_by_a_report_with_every_condition() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.run_session();
    let bodies = [isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "10.0.0.3"]), isolated(&["10.0.0.5"])];
    {
        let (mut session, _) = gateway.open();
        confirmed(&host, &mut session, 1, &bodies[0]);
    }
    for (version, half) in [(2, false), (3, true)] {
        let body = &bodies[usize::try_from(version - 1).unwrap()];
        let held = if half { version - 1 } else { version };
        {
            let (mut session, _) = gateway.open();
            // Longer than it takes to read what is sent whole.
            session.leave_after(if half { 40 } else { 1_000 });
            let frames = session.frames_of(version, body);
            let sent = if half { frames.len() / 2 } else { frames.len() };
            session.write_bytes(&frames[..sent]);
            if !half {
                // A socket that is closed with something unread in it takes from the agent what it did not read yet; its answer nobody reads.
                host.wait_until("it is in force", || host.applied_version() == Some(held));
            }
        }
        host.wait_until("it is at rest", || host.applied_version() == Some(held));
        let (mut session, _) = gateway.open();
        let first = session.status();
        assert!(session.is_genuine(&first) && first.seq == 1);
        assert_eq!((first.report.check(), first.report.answered.raw()), (Ok(()), 0), "half: {half}");
        let kept = stamp(held, &bodies[usize::try_from(held - 1).unwrap()]);
        assert_eq!(first.report.of(Component::Policy).and_then(|policy| policy.applied), Some(kept), "half: {half}");
        for kind in ConditionType::ALL {
            let (status, reason, at) = of(&first.report, kind);
            assert!(status != Holds::True || at == Some(held), "{kind}: {status:?} {reason:?} at {at:?}, half: {half}");
        }
        applied(&session.policy(held, &bodies[usize::try_from(held - 1).unwrap()]));
        session.echo_until(|| host.status()["policy"]["on_trial"] == false);
        let is_whole = |report: &HostReport| {
            ConditionType::ALL.iter().filter(|kind| kind.is_blocking()).all(|kind| of(report, *kind) == yes(held))
        };
        session.status_until("everything is proven anew", is_whole);
    }
}

#[cfg(feature = "test-hooks")]
#[test]
fn a_table_that_cannot_be_read_is_told_as_unread_and_as_verified_once_it_was_read_again() {
    let (mut host, mut gateway, _far) = world();
    let dark = host.path("dark");
    host.set_variable("HOLDFAST_AGENT_TEST_DARK_FILE", dark.to_str());
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("300"));
    host.run_session();
    let (mut session, _) = gateway.open();
    confirmed(&host, &mut session, 1, &isolated(&["10.0.0.1"]));
    std::fs::write(&dark, "").unwrap();
    let unread = (Holds::Unknown, Reason::ReadBackFailed, Some(1));
    let told = session.status_until("it cannot be read", |report| of(report, ConditionType::Verified) == unread);
    assert_eq!(of(&told.report, ConditionType::NoDrift), unread);
    assert_eq!(host.status()["policy"]["proven"], false);
    std::fs::remove_file(&dark).unwrap();
    let back = session.status_until("it is read", |report| of(report, ConditionType::Verified) == yes(1));
    assert_eq!(of(&back.report, ConditionType::NoDrift), yes(1));
    assert_eq!(host.status()["policy"]["drifts"], 0);
}

#[test]
fn what_is_kept_of_settings_is_read_back_on_the_slow_tick_and_told_where_it_cannot_be() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("300"));
    host.run_session();
    let (mut session, _) = gateway.open();
    session.empty_components();
    let verified = |report: &HostReport| {
        let settings = report.of(Component::Settings).expect("every component");
        let one = settings.conditions.iter().find(|one| one.condition.kind == ConditionType::Verified);
        let one = one.expect("every condition");
        assert_eq!(one.basis, Basis::Observed);
        (one.condition.status, one.condition.reason)
    };
    session.status_until("it is read back", |report| verified(report) == (Holds::True, Reason::Done));
    let file = host.path("state").join("components.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let unread = (Holds::Unknown, Reason::ReadBackFailed);
    session.status_until("it cannot be read", |report| verified(report) == unread);
    std::fs::remove_dir(&file).unwrap();
    session.status_until("it is written again", |report| verified(report) == (Holds::True, Reason::Done));
    assert!(std::fs::read_to_string(&file).unwrap().contains("settings"));
}

#[test]
fn a_ledger_that_is_removed_while_the_agent_runs_is_made_again_on_the_slow_tick_and_told_where_it_cannot_be() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("300"));
    host.run_session();
    let body = isolated(&["10.0.0.1"]);
    let (file, new) = (host.path("state").join("policy.ledger"), host.path("state").join("policy.ledger.new"));
    {
        let (mut session, _) = gateway.open();
        confirmed(&host, &mut session, 1, &body);
        // In the way of a file that is made anew.
        std::fs::create_dir(&new).unwrap();
        std::fs::remove_file(&file).unwrap();
        let lost = (Holds::False, Reason::LedgerUnusable, Some(1));
        session.status_until("it is gone", |report| of(report, ConditionType::LedgerReadable) == lost);
        std::fs::remove_dir(&new).unwrap();
        session.status_until("it is made again", |report| of(report, ConditionType::LedgerReadable) == yes(1));
        // Somebody else writes into it, and it is as long as it was.
        let written = std::fs::read(&file).unwrap();
        let mut altered = written.clone();
        *altered.last_mut().unwrap() ^= 1;
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().write_all(&altered).unwrap();
        host.wait_until("it is put right", || std::fs::read(&file).unwrap() == written);
    }
    host.end(Signal::SIGKILL);
    host.run_session();
    let (_session, hello) = gateway.open();
    assert!(hello.applied.contains(&(Component::Policy, stamp(1, &body))), "{:?}", hello.applied);
}
