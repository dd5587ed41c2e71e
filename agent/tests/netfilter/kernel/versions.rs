//! The real agent with gateways of another protocol than its newest, and with what no protocol of its own has.

use holdfast_model::desired::Component;
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::message::{Directive, Kind, Message};
use holdfast_wire::negotiate::{Protocol, ProtocolRange};

use super::session::{applied, isolated, ruleset, world};
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
        assert_eq!(hello.protocols, ProtocolRange { min: 1, max: 2 }, "an old gateway reads what is offered");
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
