//! Whatever bytes come, there is an answer, in bounded memory, and never a message that the encoder would not have made.

mod common;

use common::*;
use holdfast_model::condition::{Condition, ConditionType};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::policy::delta::{apply, diff};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::code::FaultCode;
use holdfast_wire::error::{DecodeError, FrameError};
use holdfast_wire::frame::{Deframer, Frame};
use holdfast_wire::limits::*;
use holdfast_wire::message::*;
use holdfast_wire::negotiate::{Protocol, ProtocolRange};
use holdfast_wire::{decode, decode_as, decode_changes, encode, encode_changes, v1};
use proptest::prelude::*;

#[test]
fn a_message_cut_at_any_byte_is_incomplete_and_then_refused() {
    for (name, message) in mk_samples(Protocol::NEWEST) {
        let whole = mk_frame_bytes(&message);
        for cut in 0..whole.len() {
            let mut deframer = Deframer::new(FRAME_BYTES_MAX);
            deframer.push(&whole[..cut]);
            assert_eq!(deframer.poll_frame(), Ok(None), "{name} cut at {cut}");
        }
        let frame = mk_frame(&whole);
        for cut in 0..frame.payload.len() {
            let short = Frame { payload: frame.payload[..cut].to_vec(), ..frame.clone() };
            let refused = decode(&short);
            assert!(refused.is_err(), "{name} with a payload of {cut} bytes: {refused:?}");
        }
    }
}

#[test]
fn bytes_after_a_message_are_refused() {
    for (name, message) in mk_samples(Protocol::NEWEST) {
        let mut frame = mk_frame(&mk_frame_bytes(&message));
        frame.payload.push(0);
        assert!(matches!(decode(&frame), Err(DecodeError::Trailing { bytes: 1, .. })), "{name}");
    }
}

#[test]
fn a_length_above_the_cap_is_refused_from_its_four_bytes() {
    let mut deframer = Deframer::new(HELLO_FRAME_BYTES_MAX);
    deframer.push(&u32::MAX.to_be_bytes());
    let bytes_max = HELLO_FRAME_BYTES_MAX;
    let refused = Err(FrameError::TooLong { bytes: 0xffff_ffff, bytes_max });
    assert_eq!(deframer.poll_frame(), refused);
    assert_eq!(deframer.poll_frame(), refused, "and stays refused");
    assert!(deframer.wanted_bytes() <= LENGTH_BYTES + bytes_max);

    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    deframer.push(&3_u32.to_be_bytes());
    assert_eq!(deframer.poll_frame(), Err(FrameError::TooShort { bytes: 3 }));
}

#[test]
fn a_frame_above_the_cap_is_passed_over_however_it_is_cut_and_what_follows_is_read() {
    let liveness = mk_frame_bytes(&Message::Liveness(Liveness { counter: 7, status: None }));
    for (bytes, cap) in [(HELLO_FRAME_BYTES_MAX + 1, HELLO_FRAME_BYTES_MAX), (5_000, 100), (101, 100)] {
        let length = u32::try_from(bytes).expect("short").to_be_bytes();
        let long = [&length[..], &[0, 3, 0, 13], &vec![0xab; bytes - ENVELOPE_BYTES]].concat();
        let stream = [&long[..], &liveness].concat();
        for piece in [1, 7, 8, 9, 4_096, stream.len()] {
            let (mut deframer, mut seen, mut read) = (Deframer::new(cap), 0, Vec::new());
            for bytes in stream.chunks(piece) {
                deframer.push(bytes);
                loop {
                    match deframer.poll_frame() {
                        Ok(Some(frame)) => read.push(frame),
                        Ok(None) => break,
                        Err(FrameError::TooLong { .. }) => match deframer.peek_envelope() {
                            Some(envelope) => {
                                assert_eq!(envelope, (3, 13));
                                seen += 1;
                                deframer.pass_over();
                            }
                            None => break,
                        },
                        Err(error) => panic!("{error}"),
                    }
                }
                assert!(deframer.wanted_bytes() <= LENGTH_BYTES + cap);
            }
            assert_eq!((seen, read), (1, vec![mk_frame(&liveness)]), "{bytes} bytes by {piece}");
            assert!(deframer.is_between_frames());
        }
    }
}

