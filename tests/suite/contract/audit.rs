//! The audit service's keeper and door against a real NATS server and over real TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use holdfast_api::audit::{Checkpoint, Place, Report, Verifier};
use holdfast_audit::door::{Door, router};
use holdfast_audit::keeper::{Health, Keeper};
use holdfast_audit::log::{Checkpoints, lines};
use holdfast_bus::{Bus, BusConfig, EVENTS_STREAM, EventLog, OutgoingEvent};
use holdfast_events::SignatureBytes;
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::{ServerTls, https, mutual, mutual_door};
use holdfast_identity::{Ca, ServerRole, Signature, SigningKey};
use holdfast_model::ids::AuthorityId;
use holdfast_runtime::https::{DoorLimits, serve_https};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use hyper::Method;
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(45);

#[tokio::test]
async fn the_log_has_every_event_once_over_a_killed_server_and_a_stream_made_anew() {
    for version in NatsVersion::ALL {
        let mut server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        bus.ensure_events().await.expect("it is made");
        let mut log = EventLog::new(bus.clone());
        log.load_tail().await.expect("the stream is there");
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::start(&bus, folder.path());

        log.publish(&mk_events(1..=300)).await.expect("published");
        kept.reaches(300).await;

        server.kill();
        server.resume();
        publish_from(&bus, &mut log, 301, 400).await;
        kept.reaches(400).await;

        // The relay writes a lost stream again from its first event on.
        let raw = jetstream::new(async_nats::connect(server.url()).await.expect("it listens"));
        raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
        bus.ensure_events().await.expect("it is made again");
        publish_from(&bus, &mut log, 1, 450).await;
        kept.reaches(450).await;

        kept.stop().await;
        let report = prove(folder.path());
        assert_eq!((report.faults, report.entries), (vec![], 450), "{version:?}");

        // A restart goes on where the log ends, and signs what it appended.
        let kept = Kept::start(&bus, folder.path());
        publish_from(&bus, &mut log, 451, 460).await;
        let mut kept = kept;
        kept.reaches(460).await;
        kept.stop().await;
        let (checkpoints, bad) = Checkpoints::of(folder.path()).load().expect("reads");
        assert_eq!((checkpoints.last().map(|checkpoint| checkpoint.head.n), bad), (Some(460), 0), "{version:?}");
    }
}

#[tokio::test]
async fn nothing_is_logged_past_a_hole_until_it_is_filled() {
    let server = NatsServer::start(NatsVersion::Current);
    let bus = mk_bus(&server).await;
    bus.ensure_events().await.expect("it is made");
    let mut log = EventLog::new(bus.clone());
    log.load_tail().await.expect("the stream is there");
    let folder = tempfile::tempdir().expect("a folder");
    let mut kept = Kept::start(&bus, folder.path());

    let holed: Vec<OutgoingEvent> = mk_events(1..=10).into_iter().chain(mk_events(13..=20)).collect();
    log.publish(&holed).await.expect("published");
    let hole = Place { authority_epoch: 1, seq: 11 };
    let seen = kept.health.wait_for(|health| health.missing == Some(hole));
    let health = timeout(DEADLINE, seen).await.expect("in time").expect("it runs").clone();
    assert_eq!(health.head.n, 10);

    let raw = jetstream::new(async_nats::connect(server.url()).await.expect("it listens"));
    raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
    bus.ensure_events().await.expect("it is made again");
    publish_from(&bus, &mut log, 1, 20).await;
    kept.reaches(20).await;
    assert_eq!(kept.health.borrow().missing, None);
    kept.stop().await;
    assert_eq!(prove(folder.path()).faults, []);
}

