//! A gateway of the right CA that lies: in deltas, and in frames. The real agent refuses each as a unit, says why, and goes on.

use holdfast_model::condition::Reason;
use holdfast_model::desired::Component;
use holdfast_model::policy::Body;
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::code::{FaultCode, RefusalCode};
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Message, OutcomeReport};
use holdfast_wire::negotiate::Protocol;

use super::session::{applied, isolated, ruleset, world};
use crate::support::agent::Host;
use crate::support::gateway::{Gateway, stamp};

/// How long after it is told to leave an agent comes back, so that a session that is ended is followed by the next at once.
const LEAVE_AFTER_MS: u32 = 40;
/// A kind of message that no version of the protocol has.
const NO_KIND: u16 = 4_000;

/// A frame of any kind, with any bytes in it.
fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).unwrap();
    [&length.to_be_bytes()[..], &Protocol::NEWEST.number().to_be_bytes(), &kind.to_be_bytes(), payload].concat()
}

/// The update failed as a unit, for this reason, which the host's status has too; what was in force is.
fn refused(host: &Host, report: &OutcomeReport, reason: Reason, word: &str, held: (u64, &Body, &[String])) {
    let (version, body, rules) = held;
    assert_eq!((report.kind, report.conditions[0].reason), (OutcomeKind::Failed, reason), "{report:?}");
    assert_eq!(report.applied, Some(stamp(version, body)), "{report:?}");
    let status = host.status();
    let (outcome, refused) = (&status["policy"]["last_outcome"], &status["session"]["last_refused"]);
    // By the session where it is wrong as it comes, by the worker where only the result is.
    let told = if reason == Reason::WrongDigest { &outcome["conditions"][0]["reason"] } else { &refused["reason"] };
    assert_eq!(told, word, "{status}");
    assert_eq!((host.applied_version(), status["policy"]["proven"].as_bool()), (Some(version), Some(true)), "{status}");
    assert_eq!(ruleset(host), rules);
}

/// The agent ends the session over these bytes and says why, to the gateway and in its status; then it comes back with what it had.
fn ended_over(host: &Host, gateway: &mut Gateway, bytes: &[u8], code: RefusalCode, held: (u64, &Body, &[String])) {
    let (version, body, rules) = held;
    {
        let (mut session, _) = gateway.open();
        session.write_bytes(bytes);
        let said = session.read();
        assert!(
            matches!(&said, Message::Refusal(refusal) if refusal.code == code && !refusal.detail.is_empty()),
            "{said:?}"
        );
    }
    let (mut session, hello) = gateway.open();
    let policy = hello.applied.iter().find(|(component, _)| *component == Component::Policy);
    assert_eq!(policy.map(|(_, stamp)| *stamp), Some(stamp(version, body)), "{code:?}");
    let plain = |text: &str| text.to_lowercase().replace(['_', '-', ' '], "");
    let status = host.status();
    let end = status["session"]["last_end"].as_str().unwrap_or_default();
    assert!(plain(end).contains(&plain(code.word())), "{code:?}: {end}");
    assert_eq!(ruleset(host), rules, "{code:?}");
    session.leave_after(LEAVE_AFTER_MS);
}

#[test]
fn a_gateway_that_lies_in_a_delta_or_a_frame_is_refused_as_a_unit_and_told_why_and_the_host_goes_on() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (good, other, evil) =
        (isolated(&["10.0.0.1"]), isolated(&["10.0.0.2"]), isolated(&["10.0.0.1", "203.0.113.66"]));
    let rules = {
        let (mut session, _) = gateway.open();
        applied(&session.policy(5, &good));
        let rules = ruleset(&host);
        let held = (5, &good, rules.as_slice());
        // Relative to what the host never held, and to another content under the version that it holds.
        for base in [(4, &other), (5, &other)] {
            let report = session.delta(base, (6, &evil));
            refused(&host, &report, Reason::WrongBase, "wrong_base", held);
        }
        session.leave_after(LEAVE_AFTER_MS);
        rules
    };
    let held = (5, &good, rules.as_slice());
    {
        // The renderer's word for one body, and the way to another.
        let (mut session, _) = gateway.open();
        applied(&session.policy(5, &good));
        let report = session.delta_as((5, &good), &evil, stamp(6, &other));
        refused(&host, &report, Reason::WrongDigest, "wrong_digest", held);
        // A kind that nobody knows is told, and costs nothing else.
        session.write_bytes(&frame(NO_KIND, b"whatever"));
        let said = session.read();
        assert!(matches!(&said, Message::Fault(fault) if fault.code == FaultCode::UnknownKind), "{said:?}");
        assert_eq!(ruleset(&host), rules);
        session.leave_after(LEAVE_AFTER_MS);
    }
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
    ended_over(&host, &mut gateway, &too_long, RefusalCode::TooLarge, held);
    // An update with bytes that are none.
    ended_over(&host, &mut gateway, &frame(3, &[0xff; 64]), RefusalCode::Malformed, held);
    // And the host takes what is right.
    let (mut session, _) = gateway.open();
    applied(&session.policy(7, &evil));
    assert_ne!(ruleset(&host), rules);
}
