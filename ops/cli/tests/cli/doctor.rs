//! `doctor`: all well once, and each thing that can be seen from here failing once, with what to do.

use serde_json::Value;

use crate::audit::{serve, serve_with};
use crate::plane::{Plane, Ran};

/// A plane in which everything is well.
async fn mk_healthy() -> Plane {
    let mut plane = Plane::start_with(Some(serve(String::new()).await)).await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.render().await;
    plane.all_say(holdfast_model::statement::OutcomeKind::Applied).await;
    plane.number_events().await;
    plane
}

/// What is not well by its JSON, each with its remedy; the exit code says the same.
fn troubles(ran: &Ran) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(ran.code, i32::from(value["ok"] != Value::Bool(true)), "{ran:?}");
    let bad = |check: &Value| {
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let is_bad = check["ok"] == Value::Bool(false);
        assert_eq!(is_bad, !text("remedy").is_empty(), "who is told of trouble is told what to do: {check}");
        is_bad.then(|| (text("name"), format!("{} -> {}", text("detail"), text("remedy"))))
    };
    value["checks"].as_array().expect("checks").iter().filter_map(bad).collect()
}

async fn ask(plane: &Plane, settings: &[(&str, &str)]) -> Vec<(String, String)> {
    troubles(&plane.run_with(settings, &["doctor", "-o", "json"]).await)
}

fn only(found: &[(String, String)], name: &str, word: &str) {
    let [(is, text)] = found else { panic!("one trouble is wanted, {name}: {found:?}") };
    assert!(is == name && text.contains(word), "{name}, {word}: {found:?}");
}

#[tokio::test]
async fn a_healthy_plane_is_one_screen_without_trouble() {
    let plane = mk_healthy().await;
    let ran = plane.run(&["doctor"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("everything is well"), "{}", ran.stderr);
    assert!(ran.stdout.lines().count() <= 24 && !ran.stdout.contains("TROUBLE"), "{}", ran.stdout);
    for name in [
        "address",
        "CA",
        "token file",
        "connection",
        "certificate",
        "clock",
        "version",
        "token ",
        "database",
        "hint bus",
        "renderer",
        "event order",
        "agents' doors",
        "audit log",
        "fleet",
    ] {
        assert!(ran.stdout.contains(&format!("ok       {name}")), "no line for {name}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("127.0.0.1"), "the certificate's names are shown: {}", ran.stdout);
    assert!(!ran.stdout.contains(plane.admin()), "a token is shown by nothing");
}

#[tokio::test]
async fn settings_that_lead_nowhere_are_told_and_the_rest_is_not_looked_at() {
    let plane = mk_healthy().await;
    only(&ask(&plane, &[("HOLDFAST_API", "")]).await, "address", ". .holdfast/env");
    only(&ask(&plane, &[("HOLDFAST_API", "http://127.0.0.1")]).await, "address", "https://HOST:PORT");
    only(&ask(&plane, &[("HOLDFAST_API", "https://127.0.0.1:9")]).await, "connection", "is the gateway up");
    only(
        &ask(&plane, &[("HOLDFAST_API", &plane.api().replace("127.0.0.1", "localhost"))]).await,
        "connection",
        "for another name",
    );
    only(&ask(&plane, &[("HOLDFAST_CA", "")]).await, "CA", "HOLDFAST_CA");
    let no_ca = plane.file("no.pem", "no certificate");
    only(&ask(&plane, &[("HOLDFAST_CA", no_ca.to_str().expect("text"))]).await, "CA", "given anew");
    only(&ask(&plane, &[("HOLDFAST_TOKEN", "")]).await, "token file", "HOLDFAST_TOKEN_FILE");
    only(&ask(&plane, &[("HOLDFAST_TOKEN", "hello")]).await, "token file", "-> ");
    let other = holdfast_identity::Ca::create(holdfast_store::testing::TEST_AUTHORITY, time::OffsetDateTime::now_utc());
    let other = plane.file("other.pem", &other.expect("a CA").certificate_pem());
    only(&ask(&plane, &[("HOLDFAST_CA", other.to_str().expect("text"))]).await, "connection", "of another CA");
}

#[tokio::test]
async fn a_token_that_is_good_no_longer_is_told_apart_from_everything_else() {
    let plane = mk_healthy().await;
    let made = plane.run(&["api-token", "create", "x", "--role", "viewer", "-o", "json"]).await.json();
    plane.number_events().await;
    let secret = made["secret"].as_str().expect("a secret");
    assert_eq!(ask(&plane, &[("HOLDFAST_TOKEN", secret)]).await, []);
    plane.run(&["api-token", "revoke", made["token"]["id"].as_str().expect("an id")]).await.ended(0);
    only(&ask(&plane, &[("HOLDFAST_TOKEN", secret)]).await, "token", "api-token create");
}

#[tokio::test]
async fn each_part_of_the_plane_that_is_away_is_named_with_what_to_do() {
    let plane = mk_healthy().await;
    plane.bus.send_modify(|link| link.up = false);
    only(&ask(&plane, &[]).await, "hint bus", "nats-server");
    plane.bus.send_modify(|link| link.up = true);
    plane.renderer_ends().await;
    only(&ask(&plane, &[]).await, "renderer", "start holdfast-renderer");

    let mut plane = mk_healthy().await;
    plane.says("db-1", holdfast_model::statement::OutcomeKind::Failed).await;
    plane.number_events().await;
    only(&ask(&plane, &[]).await, "fleet", "holdfast get hosts");

    let silent = Plane::start_with(Some(serve_with(String::new(), false).await)).await;
    let found = ask(&silent, &[]).await;
    assert!(found.iter().any(|(name, text)| name == "audit log" && text.contains("not being read")), "{found:?}");
    assert!(found.iter().any(|(name, text)| name == "fleet" && text.contains("enrol-token create")), "{found:?}");
    let without = Plane::start().await;
    let found = ask(&without, &[]).await;
    assert!(found.iter().any(|(name, text)| name == "audit log" && text.contains("operators-audit-url")), "{found:?}");
}
