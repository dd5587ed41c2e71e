//! The largest legal values, built by the real encoder, fit their caps; one more does not.

mod common;

use common::*;
use holdfast_model::condition::{Condition, ConditionType};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq};
use holdfast_model::policy::SetKey;
use holdfast_model::policy::delta::{Change, diff};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::error::EncodeError;
use holdfast_wire::limits::*;
use holdfast_wire::message::*;
use holdfast_wire::negotiate::Protocol;
use holdfast_wire::sync::*;
use holdfast_wire::{decode, decode_changes, encode, encode_changes};

#[test]
fn the_largest_legal_value_of_every_message_fits_its_frame_and_comes_back() {
    for protocol in Protocol::ALL {
        let largest = mk_largest(protocol);
        let kinds: Vec<u16> = largest.iter().map(|(message, _)| message.kind_number()).collect();
        let said =
            Kind::ALL.iter().filter(|kind| !matches!(kind, Kind::Drift | Kind::Status) || protocol >= Protocol::V3);
        assert_eq!(kinds, said.map(|kind| kind.number()).collect::<Vec<_>>(), "one of each kind");
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
fn the_largest_poll_and_the_largest_answer_fit_their_caps() {
    // A control character takes six bytes in JSON.
    let text = |bytes: usize| "\u{1}".repeat(bytes);
    let last = Stamp { version: mk_version(u64::MAX), digest: mk_stamp(1).digest };
    let component = Component::Credentials;
    let condition = mk_condition(ConditionType::SnapshotAccepted, text(TEXT_BYTES_MAX));
    let signature = "A".repeat(88);
    let outcome = SyncOutcome {
        update_seq: UpdateSeq::from_raw(u64::MAX),
        component,
        kind: OutcomeKind::RetainedLocalOverride.word().to_owned(),
        wanted: last,
        applied: Some(last),
        conditions: vec![Condition { observed_version: Some(last.version), ..condition }; CONDITIONS_MAX],
        signature: signature.clone(),
    };
    let address = |n: usize| std::net::IpAddr::from(std::net::Ipv6Addr::from_bits(u128::MAX - n as u128));
    let request = SyncRequest {
        session_epoch: Some(SessionEpoch::from_raw(u64::MAX)),
        agent_version: text(AGENT_VERSION_BYTES_MAX),
        boot_id: Some(uuid::Uuid::max()),
        last_update_seq: UpdateSeq::from_raw(u64::MAX),
        seen: vec![SeenState { component, stamp: last, applied: false }; Component::ALL.len()],
        outcomes: vec![outcome; SYNC_OUTCOMES_MAX],
        inventory: Some(SyncInventory {
            hostname: text(HOSTNAME_BYTES_MAX),
            kernel: text(KERNEL_BYTES_MAX),
            addresses: (0..ADDRESSES_MAX).map(address).collect(),
        }),
        wait_ms: Some(u32::MAX),
        drifts: vec![mk_sync_drift(text(WRITER_BYTES_MAX)); SYNC_DRIFTS_MAX],
    };
    let written = serde_json::to_vec(&request).expect("JSON");
    assert!(written.len() <= SYNC_REQUEST_BYTES_MAX, "{} of {SYNC_REQUEST_BYTES_MAX}", written.len());
    assert_eq!(serde_json::from_slice::<SyncRequest>(&written).expect("it reads back"), request);

    let state = |body: Option<usize>| SyncState {
        component,
        stamp: last,
        signature: signature.clone(),
        update_seq: Some(UpdateSeq::from_raw(u64::MAX)),
        body: body.map(|bytes| "A".repeat(bytes.div_ceil(3) * 4)),
        too_large_bytes: Some(u64::MAX),
    };
    let answer = SyncAnswer {
        host_id: HostId::new(uuid::Uuid::max()),
        authority_id: AuthorityId::new(uuid::Uuid::max()),
        authority_epoch: AuthorityEpoch::from_raw(u64::MAX),
        session_epoch: SessionEpoch::from_raw(u64::MAX),
        delivery: Delivery::Push,
        body_bytes_max: u32::MAX,
        gateways: vec!["g".repeat(GATEWAY_BYTES_MAX); GATEWAYS_MAX],
        // All bodies of one answer have the room of one largest body together.
        states: vec![state(Some(BODY_BYTES_MAX - 3)), state(Some(1)), state(Some(1)), state(Some(1))],
        directives: vec!["reconnect".to_owned(), "re-enrol".to_owned()],
        faults: vec![
            SyncFault { code: "outcome_contradiction".to_owned(), update_seq: UpdateSeq::from_raw(u64::MAX) };
            SYNC_OUTCOMES_MAX
        ],
        unread: true,
    };
    let written = serde_json::to_vec(&answer).expect("JSON").len();
    assert!(written <= SYNC_ANSWER_BYTES_MAX, "{written} of {SYNC_ANSWER_BYTES_MAX}");
}

fn mk_sync_drift(process: String) -> SyncDrift {
    let most = u32::MAX;
    SyncDrift {
        kind: DriftKind::Contended,
        instance: uuid::Uuid::max(),
        total: u64::MAX,
        age_ms: u64::MAX,
        process: Some(process),
        pid: Some(most),
        counts: DriftCounts {
            table: false,
            chains: most,
            rules_missing: most,
            rules_foreign: most,
            rules_moved: most,
            sets: most,
            elements_missing: most,
            elements_foreign: most,
        },
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
    assert_eq!(mk_frame_bytes(&Message::Liveness(Liveness { counter: 0, status: None })).len(), 10);
    let largest = Liveness { counter: u64::MAX, status: Some(mk_status().report.digest()) };
    assert!(mk_frame_bytes(&Message::Liveness(largest)).len() <= LIVENESS_FRAME_BYTES_MAX);
}
