//! Every kind of event, read back and bounded.

use std::collections::BTreeSet;

use holdfast_model::condition::{Condition, ConditionType, DETAIL_BYTES_MAX, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::DriftCounts;
use holdfast_model::ids::{
    ApiTokenId, AuthorityId, EnrolTokenId, EventId, GatewayId, HostId, ObjectId, OperationId, RolloutId,
};
use holdfast_model::intent::{DeclaredPort, NamespaceSpec, Spec};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm, Revision, SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::{HostReport, REPORT_TEXT_BYTES_MAX};
use holdfast_model::statement::OutcomeKind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::*;
use crate::actor::Actor;
use crate::codes::{
    CloseReason, EnrolmentRefusal, Fault, HaltReason, NamespaceScope, OperationState, OperationVerb, Role,
};
use crate::directive::DirectiveKind;
use crate::keys::{SignatureBytes, VerifyingKeyBytes};
use crate::place::Content;
use crate::record::{NumberedRecord, Record};
use crate::text::{AgentVersion, Detail, Label128, ProcessName};

#[test]
fn every_kind_reads_back_from_its_word_and_payload() {
    let all = mk_all();
    let kinds: BTreeSet<_> = all.iter().map(Event::kind).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect(), "mk_all has one of each");
    for event in all {
        let kind: Kind = event.kind().word().parse().expect("a word");
        assert_eq!(Event::read(kind, event.data().expect("writes")).expect("reads"), event);
        assert!(event.subjects().contains(&event.aggregate()) || event.aggregate() == "fleet");
    }
}

#[test]
fn an_unknown_field_and_a_foreign_payload_are_refused() {
    let mut data = mk_all().remove(0).data().expect("writes");
    data["extra"] = 1.into();
    assert!(matches!(Event::read(Kind::ApiTokenCreated, data.clone()), Err(EventError::Payload { .. })));
    assert!(matches!(Event::read(Kind::RenderDesired, data), Err(EventError::Payload { .. })));
    assert!("token.api".parse::<Kind>().is_err());
}

#[test]
fn the_fullest_render_event_fits_and_one_beyond_every_limit_is_refused() {
    let state = mk_state(u64::MAX);
    let mk = |len| RenderDesired {
        revision: Revision::from_raw(u64::MAX),
        lease_term: LeaseTerm::from_raw(u64::MAX),
        authority_epoch: AuthorityEpoch::from_raw(u64::MAX),
        states: vec![state.clone(); len],
    };
    assert!(mk_numbered(mk(RENDERED_STATES_MAX).into()).encode().is_ok());
    assert!(matches!(Event::from(mk(400)).data(), Err(EventError::TooLarge { .. })));
}

#[test]
fn the_fullest_event_of_hosts_that_go_back_fits() {
    let hosts = vec![HostId::new(Uuid::from_u128(u128::MAX)); CONFIRMED_HOSTS_MAX];
    let event = AuthorityRollbackConfirmed { epoch: AuthorityEpoch::from_raw(u64::MAX), hosts };
    assert!(mk_numbered(event.into()).encode().is_ok());
}

#[test]
fn a_session_of_a_build_that_said_nothing_of_what_its_host_holds_is_read() {
    let opened = mk_sessions().remove(0);
    let mut data = opened.data().expect("writes");
    assert_eq!(data["applied"].as_array().map(Vec::len), Some(4));
    data.as_object_mut().expect("an object").remove("applied");
    let Event::SessionOpened(read) = Event::read(Kind::SessionOpened, data.clone()).expect("reads") else { panic!() };
    assert_eq!(read.applied, []);
    assert_eq!(Event::from(read).data().expect("writes"), data, "and written again as it was");
}

#[test]
fn the_longest_outcome_fits() {
    let text = "\u{10ffff}\"".repeat(DETAIL_BYTES_MAX / 5);
    let mut outcome = mk_outcome();
    outcome.detail = Detail::new(&text);
    for condition in &mut outcome.conditions {
        condition.message.clone_from(&text);
    }
    assert!(mk_numbered(outcome.into()).encode().is_ok());
}

