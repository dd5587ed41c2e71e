//! Operations as operators see them: which hosts each is for, what became of it there, once and for good.

use std::process::Stdio;
use std::time::Duration;

use holdfast_events::Hint;
use holdfast_identity::https::{Client, Request, Response};
use holdfast_identity::{TrustRoots, tls};
use holdfast_model::statement::OutcomeKind;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::intent::POLICIES;
use crate::plane::Plane;

/// Two hosts that have everything so far.
async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", POLICIES);
    plane.file("more.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5433"));
    plane.file("other.yaml", &POLICIES.replace("name: web", "name: web2").replace("port: 443", "port: 80"));
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane
}

/// Applies a file; the operation.
async fn apply(plane: &Plane, file: &str) -> String {
    let applied = plane.run(&["apply", "-f", file, "-o", "json"]).await.json();
    applied["operation"].as_str().expect("something changed").to_owned()
}

async fn get(plane: &Plane, id: &str) -> Value {
    plane.run(&["operation", "get", id, "-o", "json"]).await.json()
}

/// What the door answers to this, with a name of the request.
pub(crate) async fn ask(plane: &Plane, path: &str, key: &str, body: &Value) -> Response {
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("the CA");
    let client = Client::new(tls::https(&roots).expect("a configuration"));
    let request = Request::new(Method::POST, format!("{}{path}", plane.api()))
        .bearer(plane.admin())
        .and_then(|request| request.header(CONTENT_TYPE, "application/json"))
        .and_then(|request| request.header(HeaderName::from_static("idempotency-key"), key))
        .expect("a request");
    client.request(request.body(serde_json::to_vec(body).expect("JSON"))).await.expect("an answer")
}

pub(crate) fn parsed(response: &Response) -> Value {
    serde_json::from_slice(&response.body).expect("JSON")
}

