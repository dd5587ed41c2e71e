//! The renderer against a real Postgres and a real NATS server: from a request and a document to a signed state and a proven log.

mod cluster;
mod refused;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::message::PublishMessage;
use futures_util::TryStreamExt as _;
use holdfast_audit::keeper::{Health, Keeper};
use holdfast_audit::log::lines;
use holdfast_bus::{Bus, BusConfig, BusError, EVENTS_STREAM, HINTS_STREAM, HintListener, Wake};
use holdfast_events::{Actor, Detail, EnrolTokenCreated, Hint, OperationVerb, VerifyingKeyBytes, event_subject};
use holdfast_identity::{Ca, LeafKey, Signature, SigningKey};
use holdfast_model::artifact::assemble;
use holdfast_model::desired::Component;
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, GatewayId, HostId};
use holdfast_model::intent::{HostSpec, NamespaceMatch, Object, Peer, PeerSpec, Policy, PolicyRule, ServiceSpec, Spec};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use holdfast_model::policy::{Action, Mode};
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_renderer::leader::{self, Means, Wakes};
use holdfast_store::Store;
use holdfast_store::intent::{Applied, Decommission, Decommissioned, IntentChange, Prune};
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::LatestState;
use holdfast_store::request::{Enrolment, RequestAnswer};
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_store::token::TokenHash;
use holdfast_suite::nats::{NatsServer, NatsVersion};
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(60);

/// Between two looks at what has no event to wait for, so that those who are waited for have the processor.
async fn look_again() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
const OPERATOR: Actor = Actor::Operator(ApiTokenId::new(Uuid::from_u128(77)));

#[tokio::test]
async fn an_enrolled_host_gets_a_certificate_and_signed_states_and_an_edit_moves_only_what_it_touches() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let (db, web) = (plane.enrol("db-1", "10.1.0.1", "db").await, plane.enrol("web-1", "10.1.0.2", "web").await);
    let first = plane.rendered(&[db, web], |states| states.len() == 8).await;
    assert!(first.iter().all(|state| state.state.desired.stamp.version.raw() == 1));

    let revision = plane.apply(vec![mk_policy("isolate-db", "db"), mk_mode("db-1", Mode::Enforced)]).await;
    let states = plane.rendered(&[db, web], |states| version(states, db) == 2).await;
    assert_eq!(version(&states, web), 1, "the edit does not touch it");
    for state in &states {
        let authority = Authority { id: TEST_AUTHORITY, epoch: state.authority_epoch };
        let statement = desired_bytes(authority, &state.state.desired);
        let signature = Signature(*state.state.signature.as_bytes());
        plane.key.verifying_key().verify(&statement, &signature).expect("the renderer signed it");
    }
    let digest = policy(&states, db).state.desired.stamp.digest;
    let trees = plane.agents.fetch_trees(vec![digest], |_| false).await.expect("reads");
    let body = assemble(digest, |node| trees.get(&node).cloned()).expect("every node is stored");
    assert_eq!((body.mode, body.ingress.isolated), (Mode::Enforced, true));
    assert!(plane.operators.rendered_revision().await.expect("reads") >= revision);

    // What was hinted before somebody listened is lost, which is what hints are.
    plane.listened().await;
    plane.apply(vec![mk_mode("db-1", Mode::Simulation)]).await;
    plane.hinted(db, 3).await;
    plane.stop().await;
}