#[test]
fn an_unknown_kind_is_a_message_and_another_protocol_is_not() {
    for protocol in Protocol::ALL {
        let frame = Frame { protocol: protocol.number(), kind: 9_999, payload: vec![0xff; 100] };
        assert_eq!(decode(&frame), Ok(Message::Unknown(9_999)));
    }
    let frame = Frame { protocol: 4, kind: Kind::Liveness.number(), payload: vec![1] };
    assert_eq!(decode(&frame), Err(DecodeError::Protocol { protocol: 4 }));
    // Hello is of the first protocol, whatever is spoken besides.
    for protocol in [2, 3] {
        let frame = Frame { protocol, kind: Kind::Hello.number(), payload: vec![] };
        assert_eq!(decode(&frame), Err(DecodeError::Protocol { protocol }));
    }
}

#[test]
fn a_session_reads_only_the_protocol_that_was_chosen_and_hello_and_refusal_always() {
    let liveness = Message::Liveness(Liveness { counter: 7, status: None });
    for (ours, theirs) in pairs() {
        let spoken = ProtocolRange::only(ours);
        assert_eq!(decode_as(spoken, &mk_frame(&mk_frame_bytes_of(ours, &liveness))), Ok(liveness.clone()));
        let other = decode_as(spoken, &mk_frame(&mk_frame_bytes_of(theirs, &liveness)));
        assert_eq!(other, Err(DecodeError::Protocol { protocol: theirs.number() }));
        let hello = mk_samples(theirs).into_iter().find(|(name, _)| *name == "hello").expect("one of each").1;
        for always in [Message::Refusal(mk_refusal("no".to_owned())), hello] {
            assert_eq!(decode_as(spoken, &mk_frame(&mk_frame_bytes_of(theirs, &always))), Ok(always));
        }
    }
}

#[test]
fn an_answer_to_hello_that_chooses_another_protocol_than_its_own_is_refused() {
    for (written, chosen) in pairs() {
        let samples = mk_samples(chosen);
        let ack = samples.into_iter().find(|(name, _)| *name == "hello-ack").expect("one of each").1;
        let decoded = decode(&mk_frame(&mk_frame_bytes_of(written, &ack)));
        assert!(matches!(decoded, Err(DecodeError::Value { field: "protocol", .. })), "{decoded:?}");
    }
}

#[test]
fn the_first_protocol_does_not_know_of_polls_and_reads_what_a_newer_side_says_as_unknown() {
    let polls = mk_samples(Protocol::V2).into_iter().find(|(name, _)| *name == "hello-ack-poll").expect("there").1;
    let refused = v1::encode(&polls, &mut Vec::new());
    assert!(matches!(refused, Err(holdfast_wire::error::EncodeError::Unspeakable { .. })), "{refused:?}");
    let directive = holdfast_wire::code::DirectiveCode::Unknown(900);
    let message = Message::Directive(Directive { code: directive, argument: vec![1, 2, 3] });
    assert_eq!(v1::decode(&mk_frame(&mk_frame_bytes_of(Protocol::V1, &message))), Ok(message));
}

#[test]
fn drift_is_said_from_the_third_protocol_on_and_is_unknown_to_the_earlier_ones() {
    let drift = mk_samples(Protocol::V3).into_iter().find(|(name, _)| *name == "drift-found").expect("there").1;
    let frame = mk_frame(&mk_frame_bytes_of(Protocol::V3, &drift));
    assert_eq!(decode(&frame), Ok(drift.clone()));
    for protocol in [Protocol::V1, Protocol::V2] {
        let mut out = b"before".to_vec();
        let refused = encode(protocol, &drift, &mut out);
        assert!(matches!(refused, Err(holdfast_wire::error::EncodeError::Unspeakable { .. })), "{refused:?}");
        assert_eq!(out, b"before");
        let relabelled = Frame { protocol: protocol.number(), ..frame.clone() };
        assert_eq!(decode(&relabelled), Ok(Message::Unknown(Kind::Drift.number())));
    }
}

