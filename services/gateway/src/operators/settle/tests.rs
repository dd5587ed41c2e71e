//! Ends of operations from evidence.

use std::collections::BTreeMap;

use super::*;
use crate::operators::fleet::FAILURE_LASTS;
use crate::operators::fleet::JudgedComponent;
use crate::operators::targets::{Ground, counts, judged};
use holdfast_events::{SignatureBytes, VerifyingKeyBytes};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Outcome, OutcomeKind, StatusPlace};
use holdfast_model::status::{Missing, Words};
use holdfast_store::operation::Target;
use holdfast_store::report::ObservedReport;
use holdfast_store::status::{ComponentStatus, HostStatus, ObservedOutcome, SessionStatus};
use time::OffsetDateTime;
use uuid::Uuid;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
const ACCEPTED: OperationState = OperationState::Accepted;
/// That of the operation.
const REVISION: Revision = Revision::from_raw(1);

#[test]
fn an_operation_is_open_until_its_revision_is_rendered_and_every_target_has_it() {
    let fleet = mk_fleet(vec![mk_host(1, 1, State::Converged, 0), mk_host(2, 1, State::Degraded, 0)]);
    let targets = [mk_target(1, 1), mk_target(2, 1)];
    let hosts = looked(&targets, &fleet, None);
    assert_eq!(settle(false, &[], None), Settled::Open);
    let Settled::End(OperationState::Applied, detail) = settle(true, &hosts, None) else { panic!("it is applied") };
    assert_eq!(detail, "in force on 2 hosts");
    let all: Vec<&HostLook<'_>> = hosts.iter().collect();
    assert_eq!((counts(&all).applied, counts(&all).degraded), (2, 1));

    let silent = mk_fleet(vec![mk_host(1, 1, State::Converged, 0), mk_host(2, 1, State::Unknown, 0)]);
    let hosts = looked(&targets, &silent, None);
    assert_eq!(settle(true, &hosts, None), Settled::Open);
    let all: Vec<&HostLook<'_>> = hosts.iter().collect();
    let counts = counts(&all);
    assert_eq!((counts.total, counts.applied, counts.pending, counts.offline, counts.unknown), (2, 1, 1, 0, 0));
}

#[test]
fn pending_hosts_are_told_apart_by_whether_they_are_there() {
    let mut hosts =
        vec![mk_host(1, 1, State::Unknown, 0), mk_host(2, 1, State::Unknown, 0), mk_host(3, 1, State::Progressing, 0)];
    hosts[0].status.session = None;
    if let Some(session) = &mut hosts[1].status.session {
        session.heard_ms_ago = Some(holdfast_model::status::FRESH_MS);
    }
    let fleet = mk_fleet(hosts);
    let hosts = looked(&[mk_target(1, 1), mk_target(2, 1), mk_target(3, 1)], &fleet, None);
    let counts = counts(&hosts.iter().collect::<Vec<_>>());
    assert_eq!((counts.total, counts.pending, counts.offline, counts.unknown), (3, 3, 1, 1));
}

#[test]
fn an_operation_that_changed_no_host_is_inactive_and_one_whose_hosts_are_gone_is_cancelled() {
    let Settled::End(OperationState::Inactive, detail) = settle(true, &[], None) else { panic!("it is inactive") };
    assert_eq!(detail, "no host's desired state changed");
    let fleet = mk_fleet(vec![]);
    let hosts = looked(&[mk_target(1, 1)], &fleet, None);
    assert!(matches!(settle(true, &hosts, None), Settled::End(OperationState::Cancelled, _)));
}

