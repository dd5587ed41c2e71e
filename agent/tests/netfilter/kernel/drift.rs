//! Another process changes our table: it is noticed, told by name, repaired, and no war comes of it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_wire::message::{Delivery, DriftReport};
use holdfast_wire::negotiate::Protocol;

use super::beside::theirs;
use super::session::{applied, isolated, ruleset, world};
use crate::support::agent::Host;
use crate::support::{load_nft, output_of, try_nft};

/// Noticed within this, and repaired within that.
const NOTICED: Duration = Duration::from_secs(2);
pub(super) const REPAIRED: Duration = Duration::from_secs(5);
pub(super) const OWNER: &str = "HOLDFAST_AGENT_TABLE_OWNER";

const OTHERS: &str = "
table ip nat {
  chain post { type nat hook postrouting priority 100; oifname \"eth9\" masquerade; }
}
table inet filter {
  set s { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 }; }
  chain input { type filter hook input priority filter; policy accept; ip saddr @s counter packets 7 bytes 700 accept; }
}
";

/// The name of the set of peers.
fn peers_set(host: &Host) -> String {
    let listed = host.namespace.run(|| output_of("nft", &["list", "table", "inet", "holdfast"]));
    let name = listed.lines().find_map(|line| line.trim().strip_prefix("set s4_")).expect("a set of peers");
    format!("s4_{}", name.trim_end_matches(" {"))
}

/// What the agent says of its last drift.
pub(super) fn last_drift(host: &Host) -> (u64, Option<String>, DriftCounts) {
    let policy = host.status()["policy"].clone();
    let last = &policy["last_drift"];
    let counts = serde_json::from_value(last["differed"].clone()).unwrap_or_default();
    (policy["drifts"].as_u64().unwrap(), last["process"].as_str().map(str::to_owned), counts)
}

/// Another process makes a change: it is noticed and repaired in time.
fn repaired(host: &Host, change: &str, nth: u64) {
    let before = ruleset(host);
    let text = change.to_owned();
    let began = Instant::now();
    host.namespace.run(move || load_nft(&text));
    host.wait_until("it is noticed", || last_drift(host).0 == nth);
    assert!(began.elapsed() < NOTICED, "{change}: noticed after {:?}", began.elapsed());
    host.wait_until("it is repaired", || host.status()["policy"]["proven"] == true);
    assert!(began.elapsed() < REPAIRED, "{change}: repaired after {:?}", began.elapsed());
    assert_eq!(ruleset(host), before, "{change}");
}

#[test]
fn a_plain_table_that_another_process_changes_is_repaired_and_the_event_names_it_and_counts_what_differed() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1", "10.0.0.3", "10.0.0.5"])));
    host.namespace.run(|| load_nft(OTHERS));
    let others = host.namespace.run(theirs);
    let none = DriftCounts::default();
    let table = DriftCounts { table: true, ..none };
    let element = format!("delete element inet holdfast {} {{ 10.0.0.3 }}", peers_set(&host));
    let changes = [
        ("delete table inet holdfast", table),
        (element.as_str(), DriftCounts { elements_missing: 1, ..none }),
        ("add rule inet holdfast in accept", DriftCounts { rules_foreign: 1, ..none }),
    ];
    for (nth, (change, counts)) in (1..).zip(changes) {
        repaired(&host, change, nth);
        assert_eq!(last_drift(&host), (nth, Some("nft".to_owned()), counts), "{change}");
        assert_eq!(host.namespace.run(theirs), others, "{change}");
    }
    // What is gone with a flush are the others' tables: they are nobody's here to bring back.
    repaired(&host, "flush ruleset", 4);
    assert_eq!(host.namespace.run(theirs), "");
    let found = session.drift_until(DriftKind::Found, 4);
    assert_eq!((found.writer.expect("a process").name.as_str(), found.counts), ("nft", table));
    session.drift_until(DriftKind::Repaired, 4);
}

#[test]
fn an_owned_table_is_changed_by_nobody_and_nothing_drifts() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("on"));
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1", "10.0.0.3"])));
    let table = || host.namespace.run(|| output_of("nft", &["--stateless", "list", "table", "inet", "holdfast"]));
    let before = table();
    let element = format!("delete element inet holdfast {} {{ 10.0.0.3 }}", peers_set(&host));
    for change in
        ["delete table inet holdfast", &element, "add rule inet holdfast in accept", "flush table inet holdfast"]
    {
        let text = change.to_owned();
        assert!(!host.namespace.run(move || try_nft(&text)), "{change} is refused");
    }
    host.namespace.run(|| load_nft("flush ruleset"));
    assert_eq!(table(), before);
    // Whatever was noticed was handled before the next answer.
    applied(&session.policy(2, &isolated(&["10.0.0.1", "10.0.0.4"])));
    let policy = host.status()["policy"].clone();
    assert_eq!((&policy["drifts"], &policy["proven"], session.drifts_heard()), (&0.into(), &true.into(), 0));
}

