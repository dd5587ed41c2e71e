//! The agent half by the cases of the reference tables, with a hand clock.

#![expect(clippy::wildcard_enum_match_arm, reason = "what a test does not expect fails it, whatever it is")]

use std::time::Duration;

use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{
    Authority, Outcome, OutcomeKind, StatusPlace, desired_bytes, outcome_bytes, status_bytes,
};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::decode;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::{CHUNK_BYTES_MAX, FRAME_BYTES_MAX};
use holdfast_wire::message::{
    Chunk, Delivery, Directive, Drain, DriftReport, Fault, Hello, HelloAck, Inventory, Kind, Liveness, Message,
    OutcomeReport, Refusal, SessionLimits, SignatureBytes, StatusReport, Update, UpdateContent,
};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN};
use uuid::Uuid;

use super::*;
use crate::limits::{HEALTHY_AFTER, RETRY_AFTER_MAX};
use crate::time::Instant;

const POLICY: Component = Component::Policy;

#[test]
fn a01_hello_is_the_first_message_and_comes_once() {
    let mut agent = Agent::new(vec![(POLICY, mk_stamp(5))]);
    let written = agent.written();
    assert!(matches!(written.as_slice(), [Message::Hello(hello)] if hello.applied == [(POLICY, mk_stamp(5))]));
    assert_eq!(agent.written(), []);
}

#[test]
fn hello_names_what_is_in_force_in_one_order_whatever_order_it_came_in() {
    // A session that was cut behind its second component put that one last.
    let mut agent = Agent::new(vec![
        (Component::Workloads, mk_stamp(1)),
        (Component::Settings, mk_stamp(2)),
        (POLICY, mk_stamp(5)),
    ]);
    let written = agent.written();
    let [Message::Hello(hello)] = written.as_slice() else { panic!("{written:?}") };
    let named: Vec<Component> = hello.applied.iter().map(|(component, _)| *component).collect();
    assert_eq!(named, [POLICY, Component::Settings, Component::Workloads]);
}

#[test]
fn a02_a_gateway_that_does_not_answer_hello_is_left_after_30_s() {
    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.wait(Duration::from_millis(29_999));
    assert!(!agent.session.is_closed());
    agent.wait(Duration::from_millis(1));
    assert_eq!(agent.refusal(), Some(RefusalCode::HelloTimeout));

    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.say(Message::Liveness(Liveness { counter: 1, status: None }));
    assert_eq!(agent.refusal(), Some(RefusalCode::WrongFirstMessage));
}

#[test]
fn g03_the_answer_decides_the_protocol_and_frames_of_no_other_are_read_or_written() {
    for protocol in Protocol::ALL {
        let mut agent = Agent::new(vec![]);
        assert_eq!(agent.session.spoken(), SPOKEN, "whatever was offered may be chosen");
        agent.written();
        agent.say(Message::HelloAck(HelloAck { protocol: protocol.number(), ..mk_ack() }));
        assert_eq!(agent.session.spoken(), ProtocolRange::only(protocol));
        agent.say(Message::Unknown(4_000));
        let mut bytes = Vec::new();
        agent.session.poll_transmit(&mut bytes).expect("a frame");
        assert_eq!(bytes.get(4..6), Some(protocol.number().to_be_bytes().as_slice()));
    }
    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.say(Message::HelloAck(HelloAck { protocol: Protocol::NEWEST.number() + 1, ..mk_ack() }));
    assert_eq!(agent.refusal(), Some(RefusalCode::NoCommonProtocol));
}

#[test]
fn g03_a_gateway_that_delivers_by_poll_is_believed_only_if_it_speaks_for_the_authority() {
    let polls = HelloAck { delivery: Delivery::Poll, ..mk_ack() };
    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.say(Message::HelloAck(polls.clone()));
    let events = agent.events();
    let [Event::Opened(ack), Event::Closed(CloseCause::Polls)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(**ack, polls);
    assert_eq!(agent.written(), [], "nothing is said any more");
    let authority = Authority { id: AuthorityId::new(Uuid::from_u128(2)), ..mk_authority() };
    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.say(Message::HelloAck(HelloAck { authority, ..polls }));
    assert_eq!(agent.refusal(), Some(RefusalCode::WrongAuthority));
}

#[test]
fn another_authority_or_an_older_life_of_it_is_left_and_a_newer_life_is_not() {
    let with = |id, epoch| {
        let mut agent = Agent::new(vec![(POLICY, mk_stamp(9))]);
        agent.written();
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(id)), epoch: AuthorityEpoch::from_raw(epoch) };
        agent.say(Message::HelloAck(HelloAck { authority, ..mk_ack() }));
        agent
    };
    assert_eq!(with(2, 3).refusal(), Some(RefusalCode::WrongAuthority));
    assert_eq!(with(1, 2).refusal(), Some(RefusalCode::WrongAuthority));
    let mut newer = with(1, 4);
    assert!(newer.session.is_open());
    // In a new life versions may start lower; signatures are held against that life.
    let old_life = mk_update(1, POLICY, 3, UpdateContent::VersionOnly);
    newer.say(Message::Update(old_life));
    assert_eq!(newer.outcome_reason(), Reason::BadSignature);
}

