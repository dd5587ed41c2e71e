//! What the tests of many gateways stand on.
//!
//! - The test renders: what it commits is announced only if it says so.
//! - Gateways are processes of their own, started, killed and held still one by one; everything ends with the value.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_bus::{Bus, BusConfig};
use holdfast_events::{Actor, EnrolTokenCreated, Hint, HostHint, SignatureBytes, VerifyingKeyBytes};
use holdfast_identity::tls::{install_crypto_provider, mutual};
use holdfast_identity::{Ca, Credential, KeyRequest, LeafKey, SigningKey, Token, TokenKind, TrustRoots};
use holdfast_model::address::Interval;
use holdfast_model::artifact::tree_of;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, GatewayId, HostId};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Revision, Version};
use holdfast_model::policy::{
    Action, Body, Chain, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_store::Store;
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{RenderCommit, SignedState};
use holdfast_store::request::{Decision, Enrolment, IssuedCertificate, RequestBody};
use holdfast_store::testing::{OWNER, TestPostgres};
use holdfast_store::token::TokenHash;
use holdfast_suite::nats::{NatsServer, NatsVersion};
use holdfast_suite::ports::free_port;
use time::OffsetDateTime;
use uuid::Uuid;

use super::agent::{DEADLINE, HostKeys, Identity};
use super::watch::Api;
use crate::control_plane::{Service, Setting, command, program};

const AGENTS_ROLE: &str = "holdfast_gateway_agents";
/// What a client of Postgres looks for in a folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// A running gateway for agents.
pub(super) struct Gateway {
    pub(super) service: Service,
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    settings: Vec<Setting>,
    name: &'static str,
}

/// A way to the database that is cut and opened without anybody else's.
pub(super) struct Way {
    folder: PathBuf,
    server: PathBuf,
}

impl Way {
    /// The database's address by this way.
    pub(super) fn url(&self) -> String {
        format!("postgres://{AGENTS_ROLE}@localhost/holdfast?host={}", self.folder.display())
    }

    /// Lets connections through.
    pub(super) fn open(&self) {
        std::os::unix::fs::symlink(&self.server, self.folder.join(SOCKET)).expect("the folder is ours");
    }

    /// Lets none through, and ends those of a gateway that came by it.
    pub(super) async fn cut(&self, stage: &Stage, application: &str) {
        std::fs::remove_file(self.folder.join(SOCKET)).expect("it was open");
        let of = format!("FROM pg_stat_activity WHERE application_name = '{application}'");
        let deadline = Instant::now() + DEADLINE;
        while stage.postgres.sql(&format!("SELECT count(pg_terminate_backend(pid)) {of}")).trim() != "0" {
            assert!(Instant::now() < deadline, "{application} stays connected");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Servers, keys, and the test as the renderer.
pub(super) struct Stage {
    pub(super) postgres: TestPostgres,
    pub(super) nats: NatsServer,
    pub(super) api: Api,
    operators: Service,
    operators_settings: Vec<Setting>,
    renderer: Store,
    bus: Bus,
    hints: u64,
    term: LeaseTerm,
    ca: Ca,
    key: SigningKey,
    authority: Authority,
    token: Token,
    roots: TrustRoots,
    versions: BTreeMap<HostId, u64>,
    folder: tempfile::TempDir,
}

impl Stage {
    /// Starts the servers and the operators' door, and takes the renderer's lease.
    pub(super) async fn start() -> Self {
        install_crypto_provider();
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder");
        let keys = folder.path().join("keys");
        holdfast_renderer::init::init(&keys, &Default::default(), OffsetDateTime::now_utc()).expect("keys");
        let ca = Ca::load(&keys.join("renderer")).expect("init made it");
        let key = SigningKey::load(&keys.join("renderer/desired-signing.key")).expect("init made it");
        let postgres = TestPostgres::start_empty();
        postgres.store(OWNER).migrate(ca.authority()).await.expect("migrates");
        let nats = NatsServer::start_with(NatsVersion::Current, &keys.join("nats"));

        let renderer = postgres.store("holdfast_renderer");
        let claim = renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "the test").await.expect("asks");
        let Claim::Acquired(term) = claim else { panic!("nobody else renders: {claim:?}") };
        // Nobody renews it.
        postgres.sql("UPDATE leases SET expires_at = now() + interval '1 day'");
        let credential = Credential::load_named(&keys.join("renderer"), "holdfast_renderer").expect("init made it");
        let roots = ca.roots().expect("roots");
        let bus = Bus::connect(BusConfig {
            url: tls_url(&nats),
            name: "the test".to_owned(),
            user: "holdfast_renderer".to_owned(),
            tls: Some(mutual(&credential, &roots).expect("a configuration")),
        });
        let bus = bus.await.expect("an address");
        ensure_hints(&bus).await;
        let (token, api, operators, operators_settings) = operators(folder.path(), &postgres, &nats, &roots).await;
        let authority = Authority { id: ca.authority(), epoch: AuthorityEpoch::from_raw(1) };
        let (hints, versions) = (0, BTreeMap::new());
        Self {
            postgres,
            nats,
            api,
            operators,
            operators_settings,
            renderer,
            bus,
            hints,
            term,
            ca,
            key,
            authority,
            token,
            roots,
            versions,
            folder,
        }
    }

    /// Starts a gateway for agents with more settings than it needs.
    pub(super) fn gateway(&self, name: &'static str, more: &[(&'static str, &str)]) -> Gateway {
        let (port, admin) = (free_port(), free_port());
        let mut settings = common(&self.nats, admin);
        settings.extend([
            ("HOLDFAST_DOORS", "agents".to_owned()),
            ("HOLDFAST_AGENTS_IDENTITY", self.folder.path().join("keys/gateway-agents").display().to_string()),
            ("HOLDFAST_AGENTS_DATABASE_URL", database(&self.postgres, "holdfast_gateway_agents")),
            ("HOLDFAST_AGENTS_LISTEN", format!("127.0.0.1:{port}")),
        ]);
        settings.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        let gateway = Gateway {
            service: Service::start("gateway", name, self.folder.path(), &settings),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            admin: SocketAddr::from(([127, 0, 0, 1], admin)),
            settings,
            name,
        };
        gateway.wait_open();
        gateway
    }

    /// Starts a gateway that ended at the same place once more.
    pub(super) fn restart(&self, gateway: &mut Gateway) {
        gateway.service = Service::start("gateway", gateway.name, self.folder.path(), &gateway.settings);
        gateway.wait_open();
    }

    /// A way of one gateway's own to the database.
    pub(super) fn way(&self, name: &str) -> Way {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("the folder is ours");
        let way = Way { folder, server: PathBuf::from(self.postgres.config(AGENTS_ROLE).host).join(SOCKET) };
        way.open();
        way
    }

    /// The folder of everything.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command line with everything allowed, run in the folder.
    pub(super) fn holdfast(&self, arguments: &[&str]) -> std::process::Command {
        let settings = [
            ("HOLDFAST_API", self.api.url().to_owned()),
            ("HOLDFAST_CA", self.folder.path().join("keys/public/ca.pem").display().to_string()),
            ("HOLDFAST_TOKEN", self.api.token().to_owned()),
        ];
        let mut command = std::process::Command::new(program("holdfast"));
        command.env_clear().envs(settings).current_dir(self.folder.path()).stdin(std::process::Stdio::null());
        command.args(arguments);
        command
    }

    /// Kills the operators' door and starts it at the same place once more.
    pub(super) async fn restart_operators(&mut self) {
        self.operators.signal("-KILL");
        self.operators.ended();
        self.operators = Service::start("gateway", "operators", self.folder.path(), &self.operators_settings);
        let deadline = Instant::now() + DEADLINE;
        while self.api.get("/v1/status").await.is_none() {
            assert!(Instant::now() < deadline, "the door stays shut: {}", self.operators.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the operators' door counts.
    pub(super) fn operators_metrics(&self) -> String {
        crate::control_plane::metrics_of(&crate::control_plane::admin_of(&self.operators_settings))
    }

    /// Fails if the operators' door ended.
    pub(super) fn assert_runs(&mut self) {
        self.operators.assert_runs();
    }

    /// Makes so many hosts, each with an empty state of every component, version 1.
    pub(super) async fn enrol(&mut self, prefix: &str, count: usize) -> Vec<Identity> {
        let made = self.enrol_unrendered(prefix, count).await;
        self.first_states(&made).await;
        made
    }

    /// Makes so many hosts for which nothing was rendered.
    pub(super) async fn enrol_unrendered(&mut self, prefix: &str, count: usize) -> Vec<Identity> {
        let agents = self.postgres.store("holdfast_gateway_agents");
        let gateway = GatewayId::new(Uuid::now_v7());
        let (mut asked, mut made) = (Vec::new(), Vec::new());
        for n in 1..=count {
            let (leaf, outcome) = (LeafKey::generate().expect("a key"), SigningKey::generate().expect("a key"));
            let name = format!("{prefix}-{n}");
            let enrolment = Enrolment {
                hash: TokenHash(*self.token.hash().as_bytes()),
                name: name.parse().expect("a name"),
                addresses: vec![
                    [10, 9, u8::try_from(n / 250).expect("few"), u8::try_from(n % 250).expect("few")].into(),
                ],
                outcome_key: VerifyingKeyBytes::from_bytes(*outcome.verifying_key().as_bytes()),
                csr: leaf.request().expect("a request"),
            };
            let (_, host) = agents.request_enrolment(gateway, enrolment).await.expect("asks").expect("a good token");
            asked.push((host, name, leaf, Arc::new(outcome)));
        }
        let mut chains = BTreeMap::new();
        for request in self.renderer.waiting_requests(1_000).await.expect("reads") {
            let RequestBody::Enrolment { csr, .. } = &request.body else { continue };
            let request_key = KeyRequest::from_der(csr).expect("a request");
            let leaf =
                self.ca.issue_host(request.host, &request_key, OffsetDateTime::now_utc()).expect("a certificate");
            chains.insert(request.host, leaf.chain_pem.clone());
            let certificate = IssuedCertificate {
                serial: leaf.serial.iter().map(|byte| format!("{byte:02x}")).collect(),
                not_before: leaf.validity.not_before,
                not_after: leaf.validity.not_after,
                chain: leaf.chain_pem.into_bytes(),
            };
            let decision = Decision::Grant(Some(certificate));
            self.renderer.decide_request(self.term, request, decision).await.expect("decides");
        }
        let renderer = self.key.verifying_key();
        for (host, name, leaf, outcome) in asked {
            let credential = leaf.credential(chains[&host].as_bytes()).expect("it is this key's");
            let keys = HostKeys { renderer, outcome };
            let (roots, pinned) = (self.roots.clone(), self.authority);
            made.push(Identity { host, name, credential: Arc::new(credential), keys, roots, pinned });
        }
        made
    }

    /// Gives them an empty state of every component, version 1.
    pub(super) async fn first_states(&mut self, made: &[Identity]) {
        let hosts: Vec<HostId> = made.iter().map(|who| who.host).collect();
        let empty = |host: &HostId| Component::ALL.map(|component| (*host, component, component.empty_digest()));
        let states = hosts.iter().flat_map(empty).collect();
        self.commit(states, BTreeMap::new(), 1).await;
        self.versions.extend(hosts.iter().map(|host| (*host, 1)));
    }

    /// Commits one render: the next version of the policy of each of these, with so many members. Nobody is told.
    pub(super) async fn render(&mut self, who: &[Identity], members: u32) -> u64 {
        let body = mk_body(members);
        let (root, nodes) = tree_of(&body, |_| false);
        let next = who.iter().map(|who| self.versions[&who.host] + 1).max().expect("somebody");
        assert!(who.iter().all(|who| self.versions[&who.host] + 1 == next), "these are rendered together");
        let states = who.iter().map(|who| (who.host, Component::Policy, root)).collect();
        self.commit(states, nodes, next).await;
        self.versions.extend(who.iter().map(|who| (who.host, next)));
        next
    }

    /// What a version of a policy with so many members is.
    pub(super) fn stamp(version: u64, members: u32) -> Stamp {
        let (digest, _) = tree_of(&mk_body(members), |_| false);
        Stamp { version: Version::from_raw(version).expect("above zero"), digest }
    }

    /// Tells everybody who listens of the newest policies of these.
    pub(super) async fn hint(&mut self, who: &[Identity]) {
        self.hints += 1;
        let state = |who: &Identity| {
            (who.host, Component::Policy, Version::from_raw(self.versions[&who.host]).expect("above zero"))
        };
        let states: Vec<_> = who.iter().map(state).collect();
        let of = Some(states.len() as u64);
        self.publish(HostHint { lease_term: self.term, n: self.hints, of, states }).await;
    }

    /// Says what a renderer says that begins to lead.
    pub(super) async fn tell_next_term(&self) {
        let lease_term = LeaseTerm::from_raw(self.term.raw() + 1);
        self.publish(HostHint { lease_term, n: 1, of: Some(0), states: Vec::new() }).await;
    }

    async fn publish(&self, hint: HostHint) {
        let hint = Hint::Host(hint);
        let deadline = Instant::now() + DEADLINE;
        while let Err(error) = self.bus.publish_hint(&hint).await {
            assert!(Instant::now() < deadline, "not published: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Numbers the next hint as if one before it had been lost.
    pub(super) fn lose_a_hint(&mut self) {
        self.hints += 1;
    }

    /// Makes the stream of hints, once NATS is there.
    pub(super) async fn ensure_hints(&self) {
        ensure_hints(&self.bus).await;
    }

    async fn commit(
        &self,
        states: Vec<(HostId, Component, Digest)>,
        artifacts: BTreeMap<Digest, Vec<u8>>,
        version: u64,
    ) {
        let version = Version::from_raw(version).expect("above zero");
        let sign = |(host, component, digest)| {
            let desired = Desired { host, component, stamp: Stamp { version, digest } };
            let signature = self.key.sign(&desired_bytes(self.authority, &desired)).0;
            SignedState { desired, signature: SignatureBytes::from_bytes(signature) }
        };
        let revision = self.postgres.sql("SELECT max(revision) FROM revisions");
        let revision = Revision::from_raw(revision.trim().parse().expect("a number"));
        let commit = RenderCommit {
            lease_term: self.term,
            authority_epoch: self.authority.epoch,
            earlier: std::collections::BTreeMap::new(),
            revision,
            intent: revision,
            is_of_held: false,
            let_go: None,
            hosts_rendered: 1,
            states: states.into_iter().map(sign).collect(),
            artifacts,
        };
        self.renderer.commit_render(commit).await.expect("commits");
    }

    /// Waits until a statement answers with this.
    pub(super) async fn sql_until(&self, sql: &str, wanted: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = self.postgres.sql(sql);
            if found.trim() == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{sql}: {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Gateway {
    /// A process says that it is ready when what it needs answers, which may be a moment before its door is open.
    fn wait_open(&self) {
        let deadline = Instant::now() + DEADLINE;
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < deadline, "the door stays shut: {}", self.service.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The sum of a metric over its labels; zero before the first.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        self.metric_with(name, &[]).await
    }

    /// Waits until such a metric is at least this.
    pub(super) async fn metric_until(&self, name: &str, words: &[&str], wanted: f64) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = self.metric_with(name, words).await;
            if found >= wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{name} {words:?}: {found} of {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The same over those series that have each of these words among their labels.
    pub(super) async fn metric_with(&self, name: &str, words: &[&str]) -> f64 {
        let of = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let has_all = words.iter().all(|word| rest.contains(&format!("\"{word}\"")));
            (rest.starts_with(['{', ' ']) && has_all).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
        };
        self.metrics().await.lines().filter_map(of).sum()
    }

    /// What it counts.
    pub(super) async fn metrics(&self) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(self.admin).await.expect("the admin listener");
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it listens");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("text");
        text
    }
}

async fn ensure_hints(bus: &Bus) {
    let deadline = Instant::now() + DEADLINE;
    while let Err(error) = bus.ensure_hints().await {
        assert!(Instant::now() < deadline, "no stream of hints: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn operators(
    folder: &Path,
    postgres: &TestPostgres,
    nats: &NatsServer,
    roots: &TrustRoots,
) -> (Token, Api, Service, Vec<Setting>) {
    let store = postgres.store("holdfast_gateway_operators");
    let token = Token::generate(TokenKind::Enrol).expect("randomness");
    let created = EnrolTokenCreated {
        token: EnrolTokenId::new(Uuid::now_v7()),
        namespace: Name::default_namespace(),
        labels: Default::default(),
        ports: Vec::new(),
        region: None,
        owner: None,
        address_scope: vec!["10.0.0.0/8".parse().expect("a prefix")],
        uses_max: 10_000,
        expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR,
    };
    let operator = Actor::Operator(ApiTokenId::new(Uuid::from_u128(1)));
    store.create_enrol_token(operator, created, TokenHash(*token.hash().as_bytes())).await.expect("creates");
    let port = free_port();
    let identity: PathBuf = folder.join("keys/gateway-operators");
    let mut settings = common(nats, free_port());
    settings.extend([
        ("HOLDFAST_DOORS", "operators".to_owned()),
        ("HOLDFAST_OPERATORS_IDENTITY", identity.display().to_string()),
        ("HOLDFAST_OPERATORS_DATABASE_URL", database(postgres, "holdfast_gateway_operators")),
        ("HOLDFAST_OPERATORS_LISTEN", format!("127.0.0.1:{port}")),
    ]);
    let made = command("gateway", folder, &settings).arg("admin-token").output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let admin = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    let service = Service::start("gateway", "operators", folder, &settings);
    (token, Api::new(roots, format!("https://127.0.0.1:{port}"), admin), service, settings)
}

fn tls_url(nats: &NatsServer) -> String {
    nats.url().replace("nats://", "tls://")
}

fn database(postgres: &TestPostgres, role: &str) -> String {
    format!("postgres://{role}@localhost/holdfast?host={}", postgres.config(role).host)
}

fn common(nats: &NatsServer, admin: u16) -> Vec<Setting> {
    vec![
        ("HOLDFAST_LOG", "info".to_owned()),
        ("HOLDFAST_LOG_FORMAT", "text".to_owned()),
        ("HOLDFAST_NATS_URL", tls_url(nats)),
        ("HOLDFAST_ADMIN_LISTEN", format!("127.0.0.1:{admin}")),
    ]
}

fn mk_body(members: u32) -> Body {
    let key = SetKey::from_bytes([1; 16]);
    let rule = Rule {
        key: RuleKey::from_bytes([1; 16]),
        order: 0,
        action: Action::Allow,
        statement: Statement::ports(protocol::TCP, vec![PortRange::single(443)]),
        peers: Peers::Set(key),
        local: None,
        log: false,
    };
    let v4: IntervalSet<u32> = (0..members).map(|n| Interval::single(n * 3)).collect();
    let ingress = Chain { isolated: true, rules: vec![rule] };
    Body { mode: Mode::Enforced, ingress, sets: vec![Set { key, v4, v6: IntervalSet::empty() }], ..Body::default() }
        .canonical()
}
