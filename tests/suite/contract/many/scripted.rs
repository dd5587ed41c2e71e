//! A host of the newest protocol without machine or agent: it says what a test has it say, and nothing of itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Outcome, OutcomeKind, StatusPlace, outcome_bytes, status_bytes};
use holdfast_session::agent::Keys as _;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::{ENVELOPE_BYTES, FRAME_BYTES_MAX, LENGTH_BYTES};
use holdfast_wire::message::{Hello, Inventory, Kind, Message, OutcomeReport, StatusReport, Update, UpdateContent};
use holdfast_wire::negotiate::{Protocol, SPOKEN};
use holdfast_wire::{decode, encode};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use super::agent::{DEADLINE, Identity};
use crate::bad_input::frames::raw;

/// An update that came whole.
#[derive(Clone)]
pub(super) struct Came {
    pub(super) update_seq: UpdateSeq,
    pub(super) stamp: Stamp,
    /// The body, where it came as one.
    pub(super) body: Option<Vec<u8>>,
}

/// One session of such a host.
pub(super) struct Scripted {
    who: Identity,
    stream: TlsStream<TcpStream>,
    deframer: Deframer,
    session_epoch: SessionEpoch,
    statuses: u64,
    /// The newest update of each component.
    pub(super) came: BTreeMap<Component, Came>,
}

