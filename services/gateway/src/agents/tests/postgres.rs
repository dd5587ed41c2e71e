//! The door with a real Postgres behind it, in the role that it has there; the test is the renderer.

use std::collections::BTreeMap;

use holdfast_events::{Actor, EnrolTokenCreated, SignatureBytes};
use holdfast_model::artifact::tree_of;
use holdfast_model::desired::Desired;
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, GatewayId};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use holdfast_model::statement::desired_bytes;
use holdfast_store::Store;
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{RenderCommit, SignedState};
use holdfast_store::request::{Decision, IssuedCertificate, RequestBody};
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};

use super::super::pg::PgAgents;
use super::super::store::{AgentsStore, StoredBody};
use super::*;

#[tokio::test]
async fn a_host_enrols_gets_a_delta_and_is_recorded_in_postgres() {
    let mut at = Installation::start().await;
    let (host, mut agent) = at.enrol("web-1").await;
    at.render(host, 1, &mk_body(0..400)).await;
    agent.converge(4).await;
    at.sql_until("SELECT count(*) FROM events WHERE kind = 'session.snapshot_sent'", "4\n").await;
    let stamp = at.render(host, 2, &mk_body(0..401)).await;
    at.hint(host, stamp.version).await;
    agent.converge(5).await;
    assert_eq!((agent.last().form, agent.last().stamp), ("delta", stamp));
    at.sql_until("SELECT max(applied_version) FROM observed WHERE component = 1", "3\n").await;
    at.sql_until("SELECT count(*) FROM events WHERE kind = 'outcome.recorded'", "5\n").await;
    at.sql_until("SELECT count(*) FROM events WHERE kind = 'session.opened'", "1\n").await;
    at.sql_until("SELECT count(*) FROM presence WHERE session_epoch = 1", "1\n").await;
    // The addresses of Hello are those of the enrolment: nothing to decide. Others are.
    let requests = "SELECT count(*) FROM requests WHERE kind = 'addresses'";
    assert_eq!(at.server.sql(requests), "0\n");
    let addresses = vec![[10, 0, 0, 8].into()];
    agent.machine.handle_inventory(Inventory { addresses, ..Inventory::default() });
    agent.idle(Duration::from_millis(100)).await;
    at.sql_until(requests, "1\n").await;
    assert_eq!(at.server.sql("SELECT count(*) FROM events WHERE kind = 'protocol.fault'"), "0\n");

    // The database goes and comes back: the session lives, a change made meanwhile arrives, the outcome is not lost.
    at.server.stop();
    agent.idle(Duration::from_millis(300)).await;
    at.server.start();
    let stamp = at.render(host, 3, &mk_body(0..402)).await;
    at.wakes.send(Wake::Lapsed).await.unwrap();
    agent.converge(6).await;
    assert_eq!(agent.last().stamp, stamp);
    at.sql_until("SELECT max(applied_version) FROM observed WHERE component = 1", "4\n").await;

    at.tasks.shutdown().ask();
    let (finished, cause) = tokio::join!(at.tasks.clone().finish(DEADLINE), async {
        let cause = agent.closed().await;
        drop(agent);
        cause
    });
    finished.unwrap();
    assert_eq!(cause, CloseCause::Drained);
    assert_eq!(at.server.sql("SELECT close_reason FROM sessions"), "drained\n");
    assert_eq!(at.server.sql("SELECT count(*) FROM leases WHERE name LIKE 'gw%' AND expires_at > now()"), "0\n");
}

#[tokio::test]
async fn an_edit_reads_the_nodes_that_it_made_and_a_forgotten_node_costs_one_more_look() {
    let at = Installation::start().await;
    let reader = PgAgents::new(at.server.store("holdfast_gateway_agents"), GatewayId::new(Uuid::now_v7()));
    let (host, _agent) = at.enrol("web-1").await;
    let bodies = [mk_body(0..5_000), mk_body(0..5_001)];
    for (version, body) in (1..).zip(&bodies) {
        at.render(host, version, body).await;
        let loaded = reader.load_bodies(vec![(Component::Policy, body.digest())]).await.unwrap();
        assert_eq!(loaded, [(body.digest(), StoredBody::Policy(body.clone()))]);
    }
    // A reader that knows the root alone and nothing below it.
    let forgetful = PgAgents::new(at.server.store("holdfast_gateway_agents"), GatewayId::new(Uuid::now_v7()));
    let root = bodies[0].digest();
    let (_, nodes) = tree_of(&bodies[0], |_| false);
    forgetful.keep_node(root, nodes[&root].clone());
    let loaded = forgetful.load_bodies(vec![(Component::Policy, root)]).await.unwrap();
    assert_eq!(loaded, [(root, StoredBody::Policy(bodies[0].clone()))]);
    assert!(forgetful.load_bodies(vec![(Component::Policy, Body::default().digest())]).await.is_err());
}

