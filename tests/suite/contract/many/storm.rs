//! Crowds at a door: those that come at once, and those that are asked to leave at once.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_session::agent::CloseCause;
use holdfast_wire::code::RefusalCode;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::agent::{DEADLINE, Live, Manner};
use super::stage::{Gateway, Stage};
use super::watch::Watch;

const AGENTS: usize = 200;
const OPENINGS_MAX: usize = 20;
/// How many lose all of their gateways at once.
const LEFT_ALONE: usize = 100;
const DRAIN_SPREAD: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_let_in_by_and_by_and_a_drained_gateway_sends_everybody_elsewhere_each_at_its_own_moment() {
    let mut stage = Stage::start().await;
    let other = stage.gateway("gateway-2", &[]);
    let elsewhere = other.address.to_string();
    let most = OPENINGS_MAX.to_string();
    let mut door = stage.gateway(
        "gateway-1",
        &[
            ("HOLDFAST_AGENTS_GATEWAYS", elsewhere.as_str()),
            ("HOLDFAST_AGENTS_OPENINGS_MAX", most.as_str()),
            ("HOLDFAST_AGENTS_DRAIN_SPREAD", "2s"),
        ],
    );
    let hosts = stage.enrol("web", AGENTS).await;

    // Nothing can be opened, so whoever is let in waits.
    let config = stage.postgres.config("postgres");
    let options = PgConnectOptions::new().host(&config.host).username("postgres").database(&config.database);
    let mut lock: PgConnection = options.connect().await.expect("connects");
    sqlx::raw_sql("BEGIN; LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE").execute(&mut lock).await.expect("locks");
    let agents: Vec<Live> = (0_u64..)
        .zip(&hosts)
        .map(|(n, who)| {
            // A source has a number of handshakes of its own.
            let from = [127, 0, 1, u8::try_from(n % 8 + 1).expect("small")];
            Live::start(who, &[door.address], Manner { from, ..Manner::default() }, n)
        })
        .collect();
    let wanted = (AGENTS - OPENINGS_MAX) as f64;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let refused = door.metric("holdfast_gateway_openings_refused_total").await;
        if refused >= wanted {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{refused} refused of {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(agents.iter().all(|agent| agent.lived().opened.is_empty()));
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.expect("unlocks");
    lock.close().await.expect("closes");
    for agent in &agents {
        agent.until("is let in", |lived| lived.is_whole).await;
    }
    came_back_as_they_were_told(&agents);
    leave_one_by_one(&stage, &mut door, &other, &agents).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_fleet_whose_gateways_all_died_comes_back_to_the_one_that_is_started_first_and_is_whole_when_the_other_follows()
 {
    let mut stage = Stage::start().await;
    let most = OPENINGS_MAX.to_string();
    let lively = [("HOLDFAST_AGENTS_LEASE", "2s"), ("HOLDFAST_AGENTS_OPENINGS_MAX", most.as_str())];
    let mut gateways = [stage.gateway("gateway-1", &lively), stage.gateway("gateway-2", &lively)];
    let doors = [gateways[0].address, gateways[1].address];
    let hosts = stage.enrol("web", LEFT_ALONE).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    let agents: Vec<Live> = (0_u64..)
        .zip(&hosts)
        .map(|(n, who)| {
            // A source has a number of handshakes of its own.
            let from = [127, 0, 1, u8::try_from(n % 8 + 1).expect("small")];
            Live::start(who, &doors, Manner { from, ..Manner::default() }, n)
        })
        .collect();
    watch.until_all(&names, "converged").await;

    for gateway in &mut gateways {
        gateway.service.signal("-KILL");
        gateway.service.ended();
    }
    watch.until_all(&names, "unknown").await;
    // What is rendered while nobody has a session is what each of them gets.
    stage.render(&hosts, 300).await;
    let [first, second] = &mut gateways;
    stage.restart(first);
    watch.until_all(&names[..1], "converged").await;
    stage.restart(second);
    watch.until_all(&names, "converged").await;
    for agent in &agents {
        let lived = agent.lived();
        let version = lived.policies.last().map(|came| came.stamp.version.raw());
        assert_eq!((lived.is_whole, version), (true, Some(2)), "{}", agent.who.name);
    }
    let open = "SELECT count(*) FROM sessions WHERE closed_at IS NULL";
    assert_eq!(stage.postgres.sql(open).trim(), LEFT_ALONE.to_string());
    let [first, second] = &gateways;
    let held = first.metric("holdfast_gateway_sessions").await + second.metric("holdfast_gateway_sessions").await;
    assert_eq!(held, LEFT_ALONE as f64, "each is at one of them");
    stage.assert_runs();
}

/// Who was refused stayed away for as long as it was told, and they did not come back together.
fn came_back_as_they_were_told(agents: &[Live]) {
    let (mut back, mut first) = (BTreeMap::<u128, usize>::new(), None);
    for agent in agents {
        let lived = agent.lived();
        let (opened, _) = *lived.opened.first().expect("it is open");
        for (ended, cause) in &lived.ended {
            let CloseCause::Theirs { code: RefusalCode::Overloaded, retry_after_ms } = cause else {
                panic!("{}: {cause}", agent.who.name)
            };
            let pause = Duration::from_millis(u64::from(*retry_after_ms));
            assert!(*retry_after_ms > 0 && opened.duration_since(*ended) >= pause, "{}: {lived:?}", agent.who.name);
        }
        if !lived.ended.is_empty() {
            let first = *first.get_or_insert(opened);
            let apart = opened.max(first).duration_since(opened.min(first));
            *back.entry(apart.as_millis() / 500).or_default() += 1;
        }
    }
    assert_eq!(back.values().sum::<usize>(), AGENTS - OPENINGS_MAX);
    assert!(back.len() >= 4 && back.values().all(|count| *count <= AGENTS / 2), "they come back together: {back:?}");
}

/// The end of a gateway: everybody is told when to leave, and nobody new comes in.
async fn leave_one_by_one(stage: &Stage, door: &mut Gateway, other: &Gateway, agents: &[Live]) {
    door.service.signal("-TERM");
    let asked = tokio::time::Instant::now();
    while tokio::net::TcpStream::connect(door.address).await.is_ok() {
        assert!(asked.elapsed() < Duration::from_secs(1), "a gateway that ends lets nobody in");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut left = BTreeMap::<u128, usize>::new();
    for agent in agents {
        agent
            .until("goes elsewhere", |lived| {
                lived.is_whole && lived.opened.last().is_some_and(|(_, at)| *at == other.address)
            })
            .await;
        let lived = agent.lived();
        let (at, cause) = *lived.ended.last().expect("it left");
        assert_eq!(cause, CloseCause::Drained, "{}", agent.who.name);
        assert_eq!(lived.opened.len(), 2, "one dial, and no other session between: {lived:?}");
        *left.entry(at.duration_since(asked).as_millis() / 500).or_default() += 1;
    }
    let spread = DRAIN_SPREAD.as_millis() / 500;
    assert!(left.keys().all(|part| *part <= spread + 1), "{left:?}");
    assert!(left.len() >= 4 && left.values().all(|count| *count <= AGENTS * 2 / 5), "they leave together: {left:?}");
    assert!(door.service.ended().success(), "{}", door.service.log());
    assert_eq!(stage.postgres.sql("SELECT count(*) FROM sessions WHERE closed_at IS NULL").trim(), AGENTS.to_string());
}