#[test]
fn a_component_of_an_earlier_life_may_go_back_though_another_was_taken_in_the_pinned_one() {
    let with = |earlier| {
        let mut agent = Agent::new(vec![(POLICY, mk_stamp(9))]);
        agent.session = agent.session.with_earlier(earlier);
        agent.written();
        agent.say(Message::HelloAck(mk_ack()));
        agent.events();
        agent.snapshot(1, POLICY, 3);
        agent
    };
    assert_eq!(with(vec![Component::Settings]).outcome_reason(), Reason::Backward);
    let mut agent = with(vec![POLICY]);
    assert_eq!(agent.apply().map(|apply| apply.stamp), Some(mk_stamp(3)), "the session ended amid a new life");
    agent.applied(1);
    agent.written();
    agent.snapshot(2, POLICY, 2);
    assert_eq!(agent.outcome_reason(), Reason::Backward, "what was taken in this session is of this life");
}

#[test]
fn a08_a_burst_is_applied_one_at_a_time_in_order_and_each_is_answered() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 1);
    agent.delta(2, 1, 2);
    agent.delta(3, 2, 3);
    for (seq, version) in [(1, 1), (2, 2), (3, 3)] {
        let apply = agent.apply().expect("the next one");
        assert_eq!((apply.update_seq.raw(), apply.stamp), (seq, mk_stamp(version)));
        assert_eq!(agent.apply(), None, "one at a time");
        agent.applied(seq);
        let written = agent.written();
        let [Message::Outcome(report)] = written.as_slice() else { panic!("{written:?}") };
        assert_eq!(
            (report.kind, report.wanted, report.applied),
            (OutcomeKind::Applied, mk_stamp(version), Some(mk_stamp(version)))
        );
        let outcome = Outcome {
            host: mk_host(),
            session_epoch: SessionEpoch::from_raw(7),
            update_seq: UpdateSeq::from_raw(seq),
            component: POLICY,
            kind: OutcomeKind::Applied,
            wanted: mk_stamp(version),
            applied: Some(mk_stamp(version)),
        };
        assert_eq!(report.signature, mk_signature(&outcome_bytes(mk_authority(), &outcome, &report.conditions)));
    }
}

#[test]
fn c07_a10_a_delta_on_another_base_is_refused_as_a_unit() {
    let mut agent = Agent::open(vec![(POLICY, mk_stamp(5))]);
    // Held from an earlier session is no base either.
    agent.delta(1, 5, 6);
    assert_eq!(agent.outcome_reason(), Reason::WrongBase);
    agent.synced_snapshot(2, POLICY, 5);
    agent.delta(3, 4, 6);
    let report = agent.outcome();
    assert_eq!((report.kind, report.wanted, report.applied), (OutcomeKind::Failed, mk_stamp(6), Some(mk_stamp(5))));
    let forged_digest = Stamp { digest: mk_stamp(9).digest, ..mk_stamp(5) };
    agent.say(Message::Update(mk_update(4, POLICY, 6, UpdateContent::Delta { base: forged_digest, changes: vec![] })));
    assert_eq!(agent.outcome_reason(), Reason::WrongBase);
    agent.delta(5, 5, 6);
    assert!(agent.apply().is_some(), "and the right one still goes through");
}

#[test]
fn a_delta_of_a_component_that_travels_whole_is_refused() {
    let mut agent = Agent::open(vec![]);
    agent.synced_snapshot(1, Component::Settings, 1);
    let content = UpdateContent::Delta { base: mk_stamp(1), changes: vec![] };
    agent.say(Message::Update(mk_update(2, Component::Settings, 2, content)));
    assert_eq!(agent.outcome_reason(), Reason::Malformed);
}

