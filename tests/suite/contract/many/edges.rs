//! The edge cases of operations between real processes: the door, the renderer and the servers are real, and evidence is what hosts sign and say at
//! the agents' door.
//!
//! Names begin with the edge case that they show (`C38` is number 38 of the catalogue).

use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_model::desired::Component;
use holdfast_model::numbers::Version;
use holdfast_model::report::HostReport;
use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use super::agent::DEADLINE;
use super::few::{Few, HERE, json};
use super::scripted::Scripted;
use crate::control_plane::ControlPlane;

/// The one policy of everybody, from one prefix; it is in a file of its own.
fn policy_file(plane: &ControlPlane, name: &str, cidr: &str) -> String {
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {name}}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{{cidr: {cidr}}}]}}]\n"
    );
    plane.file(&format!("{name}-{}.yaml", cidr.replace(['/', '.'], "-")), text).display().to_string()
}

fn apply(few: &Few, file: &str, more: &[&str]) -> Output {
    few.plane.holdfast(&[&["apply", "-f", file, "-o", "json"], more].concat())
}

/// Applies another content of the policy `kept`; its operation.
fn applied(few: &Few, cidr: &str) -> String {
    let done = apply(few, &policy_file(&few.plane, "kept", cidr), &[]);
    assert!(done.status.success(), "{done:?}");
    operation_of(&json(&done))
}

