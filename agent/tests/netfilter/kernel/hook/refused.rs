//! A kernel that refuses what the agent writes, or holds something else, under a real agent: nothing is opened, nothing is told as another's doing, and what
//! somebody was told is so.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use holdfast_model::statement::OutcomeKind;
use nix::sys::signal::Signal;

use super::super::local::{SHUT, overridden};
use super::super::session::{applied, isolated, world};
use super::BEFORE;
use crate::support::agent::Host;
use crate::support::{load_nft, output_of};

const VERIFY_INTERVAL: &str = "HOLDFAST_AGENT_VERIFY_INTERVAL_MS";
const REFUSE: &str = "HOLDFAST_AGENT_TEST_REFUSE_FILE";

/// A host with a policy in force, whose kernel refuses everything while this file is there.
fn refusing() -> (Host, PathBuf) {
    let mut host = Host::new(BEFORE);
    let refuse = host.path("refuse");
    host.set_variable(REFUSE, refuse.to_str());
    host.set_variable(VERIFY_INTERVAL, Some("1000"));
    host.set_variable("HOLDFAST_AGENT_TABLE_OWNER", Some("off"));
    host.start();
    (host, refuse)
}

fn flush(host: &Host) {
    host.namespace.run(|| load_nft("flush ruleset"));
}

fn has_table(host: &Host) -> bool {
    host.namespace.run(|| output_of("nft", &["list", "tables"])).contains("inet holdfast")
}

#[test]
fn what_the_kernel_did_not_take_at_the_start_is_put_there_by_the_tick_and_is_nobodys_drift() {
    let (host, refuse) = refusing();
    host.end(Signal::SIGKILL);
    flush(&host);
    fs::write(&refuse, "").unwrap();
    host.write_policy("no policy at all");
    host.start();
    host.wait_until("a look at it", || host.status()["policy"]["reads"].as_u64() >= Some(2));
    assert!(!has_table(&host));
    fs::remove_file(&refuse).unwrap();
    host.wait_until("it is in force", || host.status()["policy"]["proven"] == true);
    let policy = host.status()["policy"].clone();
    assert_eq!((&policy["drifts"], policy["last_drift"].is_null()), (&0.into(), true), "{policy}");
    // What another one does is told once, though its repair is refused for a while.
    fs::write(&refuse, "").unwrap();
    flush(&host);
    host.wait_until("it is found", || host.status()["policy"]["drifts"] == 1);
    let reads = host.status()["policy"]["reads"].as_u64();
    host.wait_until("more looks", || host.status()["policy"]["reads"].as_u64() >= reads.map(|reads| reads + 2));
    fs::remove_file(&refuse).unwrap();
    host.wait_until("it is repaired", || host.status()["policy"]["last_drift"]["repaired"] == true);
    assert_eq!(host.status()["policy"]["drifts"], 1);
}

#[test]
fn a_table_that_cannot_be_taken_away_is_defended_as_before() {
    let (host, refuse) = refusing();
    fs::write(&refuse, "").unwrap();
    let down = host.ask(&["down"]);
    assert!(!down.status.success() && String::from_utf8_lossy(&down.stderr).contains("[table-stays]"), "{down:?}");
    assert!(has_table(&host));
    fs::remove_file(&refuse).unwrap();
    host.wait_until("it is seen to be there", || host.status()["policy"]["proven"] == true);
    let before = host.status()["policy"]["drifts"].as_u64().unwrap();
    flush(&host);
    host.wait_until("it is repaired", || host.status()["policy"]["last_drift"]["repaired"] == true && has_table(&host));
    assert_eq!(host.status()["policy"]["drifts"], before + 1);
    assert!(host.ask(&["down"]).status.success());
    assert_eq!(host.ended(), Some(0));
    assert!(!has_table(&host));
}

#[test]
fn an_update_that_comes_behind_the_end_of_the_table_does_not_lay_it_again() {
    let (mut host, mut gateway, _far) = world();
    // A point that the first policy of a host passes, and no other one.
    host.set_variable("HOLDFAST_TEST_STALL_POINT", Some("the ledger: written anew, before it is put in place"));
    host.set_variable("HOLDFAST_TEST_STALL_MS", Some("1500"));
    host.run_session();
    let (mut session, _) = gateway.open();
    // While the first is held up, somebody takes the table away; the second waits for the first, and is handed over behind that.
    let mut frames = session.frames_of(1, &isolated(&["10.0.0.1"]));
    frames.extend(session.frames_of(2, &isolated(&["10.0.0.9"])));
    session.write_bytes(&frames);
    // Whoever asks nothing holds the end of the process up, so that the second one has its time.
    host.wait_until("it listens", || host.path("state/agent.sock").exists());
    let silent = UnixStream::connect(host.path("state/agent.sock")).unwrap();
    let down = host.ask(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(host.ended(), Some(0));
    drop(silent);
    assert!(!has_table(&host), "somebody was told that it is gone");
}

#[test]
fn an_update_that_fails_on_a_host_whose_ledger_is_damaged_opens_nothing() {
    let host = Host::with_environment(BEFORE, &[("HOLDFAST_AGENT_TEST_ALTER_FILE", "alter")]);
    host.start();
    host.end(Signal::SIGKILL);
    fs::write(host.ledger(), [0x5a; 300]).unwrap();
    host.write_policy(&BEFORE.replace("10.0.0.9", "10.0.0.7"));
    fs::write(host.path("alter"), "").unwrap();
    host.start();
    let policy = host.status()["policy"].clone();
    assert_eq!((policy["applied"].is_null(), &policy["proven"]), (true, &false.into()), "{policy}");
    assert_eq!(policy["last_outcome"]["outcome"], "failed", "{policy}");
    let held = host.namespace.run(|| output_of("nft", &["list", "table", "inet", "holdfast"]));
    assert!(held.contains("10.0.0.7") && held.contains("drop comment"), "it would count and drop nothing: {held}");
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!(host.status()["policy"]["proven"], true);
}

#[test]
fn a_local_policy_whose_end_the_kernel_refuses_stays_in_force_on_the_disk_and_in_what_gateways_hear() {
    let (mut host, mut gateway, _far) = world();
    let refuse = host.path("refuse");
    host.set_variable(REFUSE, refuse.to_str());
    host.set_variable(VERIFY_INTERVAL, Some("1000"));
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
        host.write_policy(SHUT);
        overridden(&host, &[&host.path("policy.json").display().to_string()]);
    }
    let (mut session, _) = gateway.open();
    assert_eq!(session.policy(1, &isolated(&["10.0.0.1"])).kind, OutcomeKind::RetainedLocalOverride);
    fs::write(&refuse, "").unwrap();
    let refused = host.ask(&["override", "--clear"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        words.contains("[override-refused]") && words.contains("the local policy that was there is back"),
        "{words}"
    );
    fs::remove_file(&refuse).unwrap();
    assert!(host.path("state/override.hfp").exists() && !host.status()["policy"]["local"].is_null());
    host.wait_until("it is read", || host.status()["policy"]["proven"] == true);
    // The session goes on, and what is sent is answered as before.
    assert_eq!(session.policy(2, &isolated(&["10.0.0.9"])).kind, OutcomeKind::RetainedLocalOverride);
    overridden(&host, &["--clear"]);
    drop(session);
    let (mut session, _) = gateway.open();
    applied(&session.policy(2, &isolated(&["10.0.0.9"])));
    assert_eq!(host.applied_version(), Some(2));
}
