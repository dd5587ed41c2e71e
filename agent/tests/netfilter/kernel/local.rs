//! A policy of the host's own before what gateways send: through the real binary, kernel and session.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::thread;

use holdfast_model::condition::{ConditionType, Holds, Reason};
use holdfast_model::statement::OutcomeKind;
use nix::sys::signal::Signal;

use super::session::{applied, isolated, ruleset, world};
use crate::support::agent::Host;

/// Denies everything inbound.
pub(super) const SHUT: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": []}}"#;

pub(super) fn overridden(host: &Host, arguments: &[&str]) -> String {
    let ran = host.ask(&[&["override"], arguments].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn c48_a_local_override_wins_is_told_once_an_update_stays_over_a_restart_and_its_end_brings_what_was_sent() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (first, second) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "10.0.0.9"]));
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &first));
    }
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &first));
    session.empty_components();
    let sent = ruleset(&host);
    host.write_policy(SHUT);
    let file = host.path("policy.json").display().to_string();
    assert!(overridden(&host, &[&file]).contains("is in force"));
    let own = ruleset(&host);
    assert_ne!(own, sent);
    // The session begins anew, so that gateways hear of it though they send nothing.
    drop(session);
    let (mut session, hello) = gateway.open();
    assert_eq!(hello.applied.len(), 4, "what was sent is kept");
    for (version, body) in [(1, &first), (2, &second)] {
        let report = session.policy(version, body);
        assert_eq!((report.kind, report.applied), (OutcomeKind::RetainedLocalOverride, None));
        let at = report.conditions.iter().find(|one| one.kind == ConditionType::Applied).expect("it is told");
        assert_eq!((at.status, at.reason), (Holds::False, Reason::LocalOverride));
    }
    // What comes is relative to what is kept, also in place of what is in force.
    let report = session.delta((2, &second), (3, &first));
    assert_eq!(report.kind, OutcomeKind::RetainedLocalOverride);
    assert_eq!(ruleset(&host), own);
    let status = host.status();
    assert_eq!((&status["policy"]["local"]["kept"]["version"], host.applied_version()), (&3.into(), None));
    // Over a kill, and with another tool's flush: the same is in force, before anybody is dialled.
    host.end(Signal::SIGKILL);
    drop(session);
    host.namespace.run(|| crate::support::load_nft("flush ruleset"));
    host.run_session();
    host.wait_until("the local policy is in force", || host.ask(&["healthcheck"]).status.success());
    assert_eq!(ruleset(&host), own);
    let (session, _) = gateway.open();
    assert!(overridden(&host, &["--clear"]).contains("what was rendered is in force"));
    drop(session);
    assert_eq!(ruleset(&host), sent, "the newest that was sent, without asking anybody");
    let (mut session, _) = gateway.open();
    applied(&session.policy(3, &first));
    assert_eq!(host.applied_version(), Some(3));
}

#[test]
fn a_file_that_is_no_policy_overrides_nothing_and_a_broken_one_in_its_place_is_told_and_not_used() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    let before = ruleset(&host);
    host.write_policy("{");
    let refused = host.ask(&["override", &host.path("policy.json").display().to_string()]);
    assert!(!refused.status.success() && !host.path("state/override.hfp").exists());
    assert_eq!(ruleset(&host), before);
    std::fs::write(host.path("state/override.hfp"), b"noise").expect("writes");
    host.end(Signal::SIGTERM);
    drop(session);
    host.run_session();
    host.wait_until("what was rendered is in force", || host.ask(&["healthcheck"]).status.success());
    assert_eq!(ruleset(&host), before);
    // Last, since it asks the gateway, which does not answer.
    let found = host.troubles();
    assert!(found.iter().any(|(name, text)| name == "local policy" && text.contains("--clear")), "{found:?}");
}

/// A command that must fail; what it says.
fn refused(host: &Host, arguments: &[&str]) -> String {
    let ran = host.ask(arguments);
    assert!(!ran.status.success(), "{arguments:?} succeeds");
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

#[test]
fn an_override_that_the_agent_refuses_leaves_what_was_in_its_place_to_the_byte_also_if_that_is_no_policy() {
    let host = Host::new(SHUT);
    // It takes its policy from a file, and no other.
    host.start();
    let (kept, file) = (host.path("state/override.hfp"), host.path("policy.json").display().to_string());
    let words = refused(&host, &["override", &file]);
    assert!(words.contains("[override-refused]") && words.contains("no local policy, as before"), "{words}");
    assert!(!kept.exists());
    std::fs::write(&kept, b"noise").expect("writes");
    let words = refused(&host, &["override", &file]);
    assert!(words.contains("[override-refused]") && words.contains("override --clear"), "{words}");
    assert_eq!(std::fs::read(&kept).expect("it is back"), b"noise");
    let words = refused(&host, &["override", "--clear"]);
    assert!(words.contains("[override-refused]"), "{words}");
    assert_eq!(std::fs::read(&kept).expect("it is back"), b"noise");
    // What cannot even be read is not replaced: it could not be put back.
    std::fs::remove_file(&kept).expect("it is ours");
    std::fs::create_dir(&kept).expect("the folder is ours");
    let words = refused(&host, &["override", &file]);
    assert!(words.contains("[policy-unreadable]") && words.contains("was not changed"), "{words}");
    assert!(kept.is_dir());
}

#[test]
fn an_override_that_the_agent_does_not_answer_is_taken_back_and_the_agent_is_told_to_read_again() {
    let host = Host::new(SHUT);
    let (kept, file) = (host.path("state/override.hfp"), host.path("policy.json").display().to_string());
    std::fs::create_dir(host.path("state")).expect("the folder is ours");
    assert!(overridden(&host, &[&file]).contains("once one does"));
    let before = std::fs::read(&kept).expect("it was put there");
    host.write_policy(r#"{"mode": "enforced"}"#);
    // An agent that takes a question, and ends before it answers.
    let agent = UnixListener::bind(host.path("state/agent.sock")).expect("the folder is ours");
    let found = thread::scope(|scope| {
        let asked = scope.spawn(|| {
            [(); 2].map(|()| {
                let (stream, _) = agent.accept().expect("it is asked");
                let mut question = String::new();
                BufReader::new(stream).read_line(&mut question).expect("a line");
                (question, std::fs::read(&kept).expect("there is one"))
            })
        });
        let words = refused(&host, &["override", &file]);
        assert!(words.contains("[override-unanswered]") && words.contains("that was there is back"), "{words}");
        asked.join().expect("it was asked twice")
    });
    let [(first, new), (second, back)] = found;
    assert_eq!((first.as_str(), second.as_str()), ("\"reload\"\n", "\"reload\"\n"));
    assert_ne!(new, before, "the first question is about the new one");
    assert_eq!(back, before, "and the second comes once the one before is back");
    assert_eq!(std::fs::read(&kept).expect("it is there"), before);
}

#[test]
fn the_doctor_does_not_wait_for_ever_for_an_agent_that_is_held_still() {
    let host = Host::new(SHUT);
    host.start();
    host.signal(Signal::SIGSTOP);
    let began = std::time::Instant::now();
    let found = host.troubles();
    host.signal(Signal::SIGCONT);
    assert!(found.iter().any(|(name, text)| name == "agent" && text.contains("held still")), "{found:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}