pub(crate) fn mk_numbered(event: Event) -> NumberedRecord {
    NumberedRecord {
        authority: AuthorityId::new(Uuid::from_u128(1)),
        authority_epoch: AuthorityEpoch::from_raw(u64::MAX),
        seq: EventSeq::from_raw(u64::MAX),
        record: Record {
            id: EventId::new(Uuid::from_u128(2)),
            lid: i64::MAX,
            time: OffsetDateTime::from_unix_timestamp_nanos(1_800_000_000_123_456_000).expect("a time"),
            actor: Actor::Operator(ApiTokenId::new(Uuid::from_u128(3))),
            causation: Some(EventId::new(Uuid::from_u128(4))),
            correlation: Some(OperationId::new(Uuid::from_u128(5))),
            event,
        },
    }
}

fn mk_name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn mk_host() -> HostId {
    HostId::new(Uuid::from_u128(6))
}

fn mk_stamp() -> Stamp {
    Stamp { version: Version::FIRST, digest: Digest::of(b"x") }
}

fn mk_state(version: u64) -> DesiredState {
    DesiredState {
        host: HostId::new(Uuid::from_u128(u128::MAX)),
        component: Component::Credentials,
        version: Version::from_raw(version).expect("not zero"),
        digest: Digest::of(b"x"),
        signature: SignatureBytes::from_bytes([0xff; 64]),
    }
}

fn mk_outcome() -> OutcomeRecorded {
    let condition = |kind| Condition {
        kind,
        status: Holds::Unknown,
        reason: Reason::NotReached,
        message: "never reached".to_owned(),
        observed_version: Some(Version::FIRST),
    };
    OutcomeRecorded {
        host: mk_host(),
        session_epoch: SessionEpoch::from_raw(3),
        update_seq: UpdateSeq::from_raw(4),
        component: Component::Policy,
        kind: OutcomeKind::RetainedLocalOverride,
        wanted: mk_stamp(),
        applied: None,
        reason: Reason::LocalOverride,
        detail: Detail::new("a local policy is in force"),
        conditions: ConditionType::OF_ATTEMPT.map(condition).to_vec(),
        signature: SignatureBytes::from_bytes([1; 64]),
    }
}

/// The largest: every message as long as it may be, of what JSON makes most of.
fn mk_status() -> StatusRecorded {
    let held = Component::ALL.map(|component| (component, mk_stamp()));
    let mut report = HostReport::of_health(&held, UpdateSeq::from_raw(4), 1_790_000_000_000);
    for one in report.components.iter_mut().flat_map(|one| &mut one.conditions) {
        one.condition.message = "\"".repeat(REPORT_TEXT_BYTES_MAX);
    }
    StatusRecorded {
        host: mk_host(),
        session_epoch: SessionEpoch::from_raw(3),
        seq: 2,
        answered: report.answered,
        digest: report.digest(),
        components: report.components,
        signature: SignatureBytes::from_bytes([1; 64]),
    }
}

/// One event of each kind.
pub(crate) fn mk_all() -> Vec<Event> {
    [mk_tokens(), mk_intent(), mk_hosts(), mk_renders(), mk_sessions(), mk_drifts(), mk_rollouts()].concat()
}

fn mk_tokens() -> Vec<Event> {
    let (api, enrol) = (ApiTokenId::new(Uuid::from_u128(7)), EnrolTokenId::new(Uuid::from_u128(8)));
    vec![
        ApiTokenCreated {
            token: api,
            name: Label128::new("ci"),
            role: Role::Editor,
            namespaces: NamespaceScope::Of(vec![mk_name("default")]),
            expires_at: Some(OffsetDateTime::UNIX_EPOCH),
        }
        .into(),
        ApiTokenRevoked { token: api }.into(),
        EnrolTokenCreated {
            token: enrol,
            namespace: mk_name("default"),
            labels: [("app".to_owned(), "db".to_owned())].into(),
            ports: vec![DeclaredPort { name: "pg".to_owned(), protocol: 6, port: 5432 }],
            region: Some(mk_name("eu-1")),
            owner: Some(Label128::new("data platform")),
            address_scope: vec!["10.0.0.0/8".parse().expect("a prefix")],
            uses_max: 10,
            expires_at: OffsetDateTime::UNIX_EPOCH,
        }
        .into(),
        EnrolTokenRevoked { token: enrol }.into(),
    ]
}

