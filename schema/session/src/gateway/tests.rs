//! The gateway half by the cases of the reference tables, with a hand clock.

#![expect(clippy::wildcard_enum_match_arm, reason = "what a test does not expect fails it, whatever it is")]

use std::sync::Arc;
use std::time::Duration;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::decode;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::{BODY_BYTES_MAX, CHUNK_BYTES_MAX, FRAME_BYTES_MAX, UPDATES_IN_FLIGHT_MAX};
use holdfast_wire::message::{
    Delivery, Drain, DriftReport, Hello, Inventory, Kind, Liveness, Message, OutcomeReport, StatusReport, Update,
    UpdateContent,
};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN};
use uuid::Uuid;

use super::*;
use crate::limits::{FAULTS_MAX, INVENTORY_PAUSE};
use crate::time::Instant;

const POLICY: Component = Component::Policy;

#[test]
fn a01_anything_but_a_hello_first_is_refused_and_so_is_a_second_hello() {
    let mut door = Door::new();
    door.say(Message::Liveness(Liveness { counter: 1, status: None }));
    assert_eq!(door.refusal(), Some(RefusalCode::WrongFirstMessage));
    assert!(door.session.is_closed());

    let mut door = Door::open();
    door.say(Message::Hello(mk_hello(vec![])));
    assert_eq!(door.refusal(), Some(RefusalCode::DuplicateHello));
    assert_eq!(door.events(), [Event::Closed(CloseCause::Ours(RefusalCode::DuplicateHello))]);
}

#[test]
fn a01_a_message_of_the_gateways_own_side_is_refused() {
    let mut door = Door::open();
    door.say(Message::Directive(holdfast_wire::message::Directive {
        code: DirectiveCode::Reconnect,
        argument: vec![],
    }));
    assert_eq!(door.refusal(), Some(RefusalCode::WrongDirection));
}

#[test]
fn a02_the_answer_to_hello_comes_first_and_carries_the_parameters() {
    let mut door = Door::new();
    door.say(Message::Hello(mk_hello(vec![])));
    assert!(matches!(door.events().as_slice(), [Event::Hello(_)]));
    assert_eq!(door.written(), [], "nothing before the shell admitted it");
    door.session.handle_admitted(mk_admission(), door.now);
    let written = door.written();
    let [Message::HelloAck(ack)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!(ack.liveness_interval_ms, 15_000);
    assert_eq!(ack.session_epoch, SessionEpoch::from_raw(7));
    assert_eq!(ack.gateways, ["gateway-a:7443"]);
}

#[test]
fn a02_a_peer_without_hello_or_an_admission_that_does_not_come_ends_after_30_s() {
    let mut door = Door::new();
    assert_eq!(door.session.poll_timeout(door.now), Some((Instant::from_millis(30_000), "no hello")));
    door.wait(Duration::from_millis(29_999));
    assert!(!door.session.is_closed());
    door.wait(Duration::from_millis(1));
    assert_eq!(door.refusal(), Some(RefusalCode::HelloTimeout));

    let mut door = Door::new();
    door.say(Message::Hello(mk_hello(vec![])));
    door.wait(Duration::from_secs(30));
    assert_eq!(door.refusal(), Some(RefusalCode::AuthorityAway));
}

#[test]
fn g03_a_peer_that_shares_no_protocol_is_told_so() {
    let mut door = Door::new();
    door.say(Message::Hello(Hello { protocols: ProtocolRange { min: 4, max: 9 }, ..mk_hello(vec![]) }));
    assert_eq!(door.refusal(), Some(RefusalCode::NoCommonProtocol));
}

#[test]
fn g03_an_older_peer_is_spoken_to_in_its_protocol_and_a_newer_one_in_the_newest_of_both() {
    let cases =
        [(1, 1, Protocol::V1), (1, 2, Protocol::V2), (1, 3, Protocol::V3), (2, 9, Protocol::V3), (3, 9, Protocol::V3)];
    for (min, max, chosen) in cases {
        let mut door = Door::new();
        assert_eq!(door.session.spoken(), ProtocolRange::only(Protocol::FIRST), "a hello is of the first one");
        door.say(Message::Hello(Hello { protocols: ProtocolRange { min, max }, ..mk_hello(vec![]) }));
        door.session.handle_admitted(mk_admission(), door.now);
        assert_eq!(door.session.spoken(), ProtocolRange::only(chosen));
        door.session.handle_directive(DirectiveCode::Reconnect);
        let mut bytes = Vec::new();
        while door.session.poll_transmit(door.now, &mut bytes).expect("frames").is_some() {}
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        deframer.push(&bytes);
        let frames: Vec<_> = std::iter::from_fn(|| deframer.poll_frame().expect("frames")).collect();
        assert!(frames.len() >= 2 && frames.iter().all(|frame| frame.protocol == chosen.number()), "{frames:?}");
        let Ok(Message::HelloAck(ack)) = decode(&frames[0]) else { panic!("{frames:?}") };
        assert_eq!(ack.protocol, chosen.number());
    }
}

#[test]
fn g02_a_gateway_that_delivers_by_poll_answers_a_hello_and_says_nothing_more_and_is_no_peer_of_the_first_protocol() {
    let config = || Config { delivery: Delivery::Poll, ..Config::standard(vec![]) };
    let mut session = Session::new(config(), 1, Instant::default());
    session.handle_message(Message::Hello(mk_hello(vec![])), Instant::default());
    session.handle_admitted(mk_admission(), Instant::default());
    let mut bytes = Vec::new();
    assert_eq!(session.poll_transmit(Instant::default(), &mut bytes), Ok(Some(Kind::HelloAck)));
    let Message::HelloAck(ack) = mk_message(&bytes) else { panic!("{bytes:?}") };
    assert_eq!((ack.delivery, ack.session_epoch), (Delivery::Poll, mk_admission().session_epoch));
    session.handle_hint(POLICY);
    session.handle_resend(POLICY);
    session.handle_directive(DirectiveCode::Reconnect);
    assert_eq!(session.poll_transmit(Instant::default(), &mut bytes), Ok(None));
    assert!(session.is_closed());
    let events: Vec<Event> = std::iter::from_fn(|| session.poll_event()).collect();
    assert!(matches!(events.as_slice(), [Event::Hello(_), Event::Closed(CloseCause::Polls)]), "{events:?}");

    let mut session = Session::new(config(), 1, Instant::default());
    let hello = Hello { protocols: ProtocolRange::only(Protocol::V1), ..mk_hello(vec![]) };
    session.handle_message(Message::Hello(hello), Instant::default());
    let mut bytes = Vec::new();
    session.poll_transmit(Instant::default(), &mut bytes).expect("a frame");
    let Message::Refusal(refusal) = mk_message(&bytes) else { panic!("{bytes:?}") };
    assert_eq!(refusal.code, RefusalCode::NoCommonProtocol);
    assert!(refusal.detail.contains("delivers by poll"), "{refusal:?}");
}

#[test]
fn a03_a_snapshot_of_every_component_follows_whatever_hello_claims() {
    let claims = [vec![], vec![(POLICY, mk_stamp(3))], vec![(POLICY, mk_stamp(5))], vec![(POLICY, mk_stamp(999))]];
    for claim in claims {
        let mut door = Door::open_with(claim);
        assert_eq!(door.written(), []);
        let wants = door.wants();
        let wanted: Vec<Component> = wants.iter().map(|want| want.component).collect();
        assert_eq!(wanted, Component::ALL);
        assert!(wants.iter().all(|want| want.tip.is_none() && want.snapshot));
        for component in Component::ALL {
            // A delta is offered, and there is nothing that it could start from.
            door.answer(component, mk_whole(5, Some(mk_offer(5, 10))));
        }
        let updates = door.updates();
        assert_eq!(updates.len(), 4);
        assert!(updates.iter().all(|update| matches!(update.content, UpdateContent::Snapshot { .. })));
        let sent = door.events();
        assert!(
            sent.iter().all(|event| matches!(event, Event::Sent { cause: Cause::Connect, form: Form::Snapshot, .. }))
        );
    }
}

#[test]
fn a05_a_new_session_knows_nothing_of_an_old_ones_tip() {
    let mut door = Door::synced(5);
    assert_eq!(door.session.tip_version(POLICY), Some(mk_version(5)));
    door.session.handle_lost();
    assert_eq!(door.session.tip_version(POLICY), None);
    door.session.handle_hint(POLICY);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]), "nothing goes on after the end");

    let mut next = Door::open();
    next.written();
    assert!(next.wants().iter().all(|want| want.tip.is_none()));
}

