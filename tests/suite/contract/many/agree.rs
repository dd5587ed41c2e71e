//! The API's parts, the command and the metrics, held against each other: each is counted anew from what the hosts are shown as.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::Instant;

use serde_json::Value;

use super::agent::DEADLINE;
use super::watch::Api;

const STATES: [&str; 5] = ["converged", "degraded", "progressing", "failed", "unknown"];

/// What they say at one time.
struct Seen {
    status: Value,
    hosts: Vec<Value>,
    command: Value,
    metrics: BTreeMap<String, String>,
}

/// Fails unless all of them say the same; nothing may have changed between the looks at the hosts before and after the others.
pub(super) async fn assert_agree(api: &Api, command: impl Fn() -> Output, scrape: impl Fn() -> String) {
    let deadline = Instant::now() + DEADLINE;
    let seen = loop {
        let before = hosts(api).await;
        let status = api.get("/v1/status").await.expect("it answers");
        let said = command();
        let metrics = gauges(&scrape());
        let command = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let after = hosts(api).await;
        if facts(&before) == facts(&after) {
            break Seen { status, hosts: after, command, metrics };
        }
        assert!(Instant::now() < deadline, "the fleet does not stand still");
    };
    for host in &seen.hosts {
        let one = api.get(&format!("/v1/hosts/{}", text(&host["id"]))).await.expect("it answers");
        assert_eq!(facts(std::slice::from_ref(&one)), facts(std::slice::from_ref(host)), "one, and in the list");
    }
    assert_counts(&seen);
    assert_gauges(&seen);
}

async fn hosts(api: &Api) -> Vec<Value> {
    let page = api.get("/v1/hosts?limit=500").await.expect("it answers");
    assert!(page["next"].is_null() && page["next_cursor"].is_null(), "one page has all: {page}");
    page["items"].as_array().expect("a page").clone()
}

/// What is derived of hosts, without what passes with time.
fn facts(hosts: &[Value]) -> Vec<(String, Vec<String>)> {
    let component = |one: &Value| format!("{} {} {}", one["component"], one["state"], one["missing"]);
    let one = |host: &Value| {
        let components = host["components"].as_array().expect("a list").iter().map(component);
        let initialized = &host["initialized"]["outcome"];
        let whole = format!("{} {} {} {} {initialized}", host["state"], host["presence"], host["mode"], host["held"]);
        (text(&host["id"]), std::iter::once(whole).chain(components).collect())
    };
    hosts.iter().map(one).collect()
}

fn assert_counts(seen: &Seen) {
    assert_eq!(seen.status, seen.command, "the API and the command");
    let counts = &seen.status["hosts"];
    assert_eq!(counts["total"], seen.hosts.len());
    for state in STATES {
        let of = seen.hosts.iter().filter(|host| host["state"] == state).count();
        assert_eq!(counts[state], of, "{state}: {counts}");
    }
    let modes = &seen.status["modes"];
    for mode in ["enforced", "simulation", "visibility"] {
        let of = seen.hosts.iter().filter(|host| host["mode"] == mode).count();
        assert_eq!(modes[mode], of, "{mode}: {modes}");
    }
}

/// Every gauge of the fleet that counts hosts or parts of them: what is not counted is zero.
fn assert_gauges(seen: &Seen) {
    let mut wanted = BTreeMap::<String, u64>::new();
    let mut add = |key: String| *wanted.entry(key).or_default() += 1;
    for host in &seen.hosts {
        add(format!("holdfast_fleet_hosts{{state={}}}", host["state"]));
        add(format!("holdfast_fleet_hosts_by_mode{{mode={}}}", host["mode"]));
        add(format!("holdfast_fleet_hosts_by_presence{{presence={}}}", host["presence"]));
        let outcome = &host["initialized"]["outcome"];
        if outcome != "complete" {
            add(format!("holdfast_fleet_hosts_uninitialized{{outcome={outcome}}}"));
        }
        let components = host["components"].as_array().expect("a list");
        let conditions = |one: &Value| one["conditions"].as_array().expect("a list").clone();
        let is_uncovered =
            |one: &Value| one["type"] == "ForwardingCovered" && one["reason"] == "forwarded_not_enforced";
        if components.iter().flat_map(conditions).any(|one| is_uncovered(&one)) {
            add("holdfast_fleet_hosts_forwarding_uncovered".to_owned());
        }
        for one in components {
            add(format!("holdfast_fleet_components{{component={},state={}}}", one["component"], one["state"]));
            let missing = &one["missing"];
            if missing.is_object() {
                let condition = missing["condition"].as_str().unwrap_or_default();
                add(format!("holdfast_fleet_missing{{fact={},condition=\"{condition}\"}}", missing["fact"]));
            }
        }
        let first = |one: &&Value| one["state"] != "converged";
        if components.iter().filter(first).all(|one| one["missing"]["fact"] == "held") && host["state"] == "progressing"
        {
            add("holdfast_fleet_hosts_held".to_owned());
        }
    }
    let counted = [
        "hosts{",
        "hosts_by_mode{",
        "hosts_by_presence{",
        "hosts_uninitialized{",
        "hosts_forwarding_uncovered",
        "components{",
        "missing{",
        "hosts_held",
    ];
    let is_counted = |key: &&String| counted.iter().any(|one| key.starts_with(&format!("holdfast_fleet_{one}")));
    for (key, value) in seen.metrics.iter().filter(|(key, _)| is_counted(key)) {
        let of = wanted.remove(key).unwrap_or_default();
        assert_eq!(*value, of.to_string(), "{key}");
    }
    assert!(wanted.is_empty(), "no gauge has {wanted:?}");
    for state in STATES {
        let is_it = u8::from(seen.status["state"] == state).to_string();
        assert_eq!(seen.metrics[&format!("holdfast_fleet_state{{state=\"{state}\"}}")], is_it, "{state}");
    }
}

fn gauges(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| line.starts_with("holdfast_fleet_"));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}