#[test]
fn c43_a_stopped_host_ends_nothing_else_and_is_told() {
    let fleet = mk_fleet(vec![mk_host(1, 1, State::Converged, 0), mk_host(2, 1, State::Unknown, 0)]);
    let stopped = Target { is_stopped: true, ..mk_target(2, 1) };
    let hosts = looked(&[mk_target(1, 1), stopped], &fleet, None);
    let Settled::End(OperationState::Applied, detail) = settle(true, &hosts, None) else { panic!("it is applied") };
    assert_eq!(detail, "in force on 1 of 2 hosts; the others are stopped or no more");
    // It may start again, so it is not stored before the end.
    let stored =
        |is_end| hosts.iter().flat_map(|host| host.unstored(is_end)).map(|seen| seen.outcome).collect::<Vec<_>>();
    assert_eq!(stored(false), [HostOutcome::Applied]);
    assert_eq!(stored(true), [HostOutcome::Applied, HostOutcome::Inactive]);
    let all = looked(&[stopped], &fleet, None);
    assert!(matches!(settle(true, &all, None), Settled::End(OperationState::Inactive, _)));
}

#[test]
fn a_failure_ends_an_operation_only_after_the_recovery_snapshot_had_its_chance() {
    let targets = [mk_target(1, 1), mk_target(2, 1)];
    let fleet = |age| mk_fleet(vec![mk_host(1, 1, State::Failed, age), mk_host(2, 1, State::Converged, 0)]);
    assert_eq!(settle(true, &looked(&targets, &fleet(1), None), None), Settled::LookSoon);
    let long = fleet(FAILURE_LASTS.whole_seconds());
    let Settled::End(OperationState::Failed, detail) = settle(true, &looked(&targets, &long, None), None) else {
        panic!("it failed")
    };
    assert_eq!(detail, "1 of 2 hosts did not take it: default/h1 (kernel_refused)");
}

/// A host that took its newest version long ago, and told a while ago that one thing is not as it should be.
fn mk_reporting(n: u128, told_s_ago: i64) -> JudgedHost {
    let mut host = mk_host(n, 1, State::Failed, 1_000);
    host.status.components[0].outcome = Some(mk_said(n, 1, OutcomeKind::Applied, 1_000));
    let mut report = HostReport::of_health(&[(Component::Policy, mk_stamp(1))], UpdateSeq::from_raw(1), 0);
    for one in report.components.iter_mut().flat_map(|of| &mut of.conditions) {
        if one.condition.kind == ConditionType::Verified {
            (one.condition.status, one.condition.reason) = (Holds::False, Reason::ReadBackDiffers);
        }
    }
    let place = StatusPlace { host: mk_id(n), session_epoch: SessionEpoch::from_raw(1), seq: 1 };
    let (signature, at) = (SignatureBytes::from_bytes([0; 64]), NOW - time::Duration::seconds(told_s_ago));
    host.status.report = Some(ObservedReport::new(place, report, signature, at));
    if let Some(session) = &mut host.status.session {
        session.words = Words::Reports;
    }
    let missing = Some(Missing::Condition(ConditionType::Verified, Holds::False));
    host.components[0] = JudgedComponent { missing, ..host.components[0] };
    host
}

#[test]
fn a_failure_that_a_report_tells_lasts_from_the_report_and_is_told_by_its_condition_and_reason() {
    let targets = [mk_target(1, 1)];
    let fleet = mk_fleet(vec![mk_reporting(1, 1)]);
    assert_eq!(settle(true, &looked(&targets, &fleet, None), None), Settled::LookSoon);
    assert!(!fleet.has_failed_long(NOW, |_| true), "no wait ends by it");
    let fleet = mk_fleet(vec![mk_reporting(1, FAILURE_LASTS.whole_seconds())]);
    let Settled::End(OperationState::Failed, detail) = settle(true, &looked(&targets, &fleet, None), None) else {
        panic!("it failed")
    };
    assert_eq!(detail, "1 of 1 host did not take it: default/h1 (Verified: read_back_differs)");
    assert!(fleet.has_failed_long(NOW, |_| true));
}

