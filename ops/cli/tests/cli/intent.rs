//! Changing intent and waiting for the fleet.

use std::time::Duration;

use holdfast_events::Hint;
use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::plane::Plane;

pub(crate) const POLICIES: &str = "\
apiVersion: holdfast.dev/v1
kind: Policy
metadata: {name: db}
spec:
  hostSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{hostSelector: {matchLabels: {app: web}}}]
    services: [{tcp: 5432}]
---
apiVersion: holdfast.dev/v1
kind: Host
metadata: {name: db-1}
spec: {mode: enforced}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - ports: [{port: 443}]
    from: [{ipBlock: {cidr: 198.51.100.0/24}}]
";

#[tokio::test]
async fn what_is_applied_is_told_object_by_object_and_once_more_changes_nothing() {
    let mut plane = Plane::start().await;
    plane.file("policies.yaml", POLICIES);
    let first = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await;
    assert!(first.stderr.contains("revision 1, operation op_"), "{}", first.stderr);
    let first = first.json();
    assert_eq!((&first["revision"], &first["unchanged"]), (&Value::from(1), &Value::from(false)));
    let changes = |answer: &Value| -> Vec<String> {
        let items = answer["objects"].as_array().expect("a list");
        items.iter().map(|one| format!("{} {}", one["object"], one["change"]).replace('"', "")).collect()
    };
    assert_eq!(
        changes(&first),
        ["Host/default/db-1 created", "NetworkPolicy/default/web created", "Policy/default/db created"]
    );
    assert_eq!([plane.hints.recv().await, plane.hints.recv().await], [Some(Hint::Intent), Some(Hint::Event)]);

    let again = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json();
    assert_eq!((&again["revision"], &again["unchanged"], &again["operation"]), (&1.into(), &true.into(), &Value::Null));

    // What is shown can be applied, and is what was applied.
    let shown = plane.run(&["get", "objects", "-o", "yaml"]).await.ended(0);
    plane.file("shown.yaml", &shown);
    let shown = plane.run(&["apply", "-f", "shown.yaml", "-o", "json"]).await.json();
    assert_eq!(shown["unchanged"], Value::from(true), "{shown}");

    plane.file("less.yaml", POLICIES.split("---\n").next().expect("a part"));
    let pruned = plane.run(&["apply", "-f", "less.yaml", "--prune", "-o", "json"]).await.json();
    assert_eq!(
        changes(&pruned),
        ["Host/default/db-1 deleted", "NetworkPolicy/default/web deleted", "Policy/default/db unchanged"]
    );
    let partly = plane.run(&["delete", "Policy/default/db", "Policy/default/nowhere"]).await;
    assert_eq!(partly.code, 3);
    assert!(partly.stderr.contains("there is no Policy/default/nowhere; nothing was changed"), "{}", partly.stderr);
    assert_eq!(plane.run(&["get", "Policy/default/db"]).await.code, 0);
    assert_eq!(plane.run(&["delete", "Policy/default/db", "-o", "name"]).await.ended(0), "Policy/default/db\n");
    assert_eq!(plane.run(&["delete", "Policy/default/db"]).await.code, 3);
    assert_eq!(plane.run(&["get", "Policy/db"]).await.code, 3);
    assert_eq!(plane.run(&["apply", "-f", "policies.yaml", "--expected-revision", "1"]).await.code, 4);
    let check = plane.run(&["rebuild", "--check", "-o", "json"]).await.json();
    assert_eq!(check["clean"], Value::from(true), "{check}");
}

#[tokio::test]
async fn every_fault_of_every_file_is_told_at_once_and_nothing_is_changed() {
    let plane = Plane::start().await;
    plane.file(
        "bad/one.yaml",
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: UPPER}\nspec:\n  hostSelector: {}\n",
    );
    plane.file("bad/two.yaml", "apiVersion: holdfast.dev/v1\nkind: Workload\nmetadata: {name: w}\nspec: {}\n");
    plane.file("bad/read.txt", "not read");
    let refused = plane.run(&["apply", "-f", "bad"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    for part in ["bad/one.yaml:3", "[name]", "[selector-empty]", "bad/two.yaml", "[kind-unsupported]", "request "] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let refused = plane.run(&["apply", "-f", "bad", "-o", "json"]).await;
    let problem: Value = serde_json::from_str(&refused.stderr).expect("a problem in JSON");
    assert_eq!(problem["type"], "urn:holdfast:problem:documents-refused");
    assert_eq!(problem["findings"].as_array().map(Vec::len), Some(3), "{problem}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["revision"], Value::from(0));
}

#[tokio::test]
async fn a_wait_ends_by_proof_by_failure_or_by_time() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", POLICIES);
    let status = plane.run(&["status", "-o", "json"]).await.json();
    assert_eq!((&status["state"], &status["hosts"]["total"]), (&"published".into(), &2.into()), "{status}");

    let waiting = plane.running(&["apply", "-f", "policies.yaml", "--wait", "--timeout", "30s"]);
    while plane.hints.recv().await != Some(Hint::Intent) {}
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let waited = waiting.await.expect("it ends");
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(waited.stderr.contains("is converged: 2 of 2 hosts converged"), "{}", waited.stderr);
    let operation = plane.run(&["operation", "-o", "name"]).await.ended(0);
    let ended = plane.run(&["operation", operation.trim(), "--wait", "--timeout", "20s", "-o", "json"]).await.json();
    assert_eq!((&ended["state"], &ended["finished"]), (&"applied".into(), &true.into()), "{ended}");

    plane.file("more.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5433"));
    plane.run(&["apply", "-f", "more.yaml"]).await.ended(0);
    let waited = plane.run(&["wait", "--timeout", "300ms"]).await;
    assert_eq!(waited.code, 6, "not rendered: {waited:?}");
    assert!(
        waited.stderr.contains("is not rendered yet; with") && waited.stderr.contains("holdfast doctor"),
        "{waited:?}"
    );
    plane.render().await;
    assert_eq!(plane.run(&["wait", "--timeout", "300ms", "--for", "applied"]).await.code, 6, "not answered");
    plane.says("db-1", OutcomeKind::Failed).await;
    let waited = plane.run(&["wait", "--timeout", "20s", "-o", "json"]).await;
    assert_eq!(waited.code, 1, "{waited:?}");
    let said: Value = serde_json::from_str(&waited.stdout).expect("JSON");
    assert_eq!(
        (&said["state"], &said["wait"], &said["hosts"]["failed"]),
        (&"failed".into(), &"failed".into(), &1.into())
    );
    assert_eq!(plane.run(&["wait", "--revision", "9999", "--timeout", "1s"]).await.code, 3);
}

