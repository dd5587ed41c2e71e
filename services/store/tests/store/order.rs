//! The audit order: gap-free, whole transactions, causes before effects, whatever runs beside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_events::{CloseReason, Event, NumberedRecord};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::EventSeq;
use holdfast_model::statement::OutcomeKind;
use holdfast_store::order::Horizon;
use holdfast_store::session::{Closing, Opened};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::common::{Fleet, mk_change, mk_namespace, mk_opening, mk_report};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_get_one_gap_free_causal_order() {
    let fleet = Arc::new(Fleet::start().await);
    fleet.create_token("10.0.0.0/8", 20).await;
    let mut hosts = Vec::new();
    for n in 1..=4 {
        hosts.push(fleet.enrol(&format!("h{n}"), &format!("10.0.0.{n}")).await);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut numbering = JoinSet::new();
    {
        let (fleet, is_over) = (Arc::clone(&fleet), Arc::clone(&is_over));
        numbering.spawn(async move {
            let (mut horizon, mut total) = (Horizon::default(), 0);
            loop {
                let last_round = is_over.load(Ordering::Acquire);
                let numbered = fleet.renderer.number_events(fleet.term, horizon).await.expect("numbers");
                assert!(numbered.horizon >= horizon);
                horizon = numbered.horizon;
                total += numbered.count;
                assert_eq!(numbered.last.raw(), total, "numbers are dense at any moment");
                if last_round {
                    return (numbered.authority_epoch, numbered.last);
                }
            }
        });
    }
    let mut writers = JoinSet::new();
    for n in 0..4 {
        writers.spawn(write_sessions(Arc::clone(&fleet), hosts.clone()));
        writers.spawn(write_intent(Arc::clone(&fleet), n));
    }
    writers.join_all().await;
    is_over.store(true, Ordering::Release);
    let (epoch, last) = numbering.join_next().await.expect("one task").expect("numbers");
    let mut events = Vec::new();
    while u64::try_from(events.len()) != Ok(last.raw()) {
        let next = EventSeq::from_raw(u64::try_from(events.len()).expect("few") + 1);
        let page = fleet.operators.events_from(epoch, next, 500).await.expect("reads");
        assert!(!page.is_empty());
        events.extend(page);
    }
    let (left, _) = fleet.renderer.unnumbered(Horizon::default()).await.expect("counts");
    assert_eq!(left, 0, "every event has its number");
    check_order(&fleet, &events);
}

async fn write_sessions(fleet: Arc<Fleet>, hosts: Vec<HostId>) {
    let gateway = GatewayId::new(Uuid::now_v7());
    for _ in 0..15 {
        let openings = hosts.iter().copied().map(mk_opening).collect();
        let opened = fleet.agents.open_sessions(gateway, openings).await.expect("opens");
        let epochs = hosts.iter().zip(opened).map(|(host, opened)| match opened {
            Opened::Session { session_epoch, .. } => (*host, session_epoch),
            Opened::Contested { .. } | Opened::UnknownHost | Opened::UnknownCertificate => panic!("enrolled"),
        });
        let epochs: Vec<_> = epochs.collect();
        let reports = epochs.iter().map(|(host, epoch)| mk_report(*host, *epoch, 1, 1, OutcomeKind::Applied)).collect();
        fleet.agents.record_outcomes(gateway, reports).await.expect("records");
        let closing =
            |(host, session_epoch): (HostId, _)| Closing { host, session_epoch, reason: CloseReason::AgentLeft };
        fleet.agents.close_sessions(gateway, epochs.into_iter().map(closing).collect()).await.expect("closes");
    }
}

async fn write_intent(fleet: Arc<Fleet>, n: u32) {
    for round in 0..15 {
        let objects = (0..3).map(|k| mk_namespace(&format!("n{n}-{k}"), &format!("r{round}"))).collect();
        fleet.operators.apply_intent(mk_change(objects)).await.expect("applies");
    }
}

fn check_order(fleet: &Fleet, events: &[NumberedRecord]) {
    for (event, n) in events.iter().zip(1..) {
        assert_eq!(event.seq.raw(), n);
    }
    // No transaction is torn: its events are neighbours.
    let torn = "WITH o AS (SELECT e.xid, o.seq FROM event_order o JOIN events e USING (event_id)) \
                SELECT count(*) FROM (SELECT xid FROM o GROUP BY xid HAVING max(seq) - min(seq) + 1 <> count(*)) t";
    assert_eq!(fleet.server.sql(torn), "0\n");
    // Causes come first: revisions rise, epochs of a host rise, an outcome follows its session's beginning and comes before its end.
    let (mut revision, mut open) = (0, BTreeMap::new());
    for event in events {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others have no order among themselves here")]
        match &event.record.event {
            Event::OperationAccepted(e) => {
                assert!(e.revision.raw() > revision, "revision {} after {revision}", e.revision);
                revision = e.revision.raw();
            }
            Event::ObjectPut(e) => assert_eq!(e.revision.raw(), revision, "an object with its own operation"),
            Event::SessionOpened(e) => {
                let before = open.insert(e.host, (e.session_epoch, true));
                assert!(before.is_none_or(|(epoch, is_open)| epoch < e.session_epoch && !is_open), "{before:?}");
            }
            Event::SessionClosed(e) => {
                assert_eq!(open.insert(e.host, (e.session_epoch, false)), Some((e.session_epoch, true)));
            }
            Event::OutcomeRecorded(e) => assert_eq!(open.get(&e.host), Some(&(e.session_epoch, true))),
            _ => {}
        }
    }
    assert_eq!(revision, 60 + 4, "60 changes and 4 enrolments");
}

#[tokio::test]
async fn an_event_of_a_transaction_in_progress_gets_its_place_when_it_is_there() {
    let fleet = Fleet::start().await;
    let first = fleet.renderer.number_events(fleet.term, Horizon::default()).await.expect("numbers");
    let insert = "INSERT INTO events (event_id, actor, kind, subjects, payload) \
                  VALUES (gen_random_uuid(), 'renderer', 'token.api.revoked', '{}', '{}')";
    // The slow one takes its numbers first and commits last.
    let slow = format!("BEGIN; {insert}; SELECT pg_advisory_lock(1); COMMIT");
    fleet.server.sql("CREATE TABLE gate (open boolean)");
    let holder = hold_gate(&fleet);
    let waiter = {
        let config = fleet.server.config("postgres");
        std::thread::spawn(move || psql(&config.host, &slow))
    };
    wait_for(&fleet, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "1\n");
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let second = fleet.renderer.number_events(fleet.term, first.horizon).await.expect("numbers");
    assert_eq!(second.count, 2, "the operation and its object, not the one in progress");
    fleet.server.sql("INSERT INTO gate VALUES (true)");
    holder.join().expect("the holder");
    waiter.join().expect("the slow one");
    let third = fleet.renderer.number_events(fleet.term, second.horizon).await.expect("numbers");
    assert_eq!((third.count, third.last.raw()), (1, second.last.raw() + 1));
    let again = fleet.renderer.number_events(fleet.term, third.horizon).await.expect("numbers");
    assert_eq!(again.count, 0);
}

fn psql(socket: &str, sql: &str) {
    let status = std::process::Command::new("psql")
        .args(["-h", socket, "-U", "postgres", "-d", "holdfast", "-qAtX", "-c", sql])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.expect("psql runs").success());
}

/// Holds the lock that the slow one waits for until the gate is open.
fn hold_gate(fleet: &Fleet) -> std::thread::JoinHandle<()> {
    let socket = fleet.server.config("postgres").host;
    let sql = "SELECT pg_advisory_lock(1); \
               DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$";
    let script = format!("SELECT pg_advisory_lock(1) \\g\n{}", &sql["SELECT pg_advisory_lock(1); ".len()..]);
    let holder = std::thread::spawn(move || {
        let mut child = std::process::Command::new("psql")
            .args(["-h", &socket, "-U", "postgres", "-d", "holdfast", "-qAtX"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("psql runs");
        use std::io::Write;
        child.stdin.take().expect("piped").write_all(format!("{script};\n").as_bytes()).expect("writes");
        assert!(child.wait().expect("ends").success());
    });
    wait_for(fleet, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted", "1\n");
    holder
}

fn wait_for(fleet: &Fleet, sql: &str, wanted: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while fleet.server.sql(sql) != wanted {
        assert!(std::time::Instant::now() < deadline, "{sql} does not become {wanted}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
