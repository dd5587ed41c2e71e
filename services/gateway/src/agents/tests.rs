//! The door over real TLS on loopback, an authority in memory behind it, and agents that speak by the real machine.

#![expect(clippy::wildcard_enum_match_arm, reason = "what a test does not expect fails it, whatever it is")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bus::Wake;
use holdfast_events::{CloseReason, Fault, Hint, HostHint};
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::tls::{self, ServerTls, agents_door};
use holdfast_identity::{
    Ca, Credential, KeyRequest, LeafKey, ServerRole, Signature, SigningKey, Token, TokenKind, TrustRoots, VerifyingKey,
};
use holdfast_model::address::Interval;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Version};
use holdfast_model::policy::{
    Action, Body, Chain, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_runtime::{Shutdown, Tasks};
use holdfast_session::agent::{
    Apply, ApplyResult, CloseCause, Config, Content, Event, Keys, Session, body_of_delta, body_of_snapshot,
};
use holdfast_session::gateway::Config as SessionConfig;
use holdfast_session::time::Instant;
use holdfast_store::session::{Fact, Seen};
use holdfast_store::token::TokenHash;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::decode;
use holdfast_wire::echo::{ECHO_BYTES, MAGIC};
use holdfast_wire::enrol::{
    ENROL_BYTES_MAX, ENROL_PATH, EnrolRequest, EnrolResponse, Problem, RENEW_PATH, RenewRequest, TokenText,
};
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Hello, Inventory, SignatureBytes};
use holdfast_wire::negotiate::SPOKEN;
use hyper::Method;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use super::limits::RENEWAL_PAUSE;
use super::memory::Memory;
use super::{AgentsDoor, DoorConfig, Hooks, Pace, start};

mod absence;
mod askers;
mod delivery;
mod drift;
#[cfg(feature = "test-hooks")]
mod hook;
mod lives;
mod polls;
mod polls_bounds;
mod postgres;
mod status;
mod values;

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_session_gets_every_component_and_its_outcomes_are_recorded() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    assert!(agent.taken.iter().all(|taken| taken.form == "snapshot"));
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4).await;
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::SnapshotSent { .. })), 4);
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::Addresses(_))), 1);
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::Fault { .. })), 0);
    assert_eq!(estate.door.sessions(), 1);
}

#[tokio::test]
async fn a_change_travels_as_a_delta_after_a_hint_and_as_one_after_a_lost_hint() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    estate.memory.publish(agent.host, &mk_body(0..500));
    agent.converge(4).await;

    let mut stamp = estate.memory.publish(agent.host, &mk_body(0..501));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    assert_eq!((agent.last().form, agent.last().stamp), ("delta", stamp));
    assert!(agent.last().bytes < 60, "{} bytes", agent.last().bytes);
    // The first hint that is heard is a doubt, which a compare ends.
    let compared = async {
        while estate.memory.compares() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, compared).await.expect("it compares");

    // Three renders whose hints were lost: one compare, one delta.
    for members in [502, 503, 504] {
        stamp = estate.memory.publish(agent.host, &mk_body(0..members));
    }
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    agent.converge(6).await;
    assert_eq!((agent.last().form, agent.last().stamp), ("delta", stamp));
    assert_eq!(agent.policy, mk_body(0..504));
    assert_eq!(estate.memory.compares(), 2);
}

#[tokio::test]
async fn a_body_of_four_mebibytes_crosses_and_liveness_is_not_in_its_way() {
    let estate = Estate::start().await;
    let host = estate.enrol(1);
    let body = mk_body(0..850_000);
    assert!(holdfast_model::artifact::encode(&body).len() > 4 << 20);
    estate.memory.publish(host.id, &body);
    let mut agent = estate.connect(host).await;
    agent.converge(4).await;
    assert_eq!(agent.policy.digest(), body.digest());
}

#[tokio::test]
async fn a_failure_is_recorded_and_answered_by_one_snapshot() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    agent.fail_next = true;
    let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    assert_eq!((agent.last().form, agent.last().stamp), ("snapshot", stamp));
    let failed = |seen: &Seen| matches!(seen, Seen::Outcome(report) if report.outcome.kind == OutcomeKind::Failed);
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 6).await;
    assert_eq!(count(&facts, failed), 1);
}

