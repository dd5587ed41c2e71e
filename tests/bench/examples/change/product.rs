//! The product's own way of a change: intent, renderer, bus, gateway, session; one host, and an agent without a kernel.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_bus::{Bus, BusConfig, HintListener};
use holdfast_events::{Actor, Detail, EnrolTokenCreated, Hint, OperationVerb, SignatureBytes, VerifyingKeyBytes};
use holdfast_gateway::agents::{DoorConfig, Hooks, Pace, PgAgents, start};
use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::tls::{self, ServerTls, agents_door};
use holdfast_identity::{Ca, LeafKey, ServerRole, SigningKey};
use holdfast_model::condition::{Holds, Reason};
use holdfast_model::desired::Component;
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, GatewayId, HostId};
use holdfast_model::intent::{
    DEFAULT_ORDER, HostSpec, Intent, Object, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::numbers::{Revision, UpdateSeq};
use holdfast_model::policy::{Action, Mode, PortRange, protocol};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Outcome, OutcomeKind};
use holdfast_renderer::leader::{self, Means, Wakes};
use holdfast_runtime::{Shutdown, Tasks};
use holdfast_session::gateway::Config as SessionConfig;
use holdfast_store::Store;
use holdfast_store::intent::{IntentChange, Prune};
use holdfast_store::request::{Enrolment, RequestAnswer};
use holdfast_store::session::{Fact, OutcomeReport, Seen, StatusSaid};
use holdfast_store::status::ComponentStatus;
use holdfast_store::testing::TestPostgres;
use holdfast_store::token::TokenHash;
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use crate::agent::{self, AgentKeys};

const DEADLINE: Duration = Duration::from_secs(30);
/// Nothing more is stored of the host's first states after so long a silence: facts are gathered for a quarter of a second at most.
const QUIET: Duration = Duration::from_millis(500);
const OPERATOR: Actor = Actor::Operator(ApiTokenId::new(Uuid::from_u128(1)));
/// The host has a policy of this many rules, each of one port and 20 peers: the typical policy of the comparison's floor.
const RULES: u16 = 60;
const PEERS: u8 = 20;

/// A whole control plane in one process, and one host that holds its desired state.
pub(crate) struct Product {
    operators: Store,
    bus: Bus,
    /// Rings on the bus, as the gateway's doors do.
    rings: mpsc::Sender<Hint>,
    bell: mpsc::Receiver<Hint>,
    agents: Store,
    host: HostId,
    documents: u16,
    edits: u32,
    gateway: GatewayId,
    /// Outcomes that were stored beside those of the agent.
    answers: u64,
    tasks: Tasks,
}

impl Product {
    /// Starts everything and waits until the host holds its policy.
    ///
    /// # Panics
    /// If a part does not start: there is nothing to measure then.
    pub(crate) async fn start(postgres: &TestPostgres, nats: &str, ca: Arc<Ca>, documents: u16) -> Self {
        let tasks = Tasks::new(Shutdown::new());
        let key = Arc::new(SigningKey::generate().expect("a key"));
        let renderer_key = key.verifying_key();
        let wakes = Arc::new(Wakes::default());
        let means = Means {
            store: postgres.store("holdfast_renderer"),
            bus: mk_bus(nats, "renderer").await,
            events: mk_bus(nats, "relay").await,
            ca: Arc::clone(&ca),
            key,
            wakes: Arc::clone(&wakes),
            holder: "bench".to_owned(),
        };
        renderer(&tasks, means, wakes);
        let (bell, agents, gateway, address) = door(&tasks, postgres, nats, &ca, renderer_key).await;
        let operators = postgres.store("holdfast_gateway_operators");
        let bus = mk_bus(nats, "operators").await;
        let (host, leaf, outcome) = enrol(&operators, &agents, &bus, gateway).await;
        let authority = agents.load_authority().await.expect("reads");
        let config = tls::agent(&leaf, &ca.roots().expect("roots"), AgentProtocol::Session).expect("a configuration");
        let stream = TcpStream::connect(address).await.expect("connects");
        stream.set_nodelay(true).expect("sets");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("agrees");
        let keys = AgentKeys { renderer: renderer_key, outcome };
        tasks.detached("agent", async move {
            agent::run(stream, host, authority, keys, |_, _| {}).await;
            Ok::<_, std::convert::Infallible>(())
        });
        let (rings, ringing) = holdfast_gateway::bell::bell(bus.clone());
        tasks.background("bell", async move {
            ringing.await;
            Ok::<_, std::convert::Infallible>(())
        });
        let mut product =
            Self { operators, bus, rings, bell, agents, host, documents, edits: 0, gateway, answers: 0, tasks };
        product.settle().await;
        product
    }