#[test]
fn after_a_failure_the_next_delta_has_no_base_and_a_snapshot_recovers() {
    let mut agent = Agent::open(vec![]);
    agent.synced_snapshot(1, POLICY, 1);
    agent.delta(2, 1, 2);
    agent.delta(3, 2, 3);
    assert!(agent.apply().is_some());
    agent.failed(2, Some(mk_stamp(1)));
    let written = agent.written();
    let [Message::Outcome(first), Message::Outcome(second)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!((first.kind, first.applied), (OutcomeKind::Failed, Some(mk_stamp(1))));
    assert_eq!((second.kind, second.conditions[0].reason), (OutcomeKind::Failed, Reason::WrongBase));
    assert_eq!(second.conditions[1].status, Holds::Unknown);
    agent.synced_snapshot(4, POLICY, 3);
    agent.delta(5, 3, 4);
    assert!(agent.apply().is_some());
}

#[test]
fn one_version_has_one_digest_and_nothing_goes_back() {
    let mut agent = Agent::open(vec![(POLICY, mk_stamp(5))]);
    let other = Stamp { digest: mk_stamp(6).digest, ..mk_stamp(5) };
    agent.snapshot_of(1, POLICY, other);
    assert_eq!(agent.outcome_reason(), Reason::SameVersionOtherContent);
    agent.snapshot(2, POLICY, 4);
    assert_eq!(agent.outcome_reason(), Reason::Backward);
    agent.synced_snapshot(3, POLICY, 5);
    // A version that failed has its digest too.
    agent.snapshot(4, POLICY, 7);
    assert!(agent.apply().is_some());
    agent.failed(4, Some(mk_stamp(5)));
    agent.written();
    agent.snapshot_of(5, POLICY, Stamp { digest: mk_stamp(8).digest, ..mk_stamp(7) });
    assert_eq!(agent.outcome_reason(), Reason::SameVersionOtherContent);
    agent.synced_snapshot(6, POLICY, 7);
}

#[test]
fn a_signature_for_another_host_component_version_or_digest_is_refused() {
    let mut agent = Agent::open(vec![]);
    agent.synced_snapshot(1, POLICY, 1);
    let right = mk_update(2, POLICY, 2, UpdateContent::Delta { base: mk_stamp(1), changes: vec![] });
    let swapped = Desired { host: HostId::new(Uuid::from_u128(99)), component: POLICY, stamp: mk_stamp(2) };
    for (seq, wrong) in (2..).zip([
        Update { signature: mk_signature(&desired_bytes(mk_authority(), &swapped)), ..right.clone() },
        Update { component: Component::Settings, ..right.clone() },
        Update { stamp: Stamp { version: mk_stamp(3).version, ..right.stamp }, ..right.clone() },
        Update { stamp: Stamp { digest: mk_stamp(3).digest, ..right.stamp }, ..right.clone() },
    ]) {
        agent.say(Message::Update(Update { update_seq: UpdateSeq::from_raw(seq), ..wrong }));
        assert_eq!(agent.outcome_reason(), Reason::BadSignature);
    }
    // A forged snapshot is not even kept, and is answered once its bytes went by.
    let forged = Update { signature: [0; 64], ..mk_update(6, POLICY, 2, UpdateContent::Snapshot { bytes_total: 8 }) };
    agent.say(Message::Update(forged));
    assert_eq!(agent.written(), []);
    agent.say(mk_chunk(6, 0, 8));
    assert_eq!(agent.outcome_reason(), Reason::BadSignature);
    assert!(agent.session.is_open());
}

#[test]
fn h18_a_version_alone_is_taken_only_over_the_digest_that_this_session_took() {
    let mut agent = Agent::open(vec![]);
    agent.say(Message::Update(mk_update(1, POLICY, 2, UpdateContent::VersionOnly)));
    assert_eq!(agent.outcome_reason(), Reason::WrongBase);
    agent.synced_snapshot(2, POLICY, 2);
    let same = Stamp { version: mk_stamp(3).version, ..mk_stamp(2) };
    let update = Update { stamp: same, ..mk_update(3, POLICY, 3, UpdateContent::VersionOnly) };
    let signature =
        mk_signature(&desired_bytes(mk_authority(), &Desired { host: mk_host(), component: POLICY, stamp: same }));
    agent.say(Message::Update(Update { signature, ..update }));
    assert_eq!(agent.apply().map(|apply| apply.content), Some(Content::VersionOnly));
    agent.applied(3);
    assert_eq!(agent.outcome().applied, Some(same));
}

#[test]
fn liveness_does_not_wait_for_a_slow_apply() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 1);
    assert!(agent.apply().is_some());
    let mut said = 0;
    for _ in 0..30 {
        agent.wait(Duration::from_secs(10));
        agent.say(Message::Liveness(Liveness { counter: 1, status: None }));
        let alive = |message: &Message| matches!(message, Message::Liveness(_));
        said += agent.written().iter().filter(|message| alive(message)).count();
    }
    assert!((15..=30).contains(&said), "{said} in 300 s");
    agent.applied(1);
    assert_eq!(agent.outcome().kind, OutcomeKind::Applied);
}

#[test]
fn silence_of_the_gateway_for_45_s_ends_the_session() {
    let mut agent = Agent::open(vec![]);
    agent.wait(Duration::from_millis(44_999));
    assert!(agent.session.is_open());
    agent.wait(Duration::from_millis(1));
    assert_eq!(agent.refusal(), Some(RefusalCode::LivenessLost));
}

#[test]
fn a_body_of_four_mebibytes_is_put_together_and_out_of_place_chunks_end_the_session() {
    let total: u32 = 4 << 20;
    let mut agent = Agent::open(vec![]);
    agent.say(Message::Update(mk_update(1, POLICY, 1, UpdateContent::Snapshot { bytes_total: total })));
    let piece = u32::try_from(CHUNK_BYTES_MAX).expect("fits");
    for offset in (0..total).step_by(CHUNK_BYTES_MAX) {
        assert_eq!(agent.apply(), None);
        agent.say(mk_chunk(1, offset, piece));
    }
    let apply = agent.apply().expect("whole now");
    assert!(matches!(apply.content, Content::Snapshot(bytes) if bytes.len() == total as usize));

    let begin = |bytes_total| {
        let mut agent = Agent::open(vec![]);
        agent.say(Message::Update(mk_update(1, POLICY, 1, UpdateContent::Snapshot { bytes_total })));
        agent
    };
    for wrong in [
        mk_chunk(1, 4, 4),
        mk_chunk(2, 0, 4),
        mk_chunk(1, 0, 9),
        Message::Update(mk_update(2, POLICY, 2, UpdateContent::VersionOnly)),
    ] {
        let mut agent = begin(8);
        agent.say(wrong);
        assert_eq!(agent.refusal(), Some(RefusalCode::WrongChunk));
    }
    let mut agent = Agent::open(vec![]);
    agent.say(mk_chunk(1, 0, 1));
    assert_eq!(agent.refusal(), Some(RefusalCode::WrongChunk), "none was announced");
}

#[test]
fn a_gateway_that_sends_more_than_agreed_is_left() {
    let mut agent = Agent::open(vec![]);
    let over = mk_limits().body_bytes_max + 1;
    agent.say(Message::Update(mk_update(1, POLICY, 1, UpdateContent::Snapshot { bytes_total: over })));
    assert_eq!(agent.refusal(), Some(RefusalCode::TooLarge));

    let mut agent = Agent::open(vec![]);
    agent.synced_snapshot(1, POLICY, 1);
    for seq in 2..=65 {
        agent.delta(seq, seq - 1, seq);
    }
    assert!(agent.session.is_open(), "64 are allowed");
    agent.delta(66, 65, 66);
    assert_eq!(agent.refusal(), Some(RefusalCode::TooLarge));
}

