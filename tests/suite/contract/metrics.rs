//! The fleet and the plane as a real gateway shows them to a scraper, held against what it answers to an operator.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::Peer;
use crate::versions::apply_policy;

const DEADLINE: Duration = Duration::from_secs(40);

fn json(plane: &ControlPlane, arguments: &[&str]) -> Value {
    let said = plane.holdfast(arguments);
    serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// The gauges of one part, by their names and labels as they are written.
fn shown(plane: &ControlPlane, part: &str) -> BTreeMap<String, String> {
    let text = plane.gateway_metrics();
    let lines = text.lines().filter(|line| line.starts_with(part)).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// What the gauges are to be, by what the operators' door says.
fn as_status_says(status: &Value) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::from([
        ("holdfast_fleet_known".to_owned(), "1".to_owned()),
        ("holdfast_fleet_latest_revision".to_owned(), status["latest_revision"].to_string()),
        ("holdfast_fleet_rendered_revision".to_owned(), status["rendered_revision"].to_string()),
    ]);
    for state in ["converged", "degraded", "progressing", "failed", "unknown"] {
        wanted.insert(format!("holdfast_fleet_hosts{{state=\"{state}\"}}"), status["hosts"][state].to_string());
    }
    for state in ["published", "converged", "degraded", "progressing", "failed", "unknown"] {
        let is_it = u8::from(status["state"] == state);
        wanted.insert(format!("holdfast_fleet_state{{state=\"{state}\"}}"), is_it.to_string());
    }
    wanted
}

/// Holds the gauges against the status once the fleet is as said; nothing may have changed between the two looks at the status around the scrape.
fn assert_agree_when(plane: &ControlPlane, state: &str, hosts: u64) -> BTreeMap<String, String> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let status = || json(plane, &["status", "-o", "json"]);
        let (before, found, after) = (status(), shown(plane, "holdfast_fleet_"), status());
        if before == after && before["state"] == state && before["hosts"]["total"] == hosts {
            for (key, value) in as_status_says(&before) {
                assert_eq!(found.get(&key), Some(&value), "{key} while the status is {before}: {found:?}");
            }
            return found;
        }
        assert!(Instant::now() < deadline, "the fleet is not {state}: {after}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Holds the checks of the plane against what `doctor` says of them: each is in the state that it is said to be in, and in no other.
fn assert_plane_agrees(plane: &ControlPlane) {
    let states = ["ok", "watch", "trouble"];
    let key = |check: &str, state: &str| format!("holdfast_plane_check{{check=\"{check}\",state=\"{state}\"}}");
    let doctor = || -> BTreeMap<String, String> {
        let said = json(plane, &["doctor", "-o", "json"]);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let checks = said["checks"].as_array().unwrap_or_else(|| panic!("{said}"));
        checks.iter().map(|check| (text(&check["name"]), text(&check["state"]))).collect()
    };
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (before, found, after) = (doctor(), shown(plane, "holdfast_plane_"), doctor());
        // Those of the command's own are no part of the plane.
        let told = before.iter().filter(|(name, _)| found.contains_key(&key(name, "ok")));
        let told: Vec<_> = told.map(|(name, state)| (name.as_str(), state.as_str())).collect();
        let of = |name: &str, state: &str| found.get(&key(name, state)).map(String::as_str);
        let is_so = |name: &str, state: &str| {
            states.iter().all(|one| of(name, one) == Some(if *one == state { "1" } else { "0" }))
        };
        if before == after && told.len() >= 8 && told.iter().all(|(name, state)| is_so(name, state)) {
            assert_eq!(found.get("holdfast_plane_known").map(String::as_str), Some("1"), "{found:?}");
            return;
        }
        assert!(Instant::now() < deadline, "{before:?} {found:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_the_fleet_are_what_the_status_says_at_each_step_and_nothing_while_it_cannot_be_read() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    assert_agree_when(&plane, "unknown", 0);
    let drifts = shown(&plane, "holdfast_gateway_drifts_total{");
    assert_eq!(drifts.values().collect::<Vec<_>>(), ["0"; 4], "what an alert waits for is there before it happens");
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let found = assert_agree_when(&plane, "unknown", 1);
    assert_eq!(
        found.get("holdfast_fleet_missing{fact=\"session\",condition=\"\"}"),
        Some(&"4".to_owned()),
        "{found:?}"
    );
    assert_eq!(found.get("holdfast_fleet_hosts_by_mode{mode=\"visibility\"}"), Some(&"1".to_owned()), "{found:?}");

    let (mut agent, _) = FirstAgent::open(plane.agents_door(), &peer).await;
    let found = assert_agree_when(&plane, "progressing", 1);
    let policy = |state: &str| format!("holdfast_fleet_components{{component=\"policy\",state=\"{state}\"}}");
    assert_eq!(found.get(&policy("progressing")), Some(&"1".to_owned()), "{found:?}");
    for _component in 0..4 {
        agent.take().await;
    }
    let found = assert_agree_when(&plane, "converged", 1);
    let counted = [
        policy("progressing"),
        policy("converged"),
        "holdfast_fleet_missing{fact=\"session\",condition=\"\"}".to_owned(),
    ];
    assert_eq!(
        counted.map(|key| found.get(&key).cloned()),
        ["0", "1", "0"].map(|value| Some(value.to_owned())),
        "{found:?}"
    );

    assert_plane_agrees(&plane);

    // Nothing that was true before is shown of a database that is away.
    plane.postgres().stop();
    let deadline = Instant::now() + DEADLINE;
    while shown(&plane, "holdfast_fleet_known").values().any(|value| value != "0") {
        assert!(Instant::now() < deadline, "{}", plane.gateway_metrics());
    }
    let found = shown(&plane, "holdfast_fleet_");
    let told: Vec<_> = found.iter().filter(|(key, value)| *key != "holdfast_fleet_known" && *value != "NaN").collect();
    assert!(found.len() > 20 && told.is_empty(), "{told:?}");
    plane.postgres().start();
    assert_agree_when(&plane, "converged", 1);
    plane.assert_runs();
}