#[test]
fn the_first_drift_is_told_at_once_and_again_in_each_session_with_what_happened_while_nobody_was_there() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.run_session();
    let instance = {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
        let began = Instant::now();
        host.namespace.run(|| load_nft("delete table inet holdfast"));
        let found = session.drift();
        assert!(began.elapsed() < NOTICED, "{:?}", began.elapsed());
        assert_eq!((found.kind, found.total), (DriftKind::Found, 1));
        let repaired = session.drift();
        assert!(began.elapsed() < REPAIRED, "{:?}", began.elapsed());
        assert_eq!((repaired.kind, repaired.total, &repaired.writer), (DriftKind::Repaired, 1, &found.writer));
        found.instance
    };
    for nth in 2..=4 {
        repaired(&host, "add rule inet holdfast in accept", nth);
    }
    // In the session after, and in the one after that: whoever heard it knows by the total.
    for _ in 0..2 {
        let (mut session, _) = gateway.open();
        let told: Vec<DriftReport> = vec![session.drift(), session.drift()];
        let kinds: Vec<(DriftKind, u64)> = told.iter().map(|report| (report.kind, report.total)).collect();
        assert_eq!(kinds, [(DriftKind::Found, 4), (DriftKind::Repaired, 4)]);
        assert!(told.iter().all(|report| report.instance == instance && report.age_ms < 60_000), "{told:?}");
        assert_eq!(told[0].counts, DriftCounts { rules_foreign: 1, ..DriftCounts::default() });
    }
}

#[test]
fn a_gateway_of_an_earlier_protocol_is_not_told_of_drift_and_goes_on_as_before() {
    for protocol in [Protocol::V1, Protocol::V2] {
        let (mut host, mut gateway, _far) = world();
        gateway.protocol = protocol;
        host.set_variable(OWNER, Some("off"));
        host.run_session();
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
        repaired(&host, "delete table inet holdfast", 1);
        applied(&session.policy(2, &isolated(&["10.0.0.2"])));
        assert_eq!(session.drifts_heard(), 0, "{protocol:?}");
    }
}

#[test]
fn drift_cuts_a_poll_that_waits_and_is_told_by_the_next() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.run_session();
    let (_, waiting) = super::polls::settled(&mut gateway, 1, &isolated(&["10.0.0.1"]));
    let began = Instant::now();
    host.namespace.run(|| load_nft("add rule inet holdfast in accept"));
    let mut told = Vec::new();
    while told.len() < 2 {
        let (request, stream) = gateway.hear_poll();
        // Answered when all is told: the agent would leave a poll that it began between the two.
        host.wait_until("it is repaired", || host.status()["policy"]["proven"] == true && last_drift(&host).0 == 1);
        told.extend(request.drifts);
        gateway.answer_poll(stream, &gateway.sync_answer(Delivery::Poll));
    }
    assert!(began.elapsed() < REPAIRED, "{:?}", began.elapsed());
    drop(waiting);
    let kinds: Vec<(DriftKind, u64)> = told.iter().map(|drift| (drift.kind, drift.total)).collect();
    assert_eq!(kinds, [(DriftKind::Found, 1), (DriftKind::Repaired, 1)]);
    assert_eq!((told[0].process.as_deref(), told[0].counts.rules_foreign), (Some("nft"), 1));
}

#[test]
fn the_table_is_read_on_the_slow_tick_also_when_nobody_changes_anything() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("100"));
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    let reads = |host: &Host| host.status()["policy"]["reads"].as_u64().unwrap();
    let before = reads(&host);
    host.wait_until("it is read", || reads(&host) >= before + 3);
    assert_eq!(host.status()["policy"]["drifts"], 0);
}

/// Another tool that takes our table away as often as it can.
struct Foe(Child);

impl Foe {
    fn of(host: &Host) -> Self {
        let script = "while :; do nft delete table inet holdfast 2>/dev/null; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Self(host.namespace.run(move || command.spawn().unwrap()))
    }
}

impl Drop for Foe {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_tool_that_undoes_every_repair_makes_no_war_and_is_told_by_name() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    // The slow tick comes once in this test, at its start.
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("3600000"));
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    let foe = Foe::of(&host);
    let contended = session.drift_until(DriftKind::Contended, 1);
    assert_eq!(contended.writer.expect("a process").name, "nft");
    host.wait_until("it is a war", || host.status()["policy"]["contended"] == true);
    // From now on the tool has the table to itself: nothing is repaired however often it is asked to go.
    let drifts = last_drift(&host).0;
    assert_eq!(drifts, 6);
    host.namespace.run(|| assert!(!output_of("nft", &["list", "tables"]).contains("inet holdfast")));
    assert!(try_table_away(&host), "it is put there by hand, and taken away at once");
    assert_eq!(last_drift(&host).0, drifts);
    drop(foe);
    host.wait_until("it is doubted", || host.status()["policy"]["proven"] == false);
    // An update puts the policy into force from whatever is there.
    applied(&session.policy(2, &isolated(&["10.0.0.2"])));
    assert_eq!(host.status()["policy"]["proven"], true);
}

/// Puts a table of our name there by hand; whether it is gone soon.
fn try_table_away(host: &Host) -> bool {
    host.namespace.run(|| load_nft("add table inet holdfast"));
    host.wait_until("it is gone", || {
        host.namespace.run(|| !output_of("nft", &["list", "tables"]).contains("inet holdfast"))
    });
    true
}

#[test]
fn in_a_war_the_slow_tick_alone_repairs() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable(OWNER, Some("off"));
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("1000"));
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    let foe = Foe::of(&host);
    session.drift_until(DriftKind::Contended, 1);
    let (began, at_first) = (Instant::now(), last_drift(&host).0);
    host.wait_until("the tick repairs", || last_drift(&host).0 >= at_first + 2);
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}: once a tick", began.elapsed());
    drop(foe);
    host.wait_until("it is repaired for good", || host.status()["policy"]["proven"] == true);
    assert_eq!(host.status()["policy"]["contended"], true, "until a while has passed");
}
