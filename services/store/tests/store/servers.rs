//! Which server of several is asked, and what a promotion loses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::intent::Intent;
use holdfast_model::numbers::Revision;
use holdfast_store::testing::TestPostgres;
use holdfast_store::{Error, Retry, Servers, Store, WrongServer};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor as _};

use tokio::task::JoinSet;

use crate::common::{Fleet, mk_change, mk_namespace};

/// How long a pool may take until it has the server that it is to ask.
const FOUND: Duration = Duration::from_secs(20);

#[tokio::test]
async fn f29_a_standby_is_refused_by_name_for_every_question_until_it_leads() {
    let mut fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let mut standby = fleet.server.standby(5433);
    let store = standby.store("holdfast_gateway_operators");
    let asked = Instant::now();
    for error in [
        store.ping().await.expect_err("a read of one state"),
        store.latest_revision().await.map(drop).expect_err("a read of one statement"),
        store.apply_intent(mk_change(vec![mk_namespace("b", "x")])).await.map(drop).expect_err("a change"),
        store.check_migrated().await.expect_err("what readiness asks"),
    ] {
        assert!(matches!(error, Error::WrongServer(WrongServer::Standby)), "{error:?}");
        assert_eq!((error.rule(), error.retry()), ("database-standby", Retry::After(Duration::from_secs(1))));
    }
    assert!(asked.elapsed() < Duration::from_secs(4), "it is said at once, not when the wait for a connection is over");
    fleet.server.stop();
    standby.promote();
    assert_eq!(answered(&store).await.raw(), 1);
    standby.stop();
}

#[tokio::test]
async fn f27_a_former_primary_at_the_address_is_refused_by_all_that_saw_its_successor() {
    let mut fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let mut next = fleet.server.standby(5433);
    fleet.server.stop();
    next.promote();
    next.take_address_of(&mut fleet.server);
    fleet.put_when_answered(mk_namespace("b", "x")).await;

    // The old one comes back, able to write, where everybody looks for it.
    fleet.server.start();
    fleet.server.take_address_of(&mut next);
    next.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'holdfast%'");
    let refused = [
        fleet.operators.latest_revision().await.map(drop).expect_err("it is not read"),
        fleet.operators.apply_intent(mk_change(vec![mk_namespace("c", "x")])).await.map(drop).expect_err("nor written"),
    ];
    for error in refused {
        assert!(matches!(error, Error::WrongServer(WrongServer::Former { found: 1, seen: 2 })), "{error:?}");
        assert_eq!(error.rule(), "database-former-primary");
    }
    assert_eq!(fleet.server.sql("SELECT max(revision) FROM revisions").trim(), "1", "nothing was written to it");
    next.take_address_of(&mut fleet.server);
    assert_eq!(answered(&fleet.operators).await.raw(), 2);
    next.stop();
}