#[tokio::test]
async fn the_door_reads_only_to_readers_and_what_it_hands_out_proves_itself() {
    let server = NatsServer::start(NatsVersion::Current);
    let bus = mk_bus(&server).await;
    bus.ensure_events().await.expect("it is made");
    let mut log = EventLog::new(bus.clone());
    log.load_tail().await.expect("the stream is there");
    let folder = tempfile::tempdir().expect("a folder");
    let mut kept = Kept::start(&bus, folder.path());
    log.publish(&mk_events(1..=25)).await.expect("published");
    kept.reaches(25).await;
    let door = OpenDoor::start(&kept, folder.path()).await;

    let text = door.get("auditor", "/v1/audit/entries").await;
    let mut verifier = Verifier::new(vec![]);
    text.1.lines().for_each(|line| verifier.line(line));
    let report = verifier.finish();
    assert_eq!((report.faults, report.entries), (vec![], 25));
    assert_eq!(door.get("auditor", "/v1/audit/entries?from=20").await.1.lines().count(), 6);
    let since = "/v1/audit/entries?since=2026-01-01T00:00:11Z";
    assert_eq!(door.get("auditor", since).await.1.lines().count(), 15);
    for wrong in ["since=yesterday", "from=-1", "until=2026-01-01T00:00:11Z"] {
        let (status, said) = door.get("auditor", &format!("/v1/audit/entries?{wrong}")).await;
        let field = wrong.split_once('=').expect("a field").0;
        assert!(status == 400 && said.contains("problem:invalid") && said.contains(field), "{wrong}: {status} {said}");
        assert!(said.contains("a time in RFC 3339"), "{said}");
    }

    let checkpoint: Checkpoint =
        serde_json::from_str(&door.get("auditor", "/v1/audit/checkpoint").await.1).expect("a checkpoint");
    assert_eq!(checkpoint.head, report.head);
    let signature: SignatureBytes = checkpoint.signature.parse().expect("a signature");
    let verified = kept.key.verifying_key().verify(&checkpoint.statement(), &Signature(*signature.as_bytes()));
    verified.expect("the audit service signed it");

    assert_eq!(door.get("holdfast_gateway_agents", "/v1/audit/entries").await.0, 403);
    let anonymous = Client::new(https(&door.ca.roots().expect("roots")).expect("a client"));
    assert!(anonymous.request(Request::new(Method::GET, door.url("/v1/audit/status"))).await.is_err());
    door.stop().await;
    kept.stop().await;
}

