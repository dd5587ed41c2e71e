//! Changes that take much away: refused, told, acknowledged, and judged on what they are stored on.

use std::time::Duration;

use holdfast_events::{Actor, OperationVerb};
use holdfast_identity::https::{Client, Request};
use holdfast_identity::{TrustRoots, tls};
use holdfast_model::ids::ApiTokenId;
use holdfast_model::intent::{HostSpec, Object, Spec};
use holdfast_model::name::Name;
use holdfast_model::policy::Mode;
use holdfast_store::intent::{IntentChange, Prune};
use hyper::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::intent::POLICIES;
use crate::plane::{Plane, Ran};

fn refused(ran: &Ran) -> Value {
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    let problem: Value = serde_json::from_str(&ran.stderr).expect("a problem");
    assert_eq!(problem["type"], "urn:holdfast:problem:blast-radius", "{problem}");
    problem["brake"].clone()
}

fn digest(brake: &Value) -> String {
    brake["acknowledge"].as_str().expect("a digest").to_owned()
}

#[tokio::test]
async fn an_object_that_is_deleted_by_its_path_is_acknowledged_in_the_query() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("the CA's certificate");
    let client = Client::new(tls::https(&roots).expect("a configuration"));
    let delete = async |query: &str| {
        let path = format!("{}/v1/objects/Host/default/db-1{query}", plane.api());
        let request = Request::new(Method::DELETE, path).bearer(plane.admin()).expect("a header");
        let response = client.request(request).await.expect("an answer");
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        (response.status.as_u16(), body)
    };
    let (status, refused) = delete("").await;
    assert_eq!((status, refused["type"].as_str()), (409, Some("urn:holdfast:problem:blast-radius")), "{refused}");
    let (status, wrong) = delete("?acknowledged=x").await;
    assert_eq!(status, 400, "{wrong}");
    let said = digest(&refused["brake"]);
    let (status, done) = delete(&format!("?acknowledge={said}&because=it%20is%20scrapped")).await;
    assert_eq!((status, &done["unchanged"]), (200, &Value::from(false)), "{done}");
    let because = "SELECT payload->>'because' FROM events WHERE kind = 'operation.accepted' ORDER BY lid DESC LIMIT 1";
    assert_eq!(plane.postgres.sql(because).trim(), "it is scrapped");
}

#[tokio::test]
async fn a_host_document_that_goes_leaves_no_enforced_host_open_unless_that_is_acknowledged() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let told = plane.run(&["delete", "Host/db-1"]).await;
    assert_eq!(told.code, 4, "{told:?}");
    let said = "it takes 1 host out of enforced mode, and says no other mode (default/db-1); nothing was changed";
    assert!(told.stderr.contains(said) && told.stderr.contains("add: --acknowledge '"), "{}", told.stderr);
    let first = digest(&refused(&plane.run(&["delete", "Host/db-1", "-o", "json"]).await));

    plane.file("less.yaml", POLICIES.split("---\n").next().expect("a part"));
    let plan = plane.run(&["plan", "-f", "less.yaml", "--prune", "-o", "json"]).await;
    assert!(plan.stderr.contains("warning: an apply will be refused"), "{}", plan.stderr);
    let planned = digest(&plan.json()["brake"]);
    let pruned = digest(&refused(&plane.run(&["apply", "-f", "less.yaml", "--prune", "-o", "json"]).await));
    assert_eq!(planned, pruned, "the plan says what the refusal says");
    assert_ne!(first, pruned);

    // Of another change, and of another revision, it is good for nothing.
    refused(&plane.run(&["delete", "Host/db-1", "-o", "json", "--acknowledge", &pruned]).await);
    plane.file("more.yaml", "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: other}\n");
    plane.run(&["apply", "-f", "more.yaml"]).await.ended(0);
    let stale = plane.run(&["delete", "Host/db-1", "-o", "json", "--acknowledge", &first]).await;
    let second = digest(&refused(&stale));
    assert!(stale.stderr.contains("is another change, or one of another revision"), "{}", stale.stderr);
    assert_eq!(plane.run(&["get", "hosts", "-o", "json"]).await.json()["items"][0]["mode"], "enforced");
    let meant = plane.run(&["delete", "Host/db-1", "--acknowledge", &format!("{second}|it is scrapped")]).await;
    meant.ended(0);
    assert_eq!(plane.run(&["get", "hosts", "-o", "json"]).await.json()["items"][0]["mode"], "visibility");
    let said = "SELECT payload->>'because' FROM events WHERE kind = 'operation.accepted' ORDER BY lid DESC LIMIT 1";
    assert_eq!(plane.postgres.sql(said).trim(), "it is scrapped");
    let check = plane.run(&["rebuild", "--check", "-o", "json"]).await.json();
    assert_eq!(check["clean"], Value::from(true), "{check}");
}

