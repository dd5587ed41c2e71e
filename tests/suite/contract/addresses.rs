//! A host that comes back with another address, between real doors and a real renderer: what its peer gets of it.

use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Component;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::Peer;
use crate::versions::{apply_policy, until_synced};

const DEADLINE: Duration = Duration::from_secs(20);
/// What hosts said of their addresses that was to be decided, and that was.
const ASKED: &str = "SELECT count(*) || ' ' || count(answered_at) FROM requests WHERE kind = 'addresses'";
/// Everybody may reach everybody, and one address more.
const PEERS: &str = "{hostSelector: {all: true}}, {cidr: 192.0.2.0/24}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_c19_a_host_that_comes_back_with_another_address_is_one_delta_for_its_peer_and_none_the_second_time() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{hostSelector: {all: true}}");
    let mover = Peer::enrol(&plane, "mover", "10.0.0.1").await;
    let stayer = Peer::enrol(&plane, "stayer", "10.0.0.2").await;
    let mut peer = open(&plane, &stayer, [10, 0, 0, 2]).await;
    let first = version(&peer);
    until_synced(&plane, "stayer", first);
    drop(open(&plane, &mover, [10, 0, 0, 1]).await);
    let before = plane.postgres.sql(ASKED);

    // C18: it reopens with another address.
    let moved = open(&plane, &mover, [10, 0, 0, 9]).await;
    peer.take().await;
    assert_eq!((peer.forms.last(), version(&peer)), (Some(&"delta"), first + 1));
    until_synced(&plane, "stayer", first + 1);
    until_asked(&plane, "1 1");
    drop(moved);

    // C19: the same once more. What it says is recorded before its first states are proven.
    let mut again = open(&plane, &mover, [10, 0, 0, 9]).await;
    until_synced(&plane, "mover", version(&again));
    // The next that comes to its peer is what an operator changes, and the version after the last.
    apply_policy(&plane, PEERS);
    peer.take().await;
    again.take().await;
    assert_eq!((peer.forms.last(), version(&peer)), (Some(&"delta"), first + 2));
    until_synced(&plane, "stayer", first + 2);
    assert_eq!((before.trim(), plane.postgres.sql(ASKED).trim()), ("0 0", "1 1"));
    plane.assert_runs();
}

/// A session of a host with this address, with its first states.
async fn open<'a>(plane: &ControlPlane, host: &'a Peer, address: [u8; 4]) -> FirstAgent<'a> {
    let (mut agent, _) = FirstAgent::open_with(plane.agents_door(), host, address).await;
    for _ in Component::ALL {
        agent.take().await;
    }
    agent
}

fn version(agent: &FirstAgent<'_>) -> u64 {
    agent.held[&Component::Policy].version.raw()
}

fn until_asked(plane: &ControlPlane, wanted: &str) {
    let deadline = Instant::now() + DEADLINE;
    while plane.postgres.sql(ASKED).trim() != wanted {
        assert!(Instant::now() < deadline, "{}", plane.postgres.sql(ASKED));
        std::thread::sleep(Duration::from_millis(20));
    }
}
