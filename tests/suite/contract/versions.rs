//! Builds of different protocols: an agent that speaks the first one by its frozen module and nothing else, at a real gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::artifact;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{Delta, apply};
use holdfast_wire::code::FaultCode;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Hello, HelloAck, Inventory, Liveness, Message, Update, UpdateContent};
use holdfast_wire::negotiate::{Protocol, ProtocolRange};
use holdfast_wire::{decode_changes, v1};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use crate::control_plane::ControlPlane;
use crate::peer::{Peer, host_view};

const DEADLINE: Duration = Duration::from_secs(20);

/// An agent as the first protocol knows one: no machine, no word of a later build.
struct FirstAgent<'a> {
    peer: &'a Peer,
    stream: TlsStream<TcpStream>,
    deframer: Deframer,
    session_epoch: SessionEpoch,
    policy: Body,
    held: BTreeMap<Component, Stamp>,
    forms: Vec<&'static str>,
}

impl<'a> FirstAgent<'a> {
    /// Dials and says hello.
    async fn dial(plane: &ControlPlane, peer: &'a Peer) -> Self {
        let stream = TcpStream::connect(plane.agents_door()).await.expect("the door is open");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let connector = TlsConnector::from(Arc::new(peer.tls(AgentProtocol::Session)));
        let stream = connector.connect(name, stream).await.expect("TLS with the host's certificate");
        let mut agent = Self {
            peer,
            stream,
            deframer: Deframer::new(FRAME_BYTES_MAX),
            session_epoch: SessionEpoch::from_raw(0),
            policy: Body::default(),
            held: BTreeMap::new(),
            forms: Vec::new(),
        };
        let inventory = Inventory { addresses: vec![[10, 0, 0, 1].into()], ..Inventory::default() };
        agent
            .say(&Message::Hello(Hello {
                protocols: ProtocolRange::only(Protocol::V1),
                agent_version: "0.1.0".to_owned(),
                boot_id: Uuid::from_u128(7),
                applied: Vec::new(),
                capabilities: Vec::new(),
                inventory,
            }))
            .await;
        agent
    }

    /// Dials, and is let in.
    async fn open(plane: &ControlPlane, peer: &'a Peer) -> (Self, HelloAck) {
        let mut agent = Self::dial(plane, peer).await;
        let said = agent.hear().await;
        let Message::HelloAck(ack) = said else { panic!("{said:?}") };
        assert_eq!((ack.protocol, ack.authority), (1, peer.authority));
        agent.session_epoch = ack.session_epoch;
        (agent, ack)
    }

    async fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        v1::encode(message, &mut bytes).expect("the first protocol has it");
        self.stream.write_all(&bytes).await.and(self.stream.flush().await).expect("the door takes bytes");
    }

    /// The next message that is no liveness, read by the first protocol alone.
    async fn hear(&mut self) -> Message {
        let mut buffer = [0; 4096];
        let hearing = async {
            loop {
                while let Some(frame) = self.deframer.poll_frame().expect("frames") {
                    let message = v1::decode(&frame).expect("frames of the first protocol");
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
    async fn take(&mut self) {
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

fn apply_policy(plane: &ControlPlane, cidr: &str) {
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: kept}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{cidr}]}}]\n"
    );
    let file = plane.file("kept.yaml", text);
    let applied = plane.holdfast(&["apply", "-f", &file.display().to_string()]);
    assert!(applied.status.success(), "{applied:?}");
}

fn until_synced(plane: &ControlPlane, name: &str, version: u64) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let view = host_view(plane, name);
        let policy = &view["components"][0];
        if view["sync"] == "SYNCED" && view["state"] == "converged" && policy["applied"]["version"] == version {
            return;
        }
        assert!(Instant::now() < deadline, "{view}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_an_agent_that_speaks_the_first_protocol_only_works_with_this_gateway() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "old", "10.0.0.1").await;
    let (mut agent, _) = FirstAgent::open(&plane, &peer).await;
    for _ in Component::ALL {
        agent.take().await;
    }
    assert_eq!(agent.forms, ["snapshot"; 4]);
    let first = agent.held[&Component::Policy].version;
    until_synced(&plane, "old", first.raw());

    // An edit comes as changes, and is proven.
    apply_policy(&plane, "{cidr: 192.0.2.0/24}, {cidr: 198.51.100.0/24}");
    agent.take().await;
    assert_eq!(agent.forms.last(), Some(&"delta"));
    let second = agent.held[&Component::Policy].version;
    assert!(second > first);
    until_synced(&plane, "old", second.raw());

    // What the gateway does not know is skipped and reported, in words of the first protocol.
    agent.say(&Message::Unknown(4_000)).await;
    let said = agent.hear().await;
    assert!(
        matches!(&said, Message::Fault(fault) if (fault.code, fault.message_kind) == (FaultCode::UnknownKind, 4_000)),
        "{said:?}"
    );
    agent.say(&Message::Liveness(Liveness { counter: 1 })).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    agent.take().await;
    until_synced(&plane, "old", agent.held[&Component::Policy].version.raw());
    plane.assert_runs();
}