#[tokio::test]
async fn peers_of_a_host_that_is_taken_out_are_rendered_without_it_and_nobody_else_and_a_new_leader_finds_nothing_to_do()
 {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    let (web, other) =
        (plane.enrol("web-1", "10.1.0.2", "web").await, plane.enrol("other-1", "10.1.0.3", "other").await);
    plane.apply(vec![mk_policy_from("isolate-db", "db", "web")]).await;
    plane.rendered(&[db], |states| version(states, db) == 2).await;

    let asked = Decommission { actor: OPERATOR, host: web, detail: Detail::default(), expected: None, because: None };
    let out = plane.operators.decommission(asked).await.expect("answers");
    assert!(matches!(out, Decommissioned::Out { .. }), "{out:?}");
    plane.means.wakes.intent.notify_one();
    let states = plane.rendered(&[db, web, other], |states| version(states, db) == 3).await;
    plane.rendered_all().await;
    assert_eq!((version(&states, other), version(&states, web)), (1, 1), "nothing else is rendered anew");
    let digest = policy(&states, db).state.desired.stamp.digest;
    let trees = plane.agents.fetch_trees(vec![digest], |_| false).await.expect("reads");
    let body = assemble(digest, |node| trees.get(&node).cloned()).expect("every node is stored");
    assert!(
        body.ingress.isolated && body.sets.iter().all(|set| set.v4.is_empty()),
        "its address is in no set: {body:?}"
    );

    plane.restart_leader().await;
    plane.apply(vec![mk_mode("other-1", Mode::Enforced)]).await;
    plane.rendered(&[other], |states| version(states, other) == 2).await;
    assert_eq!(plane.agents.latest_of(vec![db, web]).await.expect("reads").len(), 8, "what was desired of it stays");
    plane.audited().await;
    plane.stop().await;
}

#[tokio::test]
async fn a_restart_changes_no_version_and_the_log_has_every_event_once() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.apply(vec![mk_policy("isolate-db", "db")]).await;
    let before = plane.rendered(&[db], |states| version(states, db) == 2).await;

    plane.restart_leader().await;
    // A change after the restart proves that the new leader's start-up render is over.
    plane.apply(vec![mk_mode("other", Mode::Enforced)]).await;
    plane.rendered_all().await;
    assert_eq!(plane.agents.latest_of(vec![db]).await.expect("reads"), before);

    plane.audited().await;
    plane.stop().await;
}

#[tokio::test]
async fn a_renderer_that_begins_to_lead_says_so_before_anything_changes() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    plane.listened().await;
    let term = async || -> i64 {
        let sql = format!("SELECT term FROM leases WHERE name = '{RENDERER_LEASE}'");
        plane.postgres.sql(&sql).trim().parse().expect("a term")
    };
    let before = term().await;
    plane.restart_leader().await;
    let said = async {
        loop {
            if let Wake::Hint(Hint::Host(hint)) = plane.wakes.recv().await.expect("the listener lives")
                && i64::try_from(hint.lease_term.raw()).expect("a term") > before
            {
                return hint;
            }
        }
    };
    let hint = timeout(DEADLINE, said).await.expect("it says so");
    assert_eq!((hint.n, hint.of, hint.states.len()), (1, Some(0), 0), "{hint:?}");
    plane.stop().await;
}

#[tokio::test]
async fn events_wait_for_an_absent_broker_and_a_deleted_stream_is_written_again() {
    for server in NatsVersion::ALL {
        let mut plane = Plane::start(server).await;
        let db = plane.enrol("db-1", "10.1.0.1", "db").await;
        plane.audited().await;

        plane.nats.kill();
        plane.apply(vec![mk_policy("isolate-db", "db")]).await;
        // Without the bus nothing wakes the renderer but its clock.
        plane.means.wakes.all();
        plane.rendered(&[db], |states| version(states, db) == 2).await;
        plane.nats.resume();
        plane.audited().await;
        // The stream of hints went with the server's memory, and no listener can make another.
        plane.means.wakes.all();
        let made = async {
            while plane.means.bus.check_hints().await.is_err() {
                look_again().await
            }
        };
        timeout(DEADLINE, made).await.expect("the stream of hints is made again");

        let raw = plane.raw().await;
        raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
        // Nothing happens, and it is written all the same once somebody finds that it is gone.
        plane.means.wakes.streams.notify_one();
        plane.relayed(&raw).await;
        plane.apply(vec![mk_policy("isolate-db", "web")]).await;
        plane.audited().await;
        let proven = plane.stop().await;
        assert_eq!(proven.faults, [], "{server:?}");
    }
}