#[tokio::test]
async fn a_follower_gets_entries_as_they_come() {
    let server = NatsServer::start(NatsVersion::Current);
    let bus = mk_bus(&server).await;
    bus.ensure_events().await.expect("it is made");
    let mut log = EventLog::new(bus.clone());
    log.load_tail().await.expect("the stream is there");
    let folder = tempfile::tempdir().expect("a folder");
    let kept = Kept::start(&bus, folder.path());
    let door = OpenDoor::start(&kept, folder.path()).await;

    let request = Request::new(Method::GET, door.url("/v1/audit/entries?follow=true"));
    let client = door.client("auditor");
    let mut streaming = timeout(DEADLINE, client.open(request)).await.expect("in time").expect("opens");
    let mut seen = 0;
    for seq in 1..=5 {
        log.publish(&mk_events(seq..=seq)).await.expect("published");
        while seen < seq {
            let chunk = timeout(DEADLINE, streaming.next_chunk()).await.expect("in time").expect("goes on");
            let chunk = chunk.expect("it follows");
            seen += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        assert_eq!(seen, seq);
    }
    // Nobody takes the end of the service for the end of the log.
    kept.stop().await;
    let end = timeout(DEADLINE, streaming.next_chunk()).await.expect("in time");
    assert!(end.is_err(), "{end:?}");
    door.stop().await;
}

/// A keeper that runs.
struct Kept {
    health: watch::Receiver<Health>,
    key: Arc<SigningKey>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Kept {
    fn start(bus: &Bus, folder: &Path) -> Self {
        let key = Arc::new(SigningKey::generate().expect("a key"));
        let opened = Keeper::open(bus.clone(), "audit".to_owned(), folder, "au_test".to_owned(), Arc::clone(&key));
        let (keeper, health) = opened.expect("the log opens");
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let token = shutdown.clone();
        tasks.spawn(async move { keeper.run(token).await.expect("the log can be kept") });
        Self { health, key, shutdown, tasks }
    }

    async fn reaches(&mut self, n: u64) {
        let reached = self.health.wait_for(|health| health.head.n >= n);
        let health = timeout(DEADLINE, reached).await.expect("in time").expect("the keeper runs").clone();
        assert_eq!((health.head.n, health.place), (n, Some(Place { authority_epoch: 1, seq: n })));
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        timeout(DEADLINE, self.tasks.join_next()).await.expect("in time").expect("it ran").expect("no panic");
    }
}

/// The door of a keeper, on loopback.
struct OpenDoor {
    ca: Ca,
    port: u16,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl OpenDoor {
    async fn start(kept: &Kept, folder: &Path) -> Self {
        let now = OffsetDateTime::now_utc();
        let ca = Ca::create(AuthorityId::new(Uuid::from_u128(1)), now).expect("a CA");
        let names = [ServerName::try_from("localhost").expect("a name")];
        let credential = ca.issue_server(ServerRole::Audit, &names, now).expect("a certificate");
        let config = mutual_door(&credential, &ca.roots().expect("roots")).expect("a configuration");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let door = Door {
            folder: folder.to_owned(),
            authority: "au_test".to_owned(),
            key: Arc::clone(&kept.key),
            health: kept.health.clone(),
            readers: ["auditor".to_owned()].into(),
        };
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let tls = Arc::new(ServerTls::new(config));
        tasks.spawn(serve_https(listener, tls, router(door), DoorLimits::default(), shutdown.clone()));
        Self { ca, port, shutdown, tasks }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn client(&self, role: &str) -> Client {
        let credential = self.ca.issue_client(role, OffsetDateTime::now_utc()).expect("a certificate");
        Client::new(mutual(&credential, &self.ca.roots().expect("roots")).expect("a client"))
    }

    async fn get(&self, role: &str, path: &str) -> (u16, String) {
        let response = self.client(role).request(Request::new(Method::GET, self.url(path))).await.expect("an answer");
        (response.status.as_u16(), String::from_utf8(response.body.to_vec()).expect("text"))
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        timeout(DEADLINE, self.tasks.join_next()).await.expect("in time").expect("it ran").expect("no panic");
    }
}

/// Publishes `first` to `last` as the relay does: after what the stream really holds.
async fn publish_from(bus: &Bus, log: &mut EventLog, first: u64, last: u64) {
    let published = async {
        loop {
            let Ok(()) = bus.ensure_events().await else { continue };
            let Ok(end) = log.load_tail().await else { continue };
            let done = end.last().map_or(first - 1, |payload| place_of(payload));
            if done == last {
                return;
            }
            assert!(log.publish(&mk_events(done + 1..=last)).await.is_ok_and(|published| published.count > 0));
        }
    };
    timeout(DEADLINE, published).await.expect("in time");
}

fn place_of(payload: &[u8]) -> u64 {
    let event: serde_json::Value = serde_json::from_slice(payload).expect("an event");
    event["sequence"].as_str().and_then(|text| text.parse().ok()).expect("a sequence")
}

fn prove(folder: &Path) -> Report {
    let mut verifier = Verifier::new(vec![]);
    lines(folder, |line| verifier.line(line)).expect("the folder reads");
    verifier.finish()
}

fn mk_events(seqs: std::ops::RangeInclusive<u64>) -> Vec<OutgoingEvent> {
    let one = |seq| {
        let time =
            OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(1_767_225_600 + i64::try_from(seq).expect("small"));
        let time = time.format(&time::format_description::well_known::Rfc3339).expect("a time");
        let payload = format!(r#"{{"id":"e{seq}","time":"{time}","authorityepoch":"1","sequence":"{seq}"}}"#);
        OutgoingEvent { subject: "holdfast.event.test".to_owned(), id: format!("e{seq}"), payload: payload.into() }
    };
    seqs.map(one).collect()
}

async fn mk_bus(server: &NatsServer) -> Bus {
    let config = BusConfig { url: server.url(), name: "test".to_owned(), user: "test".to_owned(), tls: None };
    let bus = Bus::connect(config).await.expect("the address is good");
    let mut link = bus.link();
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus
}
