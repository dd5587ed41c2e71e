//! With the feature `test-hooks`: a kernel that is altered behind the agent or refuses, and an agent that dies at every step of an update.

mod deaf;
mod refused;
mod silent;
mod slow;
mod wordy;

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::flows::world;
use super::steady::{NOTHING, Probes};
use crate::support::agent::Host;
use crate::support::{listed, load_nft, output_of};

const BEFORE: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
    {"action": "allow", "protocol": "tcp", "ports": [80], "peers": ["10.0.0.1", "10.0.0.9"]}]}}"#;

/// What is asked on the allowed port has an answer under each of these; the second has another member and another rule.
const POLICIES: [&str; 2] = [
    r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
        {"action": "allow", "protocol": "udp", "ports": [53], "peers": ["10.77.0.2", "10.0.0.9"]}]}}"#,
    r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
        {"action": "allow", "protocol": "udp", "ports": [53], "peers": ["10.77.0.2", "10.0.0.7"]},
        {"action": "allow", "protocol": "tcp", "ports": [80], "peers": ["10.0.0.0/24", "fd77::/64"]}]}}"#,
];

/// Every point of an update, and at which time an agent that holds the first policy passes it for the second: its start says the first once more.
const POINTS: &[(&str, &str)] = &[
    ("an update: accepted, before it is on disk", "2"),
    ("the ledger: record written, before it is synced", "3"),
    ("an update: on disk, before it is in the kernel", "2"),
    ("an update: its sets in the kernel, before its rules", "1"),
    ("an update: in the kernel, before it is read back", "1"),
    ("an update: read back, before it is good on disk", "2"),
    ("the ledger: record written, before it is synced", "4"),
    ("an update: good on disk, before it is told", "2"),
];

/// The points of a ledger that is made anew, which the first policy of a host passes.
const FIRST_POINTS: &[&str] =
    &["the ledger: written anew, before it is put in place", "the ledger: put in place, before its folder is synced"];

/// The point of settings and credentials, which a session's first states pass.
const COMPONENT_POINTS: &[&str] = &["a component: accepted, before it is on disk"];

/// The points of a trial, in which the host is cut off or a gateway reached; killed at them in `confirm.rs`.
pub(super) const TRIAL_POINTS: [&str; 2] =
    ["a trial: taken back on disk, before the kernel", "a trial: confirmed on disk, before it is told"];

pub(super) const POINT: &str = "HOLDFAST_TEST_FAIL_POINT";
pub(super) const NTH: &str = "HOLDFAST_TEST_FAIL_POINT_NTH";

#[test]
fn an_altered_element_fails_the_update_and_the_last_good_comes_back() {
    let host = Host::with_environment(BEFORE, &[("HOLDFAST_AGENT_TEST_ALTER_FILE", "alter")]);
    host.start();
    let listed = || host.namespace.run(|| output_of("nft", &["--stateless", "list", "table", "inet", "holdfast"]));
    let good = listed();
    host.write_policy(&BEFORE.replace("10.0.0.9", "10.0.0.7"));
    std::fs::write(host.path("alter"), "").unwrap();
    let reload = host.ask(&["reload", "-o", "json"]);
    assert!(!reload.status.success());
    let outcome: serde_json::Value = serde_json::from_slice(&reload.stdout).unwrap();
    assert_eq!(outcome["outcome"], "failed");
    assert_eq!(outcome["applied"]["version"], 1);
    assert_eq!(outcome["conditions"][2]["reason"], "read_back_differs");
    assert_eq!(listed(), good);
    assert_eq!(host.status()["policy"]["proven"], true);
    // The file is gone, so the same update goes through.
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!(host.applied_version(), Some(2));
}

#[test]
fn a_kill_at_every_step_of_an_update_leaves_one_of_two_policies_whole_and_packets_see_neither_it_nor_the_start() {
    let (near, far) = world();
    let mut host = Host::within(near);
    let tables = POLICIES.map(|policy| {
        host.write_policy(policy);
        host.start();
        let table = host.namespace.run(listed);
        host.end(Signal::SIGTERM);
        table
    });
    assert_ne!(tables[0], tables[1]);
    let holds_one = |host: &Host, point: &str| {
        let left = host.namespace.run(listed);
        assert!(tables.contains(&left), "{point}: {left:#?}");
        left
    };
    // From a policy that is in force: whatever is killed then, the allowed port answers and the other one does not.
    host.write_policy(POLICIES[0]);
    host.start();
    host.end(Signal::SIGTERM);
    let probes = Probes::start(&host.namespace, &far);
    for (point, nth) in POINTS {
        host.write_policy(POLICIES[0]);
        host.start();
        assert_eq!(host.namespace.run(listed), tables[0], "{point}");
        host.end(Signal::SIGTERM);
        host.set_variable(POINT, Some(point));
        host.set_variable(NTH, Some(nth));
        host.start();
        host.write_policy(POLICIES[1]);
        host.signal(Signal::SIGHUP);
        assert_eq!(host.killed(), Some(9), "{point}");
        host.set_variable(POINT, None);
        host.set_variable(NTH, None);
        let left = if point.contains("its sets") {
            // Sets that no rule asks for stand beside the old rules.
            let rules =
                |table: &[String]| table.iter().filter(|block| block.contains("chain")).cloned().collect::<Vec<_>>();
            let left = host.namespace.run(listed);
            assert_eq!(rules(&left), rules(&tables[0]), "{point}");
            tables[0].clone()
        } else {
            holds_one(&host, point)
        };
        // Without a file: the disk alone says what is in force.
        host.write_policy("no policy at all");
        host.start();
        let status = host.status();
        assert_eq!(
            (&status["policy"]["proven"], &status["policy"]["ledger"]["state"]),
            (&true.into(), &"loaded".into())
        );
        let after = holds_one(&host, point);
        assert_eq!(after, left, "{point}: what the kernel held is what the start finds");
        host.end(Signal::SIGTERM);
    }
    let sent = probes.sent();
    assert_eq!(probes.end(), NOTHING, "of {sent}");
}