#[tokio::test]
async fn an_event_stream_that_another_hand_emptied_is_named_while_the_log_goes_on_and_one_made_anew_has_every_event() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    let raw = plane.raw().await;
    let ours = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().config.clone();
    let discard = jetstream::stream::DiscardPolicy::Old;

    // One of each subject: the lease of the second renderer leaves a hole where that of the first one was.
    plane.restart_leader().await;
    plane.audited().await;
    let one_each = jetstream::stream::Config { max_messages_per_subject: 1, discard, ..ours.clone() };
    raw.update_stream(one_each).await.expect("they may");
    raw.update_stream(ours.clone()).await.expect("they may");
    let cut = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().state.clone();
    assert!(cut.messages < cut.last_sequence - cut.first_sequence + 1, "{cut:?}");
    plane.restart_leader().await;
    plane.apply(vec![mk_mode("db-1", Mode::Simulation)]).await;
    plane.audited().await;

    raw.update_stream(jetstream::stream::Config { max_messages: 1, discard, ..ours.clone() }).await.expect("they may");
    raw.update_stream(ours).await.expect("they may");

    let named = plane.means.events.check_events().await;
    assert!(matches!(named, Err(BusError::StreamCut { messages: 1, .. })), "not ready: {named:?}");
    plane.apply(vec![mk_policy("isolate-db", "db")]).await;
    plane.audited().await;
    let named = plane.means.events.check_events().await;
    assert!(matches!(named, Err(BusError::StreamCut { .. })), "until somebody does something: {named:?}");

    raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
    plane.means.wakes.streams.notify_one();
    plane.relayed(&raw).await;
    plane.means.events.check_events().await.expect("it is whole");
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

#[tokio::test]
async fn a_server_that_stores_no_event_is_named_in_its_own_words_and_events_wait_for_it() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    let raw = plane.raw().await;
    let info = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().clone();
    let max_messages = i64::try_from(info.state.messages).expect("few");
    raw.update_stream(jetstream::stream::Config { max_messages, ..info.config.clone() }).await.expect("they may");
    plane.apply(vec![mk_policy("isolate-db", "db")]).await;
    let wakes = Arc::clone(&plane.means.wakes);
    let words = || wakes.refused.lock().expect("whole").clone();
    let named = async {
        loop {
            match words() {
                Some(words) => return words,
                None => look_again().await,
            }
        }
    };
    let named = timeout(DEADLINE, named).await.expect("it is named");
    assert!(named.contains("takes no message") && named.contains("maximum messages exceeded"), "{named}");

    raw.update_stream(info.config).await.expect("they may");
    plane.audited().await;
    assert_eq!(words(), None, "and no longer");
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

/// The log has what the stream lost, and the stream is written again: by itself where its end is missing, once a person deleted it where something else is.
#[tokio::test]
async fn f07_an_event_stream_whose_file_is_flipped_or_cut_is_whole_again_or_named_and_the_log_misses_nothing() {
    for server in NatsVersion::ALL {
        let mut plane = Plane::start(server).await;
        let db = plane.enrol("db-1", "10.1.0.1", "db").await;
        plane.audited().await;
        plane.relayed(&plane.raw().await).await;
        for (nth, damage) in (1..).zip([Damage::Flip, Damage::CutHalf, Damage::CutAll]) {
            plane.nats.kill();
            damage.apply_to(&plane.nats.blocks_of(EVENTS_STREAM));
            plane.nats.resume();
            plane.apply(vec![mk_policy("isolate-db", if nth % 2 == 0 { "web" } else { "db" })]).await;
            plane.means.wakes.all();
            plane.rendered(&[db], |states| version(states, db) == nth + 1).await;
            let raw = plane.raw().await;
            if timeout(DEADLINE / 4, plane.is_relayed(&raw)).await.is_err() {
                let (wakes, checked) = (&plane.means.wakes, plane.means.events.check_events().await);
                let named = wakes.refused.lock().expect("whole").is_some() || wakes.foreign.load(Ordering::Relaxed);
                assert!(named || checked.is_err(), "{server:?}, {damage:?}: it lacks events and is not named");
                raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
                wakes.streams.notify_one();
                plane.relayed(&raw).await;
            }
            plane.audited().await;
        }
        let proven = plane.stop().await;
        assert_eq!(proven.faults, [], "{server:?}");
    }
}

