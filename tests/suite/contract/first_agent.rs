//! An agent of the first protocol or of the second, scripted: it answers live, by the frozen module of that and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::tls::client::AgentProtocol;
use holdfast_model::artifact;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{Delta, apply};
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Hello, HelloAck, Inventory, Message, Update, UpdateContent};
use holdfast_wire::negotiate::{Protocol, ProtocolRange};
use holdfast_wire::{decode_changes, v1, v2};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use crate::peer::Peer;

const DEADLINE: Duration = Duration::from_secs(20);

/// An agent as one earlier protocol knows one: no machine, no word of a later build.
pub(crate) struct FirstAgent<'a> {
    peer: &'a Peer,
    speaks: Protocol,
    stream: TlsStream<TcpStream>,
    deframer: Deframer,
    session_epoch: SessionEpoch,
    policy: Body,
    pub(crate) held: BTreeMap<Component, Stamp>,
    pub(crate) forms: Vec<&'static str>,
}

impl<'a> FirstAgent<'a> {
    /// Dials and says hello.
    pub(crate) async fn dial(door: SocketAddr, peer: &'a Peer) -> Self {
        Self::dial_with(Protocol::V1, door, peer, [10, 0, 0, 1], &[]).await
    }

    /// Dials as a host with this address that says it holds this.
    async fn dial_with(
        speaks: Protocol,
        door: SocketAddr,
        peer: &'a Peer,
        address: [u8; 4],
        applied: &[(Component, Stamp)],
    ) -> Self {
        let stream = TcpStream::connect(door).await.expect("the door is open");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let connector = TlsConnector::from(Arc::new(peer.tls(AgentProtocol::Session)));
        let stream = connector.connect(name, stream).await.expect("TLS with the host's certificate");
        let mut agent = Self {
            peer,
            speaks,
            stream,
            deframer: Deframer::new(FRAME_BYTES_MAX),
            session_epoch: SessionEpoch::from_raw(0),
            policy: Body::default(),
            held: BTreeMap::new(),
            forms: Vec::new(),
        };
        let inventory = Inventory { addresses: vec![address.into()], ..Inventory::default() };
        let hello = Hello {
            protocols: ProtocolRange::only(speaks),
            agent_version: "0.1.0".to_owned(),
            boot_id: Uuid::from_u128(7),
            applied: applied.to_vec(),
            capabilities: Vec::new(),
            inventory,
        };
        // Whatever is spoken then, a Hello is of the first protocol.
        let mut bytes = Vec::new();
        v1::encode(&Message::Hello(hello), &mut bytes).expect("the first protocol has it");
        agent.send(&bytes).await;
        agent
    }

    /// Dials, and is let in.
    pub(crate) async fn open(door: SocketAddr, peer: &'a Peer) -> (Self, HelloAck) {
        Self::open_with(door, peer, [10, 0, 0, 1]).await
    }

    /// Dials as a host with this address, and is let in.
    pub(crate) async fn open_with(door: SocketAddr, peer: &'a Peer, address: [u8; 4]) -> (Self, HelloAck) {
        Self::dial_with(Protocol::V1, door, peer, address, &[]).await.let_in().await
    }

    /// Dials as one of the second protocol, and is let in.
    pub(crate) async fn open_second(door: SocketAddr, peer: &'a Peer) -> (Self, HelloAck) {
        Self::dial_with(Protocol::V2, door, peer, [10, 0, 0, 1], &[]).await.let_in().await
    }

    /// Dials as a host that says it holds this, and is let in.
    pub(crate) async fn open_claiming(door: SocketAddr, peer: &'a Peer, applied: &[(Component, Stamp)]) -> Self {
        Self::dial_with(Protocol::V1, door, peer, [10, 0, 0, 1], applied).await.let_in().await.0
    }

    async fn let_in(mut self) -> (Self, HelloAck) {
        let said = self.hear().await;
        let Message::HelloAck(ack) = said else { panic!("{said:?}") };
        assert_eq!((ack.protocol, ack.authority), (self.speaks.number(), self.peer.authority));
        self.session_epoch = ack.session_epoch;
        (self, ack)
    }

    pub(crate) async fn say(&mut self, message: &Message) {
        let encode = if self.speaks == Protocol::V1 { v1::encode } else { v2::encode };
        let mut bytes = Vec::new();
        encode(message, &mut bytes).expect("its protocol has it");
        self.send(&bytes).await;
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.and(self.stream.flush().await).expect("the door takes bytes");
    }

    /// The next message that is no liveness, read by its protocol alone.
    pub(crate) async fn hear(&mut self) -> Message {
        let decode = if self.speaks == Protocol::V1 { v1::decode } else { v2::decode };
        let mut buffer = [0; 4096];
        let hearing = async {
            loop {
                while let Some(frame) = self.deframer.poll_frame().expect("frames") {
                    let message = decode(&frame).expect("frames of its protocol");
                    if !matches!(message, Message::Liveness(_)) {
                        return message;
                    }
                }
                let count = self.stream.read(&mut buffer).await.expect("the gateway is there");
                assert!(count > 0, "the gateway hung up");
                self.deframer.push(buffer.get(..count).unwrap_or_default());
            }
        };
        tokio::time::timeout(DEADLINE, hearing).await.expect("the gateway says something in time")
    }

    /// Takes one update, puts it into force as far as it has any, and answers.
    pub(crate) async fn take(&mut self) {
        let said = self.hear().await;
        let Message::Update(update) = said else { panic!("{said:?}") };
        let Update { update_seq, component, stamp, signature, content } = update;
        self.peer.assert_genuine(component, stamp, &signature);
        match content {
            UpdateContent::Snapshot { bytes_total } => {
                let mut body = Vec::new();
                while body.len() < usize::try_from(bytes_total).expect("short") {
                    let said = self.hear().await;
                    let Message::Chunk(chunk) = said else { panic!("{said:?}") };
                    assert_eq!(usize::try_from(chunk.offset).expect("short"), body.len());
                    body.extend_from_slice(&chunk.bytes);
                }
                if component == Component::Policy {
                    self.policy = artifact::decode(&body).expect("a policy");
                }
                self.forms.push("snapshot");
            }
            UpdateContent::Delta { base, changes } => {
                assert_eq!(self.held.get(&Component::Policy), Some(&base));
                let changes = decode_changes(&changes).expect("changes");
                let delta = Delta { base: base.digest, target: stamp.digest, changes };
                self.policy = apply(&self.policy, &delta).expect("they lead to what was signed");
                self.forms.push("delta");
            }
            UpdateContent::VersionOnly => self.forms.push("version"),
        }
        if component == Component::Policy {
            assert_eq!(self.policy.digest(), stamp.digest, "what is held is what was signed");
        }
        self.held.insert(component, stamp);
        let report = self.peer.applied(self.session_epoch, update_seq, component, stamp);
        self.say(&Message::Outcome(report)).await;
    }
}