#[test]
fn a_kill_while_the_first_ledger_is_made_leaves_none_or_a_whole_one() {
    for point in FIRST_POINTS {
        let mut host = Host::new(POLICIES[1]);
        host.set_variable(POINT, Some(point));
        host.spawn();
        assert_eq!(host.killed(), Some(9), "{point}");
        host.set_variable(POINT, None);
        host.start();
        let status = host.status();
        let state = &status["policy"]["ledger"]["state"];
        assert!(state == "missing" || state == "loaded", "{point}: {status}");
        assert_eq!((&status["policy"]["proven"], host.applied_version()), (&true.into(), Some(1)), "{point}");
        host.end(Signal::SIGKILL);
        host.write_policy("no policy at all");
        host.start();
        assert_eq!((&host.status()["policy"]["proven"], host.applied_version()), (&true.into(), Some(1)), "{point}");
    }
}

#[test]
fn updates_that_fail_again_and_again_leak_nothing_and_lose_nothing() {
    let (near, far) = world();
    let mut host = Host::within(near);
    host.write_policy(POLICIES[0]);
    let file = host.path("alter");
    host.set_variable("HOLDFAST_AGENT_TEST_ALTER_FILE", file.to_str());
    host.start();
    let good = host.namespace.run(listed);
    let probes = Probes::start(&host.namespace, &far);
    for round in 0..5 {
        // Takes a member out that is not the one that asks, and has to be brought back.
        host.write_policy(&POLICIES[0].replace("10.0.0.9", &format!("10.0.0.{}", 20 + round)));
        fs::write(&file, "").unwrap();
        assert!(!host.ask(&["reload"]).status.success(), "round {round}");
        assert_eq!(host.namespace.run(listed), good, "round {round}");
    }
    let sent = probes.sent();
    assert_eq!(probes.end(), NOTHING, "of {sent}");
    assert!(sent > 100, "{sent}");
}

#[test]
fn an_update_that_the_kernel_refuses_changes_nothing_is_told_once_and_a_later_one_goes_through() {
    let mut host = Host::new(POLICIES[0]);
    let file = host.path("refuse");
    host.set_variable("HOLDFAST_AGENT_TEST_REFUSE_FILE", file.to_str());
    host.start();
    let good = host.namespace.run(listed);
    fs::write(&file, "").unwrap();
    host.write_policy(POLICIES[1]);
    let reload = host.ask(&["reload", "-o", "json"]);
    assert!(!reload.status.success());
    let outcome: serde_json::Value = serde_json::from_slice(&reload.stdout).unwrap();
    assert_eq!((&outcome["outcome"], &outcome["applied"]["version"]), (&"failed".into(), &1.into()), "{outcome}");
    assert_eq!(outcome["conditions"][1]["reason"], "kernel_refused", "{outcome}");
    assert!(outcome["conditions"][1]["message"].as_str().is_some_and(|said| !said.is_empty() && said.len() <= 256));
    assert_eq!(host.namespace.run(listed), good);
    assert_eq!((&host.status()["policy"]["proven"], host.applied_version()), (&true.into(), Some(1)));
    // The disk says so too.
    host.end(Signal::SIGKILL);
    fs::remove_file(&file).unwrap();
    host.start();
    assert_eq!((host.applied_version(), host.status()["policy"]["proven"].as_bool()), (Some(2), Some(true)));
    assert_ne!(host.namespace.run(listed), good);
}

