//! Crowds at real services: of rubbish where hints are said, of changes of the same hosts at once, and of changes while the database's form changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_identity::tls::{install_crypto_provider, mutual};
use holdfast_identity::{Credential, TrustRoots};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::JoinSet;

use super::agent::DEADLINE;
use super::watch::Api;
use super::world::{FIRST, LOOK, World, apply};
use crate::control_plane::ControlPlane;

/// Changes at once.
const AT_ONCE: usize = 64;
/// What is no hint, between hints.
const RUBBISH: u64 = 10_000;
/// Nothing is found by the clock.
const BY_HINTS: &str = "1h";

async fn start() -> World {
    install_crypto_provider();
    World::start_in(ControlPlane::start_with(&[("HOLDFAST_AGENTS_COMPARE_INTERVAL", BY_HINTS.to_owned())]).await).await
}

/// The policy of [`apply`] with one prefix more, as the API takes it.
fn change(n: usize) -> Value {
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: kept}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{{cidr: {FIRST}}}, {{cidr: 198.51.100.{n}/32}}]}}]\n"
    );
    json!({ "sources": [{ "name": "kept.yaml", "text": text }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_ten_thousand_messages_that_are_no_hints_are_counted_and_the_next_hint_is_heard() {
    let mut world = start().await;
    let client = person_of_hints(&world).await;
    let subjects = ["host", "answer", "intent", "request", "event"];
    let bodies = ["", "{", "null", "{\"request\":7}", "{\"states\":[[1]]}", "\u{0}\u{1}", "[]"];
    let before = strange(&world);
    for n in 0..RUBBISH {
        let at = usize::try_from(n).expect("few");
        let body = if n.is_multiple_of(1_000) { "x".repeat(100_000) } else { bodies[at % bodies.len()].to_owned() };
        client.publish(format!("holdfast.hint.{}", subjects[at % subjects.len()]), body.into()).await.expect("is sent");
    }
    client.flush().await.expect("the server has all of it");
    // The gateway listens to subjects of both of its doors: what is for hosts is one part in five.
    let deadline = Instant::now() + DEADLINE;
    while strange(&world) - before < RUBBISH / 5 {
        assert!(Instant::now() < deadline, "{} of {RUBBISH} are counted", strange(&world) - before);
        tokio::time::sleep(LOOK).await;
    }
    let updates = |world: &World| world.plane.counted("holdfast_gateway_updates_total", &[]);
    let sent = updates(&world);
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    assert_eq!(updates(&world) - sent, world.agents.len() as u64, "one frame a host, by the hint of the change");
    for agent in &world.agents {
        assert_eq!(agent.lived().opened.len(), 1, "{}", agent.who.name);
    }
    world.plane.assert_runs();
}

/// What the gateway counted as no hint.
fn strange(world: &World) -> u64 {
    world.plane.counted("holdfast_strange_hints_total", &[])
}

/// A person's way to the hints.
async fn person_of_hints(world: &World) -> async_nats::Client {
    const USER: &str = "holdfast_nats_hints_admin";
    let folder = world.plane.keys("nats-admin");
    let credential = Credential::load_named(&folder, USER).expect("init made it");
    let roots = TrustRoots::load(&folder.join("ca.pem")).expect("init made it");
    let options = async_nats::ConnectOptions::new()
        .custom_inbox_prefix(format!("_INBOX_{USER}"))
        .require_tls(true)
        .tls_client_config(mutual(&credential, &roots).expect("they fit"));
    options.connect(world.plane.nats_url()).await.expect("the server knows the user")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_sixty_four_changes_of_the_same_hosts_at_once_are_all_made_and_no_version_moves_in_part() {
    let mut world = start().await;
    let mut other = world.plane.another_renderer();
    let mut asked = JoinSet::new();
    for n in 0..AT_ONCE {
        let api = world.api.clone();
        asked.spawn(async move { until_answered(&api, n).await });
    }
    let mut refused = 0;
    while let Some(answered) = asked.join_next().await {
        refused += answered.expect("no panic");
    }
    let sql = |sql: &str| world.plane.postgres.sql(sql).trim().to_owned();
    assert_eq!(sql("SELECT count(*) FROM revisions"), (AT_ONCE + 1 + world.agents.len()).to_string());
    assert!(apply(&world.plane, &[FIRST]).status.success());
    is_whole(&world).await;
    assert!(refused < AT_ONCE * 10, "tries are bounded: {refused}");
    other.assert_runs();
    world.plane.assert_runs();
}

/// Fails unless all is rendered, for all hosts alike and each version the next, and every host has it.
async fn is_whole(world: &World) {
    let sql = |sql: &str| world.plane.postgres.sql(sql).trim().to_owned();
    let rendered = "SELECT revision = (SELECT max(revision) FROM revisions) FROM render_progress";
    until_sql(world, rendered, "t").await;
    // A render may leave out what was overwritten before it; what is rendered is rendered for all, and each version is the next.
    let dense = "SELECT bool_and(count = newest) FROM (SELECT count(*), max(version) AS newest FROM desired_states \
                 GROUP BY host_id, component) each";
    assert_eq!(sql(dense), "t");
    let partial = format!(
        "SELECT count(*) FROM (SELECT version FROM desired_states WHERE component = 1 GROUP BY version \
         HAVING count(*) <> {} OR count(DISTINCT digest) <> 1) each",
        world.agents.len()
    );
    assert_eq!(sql(&partial), "0", "no version of one host without the others");
    let version: u64 = sql("SELECT max(version) FROM desired_states WHERE component = 1").parse().expect("a number");
    world.until_held(version).await;
    world.until_told(version, version, "converged").await;
}

/// Asks for a change until it is made, and returns how often it was refused before; a refusal says that nothing was changed, or that it is not known.
async fn until_answered(api: &Api, n: usize) -> usize {
    let deadline = Instant::now() + DEADLINE;
    let mut refused = 0;
    loop {
        let said = api.try_post("/v1/apply", &change(n)).await;
        match &said {
            Some((200, _)) => return refused,
            // A crowd from one address is let in by and by.
            None | Some((409 | 429 | 503, _)) => refused += 1,
            Some(_) => panic!("{said:?}"),
        }
        assert!(Instant::now() < deadline, "{said:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a statement answers with this.
async fn until_sql(world: &World, sql: &str, wanted: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = world.plane.postgres.sql(sql);
        if found.trim() == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {found}");
        tokio::time::sleep(LOOK).await;
    }
}

/// What a later build's step may do to tables that are in use, beside adding to them: give a column another type that is stored alike, which makes
/// every plan that reads it useless. The name of a token is read at each request.
const OTHER_TYPES: [&str; 2] = ["varchar", "text"];
/// Those that are written all the time.
const WRITTEN: [&str; 10] = [
    "revisions",
    "objects",
    "events",
    "event_order",
    "desired_states",
    "desired_latest",
    "sessions",
    "observed",
    "statuses",
    "operations",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_a_later_builds_step_under_load_costs_waits_and_refusals_and_no_change_in_part() {
    let mut world = start().await;
    let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut asked = JoinSet::new();
    for lane in 0..4 {
        let (api, over, made) = (world.api.clone(), Arc::clone(&over), Arc::clone(&made));
        asked.spawn(async move {
            let mut refused = 0;
            while !over.load(Ordering::Relaxed) {
                refused += until_answered(&api, made.fetch_add(1, Ordering::Relaxed) * 4 % 200 + lane).await;
            }
            refused
        });
    }
    // Once for less than whoever waits for a lock waits, and once for longer.
    for (other, holds) in OTHER_TYPES.into_iter().zip([Duration::from_secs(2), Duration::from_secs(6)]) {
        until_made(&made, 20).await;
        let config = world.plane.postgres.config("postgres");
        let options = PgConnectOptions::new().host(&config.host).username("postgres").database(&config.database);
        let mut step: PgConnection = options.connect().await.expect("connects");
        let adds = WRITTEN.map(|table| format!("ALTER TABLE {table} ADD COLUMN later_{other} text")).join("; ");
        let sql = format!("BEGIN; ALTER TABLE api_tokens ALTER COLUMN name TYPE {other}; {adds}");
        let until = Instant::now() + DEADLINE;
        while let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone())).execute(&mut step).await {
            // Its locks meet those of transactions that are under way, and the server ends one of them.
            assert!(Instant::now() < until, "{error}");
            sqlx::raw_sql("ROLLBACK").execute(&mut step).await.expect("it is there");
        }
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until_sql(&world, waits, "t").await;
        tokio::time::sleep(holds).await;
        sqlx::raw_sql("COMMIT").execute(&mut step).await.expect("it commits");
        step.close().await.expect("closes");
    }
    until_made(&made, 20).await;
    over.store(true, Ordering::Relaxed);
    let mut refused = 0;
    while let Some(not) = asked.join_next().await {
        refused += not.expect("no change is lost, and none is answered with anything but what it is");
    }
    assert!(refused > 0, "who waited for longer than a lock is waited for was told that nothing was changed");
    assert!(apply(&world.plane, &[FIRST]).status.success());
    is_whole(&world).await;
    world.plane.assert_runs();
}

/// Waits until so many changes more were begun.
async fn until_made(made: &AtomicUsize, more: usize) {
    let (wanted, deadline) = (made.load(Ordering::Relaxed) + more, Instant::now() + DEADLINE);
    while made.load(Ordering::Relaxed) < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} changes", made.load(Ordering::Relaxed));
        tokio::time::sleep(LOOK).await;
    }
}