fn mk_intent() -> Vec<Event> {
    let (object, operation) = (ObjectId::new(Uuid::from_u128(9)), OperationId::new(Uuid::from_u128(10)));
    let revision = Revision::from_raw(5);
    let name = mk_name("default");
    let content = Content::Inline(Spec::Namespace(NamespaceSpec::default()));
    vec![
        ObjectPut { revision, object, namespace: name.clone(), name: name.clone(), content }.into(),
        ObjectDeleted {
            revision,
            object,
            kind: holdfast_model::intent::Kind::Namespace,
            namespace: name.clone(),
            name,
        }
        .into(),
        OperationAccepted { operation, verb: OperationVerb::Apply, revision, changes: 2, because: None }.into(),
        OperationFinished { operation, state: OperationState::Applied, detail: Detail::default() }.into(),
    ]
}

fn mk_hosts() -> Vec<Event> {
    let (host, token) = (mk_host(), EnrolTokenId::new(Uuid::from_u128(8)));
    let request = EventId::new(Uuid::from_u128(11));
    let addresses = vec!["10.0.0.1".parse().expect("an address"), "fd00::1".parse().expect("an address")];
    let outcome_key = VerifyingKeyBytes::from_bytes([2; 32]);
    let revision = Revision::from_raw(6);
    vec![
        EnrolmentRequested { host, token, name: mk_name("db-1"), addresses: addresses.clone(), outcome_key }.into(),
        EnrolmentRefused { request, host, reason: EnrolmentRefusal::NameTaken }.into(),
        HostEnrolled {
            revision,
            host,
            namespace: mk_name("default"),
            name: mk_name("db-1"),
            labels: [("app".to_owned(), String::new())].into(),
            ports: Vec::new(),
            addresses: addresses.clone(),
            address_scope: Vec::new(),
            region: None,
            owner: None,
            token,
            outcome_key,
        }
        .into(),
        HostAddressesChanged { revision, host, addresses }.into(),
        HostDecommissioned {
            revision,
            host,
            namespace: mk_name("default"),
            name: mk_name("db-1"),
            detail: Detail::new("its disk is gone"),
        }
        .into(),
        HostDirected { host, directive: DirectiveKind::Reenrol }.into(),
        CertificateRequested { host }.into(),
        CertificateIssued {
            host,
            request,
            serial: Label128::new("00ff"),
            not_before: OffsetDateTime::UNIX_EPOCH,
            not_after: OffsetDateTime::UNIX_EPOCH,
        }
        .into(),
    ]
}

fn mk_renders() -> Vec<Event> {
    let (revision, lease_term) = (Revision::from_raw(6), LeaseTerm::from_raw(2));
    let authority_epoch = AuthorityEpoch::from_raw(1);
    vec![
        AuthorityCreated { authority: AuthorityId::new(Uuid::from_u128(1)), epoch: authority_epoch }.into(),
        AuthorityEpochRaised { epoch: authority_epoch, detail: Detail::new("restored") }.into(),
        AuthorityRollbackConfirmed { epoch: authority_epoch, hosts: vec![mk_host()] }.into(),
        LeaseAcquired { name: Label128::new("renderer"), holder: Label128::new("a"), term: lease_term }.into(),
        RenderDesired { revision, lease_term, authority_epoch, states: vec![mk_state(1)] }.into(),
        RenderSignedAgain { lease_term, authority_epoch, states: vec![mk_state(1)] }.into(),
        RenderCommitted { revision, lease_term, hosts_rendered: 1, states_changed: 1, let_go: Some(mk_let_go()) }
            .into(),
    ]
}

fn mk_let_go() -> RenderedLetGo {
    RenderedLetGo { rollout: RolloutId::new(Uuid::from_u128(30)), stage: 1, revision: Revision::from_raw(7) }
}

