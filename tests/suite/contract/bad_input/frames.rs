//! Bytes to the agents' door, over real mutual TLS or instead of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::{Ca, Credential, KeyRequest, LeafKey};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{UpdateSeq, Version};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::code::DirectiveCode;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::{FRAME_BYTES_MAX, HELLO_FRAME_BYTES_MAX};
use holdfast_wire::message::{Directive, Hello, Inventory, Kind, Message, OutcomeReport};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN};
use holdfast_wire::{decode, encode};
use rustls::{AlertDescription, ClientConfig};
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use super::world::{Leaves, Said, World};

/// Of a Hello.
const FIRST: u16 = Protocol::FIRST.number();
/// Of what follows.
const NEWEST: u16 = Protocol::NEWEST.number();
const DEADLINE: Duration = Duration::from_secs(20);
/// A number that needs ten bytes.
const HUGE: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];

/// A session as an agent opens it, or tries to.
pub(crate) async fn dial(world: &World, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(world.plane.agents_door()).await?;
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Opens a session as the host and sends bytes; what the gateway says until it closes, or until it said enough.
async fn said_to(world: &World, config: ClientConfig, bytes: &[u8], enough: fn(&Message) -> bool) -> Vec<Message> {
    let mut stream = dial(world, config).await.expect("TLS with the host's certificate");
    stream.write_all(bytes).await.and(stream.flush().await).expect("the door takes bytes");
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    let mut said = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            deframer.push(buffer.get(..count).unwrap_or_default());
            while let Some(frame) = deframer.poll_frame().expect("the gateway sends frames") {
                let message = decode(&frame).expect("the gateway sends messages");
                let is_enough = enough(&message);
                said.push(message);
                if is_enough {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("the gateway answers or closes in time");
    said
}

/// The rules that messages name: the code of a refusal, the word before the colon of its text, the code of a fault.
fn rules_of(said: &[Message]) -> Said {
    let mut rules = Vec::new();
    for message in said {
        match message {
            Message::Refusal(refusal) => {
                rules.push(refusal.code.word().to_owned());
                rules.extend(refusal.detail.split_once(": ").map(|(rule, _)| rule.to_owned()));
            }
            Message::Fault(fault) => rules.push(fault.code.word().to_owned()),
            Message::Hello(_)
            | Message::HelloAck(_)
            | Message::Update(_)
            | Message::Chunk(_)
            | Message::Outcome(_)
            | Message::Inventory(_)
            | Message::Liveness(_)
            | Message::Drain(_)
            | Message::Directive(_)
            | Message::Drift(_)
            | Message::Status(_)
            | Message::Unknown(_) => {}
        }
    }
    Said { rules, text: format!("{said:?}") }
}

pub(crate) fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(Protocol::NEWEST, message, &mut bytes).expect("a message");
    bytes
}

pub(crate) fn raw(protocol: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).expect("short");
    [&length.to_be_bytes()[..], &protocol.to_be_bytes(), &kind.to_be_bytes(), payload].concat()
}

/// The frame of an honest Hello.
pub(crate) fn hello() -> Vec<u8> {
    frame(&mk_hello(SPOKEN))
}

fn mk_hello(protocols: ProtocolRange) -> Message {
    Message::Hello(Hello {
        protocols,
        agent_version: "0.1.0".to_owned(),
        boot_id: Uuid::from_u128(7),
        applied: Vec::new(),
        capabilities: Vec::new(),
        inventory: Inventory {
            hostname: "both".to_owned(),
            kernel: "6.1".to_owned(),
            addresses: vec![[10, 0, 0, 1].into()],
        },
    })
}

fn mk_outcome(update_seq: u64) -> Message {
    let digest = Component::Policy.empty_digest();
    Message::Outcome(OutcomeReport {
        update_seq: UpdateSeq::from_raw(update_seq),
        component: Component::Policy,
        kind: OutcomeKind::Applied,
        wanted: Stamp { version: Version::FIRST, digest },
        applied: Some(Stamp { version: Version::FIRST, digest }),
        conditions: Vec::new(),
        signature: [0; 64],
    })
}

/// Tries all of them.
pub(super) async fn check(world: &mut World) {
    check_first_frames(world).await;
    check_in_session(world).await;
    check_certificates(world).await;
    check_no_tls(world).await;
    // After all of it the same host opens a session like any other.
    let config = world.agent_tls(AgentProtocol::Session);
    let said = said_to(world, config, &hello(), |message| matches!(message, Message::Update(_))).await;
    assert!(matches!(said.first(), Some(Message::HelloAck(_))), "{said:?}");
    world.settle();
    check_counted(world);
}

/// Every refusal was counted by its name; earlier checks have some of their own.
fn check_counted(world: &World) {
    let counted = |name: &str, label: &str, word: &str| {
        let count = world.plane.counted(&format!("holdfast_gateway_{name}_total"), &[("by", "gateway"), (label, word)]);
        assert!(count > 0, "{name} {word}: {}", world.plane.gateway_metrics());
    };
    for code in ["malformed", "too_large", "wrong_first_message", "no_common_protocol", "duplicate_hello"] {
        counted("sessions_refused", "code", code);
    }
    for code in ["wrong_direction", "too_many_faults", "host_unknown"] {
        counted("sessions_refused", "code", code);
    }
    for kind in ["malformed", "unknown_kind", "bad_signature"] {
        counted("faults", "kind", kind);
    }
    for reason in ["handshake", "no_tls"] {
        let count = world.plane.counted("holdfast_gateway_connections_refused_total", &[("reason", reason)]);
        assert!(count > 0, "{reason}: {}", world.plane.gateway_metrics());
    }
}

/// What comes in the place of a Hello.
async fn check_first_frames(world: &mut World) {
    let whole = hello();
    let mut trailing = raw(FIRST, Kind::Hello.number(), &[whole.get(8..).unwrap_or_default(), &[0]].concat());
    // A second frame in the same write changes nothing: the first one ended the session.
    trailing.extend_from_slice(&whole);
    let too_long = u32::try_from(HELLO_FRAME_BYTES_MAX + 1).expect("short").to_be_bytes().to_vec();
    let nested = [&[1, 1, 5][..], b"0.1.0", &[0; 16], &HUGE].concat();
    let long_text = [&[1, 1][..], &[0xff, 0x7f], &[b'x'; 16_383]].concat();
    let cases = [
        ("frame-too-long", "65537 bytes", too_long),
        ("frame-too-short", "3 bytes", 3_u32.to_be_bytes().to_vec()),
        ("payload-trailing", "1 bytes remain", trailing),
        ("payload-unreadable", "hello message", raw(FIRST, Kind::Hello.number(), &nested)),
        ("frame-protocol", "protocol 7", raw(7, Kind::Hello.number(), whole.get(8..).unwrap_or_default())),
        (
            "field-too-large",
            "agent version of 16383",
            raw(FIRST, Kind::Hello.number(), &[&long_text[..], &[0; 21]].concat()),
        ),
        ("wrong_first_message", "begins with a hello", raw(FIRST, Kind::Liveness.number(), &[1])),
        ("no_common_protocol", "there 8 to 9", frame(&mk_hello(ProtocolRange { min: 8, max: 9 }))),
    ];
    for (rule, place, bytes) in cases {
        let config = world.agent_tls(AgentProtocol::Session);
        let said = rules_of(&said_to(world, config, &bytes, |_| false).await);
        world.refused(rule, place, Leaves::Nothing, &said);
    }
    // Bytes of chance, and a length that promises more than ever comes.
    let noise: Vec<u8> = (0..4_096_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    for (rule, bytes) in [("frame-too-long", [&[0xff][..], &noise].concat()), ("payload-unreadable", raw(1, 1, &noise))]
    {
        let config = world.agent_tls(AgentProtocol::Session);
        let said = rules_of(&said_to(world, config, &bytes, |_| false).await);
        world.refused_again(rule, "Refusal", Leaves::Nothing, &said);
    }
}

/// What comes when a session is open.
async fn check_in_session(world: &mut World) {
    let after = |bytes: &[u8]| [&hello()[..], bytes].concat();
    let directive = Message::Directive(Directive { code: DirectiveCode::Reconnect, argument: Vec::new() });
    let unsorted =
        Inventory { hostname: "x".to_owned(), kernel: "y".to_owned(), addresses: vec![[10, 0, 0, 1].into()] };
    let mut repeated = frame(&Message::Inventory(unsorted));
    // One address becomes the same one twice.
    let address = repeated.split_off(repeated.len() - 5);
    let mut twice = repeated.clone();
    twice.pop();
    twice.extend_from_slice(&[2]);
    twice.extend_from_slice(&address);
    twice.extend_from_slice(&address);
    let twice = raw(NEWEST, Kind::Inventory.number(), twice.get(8..).unwrap_or_default());
    let ends = [
        ("duplicate_hello", "one hello", hello()),
        ("wrong_direction", "gateway", frame(&directive)),
        ("field-invalid", "addresses", twice),
        ("too_many_faults", "64 faults", raw(NEWEST, 9_999, b"?").repeat(65)),
    ];
    for (rule, place, bytes) in ends {
        let said = in_session(world, &bytes, |message| matches!(message, Message::Refusal(_))).await;
        world.refused(rule, place, Leaves::Trace, &rules_of(&said));
    }
    let faults = [
        ("unknown_kind", "message_kind: 9999", raw(NEWEST, 9_999, &HUGE)),
        ("bad_signature", "message_kind: 5", frame(&mk_outcome(900))),
    ];
    for (rule, place, bytes) in faults {
        let said = in_session(world, &bytes, |message| matches!(message, Message::Fault(_))).await;
        world.refused(rule, place, Leaves::Trace, &rules_of(&said));
    }
    // A message before the answer to the Hello.
    let early = after(&raw(FIRST, Kind::Liveness.number(), &[1]));
    let config = world.agent_tls(AgentProtocol::Session);
    let said = rules_of(&said_to(world, config, &early, |message| matches!(message, Message::Refusal(_))).await);
    world.refused_again("wrong_first_message", "before the answer", Leaves::Trace, &said);
}

/// Says hello, waits for the answer, and then sends bytes.
async fn in_session(world: &World, bytes: &[u8], enough: fn(&Message) -> bool) -> Vec<Message> {
    let mut stream = dial(world, world.agent_tls(AgentProtocol::Session)).await.expect("TLS");
    stream.write_all(&hello()).await.and(stream.flush().await).expect("the door takes a hello");
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    let (mut said, mut sent) = (Vec::new(), false);
    let talking = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            deframer.push(buffer.get(..count).unwrap_or_default());
            while let Some(frame) = deframer.poll_frame().expect("the gateway sends frames") {
                let message = decode(&frame).expect("the gateway sends messages");
                if matches!(message, Message::HelloAck(_)) && !sent {
                    sent = true;
                    stream.write_all(bytes).await.and(stream.flush().await).expect("the door takes bytes");
                }
                let is_enough = enough(&message);
                said.push(message);
                if is_enough {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(DEADLINE, talking).await.expect("the gateway answers or closes in time");
    said
}

fn mk_credential(ca: &Ca, host: HostId, at: OffsetDateTime) -> Credential {
    let key = LeafKey::generate().expect("a key");
    let request = KeyRequest::from_der(&key.request().expect("a request")).expect("it is one");
    key.credential(ca.issue_host(host, &request, at).expect("issues").chain_pem.as_bytes()).expect("they fit")
}

/// Certificates that open nothing.
async fn check_certificates(world: &mut World) {
    let now = OffsetDateTime::now_utc();
    let stranger = HostId::new(Uuid::from_u128(99));
    let unknown = mk_credential(&world.ca(), stranger, now);
    let config = agent(&unknown, &world.roots, AgentProtocol::Session).expect("a configuration");
    let said = rules_of(&said_to(world, config, &hello(), |_| false).await);
    world.refused("host_unknown", "Refusal", Leaves::Nothing, &said);

    let other = Ca::create(AuthorityId::new(Uuid::from_u128(3)), now).expect("a CA");
    // TLS has one alert for what is over and for what has not begun; a CA that is new gives only the second.
    let early = mk_credential(&world.ca(), world.host.id, now + time::Duration::days(5));
    let foreign = mk_credential(&other, world.host.id, now);
    let mut wrong_alpn = world.agent_tls(AgentProtocol::Session);
    wrong_alpn.alpn_protocols = vec![b"holdfast/9".to_vec()];
    let of =
        |credential: &Credential| agent(credential, &world.roots, AgentProtocol::Session).expect("a configuration");
    let cases =
        [("CertificateExpired", of(&early)), ("UnknownCA", of(&foreign)), ("NoApplicationProtocol", wrong_alpn)];
    for (rule, config) in cases {
        let alert = alert_of(world, config).await;
        let said = Said { rules: alert.map(|alert| format!("{alert:?}")).into_iter().collect(), text: String::new() };
        world.refused(rule, "", Leaves::Nothing, &said);
    }
}

/// The alert by which the door ends a handshake.
async fn alert_of(world: &World, config: ClientConfig) -> Option<AlertDescription> {
    let shaken = async {
        let mut stream = dial(world, config).await?;
        stream.write_all(&hello()).await?;
        stream.flush().await?;
        // The server judges the client's certificate when the client believes to be done.
        stream.read(&mut [0; 16]).await
    };
    let ended = tokio::time::timeout(DEADLINE, shaken).await.expect("the door answers in time").err()?;
    let error = ended.get_ref()?.downcast_ref::<rustls::Error>()?;
    if let rustls::Error::AlertReceived(alert) = error { Some(*alert) } else { None }
}

/// What is no TLS at all, and TLS that stops half way: closed without a word, and the door goes on.
async fn check_no_tls(world: &mut World) {
    let half = [&[0x16, 3, 1, 2, 0][..], &[1, 0, 1, 0xfc, 3, 3], &[7; 40]].concat();
    let echo = [b"HFECHO1".as_slice(), &[b'x'; 1_393]].concat();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 64], echo, [&[0x16][..], &[0xff; 600]].concat(), half] {
        let mut stream = TcpStream::connect(world.plane.agents_door()).await.expect("it listens");
        stream.write_all(&bytes).await.expect("it takes bytes");
        stream.shutdown().await.expect("our side ends");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("closed in time");
        // At most an alert of TLS: seven bytes.
        assert!(read.is_err() || answer.len() <= 7, "{bytes:?}: {answer:?}");
    }
    world.settle();
}