#[test]
fn update_sequences_that_do_not_rise_by_one_end_the_session() {
    for seq in [0, 1, 3] {
        let mut agent = Agent::open(vec![]);
        agent.synced_snapshot(1, POLICY, 1);
        agent.delta(seq, 1, 2);
        assert_eq!(agent.refusal(), Some(RefusalCode::WrongSequence), "{seq}");
    }
}

#[test]
fn a_result_that_comes_after_its_session_is_dropped() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 1);
    assert!(agent.apply().is_some());
    agent.session.handle_lost();
    agent.applied(1);
    assert_eq!(agent.written(), []);

    let mut next = Agent::open(vec![]);
    next.applied(1);
    assert_eq!(next.written(), [], "nor does the next session answer for it");
}

#[test]
fn g10_a_local_override_is_answered_and_later_deltas_still_have_their_base() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 1);
    assert!(agent.apply().is_some());
    let result = ApplyResult { kind: OutcomeKind::RetainedLocalOverride, in_force: None, conditions: vec![] };
    agent.session.handle_result(UpdateSeq::from_raw(1), result);
    let report = agent.outcome();
    assert_eq!((report.kind, report.applied), (OutcomeKind::RetainedLocalOverride, None));
    agent.delta(2, 1, 2);
    assert!(agent.apply().is_some());
}

#[test]
fn c19_a20_only_a_changed_inventory_is_said() {
    let mut agent = Agent::open(vec![]);
    agent.session.handle_inventory(Inventory::default());
    assert_eq!(agent.written(), []);
    let moved = Inventory { addresses: vec![[10, 0, 0, 2].into()], ..Inventory::default() };
    agent.session.handle_inventory(moved.clone());
    assert_eq!(agent.written(), [Message::Inventory(moved.clone())]);
    agent.session.handle_inventory(moved.clone());
    assert_eq!(agent.written(), []);
    agent.session.handle_inventory(Inventory::default());
    agent.session.handle_inventory(moved);
    assert_eq!(agent.written(), [], "and one that changed back is not");
}

#[test]
fn a23_a24_a25_directives_reconnect_once_or_are_told_or_ignored() {
    let direct = |code| {
        let mut agent = Agent::open(vec![]);
        agent.say(Message::Directive(Directive { code, argument: vec![] }));
        agent
    };
    let mut agent = direct(DirectiveCode::Reconnect);
    let closed = Event::Closed(CloseCause::Directed);
    assert_eq!(agent.events(), [Event::Directive(DirectiveCode::Reconnect), closed]);
    let mut agent = direct(DirectiveCode::Reenrol);
    let closed = Event::Closed(CloseCause::Reenrol);
    assert_eq!(agent.events(), [Event::Directive(DirectiveCode::Reenrol), closed]);
    let mut agent = direct(DirectiveCode::Unknown(77));
    let told = Event::Fault { code: FaultCode::UnknownDirective, update_seq: None };
    assert_eq!(agent.events(), [Event::Directive(DirectiveCode::Unknown(77)), told]);
    let reported = agent.written();
    let [Message::Fault(fault)] = reported.as_slice() else { panic!("{reported:?}") };
    assert_eq!((fault.code, fault.message_kind), (FaultCode::UnknownDirective, Kind::Directive.number()));
    assert!(agent.session.is_open());
    agent.say(Message::Unknown(4_000));
    assert!(matches!(agent.written().as_slice(), [Message::Fault(fault)] if fault.code == FaultCode::UnknownKind));
}

#[test]
fn a_drained_session_goes_on_until_it_is_this_hosts_turn() {
    let mut agent = Agent::open(vec![]);
    agent.say(Message::Drain(Drain { reconnect_after_ms: 9_000, gateways: vec![] }));
    agent.synced_snapshot(1, POLICY, 1);
    agent.events();
    agent.wait(Duration::from_millis(8_999));
    assert!(agent.session.is_open());
    agent.wait(Duration::from_millis(1));
    assert_eq!(agent.events(), [Event::Closed(CloseCause::Drained)]);
}

#[test]
fn details_and_lists_above_their_caps_are_cut_before_they_are_said() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 1);
    assert!(agent.apply().is_some());
    let condition = Condition {
        kind: ConditionType::Applied,
        status: Holds::False,
        reason: Reason::KernelRefused,
        message: "\u{1b}[31m".repeat(1_000),
        observed_version: None,
    };
    let result = ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions: vec![condition; 100] };
    agent.session.handle_result(UpdateSeq::from_raw(1), result);
    let report = agent.outcome();
    assert!(report.conditions.len() <= 6 && report.conditions[0].message.len() <= 1_024);
    assert!(!report.conditions[0].message.contains('\u{1b}'));
}