#[tokio::test]
async fn strangers_who_would_enrol_wait_for_each_other_and_leave_the_database_to_hosts() {
    const WAITING: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'holdfast_gateway_agents' AND wait_event_type = 'Lock'";
    let at = Installation::start().await;
    let (host, mut agent) = at.enrol("web-1").await;
    at.render(host, 1, &mk_body(0..4)).await;
    agent.converge(4).await;
    let held = at.server.hold("LOCK TABLE enrol_token_hashes, enrol_tokens IN ACCESS EXCLUSIVE MODE");
    let asking: JoinSet<u16> = (0..40)
        .map(|_| {
            let unknown = Token::generate(TokenKind::Enrol).unwrap();
            let (leaf, outcome) = (LeafKey::generate().unwrap(), SigningKey::generate().unwrap());
            let body = serde_json::to_vec(&mk_enrolment(unknown.reveal(), &leaf, &outcome)).unwrap();
            let (pin, url) =
                (self::tls::enrolment(at.ca.pin()).unwrap(), format!("https://{}{ENROL_PATH}", at.address));
            async move {
                let asked = Client::new(pin).request(Request::new(Method::POST, url).body(body)).await;
                asked.map_or(0, |answer| answer.status.as_u16())
            }
        })
        .collect();
    at.sql_until(WAITING, "2\n").await;
    // Meanwhile a host gets what is new, and what it says is recorded: forty such would hold every connection.
    let stamp = at.render(host, 2, &mk_body(0..5)).await;
    at.hint(host, stamp.version).await;
    agent.converge(5).await;
    at.sql_until("SELECT max(applied_version) FROM observed WHERE component = 1", "3\n").await;
    assert_eq!(at.server.sql(WAITING), "2\n");
    drop(held);
    let answers = asking.join_all().await;
    assert!(answers.iter().all(|status| matches!(status, 401 | 503)), "{answers:?}");
}

/// One Postgres, one door, one renderer by hand.
struct Installation {
    server: TestPostgres,
    renderer: Store,
    key: SigningKey,
    ca: Ca,
    roots: TrustRoots,
    term: LeaseTerm,
    address: SocketAddr,
    token: Token,
    wakes: mpsc::Sender<Wake>,
    bell: tokio::sync::Mutex<mpsc::Receiver<Hint>>,
    tasks: Tasks,
}

impl Installation {
    async fn start() -> Self {
        let server = TestPostgres::start_migrated().await;
        let (renderer, operators) = (server.store("holdfast_renderer"), server.store("holdfast_gateway_operators"));
        let Claim::Acquired(term) = renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "r").await.unwrap() else {
            panic!("nobody else renders")
        };
        let token = Token::generate(TokenKind::Enrol).unwrap();
        let created = EnrolTokenCreated {
            token: EnrolTokenId::new(Uuid::now_v7()),
            namespace: Name::default_namespace(),
            labels: Default::default(),
            ports: Vec::new(),
            region: None,
            owner: None,
            address_scope: vec!["10.0.0.0/8".parse().unwrap()],
            uses_max: 9,
            expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR,
        };
        let operator = Actor::Operator(ApiTokenId::new(Uuid::from_u128(1)));
        operators.create_enrol_token(operator, created, TokenHash(*token.hash().as_bytes())).await.unwrap();