/// Nothing that this plane reads by outlives its consumers on purpose: another one begins where the reader is.
#[tokio::test]
async fn f09_consumers_that_another_hand_deletes_are_made_again_and_nothing_is_missed() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    plane.listened().await;
    let raw = plane.raw().await;
    for (nth, role) in (2..).zip(["db", "web", "db"]) {
        for stream in [EVENTS_STREAM, HINTS_STREAM] {
            let stream = raw.get_stream(stream).await.expect("it is there");
            let names: Vec<String> = stream.consumer_names().try_collect().await.expect("it says");
            assert!(!names.is_empty(), "somebody reads it");
            for name in names {
                stream.delete_consumer(&name).await.expect("they may");
            }
        }
        plane.apply(vec![mk_policy("isolate-db", role)]).await;
        plane.means.wakes.all();
        plane.rendered(&[db], |states| version(states, db) == nth).await;
        plane.audited().await;
        plane.listened().await;
    }
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

/// What happens to a file of a stream while its server is away.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    CutHalf,
    CutAll,
}

impl Damage {
    fn apply_to(self, blocks: &[std::path::PathBuf]) {
        let block = blocks.first().expect("the stream has a file");
        let mut bytes = std::fs::read(block).expect("the folder is ours");
        let middle = bytes.len() / 2;
        match self {
            Self::Flip => bytes[middle] ^= 1,
            Self::CutHalf => bytes.truncate(middle),
            Self::CutAll => bytes.clear(),
        }
        std::fs::write(block, bytes).expect("the folder is ours");
    }
}

#[tokio::test]
async fn a_message_of_another_hand_stops_the_relay_loudly_and_a_stream_made_anew_has_every_event() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    let raw = plane.raw().await;
    // In the place of the next event: by their places alone, those that the relay publishes at once behind it would fit again.
    let forged = raw.publish("holdfast.event.kind.forged", "forged".into()).await.expect("is sent");
    let forged = forged.await.expect("is stored").sequence;
    plane.apply(vec![mk_policy("isolate-db", "db")]).await;
    plane.rendered(&[db], |states| version(states, db) == 2).await;
    let noticed = async {
        while !plane.means.wakes.foreign.load(Ordering::Relaxed) {
            look_again().await
        }
    };
    timeout(DEADLINE, noticed).await.expect("it is noticed");
    let held = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().state.last_sequence;
    assert_eq!(held, forged, "nothing of ours stands behind it");
    raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
    plane.audited().await;
    assert!(!plane.means.wakes.foreign.load(Ordering::Relaxed));
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

#[tokio::test]
async fn events_that_another_way_brought_to_the_stream_end_the_words_of_a_server_that_stored_none() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    let raw = plane.raw().await;
    let info = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().clone();
    let max_messages = i64::try_from(info.state.messages).expect("few");
    raw.update_stream(jetstream::stream::Config { max_messages, ..info.config.clone() }).await.expect("they may");
    plane.create_token("spare", "db").await;
    let wakes = Arc::clone(&plane.means.wakes);
    wakes.event.notify_one();
    let is_refused = || wakes.refused.lock().expect("whole").is_some();
    let refused = async {
        while !is_refused() {
            look_again().await
        }
    };
    timeout(DEADLINE, refused).await.expect("it is named");

    raw.update_stream(info.config).await.expect("they may");
    let last = info.state.last_sequence;
    let next = EventSeq::from_raw(last + 1);
    let waiting = plane.means.store.events_from(AuthorityEpoch::from_raw(1), next, 10).await.expect("reads");
    let [record] = waiting.as_slice() else { panic!("{waiting:?}") };
    let message = PublishMessage::build().payload(record.encode().expect("an event").into());
    let subject = event_subject(&record.record.event);
    let stored = raw.send_publish(subject, message.expected_last_sequence(last)).await.expect("is sent");
    // The relay may have been faster, and then the place is taken.
    drop(stored.await);
    let forgotten = async {
        while is_refused() {
            look_again().await
        }
    };
    timeout(DEADLINE, forgotten).await.expect("nothing waits, so nothing is said");
    plane.audited().await;
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