#[tokio::test]
async fn c39_c40_a_change_that_is_asked_for_again_under_its_name_is_answered_and_another_is_refused() {
    let plane = mk_plane().await;
    let named = |file: &'static str, more: &'static [&'static str]| {
        [["apply", "-f", file, "--idempotency-key", "nightly", "-o", "json"].as_slice(), more].concat()
    };
    let first = plane.run(&named("policies.yaml", &[])).await.json();
    let operation = first["operation"].as_str().expect("it changed something").to_owned();
    plane.run(&["apply", "-f", "more.yaml"]).await.ended(0);
    // How it is waited for does not matter, nor what is in force meanwhile.
    let again = plane.run(&named("policies.yaml", &["--wait=200ms"])).await;
    assert_eq!(again.code, 6, "{again:?}");
    assert!(again.stderr.contains("it was done before under this --idempotency-key"), "{again:?}");
    let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
    for field in ["revision", "operation", "unchanged", "objects"] {
        assert_eq!(again[field], first[field], "{field}: {again}");
    }
    assert_eq!(again["waited"]["id"], Value::from(operation.clone()));
    let other = plane.run(&named("more.yaml", &[])).await;
    let problem: Value = serde_json::from_str(&other.stderr).expect("a problem");
    assert_eq!((other.code, &problem["type"]), (4, &"urn:holdfast:problem:idempotency-key-reused".into()), "{problem}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["revision"], Value::from(4));

    // A replay says so, a plan that was carried out need not hold once more, and the same word for another call is another request.
    let body = json!({ "objects": ["Policy/default/db"] });
    let deleted = ask(&plane, "/v1/delete", "d", &body).await;
    let again = ask(&plane, "/v1/delete", "d", &body).await;
    assert_eq!(
        (deleted.status.as_u16(), parsed(&again)["operation"].clone()),
        (200, parsed(&deleted)["operation"].clone())
    );
    assert_eq!(parsed(&again)["objects"], parsed(&deleted)["objects"]);
    assert!(deleted.headers.get("idempotency-replayed").is_none());
    assert_eq!(again.headers.get("idempotency-replayed").map(|value| value.as_bytes()), Some(&b"true"[..]));
    assert_eq!(ask(&plane, "/v1/apply", "d", &json!({ "sources": [] })).await.status.as_u16(), 409);
    let long = ask(&plane, "/v1/delete", &"k".repeat(129), &body).await;
    assert_eq!((long.status.as_u16(), &parsed(&long)["findings"][0]["rule"]), (400, &"idempotency-key".into()));
}

#[tokio::test]
async fn i17_an_answer_that_is_lost_is_asked_for_again_by_the_command_and_nothing_is_done_twice() {
    let mut plane = mk_plane().await;
    while plane.hints.try_recv().is_ok() {}
    // More than a handshake has, so that it can be told from one.
    plane.file("long.yaml", &format!("# {}\n{POLICIES}", "x".repeat(HANDSHAKE_BYTES_MAX)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let way = format!("https://{}", listener.local_addr().expect("an address"));
    let door = plane.api().trim_start_matches("https://").to_owned();
    let mut command = plane.command(plane.admin(), &["apply", "-f", "long.yaml", "-o", "json"]);
    command.env("HOLDFAST_API", way).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it runs");
    let (mut here, _) = listener.accept().await.expect("the command");
    let mut there = TcpStream::connect(&door).await.expect("the door");
    let is_done = async { while plane.hints.recv().await != Some(Hint::Intent) {} };
    swallow_answer(&mut here, &mut there, is_done).await;
    drop((here, there));
    let (mut here, _) = listener.accept().await.expect("the command again");
    let mut there = TcpStream::connect(&door).await.expect("the door");
    let (ended, _) = tokio::join!(child.wait_with_output(), tokio::io::copy_bidirectional(&mut here, &mut there));
    let ended = ended.expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
    let said: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let listed = plane.run(&["operation", "list", "-o", "name"]).await.ended(0);
    assert_eq!(listed.trim(), said["operation"], "one operation, and it is told");
    assert_eq!(said["unchanged"], false);
}

/// What a client sends at most before its request.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;

/// Carries a handshake both ways, and then only the request, until it was done: the client gets no answer.
async fn swallow_answer(client: &mut TcpStream, door: &mut TcpStream, is_done: impl Future<Output = ()>) {
    let (mut sent, mut up, mut down) = (0, vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut is_done = std::pin::pin!(is_done);
    loop {
        tokio::select! {
            () = &mut is_done => return,
            read = client.read(&mut up) => {
                let read = read.expect("the client is there");
                sent += read;
                door.write_all(up.get(..read).expect("read")).await.expect("the door takes it");
            }
            read = door.read(&mut down) => {
                let read = read.expect("the door is there");
                if sent <= HANDSHAKE_BYTES_MAX {
                    client.write_all(down.get(..read).expect("read")).await.expect("the client takes it");
                }
            }
        }
    }
}

#[tokio::test]
async fn i15_a_plan_that_was_carried_out_under_a_name_is_answered_though_it_would_not_hold_now() {
    let plane = mk_plane().await;
    let digest = plane.run(&["plan", "-f", "policies.yaml", "-o", "json"]).await.json()["digest"].clone();
    let digest = digest.as_str().expect("a digest").to_owned();
    let command = ["apply", "-f", "policies.yaml", "--plan", &digest, "--idempotency-key", "p", "-o", "json"];
    let first = plane.run(&command).await.json();
    let again = plane.run(&command).await.json();
    assert_eq!(again["operation"], first["operation"]);
    let unnamed = ["apply", "-f", "policies.yaml", "--plan", &digest];
    assert_eq!(plane.run(&unnamed).await.code, 4);
}

#[tokio::test]
async fn i15_a_plan_that_several_carry_out_at_once_under_one_name_is_carried_out_once_and_all_are_told() {
    let plane = mk_plane().await;
    let digest = plane.run(&["plan", "-f", "policies.yaml", "-o", "json"]).await.json()["digest"].clone();
    let digest = digest.as_str().expect("a digest").to_owned();
    let command = ["apply", "-f", "policies.yaml", "--plan", &digest, "--idempotency-key", "p", "-o", "json"];
    let running: Vec<_> = (0..6).map(|_| plane.running(&command)).collect();
    let mut operations = Vec::new();
    for one in running {
        operations.push(one.await.expect("it ends").json()["operation"].clone());
    }
    operations.dedup();
    assert_eq!(operations.len(), 1, "{operations:?}");
}

#[tokio::test]
async fn i15_a_token_is_made_once_under_a_name_and_its_secret_is_told_once() {
    let plane = Plane::start().await;
    let command = ["enrol-token", "create", "--idempotency-key", "t"];
    plane.run(&command).await.ended(0);
    let again = plane.run(&command).await;
    assert_eq!((again.code, again.stdout.as_str()), (4, ""), "{again:?}");
    let listed = plane.run(&["enrol-token", "list", "-o", "name"]).await.ended(0);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(again.stderr.contains(listed.trim()) && again.stderr.contains("secret-not-kept"), "{again:?}");
    let revoke = ["enrol-token", "revoke", listed.trim(), "--idempotency-key", "r"];
    plane.run(&revoke).await.ended(0);
    plane.run(&revoke).await.ended(0);
    assert_eq!(plane.run(&["enrol-token", "revoke", listed.trim()]).await.code, 4, "another asks");
}

#[tokio::test]
async fn an_operation_waits_for_the_hosts_that_it_is_for_and_says_how_many_have_it() {
    let mut plane = mk_plane().await;
    let first = apply(&plane, "policies.yaml").await;
    assert_eq!(get(&plane, &first).await["rendered"], false);
    plane.render().await;
    let hosts = |shown: &Value| {
        let count = |field: &str| shown["hosts"][field].as_u64().expect("a count");
        [count("total"), count("applied"), count("pending"), count("superseded")]
    };
    assert_eq!(hosts(&get(&plane, &first).await), [2, 0, 2, 0]);
    plane.says("db-1", OutcomeKind::Applied).await;
    let waited = plane.run(&["wait", "operation", &first, "--timeout", "1s"]).await;
    assert_eq!(waited.code, 6, "{waited:?}");
    assert!(waited.stderr.contains("applied on 1 of 2 hosts, 1 pending"), "{waited:?}");
    assert!(waited.stderr.contains("not applied: default/web-1 (pending)"), "{waited:?}");
    let pending = plane.run(&["operation", "hosts", &first, "--outcome", "pending", "-o", "name"]).await;
    assert_eq!(pending.ended(0), "default/web-1\n");

    // Only db-1 is told of the next one: an unrelated host that lags keeps nobody waiting.
    let second = apply(&plane, "more.yaml").await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.run(&["wait", "operation", &second, "--timeout", "20s"]).await.ended(0);
    let shown = get(&plane, &second).await;
    assert_eq!((&shown["state"], hosts(&shown)), (&"applied".into(), [1, 1, 0, 0]));

    // The first one was in force on db-1 before the second took its place there, and is not yet on web-1.
    assert_eq!(hosts(&get(&plane, &first).await), [2, 1, 1, 0]);
    plane.says("web-1", OutcomeKind::Applied).await;
    plane.run(&["wait", "operation", &first, "--timeout", "20s"]).await.ended(0);
    assert_eq!(get(&plane, &first).await["detail"], "in force on 2 hosts");
    let check = plane.run(&["rebuild", "--check", "-o", "json"]).await.json();
    assert_eq!(check["clean"], Value::from(true), "{check}");
}

#[tokio::test]
async fn c38_c44_an_operation_ends_superseded_by_what_overwrites_it_and_applied_by_what_includes_it() {
    let mut plane = mk_plane().await;
    let overwritten = apply(&plane, "policies.yaml").await;
    let included = apply(&plane, "other.yaml").await;
    plane.render().await;
    let last = apply(&plane, "more.yaml").await;
    plane.render().await;
    // Nobody has said anything: what will not be sent any more is over, the rest is awaited.
    let waited = plane.run(&["wait", "operation", &overwritten, "--timeout", "3s"]).await;
    assert_eq!(waited.code, 6, "web-1 may yet have it: {waited:?}");
    let shown = get(&plane, &overwritten).await;
    assert_eq!((&shown["hosts"]["superseded"], &shown["hosts"]["pending"]), (&1.into(), &1.into()), "{shown}");
    plane.all_say(OutcomeKind::Applied).await;
    let waited = plane.run(&["wait", "operation", &overwritten, "--timeout", "20s"]).await;
    assert_eq!(waited.code, 4, "{waited:?}");
    let shown = get(&plane, &overwritten).await;
    assert_eq!((&shown["state"], &shown["hosts"]["applied"]), (&"superseded".into(), &1.into()), "{shown}");
    for id in [&included, &last] {
        plane.run(&["wait", "operation", id, "--timeout", "20s"]).await.ended(0);
        assert_eq!(get(&plane, id).await["state"], "applied");
    }
    // What ended stays as it ended, whatever comes after it.
    apply(&plane, "policies.yaml").await;
    plane.render().await;
    assert_eq!(get(&plane, &last).await["hosts"]["applied"], get(&plane, &last).await["hosts"]["total"]);
}

#[tokio::test]
async fn c46_an_answer_about_another_version_than_the_one_that_is_awaited_ends_nothing() {
    let mut plane = mk_plane().await;
    apply(&plane, "policies.yaml").await;
    plane.render().await;
    let before = plane.policy_of("db-1").await;
    let id = apply(&plane, "more.yaml").await;
    plane.render().await;
    let awaited = plane.policy_of("db-1").await;
    assert!(awaited.stamp.version > before.stamp.version, "{awaited:?} {before:?}");
    plane.says("web-1", OutcomeKind::Applied).await;
    plane.says_it_has("db-1", before).await;
    plane.run(&["wait", "operation", &id, "--timeout", "1s"]).await.ended(6);
    let shown = get(&plane, &id).await;
    assert_eq!((&shown["finished"], &shown["hosts"]["pending"]), (&false.into(), &1.into()), "{shown}");
    plane.says_it_has("db-1", awaited).await;
    plane.run(&["wait", "operation", &id, "--timeout", "20s"]).await.ended(0);
}

#[tokio::test]
async fn c43_a_host_that_is_taken_out_while_an_operation_waits_for_it_is_cancelled_and_its_taking_out_is_done_once() {
    let mut plane = mk_plane().await;
    let id = apply(&plane, "policies.yaml").await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.run(&["wait", "operation", &id, "--timeout", "1s"]).await.ended(6);
    let out = ["host", "decommission", "web-1", "--because", "sold", "--idempotency-key", "o", "-o", "json"];
    let first = plane.run(&out).await.json();
    assert_eq!(plane.run(&out).await.json(), first, "it is not found any more, and answered");
    let waited = plane.run(&["wait", "operation", &id, "--timeout", "20s", "-o", "json"]).await.json();
    assert_eq!(waited["detail"], "in force on 1 of 2 hosts; the others are stopped or no more");
    assert_eq!((&waited["state"], &waited["hosts"]["cancelled"]), (&"applied".into(), &1.into()), "{waited}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c39_a_host_that_is_taken_out_twice_at_once_under_one_name_is_taken_out_once_and_both_are_told() {
    const HOLDER: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = 1952804468";
    let (runtime, plane) = (&tokio::runtime::Handle::current(), &mk_plane().await);
    let take_out = || {
        let (path, body) = ("/v1/hosts/web-1/decommission", json!({ "because": "sold" }));
        let answer = runtime.block_on(ask(plane, path, "once", &body));
        (answer.status.as_u16(), parsed(&answer))
    };
    let (one, other) = std::thread::scope(|scope| {
        // Nobody's change gets its turn until both have asked: one waits in the database, the other behind it.
        let held = scope.spawn(|| {
            let hold = "PERFORM pg_advisory_xact_lock(x'696e74656e74'::bigint); PERFORM pg_sleep(1.5);";
            plane.postgres.sql(&format!("DO $$ BEGIN {hold} END $$"))
        });
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while plane.postgres.sql(HOLDER).trim() != "1" {
            assert!(std::time::Instant::now() < deadline, "the lock is held");
        }
        let asked = [scope.spawn(take_out), scope.spawn(take_out)];
        let [one, other] = asked.map(|asked| asked.join().expect("it is answered"));
        held.join().expect("it lets go");
        (one, other)
    });
    assert_eq!((one.0, &one), (200, &other));
}

#[tokio::test]
async fn c38_changes_that_are_rendered_together_with_what_overwrote_them_are_superseded_and_no_host_had_them() {
    let mut plane = mk_plane().await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let policies = |port: &str| crate::intent::POLICIES.replace("5432", port);
    plane.file("one.yaml", &policies("7001"));
    plane.file("two.yaml", &policies("7002"));
    plane.file("three.yaml", &policies("7003"));
    let mut operations = Vec::new();
    for file in ["one.yaml", "two.yaml", "three.yaml"] {
        operations.push(apply(&plane, file).await);
    }
    // Nobody rendered in between: one version has all of them.
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    for (operation, code, state) in
        [(&operations[0], 4, "superseded"), (&operations[1], 4, "superseded"), (&operations[2], 0, "applied")]
    {
        let waited = plane.run(&["wait", "operation", operation, "--timeout", "20s", "-o", "json"]).await;
        let shown: Value = serde_json::from_str(&waited.stdout).expect("JSON");
        assert_eq!((waited.code, shown["state"].as_str()), (code, Some(state)), "{shown}");
    }
    let first = get(&plane, &operations[0]).await["revision"].clone();
    let shown = plane.run(&["get", "revision", &first.to_string(), "-o", "json"]).await.json();
    let told = (&shown["overwritten_at"], &shown["status"]["hosts"]["converged"], &shown["status"]["state"]);
    let next = Value::from(first.as_u64().expect("a number") + 1);
    assert_eq!(told, (&next, &0.into(), &"unknown".into()), "{shown}");
    let words = plane.run(&["describe", "revision", &first.to_string()]).await.ended(0);
    assert!(words.contains(&format!("overwritten  by revision {next}")), "{words}");
}

#[tokio::test]
async fn i11_a_cancelled_operation_ends_its_waiting_and_changes_nothing_else() {
    let mut plane = mk_plane().await;
    let id = apply(&plane, "policies.yaml").await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.run(&["wait", "operation", &id, "--timeout", "1s"]).await.ended(6);
    assert_eq!(get(&plane, &id).await["hosts"]["applied"], 1);
    let waiting = plane.running(&["wait", "operation", &id, "--timeout", "30s"]);
    let viewer = ["api-token", "create", "v", "--role", "viewer"];
    let viewer = plane.run(&viewer).await.ended(0);
    assert_eq!(plane.run_as(viewer.trim(), &["operation", "cancel", &id]).await.code, 5);
    let scoped = ["api-token", "create", "e", "--role", "editor", "--namespace", "elsewhere"];
    let scoped = plane.run(&scoped).await.ended(0);
    assert_eq!(plane.run_as(scoped.trim(), &["operation", "cancel", &id]).await.code, 5);
    let cancelled = plane.run(&["operation", "cancel", &id, "-o", "json"]).await.json();
    assert_eq!((&cancelled["state"], &cancelled["finished"]), (&"cancelled".into(), &true.into()), "{cancelled}");
    assert_eq!(waiting.await.expect("it ends").code, 1);
    assert_eq!(plane.run(&["operation", "cancel", &id]).await.code, 4);
    // It goes on its way all the same, and the operation stays as it ended.
    plane.says("web-1", OutcomeKind::Applied).await;
    plane.run(&["wait", "--timeout", "20s"]).await.ended(0);
    let shown = get(&plane, &id).await;
    assert_eq!((&shown["state"], &shown["hosts"]["cancelled"]), (&"cancelled".into(), &1.into()), "{shown}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["state"], "converged");
}

#[tokio::test]
async fn c41_i17_i19_whoever_waits_holds_no_transaction_and_whoever_goes_away_cancels_nothing() {
    let mut plane = mk_plane().await;
    while plane.hints.try_recv().is_ok() {}
    let mut command = plane.command(plane.admin(), &["apply", "-f", "policies.yaml", "--wait=60s"]);
    let mut child = command.spawn().expect("it runs");
    while plane.hints.recv().await != Some(Hint::Intent) {}
    plane.render().await;
    let id = plane.run(&["operation", "list", "-o", "name"]).await.ended(0).trim().to_owned();
    // A transaction of a look lasts milliseconds: one of half a second would be that of somebody who waits.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND clock_timestamp() - xact_start > interval '500 ms'";
    for _ in 0..12 {
        assert_eq!(plane.postgres.sql(open).trim(), "0");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(child.try_wait().expect("asks").is_none(), "it waits");
    child.kill().await.expect("it goes away");
    assert_eq!(get(&plane, &id).await["state"], "accepted");
    plane.all_say(OutcomeKind::Applied).await;
    plane.run(&["wait", "operation", &id, "--timeout", "20s"]).await.ended(0);
}

#[tokio::test]
async fn a_failure_of_the_newest_ends_an_operation_and_one_that_was_overtaken_does_not() {
    let mut plane = mk_plane().await;
    let overtaken = apply(&plane, "other.yaml").await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Failed).await;
    plane.says("web-1", OutcomeKind::Applied).await;
    let last = apply(&plane, "more.yaml").await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Failed).await;
    let waited = plane.run(&["wait", "operation", &last, "--timeout", "30s"]).await;
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.stderr.contains("1 of 2 hosts did not take it: default/db-1 (kernel_refused)"), "{waited:?}");
    let shown = get(&plane, &overtaken).await;
    assert_eq!((&shown["hosts"]["superseded"], &shown["state"]), (&1.into(), &"superseded".into()), "{shown}");
}
