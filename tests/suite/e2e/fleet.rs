//! One fleet from nothing to nothing: converged, obeyed by packets, edited, restarted, proven, gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, root, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::remains::Remains;

/// Where the two gateways listen for agents, as `ops/lib/plane.sh` says.
pub(crate) const AGENTS_PORTS: [u16; 2] = [7443, 7444];
/// Whether an agent owns its table: what an owner's kernel refuses to others is done to nobody.
const OWNER: &str = "HOLDFAST_AGENT_TABLE_OWNER";

#[test]
fn a_fleet_converges_obeys_is_edited_survives_a_restart_and_leaves_nothing() {
    let before = Remains::observe();
    let plane = Plane::start(&[]);
    converged(&plane, 12);
    packets_agree(&plane);
    a_second_start_changes_nothing(&plane);
    an_edit_moves_only_the_hosts_that_it_touches(&plane);
    a_restart_of_everything_changes_no_version(&plane);
    nobody_complained(&plane);
    // Before anything is killed: doctor goes on to tell of that. What it says of the restart is a look old, and over with the next ones.
    wait_for("doctor finds everything well", Duration::from_secs(60), || plane.holdfast(&["doctor"]).status.success());
    super::readme::commands_answer_as_they_say(&plane);
    what_another_process_changes_is_told_by_name(&plane);
    what_was_killed_is_started_again(&plane);
    what_the_estate_does_not_have_is_told_at_once(&plane);
    a_check_that_is_cut_off_leaves_no_host_open(&plane);
    proven(&plane);
    nobody_complained_but(&plane, |complaint| {
        complaint.is_of_killed_gateway(AGENTS_PORTS[0]) || complaint.is_of_drift()
    });
    a_host_that_the_estate_lost_is_told_and_not_waited_for(&plane);
    let folder = plane.folder().to_owned();
    plane.wipe();
    let left = Remains::observe().beyond(&before, &folder);
    assert!(left.is_empty(), "down left these behind: {left:?}");
    assert!(!folder.exists() || fs::read_dir(&folder).expect("it is ours").next().is_none(), "{folder:?} is not empty");
}

pub(crate) fn converged(plane: &Plane, hosts: u64) {
    let status = plane.ask(&["status"]);
    assert_eq!(status["state"], "converged", "{status}");
    assert_eq!((&status["hosts"]["total"], &status["hosts"]["converged"]), (&hosts.into(), &hosts.into()), "{status}");
}

/// Waits for that where a gateway was killed: what a host proved in its old session counts until it begins another, and then it is progressing for a moment.
pub(crate) fn converges_anew(plane: &Plane, hosts: u64) {
    wait_for("every host is proven in its new session", Duration::from_secs(60), || {
        let status = plane.ask(&["status"]);
        assert_eq!(status["hosts"]["total"], hosts, "{status}");
        status["state"] == "converged" && status["hosts"]["converged"] == hosts
    });
}

