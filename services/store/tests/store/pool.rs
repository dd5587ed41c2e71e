//! Connections: what a cancelled caller, a dead server and a silent server leave behind.

use std::time::{Duration, Instant};

use holdfast_store::{Error, Retry};

use crate::common::{Fleet, mk_change, mk_namespace};

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_transaction_open_and_its_change_whole() {
    let fleet = Fleet::start().await;
    for n in 0..150_u64 {
        let change = mk_change(vec![mk_namespace(&format!("n{n}"), "x"), mk_namespace(&format!("m{n}"), "x")]);
        // Cut at every depth from before the first byte to after the answer.
        drop(tokio::time::timeout(Duration::from_micros(n * 40), fleet.operators.apply_intent(change)).await);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' OR \
                (state = 'active' AND usename = 'holdfast_gateway_operators')";
    while fleet.server.sql(open) != "0\n" {
        assert!(Instant::now() < deadline, "a transaction is left open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (revision, intent) = fleet.operators.load_intent(None).await.expect("loads");
    let halves = intent.objects.len();
    assert_eq!(u64::try_from(halves).expect("few"), revision.raw() * 2, "each change is there whole or not at all");
}

#[tokio::test]
async fn a_crashed_server_is_found_and_the_pool_recovers_without_a_restart() {
    let mut fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    fleet.server.stop();
    let error = fleet.operators.latest_revision().await.expect_err("nobody answers");
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    fleet.server.start();
    let revision = fleet.operators.latest_revision().await.expect("answers again");
    assert_eq!(revision.raw(), 1);
}

#[tokio::test]
async fn connections_that_the_server_ended_are_replaced_unseen() {
    let fleet = Fleet::start().await;
    for _ in 0..3 {
        fleet.operators.latest_revision().await.expect("answers");
        fleet.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'holdfast%'");
        fleet.put(vec![mk_namespace("a", "x")]).await;
    }
}

#[tokio::test]
async fn a_statement_that_waits_for_a_lock_gives_up_and_says_so() {
    let fleet = Fleet::start().await;
    let config = fleet.server.config("postgres");
    let holder = std::thread::spawn(move || {
        std::process::Command::new("psql")
            .args(["-h", &config.host, "-U", "postgres", "-d", "holdfast", "-qAtX", "-c"])
            .arg("BEGIN; LOCK TABLE authority IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(30)")
            .output()
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let locked =
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'authority'::regclass";
    while fleet.server.sql(locked) == "0\n" {
        assert!(Instant::now() < deadline, "the lock is not taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = fleet.operators.load_authority().await.expect_err("waits in vain");
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    fleet.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid()");
    holder.join().expect("the holder").expect("psql runs");
    fleet.operators.load_authority().await.expect("answers");
}
