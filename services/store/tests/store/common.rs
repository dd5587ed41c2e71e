//! A fleet for tests: every process with its own role.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_events::{
    Actor, AgentVersion, Detail, EnrolTokenCreated, OperationVerb, ProcessName, RenderedLetGo, SignatureBytes,
    VerifyingKeyBytes,
};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, GatewayId, HostId, RolloutId};
use holdfast_model::intent::{NamespaceSpec, Object, Spec};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Revision, SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::HostReport;
use holdfast_model::rollout::stage::{Stage, StageSpec};
use holdfast_model::statement::{Outcome, OutcomeKind};
use holdfast_store::Store;
use holdfast_store::intent::{Applied, IntentChange, Prune};
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{RenderCommit, SignedState};
use holdfast_store::request::{Decided, Decision, Enrolment, IssuedCertificate};
use holdfast_store::rollout::{Rollout, RolloutStart, RolloutStep};
use holdfast_store::session::{DriftSaid, Instance, Opened, Opening, OutcomeReport, StatusSaid};
use holdfast_store::testing::TestPostgres;
use holdfast_store::token::TokenHash;
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) struct Fleet {
    pub(crate) server: TestPostgres,
    pub(crate) renderer: Store,
    pub(crate) agents: Store,
    pub(crate) operators: Store,
    pub(crate) gateway: GatewayId,
    pub(crate) term: LeaseTerm,
}

pub(crate) const OPERATOR: Actor = Actor::Operator(ApiTokenId::new(Uuid::from_u128(77)));
pub(crate) const HASH: TokenHash = TokenHash([7; 32]);