#[test]
fn dials_back_off_and_start_again_only_after_a_healthy_session() {
    let mut now = Instant::default();
    let mut dialer = Dialer::new(vec!["a:1".to_owned(), "b:1".to_owned()], 5, now);
    let mut dialled = Vec::new();
    // A session that ends at once, over and over, is no reason to hurry.
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        dialled.push(dialer.poll_dial(now).expect("it is time"));
        assert_eq!(dialer.poll_dial(now), None, "one dial at a time");
        dialer.handle_opened(now);
        dialer.handle_ended(Ended::Session(CloseCause::Lost), now);
        let (at, _) = dialer.poll_timeout().expect("waiting");
        longest = longest.max(at.since(now));
        now = at;
    }
    assert!(longest > Duration::from_secs(60) && longest <= Duration::from_secs(300), "{longest:?}");
    assert!(dialled.windows(2).all(|pair| pair[0] != pair[1]), "gateways take turns");

    dialer.poll_dial(now).expect("it is time");
    dialer.handle_opened(now);
    now = now.plus(HEALTHY_AFTER);
    dialer.handle_ended(Ended::Session(CloseCause::Lost), now);
    let (at, _) = dialer.poll_timeout().expect("waiting");
    assert!(at.since(now) <= Duration::from_secs(1), "the first window again");
}

#[test]
fn a26_a_hundred_healthy_sessions_leave_the_next_dial_in_the_first_window_and_refused_dials_widen_it() {
    let longest_of = |ended: Ended, open_for: Option<Duration>| {
        let mut now = Instant::default();
        let mut dialer = Dialer::new(vec!["a:1".to_owned()], 11, now);
        let mut longest = Vec::new();
        for _ in 0..100 {
            dialer.poll_dial(now).expect("it is time");
            if let Some(open_for) = open_for {
                dialer.handle_opened(now);
                now = now.plus(open_for);
            }
            dialer.handle_ended(ended, now);
            let (at, _) = dialer.poll_timeout().expect("waiting");
            longest.push(at.since(now));
            now = at;
        }
        longest.into_iter().max().expect("a hundred")
    };
    let lost = Ended::Session(CloseCause::Lost);
    let (second, cap) = (Duration::from_secs(1), Duration::from_secs(300));
    // Slip 1 of a system that this one replaces: an agent that lives long drifted to waits of five minutes.
    assert!(longest_of(lost, Some(HEALTHY_AFTER)) <= second);
    for (ended, open_for) in [(Ended::NoSession, None), (lost, Some(HEALTHY_AFTER - Duration::from_millis(1)))] {
        let longest = longest_of(ended, open_for);
        assert!(longest > cap / 2 && longest <= cap, "{ended:?}: {longest:?}");
    }
}

#[test]
fn a_retry_after_is_kept_within_bounds_and_a_directed_reconnect_is_at_once() {
    let after = |cause| {
        let mut dialer = Dialer::new(vec!["a:1".to_owned()], 5, Instant::default());
        dialer.poll_dial(Instant::default()).expect("it is time");
        dialer.handle_ended(Ended::Session(cause), Instant::default());
        dialer.poll_timeout().expect("waiting").0.since(Instant::default())
    };
    let refused = |retry_after_ms| CloseCause::Theirs { code: RefusalCode::Overloaded, retry_after_ms };
    assert!((Duration::from_secs(20)..=Duration::from_secs(21)).contains(&after(refused(20_000))));
    assert!(after(refused(u32::MAX)) <= RETRY_AFTER_MAX + Duration::from_secs(1));
    assert_eq!(after(CloseCause::Directed), Duration::ZERO);
    assert_eq!(after(CloseCause::Drained), Duration::ZERO);
}