#[test]
fn a06_renders_while_the_reader_lags_become_one_delta_from_the_tip() {
    let mut door = Door::synced(5);
    for _ in 6..=10 {
        door.session.handle_hint(POLICY);
    }
    assert_eq!(door.written(), []);
    assert_eq!(door.wants(), [Want { component: POLICY, tip: Some(mk_stamp(5)), snapshot: false }]);
    // Published while the shell reads: exactly one more question.
    door.session.handle_hint(POLICY);
    door.session.handle_hint(POLICY);
    door.answer(POLICY, mk_whole(10, Some(mk_offer(5, 10))));
    let updates = door.updates();
    let [Update { stamp, content: UpdateContent::Delta { base, .. }, .. }] = updates.as_slice() else {
        panic!("{updates:?}")
    };
    assert_eq!((*base, *stamp), (mk_stamp(5), mk_stamp(10)));
    assert_eq!(door.wants(), [Want { component: POLICY, tip: Some(mk_stamp(10)), snapshot: false }]);
    door.answer(POLICY, Answer::Unchanged);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
}

#[test]
fn a07_updates_do_not_wait_for_outcomes_until_the_window_is_full() {
    let mut door = Door::synced(1);
    let mut version = 1;
    while version < 200 {
        door.session.handle_hint(POLICY);
        door.written();
        if door.wants().is_empty() {
            break;
        }
        version += 1;
        door.answer(POLICY, mk_whole(version, Some(mk_offer(version - 1, 10))));
        assert_eq!(door.updates().len(), 1);
    }
    assert_eq!(version, 1 + UPDATES_IN_FLIGHT_MAX as u64);
    door.outcome(POLICY, 5, 2, OutcomeKind::Applied);
    door.written();
    assert_eq!(door.wants().len(), 1, "an outcome makes room");
}