fn mk_rollouts() -> Vec<Event> {
    let (rollout, operation) = (RolloutId::new(Uuid::from_u128(30)), OperationId::new(Uuid::from_u128(10)));
    let (revision, held_revision) = (Revision::from_raw(7), Revision::from_raw(6));
    let (detail, hosts) = (Detail::new("1 host failed"), vec![mk_host()]);
    let stages = vec![RolloutStage { stage: "canary=true".parse().expect("a stage"), hosts: 1 }];
    vec![
        RolloutStarted {
            rollout,
            operation,
            revision,
            held_revision,
            stages,
            max_failed: 0,
            max_unknown: 0,
            stage_timeout_s: 1_800,
        }
        .into(),
        RolloutStaged { rollout, stage: 1, hosts: hosts.clone() }.into(),
        RolloutStageOpened { rollout, stage: 2, hosts: 1 }.into(),
        RolloutHalted { rollout, stage: 1, reason: HaltReason::Failed, count: 1, hosts, detail: detail.clone() }.into(),
        RolloutPaused { rollout, stage: 1 }.into(),
        RolloutResumed { rollout, stage: 1 }.into(),
        RolloutAborted { rollout, revision: Some(revision), left: 1, detail: detail.clone() }.into(),
        RolloutFinished { rollout, hosts: 1, detail: Some(detail) }.into(),
    ]
}

#[test]
fn the_fullest_event_of_who_is_in_a_stage_fits() {
    let hosts = vec![mk_host(); STAGED_HOSTS_MAX];
    let staged = RolloutStaged { rollout: mk_let_go().rollout, stage: u32::MAX, hosts };
    assert!(mk_numbered(staged.into()).encode().is_ok());
}

#[test]
fn a_render_of_a_build_that_knew_no_rollout_is_read_and_written_again_as_it_was() {
    let committed = mk_renders().pop().expect("the last");
    let mut data = committed.data().expect("writes");
    assert!(data["let_go"].is_object());
    data.as_object_mut().expect("an object").remove("let_go");
    let read = Event::read(Kind::RenderCommitted, data.clone()).expect("reads");
    assert_eq!(read.data().expect("writes"), data);
}

fn mk_drifts() -> Vec<Event> {
    let (host, session_epoch, instance) = (mk_host(), SessionEpoch::from_raw(3), Uuid::from_u128(21));
    let (total, count, age_ms) = (u64::MAX, 1, 20);
    let (process, pid) = (Some(ProcessName::new("nft")), Some(u32::MAX));
    let counts = DriftCounts { rules_missing: 3, ..DriftCounts::default() };
    vec![
        DriftFound { host, session_epoch, instance, total, count, age_ms, process: process.clone(), pid, counts }
            .into(),
        DriftRepaired { host, session_epoch, instance, total, count, age_ms, process: process.clone(), pid, counts }
            .into(),
        DriftContended { host, session_epoch, instance, total, count, age_ms, process, pid }.into(),
        DriftSettled { host, session_epoch, instance, total, count, age_ms }.into(),
    ]
}

fn mk_sessions() -> Vec<Event> {
    let (host, session_epoch) = (mk_host(), SessionEpoch::from_raw(3));
    let (component, update_seq) = (Component::Policy, UpdateSeq::from_raw(4));
    vec![
        SessionOpened {
            host,
            session_epoch,
            gateway: GatewayId::new(Uuid::from_u128(12)),
            agent_version: AgentVersion::new("0.1.0"),
            boot_id: Uuid::from_u128(13),
            applied: Component::ALL.map(|component| ClaimedState { component, stamp: mk_stamp() }).to_vec(),
            protocol: Some(3),
        }
        .into(),
        SessionClosed { host, session_epoch, reason: CloseReason::Lost }.into(),
        SessionContested {
            host,
            session_epoch,
            boot_id: Uuid::from_u128(13),
            address: [10, 0, 0, 1].into(),
            other_boot_id: Uuid::from_u128(14),
            other_address: [10, 0, 0, 2].into(),
        }
        .into(),
        SnapshotSent { host, session_epoch, component, stamp: mk_stamp(), update_seq }.into(),
        mk_outcome().into(),
        mk_status().into(),
        ProtocolFault {
            host,
            session_epoch,
            fault: Fault::UnknownUpdate,
            component: Some(component),
            update_seq: Some(update_seq),
        }
        .into(),
    ]
}