#[test]
fn a_list_that_leads_to_no_session_is_not_the_last_word_and_one_that_does_is() {
    let name = |text: &str| text.to_owned();
    let dials = |told: &[&str], enrolled: &[&str], count| {
        let now = Instant::default();
        let mut dialer = Dialer::new(vec![name("old:1")], 5, now);
        dialer = dialer.with_enrolled(enrolled.iter().copied().map(name).collect());
        dialer.poll_dial(now).expect("it is time");
        dialer.handle_opened(now);
        dialer.handle_gateways(told.iter().copied().map(name).collect());
        dialer.handle_ended(Ended::Session(CloseCause::Directed), now);
        let mut at = now;
        let mut dialled = Vec::new();
        for _ in 0..count {
            dialled.push(dialer.poll_dial(at).expect("it is time"));
            // Who is refused before a session is there has no more of one than who reaches nobody.
            dialer.handle_ended(
                Ended::Session(CloseCause::Theirs { code: RefusalCode::Overloaded, retry_after_ms: 0 }),
                at,
            );
            at = dialer.poll_timeout().expect("waiting").0;
        }
        (dialled, dialer, at)
    };
    let (dialled, mut dialer, at) = dials(&["liar:1"], &["a:1", "b:1"], 6);
    assert_eq!(dialled, ["liar:1", "liar:1", "a:1", "b:1", "liar:1", "a:1"]);
    // One that answers has the word again.
    assert_eq!(dialer.poll_dial(at).as_deref(), Some("b:1"));
    dialer.handle_opened(at);
    dialer.handle_ended(Ended::Session(CloseCause::Directed), at);
    assert_eq!(dialer.poll_dial(at).as_deref(), Some("liar:1"));

    let many: Vec<String> = (0..16).map(|n| format!("liar-{n}:1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(dials(&many, &["a:1"], 9).0.ends_with(&[name("a:1")]), "a long list keeps nobody for hours");
    assert!(!dials(&["a:1", "b:1"], &["a:1"], 20).0.iter().any(|dialled| dialled == "old:1"));
}

#[test]
fn a24_after_a_re_enrol_nobody_is_dialled_any_more() {
    let mut dialer = Dialer::new(vec!["a:1".to_owned()], 5, Instant::default());
    dialer.poll_dial(Instant::default()).expect("it is time");
    dialer.handle_opened(Instant::default());
    dialer.handle_ended(Ended::Session(CloseCause::Reenrol), Instant::default());
    let in_a_year = Instant::from_millis(365 * 24 * 3_600 * 1_000);
    assert_eq!((dialer.state(), dialer.poll_timeout()), (DialState::Stopped, None));
    assert_eq!(dialer.poll_dial(in_a_year), None);
}

#[test]
fn a_gateway_that_goes_early_while_draining_still_spreads_its_agents() {
    let mut dialer = Dialer::new(vec!["a:1".to_owned()], 5, Instant::default());
    dialer.poll_dial(Instant::default()).expect("it is time");
    dialer.handle_opened(Instant::default());
    let drain = Drain { reconnect_after_ms: 30_000, gateways: vec!["b:1".to_owned()] };
    dialer.handle_drain(&drain, Instant::default());
    dialer.handle_ended(Ended::Session(CloseCause::Lost), Instant::from_millis(2_000));
    assert_eq!(dialer.state(), DialState::Waiting { until: Instant::from_millis(30_000) });
    assert_eq!(dialer.poll_dial(Instant::from_millis(30_000)).as_deref(), Some("b:1"));
}

#[test]
fn the_word_of_a_refusing_gateway_reaches_the_dialler() {
    let mut agent = Agent::new(vec![]);
    agent.written();
    agent.say(Message::Refusal(Refusal { code: RefusalCode::Overloaded, retry_after_ms: 7, detail: String::new() }));
    let cause = CloseCause::Theirs { code: RefusalCode::Overloaded, retry_after_ms: 7 };
    assert_eq!(agent.events(), [Event::Closed(cause)]);
    assert_eq!(agent.written(), []);
}

#[test]
fn drift_is_said_after_everything_else_and_only_where_the_protocol_has_a_word_for_it() {
    let mut agent = Agent::open(vec![]);
    agent.snapshot(1, POLICY, 5);
    assert!(agent.apply().is_some());
    agent.session.handle_drift(mk_drift(DriftKind::Repaired, 1), agent.now);
    agent.session.handle_drift(mk_drift(DriftKind::Found, 1), agent.now);
    agent.applied(1);
    agent.session.handle_inventory(Inventory { hostname: "other".to_owned(), ..Inventory::default() });
    let said: Vec<u16> = agent.written().iter().map(Message::kind_number).collect();
    assert_eq!(said, [Kind::Outcome, Kind::Inventory, Kind::Drift, Kind::Drift].map(Kind::number));
    agent.session.handle_drift(mk_drift(DriftKind::Found, 4), agent.now);
    assert_eq!(agent.written(), []);
    assert_eq!(agent.session.poll_timeout(), Some((Instant::from_millis(2_000), "more of drift")));
    agent.wait(Duration::from_secs(2));
    assert_eq!(agent.written(), [Message::Drift(mk_drift(DriftKind::Found, 4))]);

    for protocol in [Protocol::V1, Protocol::V2] {
        let mut agent = Agent::new(vec![]);
        agent.written();
        agent.say(Message::HelloAck(HelloAck { protocol: protocol.number(), ..mk_ack() }));
        agent.session.handle_drift(mk_drift(DriftKind::Found, 1), agent.now);
        assert_eq!((agent.written(), agent.session.is_open()), (vec![], true), "{protocol:?}");
    }
}

#[test]
fn a_reason_that_an_earlier_protocol_does_not_know_is_said_and_signed_as_it_is_read_there() {
    for (protocol, said) in [
        (Protocol::V1, Reason::UnknownCode),
        (Protocol::V2, Reason::UnknownCode),
        (Protocol::V3, Reason::SelfIsolation),
    ] {
        let mut agent = Agent::new(vec![]);
        agent.written();
        agent.say(Message::HelloAck(HelloAck { protocol: protocol.number(), ..mk_ack() }));
        agent.snapshot(1, POLICY, 5);
        assert!(agent.apply().is_some());
        let condition = |reason| Condition {
            kind: ConditionType::SnapshotAccepted,
            status: Holds::False,
            reason,
            message: String::new(),
            observed_version: None,
        };
        let conditions = vec![condition(Reason::SelfIsolation), condition(Reason::LocalOverride)];
        let result = ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions };
        agent.session.handle_result(UpdateSeq::from_raw(1), result);
        let report = agent.outcome();
        assert_eq!(report.conditions, [condition(said), condition(Reason::LocalOverride)]);
        let outcome = Outcome {
            host: mk_host(),
            session_epoch: mk_ack().session_epoch,
            update_seq: report.update_seq,
            component: report.component,
            kind: report.kind,
            wanted: report.wanted,
            applied: report.applied,
        };
        let statement = outcome_bytes(mk_authority(), &outcome, &report.conditions);
        assert_eq!(report.signature, mk_signature(&statement), "what is read is what was signed");
    }
}

#[test]
fn a_status_follows_the_outcomes_that_it_is_newer_than_with_the_hosts_signature_and_its_digest_is_in_liveness() {
    let mut agent = Agent::open(vec![]);
    agent.session.handle_status(mk_report(4), Settling::Stands, agent.now);
    let opening = agent.status();
    assert_eq!((opening.seq, opening.report.answered), (1, UpdateSeq::ZERO));
    agent.snapshot(1, POLICY, 5);
    assert!(agent.apply().is_some());
    agent.session.handle_status(mk_report(5), Settling::Stands, agent.now);
    agent.applied(1);
    let written = agent.written();
    let [Message::Outcome(_), Message::Status(status)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!((status.seq, status.report.answered.raw()), (2, 1));
    let place = StatusPlace { host: mk_host(), session_epoch: mk_ack().session_epoch, seq: 2 };
    let statement = status_bytes(mk_authority(), place, &status.report);
    assert_eq!(status.signature, mk_signature(&statement), "what is read is what was signed");
    agent.wait(Duration::from_secs(18));
    let [Message::Liveness(liveness)] = agent.written()[..] else { panic!("a sign of life") };
    assert_eq!(liveness.status, Some(mk_report(5).digest()));

    // One that the machine refuses by itself is followed by one too, though nothing changed.
    agent.say(Message::Update(Update { signature: [0; 64], ..mk_update(2, POLICY, 6, UpdateContent::VersionOnly) }));
    agent.wait(Duration::from_millis(1));
    let written = agent.written();
    let [Message::Outcome(_), Message::Status(status)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!((status.seq, status.report.answered.raw()), (3, 2));
}

#[test]
fn a_status_is_said_when_it_is_asked_for_and_never_to_a_gateway_without_a_word_for_it() {
    let mut agent = Agent::open(vec![]);
    agent.session.handle_status(mk_report(4), Settling::Stands, agent.now);
    assert_eq!(agent.status().seq, 1);
    let ask = Message::Directive(Directive { code: DirectiveCode::ReportStatus, argument: vec![] });
    agent.say(ask.clone());
    assert_eq!(agent.status().seq, 2);
    for protocol in [Protocol::V1, Protocol::V2] {
        let mut agent = Agent::new(vec![]);
        agent.written();
        agent.say(Message::HelloAck(HelloAck { protocol: protocol.number(), ..mk_ack() }));
        agent.session.handle_status(mk_report(4), Settling::Stands, agent.now);
        agent.say(ask.clone());
        agent.wait(Duration::from_secs(18));
        let written = agent.written();
        assert!(matches!(written.as_slice(), [Message::Liveness(Liveness { status: None, .. })]), "{written:?}");
    }
}

#[test]
fn a_gateway_that_takes_no_status_ends_no_session_by_saying_so() {
    let mut agent = Agent::open(vec![]);
    for _ in 0..1_000 {
        let (code, message_kind) = (FaultCode::BadSignature, Kind::Status.number());
        agent.say(Message::Fault(Fault { code, message_kind, update_seq: None }));
        assert_eq!(agent.events(), [Event::Fault { code, update_seq: None }]);
    }
    assert!(agent.session.is_open());
}

#[test]
fn a_status_that_a_gateway_always_refuses_is_said_again_less_and_less_often_up_to_every_five_minutes() {
    let mut agent = Agent::open(vec![]);
    agent.session.handle_status(mk_report(4), Settling::Stands, agent.now);
    let ask = Message::Directive(Directive { code: DirectiveCode::ReportStatus, argument: vec![] });
    let (code, message_kind) = (FaultCode::BadSignature, Kind::Status.number());
    let mut said_at = Vec::new();
    for second in 0..3_600 {
        for message in agent.written() {
            if matches!(message, Message::Status(_)) {
                said_at.push(second);
                agent.say(Message::Fault(Fault { code, message_kind, update_seq: None }));
            }
        }
        if second % 15 == 0 {
            agent.say(Message::Liveness(Liveness { counter: second, status: None }));
            agent.say(ask.clone());
        }
        agent.wait(Duration::from_secs(1));
        agent.events();
    }
    assert!(agent.session.is_open() && said_at.len() < 25, "{said_at:?}");
    let pauses: Vec<u64> = said_at.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[pauses.len() - 5..].iter().all(|pause| (300..=316).contains(pause)), "{pauses:?}");
}

fn mk_report(version: u64) -> HostReport {
    HostReport::of_health(&[(POLICY, mk_stamp(version))], UpdateSeq::ZERO, 0)
}

fn mk_drift(kind: DriftKind, total: u64) -> DriftReport {
    let (instance, counts) = (Uuid::from_u128(5), DriftCounts::default());
    DriftReport { kind, instance, total, age_ms: 0, writer: None, counts }
}

/// Keys whose signature of a statement is its digest, twice: bound to every byte, as real ones are.
#[derive(Debug)]
struct FakeKeys;

impl Keys for FakeKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        mk_signature(statement) == *signature
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        mk_signature(statement)
    }
}