#[tokio::test]
async fn more_than_half_of_the_rules_of_many_hosts_go_only_if_that_is_meant_and_those_of_few_go_at_once() {
    let mut plane = Plane::start().await;
    for n in 1..=3 {
        plane.enrol(&format!("web-{n}"), &format!("10.0.0.{n}")).await;
    }
    plane.enrol("db-1", "10.0.0.9").await;
    let policy = |app: &str, ports: &[u16]| {
        let services: Vec<String> = ports.iter().map(|port| format!("{{tcp: {port}}}")).collect();
        let rules: Vec<String> = services.iter().map(|one| format!("  - services: [{one}]\n")).collect();
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {app}}}\nspec:\n  hostSelector: \
             {{matchLabels: {{app: {app}}}}}\n  ingress:\n{}---\n",
            rules.concat()
        )
    };
    let all = [80, 443, 8080, 8443, 9090];
    plane.file("all.yaml", &(policy("web", &all) + &policy("db", &all)));
    plane.run(&["apply", "-f", "all.yaml"]).await.ended(0);
    // The limit of this plane is two hosts.
    plane.file("few.yaml", &policy("db", &all[..1]));
    plane.run(&["apply", "-f", "few.yaml"]).await.ended(0);
    plane.file("half.yaml", &policy("web", &all[..2]));
    plane.run(&["apply", "-f", "half.yaml"]).await.ended(0);
    plane.run(&["apply", "-f", "all.yaml"]).await.ended(0);
    plane.file("less.yaml", &policy("web", &all[..1]));
    let brake = refused(&plane.run(&["apply", "-f", "less.yaml", "-o", "json"]).await);
    let hosts = ["default/web-1", "default/web-2", "default/web-3"];
    assert_eq!((&brake["hosts_losing"], &brake["hosts"]), (&3.into(), &Value::from(hosts.to_vec())), "{brake}");
    let everything = plane.run(&["delete", "Policy/web", "Policy/db", "-o", "json"]).await;
    assert_eq!(refused(&everything)["hosts_emptied"], Value::from(4));
    let meant = digest(&brake);
    plane.run(&["apply", "-f", "less.yaml", "--acknowledge", &meant]).await.ended(0);
    refused(&plane.run(&["delete", "Policy/web", "Policy/db", "-o", "json", "--acknowledge", &meant]).await);
}

#[tokio::test]
async fn what_was_done_before_under_its_name_is_answered_though_it_would_be_braked_now() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    let host =
        |mode: &str| format!("apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: db-1}}\nspec: {mode}\n");
    plane.file("none.yaml", &host("{labels: {a: b}}"));
    let once = ["apply", "-f", "none.yaml", "--idempotency-key", "once"];
    let first = plane.run(&once).await.ended(0);
    plane.file("enforced.yaml", &host("{mode: enforced}"));
    plane.run(&["apply", "-f", "enforced.yaml"]).await.ended(0);
    assert_eq!(plane.run(&once).await.ended(0), first);
    assert_eq!(plane.run(&["apply", "-f", "none.yaml"]).await.code, 4);
}

