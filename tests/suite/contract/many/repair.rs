//! What hints do not tell is found by the compare, and what hints tell needs no compare.

use std::time::Duration;

use super::agent::{Came, Live, Manner, versions};
use super::stage::Stage;
use super::watch::Watch;

/// The statement of a compare.
const COMPARE: &str = "SELECT a.authority_id, a.authority_epoch, s.host_id, s.session_epoch, l.component, l.version";
/// Counts doubts about hints.
const HOLES: &str = "holdfast_gateway_hint_holes_total";
const RENDERS: u32 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_renders_converge_by_repair_alone_without_hints_and_by_hints_alone_without_repair() {
    let mut stage = Stage::start().await;
    let repairs = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "500ms")]);
    let listens = stage.gateway("gateway-2", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let (quiet, told, failing) =
        (stage.enrol("quiet", 10).await, stage.enrol("told", 10).await, stage.enrol("failing", 1).await);
    let live = |who: &[_], at, manner| -> Vec<Live> {
        (0..).zip(who).map(|(n, who)| Live::start(who, &[at], manner, n)).collect()
    };
    let mut agents = live(&quiet, repairs.address, Manner::default());
    agents.extend(live(&told, listens.address, Manner::default()));
    let refuses = live(&failing, repairs.address, Manner { fails_above: Some(2), ..Manner::default() });
    for agent in agents.iter().chain(&refuses) {
        agent.until("has its first states", |lived| lived.is_whole).await;
    }
    let compares = listens.metric("holdfast_gateway_compares_total").await;

    // C5: the recovery snapshot fails too, while the compare goes round and round.
    stage.render(&failing, 900).await;
    refuses[0].until("takes one", |lived| lived.policies.len() == 2).await;
    stage.render(&failing, 901).await;
    refuses[0].until("failed twice", |lived| lived.policies.len() == 4).await;
    for n in 1..=RENDERS {
        stage.render(&quiet, n).await;
        stage.render(&told, n).await;
        stage.hint(&told).await;
    }
    for agent in &agents {
        let newest = u64::from(RENDERS) + 1;
        agent
            .until("has the last", |lived| lived.policies.last().is_some_and(|came| came.stamp.version.raw() == newest))
            .await;
    }
    // One at the first hint: nobody knows what was before it.
    let repaired = listens.metric("holdfast_gateway_compares_total").await - compares;
    assert!(repaired <= 1.0, "no repair where hints are heard: {repaired}");
    let lived = refuses[0].lived();
    let came: Vec<(&str, u64, bool)> =
        lived.policies.iter().skip(1).map(|Came { form, stamp, taken }| (*form, stamp.version.raw(), *taken)).collect();
    assert_eq!(came, [("snapshot", 2, true), ("delta", 3, false), ("snapshot", 3, false)], "no loop");
    assert_eq!(lived.opened.len(), 1);

    // C9: whoever commits may die before it tells anybody. One statement finds it, for all sessions of a replica.
    stage.postgres.sql("ALTER SYSTEM SET log_statement = 'all'");
    stage.postgres.sql("SELECT pg_reload_conf()");
    let before = repairs.metric("holdfast_gateway_compares_total").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let asked = repairs.metric("holdfast_gateway_compares_total").await - before;
    let statements = stage.postgres.log().lines().filter(|line| line.contains(COMPARE)).count();
    assert!(
        asked >= 2.0 && (statements as f64 - asked).abs() <= 1.0,
        "{statements} statements for {asked} compares of 11 sessions"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_what_was_rendered_while_the_listener_was_away_comes_as_one_delta_and_a_hole_in_the_numbers_is_found() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let hosts = stage.enrol("web", 3).await;
    let agents: Vec<Live> =
        (0..).zip(&hosts).map(|(n, who)| Live::start(who, &[gateway.address], Manner::default(), n)).collect();
    stage.render(&hosts, 4).await;
    // Again and again, until the gateway listens.
    tokio::time::timeout(Duration::from_secs(20), async {
        while gateway.metric(HOLES).await < 1.0 {
            stage.hint(&hosts).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the gateway hears a first hint");
    for agent in &agents {
        agent
            .until("has the first change", |lived| {
                lived.is_whole && lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 2)
            })
            .await;
    }

    // A hint is lost: the next one's number tells, whomever it is about.
    stage.render(&hosts[..1], 5).await;
    stage.lose_a_hint();
    stage.render(&hosts[1..], 5).await;
    stage.hint(&hosts[1..]).await;
    for agent in &agents {
        agent
            .until("has the second change", |lived| {
                lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 3)
            })
            .await;
    }
    assert_eq!(gateway.metric(HOLES).await, 2.0, "the first that was heard, and the hole");

    // C10: nobody listens while three are rendered, and the stream of hints is gone with its server.
    let watch = Watch::start(&stage.api);
    let before: Vec<usize> = agents.iter().map(|agent| agent.lived().policies.len()).collect();
    stage.nats.kill();
    for members in 6..=8 {
        stage.render(&hosts, members).await;
    }
    stage.nats.resume();
    stage.ensure_hints().await;
    for (agent, before) in agents.iter().zip(before) {
        agent
            .until("has the last change", |lived| {
                lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 6)
            })
            .await;
        let lived = agent.lived();
        assert_eq!(lived.policies.len(), before + 1, "one delta across all: {:?}", lived.policies);
        assert_eq!(lived.policies.last().map(|came| came.form), Some("delta"));
    }
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    watch.until_all(&names, "converged").await;
    assert!(versions(&agents).values().all(|version| *version == 6));

    // F33: a renderer dies between a commit and its hint. Who leads after it says so, and that is enough.
    stage.render(&hosts, 9).await;
    stage.tell_next_term().await;
    for agent in &agents {
        agent
            .until("has what nobody told", |lived| {
                lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 7)
            })
            .await;
    }
}
