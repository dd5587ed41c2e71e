//! `doctor`: all well once, and each thing that can be seen from here failing once, alone, with what to do.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_gateway::operators::AuditDoor;
use holdfast_model::statement::OutcomeKind;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::audit::{serve_counting, serve_with};
use crate::plane::{Plane, Ran};

/// How long it may take until what happened is seen: what the door saw is good for a second, the database is given up after some.
const DEADLINE: Duration = Duration::from_secs(30);

/// A plane in which everything is well.
async fn mk_healthy() -> Plane {
    let audited = Arc::default();
    let audit = serve_with(String::new(), true, Arc::clone(&audited)).await;
    mk_plane(Some(audit), audited).await
}

/// The same with this audit service, which is so far.
async fn mk_plane(audit: Option<AuditDoor>, audited: Arc<AtomicU64>) -> Plane {
    let mut plane = Plane::start_with(audit).await;
    plane.audited = audited;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane.number_events().await;
    plane
}

/// What is in this state by its JSON, each with its remedy; the exit code says the same.
fn in_state(ran: &Ran, wanted: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let checks = value["checks"].as_array().expect("checks");
    let has = |state: &str| checks.iter().any(|check| check["state"] == state);
    let code = if has("trouble") { 1 } else { 8 * i32::from(has("watch")) };
    assert_eq!((ran.code, value["ok"] == Value::Bool(true)), (code, code == 0), "{ran:?}");
    let found = |check: &Value| {
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let is_well = check["ok"] == Value::Bool(true) && check["state"] == "ok";
        assert_eq!(is_well, text("remedy").is_empty(), "who is told of trouble is told what to do: {check}");
        (check["state"] == wanted).then(|| (text("name"), format!("{} -> {}", text("detail"), text("remedy"))))
    };
    checks.iter().filter_map(found).collect()
}

async fn ask(plane: &Plane, settings: &[(&str, &str)]) -> Vec<(String, String)> {
    in_state(&plane.run_with(settings, &["doctor", "-o", "json"]).await, "trouble")
}

fn is_only(found: &[(String, String)], name: &str, word: &str) -> bool {
    matches!(found, [(is, text)] if is == name && text.contains(word))
}

fn only(found: &[(String, String)], name: &str, word: &str) {
    assert!(is_only(found, name, word), "one trouble is wanted, {name}, {word}: {found:?}");
}

/// Within a moment this part alone is in trouble.
async fn soon_only(plane: &Plane, name: &str, word: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = ask(plane, &[]).await;
        if is_only(&found, name, word) {
            return;
        }
        assert!(Instant::now() < deadline, "one trouble is wanted, {name}, {word}: {found:?}");
    }
}

/// Within a moment nothing is in trouble and nothing is to be watched.
async fn soon_well(plane: &Plane, settings: &[(&str, &str)]) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let ran = plane.run_with(settings, &["doctor", "-o", "json"]).await;
        if ran.code == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{ran:?}");
    }
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
        "event stream",
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
async fn who_hangs_up_is_not_taken_for_another_ca() {
    let plane = mk_healthy().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = format!("https://{}", listener.local_addr().expect("an address"));
    let hangs_up = async {
        loop {
            drop(listener.accept().await.expect("accepts"));
        }
    };
    let api = [("HOLDFAST_API", address.as_str())];
    let asked = async { (ask(&plane, &api).await, plane.run_with(&api, &["status"]).await) };
    let (found, status) = tokio::select! {
        asked = asked => asked,
        () = hangs_up => unreachable!("it listens for ever"),
    };
    only(&found, "connection", "is the gateway behind it up");
    assert!(status.stderr.contains("-> something listens there and hangs up"), "{}", status.stderr);
}