#[tokio::test]
async fn a_newer_session_of_a_host_ends_the_older_one() {
    let estate = Estate::start().await;
    let host = estate.enrol(1);
    let mut first = estate.connect(host.clone()).await;
    first.converge(4).await;
    let mut second = estate.connect(host).await;
    second.converge(4).await;
    assert_eq!(first.closed().await, CloseCause::Theirs { code: RefusalCode::Superseded, retry_after_ms: 0 });
    let closed = |seen: &Seen| *seen == Seen::Closed(CloseReason::Superseded);
    estate.facts_until(|facts| count(facts, closed) == 1).await;
    assert_eq!(estate.door.sessions(), 1);
}

#[tokio::test]
async fn a_host_that_is_not_enrolled_is_refused_by_name() {
    let estate = Estate::start().await;
    let mut agent = estate.connect(estate.issue(1)).await;
    assert_eq!(agent.closed().await, CloseCause::Theirs { code: RefusalCode::HostUnknown, retry_after_ms: 0 });
}

#[tokio::test]
async fn while_the_authority_is_away_sessions_live_on_new_ones_wait_and_no_fact_is_lost() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4).await;
    let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
    agent.hold = true;
    estate.hint(agent.host, stamp.version).await;
    agent.until(|agent| agent.held.is_some()).await;

    estate.memory.set_away(true);
    agent.release();
    agent.converge(5).await;
    let mut late = estate.agent(2).await;
    match late.closed().await {
        CloseCause::Theirs { code: RefusalCode::AuthorityAway, retry_after_ms } => assert!(retry_after_ms > 0),
        other => panic!("{other:?}"),
    }
    let next = estate.memory.publish(agent.host, &mk_body(0..4));
    estate.hint(agent.host, next.version).await;
    estate.memory.set_away(false);
    agent.converge(6).await;
    assert_eq!(agent.last().stamp, next);
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 6).await;
}

#[tokio::test]
async fn an_outcome_that_the_host_did_not_sign_is_a_fault_and_no_outcome() {
    let estate = Estate::start().await;
    let mut host = estate.enrol(1);
    host.keys.outcome = Arc::new(SigningKey::generate().unwrap());
    let mut agent = estate.connect(host).await;
    agent.until(|agent| agent.taken.len() == 4).await;
    let forged = |seen: &Seen| matches!(seen, Seen::Fault { fault: Fault::BadSignature, .. });
    tokio::select! {
        facts = estate.facts_until(|facts| count(facts, forged) == 4) => {
            assert_eq!(count(&facts, |seen| matches!(seen, Seen::Outcome(_))), 0);
        }
        () = agent.until(|_| false) => {}
    }
}

#[tokio::test]
async fn an_echo_comes_back_byte_for_byte_and_anything_else_is_closed() {
    let estate = Estate::start().await;
    let mut bytes = vec![0xab; ECHO_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    let mut stream = TcpStream::connect(estate.address).await.unwrap();
    // In pieces, as a path may cut it.
    for piece in bytes.chunks(700) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, bytes);

    for other in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"HELLO"] {
        let mut stream = TcpStream::connect(estate.address).await.unwrap();
        stream.write_all(other).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        // A reset is as good as an end.
        drop(stream.read_to_end(&mut back).await);
        assert_eq!(back, b"");
    }
}