#[test]
fn c38_a_host_whose_newest_version_overwrote_it_supersedes_an_operation_and_one_that_includes_it_applies_it() {
    // Version 1 is waited for; the newest is version 2, rendered from revision 2.
    let fleet = mk_fleet(vec![mk_host(1, 2, State::Converged, 0), mk_host(2, 2, State::Progressing, 0)]);
    let targets = [mk_target(1, 1), mk_target(2, 1)];
    let included = looked(&targets, &fleet, None);
    assert_eq!(settle(true, &included, None), Settled::Open, "host 2 has neither");
    assert_eq!(included[0].outcome, HostOutcome::Applied);
    let at = Some(Revision::from_raw(2));
    let Settled::End(OperationState::Superseded, detail) = settle(true, &looked(&targets, &fleet, at), at) else {
        panic!("it is superseded")
    };
    assert_eq!(detail, "revision 2 has something else in its place: superseded on 2 of 2 hosts, in force on 0");
    // What was seen in force stays so.
    let seen = [Target { seen: Some(HostOutcome::Applied), ..targets[0] }, targets[1]];
    assert_eq!(looked(&seen, &fleet, at)[0].outcome, HostOutcome::Applied);
}

#[test]
fn what_a_host_has_between_counts_by_the_revision_that_it_is_of() {
    // It has version 2 of 3, with all its proof.
    let mut host = mk_host(1, 3, State::Progressing, 0);
    host.status.components[0].outcome = Some(mk_said(1, 2, OutcomeKind::Applied, 0));
    let fleet = mk_fleet(vec![host]);
    let outcome = |target, overwritten, revision: Option<u64>| {
        let key = (mk_id(1), Component::Policy);
        let revisions = revision.map(|revision| (key, Revision::from_raw(revision))).into_iter().collect();
        let overwritten_at = Some(Revision::from_raw(overwritten));
        let ground = Ground { revision: REVISION, overwritten_at, fleet: &fleet, revisions, now: NOW };
        judged(ACCEPTED, &[mk_target(1, target)], &ground)[0].outcome
    };
    assert_eq!(outcome(2, 3, None), HostOutcome::Applied, "the very version");
    assert_eq!(outcome(1, 3, Some(2)), HostOutcome::Applied, "one that includes it");
    assert_eq!(outcome(1, 2, Some(2)), HostOutcome::Superseded);
    assert_eq!(outcome(3, 4, None), HostOutcome::Pending, "an older one");
}

#[test]
fn a_fleet_that_was_read_before_an_operation_was_rendered_ends_nothing_and_nobody_is_gone_by_it() {
    // Host 1 was enrolled since, and the failure of host 2 is of what it had before.
    let targets = [mk_target(1, 1), mk_target(2, 2)];
    let mut fleet = mk_fleet(vec![mk_host(2, 1, State::Failed, 100)]);
    let stored = |hosts: &[HostLook<'_>]| hosts.iter().flat_map(|host| host.unstored(false)).count();
    fleet.rendered_revision = Revision::ZERO;
    let hosts = looked(&targets, &fleet, None);
    assert_eq!(hosts.iter().map(|host| host.outcome).collect::<Vec<_>>(), [HostOutcome::Pending; 2]);
    assert_eq!((settle(true, &hosts, None), stored(&hosts)), (Settled::LookSoon, 0));
    fleet.rendered_revision = REVISION;
    assert_eq!(stored(&looked(&targets, &fleet, None)), 1, "whoever is not in one that was read later is gone");
}

#[test]
fn a_part_of_an_operation_that_ended_is_told_as_it_was() {
    let fleet = mk_fleet(vec![mk_host(1, 1, State::Converged, 0)]);
    let of = |state, seen| {
        let ground = mk_ground(&fleet, None);
        judged(state, &[Target { seen, ..mk_target(1, 1) }], &ground)[0].outcome
    };
    assert_eq!(of(OperationState::Failed, None), HostOutcome::Pending);
    assert_eq!(of(OperationState::Cancelled, None), HostOutcome::Cancelled);
    assert_eq!(of(OperationState::Cancelled, Some(HostOutcome::Applied)), HostOutcome::Applied);
}

fn looked<'a>(targets: &[Target], fleet: &'a JudgedFleet, overwritten_at: Option<Revision>) -> Vec<HostLook<'a>> {
    judged(ACCEPTED, targets, &mk_ground(fleet, overwritten_at))
}