#[tokio::test]
async fn f27_no_connection_that_still_stands_is_used_once_its_server_is_known_to_have_a_successor() {
    let Split { fleet, next } = Split::start().await;
    see_successor(&fleet.operators, &next).await;
    for n in 0..6 {
        fleet.put(vec![mk_namespace(&format!("n{n}"), "x")]).await;
        assert_eq!(
            fleet.operators.latest_revision().await.expect("reads").raw(),
            n + 2,
            "each read is of the successor"
        );
    }
    assert_eq!(
        fleet.server.sql("SELECT max(revision) FROM revisions").trim(),
        "1",
        "nothing is written to the old one"
    );
    let deadline = Instant::now() + FOUND;
    while fleet.server.sql(CONNECTIONS).trim() != "0" {
        assert!(Instant::now() < deadline, "a connection to the old one is kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn f27_what_one_store_of_a_process_has_seen_of_its_servers_holds_for_the_others() {
    let Split { fleet, next } = Split::start().await;
    let servers = Servers::default();
    let among = |server: &TestPostgres| {
        Store::connect_lazily_among(&server.config("holdfast_gateway_operators"), servers.clone())
    };
    let [first, other] = [&fleet.server, &next].map(among);
    assert_eq!(first.latest_revision().await.expect("reads").raw(), 1);
    see_successor(&other, &next).await;
    let error = first.latest_revision().await.map(drop).expect_err("its own server is a former one");
    assert!(matches!(error, Error::WrongServer(WrongServer::Former { found: 1, seen: 2 })), "{error:?}");
}

#[tokio::test]
async fn f27_a_change_that_is_under_way_when_a_successor_is_seen_is_not_committed_where_it_began() {
    let Split { fleet, next } = Split::start().await;
    let old = fleet.server.config("postgres");
    let options = PgConnectOptions::new().socket(&old.host).port(old.port).username(&old.user).database(&old.database);
    let mut holder = PgConnection::connect_with(&options).await.expect("it runs");
    holder.execute("BEGIN; LOCK TABLE revisions").await.expect("it is free");
    let mut changing = JoinSet::new();
    let operators = fleet.operators.clone();
    changing.spawn(async move { operators.apply_intent(mk_change(vec![mk_namespace("b", "x")])).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let deadline = Instant::now() + FOUND;
    while fleet.server.sql(waits).trim() != "1" {
        assert!(Instant::now() < deadline, "the change is at work on the connection that was kept");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    see_successor(&fleet.operators, &next).await;
    holder.execute("ROLLBACK").await.expect("it holds");
    changing.join_next().await.expect("it was begun").expect("no panic").expect("it is done anew where it lasts");
    assert_eq!(fleet.server.sql("SELECT max(revision) FROM revisions").trim(), "1");
    assert_eq!(next.sql("SELECT max(revision) FROM revisions").trim(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_no_change_that_was_answered_is_lost_when_a_synchronous_standby_takes_over_again_and_again() {
    standbys_take_over(3).await;
}

/// A standby that every commit waits for takes over, so many times, while somebody asks for changes all the time.
async fn standbys_take_over(times: u16) {
    let Fleet { mut server, operators, .. } = Fleet::start().await;
    let over = Arc::new(AtomicBool::new(false));
    let mut editing = JoinSet::new();
    editing.spawn(edit(operators.clone(), Arc::clone(&over)));
    for n in 0..times {
        let mut next = server.standby(5433 + n);
        server.wait_for_standbys();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.stop();
        next.promote();
        next.take_address_of(&mut server);
        server = next;
        answered(&operators).await;
    }
    over.store(true, Ordering::Relaxed);
    let edited = editing.join_next().await.expect("somebody edits");
    let (answered, asked) = edited.expect("every edit came to its end");
    let (_, intent) = operators.load_intent(None).await.expect("reads");
    let lost = missing(&intent, &answered);
    assert!(lost.is_empty(), "{lost:?} of {asked}");
    assert!(answered.len() > 30 && usize::try_from(asked).expect("few") > answered.len(), "{answered:?} of {asked}");
    let numbers = "SELECT count(*) = count(DISTINCT revision) AND count(*) = max(revision) FROM revisions";
    assert_eq!(server.sql(numbers).trim(), "t", "each revision once, without a hole");
    server.stop();
}

/// Which of these changes are not there.
fn missing(intent: &Intent, changes: &[u32]) -> Vec<u32> {
    let there = |n: &u32| intent.objects.keys().any(|key| key.name.as_str() == format!("n{n}"));
    changes.iter().copied().filter(|n| !there(n)).collect()
}

/// Asks for one change after the other, each once, until told that it is over: those that were answered, and how many were asked for.
async fn edit(operators: Store, over: Arc<AtomicBool>) -> (Vec<u32>, u32) {
    let (mut answered, mut n) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let change = mk_change(vec![mk_namespace(&format!("n{n}"), "x")]);
        match operators.apply_intent(change).await {
            Ok(_) => answered.push(n),
            Err(error) => tokio::time::sleep(retry(&error)).await,
        }
        n += 1;
    }
    (answered, n)
}

fn retry(error: &Error) -> Duration {
    match error.retry() {
        Retry::After(wait) => wait.min(Duration::from_millis(100)),
        Retry::Now | Retry::Never => Duration::from_millis(10),
    }
}

/// The newest revision, once a server that is to be asked answers.
async fn answered(store: &Store) -> Revision {
    let deadline = Instant::now() + FOUND;
    loop {
        match store.latest_revision().await {
            Ok(revision) => return revision,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The connections of the operators' store.
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'holdfast_gateway_operators'";

/// A former primary that still runs and holds one connection of the operators' store, and its successor, at the address.
struct Split {
    fleet: Fleet,
    next: TestPostgres,
}

impl Split {
    async fn start() -> Self {
        let mut fleet = Fleet::start().await;
        fleet.put(vec![mk_namespace("a", "x")]).await;
        let mut next = fleet.server.standby(5433);
        next.promote();
        next.take_address_of(&mut fleet.server);
        assert_eq!(fleet.server.sql(CONNECTIONS).trim(), "1");
        Self { fleet, next }
    }
}

/// Has a store connect anew until one of its connections is the successor's.
async fn see_successor(store: &Store, next: &TestPostgres) {
    let deadline = Instant::now() + FOUND;
    while next.sql(CONNECTIONS).trim() == "0" {
        assert!(Instant::now() < deadline, "no connection is opened");
        let mut asking = JoinSet::new();
        for _ in 0..4 {
            let store = store.clone();
            asking.spawn(async move { store.ping().await });
        }
        while let Some(asked) = asking.join_next().await {
            asked.expect("no panic").expect("somebody answers");
        }
    }
}

impl Fleet {
    async fn put_when_answered(&self, object: holdfast_model::intent::Object) {
        answered(&self.operators).await;
        self.put(vec![object]).await;
    }
}

/// What takes longer, or needs `strace`.
mod long_faults {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f26_ten_synchronous_standbys_take_over_one_after_the_other_and_nothing_that_was_answered_is_lost() {
        standbys_take_over(10).await;
    }

    #[tokio::test]
    async fn f24_a_disk_that_cannot_sync_a_commit_ends_the_server_and_it_recovers_with_all_that_was_answered() {
        let mut server = TestPostgres::start_migrated().await;
        server.restart_durable();
        let operators = server.store("holdfast_gateway_operators");
        let mut answered = Vec::new();
        for round in 0..3 {
            for _ in 0..3 {
                let n = u32::try_from(answered.len()).expect("few");
                operators.apply_intent(mk_change(vec![mk_namespace(&format!("n{n}"), "x")])).await.expect("it is well");
                answered.push(n);
            }
            let faults = Faults::of_syncs(&server, "holdfast_gateway_operators");
            let change = mk_change(vec![mk_namespace(&format!("r{round}"), "x")]);
            let error = operators.apply_intent(change.clone()).await.map(drop).expect_err("its commit is not synced");
            assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
            drop(faults);
            super::answered(&operators).await;
            assert_eq!(server.log().matches("PANIC").count(), round + 1, "{}", server.log());
            // Whatever became of it, it is there once after it was asked for again.
            operators.apply_intent(change).await.expect("it takes changes again, and nobody did anything");
        }
        let (_, intent) = operators.load_intent(None).await.expect("reads");
        let lost = missing(&intent, &answered);
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!(intent.objects.len(), answered.len() + 3);
        server.stop();
    }

    /// Processes of a server that are told of an I/O error when they next sync, until the value goes.
    struct Faults(Child);

    impl Faults {
        fn of_syncs(server: &TestPostgres, role: &str) -> Self {
            let pids = server.sql(&format!("SELECT pid FROM pg_stat_activity WHERE usename = '{role}'"));
            let count = pids.lines().count();
            assert!(count > 0, "{role} has a connection");
            let mut strace = Command::new("strace");
            strace.args(["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"]);
            strace.args(pids.lines().flat_map(|pid| ["-p", pid]));
            let mut child = strace.stderr(Stdio::piped()).spawn().expect("strace is installed");
            let said = BufReader::new(child.stderr.take().expect("it is piped"));
            let attached = said.lines().map_while(Result::ok).filter(|line| line.ends_with("attached")).take(count);
            assert_eq!(attached.count(), count, "strace holds each");
            Self(child)
        }
    }

    impl Drop for Faults {
        fn drop(&mut self) {
            // It may have ended with those that it held.
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}
