//! The audit log through the operators' door, and proofs of copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use holdfast_api::audit::{Chain, Checkpoint, Head};
use holdfast_gateway::operators::AuditDoor;
use holdfast_identity::https::Client;
use holdfast_identity::tls::{ServerTls, install_crypto_provider, mutual, mutual_door};
use holdfast_identity::{Ca, ServerRole, SigningKey};
use holdfast_runtime::https::{DoorLimits, serve_https};
use holdfast_store::testing::TEST_AUTHORITY;
use rustls_pki_types::ServerName;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::plane::Plane;

#[tokio::test]
async fn a_log_is_proven_against_a_checkpoint_and_every_change_is_named() {
    let (lines, head) = mk_log(20);
    let plane = Plane::start_with(Some(serve(lines.join("")).await)).await;
    let tail = plane.run(&["audit", "tail", "--from", "18", "-o", "json"]).await.ended(0);
    assert_eq!(tail, lines.concat(), "passed through byte for byte");

    let unproven = plane.run(&["audit", "verify"]).await.ended(0);
    assert!(unproven.contains("entries 1 to 20 are one unbroken chain; without a checkpoint nothing proves the tail"));
    let key = SigningKey::generate().expect("a key");
    let checkpoint = plane.file("checkpoint.json", &serde_json::to_string(&mk_checkpoint(&key, head)).expect("JSON"));
    let checkpoint = checkpoint.to_str().expect("text");
    let public = key.verifying_key().to_string();
    let verify = ["audit", "verify", "--against", checkpoint, "--key", &public];
    assert!(plane.run(&verify).await.ended(0).contains("entries 1 to 20 are proven by a checkpoint"));
    assert_eq!(plane.run(&["audit", "verify", "--against", checkpoint]).await.code, 64, "a key is needed");
    let other = SigningKey::generate().expect("a key").verifying_key().to_string();
    assert_eq!(plane.run(&["audit", "verify", "--against", checkpoint, "--key", &other]).await.code, 1);

    let mut cases: Vec<(&str, Vec<String>, &str)> = Vec::new();
    let mut changed = lines.clone();
    changed[4] = changed[4].replace("subject-5", "subject-X");
    cases.push(("changed", changed, "entry 5 was changed"));
    let mut missing = lines.clone();
    missing.remove(9);
    cases.push(("missing", missing, "entry 10 is missing"));
    let mut swapped = lines.clone();
    swapped.swap(6, 7);
    cases.push(("swapped", swapped, "entry 7 is"));
    cases.push(("cut", lines[..15].to_vec(), "the log ends at entry 15, the checkpoint knows entry 20"));
    for (name, log, fault) in cases {
        let copy = plane.file(name, &log.concat());
        let copy = copy.to_str().expect("text");
        let ran = plane.run(&["audit", "verify", "--log", copy, "--against", checkpoint, "--key", &public]).await;
        assert!(ran.code == 1 && ran.stdout.contains(fault), "{name}: {ran:?}");
        let ran = plane
            .run(&["audit", "verify", "--log", copy, "--against", checkpoint, "--key", &public, "-o", "json"])
            .await;
        let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(report["ok"], Value::from(false));
    }
}

#[tokio::test]
async fn the_end_of_the_log_is_a_table_with_names_unless_more_or_json_is_asked_for() {
    let mut chain = Chain::after(Head::ORIGIN);
    let event = |n: u64| {
        format!(
            r#"{{"authorityepoch":"1","sequence":"{n}","type":"dev.holdfast.intent.object.put","actor":"renderer","subject":"ob_{n}","time":"2026-01-02T03:04:05.678Z","data":{{"revision":{n},"namespace":"booking","name":"web-{n}","content":{{"inline":{{"kind":"Host"}}}}}}}}"#
        )
    };
    let lines: Vec<String> = (1..=30).map(|n| chain.append(&event(n)).expect("an event").to_line() + "\n").collect();
    let plane = Plane::start_with(Some(serve(lines.concat()).await)).await;
    let table = plane.run(&["audit", "tail"]).await.ended(0);
    let shown: Vec<&str> = table.lines().collect();
    assert_eq!(shown.len(), 21, "{table}");
    assert_eq!(shown[0].split_whitespace().collect::<Vec<_>>(), ["TIME", "ACTOR", "EVENT", "SUBJECT"]);
    assert_eq!(shown[20], "2026-01-02 03:04:05  renderer  intent.object.put  Host/booking/web-30 revision 30");
    assert_eq!(plane.run(&["audit", "tail", "-n", "3"]).await.ended(0).lines().count(), 4);
    assert_eq!(plane.run(&["audit", "tail", "--from", "1"]).await.ended(0).lines().count(), 31);
    let json = plane.run(&["audit", "tail", "-n", "2", "-o", "json"]).await.ended(0);
    assert_eq!(json, lines[28..].concat(), "as they are kept");
}

