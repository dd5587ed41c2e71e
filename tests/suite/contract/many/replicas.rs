//! Who owns a session when there are several gateways, and what becomes of it when one of them dies, is held still or cannot write.

use std::time::Duration;

use holdfast_session::agent::CloseCause;
use holdfast_wire::code::RefusalCode;

use super::agent::{DEADLINE, Line, Live, Manner};
use super::stage::Stage;
use super::watch::Watch;

const SUPERSEDED: CloseCause = CloseCause::Theirs { code: RefusalCode::Superseded, retry_after_ms: 0 };
/// Of gateways that are killed or whose database goes away here.
const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c16_c17_a_newer_session_ends_the_older_one_on_one_replica_and_on_two_without_a_flicker() {
    let mut stage = Stage::start().await;
    let lively = [("HOLDFAST_AGENTS_LIVENESS_INTERVAL", "200ms")];
    let (one, two) = (stage.gateway("gateway-1", &lively), stage.gateway("gateway-2", &lively));
    let hosts = stage.enrol("web", 1).await;
    let names = vec![hosts[0].name.clone()];
    let watch = Watch::start(&stage.api);
    let mut first = dial(&hosts[0], &one).await;
    watch.until_all(&names, "converged").await;
    watch.forget();

    // On another replica: the first hears of it by what it writes next.
    let mut second = dial(&hosts[0], &two).await;
    assert_eq!(first.closed().await, SUPERSEDED);
    second.until("goes on", |line| line.taken == 4).await;
    watch.until_all(&names, "converged").await;
    // On the same.
    let mut third = dial(&hosts[0], &two).await;
    assert_eq!(second.closed().await, SUPERSEDED);
    third.until("goes on", |line| line.taken == 4).await;
    assert!(first.epoch < second.epoch && second.epoch < third.epoch);
    stage.sql_until("SELECT count(*) FROM events WHERE kind = 'session.closed'", "2").await;
    watch.until_all(&names, "converged").await;
    assert!(!watch.states("web-1").contains(&"unknown".to_owned()), "{:?}", watch.states("web-1"));
    assert_eq!(
        (one.metric("holdfast_gateway_sessions").await, two.metric("holdfast_gateway_sessions").await),
        (0.0, 1.0)
    );
    stage.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c28_c29_c30_what_is_built_for_a_session_that_moved_is_not_sent_and_a_frozen_replicas_late_words_change_nothing()
 {
    let mut stage = Stage::start().await;
    let lease = [("HOLDFAST_AGENTS_LEASE", "2s"), ("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")];
    let (one, two) = (stage.gateway("gateway-1", &lease), stage.gateway("gateway-2", &lease));
    let hosts = stage.enrol("web", 2).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);

    // C29: nobody tells the first replica that the host went elsewhere, and the next version is built there.
    let mut stale = dial(&hosts[0], &one).await;
    // It has said everything: a word of it that comes late would have its replica told before anything is built.
    watch.until_all(&names[..1], "converged").await;
    let mut current = dial(&hosts[0], &two).await;
    stage.render(&hosts[..1], 5).await;
    stage.hint(&hosts[..1]).await;
    assert_eq!(stale.closed().await, SUPERSEDED);
    assert_eq!(stale.policies.len(), 1, "nothing but its first state: {:?}", stale.policies);
    assert_eq!(one.metric("holdfast_gateway_moved_builds_total").await, 1.0);
    current.until("has it", |line| line.policies.len() == 2).await;

    // A replica is held still with an outcome and a goodbye in its sockets; the host goes elsewhere and holds the same there.
    let mut early = dial(&hosts[1], &one).await;
    watch.until_all(&names, "converged").await;
    early.hold = true;
    stage.render(&hosts[1..], 7).await;
    stage.hint(&hosts[1..]).await;
    early.until("is to apply", |line| line.held() == 1).await;
    one.service.signal("-STOP");
    early.release();
    early.step().await;
    drop(early);
    let mut late = dial(&hosts[1], &two).await;
    late.until("holds it", |line| line.policies.len() == 1 && line.taken == 4).await;
    watch.until_all(&names, "converged").await;
    let held = "SELECT count(*) FROM leases WHERE name LIKE 'gw%' AND expires_at > now()";
    stage.sql_until(held, "1").await;
    watch.forget();
    let of_host = format!("host_id = '{}'", hosts[1].host.uuid());
    let rows = format!(
        "SELECT (SELECT row_to_json(s) FROM sessions s WHERE {of_host}), (SELECT json_agg(o ORDER BY component) FROM observed o WHERE {of_host})"
    );
    let before = stage.postgres.sql(&rows);
    one.service.signal("-CONT");
    let stale = "SELECT count(*) FROM events WHERE kind = 'protocol.fault' AND payload ->> 'fault' = 'stale_session'";
    stage.sql_until(stale, "1").await;
    stage.sql_until(held, "2").await;
    while one.metric("holdfast_gateway_sessions").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stage.postgres.sql(&rows), before, "its late outcome and its late goodbye changed nothing");
    assert_eq!(watch.states(&hosts[1].name), ["converged"]);
    late.until("goes on", |line| line.ended.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replicas_hosts_are_offline_within_two_leases_and_an_absent_database_turns_no_host_offline() {
    let mut stage = Stage::start().await;
    let lease = [("HOLDFAST_AGENTS_LEASE", "2s")];
    let (mut one, two) = (stage.gateway("gateway-1", &lease), stage.gateway("gateway-2", &lease));
    let hosts = stage.enrol("web", 8).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    // The first three know no other gateway.
    let agents: Vec<Live> = (0_u64..)
        .zip(&hosts)
        .map(|(n, who)| {
            let gateways = if n < 3 { vec![one.address] } else { vec![one.address, two.address] };
            Live::start(who, &gateways, Manner::default(), n)
        })
        .collect();
    watch.until_all(&names, "converged").await;
    watch.forget();

    one.service.signal("-KILL");
    let killed = tokio::time::Instant::now();
    watch.until_all(&names[..3], "unknown").await;
    for name in &names[..3] {
        let (seen, _) = watch.history(name).pop().expect("it is unknown now");
        assert!(seen.duration_since(killed) < 2 * LEASE, "{name} after {:?}", seen.duration_since(killed));
    }
    stage.restart(&mut one);
    watch.until_all(&names, "converged").await;
    for name in &names {
        assert_away_once(name, &watch.states(name));
    }

    // As long without a beat as an absence is, without waiting for it.
    watch.forget();
    let sessions: Vec<usize> = agents.iter().map(|agent| agent.lived().opened.len()).collect();
    // No beat of those who still reach it comes between that and its end.
    stage.postgres.sql(
        "UPDATE pulse SET beat_at = now() - interval '11 s';
         CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER hold BEFORE UPDATE ON pulse FOR EACH ROW EXECUTE FUNCTION hold()",
    );
    stage.postgres.stop();
    tokio::time::sleep(LEASE + Duration::from_millis(500)).await;
    // What the API says before any gateway has claimed again.
    for gateway in [&one, &two] {
        gateway.service.signal("-STOP");
    }
    stage.postgres.start();
    stage.postgres.sql("DROP TRIGGER hold ON pulse; DROP FUNCTION hold()");
    watch.more_looks(5).await;
    for gateway in [&one, &two] {
        gateway.service.signal("-CONT");
    }
    let held = "SELECT count(*) FROM leases WHERE name LIKE 'gw%' AND expires_at > now()";
    stage.sql_until(held, "2").await;
    assert!(
        one.metric("holdfast_gateway_lease_lapses_total").await >= 1.0
            && two.metric("holdfast_gateway_lease_lapses_total").await >= 1.0
    );
    stage.render(&hosts, 3).await;
    stage.hint(&hosts).await;
    for agent in &agents {
        agent
            .until("has what came after", |lived| {
                lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 2)
            })
            .await;
    }
    watch.until_all(&names, "converged").await;
    for (name, (agent, before)) in names.iter().zip(agents.iter().zip(sessions)) {
        assert!(!watch.states(name).contains(&"unknown".to_owned()), "{name}: {:?}", watch.states(name));
        assert_eq!(agent.lived().opened.len(), before, "{name} keeps its session");
    }
}

/// Away once at most, and once it is back it stays: no look saw anything else.
fn assert_away_once(name: &str, states: &[String]) {
    let mut words: Vec<&str> = states.iter().map(String::as_str).collect();
    words.dedup_by(|next, before| *next == "progressing" && *before == "progressing");
    let is_right = matches!(
        words.as_slice(),
        ["converged", "unknown", "progressing", "converged"]
            | ["converged", "unknown", "converged"]
            | ["converged", "progressing", "converged"]
            | ["converged"]
    );
    assert!(is_right, "{name}: {words:?}");
}

/// A session with its first states. A replica that is held still may hold a lock for some seconds, and then the others say that they cannot open now.
async fn dial(who: &super::agent::Identity, gateway: &super::stage::Gateway) -> Line {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let mut line = Line::dial(who, gateway.address, Manner::default()).await.expect("it listens");
        line.until("gets its first states", |line| line.taken == 4 || line.ended.is_some()).await;
        match line.ended {
            None => return line,
            Some(CloseCause::Theirs { code: RefusalCode::AuthorityAway, .. })
                if tokio::time::Instant::now() < deadline => {}
            Some(cause) => panic!("{cause}"),
        }
    }
}
