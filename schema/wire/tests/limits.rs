//! The largest legal values, built by the real encoder, fit their caps; one more does not.

mod common;

use common::*;
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::SetKey;
use holdfast_model::policy::delta::{Change, diff};
use holdfast_wire::error::EncodeError;
use holdfast_wire::limits::*;
use holdfast_wire::message::*;
use holdfast_wire::negotiate::Protocol;
use holdfast_wire::{decode, decode_changes, encode, encode_changes};

#[test]
fn the_largest_legal_value_of_every_message_fits_its_frame_and_comes_back() {
    for protocol in Protocol::ALL {
        let largest = mk_largest(protocol);
        let kinds: Vec<u16> = largest.iter().map(|(message, _)| message.kind_number()).collect();
        assert_eq!(kinds, Kind::ALL.iter().map(|kind| kind.number()).collect::<Vec<_>>(), "one of each kind");
        for (message, frame_bytes_max) in largest {
            let bytes = mk_frame_bytes_of(protocol, &message);
            assert!(bytes.len() - LENGTH_BYTES <= frame_bytes_max, "{:?}", message.kind_number());
            assert_eq!(decode(&mk_frame(&bytes)), Ok(message));
        }
    }
}

#[test]
fn one_more_than_a_cap_is_refused_and_leaves_nothing_behind() {
    let mut too_large = Vec::new();
    let content = UpdateContent::Delta { base: mk_stamp(1), changes: vec![0; DELTA_BYTES_MAX + 1] };
    too_large.push(Message::Update(mk_update(content)));
    let over = u32::try_from(BODY_BYTES_MAX + 1).expect("fits");
    too_large.push(Message::Update(mk_update(UpdateContent::Snapshot { bytes_total: over })));
    too_large.push(Message::Refusal(mk_refusal("t".repeat(TEXT_BYTES_MAX + 1))));
    too_large.push(Message::Inventory(Inventory { kernel: "k".repeat(KERNEL_BYTES_MAX + 1), ..Inventory::default() }));
    too_large.push(Message::Drain(Drain { reconnect_after_ms: 0, gateways: vec![String::new(); GATEWAYS_MAX + 1] }));
    for message in too_large {
        let mut out = b"before".to_vec();
        assert!(
            matches!(encode(Protocol::NEWEST, &message, &mut out), Err(EncodeError::TooLarge { .. })),
            "{message:?}"
        );
        assert_eq!(out, b"before");
    }
}

#[test]
fn one_added_peer_in_a_policy_of_sixty_rules_costs_at_most_150_bytes_beside_its_signature() {
    let base = mk_body(60);
    let mut target = base.clone();
    let set = target.sets.get_mut(31).expect("sixty sets");
    let mut members = set.v4.to_vec();
    members.push(holdfast_model::address::Interval::single(0xc0a8_0105));
    set.v4 = IntervalSet::covering(members);
    let delta = diff(&base, &target);
    assert!(matches!(delta.changes.as_slice(), [Change::EditSet { key, .. }] if *key == SetKey::from_bytes([31; 16])));

    let changes = encode_changes(&delta.changes).expect("a small delta");
    assert_eq!(decode_changes(&changes), Ok(delta.changes));
    let content = UpdateContent::Delta { base: mk_stamp(1_000_000), changes };
    let update = Update { stamp: mk_stamp(1_000_001), ..mk_update(content) };
    let bytes = mk_frame_bytes(&Message::Update(update)).len() - 64;
    assert!(bytes <= 150, "{bytes} bytes");
    // Pinned, so that growth is a decision: frame 8, sequence 2, component 1, two stamps of 3 + 32, tag 1, changes 1 + 27.
    assert_eq!(bytes, 110);
}

#[test]
fn a_liveness_frame_is_tiny() {
    assert_eq!(mk_frame_bytes(&Message::Liveness(Liveness { counter: 0 })).len(), 9);
    assert!(mk_frame_bytes(&Message::Liveness(Liveness { counter: u64::MAX })).len() <= LIVENESS_FRAME_BYTES_MAX);
}
