//! Streams that are kept on three servers, whose leader goes again and again.

use holdfast_bus::StreamReplicas;

use super::*;

#[tokio::test]
async fn f16_a_leader_of_three_servers_is_killed_again_and_again_and_every_event_is_there_once() {
    goes_again_and_again(NatsVersion::Current, 3).await;
}

mod long_faults {
    use super::*;

    #[tokio::test]
    async fn f16_a_leader_of_three_servers_of_each_version_is_killed_ten_times() {
        for version in NatsVersion::ALL {
            goes_again_and_again(version, 10).await;
        }
    }
}

async fn goes_again_and_again(version_of_nats: NatsVersion, rounds: u64) {
    let [first, second, third] = NatsServer::start_cluster(version_of_nats);
    let url = [first.url(), second.url(), third.url()].join(",");
    let bus = mk_bus(&url).await.with_replicas(StreamReplicas::new(3).expect("so many"));
    let raw = jetstream::new(async_nats::connect(url.split(',').collect::<Vec<_>>()).await.expect("they listen"));
    let mut plane = Plane::start_on(first, bus).await;
    let mut others = [second, third];
    whole(&raw).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    for round in 1..=rounds {
        let leader = leader(&raw).await;
        let server = match leader.as_str() {
            "n0" => &mut plane.nats,
            "n1" => &mut others[0],
            "n2" => &mut others[1],
            other => panic!("{other} is none of ours"),
        };
        server.kill();
        let mode = if round.is_multiple_of(2) { Mode::Enforced } else { Mode::Simulation };
        plane.apply(vec![mk_mode("db-1", mode)]).await;
        plane.rendered(&[db], |states| version(states, db) == round + 1).await;
        // Two of three are enough: nobody waits for the one that is gone.
        plane.audited().await;
        let server = match leader.as_str() {
            "n0" => &mut plane.nats,
            "n1" => &mut others[0],
            _ => &mut others[1],
        };
        server.resume();
        whole(&raw).await;
    }
    // Hints flow as before, and who listens has lost none for good.
    plane.apply(vec![mk_mode("db-1", Mode::Visibility)]).await;
    plane.hinted(db, rounds + 2).await;
    plane.audited().await;
    plane.relayed(&raw).await;
    let held = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().state.messages;
    let numbered: u64 = plane.postgres.sql("SELECT count(*) FROM event_order").trim().parse().expect("a count");
    assert_eq!(held, numbered, "{version_of_nats:?}: each once");
    let report = plane.stop().await;
    assert!(report.faults.is_empty(), "{report:?}");
}

/// Who leads the stream of events.
async fn leader(raw: &jetstream::Context) -> String {
    let known = async {
        loop {
            let info = raw.get_stream(EVENTS_STREAM).await.ok().map(|stream| stream.cached_info().clone());
            if let Some(leader) = info.and_then(|info| info.cluster).and_then(|cluster| cluster.leader) {
                return leader;
            }
            look_again().await;
        }
    };
    timeout(DEADLINE, known).await.expect("one is elected")
}

/// Waits until all three have both streams as they are.
async fn whole(raw: &jetstream::Context) {
    let is_whole = async || {
        for stream in [EVENTS_STREAM, HINTS_STREAM] {
            let Ok(found) = raw.get_stream(stream).await else { return false };
            let Some(cluster) = found.cached_info().cluster.clone() else { return false };
            let current = cluster.replicas.iter().filter(|peer| peer.current && !peer.offline).count();
            if cluster.leader.is_none() || current != 2 {
                return false;
            }
        }
        true
    };
    let whole = async {
        while !is_whole().await {
            look_again().await;
        }
    };
    timeout(DEADLINE, whole).await.expect("all three have all of it");
}
