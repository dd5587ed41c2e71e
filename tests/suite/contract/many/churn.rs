//! Change without end, and none at all, at real services: nobody is starved by the one, and the other costs nothing. Names are those of the faults of peers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;

use super::agent::{Live, Manner};
use super::world::{FIRST, LOOK, World, apply};
use crate::control_plane::{ControlPlane, Setting};

/// Edits without a pause, each a fifth of a second after the one before.
const EDITS: u64 = 50;
const EDIT_EVERY: Duration = Duration::from_millis(200);
/// How long an edit may take to its hosts when no other follows.
const ARRIVES: Duration = Duration::from_secs(20);
/// How often the members of a group change.
const MOVES: usize = 200;
/// How long the fleet is left alone, and how often each agent says that it lives.
const IDLE: Duration = Duration::from_secs(15);
const BEAT: Duration = Duration::from_secs(1);

async fn start(settings: &[Setting]) -> World {
    install_crypto_provider();
    World::start_in(ControlPlane::start_with(settings).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_edits_every_200_ms_reach_hosts_while_they_go_on_and_the_last_one_at_once() {
    let mut world = start(&[]).await;
    for n in 0..EDITS {
        let next = Instant::now() + EDIT_EVERY;
        assert!(apply(&world.plane, &[FIRST, &format!("198.51.100.{n}/32")]).status.success());
        tokio::time::sleep_until(next.into()).await;
    }
    let came: Vec<usize> = world.agents.iter().map(|agent| agent.lived().policies.len()).collect();
    assert!(came.iter().all(|came| *came > usize::try_from(EDITS / 5).expect("few")), "while edits go on: {came:?}");
    let last = Instant::now();
    let newest = "SELECT max(version) FROM desired_states WHERE component = 1 AND \
                  revision = (SELECT max(revision) FROM revisions)";
    let version = loop {
        if let Ok(version) = world.plane.postgres.sql(newest).trim().parse() {
            break version;
        }
        assert!(last.elapsed() < ARRIVES, "the last edit is not rendered");
        tokio::time::sleep(LOOK).await;
    };
    world.until_held(version).await;
    assert!(last.elapsed() < ARRIVES, "{:?}", last.elapsed());
    world.until_told(version, version, "converged").await;
    world.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p26_members_that_move_two_hundred_times_while_hints_are_lost_end_as_they_are() {
    let mut world = start(&[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1s".to_owned())]).await;
    for n in 0..MOVES {
        match n % 40 {
            10 => world.plane.nats().kill(),
            30 => world.plane.nats().resume(),
            _ => {}
        }
        assert!(apply(&world.plane, &[FIRST, &format!("198.51.{}.{}/32", n / 100, n % 100)]).status.success());
    }
    // The last move is back to where it all began: who missed one and took another holds something else.
    assert!(apply(&world.plane, &[FIRST]).status.success());
    world.until_rendered().await;
    let newest = "SELECT max(version) FROM desired_latest WHERE component = 1";
    let version = world.plane.postgres.sql(newest).trim().parse().expect("a number");
    let held = world.until_held(version).await;
    world.until_told(version, version, "converged").await;
    let first = world.agents[0].lived().policies[0].stamp.digest;
    assert!(held.iter().all(|stamp| stamp.digest == first), "what is held is what was held at first: {held:?}");
    world.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_what_is_deleted_and_made_again_under_its_name_while_a_host_is_away_is_the_new_one_when_it_is_back() {
    let mut world = start(&[]).await;
    let away = world.agents.remove(0);
    let who = away.who.clone();
    drop(away);
    // Another policy stays, so that no host is left without any.
    let other = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: other}\nspec:\n  hostSelector: {all: true}\n  \
                 ingress: [{from: [{cidr: 198.51.100.0/24}]}, {from: [{cidr: 198.18.0.0/15}]}]\n";
    let file = world.plane.file("other.yaml", other);
    let applied = world.plane.holdfast(&["apply", "-f", &file.display().to_string()]);
    assert!(applied.status.success(), "{applied:?}");
    let deleted = world.plane.holdfast(&["delete", "Policy/kept"]);
    assert!(deleted.status.success(), "{deleted:?}");
    world.until_rendered().await;
    assert!(apply(&world.plane, &["203.0.113.0/24"]).status.success());
    world.until_rendered().await;
    let began = Instant::now();
    world.agents.push(Live::start(
        &who,
        &[world.plane.agents_door()],
        Manner { remembers: true, ..Manner::default() },
        7,
    ));
    let newest = "SELECT max(version) FROM desired_latest WHERE component = 1";
    let version = world.plane.postgres.sql(newest).trim().parse().expect("a number");
    let held = world.until_held(version).await;
    assert!(began.elapsed() < ARRIVES, "{:?}", began.elapsed());
    assert!(held.iter().all(|stamp| *stamp == held[0]), "the same on each host: {held:?}");
    world.until_told(version, version, "converged").await;
    world.plane.assert_runs();
}

/// How long it may take until what a connection wrote is counted.
const COUNTED: Duration = Duration::from_secs(15);
/// Tables with rows of hosts, and those of events.
const OF_HOSTS: &str = "'presence', 'observed', 'statuses', 'sessions', 'events', 'event_order', 'desired_states', \
                        'desired_latest', 'host_facts', 'claims', 'instances'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p13_a_fleet_in_which_nothing_changes_writes_one_row_for_each_sign_of_life_at_most_and_nothing_else() {
    let world = start(&[("HOLDFAST_AGENTS_LIVENESS_INTERVAL", format!("{}ms", BEAT.as_millis()))]).await;
    world.until_told(1, 1, "converged").await;
    // What came with the sessions is written by then, and counted: a connection of the server that rests tells what it did after ten seconds.
    tokio::time::sleep(COUNTED).await;
    let rows = || -> BTreeMap<String, u64> {
        let sql = format!(
            "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname IN ({OF_HOSTS})"
        );
        let shown = world.plane.postgres.sql(&sql);
        let row =
            |line: &str| line.split_once('|').map(|(name, count)| (name.to_owned(), count.parse().expect("a number")));
        shown.lines().filter_map(row).collect()
    };
    let before = rows();
    tokio::time::sleep(IDLE).await;
    let after = rows();
    let mut written: BTreeMap<&str, u64> = after
        .iter()
        .map(|(name, count)| (name.as_str(), count - before[name]))
        .filter(|(_, count)| *count > 0)
        .collect();
    let presence = written.remove("presence").unwrap_or_default();
    assert_eq!(written, BTreeMap::new(), "nothing of any host changed");
    let most = world.agents.len() as u128 * (IDLE.as_millis() / BEAT.as_millis() + 2);
    assert!(u128::from(presence) <= most, "{presence} writes of presence, at most {most}");
}