#[tokio::test]
async fn stalled_strangers_do_not_keep_an_honest_agent_out() {
    let estate = Estate::start().await;
    let mut stalled = Vec::new();
    for _ in 0..300 {
        stalled.push(TcpStream::connect(estate.address).await.unwrap());
    }
    let host = estate.enrol(1);
    let begun = tokio::time::Instant::now();
    let mut agent = estate.connect_from(host, [127, 0, 0, 2]).await;
    agent.converge(4).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_host_enrols_with_a_token_and_opens_a_session_with_what_it_got() {
    let estate = Estate::start().await;
    let token = Token::generate(TokenKind::Enrol).unwrap();
    estate.memory.allow_token(TokenHash(*token.hash().as_bytes()), 1);
    let (leaf, outcome) = (LeafKey::generate().unwrap(), Arc::new(SigningKey::generate().unwrap()));
    let request = mk_enrolment(token.reveal(), &leaf, &outcome);
    let client = Client::new(tls::enrolment(estate.ca.pin()).unwrap());
    let response = estate.post(&client, ENROL_PATH, &request).await;
    assert_eq!(response.status, 200, "{:?}", response.body);
    let enrolled: EnrolResponse = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(enrolled.authority_id, estate.ca.authority());
    let renderer =
        VerifyingKey::certified(&enrolled.renderer_certificate, estate.ca.certificate(), OffsetDateTime::now_utc());
    assert_eq!(renderer.unwrap(), estate.memory.renderer_key());
    let credential = leaf.credential(enrolled.certificate_chain.as_bytes()).unwrap();
    let keys = FileKeys { renderer: estate.memory.renderer_key(), outcome };
    let host = Host { id: enrolled.host_id, credential: Arc::new(credential), keys };
    let mut agent = estate.connect(host.clone()).await;
    agent.converge(4).await;

    let again = mk_enrolment(token.reveal(), &leaf, &host.keys.outcome);
    let problem = estate.refused(&client, ENROL_PATH, &again, 401).await;
    assert_eq!(problem.code, "token-spent");

    // And its next certificate needs the one that it has.
    let next = LeafKey::generate().unwrap();
    let csr = base64(&next.request().unwrap());
    let problem = estate.refused(&client, RENEW_PATH, &RenewRequest { csr: csr.clone() }, 401).await;
    assert_eq!(problem.code, "no-certificate");
    let config = tls::agent(&host.credential, &estate.roots, AgentProtocol::Http).unwrap();
    let client = Client::new(config);
    let response = estate.post(&client, RENEW_PATH, &RenewRequest { csr: csr.clone() }).await;
    assert_eq!(response.status, 200, "{:?}", response.body);

    // But not one after the other: whoever renews in a loop writes nothing.
    let asked = estate.memory.requests();
    let response = estate.post(&client, RENEW_PATH, &RenewRequest { csr: csr.clone() }).await;
    let problem: Problem = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((response.status.as_u16(), problem.code.as_str()), (429, "busy"), "{problem:?}");
    let wait: u64 = response.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=RENEWAL_PAUSE.as_secs()).contains(&wait), "{wait}");
    assert_eq!(estate.memory.requests(), asked);
    // Another host's turn is its own.
    let other = tls::agent(&estate.enrol(2).credential, &estate.roots, AgentProtocol::Http).unwrap();
    let response = estate.post(&Client::new(other), RENEW_PATH, &RenewRequest { csr }).await;
    assert_eq!(response.status, 200, "{:?}", response.body);
}

#[tokio::test]
async fn a_bad_enrolment_is_a_typed_problem_and_costs_no_use_of_the_token() {
    let estate = Estate::start().await;
    let token = Token::generate(TokenKind::Enrol).unwrap();
    estate.memory.allow_token(TokenHash(*token.hash().as_bytes()), 1);
    let (leaf, outcome) = (LeafKey::generate().unwrap(), SigningKey::generate().unwrap());
    let client = Client::new(tls::enrolment(estate.ca.pin()).unwrap());
    let good = mk_enrolment(token.reveal(), &leaf, &outcome);
    let foreign = Token::generate(TokenKind::Enrol).unwrap();
    for (request, status, code) in [
        (EnrolRequest { token: TokenText("hfe_nonsense".to_owned()), ..good.clone() }, 401, "token-malformed"),
        (EnrolRequest { token: TokenText(foreign.reveal().to_owned()), ..good.clone() }, 401, "token-unknown"),
        (EnrolRequest { csr: base64(b"nonsense"), ..good.clone() }, 422, "bad-field"),
        (EnrolRequest { outcome_key: "ed25519:12".to_owned(), ..good.clone() }, 422, "bad-field"),
        (EnrolRequest { kernel: "k".repeat(300), ..good.clone() }, 422, "bad-field"),
    ] {
        let problem = estate.refused(&client, ENROL_PATH, &request, status).await;
        assert_eq!(problem.code, code);
        assert!(!problem.detail.contains(token.reveal()));
    }
    let problem = estate.refused(&client, ENROL_PATH, &"no object", 400).await;
    assert_eq!(problem.code, "malformed");
    let problem = estate.refused(&client, ENROL_PATH, &"x".repeat(ENROL_BYTES_MAX + 1), 413).await;
    assert_eq!(problem.code, "body-too-large");
    let problem = estate.refused(&client, "/agent/v1/nothing", &good, 404).await;
    assert_eq!(problem.code, "not-found");
    assert_eq!(estate.post(&client, ENROL_PATH, &good).await.status, 200, "the token is still good");
}