#[test]
fn b07_a_compare_marks_only_what_is_above_the_tip() {
    let mut door = Door::synced(5);
    door.session.handle_compare(POLICY, mk_version(5));
    door.session.handle_compare(POLICY, mk_version(4));
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    door.session.handle_compare(POLICY, mk_version(6));
    door.written();
    assert_eq!(door.wants().len(), 1);
}

#[test]
fn h18_an_equal_digest_sends_only_the_version() {
    let mut door = Door::synced(5);
    door.session.handle_hint(POLICY);
    door.written();
    door.wants();
    let stamp = Stamp { version: mk_version(6), ..mk_stamp(5) };
    door.answer(POLICY, Answer::Current { stamp, signature: [1; 64], supply: Supply::SameDigest });
    let updates = door.updates();
    assert!(
        matches!(updates.as_slice(), [Update { content: UpdateContent::VersionOnly, stamp: sent, .. }] if *sent == stamp)
    );
}

#[test]
fn a_delta_above_half_of_the_snapshot_or_from_another_base_or_of_another_component_travels_whole() {
    let half = mk_body(0).len() / 2;
    for (component, offer) in [
        (POLICY, DeltaOffer { changes: vec![0; half + 1].into(), ..mk_offer(5, 0) }),
        (POLICY, mk_offer(4, 10)),
        (Component::Settings, mk_offer(5, 10)),
    ] {
        let mut door = Door::synced(5);
        door.session.handle_hint(component);
        door.written();
        door.wants();
        door.answer(component, mk_whole(6, Some(offer)));
        let updates = door.updates();
        assert!(matches!(updates.as_slice(), [Update { content: UpdateContent::Snapshot { .. }, .. }]), "{component}");
    }
}

#[test]
fn answers_that_contradict_the_question_are_refused_and_nothing_is_written() {
    let mut door = Door::synced(5);
    assert_eq!(door.try_answer(POLICY, Answer::Unchanged), Err(AnswerError::NotAsked { component: POLICY }));
    let other = Answer::Current {
        stamp: Stamp { digest: mk_stamp(9).digest, ..mk_stamp(5) },
        signature: [0; 64],
        supply: mk_supply(5, None),
    };
    let (tip, answered) = (mk_version(5), mk_version(4));
    let no_body = Answer::Current { stamp: mk_stamp(6), signature: [0; 64], supply: Supply::SameDigest };
    for (answer, error) in [
        (mk_whole(4, None), AnswerError::Backward { component: POLICY, tip, answered }),
        (other, AnswerError::OtherContent { component: POLICY, version: tip }),
        (no_body, AnswerError::NoBody { component: POLICY }),
    ] {
        door.session.handle_hint(POLICY);
        door.written();
        assert_eq!(door.wants().len(), 1);
        assert_eq!(door.try_answer(POLICY, answer), Err(error));
        assert_eq!(door.written(), []);
    }
}

#[test]
fn what_could_not_be_read_is_asked_again_after_a_second() {
    let mut door = Door::synced(5);
    door.session.handle_hint(POLICY);
    door.written();
    door.wants();
    door.answer(POLICY, Answer::Unavailable);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    assert_eq!(door.session.poll_timeout(door.now).map(|(_, why)| why), Some("ask again"));
    door.wait(Duration::from_secs(1));
    door.written();
    assert_eq!(door.wants().len(), 1);
}

#[test]
fn a12_a_failure_is_answered_by_one_snapshot_of_the_current_version() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    door.outcome(POLICY, 5, 14, OutcomeKind::Failed);
    door.written();
    assert_eq!(door.wants(), [Want { component: POLICY, tip: Some(mk_stamp(14)), snapshot: true }]);
    door.answer(POLICY, mk_whole(14, Some(mk_offer(14, 10))));
    let updates = door.updates();
    assert!(
        matches!(updates.as_slice(), [Update { content: UpdateContent::Snapshot { .. }, stamp, .. }] if *stamp == mk_stamp(14))
    );
    assert!(door.events().iter().any(|event| matches!(event, Event::Sent { cause: Cause::Recovery, .. })));
    door.outcome(POLICY, 6, 14, OutcomeKind::Applied);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    // And the next render is a delta again.
    door.push_delta(15);
}

#[test]
fn a13_failures_that_were_in_flight_before_the_recovery_are_recorded_only() {
    let mut door = Door::synced(13);
    for version in 14..=18 {
        door.push_delta(version);
    }
    for (seq, version) in (5..).zip(14..=18) {
        door.outcome(POLICY, seq, version, OutcomeKind::Failed);
        door.written();
    }
    assert_eq!(door.wants().len(), 1, "one recovery for five failures");
    door.answer(POLICY, mk_whole(18, None));
    assert_eq!(door.updates().len(), 1);

    // The same when the recovery is written between the failures.
    let mut door = Door::synced(13);
    door.push_delta(14);
    door.push_delta(15);
    door.outcome(POLICY, 5, 14, OutcomeKind::Failed);
    door.written();
    door.wants();
    door.answer(POLICY, mk_whole(15, None));
    door.updates();
    door.outcome(POLICY, 6, 15, OutcomeKind::Failed);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    door.outcome(POLICY, 7, 15, OutcomeKind::Applied);
    door.push_delta(16);
}

