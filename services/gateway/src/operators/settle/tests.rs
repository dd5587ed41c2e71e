//! Ends of operations from evidence.

use super::*;
use crate::operators::fleet::JudgedComponent;
use holdfast_events::{SignatureBytes, VerifyingKeyBytes};
use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::statement::{Outcome, OutcomeKind};
use holdfast_store::status::{ComponentStatus, HostStatus, ObservedOutcome};
use uuid::Uuid;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

#[test]
fn an_operation_is_open_until_its_revision_is_rendered_and_every_target_holds_it() {
    let revision = Revision::from_raw(5);
    let done =
        [mk_host(1, 5, State::Converged, 0), mk_host(2, 5, State::Degraded, 0), mk_host(3, 4, State::Unknown, 0)];
    assert_eq!(settle(revision, &mk_fleet(4, done.to_vec()), NOW), Settled::Open);
    assert!(matches!(settle(revision, &mk_fleet(5, done.to_vec()), NOW), Settled::End(OperationState::Applied, _)));
    let silent = [mk_host(1, 5, State::Converged, 0), mk_host(2, 6, State::Unknown, 0)];
    assert_eq!(settle(revision, &mk_fleet(6, silent.to_vec()), NOW), Settled::Open);
}

#[test]
fn an_operation_that_changed_no_host_is_inactive() {
    let fleet = mk_fleet(5, vec![mk_host(1, 4, State::Converged, 0)]);
    assert!(matches!(settle(Revision::from_raw(5), &fleet, NOW), Settled::End(OperationState::Inactive, _)));
    assert!(matches!(
        settle(Revision::from_raw(5), &mk_fleet(5, vec![]), NOW),
        Settled::End(OperationState::Inactive, _)
    ));
}

#[test]
fn a_failure_ends_an_operation_only_after_the_recovery_snapshot_had_its_chance() {
    let fleet = |age| mk_fleet(5, vec![mk_host(1, 5, State::Failed, age), mk_host(2, 5, State::Converged, 0)]);
    assert_eq!(settle(Revision::from_raw(5), &fleet(1), NOW), Settled::LookSoon);
    let Settled::End(OperationState::Failed, detail) = settle(Revision::from_raw(5), &fleet(10), NOW) else {
        panic!("it failed")
    };
    assert_eq!(detail, "1 of 2 hosts did not take it: default/h1 (kernel_refused)");
}

fn mk_fleet(rendered: u64, hosts: Vec<JudgedHost>) -> JudgedFleet {
    JudgedFleet { revision: Revision::from_raw(9), rendered_revision: Revision::from_raw(rendered), hosts }
}

fn mk_host(n: u128, latest_revision: u64, state: State, said_s_ago: i64) -> JudgedHost {
    let stamp = Stamp { version: Version::FIRST, digest: Digest::of(b"x") };
    let host = HostId::new(Uuid::from_u128(n));
    let outcome = ObservedOutcome {
        outcome: Outcome {
            host,
            session_epoch: SessionEpoch::from_raw(1),
            update_seq: UpdateSeq::from_raw(1),
            component: Component::Policy,
            kind: if state == State::Failed { OutcomeKind::Failed } else { OutcomeKind::Applied },
            wanted: stamp,
            applied: Some(stamp),
        },
        signature: SignatureBytes::from_bytes([0; 64]),
        reason: if state == State::Failed { Reason::KernelRefused } else { Reason::Done },
        detail: String::new(),
        conditions: Vec::new(),
        at: NOW - time::Duration::seconds(said_s_ago),
    };
    let component = ComponentStatus {
        held_back: None,
        component: Component::Policy,
        latest: Some(stamp),
        latest_revision: Some(Revision::from_raw(latest_revision)),
        outcome: Some(outcome),
        last_snapshot_sent_at: None,
    };
    JudgedHost {
        status: HostStatus {
            host,
            namespace: Name::default_namespace(),
            name: format!("h{n}").parse().expect("a name"),
            labels: std::collections::BTreeMap::new(),
            addresses: Vec::new(),
            outcome_key: VerifyingKeyBytes::from_bytes([0; 32]),
            enrolled_at: NOW,
            session: None,
            last_seen_at: None,
            components: vec![component],
            drifts: Vec::new(),
        },
        components: vec![JudgedComponent { state, missing: None, signature_valid: true }],
        state,
    }
}
