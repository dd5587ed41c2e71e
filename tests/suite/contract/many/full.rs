//! A disk of NATS on which there is no room, for real.

use std::time::Instant;

use holdfast_bus::{Bus, BusConfig, EventReader, ReadFrom};
use holdfast_identity::tls::{install_crypto_provider, mutual};
use holdfast_identity::{Credential, TrustRoots};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use serde_json::Value;

use super::agent::DEADLINE;
use super::world::{FIRST, LOOK, World, apply};
use crate::control_plane::ControlPlane;

/// Room for what a server needs, and for some hundred events.
const DISK_MIB: usize = 16;
/// Changes on the full disk.
const CHANGES: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_a_store_without_room_stops_no_change_and_every_event_is_in_the_stream_once_when_there_is_room_again() {
    fills_and_is_freed(NatsVersion::Current, "takes no message").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_the_same_with_the_oldest_server_which_answers_for_no_stream_then() {
    fills_and_is_freed(NatsVersion::Floor, "did not describe a stream").await;
}

async fn fills_and_is_freed(version: NatsVersion, words: &str) {
    install_crypto_provider();
    let by_compare = [("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1s".to_owned())];
    let small = |keys: &std::path::Path| NatsServer::start_on_small_disk(version, keys, DISK_MIB);
    let mut world = World::start_in(ControlPlane::start_on(&by_compare, small).await).await;

    // The disk first, then what finds no room on it: events that wait, and hints that nobody hears.
    world.plane.nats().fill_disk();
    let mut newest = 1;
    for n in 0..CHANGES {
        let more = format!("198.51.100.{n}/32");
        assert!(apply(&world.plane, &[FIRST, &more]).status.success(), "a change asks nothing of NATS");
        newest += 1;
        world.until_held(newest).await;
    }
    world.until_told(newest, newest, "converged").await;
    let told = until_in_trouble(&world).await;
    assert!(told.contains(words), "{told}");
    let waiting = |name: &str| gauge(&world.plane.gateway_metrics(), name);
    let [count, seconds] = ["holdfast_plane_events_waiting", "holdfast_plane_events_waiting_seconds"].map(waiting);
    assert!(count > 20.0 && seconds > 1.0, "how many wait, and for how long: {count}, {seconds}");

    // There is room again. A server that a write failed stores nothing more of that stream before its own restart.
    world.plane.nats().free_disk();
    world.plane.nats().kill();
    world.plane.nats().resume();
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (stream, order) = (streamed(&world).await, numbered(&world));
        let events = world.plane.postgres.sql("SELECT count(*) FROM events");
        if stream == order && events.trim() == order.len().to_string() {
            break;
        }
        assert!(Instant::now() < deadline, "{} in the stream, {} numbered, {events}", stream.len(), order.len());
    }
    assert!(apply(&world.plane, &[FIRST]).status.success());
    world.until_told(newest + 1, newest + 1, "converged").await;
    let deadline = Instant::now() + DEADLINE;
    while gauge(&world.plane.gateway_metrics(), "holdfast_plane_events_waiting") != 0.0 {
        assert!(Instant::now() < deadline, "{}", world.plane.gateway_metrics());
        tokio::time::sleep(LOOK).await;
    }
    world.plane.assert_runs();
}

/// The sum of a gauge, as a scrape shows it.
fn gauge(shown: &str, name: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.rsplit(' ').next()?.parse::<f64>().ok();
    shown.lines().filter_map(of).sum()
}

/// The ids of the events in Postgres, in their order.
fn numbered(world: &World) -> Vec<String> {
    let rows = world.plane.postgres.sql("SELECT event_id FROM event_order ORDER BY authority_epoch, seq");
    rows.lines().map(|id| format!("ev_{id}")).collect()
}

/// What the doctor says once it is in trouble over the event stream.
async fn until_in_trouble(world: &World) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let told = world.plane.holdfast(&["doctor"]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        if told.contains("TROUBLE  event stream") {
            return told;
        }
        assert!(Instant::now() < deadline, "{told}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The ids of the events in the stream, in its order.
async fn streamed(world: &World) -> Vec<String> {
    let folder = world.plane.keys("nats-admin");
    let credential = Credential::load_named(&folder, "holdfast_nats_admin").expect("init made it");
    let roots = TrustRoots::load(&folder.join("ca.pem")).expect("init made it");
    let tls = Some(mutual(&credential, &roots).expect("they fit"));
    let config =
        BusConfig { url: world.plane.nats_url(), name: "full".to_owned(), user: "holdfast_nats_admin".to_owned(), tls };
    let bus = Bus::connect(config).await.expect("an address");
    let mut reader = EventReader::start(&bus, "full", ReadFrom::Start).await.expect("the stream is there");
    let mut events = Vec::new();
    while let Ok(next) = tokio::time::timeout(std::time::Duration::from_millis(500), reader.next()).await {
        let event: Value = serde_json::from_slice(&next.expect("an event").payload).expect("JSON");
        events.push(event["id"].as_str().expect("text").to_owned());
    }
    events
}