#[tokio::test]
async fn a_renderer_that_leads_no_longer_says_nothing_of_the_stream_until_it_leads_again() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.audited().await;
    let raw = plane.raw().await;
    let forged = raw.publish("holdfast.event.kind.forged", "forged".into()).await.expect("is sent");
    forged.await.expect("is stored");
    plane.apply(vec![mk_policy("isolate-db", "db")]).await;
    let wakes = Arc::clone(&plane.means.wakes);
    let foreign = async |wanted| {
        let seen = async {
            while wakes.foreign.load(Ordering::Relaxed) != wanted {
                look_again().await
            }
        };
        timeout(DEADLINE, seen).await.expect("it is seen");
    };
    foreign(true).await;
    *wakes.refused.lock().expect("whole") = Some("no room".to_owned());

    plane.postgres.sql(
        "UPDATE leases SET holder = 'another', term = term + 1, expires_at = now() + interval '1 hour' WHERE name = 'renderer'",
    );
    wakes.event.notify_one();
    foreign(false).await;
    let told = || (wakes.refused.lock().expect("whole").clone(), *wakes.relayed.lock().expect("whole"));
    let silent = async {
        while told() != (None, None) {
            look_again().await
        }
    };
    timeout(DEADLINE, silent).await.expect("nothing is left of what it knew");
    assert_eq!(leader::look_at_bus(&plane.means).await, leader::BusSeen::default());

    plane.postgres.sql("UPDATE leases SET expires_at = now() WHERE name = 'renderer'");
    foreign(true).await;
    raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
    plane.audited().await;
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

#[tokio::test]
async fn what_is_wrong_with_a_stream_stands_beside_the_lease_and_goes_away_with_it() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    plane.audited().await;
    let raw = jetstream::new(async_nats::connect(plane.nats.url()).await.expect("it listens"));
    let beside = "SELECT concat_ws('|', coalesce(hint_fault, '-'), coalesce(event_fault, '-'), \
                  (relayed_epoch, relayed_seq) = (SELECT authority_epoch, seq FROM event_order ORDER BY 1 DESC, 2 DESC LIMIT 1)) \
                  FROM leases WHERE name = 'renderer'";
    plane.says(beside, |hints, events, whole| hints == "-" && events == "-" && whole == "t").await;

    let mut hints = raw.get_stream(HINTS_STREAM).await.expect("it is there").cached_info().config.clone();
    hints.subjects = vec!["holdfast.hint.nothing".to_owned()];
    raw.update_stream(hints).await.expect("another hand");
    let forged = raw.publish("holdfast.event.kind.forged", "forged".into()).await.expect("is sent");
    forged.await.expect("is stored");
    plane.enrol("db-1", "10.1.0.1", "db").await;
    let named = |hints: &str, events: &str, whole: &str| {
        hints.contains("HOLDFAST_HINTS has subjects") && events.contains("never wrote") && whole == "f"
    };
    plane.says(beside, named).await;

    raw.delete_stream(HINTS_STREAM).await.expect("it is there");
    raw.delete_stream(EVENTS_STREAM).await.expect("it is there");
    plane.means.wakes.streams.notify_one();
    plane.says(beside, |hints, events, whole| hints == "-" && events == "-" && whole == "t").await;
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

