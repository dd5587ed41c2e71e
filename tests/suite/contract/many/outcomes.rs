//! What becomes of outcomes that are lost, late, or of less than the newest, between real processes.

use super::agent::{Came, DEADLINE, Line, Manner};
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

fn came(line: &Line) -> Vec<(&'static str, u64, bool)> {
    line.policies.iter().map(|Came { form, stamp, taken }| (*form, stamp.version.raw(), *taken)).collect()
}
