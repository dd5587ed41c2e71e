//! A gateway that does what a test says: the door's real TLS, the real frames, and no mind of its own.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::tls::{Admission, ServerTls, agents_door};
use holdfast_identity::{Ca, KeyRequest, ServerRole, Signature, SigningKey, VerifyingKey};
use holdfast_model::artifact;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::drift::DriftKind;
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq, Version};
use holdfast_model::policy::{Body, delta};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{
    Authority, Outcome, OutcomeKind, StatusPlace, desired_bytes, outcome_bytes, status_bytes,
};
use holdfast_session::gateway::Config;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::echo::{ECHO_BYTES, MAGIC};
use holdfast_wire::enrol::{ENROL_PATH, EnrolRequest, EnrolResponse, Problem, RENEW_PATH, RenewRequest, RenewResponse};
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{
    Chunk, Delivery, Drain, DriftReport, Hello, HelloAck, Message, OutcomeReport, Refusal, StatusReport, Update,
    UpdateContent,
};
use holdfast_wire::negotiate::Protocol;
use holdfast_wire::sync::{SYNC_PATH, SyncAnswer, SyncOutcome, SyncRequest, SyncState};
use holdfast_wire::{decode, encode, encode_changes, v1};
use rustls::pki_types::ServerName;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::server::TlsStream;
use uuid::Uuid;

/// A connection that waits for an answer.
pub(crate) type Connection = TlsStream<TcpStream>;

const PATIENCE: Duration = Duration::from_secs(20);

/// The gateway, its CA and its renderer in one.
pub(crate) struct Gateway {
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    tls: ServerTls,
    pub(crate) ca: Ca,
    pub(crate) renderer: SigningKey,
    pub(crate) authority: Authority,
    pub(crate) host: HostId,
    outcome_key: Option<VerifyingKey>,
    sessions: u64,
    /// What it speaks: of the first protocol by its frozen module and no other.
    pub(crate) protocol: Protocol,
    /// How old the certificates are that enrolment gives.
    pub(crate) leaf_age: time::Duration,
    /// How often both sides say that they live.
    pub(crate) liveness_interval_ms: u32,
    /// The gateways that it names to whoever enrols or opens a session: itself.
    pub(crate) named: Vec<String>,
    /// Who signs the certificates that it hands over, where that is not its CA.
    pub(crate) forger: Option<Ca>,
    /// Whose name they have, where that is not the host's.
    pub(crate) leaf_host: Option<HostId>,
}