/// A control plane without gateways: what they would ask is asked by the test.
struct Plane {
    postgres: TestPostgres,
    nats: NatsServer,
    folder: tempfile::TempDir,
    means: Means,
    key: Arc<SigningKey>,
    agents: Store,
    operators: Store,
    gateway: GatewayId,
    wakes: mpsc::Receiver<Wake>,
    health: watch::Receiver<Health>,
    shutdown: CancellationToken,
    leader: JoinSet<()>,
    others: JoinSet<()>,
}

impl Plane {
    /// Waits until the renderer says this of both streams, and whether the stream has every numbered event.
    async fn says(&self, beside: &str, wanted: impl Fn(&str, &str, &str) -> bool) {
        let mut said = String::new();
        let heard = async {
            loop {
                self.means.wakes.report.notify_one();
                said = self.postgres.sql(beside);
                let parts: Vec<&str> = said.trim().split('|').collect();
                if matches!(parts.as_slice(), [hints, events, whole] if wanted(hints, events, whole)) {
                    return;
                }
                look_again().await;
            }
        };
        let heard = timeout(DEADLINE, heard).await;
        assert!(heard.is_ok(), "{said}");
    }

    async fn start(version: NatsVersion) -> Self {
        let nats = NatsServer::start(version);
        let bus = mk_bus(&nats.url()).await;
        Self::start_on(nats, bus).await
    }

    async fn start_on(nats: NatsServer, bus: Bus) -> Self {
        let postgres = TestPostgres::start_migrated().await;
        let folder = tempfile::tempdir().expect("a folder");
        let key = Arc::new(SigningKey::generate().expect("a key"));
        let ca = Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).expect("a CA");
        let means = Means {
            store: postgres.store("holdfast_renderer"),
            bus: bus.clone(),
            events: bus.clone(),
            ca: Arc::new(ca),
            key: Arc::clone(&key),
            wakes: Arc::new(Wakes::default()),
            holder: "the test".to_owned(),
        };
        let gateway = GatewayId::new(Uuid::now_v7());
        let agents = postgres.store("holdfast_gateway_agents");
        let name = gateway.to_string();
        let claim = agents.acquire_lease(Actor::Gateway(gateway), &name, &name).await.expect("asks");
        assert!(matches!(claim, Claim::Acquired(_)));

        let (told, wakes) = mpsc::channel(1_024);
        let mut others = JoinSet::new();
        others.spawn(HintListener::new(bus.clone(), "test".to_owned(), "holdfast.hint.host", told).run());
        let opened = Keeper::open(bus, "audit".to_owned(), folder.path(), "test".to_owned(), Arc::clone(&key));
        let (keeper, health) = opened.expect("the log opens");
        let shutdown = CancellationToken::new();
        let token = shutdown.clone();
        others.spawn(async move { keeper.run(token).await.expect("the log can be kept") });

