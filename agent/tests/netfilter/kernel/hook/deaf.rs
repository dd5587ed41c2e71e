//! A kernel whose notices cannot be heard, under a real agent: it is told, looked for by the tick meanwhile, and heard again.

use std::fs;

use holdfast_model::condition::{Basis, ConditionType};
use holdfast_model::report::HostReport;
use holdfast_wire::code::DirectiveCode;
use holdfast_wire::message::{Directive, Message};

use super::super::session::{isolated, world};
use super::super::status::{confirmed, of, one, yes};
use crate::support::load_nft;

#[test]
fn notices_that_end_are_told_the_slow_tick_finds_what_others_change_meanwhile_and_they_are_heard_again_by_themselves() {
    let (mut host, mut gateway, _far) = world();
    let deaf = host.path("deaf");
    host.set_variable("HOLDFAST_AGENT_TEST_DEAF_FILE", deaf.to_str());
    host.set_variable("HOLDFAST_AGENT_TABLE_OWNER", Some("off"));
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("1000"));
    host.run_session();
    let (mut session, _) = gateway.open();
    let before = confirmed(&host, &mut session, 1, &isolated(&["10.0.0.1"]));
    let basis = |report: &HostReport| one(report, ConditionType::NoDrift).basis;
    assert_eq!(basis(&before), Basis::Observed);
    let change = || host.namespace.run(|| load_nft("delete table inet holdfast"));
    let is_repaired = |nth: u64| {
        let policy = host.status()["policy"].clone();
        policy["drifts"] == nth && policy["last_drift"]["repaired"] == true && policy["proven"] == true
    };
    let unheard = || host.status()["policy"]["unheard"].clone();
    assert_eq!(unheard(), serde_json::Value::Null);

    fs::write(&deaf, "").unwrap();
    change();
    let told = session.status_until("nobody hears", |report| basis(report) == Basis::Inferred);
    assert!(session.is_genuine(&told));
    host.wait_until("the tick finds it", || is_repaired(1));
    assert_eq!(host.status()["policy"]["last_drift"]["process"], serde_json::Value::Null, "nobody was named");
    let whole = |report: &HostReport| of(report, ConditionType::NoDrift) == yes(1);
    session.write(&Message::Directive(Directive { code: DirectiveCode::ReportStatus, argument: Vec::new() }));
    let repaired = session.status().report;
    assert!(whole(&repaired) && basis(&repaired) == Basis::Inferred, "that nobody writes was not seen: {repaired:?}");
    assert_eq!(of(&repaired, ConditionType::Verified), yes(1));
    assert!(unheard().is_string());
    assert!(host.troubles().iter().any(|(name, _)| name == "notices"));

    fs::remove_file(&deaf).unwrap();
    session.status_until("it hears", |report| basis(report) == Basis::Observed && whole(report));
    assert_eq!(unheard(), serde_json::Value::Null);
    change();
    host.wait_until("it is repaired", || is_repaired(2));
    assert_eq!(host.status()["policy"]["last_drift"]["process"], "nft", "the notice named it");
}