impl Gateway {
    /// One that listens on a socket of whatever namespace.
    pub(crate) fn new(listener: TcpListener) -> Self {
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(3) };
        let ca = Ca::create(authority.id, OffsetDateTime::now_utc() - time::Duration::days(2)).unwrap();
        Self::of(listener, authority, ca)
    }

    /// Another one of the same authority.
    pub(crate) fn beside(&self, listener: TcpListener) -> Self {
        let folder = tempfile::tempdir().unwrap();
        self.ca.save(folder.path()).unwrap();
        let other = Self::of(listener, self.authority, Ca::load(folder.path()).unwrap());
        Self { outcome_key: self.outcome_key, ..other }
    }

    fn of(listener: TcpListener, authority: Authority, ca: Ca) -> Self {
        let named = vec![listener.local_addr().unwrap().to_string()];
        let name = ServerName::IpAddress(listener.local_addr().unwrap().ip().into());
        let credential = ca.issue_server(ServerRole::GatewayAgents, &[name], OffsetDateTime::now_utc()).unwrap();
        let tls = ServerTls::new(agents_door(&credential, &ca.roots().unwrap()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = runtime.block_on(async { tokio::net::TcpListener::from_std(listener) }).unwrap();
        let (renderer, host) = (SigningKey::generate().unwrap(), HostId::new(Uuid::from_u128(42)));
        Self {
            runtime,
            listener,
            tls,
            ca,
            renderer,
            authority,
            host,
            outcome_key: None,
            sessions: 0,
            protocol: Protocol::NEWEST,
            leaf_age: time::Duration::ZERO,
            liveness_interval_ms: 15_000,
            named,
            forger: None,
            leaf_host: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Whether the next one who connects hangs up during the handshake.
    pub(crate) fn shake_fails(&self) -> bool {
        self.runtime.block_on(async {
            let accepted = tokio::time::timeout(PATIENCE, accept_dial(&self.listener)).await.expect("the agent dials");
            match self.tls.accept(accepted).await {
                Err(_) => true,
                // TLS 1.3: the server is done before the client has judged its certificate.
                Ok(mut stream) => !matches!(stream.read(&mut [0; 1]).await, Ok(1..)),
            }
        })
    }

    /// Whether anybody connects within this time.
    pub(crate) fn is_dialled_within(&self, time: Duration) -> bool {
        self.runtime.block_on(async { tokio::time::timeout(time, accept_dial(&self.listener)).await.is_ok() })
    }

    /// Gives echoes back until something is so; a session that is dialled meanwhile is hung up on.
    pub(crate) fn echo_until(&self, done: impl Fn() -> bool) {
        while !done() {
            drop(self.runtime.block_on(next_dial(&self.listener)));
        }
    }

    /// Answers one enrolment; what was asked, to the byte.
    pub(crate) fn enrol(&mut self) -> Vec<u8> {
        let (body, stream) = self.hear_enrolment();
        let request: EnrolRequest = serde_json::from_slice(&body).unwrap();
        self.outcome_key = Some(request.outcome_key.parse().unwrap());
        let csr = KeyRequest::from_der(&STANDARD.decode(request.csr).unwrap()).unwrap();
        let leaf = self.leaf(&csr, self.leaf_age);
        let response = EnrolResponse {
            host_id: self.host,
            authority_id: self.authority.id,
            authority_epoch: self.authority.epoch,
            certificate_chain: leaf,
            renderer_certificate: self
                .ca
                .certify_signing_key(&self.renderer.verifying_key(), OffsetDateTime::now_utc())
                .unwrap(),
            gateways: self.named.clone(),
        };
        self.runtime.block_on(answer(stream, "200 OK", &serde_json::to_vec(&response).unwrap()));
        body
    }

    /// A certificate for a request, as this gateway hands it over.
    fn leaf(&self, csr: &KeyRequest, age: time::Duration) -> String {
        let (ca, host) = (self.forger.as_ref().unwrap_or(&self.ca), self.leaf_host.unwrap_or(self.host));
        ca.issue_host(host, csr, OffsetDateTime::now_utc() - age).unwrap().chain_pem
    }

    /// Hears one enrolment and does not answer; what was asked, and the connection that waits.
    pub(crate) fn hear_enrolment(&mut self) -> (Vec<u8>, TlsStream<TcpStream>) {
        let stream = self.runtime.block_on(accept(&self.listener, &self.tls));
        assert!(matches!(Admission::of(stream.get_ref().1, self.authority.id), Ok(Admission::HttpAnonymous)));
        self.runtime.block_on(read_request(stream, ENROL_PATH))
    }

    /// Refuses one enrolment; what was asked.
    pub(crate) fn refuse_enrolment(&mut self, status: u16, code: &str) -> Vec<u8> {
        let (body, stream) = self.hear_enrolment();
        self.refuse(stream, status, code);
        body
    }

    /// Refuses what was asked on a connection.
    pub(crate) fn refuse(&self, stream: TlsStream<TcpStream>, status: u16, code: &str) {
        let problem = Problem {
            kind: format!("urn:holdfast:problem:{code}"),
            title: "No".to_owned(),
            status,
            code: code.to_owned(),
            detail: "no".to_owned(),
        };
        let line = format!("{status} No");
        self.runtime.block_on(answer(stream, &line, &serde_json::to_vec(&problem).unwrap()));
    }

    /// Answers one renewal, which may come before or after a session that is turned away.
    pub(crate) fn renew(&mut self) {
        let (request, stream) = self.hear_renewal();
        self.answer_renewal(&request, stream);
    }

    /// Hears one renewal and does not answer yet; sessions before it are turned away.
    pub(crate) fn hear_renewal(&mut self) -> (RenewRequest, TlsStream<TcpStream>) {
        loop {
            let stream = self.runtime.block_on(accept(&self.listener, &self.tls));
            match Admission::of(stream.get_ref().1, self.authority.id).unwrap() {
                Admission::Session(_) => continue,
                Admission::HttpAnonymous => panic!("a renewal shows a certificate"),
                Admission::HttpHost(peer) => assert_eq!(peer.host, self.host),
            }
            let (body, stream) = self.runtime.block_on(read_request(stream, RENEW_PATH));
            return (serde_json::from_slice(&body).unwrap(), stream);
        }
    }

    pub(crate) fn answer_renewal(&self, request: &RenewRequest, stream: TlsStream<TcpStream>) {
        let csr = KeyRequest::from_der(&STANDARD.decode(&request.csr).unwrap()).unwrap();
        let response = RenewResponse { certificate_chain: self.leaf(&csr, time::Duration::ZERO) };
        self.runtime.block_on(answer(stream, "200 OK", &serde_json::to_vec(&response).unwrap()));
    }

    /// Refuses every session and answers whatever else is asked, until `done`.
    pub(crate) fn refuse_until(&mut self, code: RefusalCode, done: impl Fn() -> bool) {
        while !done() {
            let Some(accepted) = self.runtime.block_on(next_dial(&self.listener)) else { continue };
            let Ok(mut stream) = self.runtime.block_on(self.tls.accept(accepted)) else { continue };
            if !matches!(Admission::of(stream.get_ref().1, self.authority.id), Ok(Admission::Session(_))) {
                self.runtime.block_on(async {
                    let _asked = stream.read(&mut [0; 4096]).await;
                    answer(stream, "404 Not Found", b"{}").await;
                });
                continue;
            }
            let mut session = Session {
                gateway: self,
                stream,
                deframer: Deframer::new(FRAME_BYTES_MAX),
                seq: 0,
                drifts: VecDeque::new(),
                statuses: VecDeque::new(),
            };
            session.read();
            session.write(&Message::Refusal(Refusal { code, retry_after_ms: 0, detail: String::new() }));
        }
    }

    /// Hears the next poll; what it says, and the connection that waits for an answer.
    pub(crate) fn hear_poll(&mut self) -> (SyncRequest, TlsStream<TcpStream>) {
        let stream = self.runtime.block_on(accept(&self.listener, &self.tls));
        match Admission::of(stream.get_ref().1, self.authority.id).unwrap() {
            Admission::HttpHost(peer) => assert_eq!(peer.host, self.host),
            other @ (Admission::Session(_) | Admission::HttpAnonymous) => panic!("{other:?}"),
        }
        let (body, stream) = self.runtime.block_on(read_request(stream, SYNC_PATH));
        (serde_json::from_slice(&body).unwrap(), stream)
    }

    /// What a poll is answered where nothing changed.
    pub(crate) fn sync_answer(&self, delivery: Delivery) -> SyncAnswer {
        SyncAnswer {
            host_id: self.host,
            authority_id: self.authority.id,
            authority_epoch: self.authority.epoch,
            session_epoch: SessionEpoch::from_raw(self.sessions),
            delivery,
            body_bytes_max: Config::standard(vec![]).limits.body_bytes_max,
            gateways: vec![self.address().to_string()],
            states: Vec::new(),
            directives: Vec::new(),
            faults: Vec::new(),
            unread: false,
        }
    }

    /// One state of an answer, signed as the renderer does.
    pub(crate) fn sync_state(&self, seq: u64, component: Component, stamp: Stamp, body: &[u8]) -> SyncState {
        let desired = Desired { host: self.host, component, stamp };
        SyncState {
            component,
            stamp,
            signature: STANDARD.encode(self.renderer.sign(&desired_bytes(self.authority, &desired)).0),
            update_seq: Some(UpdateSeq::from_raw(seq)),
            body: Some(STANDARD.encode(body)),
            too_large_bytes: None,
        }
    }

    /// Answers a poll.
    pub(crate) fn answer_poll(&self, stream: TlsStream<TcpStream>, said: &SyncAnswer) {
        self.runtime.block_on(answer(stream, "200 OK", &serde_json::to_vec(said).unwrap()));
    }

    /// Fails unless the host signed this outcome.
    pub(crate) fn assert_signed(&self, said: &SyncOutcome) {
        let kinds = [OutcomeKind::Applied, OutcomeKind::Failed, OutcomeKind::RetainedLocalOverride];
        let outcome = Outcome {
            host: self.host,
            session_epoch: SessionEpoch::from_raw(self.sessions),
            update_seq: said.update_seq,
            component: said.component,
            kind: kinds.into_iter().find(|kind| kind.word() == said.kind).unwrap(),
            wanted: said.wanted,
            applied: said.applied,
        };
        let statement = outcome_bytes(self.authority, &outcome, &said.conditions);
        let signature = Signature(STANDARD.decode(&said.signature).unwrap().try_into().unwrap());
        self.outcome_key
            .as_ref()
            .expect("the host enrolled")
            .verify(&statement, &signature)
            .expect("the host signed it");
    }

    /// Waits for the next session and reads its Hello; says nothing yet.
    pub(crate) fn accept(&mut self) -> (Session<'_>, Hello) {
        let stream = self.runtime.block_on(accept(&self.listener, &self.tls));
        assert!(matches!(Admission::of(stream.get_ref().1, self.authority.id), Ok(Admission::Session(_))));
        self.sessions += 1;
        let mut session = Session {
            gateway: self,
            stream,
            deframer: Deframer::new(FRAME_BYTES_MAX),
            seq: 0,
            drifts: VecDeque::new(),
            statuses: VecDeque::new(),
        };
        let said = session.read();
        let Message::Hello(hello) = said else { panic!("{said:?}") };
        (session, hello)
    }

    /// Waits for the next session and opens it.
    pub(crate) fn open(&mut self) -> (Session<'_>, Hello) {
        let (mut session, hello) = self.accept();
        let authority = session.gateway.authority;
        session.acknowledge(authority);
        (session, hello)
    }
}

/// An accepted session.
pub(crate) struct Session<'a> {
    gateway: &'a mut Gateway,
    stream: TlsStream<TcpStream>,
    deframer: Deframer,
    seq: u64,
    /// What the agent said of drift beside what was waited for.
    drifts: VecDeque<DriftReport>,
    /// What it said of the host as a whole beside that.
    statuses: VecDeque<StatusReport>,
}

impl Session<'_> {
    pub(crate) fn acknowledge(&mut self, authority: Authority) {
        self.acknowledge_as(authority, Delivery::Push);
    }

    /// The same, and how this gateway delivers.
    pub(crate) fn acknowledge_as(&mut self, authority: Authority, delivery: Delivery) {
        let ack = HelloAck {
            protocol: self.gateway.protocol.number(),
            session_epoch: SessionEpoch::from_raw(self.gateway.sessions),
            authority,
            delivery,
            liveness_interval_ms: self.gateway.liveness_interval_ms,
            limits: Config::standard(vec![]).limits,
            gateways: self.gateway.named.clone(),
        };
        self.write(&Message::HelloAck(ack));
    }

    /// The next message that is no liveness and tells neither of drift nor of the host as a whole.
    pub(crate) fn read(&mut self) -> Message {
        loop {
            let message = self.read_any();
            if let Some(message) = self.put_aside(message) {
                return message;
            }
        }
    }

    /// Keeps what comes beside answers, for who asks for it; anything else is given back.
    fn put_aside(&mut self, message: Message) -> Option<Message> {
        if let Message::Drift(report) = message {
            self.drifts.push_back(report);
            return None;
        }
        if let Message::Status(status) = message {
            self.statuses.push_back(status);
            return None;
        }
        Some(message).filter(|message| !matches!(message, Message::Liveness(_)))
    }

    /// What the agent says of the host as a whole, until something of it holds; each has the host's signature and a number above the last.
    pub(crate) fn status_until(&mut self, what: &str, holds: impl Fn(&HostReport) -> bool) -> StatusReport {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status.report) {
                return status;
            }
            assert!(std::time::Instant::now() < until, "{what}: {status:?}");
        }
    }

    /// Whether a status has the host's signature, in this session.
    pub(crate) fn is_genuine(&self, status: &StatusReport) -> bool {
        let session_epoch = SessionEpoch::from_raw(self.gateway.sessions);
        let place = StatusPlace { host: self.gateway.host, session_epoch, seq: status.seq };
        let statement = status_bytes(self.gateway.authority, place, &status.report);
        let key = self.gateway.outcome_key.expect("the host enrolled");
        key.verify(&statement, &Signature(status.signature)).is_ok()
    }

    /// The next thing that the agent says of the host as a whole.
    pub(crate) fn status(&mut self) -> StatusReport {
        loop {
            if let Some(status) = self.statuses.pop_front() {
                return status;
            }
            let message = self.read_any();
            let other = self.put_aside(message);
            assert_eq!(other, None, "nothing else was asked for");
        }
    }

    /// The next report of drift.
    pub(crate) fn drift(&mut self) -> DriftReport {
        loop {
            if let Some(report) = self.drifts.pop_front() {
                return report;
            }
            let message = self.read_any();
            let other = self.put_aside(message);
            assert_eq!(other, None, "nothing else was asked for");
        }
    }

    /// Reports of drift until one of this kind has this total; that one.
    pub(crate) fn drift_until(&mut self, kind: DriftKind, total: u64) -> DriftReport {
        loop {
            let report = self.drift();
            if report.kind == kind && report.total >= total {
                assert_eq!(report.total, total, "{report:?}");
                return report;
            }
        }
    }

    /// How many reports of drift came beside what was waited for.
    pub(crate) fn drifts_heard(&self) -> usize {
        self.drifts.len()
    }

    fn read_any(&mut self) -> Message {
        loop {
            if let Some(frame) = self.deframer.poll_frame().unwrap() {
                return match self.gateway.protocol {
                    Protocol::V1 => v1::decode(&frame).unwrap(),
                    Protocol::V2 | Protocol::V3 => decode(&frame).unwrap(),
                };
            }
            let mut bytes = vec![0; 64 << 10];
            let read = async { tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes)).await };
            let len = self.gateway.runtime.block_on(read).expect("the agent says something").unwrap();
            assert!(len > 0, "the agent hung up");
            self.deframer.push(&bytes[..len]);
        }
    }

    /// How the agent hangs up: in order, by the end of TLS, or without a word.
    pub(crate) fn hears_goodbye(&mut self) -> bool {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let read = async { tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes)).await };
            match self.gateway.runtime.block_on(read).expect("the agent hangs up") {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits until the agent has said so many times that it lives; this side says so too.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn signs_of_life(&mut self, count: u64) {
        let mut signs = 0;
        while signs < count {
            let message = self.read_any();
            if matches!(message, Message::Liveness(_)) {
                signs += 1;
                self.write(&Message::Liveness(holdfast_wire::message::Liveness { counter: signs, status: None }));
            } else {
                let other = self.put_aside(message);
                assert_eq!(other, None, "nothing was asked for");
            }
        }
    }

    /// Sends a policy and says how often the agent said that it lives before it answered, and the longest silence; this side says so too.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn policy_by_signs_of_life(&mut self, version: u64, body: &Body) -> (OutcomeReport, usize, Duration) {
        let frames = self.frames_of(version, body);
        self.outcome_by_signs_of_life(&frames)
    }

    /// The same of any update.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn outcome_by_signs_of_life(&mut self, frames: &[u8]) -> (OutcomeReport, usize, Duration) {
        self.write_bytes(frames);
        let (mut signs, mut longest, mut heard) = (0, Duration::ZERO, std::time::Instant::now());
        loop {
            let message = self.read_any();
            longest = longest.max(heard.elapsed());
            heard = std::time::Instant::now();
            if matches!(message, Message::Liveness(_)) {
                signs += 1;
                self.write(&Message::Liveness(holdfast_wire::message::Liveness { counter: signs, status: None }));
                continue;
            }
            if let Message::Status(status) = message {
                self.statuses.push_back(status);
                continue;
            }
            let Message::Outcome(report) = message else { panic!("{message:?}") };
            return (report, usize::try_from(signs).unwrap(), longest);
        }
    }

    pub(crate) fn write(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        self.encode(message, &mut bytes);
        self.write_bytes(&bytes);
    }

    fn encode(&self, message: &Message, out: &mut Vec<u8>) {
        match self.gateway.protocol {
            Protocol::V1 => v1::encode(message, out).unwrap(),
            Protocol::V2 | Protocol::V3 => encode(self.gateway.protocol, message, out).unwrap(),
        }
    }

    /// Writes what may be no whole frame.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) {
        self.gateway.runtime.block_on(async {
            self.stream.write_all(bytes).await.unwrap();
            self.stream.flush().await.unwrap();
        });
    }

    /// Gives echoes back until something is so.
    pub(crate) fn echo_until(&self, done: impl Fn() -> bool) {
        self.gateway.echo_until(done);
    }

    /// Tells the agent to leave so many milliseconds from now.
    pub(crate) fn leave_after(&mut self, reconnect_after_ms: u32) {
        self.write(&Message::Drain(Drain { reconnect_after_ms, gateways: Vec::new() }));
    }

    /// The bytes of a policy's snapshot as the next update.
    pub(crate) fn frames_of(&mut self, version: u64, body: &Body) -> Vec<u8> {
        self.frames_of_component(Component::Policy, stamp(version, body), artifact::encode(body))
    }

    /// The bytes of any component's snapshot as the next update.
    pub(crate) fn frames_of_component(&mut self, component: Component, stamp: Stamp, bytes: Vec<u8>) -> Vec<u8> {
        let (update_seq, signature) = (self.next_seq(), self.signature(component, stamp));
        let content = UpdateContent::Snapshot { bytes_total: u32::try_from(bytes.len()).unwrap() };
        let mut frames = Vec::new();
        let update = Update { update_seq, component, stamp, signature, content };
        self.encode(&Message::Update(update), &mut frames);
        self.encode(&Message::Chunk(Chunk { update_seq, offset: 0, bytes }), &mut frames);
        frames
    }

    /// The renderer's key and authority, for words that are not for this host.
    pub(crate) fn renderer(&self) -> (&SigningKey, Authority) {
        (&self.gateway.renderer, self.gateway.authority)
    }

    /// A signature as the renderer makes it for this host.
    pub(crate) fn signature(&self, component: Component, stamp: Stamp) -> [u8; 64] {
        let desired = Desired { host: self.gateway.host, component, stamp };
        self.gateway.renderer.sign(&desired_bytes(self.gateway.authority, &desired)).0
    }

    /// Sends a snapshot under a given name and signature; its outcome.
    pub(crate) fn snapshot_as(
        &mut self,
        component: Component,
        stamp: Stamp,
        signature: [u8; 64],
        bytes: &[u8],
    ) -> OutcomeReport {
        let update_seq = self.next_seq();
        let content = UpdateContent::Snapshot { bytes_total: u32::try_from(bytes.len()).unwrap() };
        self.write(&Message::Update(Update { update_seq, component, stamp, signature, content }));
        let mut offset = 0;
        for part in bytes.chunks(200_000) {
            self.write(&Message::Chunk(Chunk { update_seq, offset, bytes: part.to_vec() }));
            offset += u32::try_from(part.len()).unwrap();
        }
        self.outcome()
    }

    /// Sends a policy as a gateway does; its outcome.
    pub(crate) fn policy(&mut self, version: u64, body: &Body) -> OutcomeReport {
        let stamp = stamp(version, body);
        let signature = self.signature(Component::Policy, stamp);
        self.snapshot_as(Component::Policy, stamp, signature, &artifact::encode(body))
    }

    /// Sends the empty components; all are applied.
    pub(crate) fn empty_components(&mut self) {
        for component in [Component::Settings, Component::Credentials, Component::Workloads] {
            let stamp = Stamp { version: Version::FIRST, digest: component.empty_digest() };
            let signature = self.signature(component, stamp);
            let report = self.snapshot_as(component, stamp, signature, &component.empty_bytes());
            assert_eq!(report.applied, Some(stamp), "{component}");
        }
    }

    /// Sends the difference of two policies; its outcome.
    pub(crate) fn delta(&mut self, base: (u64, &Body), target: (u64, &Body)) -> OutcomeReport {
        self.delta_as(base, target.1, stamp(target.0, target.1))
    }

    /// Sends the way from one policy to another under the name that it is given; its outcome.
    pub(crate) fn delta_as(&mut self, base: (u64, &Body), way: &Body, target: Stamp) -> OutcomeReport {
        self.changes(stamp(base.0, base.1), &delta::diff(base.1, way).changes, target)
    }

    /// Sends these changes; their outcome.
    pub(crate) fn changes(&mut self, base: Stamp, changes: &[delta::Change], target: Stamp) -> OutcomeReport {
        self.update(target, UpdateContent::Delta { base, changes: encode_changes(changes).unwrap() })
    }

    /// Sends another version of what is there; its outcome.
    pub(crate) fn version_only(&mut self, version: u64, body: &Body) -> OutcomeReport {
        self.update(stamp(version, body), UpdateContent::VersionOnly)
    }

    fn update(&mut self, stamp: Stamp, content: UpdateContent) -> OutcomeReport {
        let (update_seq, component) = (self.next_seq(), Component::Policy);
        let signature = self.signature(component, stamp);
        self.write(&Message::Update(Update { update_seq, component, stamp, signature, content }));
        self.outcome()
    }

    fn next_seq(&mut self) -> UpdateSeq {
        self.seq += 1;
        UpdateSeq::from_raw(self.seq)
    }

    /// The next outcome, whose signature is the host's.
    fn outcome(&mut self) -> OutcomeReport {
        let said = self.read();
        let Message::Outcome(report) = said else { panic!("{said:?}") };
        let outcome = Outcome {
            host: self.gateway.host,
            session_epoch: SessionEpoch::from_raw(self.gateway.sessions),
            update_seq: report.update_seq,
            component: report.component,
            kind: report.kind,
            wanted: report.wanted,
            applied: report.applied,
        };
        let statement = outcome_bytes(self.gateway.authority, &outcome, &report.conditions);
        let key = self.gateway.outcome_key.expect("the host enrolled");
        key.verify(&statement, &Signature(report.signature)).expect("the host signed it");
        assert_eq!(report.update_seq, UpdateSeq::from_raw(self.seq));
        report
    }
}