#[tokio::test]
async fn a_token_file_that_cannot_be_used_is_named_with_what_to_do() {
    let plane = mk_healthy().await;
    let file = |name: &str, text: &str, mode| {
        let path = plane.file(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("sets");
        path.to_str().expect("text").to_owned()
    };
    let rubbish = file("rubbish", "hello", 0o600);
    let open = file("open", plane.admin(), 0o644);
    for (path, word) in [(&rubbish, "begins with hfa_".to_owned()), (&open, format!("-> chmod 600 {open}"))] {
        let settings = [("HOLDFAST_TOKEN_FILE", path.as_str())];
        let ran = plane.run_with(&settings, &["status"]).await;
        assert!(ran.code != 0 && ran.stderr.contains(path.as_str()) && ran.stderr.contains(&word), "{}", ran.stderr);
        assert!(!ran.stderr.contains("private key"), "{}", ran.stderr);
        only(&ask(&plane, &settings).await, "token file", &word);
    }
    let good = file("good", plane.admin(), 0o600);
    soon_well(&plane, &[("HOLDFAST_TOKEN_FILE", &good), ("HOLDFAST_TOKEN", "")]).await;
}

#[tokio::test]
async fn a_token_that_is_good_no_longer_is_told_apart_from_everything_else() {
    let plane = mk_healthy().await;
    let made = plane.run(&["api-token", "create", "x", "--role", "viewer", "-o", "json"]).await.json();
    plane.number_events().await;
    let secret = made["secret"].as_str().expect("a secret");
    assert_eq!(ask(&plane, &[("HOLDFAST_TOKEN", secret)]).await, []);
    plane.run(&["api-token", "revoke", made["token"]["id"].as_str().expect("an id")]).await.ended(0);
    let found = ask(&plane, &[("HOLDFAST_TOKEN", secret)]).await;
    only(&found, "token", "api-token create");
    only(&found, "token", "another fleet");
}

#[tokio::test]
async fn a_crowd_that_asks_how_the_plane_is_costs_one_look_a_second() {
    const CROWD: usize = 16;
    let asked = Arc::new(AtomicU64::new(0));
    let audited = Arc::default();
    let audit = serve_counting(String::new(), true, Arc::clone(&audited), Arc::clone(&asked)).await;
    let plane = mk_plane(Some(audit), audited).await;
    let begun = Instant::now();
    let crowd: Vec<_> = (0..CROWD).map(|_| plane.running(&["doctor", "-o", "json"])).collect();
    for one in crowd {
        assert_eq!(in_state(&one.await.expect("it ends"), "trouble"), []);
    }
    // One for each second that was begun, and the first.
    let looks_max = begun.elapsed().as_secs() + 2;
    let looks = asked.load(Ordering::Relaxed);
    assert!((1..=looks_max).contains(&looks), "{looks} looks, at most {looks_max}");
}

#[tokio::test]
async fn a_token_of_one_namespace_is_told_how_the_plane_is_and_nothing_of_its_processes() {
    let plane = mk_healthy().await;
    let create = ["api-token", "create", "x", "--role", "viewer", "--namespace", "default", "-o", "json"];
    let made = plane.run(&create).await.json();
    plane.number_events().await;
    let settings = [("HOLDFAST_TOKEN", made["secret"].as_str().expect("a secret"))];
    soon_well(&plane, &settings).await;
    // A fault has words of its own, and what to do.
    plane.renderer_says(Some("subjects = [strange.one]"), None).await;
    let words = ["the test", "strange.one", "events behind", "event 1/", "gateway for agents"];
    let deadline = Instant::now() + DEADLINE;
    loop {
        let ran = plane.run_with(&settings, &["doctor", "-o", "json"]).await;
        let lines: Vec<&str> = words.into_iter().filter(|word| ran.stdout.contains(word)).collect();
        assert_eq!(lines, Vec::<&str>::new(), "{}", ran.stdout);
        if is_only(&in_state(&ran, "trouble"), "hint bus", "HOLDFAST_HINTS") {
            break;
        }
        assert!(Instant::now() < deadline, "{ran:?}");
    }
    let all = plane.run(&["doctor"]).await;
    assert!(all.stdout.contains("the test") && all.stdout.contains("strange.one"), "{}", all.stdout);
}

#[tokio::test]
async fn each_part_of_the_plane_that_is_away_is_named_alone_with_what_to_do() {
    let mut plane = mk_healthy().await;
    plane.bus.send_modify(|link| link.up = false);
    soon_only(&plane, "hint bus", "nats-server").await;
    plane.bus.send_modify(|link| link.up = true);
    plane.renderer_says(Some("stream HOLDFAST_HINTS has subjects = x"), None).await;
    soon_only(&plane, "hint bus", "HOLDFAST_HINTS has subjects").await;
    plane.renderer_says(None, Some("the event stream holds what this database never wrote")).await;
    soon_only(&plane, "event stream", "deleted by a person").await;
    plane.number_events().await;
    soon_well(&plane, &[]).await;
    plane.gateway_ends().await;
    soon_only(&plane, "agents' doors", "doors = agents").await;

    let mut renderer = mk_healthy().await;
    renderer.renderer_ends().await;
    renderer.run(&["enrol-token", "create"]).await.ended(0);
    renderer.age_events();
    soon_only(&renderer, "renderer", "start holdfast-renderer").await;
    renderer.postgres.stop();
    soon_only(&renderer, "database", "look at Postgres").await;
    let read = renderer.run(&["get", "hosts"]).await;
    assert!(read.stderr.contains("-> look at Postgres") && !read.stderr.contains("changed"), "{}", read.stderr);

    plane.postgres.stop();
    let change = plane.run(&["enrol-token", "create"]).await;
    assert!(change.stderr.contains("nothing was changed"), "{}", change.stderr);
}

#[tokio::test]
async fn an_audit_log_that_is_away_or_behind_a_fleet_that_failed_and_an_older_database_are_named_alone() {
    let mut plane = mk_healthy().await;
    plane.says("db-1", OutcomeKind::Failed).await;
    plane.number_events().await;
    soon_only(&plane, "fleet", "holdfast explain host default/db-1").await;
    let audited = Arc::default();
    let silent = mk_plane(Some(serve_with(String::new(), false, Arc::clone(&audited)).await), audited).await;
    soon_only(&silent, "audit log", "not being read").await;
    let without = mk_plane(None, Arc::default()).await;
    soon_only(&without, "audit log", "operators-audit-url").await;
    let behind =
        mk_plane(Some(serve_with(String::new(), true, Arc::new(AtomicU64::new(1))).await), Arc::default()).await;
    behind.age_events();
    soon_only(&behind, "audit log", "the oldest for 36").await;
    let restored = mk_healthy().await;
    restored.audited.fetch_add(1, Ordering::Relaxed);
    soon_only(&restored, "audit log", "of another history").await;
    let older = mk_healthy().await;
    older.postgres.sql("DELETE FROM migrations WHERE number >= 15; ALTER TABLE leases DROP COLUMN hint_fault");
    soon_only(&older, "database", "holdfast-renderer migrate").await;
    let audited = Arc::default();
    let mut empty = Plane::start_with(Some(serve_with(String::new(), true, Arc::clone(&audited)).await)).await;
    empty.audited = audited;
    empty.number_events().await;
    soon_only(&empty, "fleet", "enrol-token create").await;
}

#[tokio::test]
async fn what_is_under_way_or_overdue_is_neither_well_nor_in_trouble() {
    let plane = mk_healthy().await;
    let deadline = Instant::now() + DEADLINE;
    let overdue = loop {
        // Renewed thirteen seconds ago.
        plane.postgres.sql("UPDATE leases SET expires_at = now() + interval '17 s' WHERE name = 'renderer'");
        let ran = plane.run(&["doctor"]).await;
        if ran.code != 0 {
            break ran;
        }
        assert!(Instant::now() < deadline, "{ran:?}");
    };
    assert_eq!(overdue.code, 8, "{overdue:?}");
    assert!(overdue.stdout.contains("watch    renderer") && overdue.stdout.contains("overdue"), "{}", overdue.stdout);
    assert!(overdue.stderr.contains("nothing is in trouble, 1 check to watch"), "{}", overdue.stderr);

    let mut plane = mk_healthy().await;
    plane.enrol("db-2", "10.0.0.2").await;
    plane.number_events().await;
    let ran = plane.run(&["doctor", "-o", "json"]).await;
    assert_eq!(in_state(&ran, "trouble"), []);
    assert!(is_only(&in_state(&ran, "watch"), "fleet", "holdfast wait"), "{ran:?}");
}
