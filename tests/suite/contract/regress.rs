//! A host that comes back with less than it had proven, between real doors: what is believed, what it gets, and what the audit log keeps of it.

use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Component;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::{Peer, host_view};
use crate::versions::{apply_policy, until_synced};

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c03_a_host_that_comes_back_with_an_older_state_is_led_forward_and_the_audit_log_shows_the_step_back() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let (mut agent, _) = FirstAgent::open(plane.agents_door(), &peer).await;
    for _ in Component::ALL {
        agent.take().await;
    }
    let older = agent.held[&Component::Policy];
    until_synced(&plane, "web", older.version.raw());
    apply_policy(&plane, "{cidr: 198.51.100.0/24}");
    agent.take().await;
    let newer = agent.held[&Component::Policy];
    until_synced(&plane, "web", newer.version.raw());
    drop(agent);

    let acked = host_view(&plane, "web")["last_acked_at"].clone();

    // Its disk is of another day: what it says is no outcome, in either direction.
    let mut agent = FirstAgent::open_claiming(plane.agents_door(), &peer, &[(Component::Policy, older)]).await;
    let view = host_view(&plane, "web");
    let policy = &view["components"][0];
    assert_eq!(
        (&policy["applied"]["version"], &view["session"]["session_epoch"]),
        (&newer.version.raw().into(), &2.into())
    );
    assert_ne!(view["sync"], "SYNCED", "nothing is proven in this session");
    assert_eq!(
        (view["last_acked_at"].clone(), acked.is_string()),
        (acked.clone(), true),
        "and nothing was acknowledged"
    );
    for _ in Component::ALL {
        agent.take().await;
    }
    assert_eq!((agent.forms.as_slice(), agent.held[&Component::Policy]), (["snapshot"; 4].as_slice(), newer));
    until_synced(&plane, "web", newer.version.raw());
    let view = host_view(&plane, "web");
    assert!(view["last_acked_at"].is_string() && view["last_acked_at"] != acked, "{view}");
    assert_eq!(view["last_apply_failed_at"], Value::Null);

    let told = [
        "opened".to_owned(),
        format!("applied {}", older.version),
        format!("applied {}", newer.version),
        format!("opened with {}", older.version),
        format!("applied {}", newer.version),
    ];
    let deadline = Instant::now() + DEADLINE;
    while audited(&plane) != told {
        assert!(Instant::now() < deadline, "{:?} is not {told:?}", audited(&plane));
        std::thread::sleep(Duration::from_millis(50));
    }
    let table = plane.holdfast(&["audit", "tail", "--lines", "50"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let line = table.lines().find(|line| line.contains(&format!("holds policy version {}", older.version)));
    assert!(line.is_some_and(|line| line.contains("session.opened") && line.contains("default/web")), "{table}");
    plane.assert_runs();
}

/// What the audit log has of the host's sessions and of its policy, in order.
fn audited(plane: &ControlPlane) -> Vec<String> {
    let tail = plane.holdfast(&["audit", "tail", "--lines", "1000", "-o", "json"]);
    assert!(tail.status.success(), "{tail:?}");
    let text = String::from_utf8(tail.stdout).expect("text");
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let told = |entry: Value| {
        let event = &entry["event"];
        let data = &event["data"];
        match event["type"].as_str()? {
            "dev.holdfast.session.opened" => match data["applied"].as_array().map(Vec::as_slice) {
                None => Some("opened".to_owned()),
                Some([held]) if held["component"] == "policy" => {
                    Some(format!("opened with {}", held["stamp"]["version"]))
                }
                Some(_) => Some(format!("opened: {data}")),
            },
            "dev.holdfast.outcome.recorded" if data["component"] == "policy" => {
                Some(format!("{} {}", data["kind"].as_str()?, data["wanted"]["version"]))
            }
            _ => None,
        }
    };
    entries.filter_map(told).collect()
}
