//! The users of NATS as `holdfast-renderer init` sets them up: what each may do, tried against real servers.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream;
use holdfast_bus::{Bus, BusConfig, EVENTS_STREAM, EventLog, OutgoingEvent};
use holdfast_events::{Directive, DirectiveKind};
use holdfast_identity::tls::{mutual, mutual_of};
use holdfast_identity::{Ca, Credential, TrustRoots};
use holdfast_model::ids::HostId;
use holdfast_renderer::init::{
    AUDIT, GATEWAY_AGENTS, GATEWAY_OPERATORS, NATS_ADMIN, Names, RENDERER, RENDERER_EVENTS, init,
};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio::time::timeout;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(10);
/// How long a request that the server does not let through waits for nothing.
const SILENCE: Duration = Duration::from_millis(300);

/// The server answers a request of JetStream on whatever subject it names, without asking for the permission to publish there.
#[tokio::test]
async fn no_gateway_writes_an_event_neither_by_itself_nor_by_the_answers_of_the_server() {
    for version in NatsVersion::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        init(folder.path(), &Names::default(), OffsetDateTime::now_utc()).expect("is made");
        let server = NatsServer::start_with(version, &folder.path().join("nats"));
        let renderer = folder.path().join("renderer");
        let hints = connect(&server, &renderer, RENDERER).await;
        let events = connect(&server, &renderer, RENDERER_EVENTS).await;
        hints.ensure_hints().await.expect("it is made");
        events.ensure_events().await.expect("it is made");
        let mut log = EventLog::new(events.clone());
        log.load_tail().await.expect("it is there");
        let event = OutgoingEvent {
            subject: "holdfast.event.kind.fleet".to_owned(),
            id: "1".to_owned(),
            payload: "genuine".into(),
        };
        assert!(log.publish(std::slice::from_ref(&event)).await.expect("is taken").complete);
        assert!(hints.check_events().await.is_err(), "hints and events do not meet");

        for (process, user) in [("gateway-agents", GATEWAY_AGENTS), ("gateway-operators", GATEWAY_OPERATORS)] {
            let gateway = raw(&server, &folder.path().join(process), user).await;
            gateway.publish("holdfast.event.kind.forged", "forged".into()).await.expect("is sent");
            for request in ["$JS.API.STREAM.INFO.HOLDFAST_HINTS", "$JS.API.STREAM.INFO.HOLDFAST_EVENTS"] {
                let answer_to = "holdfast.event.kind.answer";
                gateway.publish_with_reply(request, answer_to, "".into()).await.expect("is sent");
            }
            // And a hint of its own making, delivered as if it were an event.
            gateway.publish("holdfast.hint.event", "forged".into()).await.expect("is sent");
            let jetstream = jetstream::new(gateway.clone());
            let consumer = jetstream::consumer::pull::Config { name: Some("forger".to_owned()), ..Default::default() };
            jetstream.create_consumer_on_stream(consumer, "HOLDFAST_HINTS").await.expect("it may listen");
            let next = "$JS.API.CONSUMER.MSG.NEXT.HOLDFAST_HINTS.forger";
            gateway.publish_with_reply(next, "holdfast.event.kind.delivered", "1".into()).await.expect("is sent");
            gateway.flush().await.expect("the server has all of it");
        }
        // Whoever reads and writes events sees the genuine one and nothing else, and goes on.
        let audit = raw(&server, &folder.path().join("audit"), AUDIT).await;
        let refused = audit.request("$JS.API.STREAM.DELETE.HOLDFAST_EVENTS", "".into());
        assert!(timeout(SILENCE, refused).await.is_err(), "the audit service deletes nothing");
        assert_eq!(log.load_tail().await.expect("it is there"), [event.payload]);
        let admin = raw(&server, &folder.path().join("nats-admin"), NATS_ADMIN).await;
        let deleted = jetstream::new(admin).delete_stream(EVENTS_STREAM).await.expect("a person may");
        assert!(deleted.success, "{version:?}");
    }
}

