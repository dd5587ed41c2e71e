//! A gateway with genuine certificates that changes what the renderer signed, between real agents and the real authority.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::plane::{Plane, Running};
use holdfast_suite::traffic::{Places, Traffic};
use serde_json::Value;

use super::fleet::{converges_anew, moved, versions};
use super::packets::{attempts, beacons, rules_of, tcp, udp, whole};

pub(crate) const ALTERED: &str = "db-1";
pub(crate) const SWAPPED: [&str; 2] = ["edge-1", "web-1"];
/// The service whose place the gateways take.
const FIRST: &str = "gateway-agents-1";
const DEADLINE: Duration = Duration::from_secs(60);

/// Hosts whose states a gateway alters or swaps keep their last good through an edit, say why, and take what is right from an honest gateway.
pub(crate) fn a_gateway_that_alters_or_swaps_is_refused_by_the_agents(plane: &Plane, places: &Places) {
    let host = |name: &str| places.host(name);
    let routes = vec![
        // What the edit allows, on hosts that do not get it.
        udp(host("web-1"), host(ALTERED), 7000),
        // What only the other host of the pair may.
        attempts(places.outside("198.51.100.7"), host("web-1"), 443),
        tcp(host("edge-1"), host("web-1"), 8080),
        tcp(host("web-1"), host("api-1"), 9090),
        tcp(host("api-1"), host(ALTERED), 5432),
        udp(host("api-1"), host("api-2"), 7000),
    ];
    let traffic = Traffic::start(routes);
    let (versions_before, rules_before) = (versions(plane), rules_of(plane));

    let honest = Gateway { program: plane.program_of(FIRST), settings: plane.settings_of(FIRST) };
    let lying = lying(plane, &honest);
    plane.kill(FIRST);
    plane.kill("gateway-agents-2");
    let gateway = lying.run(plane);
    beacons(plane, "[api, jobs, db, web, edge]", &[]);
    let all_took_or_refused = |hosts: &BTreeMap<String, Value>| {
        hosts.iter().all(|(name, policy)| match reason_for(name) {
            None => policy["state"] == "converged",
            Some(reason) => {
                let outcome = &policy["outcome"];
                outcome["kind"] == "failed" && outcome["reason"] == reason && outcome["signature_valid"] == true
            }
        })
    };
    let hosts = policies_when(plane, "each host took what was right and refused what was not", all_took_or_refused);
    for name in [ALTERED, SWAPPED[0], SWAPPED[1]] {
        let (policy, before) = (&hosts[name], versions_before[&format!("booking/{name}")]);
        assert_eq!(policy["applied"]["version"], before, "{name} holds its last good: {policy}");
        assert_eq!(policy["latest"]["version"], before + 1, "{name} is to have the edit: {policy}");
    }
    let rules = rules_of(plane);
    for name in [ALTERED, SWAPPED[0], SWAPPED[1]] {
        assert_eq!(rules[name], rules_before[name], "{name}");
    }
    assert_ne!(rules["web-2"], rules_before["web-2"], "who is not lied to has the edit");
    traffic.wait_for_more(super::packets::PACKETS);
    for flow in traffic.flows().iter().take(2) {
        assert_eq!(flow.tally().there.arrived, 0, "{}", flow.route());
    }

    drop(gateway);
    let gateway = honest.run(plane);
    let is_converged = |hosts: &BTreeMap<String, Value>| hosts.values().all(|policy| policy["state"] == "converged");
    policies_when(plane, "every host has the edit", is_converged);
    traffic.wait_until("what the edit allows flows", |flows| {
        flows.first().is_some_and(|flow| flow.tally().back.arrived > 0)
    });
    // Only now: a start of the plane gives up where a host's last word is a failure.
    drop(gateway);
    plane.up();
    converges_anew(plane, 12);
    let moved = moved(&versions_before, &versions(plane));
    assert!(moved.values().all(|by| *by == 1), "lies make no version: {moved:?}");
    for (flow, fate) in traffic.end().into_iter().skip(2) {
        whole(&flow, fate);
    }
}

/// Why a host refuses what it is sent, if it is lied to.
fn reason_for(host: &str) -> Option<&'static str> {
    if host == ALTERED {
        Some("wrong_digest")
    } else if SWAPPED.contains(&host) {
        Some("bad_signature")
    } else {
        None
    }
}

/// A service with the feature `test-hooks`.
pub(crate) fn hooked(program: &str) -> PathBuf {
    let folder = std::env::var_os("HOLDFAST_HOOKED_BIN").map(PathBuf::from);
    let folder = folder.expect(
        "HOLDFAST_HOOKED_BIN names a folder of services with the feature test-hooks; run ./ops/test --only e2e",
    );
    folder.join(program)
}

/// How a gateway is run.
struct Gateway {
    program: PathBuf,
    settings: Vec<(String, String)>,
}

impl Gateway {
    fn run(&self, plane: &Plane) -> Running {
        plane.run_beside(&self.program, &self.settings, "the agents' door is open")
    }
}

/// One that lies, with the settings and certificates of an honest one.
fn lying(plane: &Plane, honest: &Gateway) -> Gateway {
    let program = hooked("holdfast-gateway");
    let ids = ids(plane);
    let id = |name: &str| ids[name].clone();
    let mut settings = honest.settings.clone();
    settings.push(("HOLDFAST_TEST_GATEWAY_ALTER".to_owned(), id(ALTERED)));
    settings.push(("HOLDFAST_TEST_GATEWAY_SWAP".to_owned(), SWAPPED.map(id).join(",")));
    Gateway { program, settings }
}

fn hosts(plane: &Plane) -> Vec<Value> {
    plane.ask(&["get", "hosts"])["items"].as_array().expect("a page of hosts").clone()
}

fn ids(plane: &Plane) -> BTreeMap<String, String> {
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    hosts(plane).iter().map(|host| (word(&host["name"]), word(&host["id"]))).collect()
}

/// The policies of all hosts once they are so.
pub(crate) fn policies_when(
    plane: &Plane,
    what: &str,
    are_so: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> BTreeMap<String, Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let policy = |host: Value| {
            let components = host["components"].as_array().expect("every host has components");
            let policy = components.iter().find(|one| one["component"] == "policy").expect("every host has a policy");
            (host["name"].as_str().expect("a name").to_owned(), policy.clone())
        };
        let policies: BTreeMap<_, _> = hosts(plane).into_iter().map(policy).collect();
        if are_so(&policies) {
            return policies;
        }
        assert!(Instant::now() < deadline, "{what}: {policies:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}