impl Fleet {
    /// A migrated database, a renderer and a gateway with their leases.
    pub(crate) async fn start() -> Self {
        let server = TestPostgres::start_migrated().await;
        let gateway = GatewayId::new(Uuid::now_v7());
        let renderer = server.store("holdfast_renderer");
        let agents = server.store("holdfast_gateway_agents");
        let term = acquired(renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "renderer-1").await.expect("asks"));
        let name = gateway.to_string();
        let own = agents.acquire_lease(Actor::Gateway(gateway), &name, &name);
        acquired(own.await.expect("asks"));
        let operators = server.store("holdfast_gateway_operators");
        Self { server, renderer, agents, operators, gateway, term }
    }

    pub(crate) async fn put(&self, objects: Vec<Object>) -> Applied {
        self.operators.apply_intent(mk_change(objects)).await.expect("applies")
    }

    pub(crate) async fn create_token(&self, scope: &str, uses_max: u32) -> EnrolTokenId {
        let token = EnrolTokenId::new(Uuid::now_v7());
        let created = EnrolTokenCreated {
            token,
            namespace: Name::default_namespace(),
            labels: [("app".to_owned(), "db".to_owned())].into(),
            ports: Vec::new(),
            region: Some(mk_name("eu-1")),
            owner: None,
            address_scope: vec![scope.parse().expect("a prefix")],
            uses_max,
            expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR,
        };
        self.operators.create_enrol_token(OPERATOR, created, HASH).await.expect("creates");
        token
    }

    /// Enrols a host and gives it a certificate.
    pub(crate) async fn enrol(&self, name: &str, address: &str) -> HostId {
        let asked = self.agents.request_enrolment(self.gateway, mk_enrolment(name, &[address])).await.expect("asks");
        let (id, host) = asked.expect("the token is good");
        let serial: String = mk_serial(host).iter().map(|byte| format!("{byte:02x}")).collect();
        let waiting = self.renderer.waiting_requests(100).await.expect("reads");
        let request = waiting.into_iter().find(|request| request.id == id).expect("it waits");
        let decision = Decision::Grant(Some(mk_certificate(&serial)));
        let decided = self.renderer.decide_request(self.term, request, decision).await.expect("decides");
        assert!(matches!(decided, Decided::Enrolled { .. }), "{decided:?}");
        host
    }

    pub(crate) async fn open(&self, host: HostId) -> SessionEpoch {
        let opened = self.agents.open_sessions(self.gateway, vec![mk_opening(host)]).await.expect("opens");
        match opened.as_slice() {
            [Opened::Session { session_epoch, .. }] => *session_epoch,
            other => panic!("{other:?}"),
        }
    }

    /// Renders one policy state for each host.
    pub(crate) async fn render(&self, revision: u64, version: u64, hosts: &[HostId]) {
        let commit = self.mk_commit(revision, version, hosts);
        self.renderer.commit_render(commit).await.expect("commits");
    }

    /// A session of a host that says that it holds a version of its policy.
    pub(crate) async fn come_back(&self, host: HostId, version: u64) -> Opened {
        let opening = Opening { applied: vec![(Component::Policy, mk_stamp(version))], ..mk_opening(host) };
        let mut opened = self.agents.open_sessions(self.gateway, vec![opening]).await.expect("opens");
        opened.remove(0)
    }

    /// Signs again, in a life of the authority, what may be; whose states those were.
    pub(crate) async fn follow(&self, epoch: u64) -> Vec<HostId> {
        let epoch = AuthorityEpoch::from_raw(epoch);
        let found = self.renderer.states_to_sign_again(epoch).await.expect("looks");
        let signature = SignatureBytes::from_bytes([6; 64]);
        let signed: Vec<_> = found.iter().map(|found| SignedState { signature, ..found.state }).collect();
        self.renderer.sign_again(self.term, epoch, signed).await.expect("signs");
        found.into_iter().map(|found| found.state.desired.host).collect()
    }

    /// A change that goes through these hosts one by one.
    pub(crate) async fn begin(&self, name: &str, value: &str, hosts: &[HostId]) -> Rollout {
        let start = mk_start(hosts);
        let id = start.rollout;
        let began = self.operators.apply_in_stages(mk_change(vec![mk_namespace(name, value)]), start).await;
        assert!(matches!(began, Ok(Applied::Changed { .. })), "{began:?}");
        self.operators.load_rollout(id).await.expect("reads").expect("it is there")
    }

    /// The renderer says that every host is rendered which a rollout does not hold back.
    pub(crate) async fn let_go(&self, id: RolloutId) {
        let rollout = self.operators.load_rollout(id).await.expect("reads").expect("it is there");
        let let_go = Some(RenderedLetGo { rollout: id, stage: rollout.stage, revision: rollout.revision });
        let progress = self.renderer.rendered_revision().await.expect("reads");
        let authority_epoch = self.renderer.load_authority().await.expect("reads").epoch;
        let commit = self.mk_commit(progress.raw(), 1, &[]);
        let commit = RenderCommit { let_go, authority_epoch, artifacts: BTreeMap::new(), ..commit };
        self.renderer.commit_render(commit).await.expect("commits");
    }

    pub(crate) fn mk_commit(&self, revision: u64, version: u64, hosts: &[HostId]) -> RenderCommit {
        let bytes = mk_bytes(version);
        let stamp = mk_stamp(version);
        let state = |host: &HostId| SignedState {
            desired: Desired { host: *host, component: Component::Policy, stamp },
            signature: SignatureBytes::from_bytes([5; 64]),
        };
        RenderCommit {
            lease_term: self.term,
            authority_epoch: AuthorityEpoch::from_raw(1),
            earlier: BTreeMap::new(),
            revision: Revision::from_raw(revision),
            intent: Revision::from_raw(revision),
            is_of_held: false,
            let_go: None,
            hosts_rendered: u32::try_from(hosts.len()).expect("few"),
            states: hosts.iter().map(state).collect(),
            artifacts: BTreeMap::from([(stamp.digest, bytes)]),
        }
    }
}

pub(crate) fn acquired(claim: Claim) -> LeaseTerm {
    match claim {
        Claim::Acquired(term) => term,
        Claim::Held { holder, .. } => panic!("held by {holder}"),
    }
}

pub(crate) fn mk_name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(crate) fn mk_namespace(name: &str, team: &str) -> Object {
    let labels = [("team".to_owned(), team.to_owned())].into();
    Object { namespace: mk_name(name), name: mk_name(name), spec: Spec::Namespace(NamespaceSpec { labels }) }
}

pub(crate) fn mk_change(puts: Vec<Object>) -> IntentChange {
    IntentChange {
        actor: OPERATOR,
        verb: OperationVerb::Apply,
        puts,
        deletes: Vec::new(),
        prune: Prune::Nothing,
        expected: None,
        key: None,
        because: None,
    }
}

