//! The real agent with gateways of another protocol than its newest, and with what no protocol of its own has.

use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::message::{Directive, Kind, Message};
use holdfast_wire::negotiate::{Protocol, SPOKEN};

use super::session::{applied, isolated, ruleset, world, world_of};
use crate::support::gateway::stamp;

/// A code that no build has.
const NO_CODE: u16 = 900;

#[test]
fn g03_an_agent_works_with_a_gateway_that_speaks_the_first_protocol_only() {
    let (host, mut gateway, _far) = world();
    gateway.protocol = Protocol::V1;
    host.run_session();
    let (first, second) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "10.0.0.9"]));
    {
        let (mut session, hello) = gateway.open();
        assert_eq!(hello.protocols, SPOKEN, "an old gateway reads what is offered");
        applied(&session.policy(1, &first));
        session.empty_components();
        applied(&session.delta((1, &first), (2, &second)));
        assert!(ruleset(&host).iter().any(|block| block.contains("elements = { 10.0.0.1, 10.0.0.9 }")));
        // Asked to dial once, it does: with what it has.
        session.write(&Message::Directive(Directive { code: DirectiveCode::Reconnect, argument: Vec::new() }));
    }
    let (mut session, hello) = gateway.open();
    assert!(hello.applied.contains(&(Component::Policy, stamp(2, &second))), "{hello:?}");
    applied(&session.policy(3, &first));
    assert_eq!(host.applied_version(), Some(3));
}

#[test]
fn a25_a_directive_that_the_agent_does_not_know_is_ignored_and_reported_and_the_session_goes_on() {
    for protocol in Protocol::ALL {
        let (host, mut gateway, _far) = world();
        gateway.protocol = protocol;
        host.run_session();
        let (mut session, _) = gateway.open();
        let body = isolated(&["10.0.0.1"]);
        applied(&session.policy(1, &body));
        let argument = b"whatever it means".to_vec();
        session.write(&Message::Directive(Directive { code: DirectiveCode::Unknown(NO_CODE), argument }));
        let said = session.read();
        let Message::Fault(fault) = &said else { panic!("{said:?}") };
        // A build of the first protocol has no word for this code and keeps its number.
        let told = (fault.code.number(), fault.message_kind);
        assert_eq!(told, (FaultCode::UnknownDirective.number(), Kind::Directive.number()));
        applied(&session.policy(2, &body));
    }
}

#[test]
fn a24_a_re_enrol_ends_the_sessions_with_an_error_of_its_own_and_the_host_enforces_and_enrols_nobody() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let body = isolated(&["10.0.0.1"]);
    let identity = || std::fs::read(host.path("state/identity/enrolment.json")).unwrap();
    let enrolled = identity();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &body));
        session.empty_components();
        session.write(&Message::Directive(Directive { code: DirectiveCode::Reenrol, argument: Vec::new() }));
    }
    host.wait_until("the session ends for good", || host.status()["session"]["link"]["state"] == "stopped");
    let rules = ruleset(&host);
    let end = host.status()["session"]["last_end"].as_str().unwrap().to_owned();
    assert_eq!(end, "an operator asked that this host be enrolled anew");
    // Twice the first window of a dial.
    assert!(!gateway.is_dialled_within(Duration::from_secs(2)), "nobody is dialled");
    let troubles = host.troubles();
    assert!(troubles.iter().any(|(name, text)| name == "session" && text.contains("enrolled anew")), "{troubles:?}");
    // The doctor's own connections, which nobody answered.
    while gateway.is_dialled_within(Duration::from_millis(100)) {}
    // What it enforces it defends as before.
    host.namespace.run(|| crate::support::load_nft("flush ruleset"));
    host.wait_until("it is repaired", || {
        let policy = &host.status()["policy"];
        policy["drifts"].as_u64() >= Some(1) && policy["proven"] == true
    });
    assert_eq!(ruleset(&host), rules);
    assert_eq!(identity(), enrolled);
    // Started again by a person who wants it so, it goes on with the identity that it has.
    host.end(nix::sys::signal::Signal::SIGTERM);
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &body));
}

#[test]
fn a_host_that_is_to_be_enrolled_anew_renews_its_certificate_while_it_waits_for_a_person() {
    let (host, mut gateway, _far) = world_of(time::Duration::hours(20));
    let chain = || std::fs::read_to_string(host.path("state/identity/host.pem")).unwrap();
    let old = chain();
    host.run_session();
    let (request, renewal) = gateway.hear_renewal();
    {
        let (mut session, _) = gateway.open();
        session.write(&Message::Directive(Directive { code: DirectiveCode::Reenrol, argument: Vec::new() }));
        session.hears_goodbye();
    }
    host.wait_until("the session ends for good", || host.status()["session"]["link"]["state"] == "stopped");
    gateway.answer_renewal(&request, renewal);
    host.wait_until("the new certificate is on disk", || chain() != old);
    assert_eq!(host.status()["session"]["link"]["state"], "stopped");
}

#[test]
fn g03_frames_of_a_protocol_that_was_not_chosen_end_the_session() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let body = isolated(&["10.0.0.1"]);
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &body));
    let mut frame = Vec::new();
    let directive = Directive { code: DirectiveCode::Reconnect, argument: Vec::new() };
    holdfast_wire::v1::encode(&Message::Directive(directive), &mut frame).unwrap();
    session.write_bytes(&frame);
    let said = session.read();
    let Message::Refusal(refusal) = &said else { panic!("{said:?}") };
    assert_eq!(refusal.code, RefusalCode::Malformed);
    assert!(refusal.detail.starts_with("frame-protocol: "), "{refusal:?}");
    assert_eq!(host.applied_version(), Some(1), "and nothing that is enforced changes");
}