#[test]
fn a14_a_recovery_that_fails_too_is_the_end_until_a_newer_version_which_travels_whole() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    door.outcome(POLICY, 5, 14, OutcomeKind::Failed);
    door.recover(14);
    door.outcome(POLICY, 6, 14, OutcomeKind::Failed);
    door.session.handle_compare(POLICY, mk_version(14));
    assert_eq!((door.written(), door.wants()), (vec![], vec![]), "no loop");
    door.session.handle_hint(POLICY);
    door.written();
    assert_eq!(door.wants().len(), 1);
    door.answer(POLICY, mk_whole(14, None));
    assert_eq!(door.written(), [], "not even after a hint, while nothing is newer");

    door.session.handle_hint(POLICY);
    door.written();
    assert_eq!(door.wants(), [Want { component: POLICY, tip: Some(mk_stamp(14)), snapshot: true }]);
    door.answer(POLICY, mk_whole(15, Some(mk_offer(14, 10))));
    let updates = door.updates();
    assert!(matches!(updates.as_slice(), [Update { content: UpdateContent::Snapshot { .. }, .. }]), "{updates:?}");
    // Its failure gets its own one recovery.
    door.outcome(POLICY, 7, 15, OutcomeKind::Failed);
    door.recover(15);
    door.outcome(POLICY, 8, 15, OutcomeKind::Failed);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
}

#[test]
fn a14_a_new_session_or_an_operator_starts_over() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    door.outcome(POLICY, 5, 14, OutcomeKind::Failed);
    door.recover(14);
    door.outcome(POLICY, 6, 14, OutcomeKind::Failed);
    door.session.handle_resend(POLICY);
    door.written();
    assert!(door.wants().iter().all(|want| want.snapshot));
    door.answer(POLICY, mk_whole(14, None));
    assert_eq!(door.updates().len(), 1);
    assert!(door.events().iter().any(|event| matches!(event, Event::Sent { cause: Cause::Resend, .. })));
    door.outcome(POLICY, 7, 14, OutcomeKind::Failed);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
}

#[test]
fn a_failed_first_snapshot_gets_one_recovery_too() {
    let mut door = Door::synced(13);
    door.outcome_again(POLICY, 1, 13, OutcomeKind::Failed);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]), "answered before: a fault, no recovery");

    let mut door = Door::open();
    door.written();
    door.wants();
    door.answer(POLICY, mk_whole(13, None));
    door.updates();
    door.outcome(POLICY, 1, 13, OutcomeKind::Failed);
    door.recover(13);
}

#[test]
fn a_local_override_is_an_outcome_and_not_a_failure() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    door.outcome(POLICY, 5, 14, OutcomeKind::RetainedLocalOverride);
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    door.push_delta(15);
}

#[test]
fn h13_outcomes_count_only_for_updates_of_this_session_exactly_once() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    let fault = |door: &mut Door, report: OutcomeReport| {
        door.say(Message::Outcome(report));
        let written = door.written();
        let [Message::Fault(fault)] = written.as_slice() else { panic!("{written:?}") };
        let events = door.events();
        assert!(matches!(events.as_slice(), [Event::Fault { origin: FaultOrigin::Seen, .. }]), "{events:?}");
        fault.code
    };
    let right = mk_outcome(POLICY, 5, 14, OutcomeKind::Applied);
    let unsent = OutcomeReport { update_seq: UpdateSeq::from_raw(999), ..right.clone() };
    assert_eq!(fault(&mut door, unsent), FaultCode::OutcomeUnmatched);
    let other_version = mk_outcome(POLICY, 5, 999, OutcomeKind::Applied);
    assert_eq!(fault(&mut door, other_version), FaultCode::OutcomeMismatch);
    let other_component = OutcomeReport { component: Component::Settings, ..right.clone() };
    assert_eq!(fault(&mut door, other_component), FaultCode::OutcomeMismatch);
    let contradiction = OutcomeReport { applied: Some(mk_stamp(13)), ..right.clone() };
    assert_eq!(fault(&mut door, contradiction), FaultCode::OutcomeContradiction);
    door.say(Message::Outcome(right.clone()));
    assert_eq!(door.events(), [Event::Outcome(Box::new(right.clone()))]);
    assert_eq!(fault(&mut door, right), FaultCode::OutcomeUnmatched);
    door.session.handle_forged_outcome(UpdateSeq::from_raw(5));
    assert!(matches!(door.written().as_slice(), [Message::Fault(fault)] if fault.code == FaultCode::BadSignature));
}

#[test]
fn c33_an_outcome_that_never_comes_holds_nothing_back_and_nothing_is_sent_again_for_it() {
    let mut door = Door::synced(13);
    door.push_delta(14);
    // Nobody waits for it: the next one is written at once, relative to what was written and not to what was answered.
    door.push_delta(15);
    door.outcome(POLICY, 6, 15, OutcomeKind::Applied);
    door.push_delta(16);
    for minute in 1..=10 {
        for half in 0..4 {
            door.wait(Duration::from_secs(15));
            door.say(Message::Liveness(Liveness { counter: 4 * minute + half, status: None }));
        }
        door.session.handle_compare(POLICY, mk_version(16));
        assert_eq!(door.wants(), [], "after {minute} minutes");
        let written = door.written();
        assert!(written.iter().all(|message| matches!(message, Message::Liveness(_))), "{written:?}");
    }
    assert!(door.session.is_open());
    // Late is not lost.
    door.outcome(POLICY, 5, 14, OutcomeKind::Applied);
}

