//! What is asked of one host's session: to whom, by whom, and what shows that it was heard.

use holdfast_events::{Directive, DirectiveKind};
use serde_json::Value;

use crate::plane::Plane;

/// Everything that a directive could write into, but for who was heard, and for the end of the operation that came before.
const KEPT: &str = "select (select count(*) from events where kind not like 'operation%' and kind <> 'host.directed') || ' ' || (select count(*) from operations) || ' ' || \
                    (select count(*) from requests) || ' ' || (select md5(string_agg(x::text, '' order by x::text)) from observed x) || ' ' || \
                    (select md5(string_agg(x::text, '' order by x::text)) from sessions x)";

fn problem(stderr: &str) -> Value {
    serde_json::from_str(stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

#[tokio::test]
async fn c12_a_host_that_is_away_is_a_conflict_that_says_when_it_was_last_heard_and_null_if_never() {
    let mut plane = Plane::start().await;
    plane.enrol("web-1", "10.0.0.1").await;
    for directive in ["resend-snapshot", "reconnect", "re-enrol"] {
        let ran = plane.run(&["host", directive, "web-1", "-o", "json"]).await;
        let told = problem(&ran.stderr);
        assert_eq!((ran.code, &told["type"]), (4, &"urn:holdfast:problem:agent-offline".into()), "{ran:?}");
        assert_eq!(told.get("last_seen_at"), Some(&Value::Null), "never heard is told as such: {told}");
    }
    plane.file("policies.yaml", crate::intent::POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(holdfast_model::statement::OutcomeKind::Applied).await;
    // Its gateway is gone without a word: the lease says so.
    plane.postgres.sql("UPDATE leases SET expires_at = clock_timestamp() - interval '1 second' WHERE name LIKE 'gw_%'");
    let heard = plane.run(&["get", "host", "web-1", "-o", "json"]).await.json()["last_seen_at"].clone();
    let ran = plane.run(&["host", "resend-snapshot", "web-1", "-o", "json"]).await;
    let told = problem(&ran.stderr);
    assert_eq!((ran.code, &told["last_seen_at"]), (4, &heard), "{told}");
    assert!(heard.is_string(), "{heard}");
    assert!(plane.directives.try_recv().is_err(), "nobody was asked anything");
}

#[tokio::test]
async fn c13_a_host_that_only_seems_to_be_there_is_asked_all_the_same_and_nothing_moves_or_is_written_but_who_asked() {
    let mut plane = Plane::start().await;
    plane.enrol("web-1", "10.0.0.1").await;
    plane.file("policies.yaml", crate::intent::POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(holdfast_model::statement::OutcomeKind::Applied).await;
    let kept = plane.postgres.sql(KEPT);
    let host = plane.run(&["get", "host", "web-1", "-o", "json"]).await.json();
    let id = host["id"].as_str().expect("an id").parse().expect("an id");
    for (word, kind) in [
        ("resend-snapshot", DirectiveKind::ResendSnapshot),
        ("reconnect", DirectiveKind::Reconnect),
        ("re-enrol", DirectiveKind::Reenrol),
    ] {
        let asked = plane.run(&["host", word, "web-1", "-o", "json"]).await.json();
        assert_eq!(plane.directives.recv().await, Some(Directive { kind, host: id }));
        assert_eq!((&asked["directive"], &asked["host"]), (&word.into(), &host["id"]));
        assert_eq!(asked["last_snapshot_sent_at"], host["last_snapshot_sent_at"], "as it stood");
        assert_eq!(asked["session_epoch"], host["session"]["session_epoch"]);
        let ran = plane.run(&["host", word, "default/web-1", "--wait", "--timeout", "600ms", "-o", "json"]).await;
        let waited: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!((ran.code, &waited["obeyed"]), (6, &false.into()), "{ran:?}");
        assert!(ran.stderr.contains("nothing moved within 0.6 s"), "{ran:?}");
        assert!(plane.directives.recv().await.is_some());
    }
    let after = plane.run(&["get", "host", "web-1", "-o", "json"]).await.json();
    assert_eq!(after["last_snapshot_sent_at"], host["last_snapshot_sent_at"]);
    assert_eq!(plane.postgres.sql(KEPT), kept, "a directive changes nothing that is kept");
    let asked = "SELECT string_agg(payload->>'directive', ' ' ORDER BY lid) || ' ' || count(DISTINCT actor) FROM events \
                 WHERE kind = 'host.directed' AND actor LIKE 'operator:%' AND payload->>'host' = ";
    let asked = plane.postgres.sql(&format!("{asked}'{id}'"));
    assert_eq!(asked.trim(), "resend-snapshot resend-snapshot reconnect reconnect re-enrol re-enrol 1", "{asked}");
    let check = plane.run(&["rebuild", "--check", "-o", "json"]).await.json();
    assert_eq!(check["clean"], Value::from(true), "{check}");
}

#[tokio::test]
async fn b18_an_operator_may_ask_and_a_viewer_or_editor_may_not_and_a_host_that_is_not_there_is_not_found() {
    let mut plane = Plane::start().await;
    plane.enrol("web-1", "10.0.0.1").await;
    plane.all_say(holdfast_model::statement::OutcomeKind::Applied).await;
    for (role, code) in [("viewer", 5), ("auditor", 5), ("editor", 5), ("operator", 0), ("admin", 0)] {
        let token = plane.run(&["api-token", "create", role, "--role", role]).await.ended(0);
        for word in ["resend-snapshot", "reconnect", "re-enrol"] {
            let ran = plane.run_as(token.trim(), &["host", word, "web-1"]).await;
            assert_eq!(ran.code, code, "{role} {word}: {ran:?}");
            assert_eq!(plane.directives.try_recv().is_ok(), code == 0, "{role} {word}");
        }
    }
    for word in ["resend-snapshot", "reconnect", "re-enrol"] {
        assert_eq!(plane.run(&["host", word, "web-9"]).await.code, 3);
        assert_eq!(plane.run(&["host", word, "ho_00000000-0000-0000-0000-000000000000"]).await.code, 3);
        assert_eq!(plane.run(&["host", word]).await.code, 64);
    }
    let token = plane.run(&["api-token", "create", "edge", "--role", "operator", "-n", "edge"]).await.ended(0);
    let foreign = plane.run_as(token.trim(), &["host", "reconnect", "default/web-1"]).await;
    assert_eq!(foreign.code, 3, "a host of another namespace is not there: {foreign:?}");
    assert!(plane.directives.try_recv().is_err());
}