#[test]
fn answers_that_find_no_room_do_not_decide_what_was_applied() {
    let peers: Vec<String> =
        (0..2_000_u32).map(|n| format!("\"10.{}.{}.{}\"", n >> 15, n >> 7 & 255, (n << 1) & 255)).collect();
    let rules: Vec<String> = (0..1_000_u16)
        .map(|n| {
            format!(
                r#"{{"action": "allow", "protocol": "tcp", "ports": [{}], "peers": [{}]}}"#,
                1_000 + n,
                peers[usize::from(n)]
            )
        })
        .collect();
    let policy = |count: usize| {
        format!(r#"{{"mode": "enforced", "ingress": {{"isolated": true, "rules": [{}]}}}}"#, rules[..count].join(", "))
    };
    let mut host = Host::new(&policy(1));
    // The least that the kernel gives: room for some answers of a thousand.
    host.set_variable("HOLDFAST_AGENT_TEST_RECEIVE_BYTES", Some("2304"));
    let file = host.path("refuse");
    host.set_variable("HOLDFAST_AGENT_TEST_REFUSE_FILE", file.to_str());
    host.start();
    let few = host.namespace.run(listed);
    let reloaded = |count: usize| {
        let before = answers_dropped(&host);
        host.write_policy(&policy(count));
        let reload = host.ask(&["reload", "-o", "json"]);
        let outcome: serde_json::Value = serde_json::from_slice(&reload.stdout).unwrap();
        let dropped = answers_dropped(&host) - before;
        assert!(dropped > 500, "the kernel had room for all but {dropped} answers");
        outcome
    };
    // Refused, and the refusal is not among the answers that find room: it comes last.
    fs::write(&file, "").unwrap();
    let outcome = reloaded(1_000);
    assert_eq!((&outcome["outcome"], &outcome["applied"]["version"]), (&"failed".into(), &1.into()), "{outcome}");
    assert_eq!(host.namespace.run(listed), few);
    assert_eq!((&host.status()["policy"]["proven"], host.applied_version()), (&true.into(), Some(1)));
    // Taken, and the answers say no more.
    fs::remove_file(&file).unwrap();
    let outcome = reloaded(999);
    assert_eq!((&outcome["outcome"], &outcome["applied"]["version"]), (&"applied".into(), &2.into()), "{outcome}");
    let held = host.namespace.run(listed).iter().map(|block| block.matches("tcp dport").count()).sum::<usize>();
    assert!(held >= 999, "{held} rules");
    assert_eq!((&host.status()["policy"]["proven"], host.applied_version()), (&true.into(), Some(2)));
}

#[test]
fn who_changed_nothing_that_stayed_is_not_named_for_a_change_whose_notice_was_lost() {
    let mut host = Host::new(BEFORE);
    host.set_variable("HOLDFAST_AGENT_TABLE_OWNER", Some("off"));
    host.set_variable("HOLDFAST_AGENT_TEST_RECEIVE_BYTES", Some("16384"));
    // The slow tick comes once in this test, at its start.
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("3600000"));
    host.start();
    let policy = || host.status()["policy"].clone();
    let load = |text: String| host.namespace.run(move || load_nft(&text));
    host.wait_until("the first tick", || policy()["reads"].as_u64() > Some(0));
    load("delete table inet holdfast".to_owned());
    host.wait_until("it is told", || policy()["last_drift"]["process"] == "nft");
    let reads = policy()["reads"].as_u64();
    load("add chain inet holdfast passing\ndelete chain inet holdfast passing".to_owned());
    host.wait_until("it is read", || policy()["reads"].as_u64() > reads);
    assert_eq!(policy()["drifts"], 1, "nothing of it stayed");
    host.signal(Signal::SIGSTOP);
    // More notices than there is room for, and then ours among those that find none.
    let elements: Vec<String> = (0..5_000_u32).map(|n| format!("10.2.{}.{}", n / 200, n % 200)).collect();
    load(format!("table ip many {{\nset s {{ type ipv4_addr; elements = {{ {} }}; }}\n}}", elements.join(", ")));
    load("delete table inet holdfast".to_owned());
    host.signal(Signal::SIGCONT);
    host.wait_until("it is found", || policy()["drifts"] == 2 && policy()["last_drift"]["repaired"] == true);
    assert_eq!(policy()["last_drift"]["process"], serde_json::Value::Null, "nobody was named for this one");
}

/// How many answers to the agent's requests found no room, which the kernel tells as ENOBUFS; its own notices are of another socket, with groups.
fn answers_dropped(host: &Host) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/net/netlink", host.pid())).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let column = |name| head.split_whitespace().position(|title| title == name).unwrap();
    let (family, groups, drops) = (column("Eth"), column("Groups"), column("Drops"));
    let rows = rows.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    // NETLINK_NETFILTER
    let ours = rows.filter(|row| row[family] == "12" && row[groups] == "00000000");
    ours.map(|row| row[drops].parse::<u64>().unwrap()).sum()
}

#[test]
fn every_named_point_of_the_agent_is_one_at_which_it_is_killed() {
    let mut in_code = std::collections::BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut in_code);
    let points = POINTS
        .iter()
        .map(|(point, _)| point)
        .chain(FIRST_POINTS)
        .chain(COMPONENT_POINTS)
        .chain(&TRIAL_POINTS)
        .chain(super::enrol::hook::POINTS);
    let listed = points.map(|point| (*point).to_owned()).collect();
    assert_eq!(in_code, listed);
}

fn collect(folder: &Path, points: &mut std::collections::BTreeSet<String>) {
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, points);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // On one line or several; its definition has no text.
        let calls = text.split("fail_point(").skip(1).filter(|call| call.trim_start().starts_with('"'));
        points.extend(calls.map(|call| {
            let mut parts = call.split('"').skip(1);
            format!("{}: {}", parts.next().unwrap(), parts.nth(1).unwrap())
        }));
    }
}