#[test]
fn a_peer_that_only_makes_faults_is_ended() {
    let mut door = Door::open();
    for _ in 0..FAULTS_MAX {
        door.say(Message::Unknown(4_000));
        assert!(matches!(door.events().as_slice(), [Event::Fault { code: FaultCode::UnknownKind, .. }]));
    }
    assert!(door.session.is_open());
    door.say(Message::Unknown(4_000));
    assert_eq!(door.refusal(), Some(RefusalCode::TooManyFaults));
}

#[test]
fn h09_a_reader_that_stopped_costs_a_mark_and_no_question() {
    let mut door = Door::synced(5);
    for component in Component::ALL {
        (0..10_000).for_each(|_| door.session.handle_hint(component));
    }
    assert_eq!(door.wants(), [], "nothing is read before the socket has room");
    door.written();
    assert_eq!(door.wants().len(), 4);
    // One answer each waits for the socket; whatever is hinted meanwhile is one more question after it.
    for component in Component::ALL {
        door.answer(component, mk_whole(6, None));
        (0..10_000).for_each(|_| door.session.handle_hint(component));
        door.session.handle_compare(component, mk_version(6));
    }
    assert_eq!(door.wants(), []);
    assert_eq!(door.updates().len(), 4);
    assert_eq!(door.wants().len(), 4);
}

#[test]
fn h09_the_oldest_mark_is_asked_for_first_whatever_the_component_and_a_second_mark_gives_up_no_place() {
    let mut door = Door::synced(5);
    // Against the order in which components are listed.
    let marked: Vec<Component> = Component::ALL.into_iter().rev().collect();
    marked.iter().chain(&marked[..1]).for_each(|component| door.session.handle_hint(*component));
    door.written();
    let asked: Vec<Component> = door.wants().into_iter().map(|want| want.component).collect();
    assert_eq!(asked, marked);
}

#[test]
fn h10_control_goes_between_the_chunks_of_a_large_body_and_liveness_goes_first() {
    let mut door = Door::open();
    door.written();
    door.wants();
    let body: Arc<[u8]> = vec![3; 3 * CHUNK_BYTES_MAX + 1].into();
    let supply = Supply::Whole { body, delta: None };
    door.answer(POLICY, Answer::Current { stamp: mk_stamp(1), signature: [0; 64], supply });
    assert_eq!(door.next_kind(), Some(Kind::Update));
    assert_eq!(door.next_kind(), Some(Kind::Chunk));
    door.session.handle_directive(DirectiveCode::Reconnect);
    door.wait(Duration::from_secs(18));
    assert_eq!(door.next_kind(), Some(Kind::Liveness));
    assert_eq!(door.next_kind(), Some(Kind::Directive));
    door.answer(Component::Settings, mk_whole(1, None));
    let rest: Vec<Kind> = std::iter::from_fn(|| door.next_kind()).collect();
    assert_eq!(rest, [Kind::Chunk, Kind::Chunk, Kind::Chunk, Kind::Update, Kind::Chunk], "and bodies are not mixed");
}

#[test]
fn e22_a_thousand_versions_for_a_reader_that_stopped_hold_one_body() {
    let mut door = Door::open();
    door.written();
    door.wants();
    let size = 3 * CHUNK_BYTES_MAX;
    let mk_large = |version| {
        let body: Arc<[u8]> = vec![3; size].into();
        Answer::Current { stamp: mk_stamp(version), signature: [0; 64], supply: Supply::Whole { body, delta: None } }
    };
    assert_eq!(door.session.held_bytes(), 0);
    door.answer(POLICY, mk_large(1));
    assert_eq!(door.session.held_bytes(), size, "staged");
    // Its first chunk is all that the socket takes.
    assert_eq!([door.next_kind(), door.next_kind()], [Some(Kind::Update), Some(Kind::Chunk)]);
    for _ in 0..1_000 {
        door.session.handle_hint(POLICY);
        assert_eq!((door.wants(), door.session.held_bytes()), (vec![], size));
    }
    while door.next_kind().is_some() {}
    assert_eq!(door.session.held_bytes(), 0);
    assert_eq!(door.wants().len(), 1, "one question for all of them");
    door.answer(POLICY, mk_large(1_001));
    assert_eq!(door.session.held_bytes(), size);
}

#[test]
fn a_body_up_to_the_limit_travels_and_a_larger_one_is_named_once_and_not_asked_for_again() {
    let sizes = [BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1, 10 * BODY_BYTES_MAX];
    for (bytes, fits) in sizes.into_iter().zip([true, true, false, false]) {
        let mut door = Door::open();
        door.written();
        door.wants();
        let supply = Supply::Whole { body: vec![0; bytes].into(), delta: None };
        door.answer(POLICY, Answer::Current { stamp: mk_stamp(3), signature: [0; 64], supply });
        let named: Vec<_> =
            door.events().into_iter().filter(|event| matches!(event, Event::Undeliverable { .. })).collect();
        let expected = (!fits).then_some(Event::Undeliverable { component: POLICY, stamp: mk_stamp(3), bytes });
        assert_eq!(named, Vec::from_iter(expected), "{bytes}");
        assert_eq!(door.updates().len(), usize::from(fits), "{bytes}");
        // Every 30 s the authority is asked what is newest.
        for _ in 0..10 {
            door.session.handle_compare(POLICY, mk_stamp(3).version);
            door.written();
            assert_eq!(door.wants().len(), 0, "{bytes}");
        }
        door.session.handle_compare(POLICY, mk_stamp(4).version);
        door.written();
        assert_eq!(door.wants().len(), 1, "a newer version is looked at");
    }
}