#[tokio::test]
async fn an_interrupted_wait_says_that_the_fleet_goes_on_and_how_to_wait_again() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", POLICIES);
    let ran = plane.interrupted(&["apply", "-f", "policies.yaml", "--wait", "-o", "json"]).await;
    assert_eq!(ran.code, 130, "{ran:?}");
    let applied: Value = serde_json::from_str(&ran.stdout).expect("what was done is told all the same");
    let again = format!("holdfast wait operation {}", applied["operation"].as_str().expect("an id"));
    assert!(ran.stderr.contains("the fleet goes on all the same") && ran.stderr.contains(&again), "{ran:?}");
}

#[tokio::test]
async fn a_plan_shows_each_host_writes_nothing_and_can_be_demanded() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", POLICIES);
    let plan = plane.run(&["plan", "-f", "policies.yaml", "--detailed-exitcode"]).await;
    assert!(plan.stderr.contains("nothing was written"), "{}", plan.stderr);
    let text = plan.ended(2);
    for part in [
        "Policy/default/db created",
        "host default/db-1\n  ~ mode visibility -> enforced\n  ~ ingress: what no rule allows is denied\n  + ingress allow tcp 5432 with default/web-1",
        "2 hosts would change, 0 would not",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = plane.run(&["plan", "-f", "policies.yaml", "-o", "json"]).await.json();
    let digest = plan["digest"].as_str().expect("a digest").to_owned();
    assert_eq!(
        plane
            .run(&["apply", "-f", "policies.yaml", "--plan", &digest.replace(digest.get(..1).expect("hex"), "_")])
            .await
            .code,
        4
    );
    plane.run(&["apply", "-f", "policies.yaml", "--plan", &digest]).await.ended(0);
    assert_eq!(plane.run(&["plan", "-f", "policies.yaml", "--detailed-exitcode"]).await.code, 0);
    assert_eq!(plane.run(&["apply", "-f", "policies.yaml", "--plan", &digest]).await.code, 4, "the base moved");
}

#[tokio::test]
async fn without_its_database_the_api_says_so_and_serves_again_when_it_is_back() {
    let mut plane = Plane::start().await;
    plane.file("policies.yaml", POLICIES);
    plane.postgres.stop();
    let refused = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await;
    let problem: Value = serde_json::from_str(&refused.stderr).expect("a problem");
    assert_eq!((refused.code, &problem["type"]), (1, &"urn:holdfast:problem:database-unavailable".into()), "{problem}");
    plane.postgres.start();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while plane.run(&["status"]).await.code != 0 {
        assert!(tokio::time::Instant::now() < deadline, "it serves again");
    }
    assert_eq!(plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json()["revision"], Value::from(1));
}

#[tokio::test]
async fn a_large_address_group_is_applied_planned_and_shown_whole_and_one_bad_line_refuses_all_of_it() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    let list = |n: u32| -> String { (0..n).map(|n| format!("    203.{}.{}.0/24\n", n / 256, n % 256)).collect() };
    let group = |list: &str| {
        format!("apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {{name: bad}}\nspec:\n  cidrs: |\n{list}")
    };
    let policy = "---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: deny}\nspec:\n  hostSelector: {all: true}\n  \
                  ingress: [{action: deny, from: [{addressGroup: bad}]}]\n";
    plane.file("group.yaml", &(group(&list(50_000)) + policy));
    plane.run(&["apply", "-f", "group.yaml"]).await.ended(0);
    plane.render().await;
    let shown = plane.run(&["get", "AddressGroup/bad", "-o", "json"]).await.json();
    assert_eq!(shown["document"]["spec"]["cidrs"].as_array().map(Vec::len), Some(50_000));

    plane.file("less.yaml", &(group(&list(49_999)) + policy));
    let plan = plane.run(&["plan", "-f", "less.yaml", "-o", "json"]).await.json();
    let peers = &plan["hosts"][0]["changes"]["peers"][0];
    assert_eq!((&peers["removed"]["count"], &peers["added"]["count"]), (&1.into(), &0.into()), "{peers}");

    plane.file("wrong.yaml", &group(&list(50_000).replace("203.7.7.0/24", "203.7.7.0/33")));
    let refused = plane.run(&["apply", "-f", "wrong.yaml"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("line 1800 of the list"), "{}", refused.stderr);
    assert_eq!(plane.run(&["plan", "-f", "group.yaml", "--detailed-exitcode"]).await.code, 0, "the old one stays");
}