#[tokio::test]
async fn shutdown_asks_every_agent_to_leave_and_records_each_goodbye() {
    let estate = Estate::start().await;
    let (mut one, mut two) = (estate.agent(1).await, estate.agent(2).await);
    one.converge(4).await;
    two.converge(4).await;
    let Estate { tasks, memory, .. } = estate;
    tasks.shutdown().ask();
    // An agent whose turn has come closes its connection.
    let leave = async |mut agent: Agent| assert_eq!(agent.closed().await, CloseCause::Drained);
    let (finished, ..) = tokio::join!(tasks.finish(DEADLINE), leave(one), leave(two));
    finished.unwrap();
    let closed = |seen: &Seen| *seen == Seen::Closed(CloseReason::Drained);
    assert_eq!(count(&memory.facts(), closed), 2, "{:?}", memory.facts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_leave_each_at_its_own_moment_and_the_gateway_ends_within_its_grace() {
    const SESSIONS: u32 = 1_000;
    // Both ends of each are in this process.
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).unwrap();
    let estate = Estate::start().await;
    let mut agents = JoinSet::new();
    for n in 0..SESSIONS {
        let (host, address, roots) = (estate.enrol(u128::from(n) + 1), estate.address, estate.roots.clone());
        // An address for each, as hosts have.
        let [_, _, high, low] = n.to_be_bytes();
        let from = [127, 1, high, low];
        agents.spawn(async move {
            let cause = connect_from(address, &roots, host, from).await.closed_quietly().await;
            (cause, tokio::time::Instant::now())
        });
        // Handshakes have a cap; an agent that is there lives on by itself.
        estate.sessions_until(usize::try_from(n).unwrap().saturating_sub(31)).await;
    }
    estate.sessions_until(usize::try_from(SESSIONS).unwrap()).await;

    let began = tokio::time::Instant::now();
    let Estate { tasks, memory, .. } = estate;
    tasks.shutdown().ask();
    let (finished, left) = tokio::join!(tasks.finish(holdfast_runtime::process::DRAIN_GRACE), agents.join_all());
    finished.unwrap();
    let mut seconds = std::collections::BTreeMap::<u64, usize>::new();
    for (cause, at) in left {
        let after = at.duration_since(began);
        assert_eq!(cause, CloseCause::Drained, "after {after:?}");
        *seconds.entry(after.as_secs()).or_default() += 1;
    }
    // Evenly it would be 100 a second for ten seconds.
    assert!(seconds.len() >= 7 && seconds.values().all(|count| *count <= 350), "{seconds:?}");
    let closed = |seen: &Seen| *seen == Seen::Closed(CloseReason::Drained);
    assert_eq!(count(&memory.facts(), closed), usize::try_from(SESSIONS).unwrap());
}

/// Counts what this thread counts from now on; the text of it.
fn counters() -> (metrics::LocalRecorderGuard<'static>, impl Fn() -> String) {
    let recorder: &'static _ =
        Box::leak(Box::new(metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder()));
    let handle = recorder.handle();
    (metrics::set_default_local_recorder(recorder), move || handle.render())
}

/// A door on loopback with its authority.
struct Estate {
    ca: Arc<Ca>,
    roots: TrustRoots,
    memory: Memory,
    door: AgentsDoor,
    address: SocketAddr,
    wakes: mpsc::Sender<Wake>,
    _bell: mpsc::Receiver<Hint>,
    tasks: Tasks,
}

/// One host's identity.
#[derive(Clone)]
struct Host {
    id: HostId,
    credential: Arc<Credential>,
    keys: FileKeys,
}

impl Estate {
    async fn start() -> Self {
        Self::start_with(Hooks::default()).await
    }

    async fn start_with(hooks: Hooks) -> Self {
        Self::start_as(hooks, |_| {}).await
    }

    /// One whose sessions have another configuration.
    async fn start_as(hooks: Hooks, configure: impl FnOnce(&mut SessionConfig)) -> Self {
        Self::start_at(Pace::default(), hooks, configure).await
    }

    /// One that goes at another pace.
    async fn start_at(pace: Pace, hooks: Hooks, configure: impl FnOnce(&mut SessionConfig)) -> Self {
        let authority = mk_authority();
        // Older than a certificate's life, so that one may be about to end.
        let made = OffsetDateTime::now_utc() - Duration::from_secs(2 * 24 * 3_600);
        let ca = Arc::new(Ca::create(authority.id, made).unwrap());
        let roots = ca.roots().unwrap();
        let names = [ServerName::try_from("localhost").unwrap(), ServerName::try_from("127.0.0.1").unwrap()];
        let server = ca.issue_server(ServerRole::GatewayAgents, &names, OffsetDateTime::now_utc()).unwrap();
        let memory = Memory::new(Arc::clone(&ca), authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new(Shutdown::new());
        let (wakes, woken) = mpsc::channel(16);
        let (bell, rung) = mpsc::channel(1_024);
        let mut session = SessionConfig::standard(vec![address.to_string()]);
        configure(&mut session);
        let config = DoorConfig {
            authority: authority.id,
            renderer_certificate: ca.certify_signing_key(&memory.renderer_key(), OffsetDateTime::now_utc()).unwrap(),
            session,
            tls: Arc::new(ServerTls::new(agents_door(&server, &roots).unwrap())),
            pace,
            seed: 7,
            hooks,
        };
        let door = start(config, memory.clone(), listener, woken, bell, &tasks);
        Self { ca, roots, memory, door, address, wakes, _bell: rung, tasks }
    }

    fn enrol(&self, n: u128) -> Host {
        let host = self.issue(n);
        self.memory.enrol(host.id, host.keys.outcome.verifying_key());
        host
    }

    /// A host with a good certificate that nobody has enrolled.
    fn issue(&self, n: u128) -> Host {
        self.issue_at(n, OffsetDateTime::now_utc())
    }

    /// One whose certificate was issued then.
    fn issue_at(&self, n: u128, now: OffsetDateTime) -> Host {
        let id = mk_host(n);
        let key = LeafKey::generate().unwrap();
        let request = KeyRequest::from_der(&key.request().unwrap()).unwrap();
        let leaf = self.ca.issue_host(id, &request, now).unwrap();
        let credential = Arc::new(key.credential(leaf.chain_pem.as_bytes()).unwrap());
        let outcome = Arc::new(SigningKey::generate().unwrap());
        Host { id, credential, keys: FileKeys { renderer: self.memory.renderer_key(), outcome } }
    }

    async fn agent(&self, n: u128) -> Agent {
        self.connect(self.enrol(n)).await
    }

    async fn connect(&self, host: Host) -> Agent {
        self.connect_from(host, [127, 0, 0, 1]).await
    }

    async fn connect_from(&self, host: Host, from: [u8; 4]) -> Agent {
        connect_from(self.address, &self.roots, host, from).await
    }

    /// An agent whose kernel takes little that it has not read.
    async fn connect_small(&self, host: Host) -> Agent {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        connect_by(socket, self.address, &self.roots, host).await
    }

    /// Until so many are open. A busy machine may take its time for many, as long as some more come.
    async fn sessions_until(&self, count: usize) {
        let (mut most, mut deadline) = (0, tokio::time::Instant::now() + DEADLINE);
        loop {
            let open = self.door.sessions();
            if open >= count {
                return;
            }
            if open > most {
                (most, deadline) = (open, tokio::time::Instant::now() + DEADLINE);
            }
            assert!(tokio::time::Instant::now() < deadline, "{open} of {count} sessions");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Until no build is under way and none waits.
    async fn built_until(&self) {
        let wait = async {
            while self.door.builds() != (0, 0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let built = tokio::time::timeout(DEADLINE, wait).await;
        assert!(built.is_ok(), "under way and waiting: {:?}", self.door.builds());
    }

    async fn hint(&self, host: HostId, version: Version) {
        self.hint_of(host, version, None).await;
    }

    /// One of so many states of a render.
    async fn hint_of(&self, host: HostId, version: Version, of: Option<u64>) {
        let states = vec![(host, Component::Policy, version)];
        let hint = HostHint { lease_term: LeaseTerm::from_raw(1), n: 1, of, states };
        self.wakes.send(Wake::Hint(Hint::Host(hint))).await.unwrap();
    }

    async fn facts_until(&self, done: impl Fn(&[Fact]) -> bool) -> Vec<Fact> {
        let wait = async {
            loop {
                let facts = self.memory.facts();
                if done(&facts) {
                    return facts;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(facts) => facts,
            Err(_) => panic!("not recorded in time: {:?}", self.memory.facts()),
        }
    }

    async fn post<T: serde::Serialize>(
        &self,
        client: &Client,
        path: &str,
        body: &T,
    ) -> holdfast_identity::https::Response {
        let url = format!("https://{}{path}", self.address);
        let request = Request::new(Method::POST, url).body(serde_json::to_vec(body).unwrap());
        client.request(request).await.unwrap()
    }

    async fn refused<T: serde::Serialize>(&self, client: &Client, path: &str, body: &T, status: u16) -> Problem {
        let response = self.post(client, path, body).await;
        let problem: Problem = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status.as_u16(), problem.status), (status, status), "{problem:?}");
        problem
    }
}

async fn connect_from(address: SocketAddr, roots: &TrustRoots, host: Host, from: [u8; 4]) -> Agent {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    connect_by(socket, address, roots, host).await
}

async fn connect_by(socket: TcpSocket, address: SocketAddr, roots: &TrustRoots, host: Host) -> Agent {
    let stream = socket.connect(address).await.unwrap();
    let config = tls::agent(&host.credential, roots, AgentProtocol::Session).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    Agent::new(stream, host.id, host.keys)
}

/// Keys as an agent has them.
#[derive(Clone, Debug)]
struct FileKeys {
    renderer: VerifyingKey,
    outcome: Arc<SigningKey>,
}

impl Keys for FileKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        self.renderer.verify(statement, &Signature(*signature)).is_ok()
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        self.outcome.sign(statement).0
    }
}

/// An update that was applied.
struct Taken {
    form: &'static str,
    bytes: usize,
    stamp: Stamp,
}

/// An agent without a kernel.
struct Agent {
    host: HostId,
    stream: TlsStream<TcpStream>,
    machine: Session<FileKeys>,
    deframer: Deframer,
    started: tokio::time::Instant,
    policy: Body,
    taken: Vec<Taken>,
    fail_next: bool,
    hold: bool,
    held: Option<Apply>,
    ended: Option<CloseCause>,
}

impl Agent {
    fn new(stream: TlsStream<TcpStream>, host: HostId, keys: FileKeys) -> Self {
        Self::with_authority(stream, host, keys, mk_authority())
    }

    fn with_authority(stream: TlsStream<TcpStream>, host: HostId, keys: FileKeys, pinned: Authority) -> Self {
        let inventory = Inventory { addresses: vec![[10, 0, 0, 7].into()], ..Inventory::default() };
        let hello = Hello {
            protocols: SPOKEN,
            agent_version: "0.1.0".to_owned(),
            boot_id: Uuid::nil(),
            applied: vec![],
            capabilities: vec![],
            inventory,
        };
        let config = Config { host, hello, pinned };
        Self {
            host,
            stream,
            machine: Session::new(config, keys, 5, Instant::default()),
            deframer: Deframer::new(FRAME_BYTES_MAX),
            started: tokio::time::Instant::now(),
            policy: Body::default(),
            taken: Vec::new(),
            fail_next: false,
            hold: false,
            held: None,
            ended: None,
        }
    }

    fn last(&self) -> &Taken {
        self.taken.last().unwrap()
    }

    async fn converge(&mut self, updates: usize) {
        self.until(|agent| agent.taken.len() >= updates).await;
        assert_eq!(self.taken.len(), updates);
    }

    /// Keeps the session going for a while.
    async fn idle(&mut self, wait: Duration) {
        let until = tokio::time::Instant::now() + wait;
        self.until(|_| tokio::time::Instant::now() >= until).await;
    }

    async fn closed(&mut self) -> CloseCause {
        self.until(|agent| agent.ended.is_some()).await;
        self.ended.unwrap()
    }

    /// Drives the session until something holds. A session that ends before fails the test, unless its end was awaited.
    async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let drive = async {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                self.step().await;
                if done(self) {
                    return;
                }
                assert!(self.ended.is_none(), "the session ended: {:?}", self.ended);
                tokio::select! {
                    read = self.stream.read(&mut buffer) => match read {
                        Ok(0) | Err(_) => self.machine.handle_lost(),
                        Ok(count) => self.take(&buffer[..count]),
                    },
                    () = tokio::time::sleep(Duration::from_millis(50)) => self.machine.handle_timeout(self.now()),
                }
            }
        };
        tokio::time::timeout(DEADLINE, drive).await.expect("in time");
    }

    /// Why the session ended; one of so many that none may wake for nothing.
    async fn closed_quietly(&mut self) -> CloseCause {
        let mut buffer = vec![0; 4 * 1024];
        loop {
            self.step().await;
            if let Some(cause) = self.ended {
                return cause;
            }
            let due = self.machine.poll_timeout().map_or(super::session::FAR, |(at, _)| at.since(self.now()));
            tokio::select! {
                read = self.stream.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => self.machine.handle_lost(),
                    Ok(count) => self.take(&buffer[..count]),
                },
                () = tokio::time::sleep(due) => self.machine.handle_timeout(self.now()),
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.started.elapsed().as_millis()).unwrap())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.deframer.push(bytes);
        while let Some(frame) = self.deframer.poll_frame().unwrap() {
            self.machine.handle_message(decode(&frame).unwrap(), self.now());
        }
    }

    async fn step(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Apply(apply) if self.hold => self.held = Some(*apply),
                Event::Apply(apply) => self.apply(*apply),
                Event::Closed(cause) => self.ended = Some(cause),
                Event::Opened(_) | Event::Drain(_) | Event::Fault { .. } | Event::Refused { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let mut out = Vec::new();
        while self.machine.poll_transmit(&mut out).unwrap().is_some() {}
        if !out.is_empty() {
            // The gateway may have closed already.
            drop(self.stream.write_all(&out).await);
            drop(self.stream.flush().await);
        }
    }

    fn release(&mut self) {
        self.hold = false;
        let apply = self.held.take().expect("one is held");
        self.apply(apply);
    }

    fn apply(&mut self, apply: Apply) {
        use holdfast_model::condition::{Condition, ConditionType, Holds};
        let is_policy = apply.component == Component::Policy;
        let (form, bytes, body) = match &apply.content {
            Content::Snapshot(bytes) if is_policy => ("snapshot", bytes.len(), body_of_snapshot(bytes, apply.stamp)),
            Content::Snapshot(bytes) => ("snapshot", bytes.len(), Ok(self.policy.clone())),
            Content::Delta { base, changes } => {
                ("delta", changes.len(), body_of_delta(&self.policy, *base, changes, apply.stamp))
            }
            Content::VersionOnly => ("version", 0, Ok(self.policy.clone())),
        };
        let result = match body {
            Ok(_) if std::mem::take(&mut self.fail_next) => {
                ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions: vec![] }
            }
            Ok(body) => {
                self.policy = body;
                self.taken.push(Taken { form, bytes, stamp: apply.stamp });
                ApplyResult { kind: OutcomeKind::Applied, in_force: Some(apply.stamp), conditions: vec![] }
            }
            Err(error) => {
                let condition = Condition {
                    kind: ConditionType::SnapshotAccepted,
                    status: Holds::False,
                    // A body with a flipped byte may not even be readable: either way it is not the one that was signed.
                    reason: match error.reason() {
                        holdfast_model::condition::Reason::Malformed => holdfast_model::condition::Reason::WrongDigest,
                        reason => reason,
                    },
                    message: error.to_string(),
                    observed_version: Some(apply.stamp.version),
                };
                ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions: vec![condition] }
            }
        };
        self.machine.handle_result(apply.update_seq, result);
    }
}

fn count(facts: &[Fact], matches: impl Fn(&Seen) -> bool) -> usize {
    facts.iter().filter(|fact| matches(&fact.seen)).count()
}

fn mk_host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

fn mk_authority() -> Authority {
    Authority { id: AuthorityId::new(Uuid::from_u128(77)), epoch: AuthorityEpoch::from_raw(1) }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn mk_enrolment(token: &str, leaf: &LeafKey, outcome: &SigningKey) -> EnrolRequest {
    EnrolRequest {
        token: TokenText(token.to_owned()),
        name: "web-1".parse().unwrap(),
        csr: base64(&leaf.request().unwrap()),
        outcome_key: outcome.verifying_key().to_string(),
        hostname: "web-1".to_owned(),
        kernel: "6.18.0".to_owned(),
        addresses: vec![[10, 0, 0, 7].into()],
    }
}

fn mk_body(members: std::ops::Range<u32>) -> Body {
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
    let v4: IntervalSet<u32> = members.map(|n| Interval::single(n * 3)).collect();
    let ingress = Chain { isolated: true, rules: vec![rule] };
    Body { mode: Mode::Enforced, ingress, sets: vec![Set { key, v4, v6: IntervalSet::empty() }], ..Body::default() }
        .canonical()
}