#[tokio::test]
async fn without_an_audit_service_the_api_says_so() {
    let plane = Plane::start().await;
    let refused = plane.run(&["audit", "verify", "-o", "json"]).await;
    let problem: Value = serde_json::from_str(&refused.stderr).expect("a problem");
    assert_eq!((refused.code, &problem["type"]), (1, &"urn:holdfast:problem:audit-unavailable".into()));
}

/// Lines with their ends, and the head.
pub(crate) fn mk_log(entries: u64) -> (Vec<String>, Head) {
    let mut chain = Chain::after(Head::ORIGIN);
    let event = |n| format!(r#"{{"authorityepoch":"1","sequence":"{n}","subject":"subject-{n}"}}"#);
    let lines = (1..=entries).map(|n| chain.append(&event(n)).expect("an event").to_line() + "\n").collect();
    (lines, chain.head())
}

fn mk_checkpoint(key: &SigningKey, head: Head) -> Checkpoint {
    let at = "2026-01-02T03:04:05Z".to_owned();
    let mut checkpoint = Checkpoint { log: TEST_AUTHORITY.to_string(), head, at, signature: String::new() };
    let signature = key.sign(&checkpoint.statement());
    checkpoint.signature = signature.0.iter().map(|byte| format!("{byte:02x}")).collect();
    checkpoint
}

/// A stand-in for the audit service that knows its callers by certificate, as the real one does.
pub(crate) async fn serve(log: String) -> AuditDoor {
    serve_with(log, true, Arc::default()).await
}

/// The same, reading the event stream or not, and this far in it.
pub(crate) async fn serve_with(log: String, reading: bool, seq: Arc<AtomicU64>) -> AuditDoor {
    serve_counting(log, reading, seq, Arc::default()).await
}

/// The same, and how often it is asked how it is.
pub(crate) async fn serve_counting(
    log: String,
    reading: bool,
    seq: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
) -> AuditDoor {
    let head = log.lines().count();
    let told = async move || {
        asked.fetch_add(1, Ordering::Relaxed);
        let seq = seq.load(Ordering::Relaxed);
        format!(
            r#"{{"head":{{"n":{head},"hash":"00"}},"place":{{"authority_epoch":1,"seq":{seq}}},"missing":null,"reading":{reading}}}"#
        )
    };
    let entries = move |RawQuery(_): RawQuery| async move { ([("content-type", "application/x-ndjson")], log) };
    let router = Router::new().route("/v1/audit/entries", get(entries)).route("/v1/audit/status", get(told));
    serve_router(router).await
}

/// Any stand-in, behind TLS as the real one is.
pub(crate) async fn serve_router(router: Router) -> AuditDoor {
    install_crypto_provider();
    let now = OffsetDateTime::now_utc();
    let ca = Ca::create(TEST_AUTHORITY, now).expect("a CA");
    let roots = ca.roots().expect("roots");
    let server = ca.issue_server(ServerRole::Audit, &[ServerName::try_from("127.0.0.1").expect("an address")], now);
    let tls = Arc::new(ServerTls::new(mutual_door(&server.expect("issues"), &roots).expect("a configuration")));
    let client = ca.issue_client("holdfast_gateway_operators", now).expect("issues");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let base = format!("https://{}", listener.local_addr().expect("an address"));
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(serve_https(listener, tls, router, DoorLimits::default(), CancellationToken::new()));
    AuditDoor::new(Client::new(mutual(&client, &roots).expect("a configuration")), &base)
}