#[test]
fn g07_a_body_above_the_limit_is_named_and_the_other_components_go_on() {
    let mut door = Door::open();
    door.written();
    door.wants();
    let body: Arc<[u8]> = vec![0; BODY_BYTES_MAX + 1].into();
    let bytes = body.len();
    let supply = Supply::Whole { body, delta: None };
    door.answer(POLICY, Answer::Current { stamp: mk_stamp(1), signature: [0; 64], supply });
    assert_eq!(door.events(), [Event::Undeliverable { component: POLICY, stamp: mk_stamp(1), bytes }]);
    door.answer(Component::Settings, mk_whole(1, None));
    assert_eq!(door.updates().len(), 1);
    door.session.handle_hint(POLICY);
    door.written();
    assert_eq!(door.wants().len(), 1, "a newer version is looked at");
}

#[test]
fn a_host_without_a_first_render_waits_for_a_hint() {
    let mut door = Door::open();
    door.written();
    door.wants();
    Component::ALL.iter().for_each(|component| door.answer(*component, Answer::Unchanged));
    assert_eq!((door.written(), door.wants()), (vec![], vec![]));
    door.session.handle_hint(POLICY);
    door.written();
    assert_eq!(door.wants(), [Want { component: POLICY, tip: None, snapshot: true }]);
}

#[test]
fn silence_for_45_s_ends_the_session_and_any_message_puts_it_off() {
    let mut door = Door::open();
    for _ in 0..10 {
        door.wait(Duration::from_secs(40));
        door.say(Message::Liveness(Liveness { counter: 1, status: None }));
    }
    assert!(door.session.is_open());
    door.wait(Duration::from_secs(45));
    assert_eq!(door.refusal(), Some(RefusalCode::LivenessLost));
}

#[test]
fn a17_the_loser_of_two_sessions_is_told_why() {
    let mut door = Door::open();
    door.session.handle_close(RefusalCode::Superseded, "");
    assert_eq!(door.refusal(), Some(RefusalCode::Superseded));
    assert_eq!(door.written(), []);
}

#[test]
fn a_drained_agent_is_told_when_to_leave_and_ended_if_it_does_not() {
    let mut door = Door::synced(5);
    let drain = Drain { reconnect_after_ms: 5_000, gateways: vec!["gateway-b:7443".to_owned()] };
    door.session.handle_drain(drain.clone(), door.now);
    assert_eq!(door.written(), [Message::Drain(drain)]);
    door.push_delta(6);
    door.wait(Duration::from_secs(15));
    assert_eq!(door.refusal(), Some(RefusalCode::Draining));
}

#[test]
fn an_inventory_and_the_agents_own_words_reach_the_shell() {
    let mut door = Door::open();
    let inventory = Inventory { hostname: "web-1".to_owned(), ..Inventory::default() };
    door.say(Message::Inventory(inventory.clone()));
    assert_eq!(door.events(), [Event::Inventory(Box::new(inventory))]);
    door.say(Message::Refusal(holdfast_wire::message::Refusal {
        code: RefusalCode::WrongAuthority,
        retry_after_ms: 0,
        detail: String::new(),
    }));
    assert_eq!(door.events(), [Event::Closed(CloseCause::Theirs(RefusalCode::WrongAuthority))]);
}

#[test]
fn a_host_that_says_another_list_of_addresses_again_and_again_is_heard_some_times_and_then_as_it_is_by_turns() {
    let mut door = Door::open();
    let of = |n: usize| Inventory { hostname: format!("web-{n}"), ..Inventory::default() };
    (1..=1_000).for_each(|n| door.say(Message::Inventory(of(n))));
    let heard = |events: Vec<Event>| -> Vec<String> {
        let names = events.into_iter().filter_map(|event| match event {
            Event::Inventory(inventory) => Some(inventory.hostname),
            _ => None,
        });
        names.collect()
    };
    assert_eq!(heard(door.events()), ["web-1", "web-2", "web-3", "web-4"]);
    door.wait(INVENTORY_PAUSE - Duration::from_millis(1));
    assert_eq!(heard(door.events()), [] as [&str; 0]);
    door.wait(Duration::from_millis(1));
    assert_eq!(heard(door.events()), ["web-1000"], "the newest, and no other");
    door.say(Message::Inventory(of(1_001)));
    assert_eq!(heard(door.events()), [] as [&str; 0], "the next turn is not there yet");
}