        let operators = postgres.store("holdfast_gateway_operators");
        let leader = JoinSet::new();
        let mut plane = Self {
            postgres,
            nats,
            folder,
            means,
            key,
            agents,
            operators,
            gateway,
            wakes,
            health,
            shutdown,
            leader,
            others,
        };
        plane.leader.spawn(leader::run(plane.means.clone(), CancellationToken::new()));
        plane
    }

    async fn restart_leader(&mut self) {
        self.leader.shutdown().await;
        // The old one's lease would end by itself; a killed process is the same to its successor, only later.
        self.postgres.sql(&format!("UPDATE leases SET expires_at = now() WHERE name = '{RENDERER_LEASE}'"));
        self.leader.spawn(leader::run(self.means.clone(), CancellationToken::new()));
    }

    async fn apply(&self, puts: Vec<Object>) -> holdfast_model::numbers::Revision {
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
        let applied = self.operators.apply_intent(change).await.expect("applies");
        self.means.wakes.intent.notify_one();
        match applied {
            Applied::Changed { revision, .. } => revision,
            other @ (Applied::Unchanged { .. }
            | Applied::Moved { .. }
            | Applied::Missing { .. }
            | Applied::Before(_)
            | Applied::NoRollout(_)
            | Applied::OtherRequest) => {
                panic!("{other:?}")
            }
        }
    }

    /// A token that enrols one host.
    async fn create_token(&self, name: &str, role: &str) -> TokenHash {
        let secret = TokenHash(*holdfast_model::digest::Digest::of(name.as_bytes()).as_bytes());
        let token = EnrolTokenCreated {
            token: EnrolTokenId::new(Uuid::now_v7()),
            namespace: Name::default_namespace(),
            labels: [("role".to_owned(), role.to_owned())].into(),
            ports: vec![],
            region: None,
            owner: None,
            address_scope: vec![],
            uses_max: 1,
            expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR,
        };
        self.operators.create_enrol_token(OPERATOR, token, secret).await.expect("creates");
        secret
    }

    async fn enrol(&self, name: &str, address: &str, role: &str) -> HostId {
        let secret = self.create_token(name, role).await;
        let key = LeafKey::generate().expect("a key");
        let enrolment = Enrolment {
            hash: secret,
            name: mk_name(name),
            addresses: vec![address.parse().expect("an address")],
            outcome_key: VerifyingKeyBytes::from_bytes([9; 32]),
            csr: key.request().expect("a request"),
        };
        let asked = self.agents.request_enrolment(self.gateway, enrolment).await.expect("asks");
        let (request, host) = asked.expect("the token is good");
        self.means.wakes.request.notify_one();
        let answered = async {
            loop {
                let answers = self.agents.request_answers(vec![request]).await.expect("reads");
                match answers.into_iter().next() {
                    Some((_, _, RequestAnswer::Granted { certificate_chain: Some(chain) })) => {
                        key.credential(&chain).expect("the chain fits the key");
                        return;
                    }
                    Some((_, _, RequestAnswer::Waiting)) | None => look_again().await,
                    Some((_, _, other)) => panic!("{other:?}"),
                }
            }
        };
        timeout(DEADLINE, answered).await.expect("answered in time");
        // Its first state is rendered without what comes after it.
        self.rendered(&[host], |states| version(states, host) == 1).await;
        host
    }

    async fn rendered(&self, hosts: &[HostId], enough: impl Fn(&[LatestState]) -> bool) -> Vec<LatestState> {
        let rendered = async {
            loop {
                let states = self.agents.latest_of(hosts.to_vec()).await.expect("reads");
                if enough(&states) {
                    return states;
                }
                look_again().await;
            }
        };
        timeout(DEADLINE, rendered).await.expect("rendered in time")
    }

    async fn rendered_all(&self) {
        let latest = self.operators.latest_revision().await.expect("reads");
        let rendered = async {
            while self.operators.rendered_revision().await.expect("reads") < latest {
                look_again().await;
            }
        };
        timeout(DEADLINE, rendered).await.expect("rendered in time");
    }

    /// Waits until the listener hears what is published from now on.
    async fn listened(&mut self) {
        let listened = async { while self.wakes.recv().await.expect("the listener lives") != Wake::Lapsed {} };
        timeout(DEADLINE, listened).await.expect("listened in time");
    }

    /// Waits for a hint that names this version of the host's policy; earlier ones may still be on their way.
    async fn hinted(&mut self, host: HostId, wanted: u64) {
        let hinted = async {
            loop {
                match self.wakes.recv().await.expect("the listener lives") {
                    Wake::Hint(Hint::Host(hint)) => {
                        let named = |(named, component, _): &&_| *named == host && *component == Component::Policy;
                        let version = hint.states.iter().find(named).map(|(_, _, version)| version.raw());
                        assert!(version <= Some(wanted), "{version:?} is later than {wanted}");
                        if version == Some(wanted) {
                            return;
                        }
                    }
                    Wake::Hint(_) | Wake::Lapsed => {}
                }
            }
        };
        timeout(DEADLINE, hinted).await.expect("hinted in time")
    }

    /// A client that may do everything.
    async fn raw(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.nats.url()).await.expect("it listens"))
    }

    /// Waits until the event stream has every event that has a number.
    async fn relayed(&self, raw: &jetstream::Context) {
        timeout(DEADLINE, self.is_relayed(raw)).await.expect("the stream has every event again");
    }

    async fn is_relayed(&self, raw: &jetstream::Context) {
        let numbered: u64 = self.postgres.sql("SELECT count(*) FROM event_order").trim().parse().expect("a count");
        let held = async || raw.get_stream(EVENTS_STREAM).await.map_or(0, |stream| stream.cached_info().state.messages);
        while held().await < numbered {
            look_again().await
        }
    }

    /// Waits until the audit log has as many entries as the database has events, each with its number.
    async fn audited(&mut self) {
        let audited = async {
            loop {
                let events: u64 = self.postgres.sql("SELECT count(*) FROM events").trim().parse().expect("a count");
                let numbered: u64 =
                    self.postgres.sql("SELECT count(*) FROM event_order").trim().parse().expect("a count");
                if self.health.borrow().head.n == events && numbered == events {
                    return;
                }
                look_again().await;
            }
        };
        timeout(DEADLINE, audited).await.expect("logged in time");
    }

    async fn stop(mut self) -> holdfast_api::audit::Report {
        self.leader.shutdown().await;
        self.shutdown.cancel();
        drop(self.wakes);
        let ended = async { while self.others.join_next().await.is_some() {} };
        timeout(DEADLINE, ended).await.expect("ends in time");
        let mut verifier = holdfast_api::audit::Verifier::new(vec![]);
        lines(self.folder.path(), |line| verifier.line(line)).expect("reads");
        verifier.finish()
    }
}

