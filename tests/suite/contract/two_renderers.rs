//! Two real renderers: one is held still for longer than its lease and goes on as if nothing had been.

use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::Peer;
use crate::versions::{apply_policy, until_synced};

const DEADLINE: Duration = Duration::from_secs(40);

fn until_said(service: &crate::control_plane::Service, what: &str) {
    let deadline = Instant::now() + DEADLINE;
    while !service.log().contains(what) {
        assert!(Instant::now() < deadline, "it does not say {what}: {}", service.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the renderer has renewed its lease once more.
fn until_renewed(plane: &ControlPlane) {
    let expires = || plane.postgres.sql("SELECT expires_at FROM leases WHERE name = 'renderer'");
    let (before, deadline) = (expires(), Instant::now() + DEADLINE);
    while expires() == before {
        assert!(Instant::now() < deadline, "it does not renew its lease: {}", plane.renderer.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renderer_that_was_held_still_past_its_lease_is_refused_its_write_and_stands_by_for_its_successor() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let (mut agent, _) = FirstAgent::open(plane.agents_door(), &peer).await;
    for _component in 0..4 {
        agent.take().await;
    }
    until_synced(&plane, "web", 1);
    let mut successor = plane.another_renderer();

    // It has just renewed its lease, so that by its own clock that holds when it goes on, and no renewal is due: what stops it is the database alone.
    until_renewed(&plane);
    plane.renderer.signal("-STOP");
    plane.postgres.sql("UPDATE leases SET expires_at = 'epoch' WHERE name = 'renderer'");
    until_said(&successor, "leading");
    let term = plane.postgres.sql("SELECT term FROM leases WHERE name = 'renderer'").trim().to_owned();
    apply_policy(&plane, "{cidr: 192.0.2.0/24}, {cidr: 198.51.100.0/24}");
    agent.take().await;
    until_synced(&plane, "web", 2);
    // The successor is held still too, so that the next change is there for the other one when it goes on.
    successor.signal("-STOP");
    apply_policy(&plane, "{cidr: 203.0.113.0/24}");
    plane.renderer.signal("-CONT");
    until_said(&plane.renderer, "no longer leading");
    let log = plane.renderer.log();
    // On a slow machine its next renewal was due meanwhile, and met the same.
    assert!(log.contains("is not held under term 1") || log.contains("the lease was not renewed in time"), "{log}");
    let written = "SELECT count(*) FROM desired_states WHERE component = 1 AND version > 2";
    assert_eq!(plane.postgres.sql(written).trim(), "0", "what it rendered is nowhere");

    successor.signal("-CONT");
    agent.take().await;
    until_synced(&plane, "web", 3);
    let terms =
        "SELECT string_agg(version || ':' || lease_term, ' ' ORDER BY version) FROM desired_states WHERE component = 1";
    assert_eq!(plane.postgres.sql(terms).trim(), format!("1:1 2:{term} 3:{term}"));
    plane.assert_runs();
    successor.assert_runs();
}
