//! The real agent at a gateway that delivers by poll.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use holdfast_model::artifact;
use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_model::policy::Body;
use holdfast_wire::message::Delivery;
use holdfast_wire::sync::{SYNC_WAIT_MS_MAX, SyncAnswer, SyncOutcome, SyncRequest};
use nix::sys::signal::Signal;

use super::session::{applied, isolated, ruleset, world, world_on_a_small_disk};
use crate::support::gateway::{Connection, Gateway, stamp};
use crate::support::output_of;

/// Denies everything inbound.
const SHUT: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": []}}"#;

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

/// Answers the agent's Hello and first poll with all that it is to hold; the poll that waits when everything is in force.
pub(super) fn settled(gateway: &mut Gateway, version: u64, body: &Body) -> (SyncRequest, Connection) {
    let authority = gateway.authority;
    {
        let (mut session, _) = gateway.accept();
        session.acknowledge_as(authority, Delivery::Poll);
    }
    let (_, stream) = gateway.hear_poll();
    gateway.answer_poll(stream, &everything(gateway, version, body));
    assert_eq!(outcomes(gateway, 4).len(), 4);
    let (request, waiting) = gateway.hear_poll();
    assert!(idle(&request), "{request:?}");
    (request, waiting)
}

/// An answer that has everything.
fn everything(gateway: &Gateway, version: u64, body: &Body) -> SyncAnswer {
    let mut answer = gateway.sync_answer(Delivery::Poll);
    answer.states.push(gateway.sync_state(1, Component::Policy, stamp(version, body), &artifact::encode(body)));
    for (seq, component) in (2..).zip([Component::Settings, Component::Credentials, Component::Workloads]) {
        let empty = Stamp { version: Version::FIRST, digest: component.empty_digest() };
        answer.states.push(gateway.sync_state(seq, component, empty, &component.empty_bytes()));
    }
    answer
}

#[test]
fn a_local_policy_that_comes_or_goes_cuts_a_poll_that_waits_and_is_told_by_a_session_that_begins_anew() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let body = isolated(&["10.0.0.1"]);
    let (_, waiting) = settled(&mut gateway, 1, &body);
    let sent = ruleset(&host);
    host.write_policy(SHUT);
    let file = host.path("policy.json").display().to_string();
    assert!(host.ask(&["override", &file]).status.success());
    // Nobody answered the poll: the agent left it, long before its 30 s are over, and without a wait.
    let began = Instant::now();
    let authority = gateway.authority;
    {
        let (mut session, hello) = gateway.accept();
        assert_eq!(hello.applied.len(), 4, "what was sent is kept");
        session.acknowledge_as(authority, Delivery::Poll);
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(waiting);
    let (_, stream) = gateway.hear_poll();
    gateway.answer_poll(stream, &everything(&gateway, 1, &body));
    let said = outcomes(&mut gateway, 4);
    let policy = said.iter().find(|outcome| outcome.component == Component::Policy).unwrap();
    assert_eq!((policy.kind.as_str(), policy.applied), ("retained-local-override", None));
    assert_ne!(ruleset(&host), sent);

    // And its end.
    let (request, waiting) = gateway.hear_poll();
    assert!(idle(&request), "{request:?}");
    assert!(host.ask(&["override", "--clear"]).status.success());
    settled(&mut gateway, 1, &body);
    drop(waiting);
    assert_eq!((ruleset(&host), host.applied_version()), (sent, Some(1)));
}

#[test]
fn a_poll_that_is_told_to_begin_anew_does_so_by_itself_in_the_new_life_of_the_authority() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (first, second) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.9"]));
    let (_, waiting) = settled(&mut gateway, 5, &first);
    gateway.authority.epoch = gateway.authority.epoch.next().unwrap();
    let began = Instant::now();
    gateway.refuse(waiting, 409, "begin-anew");
    // A lower version in it is no going back.
    let (request, _waiting) = settled(&mut gateway, 2, &second);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(request.session_epoch, Some(SessionEpoch::from_raw(2)));
    assert_eq!(host.applied_version(), Some(2));
}

#[test]
fn c50_what_a_full_disk_did_not_take_by_a_poll_is_asked_for_once_there_is_room_without_a_newer_version() {
    let (disk, host, mut gateway, _far) = world_on_a_small_disk(2_048);
    host.run_session();
    let first = isolated(&["10.0.0.1"]);
    let (_, mut waiting) = settled(&mut gateway, 1, &first);
    disk.fill();
    // More than what the last page of the ledger may have room for.
    let peers: Vec<String> = (0..2_000_u32).map(|n| Ipv4Addr::from(0x0a80_0000 + 2 * n).to_string()).collect();
    let large = isolated(&peers.iter().map(String::as_str).collect::<Vec<_>>());
    // It fails, is asked for once more, fails, and is left alone.
    for seq in [5, 6] {
        let mut answer = gateway.sync_answer(Delivery::Poll);
        answer.states.push(gateway.sync_state(seq, Component::Policy, stamp(2, &large), &artifact::encode(&large)));
        gateway.answer_poll(waiting, &answer);
        let said = outcomes(&mut gateway, 1);
        assert!(said[0].conditions.iter().any(|one| one.reason == Reason::NotDurable), "{said:?}");
        waiting = gateway.hear_poll().1;
    }
    assert_eq!(host.applied_version(), Some(1));
    // The poll waits, with nothing to say, until the agent finds room; then it asks for what it lacks by itself.
    disk.make_room();
    let (request, stream) = gateway.hear_poll();
    drop(waiting);
    assert_eq!(request.session_epoch, Some(SessionEpoch::from_raw(1)), "the same session");
    assert!(request.seen.iter().all(|seen| seen.component != Component::Policy), "{request:?}");
    let mut answer = gateway.sync_answer(Delivery::Poll);
    answer.states.push(gateway.sync_state(7, Component::Policy, stamp(2, &large), &artifact::encode(&large)));
    gateway.answer_poll(stream, &answer);
    let said = outcomes(&mut gateway, 1);
    assert_eq!((said[0].kind.as_str(), host.applied_version()), ("applied", Some(2)), "{said:?}");
    host.end(Signal::SIGTERM);
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
    gateway.answer_poll(stream, &everything(&gateway, 1, &first));
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