/// A session with a hand clock.
struct Agent {
    session: Session<FakeKeys>,
    now: Instant,
    others: Vec<Event>,
}

impl Agent {
    fn new(applied: Vec<(Component, Stamp)>) -> Self {
        let hello = Hello {
            protocols: SPOKEN,
            agent_version: "0.1.0".to_owned(),
            boot_id: Uuid::nil(),
            applied,
            capabilities: vec![],
            inventory: Inventory::default(),
        };
        let config = Config { host: mk_host(), hello, pinned: mk_authority() };
        let now = Instant::default();
        Self { session: Session::new(config, FakeKeys, 3, now), now, others: Vec::new() }
    }

    fn open(applied: Vec<(Component, Stamp)>) -> Self {
        let mut agent = Self::new(applied);
        agent.written();
        agent.say(Message::HelloAck(mk_ack()));
        assert!(matches!(agent.events().as_slice(), [Event::Opened(_)]));
        agent
    }

    fn say(&mut self, message: Message) {
        self.session.handle_message(message, self.now);
    }

    fn wait(&mut self, wait: Duration) {
        self.now = self.now.plus(wait);
        self.session.handle_timeout(self.now);
    }

    fn written(&mut self) -> Vec<Message> {
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        let mut bytes = Vec::new();
        let mut messages = Vec::new();
        while let Some(kind) = self.session.poll_transmit(&mut bytes).expect("legal frames") {
            deframer.push(&std::mem::take(&mut bytes));
            let message = decode(&deframer.poll_frame().expect("a frame").expect("a whole one")).expect("a message");
            assert_eq!(Kind::from_number(message.kind_number()), Some(kind));
            messages.push(message);
        }
        messages
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.others);
        events.extend(std::iter::from_fn(|| self.session.poll_event()));
        events
    }

    fn apply(&mut self) -> Option<Apply> {
        let mut applies = Vec::new();
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Apply(apply) => applies.push(*apply),
                other => self.others.push(other),
            }
        }
        assert!(applies.len() <= 1, "one at a time");
        applies.pop()
    }

    fn applied(&mut self, seq: u64) {
        let result = ApplyResult { kind: OutcomeKind::Applied, in_force: None, conditions: vec![] };
        self.session.handle_result(UpdateSeq::from_raw(seq), result);
    }

    fn failed(&mut self, seq: u64, in_force: Option<Stamp>) {
        let result = ApplyResult { kind: OutcomeKind::Failed, in_force, conditions: vec![] };
        self.session.handle_result(UpdateSeq::from_raw(seq), result);
    }

    fn outcome(&mut self) -> OutcomeReport {
        let mut written = self.written();
        assert_eq!(written.len(), 1, "{written:?}");
        let Some(Message::Outcome(report)) = written.pop() else { panic!("an outcome") };
        report
    }

    fn status(&mut self) -> StatusReport {
        let mut written = self.written();
        assert_eq!(written.len(), 1, "{written:?}");
        let Some(Message::Status(status)) = written.pop() else { panic!("a status") };
        status
    }

    /// The reason why the one update that waits was refused before its apply.
    fn outcome_reason(&mut self) -> Reason {
        assert_eq!(self.apply(), None);
        let report = self.outcome();
        assert_eq!(report.kind, OutcomeKind::Failed);
        report.conditions[0].reason
    }

    fn refusal(&mut self) -> Option<RefusalCode> {
        match self.written().as_slice() {
            [.., Message::Refusal(refusal)] => Some(refusal.code),
            _ => None,
        }
    }

    fn snapshot(&mut self, seq: u64, component: Component, version: u64) {
        self.snapshot_of(seq, component, mk_stamp(version));
    }

    fn snapshot_of(&mut self, seq: u64, component: Component, stamp: Stamp) {
        let desired = Desired { host: mk_host(), component, stamp };
        let signature = mk_signature(&desired_bytes(mk_authority(), &desired));
        let content = UpdateContent::Snapshot { bytes_total: 8 };
        self.say(Message::Update(Update {
            update_seq: UpdateSeq::from_raw(seq),
            component,
            stamp,
            signature,
            content,
        }));
        self.say(mk_chunk(seq, 0, 3));
        self.say(mk_chunk(seq, 3, 5));
    }

    fn synced_snapshot(&mut self, seq: u64, component: Component, version: u64) {
        self.snapshot(seq, component, version);
        assert!(self.apply().is_some());
        self.applied(seq);
        assert_eq!(self.outcome().kind, OutcomeKind::Applied);
    }

    fn delta(&mut self, seq: u64, base: u64, version: u64) {
        let content = UpdateContent::Delta { base: mk_stamp(base), changes: vec![0] };
        self.say(Message::Update(mk_update(seq, POLICY, version, content)));
    }
}