fn mk_ground(fleet: &JudgedFleet, overwritten_at: Option<Revision>) -> Ground<'_> {
    Ground { revision: REVISION, overwritten_at, fleet, revisions: BTreeMap::new(), now: NOW }
}

fn mk_id(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

fn mk_stamp(version: u64) -> Stamp {
    Stamp { version: Version::from_raw(version).expect("above zero"), digest: Digest::of(&version.to_be_bytes()) }
}

fn mk_target(n: u128, version: u64) -> Target {
    let (component, stamp) = (Component::Policy, mk_stamp(version));
    Target { host: mk_id(n), component, stamp, revision: REVISION, seen: None, is_stopped: false }
}

fn mk_fleet(hosts: Vec<JudgedHost>) -> JudgedFleet {
    JudgedFleet { revision: Revision::from_raw(9), rendered_revision: Revision::from_raw(9), hosts }
}

/// What a host said of a version, with every condition.
fn mk_said(n: u128, version: u64, kind: OutcomeKind, said_s_ago: i64) -> ObservedOutcome {
    let stamp = mk_stamp(version);
    let condition = |kind| Condition {
        kind,
        status: Holds::True,
        reason: Reason::Done,
        message: String::new(),
        observed_version: Some(stamp.version),
    };
    let outcome = Outcome {
        host: mk_id(n),
        session_epoch: SessionEpoch::from_raw(1),
        update_seq: UpdateSeq::from_raw(1),
        component: Component::Policy,
        kind,
        wanted: stamp,
        applied: Some(stamp),
    };
    ObservedOutcome {
        outcome,
        signature: SignatureBytes::from_bytes([0; 64]),
        reason: if kind == OutcomeKind::Failed { Reason::KernelRefused } else { Reason::Done },
        detail: String::new(),
        conditions: ConditionType::OF_ATTEMPT.map(condition).to_vec(),
        at: NOW - time::Duration::seconds(said_s_ago),
    }
}

/// A host whose newest version is this, rendered from the revision of the same number.
fn mk_host(n: u128, latest: u64, state: State, said_s_ago: i64) -> JudgedHost {
    let kind = if state == State::Failed { OutcomeKind::Failed } else { OutcomeKind::Applied };
    // One that is on its way has said nothing of what counts here.
    let said = (state != State::Progressing).then(|| mk_said(n, latest, kind, said_s_ago));
    let component = ComponentStatus {
        held_back: None,
        component: Component::Policy,
        latest: Some(mk_stamp(latest)),
        latest_revision: Some(Revision::from_raw(latest)),
        outcome: said,
        last_snapshot_sent_at: None,
        last_acked_at: None,
        last_apply_failed_at: None,
    };
    let session = SessionStatus {
        session_epoch: SessionEpoch::from_raw(1),
        gateway: GatewayId::new(Uuid::from_u128(9)),
        agent_version: "0.1.0".to_owned(),
        opened_at: NOW,
        opened_ms_ago: 0,
        heard_of_ms: 0,
        words: Words::Outcomes,
        heard_ms_ago: Some(0),
    };
    JudgedHost {
        status: HostStatus {
            host: mk_id(n),
            namespace: Name::default_namespace(),
            name: format!("h{n}").parse().expect("a name"),
            labels: BTreeMap::new(),
            addresses: Vec::new(),
            outcome_key: VerifyingKeyBytes::from_bytes([0; 32]),
            enrolled_at: NOW,
            session: Some(session),
            last_seen_at: None,
            presence: holdfast_model::silence::Presence::Present,
            components: vec![component],
            drifts: Vec::new(),
            held: None,
            report: None,
            unreadable: None,
        },
        components: vec![JudgedComponent { state, missing: None, signature_valid: true }],
        state,
        own_state: state,
        report_valid: false,
    }
}