fn policy(states: &[LatestState], host: HostId) -> &LatestState {
    let is =
        |state: &&LatestState| state.state.desired.host == host && state.state.desired.component == Component::Policy;
    states.iter().find(is).expect("it was rendered")
}

fn version(states: &[LatestState], host: HostId) -> u64 {
    if states.is_empty() { 0 } else { policy(states, host).state.desired.stamp.version.raw() }
}

fn mk_name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn mk_policy(name: &str, role: &str) -> Object {
    let subject = Selector::equal_to(&Labels::from([("role".to_owned(), role.to_owned())]));
    let policy = Policy { subject, isolate_ingress: true, ..Policy::default() };
    Object { namespace: Name::default_namespace(), name: mk_name(name), spec: Spec::Policy(policy) }
}

fn mk_policy_from(name: &str, role: &str, from: &str) -> Object {
    let labels = Selector::equal_to(&Labels::from([("role".to_owned(), from.to_owned())]));
    let rule = PolicyRule {
        order: 0,
        action: Action::Allow,
        peers: PeerSpec::Of(vec![Peer::Select { namespaces: NamespaceMatch::Own, labels }]),
        services: ServiceSpec::Any,
        local: None,
        log: false,
    };
    let Object { namespace, name, spec: Spec::Policy(policy) } = mk_policy(name, role) else { panic!("a policy") };
    Object { namespace, name, spec: Spec::Policy(Policy { ingress: vec![rule], ..policy }) }
}

fn mk_mode(host: &str, mode: Mode) -> Object {
    let spec = HostSpec { mode: Some(mode), ..HostSpec::default() };
    Object { namespace: Name::default_namespace(), name: mk_name(host), spec: Spec::Host(spec) }
}

async fn mk_bus(url: &str) -> Bus {
    let config = BusConfig { url: url.to_owned(), name: "test".to_owned(), user: "test".to_owned(), tls: None };
    let bus = Bus::connect(config).await.expect("the address is good");
    let mut link = bus.link();
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus
}