fn mk_update(seq: u64, component: Component, version: u64, content: UpdateContent) -> Update {
    let stamp = mk_stamp(version);
    let signature = mk_signature(&desired_bytes(mk_authority(), &Desired { host: mk_host(), component, stamp }));
    Update { update_seq: UpdateSeq::from_raw(seq), component, stamp, signature, content }
}

fn mk_chunk(seq: u64, offset: u32, bytes: u32) -> Message {
    Message::Chunk(Chunk { update_seq: UpdateSeq::from_raw(seq), offset, bytes: vec![7; bytes as usize] })
}

fn mk_signature(statement: &[u8]) -> SignatureBytes {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(Digest::of(statement).as_bytes());
    signature[32..].copy_from_slice(Digest::of(statement).as_bytes());
    signature
}

fn mk_stamp(version: u64) -> Stamp {
    let digest = Digest::of(&version.to_be_bytes());
    Stamp { version: Version::from_raw(version).expect("not zero"), digest }
}

fn mk_host() -> HostId {
    HostId::new(Uuid::from_u128(42))
}

fn mk_authority() -> Authority {
    Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(3) }
}

fn mk_limits() -> SessionLimits {
    crate::gateway::Config::standard(vec![]).limits
}

fn mk_ack() -> HelloAck {
    HelloAck {
        protocol: Protocol::NEWEST.number(),
        session_epoch: SessionEpoch::from_raw(7),
        authority: mk_authority(),
        delivery: Delivery::Push,
        liveness_interval_ms: 15_000,
        limits: mk_limits(),
        gateways: vec![],
    }
}
