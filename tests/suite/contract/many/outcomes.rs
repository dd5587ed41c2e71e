//! What becomes of outcomes that are lost, late, of less than the newest, or of nothing that was sent, between real processes.

use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_model::numbers::UpdateSeq;

use super::agent::{Came, DEADLINE, Line, Manner};
use super::scripted::Scripted;
use super::stage::Stage;
use super::watch::Watch;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c01_c02_c06_c14_outcomes_that_are_lost_failed_in_flight_or_below_the_newest_are_never_taken_for_more() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let hosts = stage.enrol("web", 1).await;
    let (who, names) = (hosts[0].clone(), vec![hosts[0].name.clone()]);
    let dial = async |manner| Line::dial(&who, gateway.address, manner).await.expect("it listens");
    let watch = Watch::start(&stage.api);
    let mut line = dial(Manner::default()).await;
    line.until("has its first states", |line| line.taken == 4).await;
    watch.until_all(&names, "converged").await;

    // C1: applied, and the link goes before anybody hears of it. The next session begins with the whole, and it counts then.
    line.hold = true;
    stage.render(&hosts, 600).await;
    stage.hint(&hosts).await;
    line.until("is to apply", |line| line.held() == 1).await;
    assert_no_transaction_waits(&stage).await;
    line.release();
    drop(line);
    assert_eq!(stage.postgres.sql("SELECT applied_version FROM observed WHERE component = 1").trim(), "1");
    let mut line = dial(Manner { fails_above: Some(2), ..Manner::default() }).await;
    line.until("has it again", |line| line.taken == 4).await;
    assert_eq!(came(&line), [("snapshot", 2, true)]);
    watch.until_all(&names, "converged").await;

    // C2: it failed one and its recovery, and stayed behind; then it comes back.
    stage.render(&hosts, 601).await;
    stage.hint(&hosts).await;
    line.until("failed twice", |line| line.policies.len() == 3).await;
    assert_eq!(came(&line), [("snapshot", 2, true), ("delta", 3, false), ("snapshot", 3, false)]);
    watch.until_all(&names, "failed").await;
    drop(line);
    let mut line = dial(Manner { fails_once_at: Some(4), ..Manner::default() }).await;
    line.until("has all", |line| line.taken == 4).await;
    assert_eq!(came(&line), [("snapshot", 3, true)]);
    watch.until_all(&names, "converged").await;

    // C6: a render comes while the recovery is in flight: a delta from the recovery, not from what failed.
    stage.render(&hosts, 602).await;
    stage.hint(&hosts).await;
    line.until("failed once", |line| line.policies.len() == 2).await;
    line.hold = true;
    line.until("is to recover", |line| line.held() == 1).await;
    let written = gateway.metric("holdfast_gateway_updates_total").await;
    stage.render(&hosts, 603).await;
    stage.hint(&hosts).await;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while gateway.metric("holdfast_gateway_updates_total").await < written + 1.0 {
        assert!(tokio::time::Instant::now() < deadline, "the next one is not written");
    }
    // C14: of two that are in flight the first counts for itself alone.
    line.release_one();
    line.until("is to go on", |line| line.held() == 1).await;
    stage.sql_until("SELECT applied_version FROM observed WHERE component = 1", "4").await;
    watch.more_looks(3).await;
    assert_eq!(watch.states(&who.name).last().map(String::as_str), Some("progressing"), "4 of 5 is not all");
    line.release();
    line.until("has the newest", |line| line.policies.len() == 4).await;
    assert_eq!(came(&line)[1..], [("delta", 4, false), ("snapshot", 4, true), ("delta", 5, true)]);
    watch.until_all(&names, "converged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c04_updates_in_flight_behind_one_that_failed_lead_to_one_recovery_and_none_of_them_to_another() {
    const UPDATES: &str = "holdfast_gateway_updates_total";
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let hosts = stage.enrol("web", 1).await;
    let (who, names) = (hosts[0].clone(), vec![hosts[0].name.clone()]);
    let watch = Watch::start(&stage.api);
    let manner = Manner { fails_once_at: Some(2), ..Manner::default() };
    let mut line = Line::dial(&who, gateway.address, manner).await.expect("it listens");
    line.until("has its first states", |line| line.taken == 4).await;
    watch.until_all(&names, "converged").await;
    let before = gateway.metric(UPDATES).await;
    line.hold = true;
    for (n, members) in (1_u32..=4).zip(600..) {
        stage.render(&hosts, members).await;
        stage.hint(&hosts).await;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while gateway.metric(UPDATES).await < before + f64::from(n) {
            assert!(tokio::time::Instant::now() < deadline, "update {n} is not written");
        }
    }
    // The first of the four fails, and what the others build on is not there.
    line.release();
    line.until("has recovered", |line| came(line).last() == Some(&("snapshot", 5, true))).await;
    watch.until_all(&names, "converged").await;
    let all = came(&line);
    let failed: Vec<_> = all.iter().filter(|(_, _, taken)| !taken).map(|(_, version, _)| *version).collect();
    assert_eq!(failed, [2, 3, 4, 5], "{all:?}");
    // The first states are one update too; of the four and one recovery nothing was sent twice.
    assert_eq!((all.len(), gateway.metric(UPDATES).await), (6, before + 5.0), "{all:?}");
    let failures = "SELECT count(*) FROM events WHERE kind = 'outcome.recorded' AND payload->>'kind' = 'failed'";
    assert_eq!(stage.postgres.sql(failures).trim(), "4", "each is recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_c32_signed_outcomes_of_what_was_never_sent_is_another_version_or_was_answered_are_one_fault_each_by_its_name()
 {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let hosts = stage.enrol("web", 1).await;
    let (who, names) = (hosts[0].clone(), vec![hosts[0].name.clone()]);
    let watch = Watch::start(&stage.api);
    let mut line = Line::dial(&who, gateway.address, Manner::default()).await.expect("it listens");
    line.until("has its first states", |line| line.taken == 4).await;
    watch.until_all(&names, "converged").await;
    let observed = "SELECT json_agg(o ORDER BY component) FROM observed o";
    let faults = "SELECT string_agg(payload ->> 'fault' || ' ' || (payload ->> 'update_seq'), ', ' ORDER BY lid) \
                  FROM events WHERE kind = 'protocol.fault'";

    // One version is in flight, and the next is rendered and not sent.
    line.hold = true;
    stage.render(&hosts, 600).await;
    stage.hint(&hosts).await;
    line.until("is to apply", |line| line.held() == 1).await;
    stage.render(&hosts, 601).await;
    let (sent, right) = line.first_held();
    let (unsent, next) = (UpdateSeq::from_raw(sent.raw() + 1), Stage::stamp(3, 601));
    assert_eq!(right, Stage::stamp(2, 600));
    let before = stage.postgres.sql(observed);
    line.say_raw(&who, unsent, next, next).await;
    let mut told = format!("unknown_update {}", unsent.raw());
    stage.sql_until(faults, &told).await;
    line.say_raw(&who, sent, next, next).await;
    told.push_str(&format!(", outcome_mismatch {}", sent.raw()));
    stage.sql_until(faults, &told).await;
    line.say_raw(&who, sent, right, next).await;
    told.push_str(&format!(", outcome_contradiction {}", sent.raw()));
    stage.sql_until(faults, &told).await;
    assert_eq!(stage.postgres.sql(observed), before, "none of them counts");

    // What was sent counts as before, once.
    line.release();
    line.step().await;
    stage.sql_until("SELECT applied_version FROM observed WHERE component = 1", "2").await;
    let before = stage.postgres.sql(observed);
    line.say_raw(&who, sent, right, right).await;
    told.push_str(&format!(", unknown_update {}", sent.raw()));
    stage.sql_until(faults, &told).await;
    assert_eq!(stage.postgres.sql(observed), before, "not twice");

    // The session goes on, and nothing more was said of any of it.
    stage.hint(&hosts).await;
    line.until("has the newest", |line| line.policies.len() == 3).await;
    assert_eq!(came(&line)[1..], [("snapshot", 2, true), ("delta", 3, true)]);
    watch.until_all(&names, "converged").await;
    assert_eq!(stage.postgres.sql(faults).trim(), told);
    assert_eq!(gateway.metric("holdfast_gateway_faults_total").await, 4.0, "each is counted once");
    assert_eq!(stage.postgres.sql("SELECT count(*) FROM events WHERE kind = 'outcome.recorded'").trim(), "6");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c33_outcomes_that_never_come_hold_nothing_back_lead_to_nothing_and_prove_nothing() {
    const UPDATES: &str = "holdfast_gateway_updates_total";
    const COMPARES: &str = "holdfast_gateway_compares_total";
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "500ms")]);
    let hosts = stage.enrol("web", 1).await;
    let names = vec![hosts[0].name.clone()];
    let watch = Watch::start(&stage.api);
    let mut host = Scripted::open_whole(&hosts[0], gateway.address, [127, 0, 0, 1]).await;
    host.be_well().await;
    watch.until_all(&names, "converged").await;
    let before = gateway.metric(UPDATES).await;

    // The one after it does not wait for the outcome, and counts for itself.
    for (version, members) in [(2, 600), (3, 601)] {
        stage.render(&hosts, members).await;
        stage.hint(&hosts).await;
        assert_eq!(host.take().await, Component::Policy);
        assert_eq!(host.stamp(Component::Policy), Stage::stamp(version, members));
    }
    host.policy_is_well().await;
    stage.sql_until("SELECT applied_version FROM observed WHERE component = 1", "3").await;
    // What was seen before may be of what was before.
    watch.more_looks(2).await;
    watch.until_all(&names, "converged").await;

    // Of the newest none comes: nothing is sent for that, whoever looks.
    stage.render(&hosts, 602).await;
    stage.hint(&hosts).await;
    assert_eq!(host.take().await, Component::Policy);
    watch.more_looks(2).await;
    watch.until_all(&names, "progressing").await;
    watch.forget();
    let compares = gateway.metric(COMPARES).await;
    gateway.metric_until(COMPARES, &[], compares + 3.0).await;
    watch.more_looks(3).await;
    assert_eq!(watch.states(&names[0]), ["progressing"]);
    assert_eq!(gateway.metric(UPDATES).await, before + 3.0, "each once");
    assert_eq!(gateway.metric("holdfast_gateway_faults_total").await, 0.0);

    // The next session begins with the whole, and that is answered.
    host.leave().await;
    let mut host = Scripted::open_whole(&hosts[0], gateway.address, [127, 0, 0, 1]).await;
    assert_eq!(host.stamp(Component::Policy), Stage::stamp(4, 602));
    host.be_well().await;
    watch.until_all(&names, "converged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a22_a_host_whose_connection_is_dropped_is_offline_at_once_and_its_session_was_lost() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[]);
    let hosts = stage.enrol("web", 2).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    let mut lines = Vec::new();
    for who in &hosts {
        let mut line = Line::dial(who, gateway.address, Manner::default()).await.expect("it listens");
        line.until("has its first states", |line| line.taken == 4).await;
        lines.push(line);
    }
    watch.until_all(&names, "converged").await;
    watch.forget();

    // Without a goodbye, as a process that is killed.
    drop(lines.remove(0));
    watch.until_all(&names[..1], "unknown").await;
    let page = stage.api.get("/v1/hosts?limit=500").await.expect("the API answers");
    let syncs: Vec<_> = page["items"].as_array().expect("a page").iter().map(|host| &host["sync"]).collect();
    assert_eq!(syncs, ["OFFLINE", "SYNCED"]);
    let reasons = format!(
        "SELECT s.close_reason || ' ' || (e.payload ->> 'reason') FROM sessions s, events e \
         WHERE s.host_id = '{}' AND e.kind = 'session.closed'",
        hosts[0].host.uuid()
    );
    assert_eq!(stage.postgres.sql(&reasons).trim(), "lost lost");
    assert_eq!(watch.states(&names[1]), ["converged"], "the other stays");
    assert_eq!(gateway.metric("holdfast_gateway_sessions").await, 1.0);

    let mut line = Line::dial(&hosts[0], gateway.address, Manner::default()).await.expect("it listens");
    line.until("is back", |line| line.taken == 4).await;
    watch.until_all(&names, "converged").await;
}

/// I19: while a host holds its outcome back and an operator waits for it, no transaction is open that does nothing.
async fn assert_no_transaction_waits(stage: &Stage) {
    let idle = "SELECT count(*) FROM pg_stat_activity \
                WHERE state LIKE 'idle in transaction%' AND now() - xact_start > interval '500 ms'";
    let mut waiting = std::pin::pin!(stage.api.get("/v1/status?wait=1500ms"));
    loop {
        assert_eq!(stage.postgres.sql(idle).trim(), "0");
        tokio::select! {
            answer = &mut waiting => {
                assert_eq!(answer.expect("the API answers")["wait"], "time-over", "it was open the whole time");
                return;
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
}

fn came(line: &Line) -> Vec<(&'static str, u64, bool)> {
    line.policies.iter().map(|Came { form, stamp, taken }| (*form, stamp.version.raw(), *taken)).collect()
}
