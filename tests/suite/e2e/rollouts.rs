//! A change that cuts hosts off, in stages, through real processes: it touches its canary, and nobody else.
//!
//! - The agent of the canary has a hook that leaves its gateways to the policy; every other agent would keep its way to them, and is never asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use holdfast_suite::plane::{Plane, wait_for};
use serde_json::Value;

use super::dishonest::hooked;
use super::fleet::{converged, converges_anew, moved, versions};
use super::packets::rules_of;

const CANARY: &str = "edge-1";
const CANARY_NAME: &str = "booking/edge-1";
/// Within this, a policy that cuts its host off is gone from the kernel again.
const REVERTED: Duration = Duration::from_secs(30);
/// Marks the canary, and lets it reach its gateways by policy: nothing else does once it keeps no way to them.
const MARK: &str = "\
apiVersion: holdfast.dev/v1
kind: Host
metadata: {name: edge-1, namespace: booking}
spec: {mode: enforced, labels: {canary: \"true\"}}
---
apiVersion: holdfast.dev/v1
kind: Policy
metadata: {name: gateways, namespace: booking}
spec:
  hostSelector: {matchLabels: {canary: \"true\"}}
  egress:
  - to: [{cidr: 198.18.0.0/15}]
    services: [{tcp: 7443}, {tcp: 7444}]
";
/// Takes that away again, and is for every host of the booking system: each would have another rule.
const CUTS_OFF: &str = "\
apiVersion: holdfast.dev/v1
kind: Policy
metadata: {name: gateways, namespace: booking}
spec:
  hostSelector: {matchLabels: {canary: \"true\"}}
  egress:
  - to: [{cidr: 198.18.0.0/15}]
    services: [{tcp: 9}]
---
apiVersion: holdfast.dev/v1
kind: Policy
metadata: {name: discard, namespace: booking}
spec:
  hostSelector: {matchLabels: {app: booking}}
  egress:
  - to: [{cidr: 192.0.2.0/24}]
    services: [{tcp: 9}]
";

#[test]
fn a_wave_with_a_bad_canary_touches_only_the_canary() {
    let plane = Plane::start(&[]);
    apply(&plane, MARK, &["--wait"]);
    leave_gateways_to_the_policy(&plane);
    converges_anew(&plane, 12);
    let (before, rules, canarys) = (versions(&plane), rules_of_others(&plane), content(&plane));
    let begun = apply(&plane, CUTS_OFF, &["--rollout", "--stage", "canary=true", "--stage", "50%", "-o", "json"]);
    let begun: Value = serde_json::from_str(&begun).expect("JSON");
    let id = begun["rollout"].as_str().expect("a rollout began");
    // Its agent has the window that is shipped: from the first sight of the policy in the kernel to the last.
    wait_for("the canary's kernel has it", Duration::from_secs(60), || content(&plane) != canarys);
    let applied = Instant::now();
    wait_for("the canary's kernel has what it had", REVERTED, || content(&plane) == canarys);
    assert!(applied.elapsed() > REVERTED / 10, "it was tried: {:?}", applied.elapsed());

    let watched = plane.holdfast(&["rollout", "watch", id, "--timeout", "4m"]);
    let said = String::from_utf8_lossy(&watched.stderr).into_owned();
    assert_eq!(watched.status.code(), Some(1), "{said}");
    assert!(said.contains("is halted") && said.contains(CANARY_NAME) && said.contains("self_isolation"), "{said}");
    let halted = moved(&before, &newest(&plane));
    assert_eq!(halted, BTreeMap::from([(CANARY_NAME.to_owned(), 1)]), "the change is the canary's alone");
    assert_eq!(rules_of_others(&plane), rules, "no other kernel was touched");

    let aborted = plane.holdfast(&["rollout", "abort", id]);
    assert!(aborted.status.success(), "{}", String::from_utf8_lossy(&aborted.stderr));
    let waited = plane.holdfast(&["wait", "--timeout", "2m"]);
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    converged(&plane, 12);
    let after = moved(&before, &versions(&plane));
    assert_eq!(after, BTreeMap::from([(CANARY_NAME.to_owned(), 2)]), "back, as a new version of the canary alone");
    assert_eq!(rules_of_others(&plane), rules);
    if let Err(differences) = plane.proven() {
        panic!("{differences}");
    }
    plane.wipe();
}

/// What the canary's kernel enforces: rules and elements, without handles and counts of packets.
fn content(plane: &Plane) -> BTreeSet<String> {
    let listed = plane.table(CANARY);
    let objects = listed["nftables"].as_array().expect("a list").iter();
    let one = |object: &Value| {
        let (kind, object) = object.as_object()?.iter().next()?;
        let text = match kind.as_str() {
            "rule" => format!("{} {}", object["chain"], object["comment"]) + &matches_of(&object["expr"]),
            "set" => format!("{} {}", object["name"], object["elem"]),
            _ => return None,
        };
        Some(text)
    };
    objects.filter_map(one).collect()
}

/// What a rule asks, without what it counted.
fn matches_of(expressions: &Value) -> String {
    let all = expressions.as_array().into_iter().flatten();
    all.filter(|one| one.get("counter").is_none()).map(Value::to_string).collect()
}

/// The rules of every host but the canary, by their handles.
fn rules_of_others(plane: &Plane) -> BTreeMap<String, BTreeSet<(String, u64)>> {
    let mut rules = rules_of(plane);
    assert!(rules.remove(CANARY).is_some() && rules.len() == 11);
    rules
}

/// The newest version of the policy of each host, whether it took it or not.
fn newest(plane: &Plane) -> BTreeMap<String, u64> {
    let hosts = plane.ask(&["get", "hosts"]);
    let one = |host: &Value| {
        let policy = host["components"].as_array()?.iter().find(|part| part["component"] == "policy")?;
        let name = format!("{}/{}", host["namespace"].as_str()?, host["name"].as_str()?);
        Some((name, policy["latest"]["version"].as_u64()?))
    };
    let newest: BTreeMap<String, u64> = hosts["items"].as_array().expect("a list").iter().filter_map(one).collect();
    assert_eq!(newest.len(), 12, "{hosts}");
    newest
}

/// Applies a document; what was printed.
fn apply(plane: &Plane, document: &str, how: &[&str]) -> String {
    let file = plane.folder().join("document.yaml");
    fs::write(&file, document).expect("the folder is ours");
    let applied = plane.holdfast(&[&["apply", "-f", file.to_str().expect("a plain path")], how].concat());
    fs::remove_file(&file).expect("it is there");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    String::from_utf8(applied.stdout).expect("text")
}

/// The canary's agent is another build of the same, which does not keep its way to its gateways.
fn leave_gateways_to_the_policy(plane: &Plane) {
    let mut command = plane.agent_command(CANARY);
    let program = command.iter().position(|word| word.ends_with("/holdfast-agent")).expect("it runs an agent");
    if let Some(word) = command.get_mut(program) {
        *word = hooked("holdfast-agent").display().to_string();
    }
    command.insert(program, "HOLDFAST_AGENT_TEST_UNGUARDED=1".to_owned());
    plane.kill_agent(CANARY);
    plane.start_agents(&command);
}