/// `ops/up` has judged every expectation once; a second run must find the same.
fn packets_agree(plane: &Plane) {
    let output = plane.lab(&["verify", "-o", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let views: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("lab verify: {error}: {said}"));
    let view = &views[0];
    assert!(output.status.success() && view["wrong"] == 0, "{said}\n{}", view["differences"]);
    assert!(view["cells"].as_u64().is_some_and(|cells| cells > 500), "{} cells", view["cells"]);
}

fn a_second_start_changes_nothing(plane: &Plane) {
    let (before, running) = (versions(plane), agents(plane));
    plane.up();
    assert_eq!(versions(plane), before);
    assert_eq!(agents(plane), running, "agents that run are left alone");
}

fn an_edit_moves_only_the_hosts_that_it_touches(plane: &Plane) {
    let before = versions(plane);
    let edit = root().join("ops/lab/estates/harbour/steps/quarantine.yaml");
    let edit = edit.to_str().expect("a plain path");
    let applied = plane.ask(&["apply", "-f", edit, "--wait"]);
    assert!(applied.is_object(), "{applied}");
    let after = versions(plane);
    let moved = moved(&before, &after);
    assert_eq!(moved.get("booking/web-2"), Some(&1), "the label is its own: {moved:?}");
    assert!(moved.values().all(|by| *by == 1), "no version skips: {moved:?}");
    // Whoever has no rule that names the quarantined host or what reads its label.
    assert_eq!(moved.keys().collect::<Vec<_>>(), ["booking/web-2"], "{moved:?}");

    let removed = plane.holdfast(&["delete", "Policy/booking/quarantine", "--wait"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let moved = self::moved(&after, &versions(plane));
    assert_eq!(moved, BTreeMap::from([("booking/web-2".to_owned(), 1)]), "the policy was its alone");
}

fn a_restart_of_everything_changes_no_version(plane: &Plane) {
    let (before, ended) = (versions(plane), agents(plane));
    plane.down();
    let said = plane.up();
    assert!(!said.contains("hosts enrolled"), "agents keep their enrolment: {said}");
    converged(plane, 12);
    assert_eq!(versions(plane), before);
    assert!(agents(plane).iter().all(|(host, pid)| ended.get(host) != Some(pid)), "every agent is another process");
}

/// What another process does to a host's table is put right, and is a fact of the authority with that process's name. The kernel would refuse it where the
/// agent owns the table, so on this host it does not.
fn what_another_process_changes_is_told_by_name(plane: &Plane) {
    let host = plane.hosts().into_iter().next().expect("there are hosts");
    let mut command = plane.agent_command(&host);
    let program = command.iter().position(|word| word.ends_with("/holdfast-agent")).expect("it runs an agent");
    command.retain(|word| !word.starts_with(&format!("{OWNER}=")));
    command.insert(program.min(command.len()), format!("{OWNER}=off"));
    plane.kill_agent(&host);
    plane.start_agents(&command);
    converges_anew(plane, 12);
    let status: Value =
        serde_json::from_slice(&plane.agent(&host, &["status", "-o", "json"]).stdout).expect("a status");
    assert_eq!(status["table"]["owned"], false, "{status}");

    let (set, element) = an_element(plane, &host);
    let changes: [&[&str]; 4] = [
        &["delete", "table", "inet", "holdfast"],
        &["flush", "ruleset"],
        &["delete", "element", "inet", "holdfast", &set, "{", &element, "}"],
        &["add", "rule", "inet", "holdfast", "in", "accept"],
    ];
    let before = enforced(plane, &host);
    for (nth, change) in (1_u64..).zip(changes) {
        assert!(plane.nft(&host, change), "{change:?}: the table is nobody's own");
        is_repaired_and_told(plane, &host, nth, change);
        assert_eq!(enforced(plane, &host), before, "{change:?}");
    }
    wait_for("the audit log tells each", Duration::from_secs(20), || {
        let tail = String::from_utf8(plane.holdfast(&["audit", "tail", "-n", "400"]).stdout).expect("text");
        let told = |kind: &str| tail.lines().filter(|line| line.contains(kind) && line.contains("by nft")).count();
        told("drift.found") >= changes.len() && told("drift.repaired") >= changes.len()
    });
}

/// The nth change of another process was noticed, is repaired, and the host is proven again.
fn is_repaired_and_told(plane: &Plane, host: &str, nth: u64, change: &[&str]) {
    let seen = || {
        let hosts = plane.ask(&["get", "hosts"]);
        let items = hosts["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().filter(|one| one["drift"].is_object()).collect::<Vec<_>>()
    };
    let is_told = |one: &Value| one["drift"]["found"] == nth && one["drift"]["repaired"] == true;
    wait_for("the authority knows", Duration::from_secs(20), || seen().iter().any(is_told));
    let [told] = seen().try_into().unwrap_or_else(|all| panic!("one host: {all:?}"));
    assert!(host.ends_with(&text(&told["name"])), "{host}: {told}");
    assert_eq!(told["drift"]["process"], "nft", "{change:?}: {told}");
    let name = format!("{}/{}", text(&told["namespace"]), text(&told["name"]));
    let shown = String::from_utf8(plane.holdfast(&["describe", "host", &name]).stdout).expect("text");
    assert!(shown.contains(" by nft (pid ") && shown.contains("last "), "{shown}");
    converges_anew(plane, 12);
}

/// A set of a host's table with elements, and one of them.
fn an_element(plane: &Plane, host: &str) -> (String, String) {
    let listed = plane.table(host);
    let mut sets = listed["nftables"].as_array().expect("a list").iter().filter_map(|object| object.get("set"));
    let plain = |set: &Value| {
        let elements = set["elem"].as_array()?;
        // A prefix or a range is an object in JSON.
        let address = elements.iter().find_map(|one| one.as_str().map(str::to_owned))?;
        (set["type"] == "ipv4_addr" && text(&set["name"]).starts_with("s4_")).then(|| (text(&set["name"]), address))
    };
    sets.find_map(plain).unwrap_or_else(|| panic!("{host} has no set with an address: {listed}"))
}

/// What a host's kernel enforces: how many rules each chain has, and each set with its elements.
fn enforced(plane: &Plane, host: &str) -> BTreeMap<String, String> {
    let listed = plane.table(host);
    let mut all = BTreeMap::<String, String>::new();
    for object in listed["nftables"].as_array().expect("a list") {
        if let Some(rule) = object.get("rule") {
            all.entry(format!("chain {}", rule["chain"])).or_default().push('.');
        }
        if let Some(set) = object.get("set") {
            all.insert(format!("set {}", set["name"]), set["elem"].to_string());
        }
    }
    all
}

/// A service and an agent end without a word; the next start finds exactly these missing.
fn what_was_killed_is_started_again(plane: &Plane) {
    let (before, running) = (versions(plane), agents(plane));
    let (killed_host, killed) = running.first_key_value().expect("there are agents");
    let status = Command::new("kill").args(["-KILL", &killed.to_string()]).status().expect("kill can be run");
    assert!(status.success(), "{killed} is ours and runs");
    plane.kill("gateway-agents-1");
    plane.up();
    converges_anew(plane, 12);
    assert_eq!(versions(plane), before);
    let changed: Vec<_> = agents(plane).into_iter().filter(|(host, pid)| running.get(host) != Some(pid)).collect();
    assert_eq!(changed.iter().map(|(host, _)| host).collect::<Vec<_>>(), [killed_host]);
}

/// A document in force that is not the estate's is named by the next start, with how to take it out.
fn what_the_estate_does_not_have_is_told_at_once(plane: &Plane) {
    let own = plane.folder().join("own.yaml");
    let policy = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: own, namespace: booking}\n\
                  spec: {hostSelector: {matchLabels: {nobody: has}}}\n";
    fs::write(&own, policy).expect("writes");
    let applied = plane.holdfast(&["apply", "-f", own.to_str().expect("a plain path")]);
    let words = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success() && words.contains("Policy/booking/own governs no host"), "{words}");
    let said = plane.up();
    assert!(said.contains("holdfast delete Policy/booking/own --wait"), "{said}");
    assert!(!said.contains("enrolled here, but not in this estate"), "{said}");
    let removed = plane.holdfast(&["delete", "Policy/booking/own", "--wait"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    fs::remove_file(own).expect("it is ours");
}

/// `holdfast-lab verify` opens every host: Ctrl-C puts them back, and after a kill the next start does.
fn a_check_that_is_cut_off_leaves_no_host_open(plane: &Plane) {
    let cut = |signal: Signal| {
        let mut command = plane.lab_command(&["verify"]);
        let check = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("bash can be run");
        wait_for("a host is open", Duration::from_secs(60), || modes(plane).contains("visibility"));
        kill(Pid::from_raw(check.id().try_into().expect("a pid")), signal).expect("it is ours");
        check.wait_with_output().expect("it ends")
    };
    let told = cut(Signal::SIGINT);
    let words = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(130), "{words}");
    assert!(words.contains("interrupted: putting the hosts into force again"), "{words}");
    assert_eq!(modes(plane), BTreeSet::from(["enforced".to_owned()]), "{words}");

    cut(Signal::SIGKILL);
    let said = plane.up();
    assert!(said.contains("a check of packets was cut off"), "{said}");
    assert_eq!(modes(plane), BTreeSet::from(["enforced".to_owned()]), "{said}");
}

/// The modes that hosts have.
fn modes(plane: &Plane) -> BTreeSet<String> {
    let hosts = plane.ask(&["get", "hosts"]);
    let mode = |host: &Value| host["mode"].as_str().map(str::to_owned);
    hosts["items"].as_array().into_iter().flatten().filter_map(mode).collect()
}

/// An estate has one host less: the start says whom nobody serves any more, and the rest is held against packets as before.
fn a_host_that_the_estate_lost_is_told_and_not_waited_for(plane: &Plane) {
    plane.down();
    let said = plane.up_with(&["--hosts", "11"]);
    assert!(said.contains("enrolled here, but not in this estate: booking/"), "{said}");
    assert!(said.contains("every host of the estate is converged"), "{said}");
    let status = plane.ask(&["status"]);
    assert_eq!((&status["hosts"]["total"], &status["hosts"]["converged"]), (&12.into(), &11.into()), "{status}");
}

/// No process of ours had anything to warn of.
pub(crate) fn nobody_complained(plane: &Plane) {
    nobody_complained_but(plane, |_| false);
}

/// No process of ours had anything to warn of that is not excused. That a statement took long is excused always: two planes share a machine and its disk.
pub(crate) fn nobody_complained_but(plane: &Plane, is_excused: impl Fn(&Complaint) -> bool) {
    let is_excused = |complaint: &Complaint| complaint.is_of_slow_statement() || is_excused(complaint);
    let complaints = plane.complaints();
    let complaints: Vec<_> =
        complaints.iter().filter(|complaint| !is_excused(complaint)).map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

pub(crate) fn proven(plane: &Plane) {
    let verified = plane.holdfast(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// The latest version of every host's policy, which must be the applied one.
pub(crate) fn versions(plane: &Plane) -> BTreeMap<String, u64> {
    let page = plane.ask(&["get", "hosts"]);
    let hosts = page["items"].as_array().expect("a page of hosts");
    let policy = |host: &Value| {
        let components = host["components"].as_array().expect("every host has components");
        let policy = components.iter().find(|one| one["component"] == "policy").expect("every host has a policy");
        assert_eq!(policy["latest"], policy["applied"], "{host}");
        for other in components.iter().filter(|one| one["component"] != "policy") {
            assert_eq!(other["latest"]["version"], 1, "nothing but policies changes: {host}");
        }
        policy["latest"]["version"].as_u64().expect("a version")
    };
    let name = |host: &Value| format!("{}/{}", text(&host["namespace"]), text(&host["name"]));
    hosts.iter().map(|host| (name(host), policy(host))).collect()
}

/// By how much versions moved, of those that did.
pub(crate) fn moved(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let by = |(host, version): (&String, &u64)| (host.clone(), version - before.get(host).copied().unwrap_or_default());
    after.iter().map(by).filter(|(_, by)| *by > 0).collect()
}

/// The process of every agent.
fn agents(plane: &Plane) -> BTreeMap<String, i64> {
    let output = plane.lab(&["hosts", "-o", "json"]);
    let hosts: Value = serde_json::from_slice(&output.stdout).expect("a list of hosts");
    let agent = |host: &Value| (text(&host["name"]), host["agent_pid"].as_i64().expect("an agent on every host"));
    hosts.as_array().expect("a list").iter().map(agent).collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
