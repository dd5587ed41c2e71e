//! What a token for one namespace reads of changes that go through others: nothing names what it does not reach.

use std::time::Duration;

use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::intent::POLICIES;
use crate::plane::{Plane, Ran};

/// How long anything that is awaited here may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Hosts and objects that a token for `edge` does not reach.
const OTHERS: [&str; 4] = ["db-1", "db-2", "Policy/default", "NetworkPolicy/default"];

/// A host that a token reaches, two that it does not, and a change for all of them.
async fn mk_plane() -> (Plane, String) {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("db-2", "10.0.0.2").await;
    plane.enrol_in("edge", "edge-1", "10.0.0.3").await;
    let edge = "\n---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: own, namespace: edge}\nspec:\n  \
                hostSelector: {matchLabels: {app: edge}}\n  ingress:\n  - services: [{tcp: 5432}]\n";
    let all = format!("{}{edge}", POLICIES.trim_end());
    plane.file("policies.yaml", &all);
    plane.file("change.yaml", &all.replace("tcp: 5432", "tcp: 5433"));
    plane.file("again.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5434"));
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let made = ["api-token", "create", "edge", "--role", "admin", "--namespace", "edge"];
    let token = plane.run(&made).await.ended(0).trim().to_owned();
    (plane, token)
}

/// Begins a rollout; its id and its operation.
async fn begin(plane: &Plane, more: &[&str]) -> (String, String) {
    let begin = ["apply", "-f", "change.yaml", "-o", "json", "--rollout"];
    let begun = plane.run(&[begin.as_slice(), more].concat()).await.json();
    plane.render().await;
    let text = |field: &str| begun[field].as_str().expect("it began").to_owned();
    (text("rollout"), text("operation"))
}

fn names_no_other(ran: &Ran) {
    let said = [ran.stdout.as_str(), ran.stderr.as_str()].concat();
    let named: Vec<_> = OTHERS.iter().filter(|other| said.contains(**other)).collect();
    assert!(named.is_empty(), "{named:?}: {ran:#?}");
}

/// Everything that such a token can ask about a rollout and its operation.
async fn reads_of(plane: &Plane, token: &str, rollout: &str, operation: &str) -> String {
    let mut said = String::new();
    for command in [
        ["rollout", "list", "-o", "json"].as_slice(),
        &["rollout", "get", rollout],
        &["rollout", "get", rollout, "-o", "json"],
        &["rollout", "watch", rollout, "--timeout", "1ms"],
        &["operation", "list", "-o", "json"],
        &["operation", "get", operation],
        &["operation", "get", operation, "-o", "json"],
        &["operation", "hosts", operation, "-o", "json"],
        &["wait", "operation", operation, "--timeout", "1ms"],
        &["get", "revisions", "-o", "json"],
        &["describe", "revision", "6"],
        &["status", "-o", "json"],
        &["get", "hosts", "-o", "json"],
        &["describe", "host", "edge-1"],
        &["explain", "host", "edge-1"],
        &["history", "host", "edge-1"],
        &["history", "Policy/edge/own"],
        &["doctor"],
        &["plan", "-f", "edge.yaml"],
        &["apply", "-f", "edge.yaml"],
        &["explain", "flow", "edge/edge-1", "10.0.0.1", "443/tcp"],
    ] {
        let ran = plane.run_as(token, command).await;
        assert!(ran.code != 64, "{ran:?}");
        names_no_other(&ran);
        said.push_str(&ran.stdout);
        said.push_str(&ran.stderr);
    }
    said
}

async fn until(plane: &Plane, id: &str, state: &str) -> Value {
    let look = async {
        loop {
            let seen = plane.run(&["rollout", "get", id, "-o", "json"]).await.json();
            if seen["state"] == state {
                return seen;
            }
        }
    };
    tokio::time::timeout(DEADLINE, look).await.expect("it comes to that")
}