#[test]
fn a_drift_of_no_kind_or_total_or_with_a_name_that_is_none_is_refused() {
    let Some((_, Message::Drift(report))) =
        mk_samples(Protocol::V3).into_iter().find(|(name, _)| *name == "drift-found")
    else {
        panic!("there is a drift")
    };
    let frame = |report: &DriftReport| mk_frame(&mk_frame_bytes(&Message::Drift(report.clone())));
    let mut odd = frame(&report);
    for (number, is_kind) in [(0, false), (1, true), (4, true), (5, false)] {
        odd.payload[0] = number;
        assert_eq!(decode(&odd).is_ok(), is_kind, "{number}");
    }
    let never = frame(&DriftReport { total: 0, ..report.clone() });
    assert!(matches!(decode(&never), Err(DecodeError::Value { field: "total", .. })));
    let named = |name: &str| DriftReport { writer: Some(Writer { pid: 1, name: name.to_owned() }), ..report.clone() };
    assert!(matches!(decode(&frame(&named("a\u{1b}b"))), Err(DecodeError::Value { .. })));
    let long = encode(Protocol::V3, &Message::Drift(named(&"x".repeat(WRITER_BYTES_MAX + 1))), &mut Vec::new());
    assert!(matches!(long, Err(holdfast_wire::error::EncodeError::TooLarge { .. })), "{long:?}");
    // A longer one on the wire: the length before the name, and a byte more.
    let mut longer = frame(&named(&"x".repeat(WRITER_BYTES_MAX)));
    let at = longer.payload.iter().position(|byte| *byte == b'x').expect("a name");
    longer.payload[at - 1] += 1;
    longer.payload.insert(at, b'x');
    assert!(matches!(decode(&longer), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn a_status_is_said_from_the_third_protocol_on_and_so_is_its_digest() {
    let status = Message::Status(mk_status());
    let frame = mk_frame(&mk_frame_bytes_of(Protocol::V3, &status));
    let lively = Message::Liveness(Liveness { counter: 1, status: Some(mk_status().report.digest()) });
    for protocol in [Protocol::V1, Protocol::V2] {
        for message in [&status, &lively] {
            let refused = encode(protocol, message, &mut Vec::new());
            assert!(matches!(refused, Err(holdfast_wire::error::EncodeError::Unspeakable { .. })), "{refused:?}");
        }
        let relabelled = Frame { protocol: protocol.number(), ..frame.clone() };
        assert_eq!(decode(&relabelled), Ok(Message::Unknown(Kind::Status.number())));
    }
}

#[test]
fn a_status_that_is_not_complete_or_has_a_value_that_means_nothing_is_refused() {
    let with = |change: &dyn Fn(&mut StatusReport)| {
        let mut status = mk_status();
        change(&mut status);
        decode(&mk_frame(&mk_frame_bytes(&Message::Status(status))))
    };
    assert!(with(&|_| {}).is_ok());
    let complete = |found| matches!(found, Err(DecodeError::Value { field: "complete report", .. }));
    assert!(complete(with(&|status| drop(status.report.components.pop()))));
    assert!(complete(with(&|status| drop(status.report.components[0].conditions.pop()))));
    assert!(complete(with(&|status| status.report.components.swap(0, 1))));
    assert!(complete(with(&|status| status.report.components[0].conditions[0].condition.message = "\u{7}".to_owned())));
    let late = with(&|status| status.report.components[0].conditions[0].observed_at_ms = u64::MAX);
    assert!(matches!(late, Err(DecodeError::Value { field: "time of a condition", .. })), "{late:?}");
    let long = |status: &mut StatusReport| {
        status.report.components[0].conditions[0].condition.message = "m".repeat(REPORT_TEXT_BYTES_MAX + 1);
    };
    let mut status = mk_status();
    long(&mut status);
    let refused = encode(Protocol::V3, &Message::Status(status), &mut Vec::new());
    assert!(matches!(refused, Err(holdfast_wire::error::EncodeError::TooLarge { .. })), "{refused:?}");
    // One byte of each field that is a code, as a later build may write it.
    let frame = mk_frame(&mk_frame_bytes(&Message::Status(mk_status())));
    let changed = (0..frame.payload.len()).filter(|at| {
        let mut odd = frame.clone();
        odd.payload[*at] = 0x7f;
        decode(&odd).is_err()
    });
    assert!(changed.count() > 4 * ConditionType::ALL.len(), "codes that mean nothing are refused");
    let oversized = Frame { payload: vec![0; REPORT_FRAME_BYTES_MAX], ..frame };
    assert!(matches!(decode(&oversized), Err(DecodeError::TooLarge { field: "frame", .. })));
}

/// Every two protocols that are not one.
fn pairs() -> impl Iterator<Item = (Protocol, Protocol)> {
    let all = Protocol::ALL.into_iter().flat_map(|one| Protocol::ALL.map(|other| (one, other)));
    all.filter(|(one, other)| one != other)
}

#[test]
fn huge_counts_are_refused_at_once() {
    // A count of 2^63 in each place where a list begins.
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    assert!(decode_changes(&huge).is_err());
    // Liveness and faults hold numbers only, and this is one.
    let with_lists = Kind::ALL.iter().filter(|kind| !matches!(kind, Kind::Liveness | Kind::Fault | Kind::Drift));
    for kind in with_lists {
        for lead in 0..40 {
            let mut payload = vec![0; lead];
            payload.extend_from_slice(&huge);
            // A status is unknown before the third one.
            let spoken = |protocol: &Protocol| *kind != Kind::Status || *protocol >= Protocol::V3;
            for protocol in Protocol::ALL.into_iter().filter(spoken) {
                let frame = Frame { protocol: protocol.number(), kind: kind.number(), payload: payload.clone() };
                assert!(decode(&frame).is_err(), "{kind} after {lead} bytes");
            }
        }
    }
}

#[test]
fn numbers_spelt_too_long_are_read_and_prove_nothing() {
    // Postcard reads 87 00 as 7. Nothing is signed or hashed from a frame, so that two spellings cannot say two things.
    let plain = mk_frame_bytes(&Message::Liveness(Liveness { counter: 7, status: None }));
    let long = Frame { payload: vec![0x87, 0x00, 0x00], ..mk_frame(&plain) };
    assert_eq!(decode(&long), Ok(Message::Liveness(Liveness { counter: 7, status: None })));
    let changes = encode_changes(&[]).expect("no changes");
    assert_eq!(changes, [0]);
    assert_eq!(decode_changes(&[0x80, 0x00]), decode_changes(&changes));
}

#[test]
fn values_that_mean_nothing_are_refused() {
    let frame = |message: &Message| mk_frame(&mk_frame_bytes(message));
    let update = frame(&Message::Update(mk_update(UpdateContent::VersionOnly)));
    let patched = |at: usize, byte: u8| {
        let mut frame = update.clone();
        frame.payload[at] = byte;
        decode(&frame)
    };
    // Sequence takes two bytes, then the component, then the version.
    assert!(matches!(patched(2, 9), Err(DecodeError::Value { field: "component", .. })));
    assert!(matches!(patched(3, 0), Err(DecodeError::Value { field: "version", .. })));
    let last = update.payload.len() - 1;
    assert!(matches!(patched(last, 3), Err(DecodeError::Payload { .. })));
    let mut unsorted =
        Inventory { addresses: vec![[10, 0, 0, 2].into(), [10, 0, 0, 1].into()], ..Inventory::default() };
    assert!(decode(&frame(&Message::Inventory(unsorted.clone()))).is_err());
    unsorted.addresses.reverse();
    assert!(decode(&frame(&Message::Inventory(unsorted))).is_ok());
}

#[test]
fn a_number_that_no_column_holds_is_refused_wherever_it_stands() {
    let too_large = NUMBER_MAX + 1;
    let at = |version| Stamp { version: mk_version(version), ..mk_stamp(14) };
    let outcome = |wanted, applied, observed| {
        let observed_version = Some(mk_version(observed));
        let condition = Condition { observed_version, ..mk_condition(ConditionType::Applied, String::new()) };
        Message::Outcome(OutcomeReport {
            update_seq: UpdateSeq::from_raw(wanted),
            component: Component::Policy,
            kind: OutcomeKind::Failed,
            wanted: at(wanted),
            applied: Some(at(applied)),
            conditions: vec![condition],
            signature: [7; 64],
        })
    };
    let hello = |version| {
        let hello = mk_samples(Protocol::V1).into_iter().find(|(name, _)| *name == "hello").expect("one of each").1;
        let Message::Hello(hello) = hello else { panic!("a hello is one") };
        Message::Hello(Hello { applied: vec![(Component::Policy, at(version))], ..hello })
    };
    let seq = UpdateSeq::from_raw;
    let update = |number| Update { update_seq: seq(number), ..mk_update(UpdateContent::VersionOnly) };
    let delta = |base| mk_update(UpdateContent::Delta { base: at(base), changes: vec![0] });
    let chunk = |number| Chunk { update_seq: seq(number), offset: 0, bytes: vec![1] };
    let fault = |number| Fault { code: FaultCode::BadValue, message_kind: 3, update_seq: Some(seq(number)) };
    let of = |number| {
        [
            outcome(number, 1, 1),
            outcome(1, number, 1),
            outcome(1, 1, number),
            hello(number),
            Message::Update(update(number)),
            Message::Update(delta(number)),
            Message::Update(Update { stamp: at(number), ..update(1) }),
            Message::Chunk(chunk(number)),
            Message::Fault(fault(number)),
        ]
    };
    for (nth, (good, bad)) in of(NUMBER_MAX).into_iter().zip(of(too_large)).enumerate() {
        for protocol in Protocol::ALL {
            let read = |message: &Message| decode(&mk_frame(&mk_frame_bytes_of(protocol, message)));
            assert_eq!(read(&good), Ok(good.clone()), "{nth}");
            assert!(matches!(read(&bad), Err(DecodeError::Value { .. })), "{nth}: {:?}", read(&bad));
        }
    }
}

#[test]
fn a09_an_unknown_kind_of_outcome_is_refused_by_name() {
    for protocol in Protocol::ALL {
        let outcome = mk_samples(protocol).into_iter().find(|(name, _)| *name == "outcome").expect("one of each").1;
        let mut frame = mk_frame(&mk_frame_bytes_of(protocol, &outcome));
        // Sequence takes two bytes, then the component, then the kind.
        for number in 0..=u8::MAX {
            frame.payload[3] = number;
            match (OutcomeKind::from_number(number), decode(&frame)) {
                (Some(kind), Ok(Message::Outcome(report))) => assert_eq!(report.kind, kind),
                (None, Err(DecodeError::Value { kind: Kind::Outcome, field: "kind of outcome" })) => {}
                (kind, decoded) => panic!("{number} is {kind:?}: {decoded:?}"),
            }
        }
        frame.payload[3] = 0;
        assert!(decode(&frame).is_err(), "zero is no kind");
    }
}

#[test]
fn a_chunk_past_the_largest_body_or_without_bytes_is_refused() {
    let chunk = |offset: usize, bytes| {
        let offset = u32::try_from(offset).expect("fits");
        decode(&mk_frame(&mk_frame_bytes(&Message::Chunk(Chunk { update_seq: UpdateSeq::from_raw(1), offset, bytes }))))
    };
    assert!(chunk(BODY_BYTES_MAX - 1, vec![1]).is_ok());
    assert!(matches!(chunk(BODY_BYTES_MAX, vec![1]), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(chunk(u32::MAX as usize, vec![1]), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(chunk(0, vec![]), Err(DecodeError::Value { .. })));
}

#[test]
fn a_body_of_four_mebibytes_is_cut_into_chunks_and_comes_back() {
    let body: Vec<u8> = (0..4_u32 << 20).map(|n| n.to_le_bytes()[usize::from(n % 3 == 0)]).collect();
    let mut wire = Vec::new();
    let seq = UpdateSeq::from_raw(1);
    for (at, piece) in body.chunks(CHUNK_BYTES_MAX).enumerate() {
        let offset = u32::try_from(at * CHUNK_BYTES_MAX).expect("fits");
        holdfast_wire::encode_chunk(Protocol::NEWEST, seq, offset, piece, &mut wire).expect("a chunk");
    }
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    let mut back = Vec::new();
    for part in wire.chunks(1_400) {
        deframer.push(part);
        while let Some(frame) = deframer.poll_frame().expect("frames") {
            let Ok(Message::Chunk(chunk)) = decode(&frame) else { panic!("a chunk") };
            assert_eq!(chunk.offset as usize, back.len());
            back.extend_from_slice(&chunk.bytes);
        }
    }
    assert_eq!(back, body);
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(of in 0_usize..3, kind in 0_u16..14, payload in prop::collection::vec(any::<u8>(), 0..400)) {
        let protocol = Protocol::ALL[of];
        let frame = Frame { protocol: protocol.number(), kind, payload };
        if let Ok(message) = decode(&frame) {
            // What was understood is legal: it encodes, and decodes to itself.
            let mut bytes = Vec::new();
            encode(protocol, &message, &mut bytes).expect("a decoded message is legal");
            prop_assert!(matches!(message, Message::Unknown(_)) || decode(&mk_frame(&bytes)) == Ok(message));
        }
    }

    #[test]
    fn a_flipped_bit_gets_an_answer(of in 0_usize..3, sample in 0_usize..24, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let protocol = Protocol::ALL[of];
        let samples = mk_samples(protocol);
        let (_, message) = &samples[sample % samples.len()];
        let mut frame = mk_frame(&mk_frame_bytes_of(protocol, message));
        let at = at.index(frame.payload.len());
        frame.payload[at] ^= 1 << bit;
        if let Ok(message) = decode(&frame) {
            let mut bytes = Vec::new();
            encode(protocol, &message, &mut bytes).expect("a decoded message is legal");
        }
        let _ = decode_changes(&frame.payload);
    }

    #[test]
    fn frames_do_not_depend_on_how_the_stream_was_cut(cuts in prop::collection::vec(1_usize..300, 1..60)) {
        let samples = mk_samples(Protocol::NEWEST);
        let stream: Vec<u8> = samples.iter().flat_map(|(_, message)| mk_frame_bytes(message)).collect();
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        let mut decoded = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            deframer.push(now);
            while let Some(frame) = deframer.poll_frame().expect("frames") {
                decoded.push(decode(&frame).expect("messages"));
            }
            rest = later;
            if rest.is_empty() { break; }
        }
        prop_assert_eq!(decoded, samples.into_iter().map(|(_, message)| message).collect::<Vec<_>>());
    }

    #[test]
    fn a_delta_that_crossed_the_wire_still_leads_to_its_target(rules in 0_u8..20, other in 0_u8..20) {
        let (base, target) = (mk_body(rules), mk_body(other));
        let mut delta = diff(&base, &target);
        delta.changes = decode_changes(&encode_changes(&delta.changes).expect("small")).expect("well-formed");
        prop_assert_eq!(apply(&base, &delta), Ok(target));
    }
}
