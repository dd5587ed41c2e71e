//! One sample of every message, and the largest legal ones.

#![expect(dead_code, reason = "each test binary uses its part")]

use std::net::{IpAddr, Ipv6Addr};

use holdfast_model::address::Interval;
use holdfast_model::condition::{Basis, Condition, ConditionType, DETAIL_BYTES_MAX, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::AuthorityId;
use holdfast_model::interval_set::{Edit, IntervalSet};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq, Version};
use holdfast_model::policy::delta::Change;
use holdfast_model::policy::{
    Action, Body, Chain, Direction, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::frame::{Deframer, Frame};
use holdfast_wire::limits::*;
use holdfast_wire::message::*;
use holdfast_wire::negotiate::{Protocol, ProtocolRange};
use holdfast_wire::{encode, encode_changes};
use uuid::Uuid;

pub(crate) fn mk_version(raw: u64) -> Version {
    Version::from_raw(raw).expect("not zero in tests")
}

pub(crate) fn mk_stamp(raw: u64) -> Stamp {
    Stamp { version: mk_version(raw), digest: Digest::from_bytes([u8::try_from(raw % 251).expect("below 251"); 32]) }
}

pub(crate) fn mk_update(content: UpdateContent) -> Update {
    Update {
        update_seq: UpdateSeq::from_raw(300),
        component: Component::Policy,
        stamp: mk_stamp(14),
        signature: [7; 64],
        content,
    }
}

pub(crate) fn mk_rule(key: u8, statement: Statement) -> Rule {
    Rule {
        key: RuleKey::from_bytes([key; 16]),
        order: -2,
        action: Action::Allow,
        statement,
        peers: Peers::Set(SetKey::from_bytes([key; 16])),
        local: None,
        log: true,
    }
}

pub(crate) fn mk_changes() -> Vec<Change> {
    let ports = Statement::ports(protocol::TCP, vec![PortRange::single(443), PortRange { first: 8000, last: 8100 }]);
    let icmp = Statement::Icmp {
        family: holdfast_model::address::Family::V6,
        kinds: vec![IcmpKind { kind: 128, code: None }, IcmpKind { kind: 129, code: Some(0) }],
    };
    let set = Set {
        key: SetKey::from_bytes([3; 16]),
        v4: IntervalSet::covering(vec![Interval::new(0x0a00_0000, 0x0a00_00ff).expect("ordered")]),
        v6: IntervalSet::covering(vec![Interval::single(1_u128 << 100)]),
    };
    vec![
        Change::SetMode(Mode::Enforced),
        Change::SetIsolation { direction: Direction::Egress, isolated: true },
        Change::DropRule { direction: Direction::Ingress, key: RuleKey::from_bytes([9; 16]) },
        Change::PutSet(set),
        Change::EditSet {
            key: SetKey::from_bytes([4; 16]),
            v4: Edit { remove: vec![Interval::single(5)], add: vec![Interval::full()] },
            v6: Edit { remove: vec![], add: vec![Interval::full()] },
        },
        Change::PutRule { direction: Direction::Ingress, rule: mk_rule(3, ports) },
        Change::PutRule { direction: Direction::Ingress, rule: mk_rule(4, icmp) },
        Change::PutRule { direction: Direction::Egress, rule: mk_rule(5, Statement::Protocol(47)) },
        Change::PutRule { direction: Direction::Egress, rule: mk_rule(6, Statement::Any) },
        Change::DropSet(SetKey::from_bytes([8; 16])),
    ]
}

pub(crate) fn mk_condition(kind: ConditionType, message: String) -> Condition {
    Condition {
        kind,
        status: Holds::False,
        reason: Reason::KernelRefused,
        message,
        observed_version: Some(mk_version(14)),
    }
}

/// One of each kind, and each form of update, as protocol 1 has them and as the later ones add to them; the name is that of its golden file.
pub(crate) fn mk_samples(protocol: Protocol) -> Vec<(&'static str, Message)> {
    let mut samples = mk_first_samples(protocol);
    if protocol >= Protocol::V3 {
        samples.push(("drift-found", Message::Drift(mk_drift())));
        let counts = DriftCounts { table: true, ..DriftCounts::default() };
        samples
            .push(("drift-repaired", Message::Drift(DriftReport { kind: DriftKind::Repaired, counts, ..mk_drift() })));
        let nobody = DriftReport { writer: None, counts: DriftCounts::default(), ..mk_drift() };
        samples.push(("drift-settled", Message::Drift(DriftReport { kind: DriftKind::Settled, ..nobody })));
        let status = mk_status();
        let lively = Liveness { counter: 1_001, status: Some(status.report.digest()) };
        samples.push(("liveness-with-status", Message::Liveness(lively)));
        samples.push(("status", Message::Status(status)));
        let directive = Directive { code: DirectiveCode::ReportStatus, argument: vec![] };
        samples.push(("directive-report-status", Message::Directive(directive)));
    }
    match protocol {
        Protocol::V1 => {}
        Protocol::V2 | Protocol::V3 => {
            let is_ack =
                samples.iter().map(|(_, message)| message).find(|message| matches!(message, Message::HelloAck(_)));
            let Some(Message::HelloAck(ack)) = is_ack.cloned() else { panic!("an answer to hello") };
            samples.push(("hello-ack-poll", Message::HelloAck(HelloAck { delivery: Delivery::Poll, ..ack })));
            let fault =
                Fault { code: FaultCode::UnknownDirective, message_kind: Kind::Directive.number(), update_seq: None };
            samples.push(("fault-unknown-directive", Message::Fault(fault)));
        }
    }
    samples
}

/// A foreign rule and two elements that are gone, by a process with a name.
pub(crate) fn mk_drift() -> DriftReport {
    DriftReport {
        kind: DriftKind::Found,
        instance: Uuid::from_u128(0x1234),
        total: 3,
        age_ms: 300,
        writer: Some(Writer { pid: 4_321, name: "nft".to_owned() }),
        counts: DriftCounts { rules_foreign: 1, elements_missing: 2, ..DriftCounts::default() },
    }
}

/// A host on which all is well with two components, but for a policy on trial.
pub(crate) fn mk_status() -> StatusReport {
    let held = [(Component::Policy, mk_stamp(14)), (Component::Settings, mk_stamp(1))];
    let mut report = HostReport::of_health(&held, UpdateSeq::from_raw(300), 1_790_000_000_000);
    let policy = report.components.first_mut().expect("the policy is first");
    let confirmed = policy.conditions.iter_mut().find(|one| one.condition.kind == ConditionType::Confirmed);
    let confirmed = &mut confirmed.expect("every condition").condition;
    (confirmed.status, confirmed.reason) = (Holds::Unknown, Reason::OnTrial);
    confirmed.message = "no gateway gave an echo yet".to_owned();
    policy.conditions.first_mut().expect("every condition").basis = Basis::Inferred;
    StatusReport { seq: 7, report, signature: [8; 64] }
}

fn mk_largest_status(last: Stamp) -> StatusReport {
    let held = Component::ALL.map(|component| (component, last));
    let mut report = HostReport::of_health(&held, UpdateSeq::from_raw(NUMBER_MAX), NUMBER_MAX);
    for one in report.components.iter_mut().flat_map(|one| &mut one.conditions) {
        one.condition.message = "m".repeat(REPORT_TEXT_BYTES_MAX);
    }
    StatusReport { seq: NUMBER_MAX, report, signature: [0xff; 64] }
}

fn mk_first_samples(protocol: Protocol) -> Vec<(&'static str, Message)> {
    let inventory = Inventory {
        hostname: "web-1".to_owned(),
        kernel: "6.18.0".to_owned(),
        addresses: vec![IpAddr::from([10, 0, 0, 7]), IpAddr::from(Ipv6Addr::from_bits(0xfd00 << 112 | 7))],
    };
    let hello = Hello {
        protocols: ProtocolRange { min: 1, max: protocol.number() },
        agent_version: "0.1.0".to_owned(),
        boot_id: Uuid::from_u128(0x0123),
        applied: vec![(Component::Policy, mk_stamp(13)), (Component::Settings, mk_stamp(1))],
        capabilities: vec![1, 300],
        inventory: inventory.clone(),
    };
    let ack = HelloAck {
        protocol: protocol.number(),
        session_epoch: SessionEpoch::from_raw(42),
        authority: Authority { id: AuthorityId::new(Uuid::from_u128(0x77)), epoch: AuthorityEpoch::from_raw(3) },
        delivery: Delivery::Push,
        liveness_interval_ms: 15_000,
        limits: mk_limits(),
        gateways: vec!["gateway-a:7443".to_owned(), "[fd00::1]:7443".to_owned()],
    };
    let changes = encode_changes(&mk_changes()).expect("a small delta");
    let outcome = OutcomeReport {
        update_seq: UpdateSeq::from_raw(300),
        component: Component::Policy,
        kind: OutcomeKind::Failed,
        wanted: mk_stamp(14),
        applied: Some(mk_stamp(13)),
        conditions: vec![
            Condition {
                status: Holds::True,
                reason: Reason::Done,
                ..mk_condition(ConditionType::SnapshotAccepted, String::new())
            },
            mk_condition(ConditionType::Applied, "ENOMEM".to_owned()),
            Condition {
                status: Holds::Unknown,
                reason: Reason::NotReached,
                observed_version: None,
                ..mk_condition(ConditionType::Verified, String::new())
            },
        ],
        signature: [9; 64],
    };
    let chunk = Chunk { update_seq: UpdateSeq::from_raw(300), offset: 262_144, bytes: (0..=255).collect() };
    vec![
        ("hello", Message::Hello(hello)),
        ("hello-ack", Message::HelloAck(ack)),
        ("update-snapshot", Message::Update(mk_update(UpdateContent::Snapshot { bytes_total: 4_194_304 }))),
        ("update-delta", Message::Update(mk_update(UpdateContent::Delta { base: mk_stamp(13), changes }))),
        ("update-version-only", Message::Update(mk_update(UpdateContent::VersionOnly))),
        ("chunk", Message::Chunk(chunk)),
        ("outcome", Message::Outcome(outcome.clone())),
        ("outcome-nothing-applied", Message::Outcome(OutcomeReport { applied: None, conditions: vec![], ..outcome })),
        ("inventory", Message::Inventory(inventory)),
        ("liveness", Message::Liveness(Liveness { counter: 1_000, status: None })),
        ("drain", Message::Drain(Drain { reconnect_after_ms: 9_000, gateways: vec!["gateway-b:7443".to_owned()] })),
        ("directive", Message::Directive(Directive { code: DirectiveCode::Reconnect, argument: vec![] })),
        ("refusal", Message::Refusal(mk_refusal("come back later".to_owned()))),
        (
            "fault",
            Message::Fault(Fault {
                code: FaultCode::OutcomeUnmatched,
                message_kind: Kind::Outcome.number(),
                update_seq: Some(UpdateSeq::from_raw(999)),
            }),
        ),
    ]
}

pub(crate) fn mk_limits() -> SessionLimits {
    SessionLimits {
        body_bytes_max: u32::try_from(BODY_BYTES_MAX).expect("fits"),
        updates_in_flight_max: u16::try_from(UPDATES_IN_FLIGHT_MAX).expect("fits"),
        bytes_in_flight_max: u32::try_from(BYTES_IN_FLIGHT_MAX).expect("fits"),
    }
}

pub(crate) fn mk_refusal(detail: String) -> Refusal {
    Refusal { code: RefusalCode::Overloaded, retry_after_ms: 30_000, detail }
}

fn mk_largest_drift() -> DriftReport {
    let most = u32::MAX;
    DriftReport {
        kind: DriftKind::Settled,
        instance: Uuid::max(),
        total: u64::MAX,
        age_ms: u64::MAX,
        writer: Some(Writer { pid: most, name: "w".repeat(WRITER_BYTES_MAX) }),
        counts: DriftCounts {
            table: true,
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

/// The largest legal value of each kind, with the cap of its frame (envelope and payload).
pub(crate) fn mk_largest(protocol: Protocol) -> Vec<(Message, usize)> {
    let last = Stamp { version: mk_version(NUMBER_MAX), digest: Digest::from_bytes([0xff; 32]) };
    let seq = UpdateSeq::from_raw(NUMBER_MAX);
    let address = |n: usize| IpAddr::from(Ipv6Addr::from_bits(u128::MAX - (ADDRESSES_MAX - n) as u128));
    let inventory = Inventory {
        hostname: "h".repeat(HOSTNAME_BYTES_MAX),
        kernel: "k".repeat(KERNEL_BYTES_MAX),
        addresses: (0..ADDRESSES_MAX).map(address).collect(),
    };
    let hello = Hello {
        protocols: ProtocolRange { min: 1, max: u16::MAX },
        agent_version: "v".repeat(AGENT_VERSION_BYTES_MAX),
        boot_id: Uuid::max(),
        applied: Component::ALL.map(|component| (component, last)).into(),
        capabilities: vec![u16::MAX; CAPABILITIES_MAX],
        inventory: inventory.clone(),
    };
    let gateways = vec!["g".repeat(GATEWAY_BYTES_MAX); GATEWAYS_MAX];
    let ack = HelloAck {
        protocol: protocol.number(),
        session_epoch: SessionEpoch::from_raw(u64::MAX),
        authority: Authority { id: AuthorityId::new(Uuid::max()), epoch: AuthorityEpoch::from_raw(u64::MAX) },
        delivery: Delivery::Push,
        liveness_interval_ms: u32::MAX,
        limits: mk_limits(),
        gateways: gateways.clone(),
    };
    let content = UpdateContent::Delta { base: last, changes: vec![0xff; DELTA_BYTES_MAX] };
    let update =
        Update { update_seq: seq, component: Component::Workloads, stamp: last, signature: [0xff; 64], content };
    let offset = u32::try_from(BODY_BYTES_MAX - CHUNK_BYTES_MAX).expect("fits");
    let outcome = OutcomeReport {
        update_seq: seq,
        component: Component::Workloads,
        kind: OutcomeKind::RetainedLocalOverride,
        wanted: last,
        applied: Some(last),
        conditions: vec![
            Condition {
                observed_version: Some(last.version),
                ..mk_condition(ConditionType::Verified, "m".repeat(DETAIL_BYTES_MAX))
            };
            CONDITIONS_MAX
        ],
        signature: [0xff; 64],
    };
    let text = "t".repeat(TEXT_BYTES_MAX);
    let refusal = Refusal { retry_after_ms: u32::MAX, code: RefusalCode::Unknown(u16::MAX), detail: text };
    let fault = Fault { code: FaultCode::Unknown(u16::MAX), message_kind: u16::MAX, update_seq: Some(seq) };
    let argument = vec![0xff; DIRECTIVE_BYTES_MAX];
    let status = (protocol >= Protocol::V3).then_some(last.digest);
    let mut largest = vec![
        (Message::Hello(hello), HELLO_FRAME_BYTES_MAX),
        (Message::HelloAck(ack), HELLO_FRAME_BYTES_MAX),
        (Message::Update(update), FRAME_BYTES_MAX),
        (Message::Chunk(Chunk { update_seq: seq, offset, bytes: vec![0xff; CHUNK_BYTES_MAX] }), FRAME_BYTES_MAX),
        (Message::Outcome(outcome), STATUS_FRAME_BYTES_MAX),
        (Message::Inventory(inventory), STATUS_FRAME_BYTES_MAX),
        (Message::Liveness(Liveness { counter: u64::MAX, status }), LIVENESS_FRAME_BYTES_MAX - LENGTH_BYTES),
        (Message::Drain(Drain { reconnect_after_ms: u32::MAX, gateways }), HELLO_FRAME_BYTES_MAX),
        (Message::Directive(Directive { code: DirectiveCode::Unknown(u16::MAX), argument }), HELLO_FRAME_BYTES_MAX),
        (Message::Refusal(refusal), HELLO_FRAME_BYTES_MAX),
        (Message::Fault(fault), HELLO_FRAME_BYTES_MAX),
    ];
    if protocol >= Protocol::V3 {
        largest.push((Message::Drift(mk_largest_drift()), DRIFT_FRAME_BYTES_MAX));
        largest.push((Message::Status(mk_largest_status(last)), REPORT_FRAME_BYTES_MAX));
    }
    largest
}

/// A policy of 60 rules, each with its own set of peers.
pub(crate) fn mk_body(rules: u8) -> Body {
    let ingress = (0..rules)
        .map(|key| mk_rule(key, Statement::ports(protocol::TCP, vec![PortRange::single(1000 + u16::from(key))])));
    let sets = (0..rules).map(|key| Set {
        key: SetKey::from_bytes([key; 16]),
        v4: (0..10).map(|n| Interval::single(0x0a00_0000 + u32::from(key) * 1000 + n * 7)).collect(),
        v6: IntervalSet::empty(),
    });
    let body = Body {
        mode: Mode::Enforced,
        ingress: Chain { isolated: true, rules: ingress.collect() },
        sets: sets.collect(),
        ..Body::default()
    };
    body.canonical()
}

/// As two peers of this build speak.
pub(crate) fn mk_frame_bytes(message: &Message) -> Vec<u8> {
    mk_frame_bytes_of(Protocol::NEWEST, message)
}

pub(crate) fn mk_frame_bytes_of(protocol: Protocol, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(protocol, message, &mut bytes).expect("a legal message");
    bytes
}

pub(crate) fn mk_frame(bytes: &[u8]) -> Frame {
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    deframer.push(bytes);
    let frame = deframer.poll_frame().expect("a frame within its cap").expect("a whole frame");
    assert!(deframer.is_between_frames(), "exactly one frame");
    frame
}
