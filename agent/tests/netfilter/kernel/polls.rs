//! The real agent at a gateway that delivers by poll.

use holdfast_model::artifact;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_wire::message::Delivery;
use holdfast_wire::sync::{SYNC_WAIT_MS_MAX, SyncOutcome, SyncRequest};

use super::session::{applied, isolated, ruleset, world};
use crate::support::gateway::{Gateway, stamp};
use crate::support::output_of;

/// Hears polls until there are so many outcomes, answering each that nothing changed; the outcomes, which the host signed.
fn outcomes(gateway: &mut Gateway, count: usize) -> Vec<SyncOutcome> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let (request, stream) = gateway.hear_poll();
        request.outcomes.iter().for_each(|outcome| gateway.assert_signed(outcome));
        heard.extend(request.outcomes);
        gateway.answer_poll(stream, &gateway.sync_answer(Delivery::Poll));
    }
    heard
}

/// The poll that waits, once the agent has nothing to say.
fn idle(request: &SyncRequest) -> bool {
    request.outcomes.is_empty() && request.wait_ms == Some(SYNC_WAIT_MS_MAX)
}

#[test]
fn g03_an_agent_polls_where_its_gateway_delivers_by_poll_and_dials_where_it_pushes() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (first, second) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "10.0.0.9"]));
    let authority = gateway.authority;
    {
        let (mut session, _) = gateway.accept();
        session.acknowledge_as(authority, Delivery::Poll);
    }
    // It goes on with the session that the answer to its Hello opened.
    let (request, stream) = gateway.hear_poll();
    assert_eq!((request.session_epoch, request.seen.len()), (Some(SessionEpoch::from_raw(1)), 0), "{request:?}");
    assert!(request.inventory.is_some());
    let mut answer = gateway.sync_answer(Delivery::Poll);
    answer.states.push(gateway.sync_state(1, Component::Policy, stamp(1, &first), &artifact::encode(&first)));
    for (seq, component) in (2..).zip([Component::Settings, Component::Credentials, Component::Workloads]) {
        let empty = Stamp { version: Version::FIRST, digest: component.empty_digest() };
        answer.states.push(gateway.sync_state(seq, component, empty, &component.empty_bytes()));
    }
    gateway.answer_poll(stream, &answer);
    let said = outcomes(&mut gateway, 4);
    assert!(
        said.iter().all(|outcome| outcome.kind == "applied" && outcome.applied == Some(outcome.wanted)),
        "{said:?}"
    );
    let rules = ruleset(&host);
    assert_eq!(
        (host.applied_version(), host.status()["session"]["link"]["state"].as_str()),
        (Some(1), Some("polling"))
    );

    // It waits, and a change of its addresses cuts the wait short.
    let (request, waiting) = gateway.hear_poll();
    assert!(idle(&request) && request.seen.iter().all(|seen| seen.applied) && request.seen.len() == 4, "{request:?}");
    host.namespace.run(|| output_of("ip", &["address", "add", "10.77.0.7/24", "dev", "eth0"]));
    let (request, stream) = gateway.hear_poll();
    assert_eq!(request.inventory.map(|inventory| inventory.addresses.len()), Some(3));
    drop(waiting);

    // What nobody signed is refused as a unit, asked for once more, and then left alone.
    let mut forged = gateway.sync_state(5, Component::Policy, stamp(2, &second), &artifact::encode(&second));
    forged.signature = gateway.sync_state(5, Component::Policy, stamp(2, &first), b"").signature;
    let answered = |gateway: &Gateway, state| {
        let mut answer = gateway.sync_answer(Delivery::Poll);
        answer.states.push(state);
        answer
    };
    gateway.answer_poll(stream, &answered(&gateway, forged.clone()));
    let said = outcomes(&mut gateway, 1);
    assert_eq!((said[0].kind.as_str(), said[0].applied), ("failed", Some(stamp(1, &first))), "{said:?}");
    let (request, stream) = gateway.hear_poll();
    assert!(request.seen.iter().all(|seen| seen.component != Component::Policy), "{request:?}");
    forged.update_seq = forged.update_seq.and_then(|seq| seq.next());
    gateway.answer_poll(stream, &answered(&gateway, forged));
    assert_eq!(outcomes(&mut gateway, 1)[0].kind, "failed");
    let (request, stream) = gateway.hear_poll();
    assert!(idle(&request) && request.seen.iter().any(|seen| !seen.applied), "{request:?}");
    assert_eq!(ruleset(&host), rules);

    // The honest one goes through.
    let good = gateway.sync_state(7, Component::Policy, stamp(3, &second), &artifact::encode(&second));
    gateway.answer_poll(stream, &answered(&gateway, good));
    assert_eq!(outcomes(&mut gateway, 1)[0].kind, "applied");
    assert_eq!(host.applied_version(), Some(3));

    // The gateway pushes from now on: the agent dials it, with what it has.
    let (_, stream) = gateway.hear_poll();
    gateway.answer_poll(stream, &gateway.sync_answer(Delivery::Push));
    let (mut session, hello) = gateway.open();
    assert!(hello.applied.contains(&(Component::Policy, stamp(3, &second))), "{hello:?}");
    applied(&session.policy(4, &first));
}
