//! A standby takes over from the primary under running services, real ones all of them: at the same address, with every commit that was answered, and without
//! some of them.

use holdfast_identity::tls::install_crypto_provider;
use holdfast_store::testing::TestPostgres;

use super::agent::Came;
use super::world::{FIRST, World, apply};
use crate::control_plane::ControlPlane;

/// A plane in which nothing is found by the clock.
async fn start() -> World {
    install_crypto_provider();
    World::start_in(ControlPlane::start_with(&[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h".to_owned())]).await).await
}

/// Ends the primary, and has the standby lead in its place.
fn take_over(world: &mut World, mut next: TestPostgres) {
    let postgres = world.plane.postgres();
    postgres.stop();
    next.promote();
    next.take_address_of(postgres);
    *postgres = next;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_services_and_sessions_go_on_by_a_synchronous_standby_that_takes_over_and_nothing_is_lost() {
    let mut world = start().await;
    let standby = world.plane.postgres.standby(5433);
    world.plane.postgres.wait_for_standbys();
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    world.watch.forget();

    take_over(&mut world, standby);
    world.apply_until_answered(&[FIRST, "198.51.100.0/24", "203.0.113.0/24"]).await;
    world.until_held(3).await;
    world.until_told(3, 3, "converged").await;
    for agent in &world.agents {
        let lived = agent.lived();
        let versions: Vec<u64> = lived.policies.iter().map(|came| came.stamp.version.raw()).collect();
        assert_eq!((lived.opened.len(), versions), (1, vec![1, 2, 3]), "{}: one session, each once", agent.who.name);
        let states = world.watch.states(&agent.who.name);
        assert!(!states.iter().any(|state| matches!(state.as_str(), "unknown" | "failed")), "{states:?}");
    }
    let proven = world.plane.holdfast(&["rebuild", "--check", "-o", "json"]);
    assert!(proven.status.success(), "every table is what its events say: {proven:?}");
    world.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f25_sessions_that_know_more_than_the_standby_that_took_over_begin_anew_at_once_and_nobody_goes_back() {
    let mut world = start().await;
    let mut standby = world.plane.postgres.standby(5433);
    standby.stop_following();
    // Answered and proven, and the standby has nothing of it.
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    let lost = world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    take_over(&mut world, standby);

    // Nobody has to wait for a clock: sessions say what they hold, and it is told as what the database never had.
    world.until_told(1, 2, "failed").await;
    world.until_ahead(3).await;
    for agent in &world.agents {
        agent.until("begins anew", |lived| lived.opened.len() == 2).await;
    }
    // As many revisions as were lost, with other words in them: this is rendered too, under a version that hosts know.
    world.apply_until_answered(&[FIRST, "203.0.113.0/24"]).await;
    for agent in &world.agents {
        let is_other = |came: &Came| came.form == "refused" && came.stamp.version.raw() == 2;
        agent.until("refuses it", |lived| lived.policies.iter().any(is_other)).await;
    }
    world.until_told(2, 2, "failed").await;
    assert_eq!(world.until_held(2).await, lost, "and they hold what they held");
    // Past what they hold they follow.
    world.apply_until_answered(&[FIRST]).await;
    world.until_held(3).await;
    world.until_told(3, 3, "converged").await;
    world.until_ahead(0).await;
    for agent in &world.agents {
        let lived = agent.lived();
        let taken = lived.policies.iter().filter(|came| came.taken).map(|came| came.stamp.version.raw());
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2, 3], "{}", agent.who.name);
    }
    world.plane.assert_runs();
}
