//! The most that a real agent can say of its host.

use holdfast_model::report::{HostReport, REPORT_TEXT_BYTES_MAX};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::encode;
use holdfast_wire::limits::REPORT_FRAME_BYTES_MAX;
use holdfast_wire::message::Message;
use holdfast_wire::negotiate::Protocol;

use super::super::session::{isolated, world};

#[test]
fn the_most_that_a_real_agent_can_say_of_its_host_is_cut_signed_and_below_the_cap() {
    let (mut host, mut gateway, _far) = world();
    host.set_variable("HOLDFAST_AGENT_TEST_WORDY", Some("1"));
    host.run_session();
    gateway.liveness_interval_ms = 1_000;
    let (mut session, _) = gateway.open();
    let outcome = session.policy(1, &isolated(&["10.0.0.1"]));
    assert_eq!(outcome.kind, OutcomeKind::Applied, "{outcome:?}");
    let is_full = |report: &HostReport| {
        let mut all = report.components.iter().flat_map(|of| &of.conditions);
        report.answered.raw() == 1 && all.all(|stated| stated.condition.message.len() == REPORT_TEXT_BYTES_MAX)
    };
    let told = session.status_until("every text is as long as it may be", is_full);
    assert!(session.is_genuine(&told), "what was cut is what was signed");
    let mut bytes = Vec::new();
    encode(Protocol::V3, &Message::Status(told), &mut bytes).unwrap();
    assert!(bytes.len() <= REPORT_FRAME_BYTES_MAX && bytes.len() > 16 * REPORT_TEXT_BYTES_MAX, "{}", bytes.len());
    session.signs_of_life(2);
}