    /// Applies the policy and waits until the host holds it.
    async fn settle(&mut self) {
        self.apply(mk_objects(self.documents, 0)).await;
        let settled = async {
            loop {
                let status = self.operators.fleet_status(None).await.expect("reads");
                let in_force = |part: &ComponentStatus| {
                    part.latest.is_some() && part.outcome.as_ref().and_then(|o| o.outcome.applied) == part.latest
                };
                let settled = status.hosts.iter().all(|host| host.components.iter().all(in_force));
                if status.rendered_revision == status.revision && settled {
                    return;
                }
                // The hint may have gone out before anybody listened.
                drop(self.bus.publish_hint(&Hint::Intent).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(DEADLINE, settled).await.expect("the host holds its policy in time");
        // What is stored behind the last outcome rings too, that a whole state was sent for one.
        while timeout(QUIET, self.bell.recv()).await.is_ok_and(|rung| rung.is_some()) {}
    }

    pub(crate) async fn apply(&self, puts: Vec<Object>) {
        let change = IntentChange {
            actor: OPERATOR,
            verb: OperationVerb::Apply,
            puts,
            deletes: vec![],
            prune: Prune::Nothing,
            expected: None,
            key: None,
            because: None,
        };
        self.operators.apply_intent(change).await.expect("applies");
    }

    /// One change of one peer: from before it is asked for, and from its commit on, until its outcome is stored.
    ///
    /// # Panics
    /// If no outcome comes.
    pub(crate) async fn change(&mut self) -> (Duration, Duration) {
        let objects = self.next_edit();
        let begun = Instant::now();
        self.apply(objects).await;
        let committed = Instant::now();
        // As the operators' door does: right after the commit, and nobody waits for the broker's answer.
        for hint in [Hint::Intent, Hint::Event] {
            self.rings.try_send(hint).expect("the bell has room");
        }
        // The agents' door rings when facts are stored; with one host and a delta the only fact is the outcome.
        loop {
            match timeout(DEADLINE, self.bell.recv()).await.expect("an outcome in time").expect("the door is open") {
                hint @ Hint::Event => {
                    let done = (begun.elapsed(), committed.elapsed());
                    self.rings.try_send(hint).expect("the bell has room");
                    return done;
                }
                Hint::Answer { .. } | Hint::Host(_) | Hint::Intent | Hint::Request => {}
            }
        }
    }

    /// What the next change asks for.
    pub(crate) fn next_edit(&mut self) -> Vec<Object> {
        self.edits += 1;
        // Only what was edited is asked for: the first document.
        let mut objects = mk_objects(self.documents, self.edits);
        objects.truncate(1);
        objects
    }

    /// Everything in force.
    pub(crate) async fn intent(&self) -> (Revision, Intent) {
        self.operators.load_intent(None).await.expect("reads")
    }

    /// Stores an outcome of the host's session behind those that its agent gave, with a status that says something new or alone.
    ///
    /// # Panics
    /// If it is not stored.
    pub(crate) async fn store_outcome(&mut self, with_status: bool) -> Duration {
        let status = self.operators.fleet_status(None).await.expect("reads");
        let [host] = status.hosts.as_slice() else { panic!("one host") };
        let session_epoch = host.session.as_ref().expect("it is open").session_epoch;
        let policy = host.components.iter().find(|part| part.component == Component::Policy).expect("a policy");
        let stamp = policy.latest.expect("it is rendered");
        self.answers += 1;
        let (host, signature) = (self.host, SignatureBytes::from_bytes([7; 64]));
        let outcome = Outcome {
            host,
            session_epoch,
            update_seq: UpdateSeq::from_raw(1_000_000 + self.answers),
            component: Component::Policy,
            kind: OutcomeKind::Applied,
            wanted: stamp,
            applied: Some(stamp),
        };
        let (reason, detail, conditions) = (Reason::Done, Detail::new(""), Vec::new());
        let outcome = Seen::Outcome(Box::new(OutcomeReport { outcome, reason, detail, conditions, signature }));
        let mut facts = vec![Fact { host, session_epoch, seen: outcome }];
        if with_status {
            let mut report = HostReport::of_health(&[(Component::Policy, stamp)], UpdateSeq::ZERO, self.answers);
            // Every second one says that something is not so: each is another than the one before.
            let is_odd = self.answers % 4 < 2;
            for one in report.components.iter_mut().flat_map(|part| &mut part.conditions).take(usize::from(is_odd)) {
                one.condition.status = Holds::Unknown;
            }
            let said = StatusSaid { seq: 1_000_000 + self.answers, report, signature };
            facts.push(Fact { host, session_epoch, seen: Seen::Status(Box::new(said)) });
        }
        let begun = Instant::now();
        let recorded = self.agents.record_facts(self.gateway, facts).await.expect("records");
        let took = begun.elapsed();
        assert_eq!((recorded.stale.len(), recorded.statuses_new), (0, usize::from(with_status)));
        took
    }

    /// The version of the host's policy.
    ///
    /// # Panics
    /// If it was never rendered.
    pub(crate) async fn version(&self) -> u64 {
        let states = self.agents.latest_of(vec![self.host]).await.expect("reads");
        let policy = states.iter().find(|s| s.state.desired.component == holdfast_model::desired::Component::Policy);
        policy.expect("it was rendered").state.desired.stamp.version.raw()
    }

    /// Ends every part.
    pub(crate) async fn stop(self) {
        self.tasks.shutdown().ask();
        if let Err(error) = self.tasks.finish(Duration::from_secs(10)).await {
            tracing::warn!(%error, "a part did not end in order");
        }
    }
}

fn renderer(tasks: &Tasks, means: Means, wakes: Arc<Wakes>) {
    let (told, mut woken) = mpsc::channel(64);
    for hint in [Hint::Intent, Hint::Request, Hint::Event] {
        let name = format!("renderer-{}", hint.subject().replace('.', "-"));
        let listener = HintListener::new(means.bus.clone(), name, hint.subject(), told.clone());
        tasks.background("hints", async move {
            listener.run().await;
            Ok::<_, std::convert::Infallible>(())
        });
    }
    tasks.background("wakes", async move {
        while let Some(wake) = woken.recv().await {
            match wake {
                holdfast_bus::Wake::Hint(Hint::Intent) => wakes.intent.notify_one(),
                holdfast_bus::Wake::Hint(Hint::Request) => wakes.request.notify_one(),
                holdfast_bus::Wake::Hint(_) => wakes.event.notify_one(),
                holdfast_bus::Wake::Lapsed => wakes.all(),
            }
        }
        Ok::<_, std::convert::Infallible>(())
    });
    let stop = tasks.shutdown().token();
    tasks.background("leader", async move {
        leader::run(means, stop).await;
        Ok::<_, std::convert::Infallible>(())
    });
}

async fn door(
    tasks: &Tasks,
    postgres: &TestPostgres,
    nats: &str,
    ca: &Ca,
    renderer_key: holdfast_identity::VerifyingKey,
) -> (mpsc::Receiver<Hint>, Store, GatewayId, std::net::SocketAddr) {
    let gateway = GatewayId::new(Uuid::now_v7());
    let names = [ServerName::try_from("localhost").expect("a name")];
    let server = ca.issue_server(ServerRole::GatewayAgents, &names, OffsetDateTime::now_utc()).expect("a certificate");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (told, wakes) = mpsc::channel(1_024);
    let bus = mk_bus(nats, "gateway").await;
    for (name, subject) in [("host", "holdfast.hint.host"), ("answer", "holdfast.hint.answer")] {
        let listener = HintListener::new(bus.clone(), format!("gateway-{name}"), subject, told.clone());
        tasks.background("hints", async move {
            listener.run().await;
            Ok::<_, std::convert::Infallible>(())
        });
    }
    let (ring, bell) = mpsc::channel(4_096);
    let config = DoorConfig {
        authority: ca.authority(),
        renderer_certificate: ca.certify_signing_key(&renderer_key, OffsetDateTime::now_utc()).expect("a certificate"),
        session: SessionConfig::standard(vec![address.to_string()]),
        tls: Arc::new(ServerTls::new(agents_door(&server, &ca.roots().expect("roots")).expect("a configuration"))),
        pace: Pace::default(),
        seed: 1,
        hooks: Hooks::default(),
    };
    let agents = postgres.store("holdfast_gateway_agents");
    start(config, PgAgents::new(agents.clone(), gateway), listener, wakes, ring, tasks);
    (bell, agents, gateway, address)
}

async fn enrol(
    operators: &Store,
    agents: &Store,
    bus: &Bus,
    gateway: GatewayId,
) -> (HostId, holdfast_identity::Credential, Arc<SigningKey>) {
    let hash = TokenHash([3; 32]);
    let token = EnrolTokenCreated {
        token: EnrolTokenId::new(Uuid::now_v7()),
        namespace: Name::default_namespace(),
        labels: [("role".to_owned(), "db".to_owned())].into(),
        ports: vec![],
        region: None,
        owner: None,
        address_scope: vec![],
        uses_max: 1,
        expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR,
    };
    operators.create_enrol_token(OPERATOR, token, hash).await.expect("creates");
    let (leaf, outcome) = (LeafKey::generate().expect("a key"), Arc::new(SigningKey::generate().expect("a key")));
    let enrolment = Enrolment {
        hash,
        name: "db-1".parse().expect("a name"),
        addresses: vec![[10, 0, 0, 1].into()],
        outcome_key: VerifyingKeyBytes::from_bytes(*outcome.verifying_key().as_bytes()),
        csr: leaf.request().expect("a request"),
    };
    let asked = agents.request_enrolment(gateway, enrolment).await.expect("asks");
    let (request, host) = asked.expect("the token is good");
    let answered = async {
        loop {
            // Until the streams are there, hints are lost; that costs time, and here a repetition.
            drop(bus.publish_hint(&Hint::Request).await);
            let answers = agents.request_answers(vec![request]).await.expect("reads");
            if let Some((_, _, RequestAnswer::Granted { certificate_chain: Some(chain) })) = answers.into_iter().next()
            {
                return chain;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let chain = timeout(DEADLINE, answered).await.expect("enrolled in time");
    (host, leaf.credential(&chain).expect("it fits the key"), outcome)
}

/// Policies of [`RULES`] rules in all, in so many documents; the `edit` moves one peer of the first document. The last object is the host.
fn mk_objects(documents: u16, edit: u32) -> Vec<Object> {
    let db = Selector::equal_to(&Labels::from([("role".to_owned(), "db".to_owned())]));
    let rule = |n: u16| {
        let peers = (0..PEERS).map(|peer| {
            let fixed = 0x0b00_0000 | (u32::from(n) << 12) | (u32::from(peer) << 4);
            let address = if n == 0 && peer == 0 { 0x0c00_0000 + edit } else { fixed };
            let address = std::net::Ipv4Addr::from_bits(address);
            Peer::Cidr { cidr: ipnet::IpNet::from(std::net::IpAddr::from(address)), except: vec![] }
        });
        PolicyRule {
            order: DEFAULT_ORDER,
            action: Action::Allow,
            peers: PeerSpec::Of(peers.collect::<BTreeSet<_>>().into_iter().collect()),
            services: ServiceSpec::Of(vec![Service::Ports {
                protocol: protocol::TCP,
                ports: PortSpec::Range(PortRange::single(1_000 + n)),
            }]),
            local: None,
            log: false,
        }
    };
    let put =
        |name: &str, spec| Object { namespace: Name::default_namespace(), name: name.parse().expect("a name"), spec };
    let document = |nth: u16| {
        let ingress = (0..RULES).filter(|n| n % documents == nth).map(rule).collect();
        let policy = Policy { subject: db.clone(), isolate_ingress: true, ingress, ..Policy::default() };
        put(&format!("db-{nth}"), Spec::Policy(policy))
    };
    let host = put("db-1", Spec::Host(HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() }));
    (0..documents).map(document).chain([host]).collect()
}

async fn mk_bus(url: &str, user: &str) -> Bus {
    let config = BusConfig { url: url.to_owned(), name: user.to_owned(), user: user.to_owned(), tls: None };
    Bus::connect(config).await.expect("the address is good")
}