#[tokio::test]
async fn a_token_of_one_namespace_reads_no_name_of_another_in_any_state_of_a_rollout() {
    let (mut plane, token) = mk_plane().await;
    plane.file(
        "edge.yaml",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: edge-1, namespace: edge}\nspec: {}\n",
    );
    let ids = ["db-1", "db-2"].map(|name| plane.id_of(name));
    let revisions = plane.run_as(&token, &["get", "revisions", "-o", "json"]).await;
    assert!(
        ids.iter().all(|id| !revisions.stdout.contains(id)) && revisions.stdout.contains("\"host\""),
        "{revisions:?}"
    );
    let planned = plane.run_as(&token, &["plan", "-f", "edge.yaml", "-o", "json"]).await.json();
    let hosts = planned["hosts"].as_array().map(Vec::len).expect("a list");
    assert_eq!((hosts, &planned["hosts_unchanged"]), (0, &Value::from(1)), "{planned}");
    let (id, operation) = begin(&plane, &["--stage", "app=db"]).await;
    reads_of(&plane, &token, &id, &operation).await;
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.says("db-2", OutcomeKind::Failed).await;
    let halted = until(&plane, &id, "halted").await;
    assert!(halted["detail"].as_str().is_some_and(|said| said.contains("default/db-2")), "{halted}");
    let said = reads_of(&plane, &token, &id, &operation).await;
    assert!(said.contains("told to tokens for all namespaces"), "{said}");
    assert!(said.contains("it takes a token for all namespaces") && !said.contains("holdfast rollout abort"), "{said}");
    let who_may = plane.run(&["rollout", "get", &id]).await;
    assert!(who_may.stderr.contains(&format!("holdfast rollout abort {id}")), "{who_may:?}");

    for moved in ["pause", "resume", "abort"] {
        let refused = plane.run_as(&token, &["rollout", moved, &id]).await;
        assert!(refused.code == 5 && refused.stderr.contains("for all namespaces"), "{refused:?}");
        names_no_other(&refused);
    }
    let cancelled = plane.run_as(&token, &["operation", "cancel", &operation]).await;
    assert!(cancelled.code == 5 && !cancelled.stderr.contains("default"), "{cancelled:?}");
    assert_eq!(until(&plane, &id, "halted").await["version"], halted["version"]);

    // An abort that leaves what was changed again names it to who reaches it.
    plane.run(&["apply", "-f", "again.yaml"]).await.ended(0);
    let aborted = plane.run(&["rollout", "abort", &id, "-o", "json"]).await.json();
    assert!(aborted["detail"].to_string().contains("Policy/default/db"), "{aborted}");
    reads_of(&plane, &token, &id, &operation).await;
}

#[tokio::test]
async fn a_token_of_one_namespace_reads_no_name_of_another_at_the_end_of_a_rollout_or_of_a_failed_operation() {
    let (mut plane, token) = mk_plane().await;
    plane.file(
        "edge.yaml",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: edge-1, namespace: edge}\nspec: {}\n",
    );
    let (id, operation) = begin(&plane, &["--stage", "100%", "--max-failed", "1"]).await;
    for name in ["db-1", "edge-1"] {
        plane.says(name, OutcomeKind::Applied).await;
    }
    plane.says("db-2", OutcomeKind::Failed).await;
    let finished = until(&plane, &id, "finished").await;
    assert!(finished["detail"].to_string().contains("default/db-2"), "{finished}");
    let waited = plane.run(&["wait", "operation", &operation, "--timeout", "30s"]).await;
    assert!(waited.code == 1 && waited.stderr.contains("did not take it: default/db-2"), "{waited:?}");
    let said = reads_of(&plane, &token, &id, &operation).await;
    assert!(said.contains("some hosts did not take it"), "{said}");
}

#[tokio::test]
async fn who_may_end_the_waiting_for_a_change_is_who_might_have_made_it() {
    let (plane, token) = mk_plane().await;
    let own = plane.run_as(&token, &["host", "decommission", "edge/edge-1", "-o", "json"]).await.json();
    let own = own["operation"].as_str().expect("an operation").to_owned();
    let viewer = ["api-token", "create", "edge-viewer", "--role", "viewer", "--namespace", "edge"];
    let viewer = plane.run(&viewer).await.ended(0);
    assert_eq!(plane.run_as(viewer.trim(), &["operation", "cancel", &own]).await.code, 5);
    let made = ["api-token", "create", "db", "--role", "admin", "--namespace", "default"];
    let of_default = plane.run(&made).await.ended(0);
    assert_eq!(plane.run_as(of_default.trim(), &["operation", "cancel", &own]).await.code, 5);
    let cancelled = plane.run_as(&token, &["operation", "cancel", &own, "-o", "json"]).await.json();
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    // A change in stages is made by tokens for all namespaces alone, also where it touches only some.
    let begun = plane.run(&["apply", "-f", "again.yaml", "-o", "json", "--rollout", "--stage", "app=db"]).await.json();
    let operation = begun["operation"].as_str().expect("an operation");
    let refused = plane.run_as(of_default.trim(), &["operation", "cancel", operation]).await;
    assert!(refused.code == 5 && refused.stderr.contains("for all namespaces"), "{refused:?}");
    plane.run(&["operation", "cancel", operation]).await.ended(0);
}
