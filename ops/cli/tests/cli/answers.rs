//! What the door answers where something comes between: another door, other changes, a database that does not answer any more.

use std::time::{Duration, Instant};

use holdfast_events::{Actor, Detail, OperationState};
use holdfast_identity::https::{Client, Request};
use holdfast_identity::{TrustRoots, tls};
use holdfast_model::ids::{ApiTokenId, OperationId};
use holdfast_model::intent::HostSpec;
use holdfast_model::statement::OutcomeKind;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::brake::of_host;
use crate::intent::POLICIES;
use crate::operations::{ask, parsed};
use crate::plane::Plane;

const DEADLINE: Duration = Duration::from_secs(20);

/// A host, and an operation that it has not answered.
async fn mk_plane() -> (Plane, OperationId) {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", POLICIES);
    let applied = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json();
    plane.render().await;
    (plane, applied["operation"].as_str().and_then(|id| id.parse().ok()).expect("something changed"))
}

/// Waits until this is what the database says.
async fn until(plane: &Plane, sql: &str, wanted: &str) {
    let deadline = Instant::now() + DEADLINE;
    while plane.postgres.sql(sql).trim() != wanted {
        assert!(Instant::now() < deadline, "{sql}: not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything is proven, and as the last look stores the end another door has stored it: whoever waits is told that end, and not that its time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_another_door_ends_during_the_last_look_of_somebody_who_waits_is_told_as_ended() {
    let (mut plane, id) = mk_plane().await;
    let row = format!("FROM operations WHERE operation_id = '{}'", id.uuid());
    let of_ends = |least: u32| {
        format!(
            "SELECT count(*) >= {least} FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE operations%'"
        )
    };
    let held = plane.postgres.hold(&format!("SELECT 1 {row} FOR UPDATE"));
    let other = plane.postgres.store("holdfast_gateway_operators");
    let actor = Actor::Operator(ApiTokenId::new(Uuid::nil()));
    let mut ending = JoinSet::new();
    ending.spawn(async move {
        other.finish_operation(actor, id, OperationState::Applied, Detail::new("as the other door saw it")).await
    });
    until(&plane, &of_ends(1), "t").await;
    plane.says("db-1", OutcomeKind::Applied).await;
    // The look of this door that nobody asked for, too.
    until(&plane, &of_ends(2), "t").await;
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("the CA");
    let client = Client::new(tls::https(&roots).expect("a configuration"));
    let url = format!("{}/v1/operations/{id}?wait=0s", plane.api());
    let asked = Request::new(Method::GET, url).bearer(plane.admin()).expect("a request");
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { client.request(asked).await });
    until(&plane, &of_ends(3), "t").await;
    drop(held);
    let ended = ending.join_next().await.expect("one").expect("it ends").expect("the database answers");
    assert!(ended, "it came first");
    let answer = waiting.join_next().await.expect("one").expect("it ends").expect("it is answered");
    let answer = parsed(&answer);
    let told = (&answer["state"], &answer["finished"], &answer["detail"]);
    assert_eq!(told, (&"applied".into(), &true.into(), &"as the other door saw it".into()), "{answer}");
}

/// The change is stored, and then the database does not answer who reads what came of it: the answer says that it is done, never that nothing was
/// changed, and the same again tells what came of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_stored_before_the_database_stopped_answering_is_told_as_done() {
    let (plane, id) = mk_plane().await;
    let path = format!("/v1/operations/{id}/cancel");
    // What hosts last said is read for the answer, and for nothing before it.
    let held = plane.postgres.hold("LOCK TABLE observed IN ACCESS EXCLUSIVE MODE");
    let answer = ask(&plane, &path, "once", &json!({})).await;
    let told = parsed(&answer);
    assert_eq!(told["type"], "urn:holdfast:problem:outcome-unknown", "{told}");
    let detail = told["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("it is done") && !detail.contains("nothing was changed"), "{told}");
    let state = format!("SELECT state FROM operations WHERE operation_id = '{}'", id.uuid());
    assert_eq!(plane.postgres.sql(&state).trim(), "cancelled");
    // Of what only reads it is not said that anything is done.
    let read = plane.run(&["operation", "get", &id.to_string(), "-o", "json"]).await;
    assert!(read.code != 0 && !read.stderr.contains("it is done"), "{read:?}");
    drop(held);
    let again = ask(&plane, &path, "once", &json!({})).await;
    assert_eq!((again.status.as_u16(), &parsed(&again)["state"]), (200, &"cancelled".into()), "{again:?}");
    let told = "SELECT count(*) FROM events WHERE kind = 'operation.finished'";
    assert_eq!(plane.postgres.sql(told).trim(), "1", "once");
}

/// Other doors change the fleet without a pause: a change that is overtaken each time it was judged is not stored, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_others_overtake_each_time_it_is_judged_is_answered_as_busy_and_nothing_is_stored() {
    const OTHERS: u64 = 4;
    let (plane, _) = mk_plane().await;
    let source = "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: late}\n";
    let body = json!({ "sources": [{ "name": "late.yaml", "text": source }] });
    let mut others = JoinSet::new();
    for of in 0..OTHERS {
        let store = plane.postgres.store("holdfast_gateway_operators");
        others.spawn(async move {
            for n in 0_u64.. {
                let labels = [("n".to_owned(), format!("{of}-{n}"))].into();
                let change = of_host("db-1", HostSpec { labels, ..HostSpec::default() });
                store.apply_intent(change).await.expect("applies");
            }
        });
    }
    let waits = "SELECT count(*) > 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until(&plane, waits, "t").await;
    let answer = ask(&plane, "/v1/apply", "late", &body).await;
    others.shutdown().await;
    let told: Value = parsed(&answer);
    assert_eq!((answer.status.as_u16(), &told["type"]), (503, &"urn:holdfast:problem:busy".into()), "{told}");
    let late = "SELECT count(*) FROM objects WHERE kind = 'Namespace' AND name = 'late'";
    assert_eq!(plane.postgres.sql(late).trim(), "0", "{told}");
    // Once the others pause it goes through, under the same name.
    let again = ask(&plane, "/v1/apply", "late", &body).await;
    assert_eq!(again.status.as_u16(), 200, "{again:?}");
    assert_eq!(plane.postgres.sql(late).trim(), "1");
}