fn operation_of(answer: &Value) -> String {
    answer["operation"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn waits(few: &Few, arguments: &[&str]) -> Child {
    let mut command = few.plane.holdfast_command();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

/// How many changes of what operators asked for there were.
fn revisions(few: &Few) -> String {
    few.plane.postgres.sql("SELECT count(*) FROM revisions").trim().to_owned()
}

async fn of(few: &Few, operation: &str) -> Value {
    few.get(&format!("/v1/operations/{operation}")).await
}

fn counts(seen: &Value) -> [u64; 5] {
    let count = |field: &str| seen["hosts"][field].as_u64().unwrap_or_else(|| panic!("{seen}"));
    ["total", "applied", "pending", "superseded", "cancelled"].map(count)
}

/// Waits for the end of an operation by the command: what it ended as, with the counts.
fn ended(few: &Few, operation: &str, code: i32) -> Value {
    let waited = few.wait(operation, "20s");
    assert_eq!(waited.status.code(), Some(code), "{waited:?}");
    json(&waited)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c38_an_operation_that_another_overwrites_before_every_host_has_it_is_superseded_and_says_by_what() {
    let mut few = Box::pin(Few::start(2)).await;
    let first = applied(&few, "192.0.2.0/25");
    few.all_take().await;
    few.hosts[0].policy_is_well().await;
    let path = format!("/v1/operations/{first}");
    let seen = few.until(&path, |seen| seen["hosts"]["applied"] == 1).await;
    assert_eq!((&seen["state"], &seen["finished"]), (&"accepted".into(), &false.into()), "{seen}");
    let came = few.hosts[1].came[&Component::Policy].clone();
    let second = applied(&few, "198.51.100.0/24");
    few.all_take().await;

    // The one that answered in time had it; what the other says of it now comes too late. Nobody has the newer one yet, which goes on.
    let end = ended(&few, &first, 4);
    assert_eq!((&end["state"], counts(&end)), (&"superseded".into(), [2, 1, 0, 1, 0]), "{end}");
    let next = end["revision"].as_u64().expect("a number") + 1;
    assert!(end["detail"].as_str().is_some_and(|detail| detail.contains(&format!("revision {next}"))), "{end}");
    few.hosts[1].policy_was_well(&came).await;
    let seen = few.wait(&second, "1s");
    assert_eq!((seen.status.code(), counts(&json(&seen))), (Some(6), [2, 0, 2, 0, 0]), "{seen:?}");
    few.all_are_well().await;
    let end = ended(&few, &second, 0);
    assert_eq!((&end["state"], counts(&end)), (&"applied".into(), [2, 2, 0, 0, 0]), "{end}");
    few.until("/v1/status", |status| status["state"] == "converged").await;
    let seen = of(&few, &first).await;
    assert_eq!(
        (&seen["state"], counts(&seen)),
        (&"superseded".into(), [2, 1, 0, 1, 0]),
        "it stays as it ended: {seen}"
    );
    few.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c39_a_name_that_is_used_again_for_another_body_is_refused_and_hosts_never_hear_of_it() {
    let mut few = Box::pin(Few::start(2)).await;
    let (one, other) = ("192.0.2.0/25", "198.51.100.0/24");
    let [one, other] = [one, other].map(|cidr| policy_file(&few.plane, "kept", cidr));
    let first = apply(&few, &one, &["--idempotency-key", "nightly"]);
    assert!(first.status.success(), "{first:?}");
    let operation = operation_of(&json(&first));
    few.all_take().await;
    let refused = apply(&few, &other, &["--idempotency-key", "nightly"]);
    let problem: Value = serde_json::from_slice(&refused.stderr).unwrap_or_else(|error| panic!("{error}: {refused:?}"));
    assert_eq!(
        (refused.status.code(), &problem["type"]),
        (Some(4), &"urn:holdfast:problem:idempotency-key-reused".into()),
        "{problem}"
    );
    few.all_are_well().await;
    assert_eq!(ended(&few, &operation, 0)["state"], "applied");
    assert_eq!(revisions(&few), "4", "two enrolments, the first policy and this one");

    // The same once more is the one that is there, also after its end; what a host hears next is the next change.
    let again = apply(&few, &one, &["--idempotency-key", "nightly"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(json(&again)["operation"], Value::from(operation));
    let version = few.hosts[0].stamp(Component::Policy).version;
    let next = apply(&few, &other, &[]);
    assert!(next.status.success(), "{next:?}");
    few.all_take().await;
    assert_eq!(few.hosts[0].stamp(Component::Policy).version, following(version), "nothing was rendered in between");
    few.plane.assert_runs();
}

fn following(version: Version) -> Version {
    Version::from_raw(version.raw() + 1).expect("above zero")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c40_a_name_that_is_used_again_with_another_wait_is_the_same_operation_which_hosts_end() {
    let mut few = Box::pin(Few::start(2)).await;
    let file = policy_file(&few.plane, "kept", "192.0.2.0/25");
    let named = |more: &'static str| ["apply", "-f", &file, "--idempotency-key", "nightly", "-o", "json", more];
    let before = revisions(&few);
    let short = few.plane.holdfast(&named("--wait=1s"));
    assert_eq!(short.status.code(), Some(6), "{short:?}");
    let operation = operation_of(&json(&short));
    few.all_take().await;
    let longer = waits(&few, &named("--wait=40s"));
    few.all_are_well().await;
    let longer = longer.wait_with_output().expect("it ends");
    assert_eq!(longer.status.code(), Some(0), "{longer:?}");
    let longer = json(&longer);
    assert_eq!((&longer["operation"], &longer["waited"]["state"]), (&operation.clone().into(), &"applied".into()));
    let none = apply(&few, &file, &["--idempotency-key", "nightly"]);
    assert_eq!(json(&none)["operation"], Value::from(operation));
    assert_eq!(revisions(&few).parse::<u32>(), before.parse::<u32>().map(|count| count + 1), "one change");
    few.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c41_who_is_killed_or_times_out_while_it_waits_leaves_an_operation_that_lives_and_ends_the_same_for_all() {
    const IDLE: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
                        AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '500 ms'";
    let mut few = Box::pin(Few::start(2)).await;
    let file = policy_file(&few.plane, "kept", "192.0.2.0/25");
    let mut killed = waits(&few, &["apply", "-f", &file, "--wait=60s", "--idempotency-key", "nightly"]);
    few.all_take().await;
    let listed = few.plane.holdfast(&["operation", "list", "-o", "name"]);
    let operation = String::from_utf8(listed.stdout).expect("text").lines().next().expect("one").to_owned();
    few.hosts[0].policy_is_well().await;
    let path = format!("/v1/operations/{operation}");
    few.until(&path, |seen| seen["hosts"]["applied"] == 1).await;
    // Two that wait: nobody of them has a transaction open, and one is told that its time is over.
    let late = waits(&few, &["wait", "operation", &operation, "--timeout", "2s", "-o", "json"]);
    let deadline = Instant::now() + Duration::from_millis(1_500);
    while Instant::now() < deadline {
        assert_eq!(few.plane.postgres.sql(IDLE).trim(), "0");
    }
    assert!(killed.try_wait().expect("asks").is_none(), "it waits");
    killed.kill().and_then(|()| killed.wait()).expect("it is a child of ours");
    let late = late.wait_with_output().expect("it ends");
    assert_eq!((late.status.code(), counts(&json(&late))), (Some(6), [2, 1, 1, 0, 0]), "{late:?}");
    assert_eq!(of(&few, &operation).await["state"], "accepted", "it lives");

    few.hosts[1].policy_is_well().await;
    let end = ended(&few, &operation, 0);
    assert_eq!((&end["state"], counts(&end)), (&"applied".into(), [2, 2, 0, 0, 0]), "{end}");
    let again = apply(&few, &file, &["--wait=20s", "--idempotency-key", "nightly"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!((&json(&again)["operation"], &json(&again)["waited"]["state"]), (&operation.into(), &"applied".into()));
    few.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c43_a_host_that_is_taken_out_is_cancelled_at_once_and_one_whose_agent_said_goodbye_inactive_after_30_s() {
    const INACTIVE_DEADLINE: Duration = Duration::from_secs(60);
    let mut few = Box::pin(Few::start(3)).await;
    let operation = applied(&few, "192.0.2.0/25");
    few.all_take().await;
    let gone = few.hosts.pop().expect("three");
    few.hosts[0].policy_is_well().await;
    few.hosts.pop().expect("two").leave().await;
    few.until("/v1/hosts/web-2", |host| host["sync"] == "OFFLINE").await;
    let left = Instant::now();
    let out = few.plane.holdfast(&["host", "decommission", "web-3", "--because", "it was sold"]);
    assert!(out.status.success(), "{out:?}");
    let path = format!("/v1/operations/{operation}");
    let seen = few.until(&path, |seen| seen["hosts"]["cancelled"] == 1).await;
    assert!(left.elapsed() < Duration::from_secs(25), "long before the other is said to be stopped");
    assert_eq!((&seen["state"], counts(&seen)), (&"accepted".into(), [3, 1, 1, 0, 1]), "{seen}");
    drop(gone);

    let end = few.plane.holdfast(&["wait", "operation", &operation, "--timeout", "60s", "-o", "json"]);
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    assert!(left.elapsed() < INACTIVE_DEADLINE, "{:?}", left.elapsed());
    let end = json(&end);
    let told = (&end["state"], &end["hosts"]["inactive"], &end["detail"]);
    let detail = "in force on 1 of 3 hosts; the others are stopped or no more";
    assert_eq!(told, (&"applied".into(), &1.into(), &detail.into()), "{end}");

    // It comes back, has it, and the operation stays as it ended.
    let mut back = Scripted::open_whole(&few.who[1], few.plane.agents_door(), HERE).await;
    back.be_well().await;
    few.until("/v1/hosts/web-2", |host| host["state"] == "converged").await;
    assert_eq!(of(&few, &operation).await["hosts"], end["hosts"]);
    few.plane.assert_runs();
}

/// What a change is about is what it waits for: hosts that it is not for, and parts of a host that it does not change, are nothing to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c44_operations_about_different_things_end_each_by_its_own_evidence_and_none_supersedes_the_other() {
    let mut few = Box::pin(Few::start(2)).await;
    let policy = applied(&few, "192.0.2.0/25");
    few.all_take().await;
    few.hosts[0].policy_is_well().await;
    let path = format!("/v1/operations/{policy}");
    few.until(&path, |seen| seen["hosts"]["applied"] == 1).await;
    // The mode of the one, while the policy is not yet on the other.
    few.plane.file(
        "mode.yaml",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: web-1}\nspec: {mode: enforced}\n",
    );
    let mode = apply(&few, &few.plane.folder().join("mode.yaml").display().to_string(), &[]);
    assert!(mode.status.success(), "{mode:?}");
    let mode = operation_of(&json(&mode));
    assert_eq!(few.hosts[0].take().await, Component::Policy);
    few.hosts[0].policy_is_well().await;
    let end = ended(&few, &mode, 0);
    assert_eq!((&end["state"], counts(&end)), (&"applied".into(), [1, 1, 0, 0, 0]), "{end}");
    let seen = of(&few, &policy).await;
    assert_eq!((&seen["state"], counts(&seen)), (&"accepted".into(), [2, 1, 1, 0, 0]), "{seen}");

    // The other comes back with a component that fails; the policy is in force, and that is what is waited for.
    drop(few.hosts.pop());
    let mut other = Scripted::open_whole(&few.who[1], few.plane.agents_door(), HERE).await;
    other.answer(Component::Settings, OutcomeKind::Failed, None).await;
    few.until("/v1/hosts/web-2", |host| host["state"] == "failed").await;
    assert_eq!(of(&few, &policy).await["state"], "accepted");
    other.applied(Component::Policy).await;
    let held = [(Component::Policy, other.stamp(Component::Policy))];
    let answered = other.came[&Component::Policy].update_seq.max(other.came[&Component::Settings].update_seq);
    other.report(HostReport::of_health(&held, answered, 1_790_000_000_000)).await;
    let end = ended(&few, &policy, 0);
    assert_eq!((&end["state"], counts(&end)), (&"applied".into(), [2, 2, 0, 0, 0]), "{end}");
    assert_eq!(few.host(1).await["state"], "failed", "the other part is told as what it is");
    few.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c46_a_signed_answer_about_an_earlier_version_than_the_awaited_one_ends_nothing() {
    let mut few = Box::pin(Few::start(1)).await;
    let first = applied(&few, "192.0.2.0/25");
    few.all_take().await;
    let came = few.hosts[0].came[&Component::Policy].clone();
    // Something of its own, so that the first is in force with it.
    let file = policy_file(&few.plane, "other", "198.51.100.0/24");
    let second = apply(&few, &file, &[]);
    assert!(second.status.success(), "{second:?}");
    let second = operation_of(&json(&second));
    few.all_take().await;
    few.hosts[0].policy_was_well(&came).await;
    assert_eq!(ended(&few, &first, 0)["state"], "applied");
    let waited = few.wait(&second, "2s");
    assert_eq!((waited.status.code(), counts(&json(&waited))), (Some(6), [1, 0, 1, 0, 0]), "{waited:?}");
    assert_eq!(of(&few, &second).await["finished"], false);
    few.hosts[0].policy_is_well().await;
    assert_eq!(ended(&few, &second, 0)["state"], "applied");
    few.plane.assert_runs();
}

/// A change of labels and a change of modes get their turns in this order, or in the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c59_a_label_that_moves_while_a_mode_is_set_is_refused_by_the_count_or_comes_after_the_hosts_were_fixed() {
    let mut few = Box::pin(Few::start(2)).await;
    let labels = |app: &str| {
        let host = |name: &str, app: &str| {
            format!(
                "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: {name}}}\nspec: {{labels: {{app: {app}}}}}\n---\n"
            )
        };
        [host("web-1", "web"), host("web-2", app)].concat()
    };
    let [stays, moves] =
        ["web", "db"].map(|app| few.plane.file(&format!("{app}.yaml"), labels(app)).display().to_string());
    let done = apply(&few, &stays, &[]);
    assert!(done.status.success(), "{done:?}");
    let (mut other, door) = few.plane.another_operators_door();
    let mode = ["mode", "set", "app=web", "enforced", "--expect", "2", "-o", "json"];
    let moving = ["apply", "-f", &moves, "-o", "json"];
    let shown = |host: &Value| host["mode"].as_str().unwrap_or_else(|| panic!("{host}")).to_owned();
    let first = few.host(0).await;
    assert_ne!(shown(&first), "enforced");

    // The label goes first: one matches where two were counted, and nobody's mode changes.
    let [moved, set] = in_turn(&few, &door, &moving, &mode);
    assert!(moved.status.success(), "{moved:?}");
    let problem: Value = serde_json::from_slice(&set.stderr).unwrap_or_else(|error| panic!("{error}: {set:?}"));
    assert_eq!(set.status.code(), Some(4), "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("1 fewer than the 2 expected"), "{problem}");
    for n in 0..2 {
        assert_eq!(shown(&few.host(n).await), shown(&first), "nothing was set");
    }

    // The mode goes first: both are fixed by then, whatever the label of one of them is next.
    let done = apply(&few, &stays, &[]);
    assert!(done.status.success(), "{done:?}");
    let moves =
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: web-2}\nspec: {labels: {app: db}, mode: enforced}\n";
    let moves = few.plane.file("moves.yaml", moves).display().to_string();
    let [set, moved] = in_turn(&few, &door, &mode, &["apply", "-f", &moves, "-o", "json"]);
    assert!(set.status.success() && moved.status.success(), "{set:?} {moved:?}");
    let set = json(&set);
    assert_eq!(set["objects"].as_array().map(Vec::len), Some(2), "{set}");
    few.all_take().await;
    few.all_are_well().await;
    few.until("/v1/status", |status| status["state"] == "converged").await;
    for n in 0..2 {
        assert_eq!(shown(&few.host(n).await), "enforced");
    }
    assert_eq!(few.host(1).await["labels"]["app"], "db");
    other.assert_runs();
    few.plane.assert_runs();
}

/// Runs two commands of which each changes something, each at a door of its own: both have asked before the first gets its turn, and they get theirs
/// in this order.
fn in_turn(few: &Few, door: &str, first: &[&str], second: &[&str]) -> [Output; 2] {
    const LOCK: &str = "locktype = 'advisory' AND objid = 1952804468";
    let waiters = format!("SELECT count(*) FROM pg_locks WHERE {LOCK} AND NOT granted");
    let until = |sql: &str, wanted: &str| {
        let deadline = Instant::now() + DEADLINE;
        while few.plane.postgres.sql(sql).trim() != wanted {
            assert!(Instant::now() < deadline, "{sql}: not {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::thread::scope(|scope| {
        // Holds the lock of changes until both wait for it.
        let held = scope.spawn(|| {
            few.plane.postgres.sql(&format!(
                "DO $$ BEGIN PERFORM pg_advisory_xact_lock(x'696e74656e74'::bigint); FOR i IN 1..600 LOOP \
                 EXIT WHEN ({waiters}) >= 2; PERFORM pg_sleep(0.05); END LOOP; END $$"
            ))
        });
        until(&format!("SELECT count(*) FROM pg_locks WHERE {LOCK} AND granted"), "1");
        let first = waits(few, first);
        until(&waiters, "1");
        let mut command = few.plane.holdfast_command();
        command.env("HOLDFAST_API", door).args(second).stdout(Stdio::piped()).stderr(Stdio::piped());
        let second = command.spawn().expect("it runs");
        let ran = [first, second].map(|one| one.wait_with_output().expect("it ends"));
        held.join().expect("it lets go");
        ran
    })
}