        let ca = Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).unwrap();
        let roots = ca.roots().unwrap();
        let names = [ServerName::try_from("127.0.0.1").unwrap()];
        let credential = ca.issue_server(ServerRole::GatewayAgents, &names, OffsetDateTime::now_utc()).unwrap();
        let key = SigningKey::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new(Shutdown::new());
        let (wakes, woken) = mpsc::channel(16);
        let (rings, bell) = mpsc::channel(1_024);
        let config = DoorConfig {
            authority: TEST_AUTHORITY,
            renderer_certificate: ca.certify_signing_key(&key.verifying_key(), OffsetDateTime::now_utc()).unwrap(),
            session: SessionConfig::standard(vec![address.to_string()]),
            tls: Arc::new(ServerTls::new(agents_door(&credential, &roots).unwrap())),
            pace: Pace::default(),
            seed: 7,
            hooks: Hooks::default(),
        };
        let store = PgAgents::new(server.store("holdfast_gateway_agents"), GatewayId::new(Uuid::now_v7()));
        start(config, store, listener, woken, rings, &tasks);
        let bell = tokio::sync::Mutex::new(bell);
        Self { server, renderer, key, ca, roots, term, address, token, wakes, bell, tasks }
    }

    /// Enrols over HTTPS while the test decides as the renderer would, then opens a session.
    async fn enrol(&self, name: &str) -> (HostId, Agent) {
        let (leaf, outcome) = (LeafKey::generate().unwrap(), Arc::new(SigningKey::generate().unwrap()));
        let request =
            EnrolRequest { name: name.parse().unwrap(), ..mk_enrolment(self.token.reveal(), &leaf, &outcome) };
        let client = Client::new(tls::enrolment(self.ca.pin()).unwrap());
        let url = format!("https://{}{ENROL_PATH}", self.address);
        let ask = client.request(Request::new(Method::POST, url).body(serde_json::to_vec(&request).unwrap()));
        let (response, ()) = tokio::join!(ask, self.decide());
        let response = response.unwrap();
        assert_eq!(response.status, 200, "{:?}", response.body);
        let enrolled: EnrolResponse = serde_json::from_slice(&response.body).unwrap();
        for component in Component::ALL {
            self.commit(enrolled.host_id, component, 1, component.empty_digest(), BTreeMap::new()).await;
        }
        let credential = leaf.credential(enrolled.certificate_chain.as_bytes()).unwrap();
        let config = tls::agent(&credential, &self.roots, AgentProtocol::Session).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let server = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await.unwrap();
        let now = OffsetDateTime::now_utc();
        let renderer = VerifyingKey::certified(&enrolled.renderer_certificate, self.ca.certificate(), now).unwrap();
        let keys = FileKeys { renderer, outcome };
        let pinned = Authority { id: enrolled.authority_id, epoch: enrolled.authority_epoch };
        (enrolled.host_id, Agent::with_authority(stream, enrolled.host_id, keys, pinned))
    }

    /// Waits for the bell, as the renderer does, and grants what waits.
    async fn decide(&self) {
        let mut bell = self.bell.lock().await;
        while bell.recv().await.unwrap() != Hint::Request {}
        for request in self.renderer.waiting_requests(10).await.unwrap() {
            let RequestBody::Enrolment { csr, .. } = &request.body else { continue };
            let key = KeyRequest::from_der(csr).unwrap();
            let leaf = self.ca.issue_host(request.host, &key, OffsetDateTime::now_utc()).unwrap();
            let certificate = IssuedCertificate {
                serial: leaf.serial.iter().map(|byte| format!("{byte:02x}")).collect(),
                not_before: leaf.validity.not_before,
                not_after: leaf.validity.not_after,
                chain: leaf.chain_pem.into_bytes(),
            };
            self.renderer.decide_request(self.term, request, Decision::Grant(Some(certificate))).await.unwrap();
        }
        self.wakes.send(Wake::Lapsed).await.unwrap();
    }

    async fn render(&self, host: HostId, step: u64, body: &Body) -> Stamp {
        let (root, nodes) = tree_of(body, |_| false);
        // Enrolment rendered the empty policy as version 1.
        self.commit(host, Component::Policy, step + 1, root, nodes).await
    }

    async fn commit(
        &self,
        host: HostId,
        component: Component,
        version: u64,
        digest: holdfast_model::digest::Digest,
        artifacts: BTreeMap<holdfast_model::digest::Digest, Vec<u8>>,
    ) -> Stamp {
        let stamp = Stamp { version: Version::from_raw(version).unwrap(), digest };
        let desired = Desired { host, component, stamp };
        let epoch = AuthorityEpoch::from_raw(1);
        let statement = desired_bytes(Authority { id: TEST_AUTHORITY, epoch }, &desired);
        let signature = SignatureBytes::from_bytes(self.key.sign(&statement).0);
        let commit = RenderCommit {
            lease_term: self.term,
            authority_epoch: epoch,
            earlier: std::collections::BTreeMap::new(),
            revision: Revision::from_raw(1),
            intent: Revision::from_raw(1),
            is_of_held: false,
            let_go: None,
            hosts_rendered: 1,
            states: vec![SignedState { desired, signature }],
            artifacts,
        };
        self.renderer.commit_render(commit).await.unwrap();
        stamp
    }

    async fn hint(&self, host: HostId, version: Version) {
        let states = vec![(host, Component::Policy, version)];
        let hint = HostHint { lease_term: self.term, n: 1, of: None, states };
        self.wakes.send(Wake::Hint(Hint::Host(hint))).await.unwrap();
    }

    async fn sql_until(&self, sql: &str, wanted: &str) {
        let wait = async {
            while self.server.sql(sql) != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{sql}: {}", self.server.sql(sql));
    }
}
