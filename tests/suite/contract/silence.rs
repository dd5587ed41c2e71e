//! Hosts that say nothing, as the operators' door of a real gateway tells of them.

use holdfast_identity::tls::install_crypto_provider;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::{Peer, host_view};
use crate::versions::{apply_policy, until_synced};

/// As if these hosts had been heard so long ago; what is told of the first then.
fn silent_for(plane: &ControlPlane, hosts: &str, ago: &str) -> [String; 3] {
    plane.postgres.sql(&format!(
        "UPDATE presence p SET heard_at = clock_timestamp() - interval '{ago}' FROM hosts h WHERE h.host_id = p.host_id AND h.name IN ({hosts})"
    ));
    let view = host_view(plane, "web-1");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    [text(&view["presence"]), text(&view["state"]), text(&view["components"][0]["missing"]["fact"])]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_makes_a_host_unknown_and_then_lost_unless_most_are_silent_or_the_database_was_away() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let mut peers = Vec::new();
    for n in 1..=4 {
        peers.push(Peer::enrol(&plane, &format!("web-{n}"), &format!("10.0.0.{n}")).await);
    }
    // The last one is never heard.
    let mut agents = Vec::new();
    for peer in &peers[..3] {
        let (mut agent, _) = FirstAgent::open(plane.agents_door(), peer).await;
        for _component in 0..4 {
            agent.take().await;
        }
        agents.push(agent);
    }
    for n in 1..=3 {
        until_synced(&plane, &format!("web-{n}"), 1);
    }
    let silent = ["silent", "unknown", "fresh_session"];
    assert_eq!(silent_for(&plane, "'web-1'", "42 s"), ["present", "converged", ""]);
    for ago in ["45.5 s", "9 min 57 s"] {
        assert_eq!(silent_for(&plane, "'web-1'", ago), silent, "{ago}");
    }
    let lost = silent_for(&plane, "'web-1'", "10 min 1 s");
    assert_eq!(lost, ["lost", "unknown", "fresh_session"]);
    let listed = plane.holdfast(&["get", "hosts"]);
    let listed = String::from_utf8(listed.stdout).expect("text");
    assert_eq!(listed.lines().filter(|line| line.contains(", lost")).count(), 1, "{listed}");
    let by = |presence| plane.counted("holdfast_fleet_hosts_by_presence", &[("presence", presence)]);
    assert_eq!(["present", "silent", "lost", "never"].map(by), [2, 0, 1, 1]);

    // Two of three that were ever heard: what they have in common is at fault.
    assert_eq!(silent_for(&plane, "'web-1', 'web-2'", "20 min"), silent);
    // The database was away for nearly all of it.
    let away = "UPDATE pulse SET away_from = clock_timestamp() - interval '19 min', away_until = clock_timestamp() - interval '40 s'";
    silent_for(&plane, "'web-2', 'web-3'", "1 s");
    plane.postgres.sql(away);
    assert_eq!(silent_for(&plane, "'web-1'", "20 min")[0], "present");
    plane.assert_runs();
}