#[test]
fn drift_reaches_the_shell_and_a_flood_of_it_is_a_fault_each_that_ends_the_session_as_any_other() {
    let mut door = Door::open();
    let report = mk_drift(1);
    door.say(Message::Drift(report.clone()));
    assert_eq!(door.events(), [Event::Drift(Box::new(report))]);
    let (mut taken, mut told) = (1, 0);
    for total in 2.. {
        door.say(Message::Drift(mk_drift(total)));
        for event in door.events() {
            match event {
                Event::Drift(report) => taken += usize::from(report.total == total),
                Event::Fault { code: FaultCode::TooOften, origin: FaultOrigin::Seen, .. } => told += 1,
                Event::Closed(cause) => assert_eq!(cause, CloseCause::Ours(RefusalCode::TooManyFaults)),
                other => panic!("{other:?}"),
            }
        }
        if door.session.is_closed() {
            break;
        }
    }
    assert_eq!((taken, told), (32, FAULTS_MAX + 1), "so much at once, and no more");

    let mut door = Door::open();
    for total in 1..1_000 {
        door.say(Message::Drift(mk_drift(total)));
        door.say(Message::Liveness(Liveness { counter: total, status: None }));
        assert!(matches!(door.events().as_slice(), [Event::Drift(_)]), "an agent that keeps its pauses");
        door.written();
        door.wait(Duration::from_millis(500));
    }
}

#[test]
fn statuses_that_are_refused_cost_no_session_are_signs_of_life_and_are_told_seldom_however_many_there_are() {
    let mut door = Door::synced(5);
    let mut told = 0;
    for second in 0..3_600 {
        door.wait(Duration::from_secs(1));
        for code in [FaultCode::BadSignature, FaultCode::BadValue] {
            door.session.handle_refused_status(code, door.now);
            let events = door.events();
            let [Event::StatusRefused { code: found, is_told }] = events[..] else { panic!("{second}: {events:?}") };
            assert_eq!(found, code);
            told += u32::from(is_told);
        }
        let faults = door.written().into_iter().filter(|message| matches!(message, Message::Fault(_))).count();
        assert!(faults <= 2);
    }
    assert!(door.session.is_open(), "an hour of nothing but garbage");
    assert!((4..=20).contains(&told), "{told} told");
    door.push_delta(6);
}

#[test]
fn a_status_reaches_the_shell_once_and_one_that_is_stale_does_not() {
    let mut door = Door::open();
    let status = mk_status(1);
    door.say(Message::Status(status.clone()));
    assert_eq!(door.events(), [Event::Status(Box::new(status.clone()))]);
    door.say(Message::Status(status));
    assert_eq!(door.events(), [Event::StatusRefused { code: FaultCode::StaleStatus, is_told: true }]);
    door.say(Message::Status(mk_status(2)));
    assert!(matches!(door.events().as_slice(), [Event::Status(_)]));
}

#[test]
fn an_agent_that_names_another_status_than_the_last_one_taken_is_asked_for_it_and_one_that_lies_not_without_end() {
    let mut door = Door::synced(5);
    let lively = |counter, digest| Message::Liveness(Liveness { counter, status: Some(digest) });
    let asked = |door: &mut Door| {
        let is_ask = |message: &Message| matches!(message, Message::Directive(asked) if asked.code == DirectiveCode::ReportStatus);
        door.written().iter().filter(|message| is_ask(message)).count()
    };
    door.say(Message::Status(mk_status(1)));
    door.say(lively(1, mk_status(1).report.digest()));
    assert_eq!(asked(&mut door), 0);
    let mut questions = 0;
    for second in 0..100 {
        door.wait(Duration::from_secs(1));
        for nth in 0..10 {
            door.say(lively(2, Digest::of(&[second, nth])));
        }
        questions += asked(&mut door);
        door.events();
    }
    assert_eq!(questions, 4);
    assert!(door.session.is_open());
}

fn mk_status(seq: u64) -> StatusReport {
    let report = HostReport::of_health(&[(POLICY, mk_stamp(5))], UpdateSeq::ZERO, 0);
    StatusReport { seq, report, signature: [0; 64] }
}

/// A session with a hand clock, and what came out of it.
struct Door {
    session: Session,
    now: Instant,
    sent: Vec<Event>,
    wants: Vec<Want>,
}

impl Door {
    fn new() -> Self {
        let config = Config::standard(vec!["gateway-a:7443".to_owned()]);
        let now = Instant::default();
        Self { session: Session::new(config, 11, now), now, sent: Vec::new(), wants: Vec::new() }
    }

    fn open() -> Self {
        Self::open_with(vec![])
    }

    fn open_with(applied: Vec<(Component, Stamp)>) -> Self {
        let mut door = Self::new();
        door.say(Message::Hello(mk_hello(applied)));
        door.session.handle_admitted(mk_admission(), door.now);
        assert_eq!(door.next_kind(), Some(Kind::HelloAck));
        door.events();
        door
    }

    /// Every component at one version, and answered.
    fn synced(version: u64) -> Self {
        let mut door = Self::open();
        door.written();
        assert_eq!(door.wants().len(), 4);
        for component in Component::ALL {
            door.answer(component, mk_whole(version, None));
        }
        assert_eq!(door.updates().len(), 4);
        for (seq, component) in (1..).zip(Component::ALL) {
            door.outcome(component, seq, version, OutcomeKind::Applied);
        }
        door
    }

    fn say(&mut self, message: Message) {
        self.session.handle_message(message, self.now);
    }

    fn wait(&mut self, wait: Duration) {
        self.now = self.now.plus(wait);
        self.session.handle_timeout(self.now);
    }