pub(crate) fn stamp(version: u64, body: &Body) -> Stamp {
    Stamp { version: Version::from_raw(version).unwrap(), digest: body.digest() }
}

async fn accept(listener: &tokio::net::TcpListener, tls: &ServerTls) -> TlsStream<TcpStream> {
    let accepted = tokio::time::timeout(PATIENCE, accept_dial(listener)).await.expect("the agent dials");
    tls.accept(accepted).await.unwrap()
}

/// The next connection that is no echo; echoes before it are given back.
async fn accept_dial(listener: &tokio::net::TcpListener) -> TcpStream {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        if !gave_echo(&mut stream).await {
            return stream;
        }
    }
}

/// Who connects within a moment, if that is no echo, which is given back; nobody who did is hung up on in the middle.
async fn next_dial(listener: &tokio::net::TcpListener) -> Option<TcpStream> {
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.ok()?;
    let (mut stream, _) = accepted.unwrap();
    (!gave_echo(&mut stream).await).then_some(stream)
}

/// Gives an echo back, as the real door does; whether it was one, or somebody who hung up.
async fn gave_echo(stream: &mut TcpStream) -> bool {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first == [MAGIC[0]] => {}
        Ok(1) => return false,
        Ok(_) | Err(_) => return true,
    }
    let mut bytes = [0; ECHO_BYTES];
    // Who sent it may have given up meanwhile.
    if stream.read_exact(&mut bytes).await.is_ok() && stream.write_all(&bytes).await.is_ok() {
        drop(stream.shutdown().await);
    }
    true
}

async fn read_request(mut stream: TlsStream<TcpStream>, path: &str) -> (Vec<u8>, TlsStream<TcpStream>) {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        let len = stream.read(&mut part).await.unwrap();
        bytes.extend_from_slice(&part[..len]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some(head) = text.find("\r\n\r\n") else { continue };
        let length = text.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let end = head + 4 + length.parse::<usize>().unwrap();
        if bytes.len() >= end {
            assert!(text.starts_with(&format!("post {path} ")), "{text}");
            return (bytes[head + 4..end].to_vec(), stream);
        }
    }
}

async fn answer(mut stream: TlsStream<TcpStream>, status: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream.shutdown().await.unwrap();
}