/// Only the operators' door asks, and nothing that anybody else makes the server say is a directive.
#[tokio::test]
async fn a_directive_is_the_operators_doors_alone_whatever_others_have_the_server_answer() {
    for version in NatsVersion::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        init(folder.path(), &Names::default(), OffsetDateTime::now_utc()).expect("is made");
        let server = NatsServer::start_with(version, &folder.path().join("nats"));
        let hints = connect(&server, &folder.path().join("renderer"), RENDERER).await;
        hints.ensure_hints().await.expect("it is made");
        let listener = connect(&server, &folder.path().join("gateway-agents"), GATEWAY_AGENTS).await;
        let (heard, mut hearing) = tokio::sync::mpsc::channel(64);
        let mut listening = tokio::task::JoinSet::new();
        listening.spawn(listener.listen_to_directives(heard));
        let operators = connect(&server, &folder.path().join("gateway-operators"), GATEWAY_OPERATORS).await;
        let host = HostId::new(Uuid::from_u128(7));
        let asked = |kind| Directive { kind, host };
        // Until the subscription is there nothing is kept for it.
        let first = async {
            loop {
                operators.publish_directive(&asked(DirectiveKind::Reconnect)).await.expect("is said");
                if let Ok(Some(first)) = timeout(SILENCE, hearing.recv()).await {
                    return first.expect("a directive");
                }
            }
        };
        assert_eq!(timeout(DEADLINE, first).await.expect("in time"), asked(DirectiveKind::Reconnect), "{version:?}");
        while timeout(SILENCE, hearing.recv()).await.is_ok() {}

        let forged = asked(DirectiveKind::Reenrol);
        let (subject, payload) = (forged.kind.subject(), forged.encode().expect("encodes"));
        for (process, user) in [("gateway-agents", GATEWAY_AGENTS), ("renderer", RENDERER)] {
            let other = raw(&server, &folder.path().join(process), user).await;
            other.publish(subject, payload.clone().into()).await.expect("is sent");
            other.publish_with_reply("$JS.API.STREAM.INFO.HOLDFAST_HINTS", subject, "".into()).await.expect("is sent");
            // A hint with the bytes of a directive, delivered to a directive's subject, and the word that there is no other.
            other.publish("holdfast.hint.event", payload.clone().into()).await.expect("is sent");
            let consumer = jetstream::consumer::pull::Config { name: Some(process.to_owned()), ..Default::default() };
            let made = jetstream::new(other.clone()).create_consumer_on_stream(consumer, "HOLDFAST_HINTS").await;
            made.expect("it may listen");
            let next = format!("$JS.API.CONSUMER.MSG.NEXT.HOLDFAST_HINTS.{process}");
            for _ in 0..4 {
                let pull = r#"{"batch":1,"no_wait":true}"#;
                other.publish_with_reply(next.clone(), subject, pull.into()).await.expect("is sent");
            }
            other.flush().await.expect("the server has all of it");
        }
        // What comes of that is told apart from directives, and a genuine one behind it is heard.
        let genuine = asked(DirectiveKind::ResendSnapshot);
        operators.publish_directive(&genuine).await.expect("is said");
        let mut strange = 0;
        loop {
            match timeout(DEADLINE, hearing.recv()).await.expect("in time").expect("it listens") {
                Ok(directive) if directive == genuine => break,
                Ok(directive) => panic!("{version:?}: {directive:?} was forged"),
                Err(_) => strange += 1,
            }
        }
        assert!(strange > 0, "{version:?}: answers of the server reach the subject, which is why they are told apart");
    }
}

/// The server takes nobody by the old certificates any more; what is put in their place is shown without a restart.
#[tokio::test]
async fn f15_a_certificate_that_is_put_in_the_place_of_one_that_counts_no_more_is_shown_at_the_next_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    init(folder.path(), &Names::default(), OffsetDateTime::now_utc()).expect("is made");
    let mut server = NatsServer::start_with(NatsVersion::Current, &folder.path().join("nats"));
    let renderer = folder.path().join("renderer");
    let credential = Credential::load_named(&renderer, RENDERER).expect("init made it");
    let roots = TrustRoots::load(&renderer.join("ca.pem")).expect("init made it");
    let config = BusConfig {
        url: url(&server),
        name: RENDERER.to_owned(),
        user: RENDERER.to_owned(),
        tls: Some(mutual_of(&credential, &renderer, RENDERER, &roots).expect("they fit")),
    };
    let bus = Bus::connect(config).await.expect("the address is good");
    let mut link = bus.link();
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus.ensure_hints().await.expect("it is made");

    // Clients are of another CA from now on; the server's own certificate stays.
    let old = Ca::load(&renderer).expect("init made it");
    let other = Ca::create(old.authority(), OffsetDateTime::now_utc()).expect("a CA");
    server.kill();
    std::fs::write(folder.path().join("nats/ca.pem"), other.certificate_pem()).expect("the folder is ours");
    server.resume();
    timeout(DEADLINE, link.wait_for(|link| !link.up)).await.expect("in time").expect("the bus lives");
    assert!(
        timeout(Duration::from_secs(2), link.wait_for(|link| link.up)).await.is_err(),
        "the old one counts no more"
    );
    // Half of it, and noise: the old one is shown on, and no try is the last.
    let (chain, key) = (renderer.join(format!("{RENDERER}.pem")), renderer.join(format!("{RENDERER}.key.pem")));
    std::fs::write(&chain, "noise").expect("the folder is ours");
    assert!(timeout(Duration::from_secs(1), link.wait_for(|link| link.up)).await.is_err());
    std::fs::remove_file(&key).expect("the folder is ours");
    let new = other.issue_client(RENDERER, OffsetDateTime::now_utc()).expect("a certificate");
    new.save(&renderer, RENDERER).expect("the folder is ours");
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus.ensure_hints().await.expect("the user may do what it may");
}

fn tls(folder: &Path, user: &str) -> ClientConfig {
    let roots = TrustRoots::load(&folder.join("ca.pem")).expect("init made it");
    mutual(&Credential::load_named(folder, user).expect("init made it"), &roots).expect("they fit")
}

fn url(server: &NatsServer) -> String {
    server.url().replace("nats://", "tls://")
}

async fn connect(server: &NatsServer, folder: &Path, user: &str) -> Bus {
    let config =
        BusConfig { url: url(server), name: user.to_owned(), user: user.to_owned(), tls: Some(tls(folder, user)) };
    let bus = Bus::connect(config).await.expect("the address is good");
    let mut link = bus.link();
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus
}

/// A client that does what it likes.
async fn raw(server: &NatsServer, folder: &Path, user: &str) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new()
        .custom_inbox_prefix(format!("_INBOX_{user}"))
        .require_tls(true)
        .tls_client_config(tls(folder, user));
    options.connect(url(server)).await.expect("the server knows the user")
}