    fn next_message(&mut self) -> Option<Message> {
        let mut bytes = Vec::new();
        let kind = self.session.poll_transmit(self.now, &mut bytes).expect("legal frames");
        kind.map(|_| mk_message(&bytes))
    }

    fn next_kind(&mut self) -> Option<Kind> {
        self.next_message().and_then(|message| Kind::from_number(message.kind_number()))
    }

    fn written(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.next_message()).collect()
    }

    /// The updates among what was written; every snapshot is followed by its chunks.
    fn updates(&mut self) -> Vec<Update> {
        let mut updates: Vec<Update> = Vec::new();
        for message in self.written() {
            match message {
                Message::Update(update) => updates.push(update),
                Message::Chunk(chunk) => assert_eq!(Some(chunk.update_seq), updates.last().map(|last| last.update_seq)),
                other => panic!("{other:?}"),
            }
        }
        updates
    }

    fn drain(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Want(want) => self.wants.push(want),
                other => self.sent.push(other),
            }
        }
    }

    fn wants(&mut self) -> Vec<Want> {
        self.drain();
        std::mem::take(&mut self.wants)
    }

    fn events(&mut self) -> Vec<Event> {
        self.drain();
        std::mem::take(&mut self.sent)
    }

    fn refusal(&mut self) -> Option<RefusalCode> {
        match self.written().as_slice() {
            [Message::Refusal(refusal)] => Some(refusal.code),
            _ => None,
        }
    }

    fn try_answer(&mut self, component: Component, answer: Answer) -> Result<(), AnswerError> {
        self.session.handle_answer(component, answer, self.now)
    }

    fn answer(&mut self, component: Component, answer: Answer) {
        self.try_answer(component, answer).expect("an answer that was asked for");
    }

    fn push_delta(&mut self, version: u64) {
        self.session.handle_hint(POLICY);
        self.written();
        let wants = self.wants();
        let [Want { tip: Some(tip), snapshot: false, .. }] = wants.as_slice() else { panic!("{wants:?}") };
        self.answer(POLICY, mk_whole(version, Some(mk_offer(tip.version.raw(), 10))));
        let updates = self.updates();
        assert!(matches!(updates.as_slice(), [Update { content: UpdateContent::Delta { .. }, .. }]), "{updates:?}");
        self.events();
    }

    fn recover(&mut self, version: u64) {
        self.written();
        let wants = self.wants();
        assert!(matches!(wants.as_slice(), [Want { snapshot: true, .. }]), "{wants:?}");
        self.answer(POLICY, mk_whole(version, None));
        assert_eq!(self.updates().len(), 1);
        self.events();
    }

    fn outcome(&mut self, component: Component, seq: u64, version: u64, kind: OutcomeKind) {
        self.events();
        self.outcome_again(component, seq, version, kind);
        let events = self.events();
        assert!(matches!(events.as_slice(), [Event::Outcome(_)]), "{events:?}");
    }

    fn outcome_again(&mut self, component: Component, seq: u64, version: u64, kind: OutcomeKind) {
        self.say(Message::Outcome(mk_outcome(component, seq, version, kind)));
        self.written();
    }
}

fn mk_message(bytes: &[u8]) -> Message {
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    deframer.push(bytes);
    let frame = deframer.poll_frame().expect("a frame").expect("a whole one");
    assert!(deframer.is_between_frames());
    decode(&frame).expect("a message")
}

fn mk_outcome(component: Component, seq: u64, version: u64, kind: OutcomeKind) -> OutcomeReport {
    OutcomeReport {
        update_seq: UpdateSeq::from_raw(seq),
        component,
        kind,
        wanted: mk_stamp(version),
        applied: (kind == OutcomeKind::Applied).then(|| mk_stamp(version)),
        conditions: vec![],
        signature: [0; 64],
    }
}

fn mk_drift(total: u64) -> DriftReport {
    let (instance, counts) = (Uuid::from_u128(5), DriftCounts::default());
    DriftReport { kind: DriftKind::Found, instance, total, age_ms: 0, writer: None, counts }
}

fn mk_version(raw: u64) -> Version {
    Version::from_raw(raw).expect("not zero")
}

fn mk_stamp(version: u64) -> Stamp {
    Stamp { version: mk_version(version), digest: Digest::of(&version.to_be_bytes()) }
}

fn mk_body(version: u64) -> Arc<[u8]> {
    version.to_be_bytes().repeat(50).into()
}

fn mk_offer(base: u64, bytes: usize) -> DeltaOffer {
    DeltaOffer { base: mk_stamp(base).digest, changes: vec![0; bytes].into() }
}

fn mk_supply(version: u64, delta: Option<DeltaOffer>) -> Supply {
    Supply::Whole { body: mk_body(version), delta }
}

fn mk_whole(version: u64, delta: Option<DeltaOffer>) -> Answer {
    Answer::Current { stamp: mk_stamp(version), signature: [1; 64], supply: mk_supply(version, delta) }
}

fn mk_hello(applied: Vec<(Component, Stamp)>) -> Hello {
    Hello {
        protocols: SPOKEN,
        agent_version: "0.1.0".to_owned(),
        boot_id: Uuid::nil(),
        applied,
        capabilities: vec![],
        inventory: Inventory::default(),
    }
}

fn mk_admission() -> Admission {
    let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
    Admission { session_epoch: SessionEpoch::from_raw(7), authority }
}