pub(crate) fn mk_addresses(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|text| text.parse().expect("an address")).collect()
}

pub(crate) fn mk_enrolment(name: &str, addresses: &[&str]) -> Enrolment {
    Enrolment {
        hash: HASH,
        name: mk_name(name),
        addresses: mk_addresses(addresses),
        outcome_key: VerifyingKeyBytes::from_bytes([3; 32]),
        csr: vec![1, 2, 3],
    }
}

pub(crate) fn mk_certificate(serial: &str) -> IssuedCertificate {
    let not_before = OffsetDateTime::now_utc();
    IssuedCertificate {
        serial: serial.to_owned(),
        not_before,
        not_after: not_before + time::Duration::DAY,
        chain: vec![9],
    }
}

pub(crate) fn mk_opening(host: HostId) -> Opening {
    Opening {
        host,
        certificate_serial: mk_serial(host),
        agent_version: AgentVersion::new("0.1.0"),
        instance: Instance { boot_id: Uuid::from_u128(4), address: [10, 0, 0, 1].into() },
        applied: Vec::new(),
        protocol: Some(2),
    }
}

/// The serial number of the certificate that [`Fleet::enrol`] gives a host.
pub(crate) fn mk_serial(host: HostId) -> Vec<u8> {
    host.uuid().as_bytes().to_vec()
}

pub(crate) fn mk_bytes(version: u64) -> Vec<u8> {
    // A node of no kind that names others.
    [&[200][..], &version.to_be_bytes()].concat()
}

pub(crate) fn mk_stamp(version: u64) -> Stamp {
    Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(&mk_bytes(version)) }
}

pub(crate) fn mk_report(host: HostId, epoch: SessionEpoch, seq: u64, version: u64, kind: OutcomeKind) -> OutcomeReport {
    let status = if kind == OutcomeKind::Applied { Holds::True } else { Holds::False };
    let condition = |kind| Condition {
        kind,
        status,
        reason: Reason::Done,
        message: String::new(),
        observed_version: Version::from_raw(version),
    };
    let applied = (kind == OutcomeKind::Applied).then(|| mk_stamp(version));
    OutcomeReport {
        outcome: Outcome {
            host,
            session_epoch: epoch,
            update_seq: UpdateSeq::from_raw(seq),
            component: Component::Policy,
            kind,
            wanted: mk_stamp(version),
            applied,
        },
        reason: Reason::Done,
        detail: Detail::new("as wanted"),
        conditions: ConditionType::OF_ATTEMPT.map(condition).to_vec(),
        signature: SignatureBytes::from_bytes([u8::try_from(seq).expect("small"); 64]),
    }
}

/// A host on which all is well with one version of its policy, after it answered so many updates.
pub(crate) fn mk_status(seq: u64, answered: u64, version: u64) -> StatusSaid {
    let held = [(Component::Policy, mk_stamp(version))];
    let report = HostReport::of_health(&held, UpdateSeq::from_raw(answered), 1_790_000_000_000 + seq);
    StatusSaid { seq, report, signature: SignatureBytes::from_bytes([u8::try_from(seq).expect("small"); 64]) }
}

pub(crate) fn mk_drift(kind: DriftKind, total: u64) -> DriftSaid {
    DriftSaid {
        kind,
        instance: Uuid::from_u128(6),
        total,
        age_ms: 40,
        process: Some((ProcessName::new("nft"), 4_321)),
        counts: DriftCounts { rules_foreign: 2, ..DriftCounts::default() },
    }
}

/// The last step of a rollout, with something to say.
pub(crate) fn mk_finish() -> RolloutStep {
    RolloutStep::Finish { hosts: 1, detail: Some(Detail::new("1 of 2 hosts have it")) }
}

/// A stage for each host.
pub(crate) fn mk_start(hosts: &[HostId]) -> RolloutStart {
    let stage = |host: &HostId| Stage { spec: StageSpec::Rest, hosts: BTreeSet::from([*host]) };
    RolloutStart {
        rollout: RolloutId::new(Uuid::now_v7()),
        stages: hosts.iter().map(stage).collect(),
        max_failed: 0,
        max_unknown: 1,
        stage_timeout_s: 60,
    }
}
