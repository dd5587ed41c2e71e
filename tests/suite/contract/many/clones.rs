//! Two agents with one identity, as a copied state folder makes them.

use std::time::Duration;

use holdfast_session::agent::CloseCause;
use holdfast_wire::code::RefusalCode;
use uuid::Uuid;

use super::agent::{Line, Live, Manner};
use super::stage::Stage;

/// Told to another agent of a contested identity at most: how long the first one has the session.
const HOLD_MS: u32 = 60_000;
const CONTESTED: &str = "SELECT count(*) FROM events WHERE kind = 'session.contested'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c17_two_agents_with_one_identity_are_told_with_both_addresses_and_held_apart_and_one_that_restarts_is_not() {
    let mut stage = Stage::start().await;
    // Superseded sessions are found soon, so that the two are quick.
    let quick = [("HOLDFAST_AGENTS_COMPARE_INTERVAL", "500ms")];
    let (one, two) = (stage.gateway("gateway-1", &quick), stage.gateway("gateway-2", &quick));
    let hosts = stage.enrol("web", 2).await;
    let (restarts, copied) = (&hosts[0], &hosts[1]);

    // An agent that is killed again and again, and comes back here and there while its last session is still open.
    for n in 0..6_u64 {
        let gateway = if n % 2 == 0 { &one } else { &two };
        let mut line = Line::dial(restarts, gateway.address, Manner::default()).await.expect("it listens");
        line.until("is let in", |line| line.epoch.is_some()).await;
    }
    // One whose host boots anew in between.
    for n in 0..4 {
        let manner = Manner { boot_id: Uuid::from_u128(100 + n), ..Manner::default() };
        let mut line = Line::dial(restarts, one.address, manner).await.expect("it listens");
        line.until("is let in", |line| line.epoch.is_some()).await;
    }
    assert_eq!(stage.postgres.sql(CONTESTED).trim(), "0");

    let manners =
        [11, 12].map(|n| Manner { from: [127, 0, 0, n], boot_id: Uuid::from_u128(n.into()), ..Manner::default() });
    let agents =
        [Live::start(copied, &[one.address], manners[0], 1), Live::start(copied, &[two.address], manners[1], 2)];
    stage.sql_until(CONTESTED, "1").await;
    let told = "SELECT payload ->> 'host' || ' ' || least(payload ->> 'address', payload ->> 'other_address') || ' ' || \
                greatest(payload ->> 'address', payload ->> 'other_address') FROM events WHERE kind = 'session.contested'";
    assert_eq!(stage.postgres.sql(told).trim(), format!("{} 127.0.0.11 127.0.0.12", copied.host));
    let plane = stage.api.get("/v1/plane").await.expect("it answers");
    let checks = plane["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "host identities").expect("it is told");
    let detail = check["detail"].as_str().expect("words");
    let named = ["default/web-2", "127.0.0.11", "127.0.0.12"].iter().all(|word| detail.contains(word));
    assert!(check["state"] == "trouble" && named && !detail.contains("web-1"), "{check}");

    // One of them has the session now; however fast the other one dials, it is told to wait, and opens nothing.
    let row = "SELECT host(i.address) || ' ' || s.session_epoch FROM instances i JOIN sessions s USING (host_id) \
               JOIN hosts h USING (host_id) WHERE h.name = 'web-2'";
    let before = stage.postgres.sql(row);
    let loser = if before.starts_with("127.0.0.11 ") { manners[1] } else { manners[0] };
    for _ in 0..20 {
        let mut line = Line::dial(copied, one.address, loser).await.expect("it listens");
        let cause = line.closed().await;
        let CloseCause::Theirs { code: RefusalCode::Superseded, retry_after_ms } = cause else { panic!("{cause}") };
        assert!((1..=HOLD_MS).contains(&retry_after_ms), "{retry_after_ms}");
    }
    assert_eq!(stage.postgres.sql(row), before, "no session was opened");
    assert!(one.metric("holdfast_gateway_openings_refused_total").await >= 20.0);
    // Those that listen wait: neither has dialled more often than its jitter lets it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        agents.iter().all(|agent| agent.lived().dials < 8),
        "{:?}",
        agents.each_ref().map(|agent| agent.lived().dials)
    );
    assert_eq!(stage.postgres.sql(CONTESTED).trim(), "1", "told once");
}