#[tokio::test]
async fn a_host_whose_peers_would_let_nobody_in_any_more_is_taken_out_only_if_that_is_meant() {
    let mut plane = Plane::start().await;
    for n in 1..=3 {
        plane.enrol(&format!("web-{n}"), &format!("10.0.0.{n}")).await;
    }
    plane.enrol("door-1", "10.0.0.8").await;
    plane.enrol("other-1", "10.0.0.9").await;
    let rule = |port: u16| {
        format!("  - from: [{{hostSelector: {{matchLabels: {{app: door}}}}}}]\n    services: [{{tcp: {port}}}]\n")
    };
    plane.file(
        "policy.yaml",
        &format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: p}}\nspec:\n  hostSelector: {{matchLabels: {{app: \
             web}}}}\n  ingress:\n{}{}",
            rule(80),
            rule(443)
        ),
    );
    plane.run(&["apply", "-f", "policy.yaml"]).await.ended(0);
    plane.run(&["host", "decommission", "other-1"]).await.ended(0);
    let brake = refused(&plane.run(&["host", "decommission", "door-1", "-o", "json"]).await);
    assert_eq!(brake["hosts_losing"], Value::from(3), "{brake}");
    let meant = format!("{}|it moves", digest(&brake));
    plane.run(&["host", "decommission", "door-1", "--acknowledge", &meant]).await.ended(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_judged_on_what_it_is_stored_on_though_another_gateway_comes_between() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    let mode = |mode| HostSpec { mode: Some(mode), ..HostSpec::default() };
    let other = plane.postgres.store("holdfast_gateway_operators");
    other.apply_intent(of_host("db-1", mode(Mode::Simulation))).await.expect("applies");
    // When it was asked for the host was in simulation.
    let deleted = overtaken(&plane, of_host("db-1", mode(Mode::Enforced)), &["delete", "Host/db-1", "-o", "json"]);
    assert_eq!(refused(&deleted)["hosts_without_mode"], Value::from(1));
    assert_eq!(plane.run(&["get", "hosts", "-o", "json"]).await.json()["items"][0]["mode"], "enforced");
}

/// A change of one Host document.
pub(crate) fn of_host(name: &str, spec: HostSpec) -> IntentChange {
    let (namespace, name) = (Name::default_namespace(), name.parse().expect("a name"));
    IntentChange {
        actor: Actor::Operator(ApiTokenId::new(Uuid::nil())),
        verb: OperationVerb::Apply,
        puts: vec![Object { namespace, name, spec: Spec::Host(spec) }],
        deletes: Vec::new(),
        prune: Prune::Nothing,
        expected: None,
        key: None,
        because: None,
    }
}

/// What becomes of a command whose change waits for its turn in the database behind that of another gateway, which the command's own gateway did not
/// see when it looked.
pub(crate) fn overtaken(plane: &Plane, by: IntentChange, command: &[&str]) -> Ran {
    const WAITERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    const HOLDER: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = 1952804468";
    let until = |sql: &str| {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while plane.postgres.sql(sql).trim() != "1" {
            assert!(std::time::Instant::now() < deadline, "{sql}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let (runtime, other) = (&tokio::runtime::Handle::current(), &plane.postgres.store("holdfast_gateway_operators"));
    std::thread::scope(|scope| {
        // Holds the lock of changes until both wait for it, in their order.
        let held = scope.spawn(|| {
            plane.postgres.sql(&format!(
                "DO $$ BEGIN PERFORM pg_advisory_xact_lock(x'696e74656e74'::bigint); FOR i IN 1..600 LOOP \
                 EXIT WHEN ({WAITERS}) >= 2; PERFORM pg_sleep(0.05); END LOOP; END $$"
            ))
        });
        until(HOLDER);
        let between = scope.spawn(move || runtime.block_on(other.apply_intent(by)));
        until(WAITERS);
        let ran = scope.spawn(move || runtime.block_on(plane.run(command)));
        let ran = ran.join().expect("it ends");
        between.join().expect("it ends").expect("applies");
        held.join().expect("it lets go");
        ran
    })
}