impl Scripted {
    /// Dials from an address of loopback, says hello and is let in.
    pub(super) async fn open(who: &Identity, to: SocketAddr, from: [u8; 4]) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((from, 0))).expect("an address of loopback");
        let stream = socket.connect(to).await.expect("the door is open");
        let config = agent(&who.credential, &who.roots, AgentProtocol::Session).expect("a configuration");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let mut host = Self {
            who: who.clone(),
            stream: stream.expect("TLS with the host's certificate"),
            deframer: Deframer::new(FRAME_BYTES_MAX),
            session_epoch: SessionEpoch::from_raw(0),
            statuses: 0,
            came: BTreeMap::new(),
        };
        let hello = Hello {
            protocols: SPOKEN,
            agent_version: "0.1.0".to_owned(),
            boot_id: Uuid::from_u128(7),
            applied: Vec::new(),
            capabilities: Vec::new(),
            inventory: Inventory::default(),
        };
        host.say(&Message::Hello(hello)).await;
        let said = host.hear().await;
        let Message::HelloAck(ack) = said else { panic!("{said:?}") };
        assert_eq!(ack.protocol, Protocol::V3.number());
        host.session_epoch = ack.session_epoch;
        host
    }

    /// The same, and takes the state of every component.
    pub(super) async fn open_whole(who: &Identity, to: SocketAddr, from: [u8; 4]) -> Self {
        let mut host = Self::open(who, to, from).await;
        while host.came.len() < Component::ALL.len() {
            host.take().await;
        }
        host
    }

    /// Sends bytes as they are.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.and(self.stream.flush().await).expect("the gateway takes bytes");
    }

    async fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(Protocol::V3, message, &mut bytes).expect("a message");
        self.send(&bytes).await;
    }

    /// The next message that is neither a sign of life nor a fault.
    async fn hear(&mut self) -> Message {
        let mut buffer = [0; 4096];
        let hearing = async {
            loop {
                while let Some(frame) = self.deframer.poll_frame().expect("frames") {
                    let said = decode(&frame).expect("messages");
                    if !matches!(said, Message::Liveness(_) | Message::Fault(_) | Message::Directive(_)) {
                        return said;
                    }
                }
                let count = self.stream.read(&mut buffer).await.expect("the gateway is there");
                assert!(count > 0, "{}: the gateway hung up", self.who.name);
                self.deframer.push(buffer.get(..count).unwrap_or_default());
            }
        };
        tokio::time::timeout(DEADLINE, hearing).await.expect("the gateway says something in time")
    }

    /// Takes the next update, and answers nothing.
    pub(super) async fn take(&mut self) -> Component {
        let said = self.hear().await;
        let Message::Update(Update { update_seq, component, stamp, content, .. }) = said else { panic!("{said:?}") };
        let body = match content {
            UpdateContent::Snapshot { bytes_total } => {
                let mut body = Vec::new();
                while body.len() < usize::try_from(bytes_total).expect("short") {
                    let said = self.hear().await;
                    let Message::Chunk(chunk) = said else { panic!("{said:?}") };
                    body.extend_from_slice(&chunk.bytes);
                }
                Some(body)
            }
            UpdateContent::Delta { .. } | UpdateContent::VersionOnly => None,
        };
        self.came.insert(component, Came { update_seq, stamp, body });
        component
    }

    /// The newest that came of a component.
    pub(super) fn stamp(&self, component: Component) -> Stamp {
        self.came[&component].stamp
    }

    /// Answers the newest update of a component, signed.
    pub(super) async fn answer(&mut self, component: Component, kind: OutcomeKind, applied: Option<Stamp>) {
        let report = self.outcome(component, kind, applied);
        self.say(&Message::Outcome(report)).await;
    }

    /// The same with a signature that is not its own.
    pub(super) async fn answer_forged(&mut self, component: Component) {
        let mut report = self.outcome(component, OutcomeKind::Applied, Some(self.stamp(component)));
        report.signature[7] ^= 1;
        self.say(&Message::Outcome(report)).await;
    }

    /// Answers the newest update of a component as one that is in force.
    pub(super) async fn applied(&mut self, component: Component) {
        let stamp = self.stamp(component);
        self.answer(component, OutcomeKind::Applied, Some(stamp)).await;
    }

    /// Answers an update of the policy before the newest as one that is in force, and says that all is well with it.
    pub(super) async fn policy_was_well(&mut self, came: &Came) {
        let newest = self.came.insert(Component::Policy, came.clone()).expect("something came");
        self.policy_is_well().await;
        self.came.insert(Component::Policy, newest);
    }

    fn outcome(&self, component: Component, kind: OutcomeKind, applied: Option<Stamp>) -> OutcomeReport {
        let Came { update_seq, stamp: wanted, .. } = self.came[&component];
        let (host, session_epoch) = (self.who.host, self.session_epoch);
        let condition = |kind| Condition {
            kind,
            status: Holds::True,
            reason: Reason::Done,
            message: String::new(),
            observed_version: Some(wanted.version),
        };
        let conditions: Vec<Condition> = ConditionType::OF_ATTEMPT.into_iter().map(condition).collect();
        let outcome = Outcome { host, session_epoch, update_seq, component, kind, wanted, applied };
        let signature = self.who.keys.sign(&outcome_bytes(self.who.pinned, &outcome, &conditions));
        OutcomeReport { update_seq, component, kind, wanted, applied, conditions, signature }
    }

    /// What it would say of itself as a whole if all were well with what came.
    pub(super) fn health(&self) -> HostReport {
        let held: Vec<_> = self.came.iter().map(|(component, came)| (*component, came.stamp)).collect();
        let answered = self.came.values().map(|came| came.update_seq).max().unwrap_or(UpdateSeq::ZERO);
        HostReport::of_health(&held, answered, 1_790_000_000_000)
    }

    /// Says how it is as a whole, signed.
    pub(super) async fn report(&mut self, report: HostReport) {
        let status = self.status(report);
        self.say(&Message::Status(status)).await;
    }

    /// The same with a signature that is not its own.
    pub(super) async fn report_forged(&mut self, report: HostReport) {
        let mut status = self.status(report);
        status.signature[7] ^= 1;
        self.say(&Message::Status(status)).await;
    }

    /// The same cut in the middle, as a frame that is whole.
    pub(super) async fn report_half(&mut self, report: HostReport) {
        let status = Message::Status(self.status(report));
        let mut bytes = Vec::new();
        encode(Protocol::V3, &status, &mut bytes).expect("a message");
        let half = bytes.get(LENGTH_BYTES + ENVELOPE_BYTES..bytes.len() / 2).expect("it is long");
        self.send(&raw(Protocol::V3.number(), Kind::Status.number(), half)).await;
    }

    fn status(&mut self, report: HostReport) -> StatusReport {
        self.statuses += 1;
        let place = StatusPlace { host: self.who.host, session_epoch: self.session_epoch, seq: self.statuses };
        let signature = self.who.keys.sign(&status_bytes(self.who.pinned, place, &report));
        StatusReport { seq: self.statuses, report, signature }
    }

    /// Answers everything that came as in force, and says that all is well.
    pub(super) async fn be_well(&mut self) {
        for component in Component::ALL {
            self.applied(component).await;
        }
        self.report(self.health()).await;
    }

    /// Answers the newest policy as in force, and says that all is well.
    pub(super) async fn policy_is_well(&mut self) {
        self.applied(Component::Policy).await;
        self.report(self.health()).await;
    }

    /// Says goodbye, as an agent that is stopped.
    pub(super) async fn leave(mut self) {
        self.stream.shutdown().await.expect("the gateway is there");
    }
}
