//! The product's own ways: relay and audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_audit::keeper::Keeper;
use holdfast_bus::{Bus, BusConfig, EVENTS_STREAM};
use holdfast_events::{Actor, EnrolTokenCreated};
use holdfast_identity::{Ca, SigningKey};
use holdfast_model::ids::{ApiTokenId, EnrolTokenId};
use holdfast_model::name::Name;
use holdfast_renderer::leader::{self, Means, Wakes};
use holdfast_runtime::{Shutdown, Tasks};
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_store::token::TokenHash;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(60);
/// How often the stream is asked how much it holds: little beside what is measured, and seldom enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A renderer that leads and has nothing to render.
pub(crate) struct Relay<'a> {
    postgres: &'a TestPostgres,
    jetstream: async_nats::jetstream::Context,
    wakes: Arc<Wakes>,
    tasks: Tasks,
}

impl<'a> Relay<'a> {
    /// Starts one and waits until the stream holds the first event of a kind that is then repeated.
    pub(crate) async fn start(postgres: &'a TestPostgres, nats: &str) -> Self {
        let tasks = Tasks::new(Shutdown::new());
        let wakes = Arc::new(Wakes::default());
        let means = Means {
            store: postgres.store("holdfast_renderer"),
            bus: mk_bus(nats, "renderer").await,
            events: mk_bus(nats, "relay").await,
            ca: Arc::new(Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).expect("a CA")),
            key: Arc::new(SigningKey::generate().expect("a key")),
            wakes: Arc::clone(&wakes),
            holder: "bench".to_owned(),
        };
        let stop = tasks.shutdown().token();
        tasks.background("leader", async move {
            leader::run(means, stop).await;
            Ok::<_, std::convert::Infallible>(())
        });
        let jetstream = async_nats::jetstream::new(async_nats::connect(nats).await.expect("NATS is there"));
        let relay = Self { postgres, jetstream, wakes, tasks };
        create_token(postgres).await;
        let found = async {
            loop {
                let wanted: u32 = postgres.sql("SELECT count(*) FROM events").trim().parse().expect("a number");
                if relay.held().await == wanted {
                    return;
                }
                relay.wakes.event.notify_one();
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(DEADLINE, found).await.expect("the first events reach the stream in time");
        relay
    }

    /// How many events the stream holds; none before it is there.
    pub(crate) async fn held(&self) -> u32 {
        let Ok(mut stream) = self.jetstream.get_stream(EVENTS_STREAM).await else { return 0 };
        let info = stream.info().await.expect("the server answers");
        u32::try_from(info.state.messages).expect("not that many")
    }

    /// How large the last one is.
    pub(crate) async fn event_bytes(&self) -> usize {
        let stream = self.jetstream.get_stream(EVENTS_STREAM).await.expect("the stream is there");
        let last = stream.get_raw_message(u64::from(self.held().await)).await.expect("it has a last message");
        last.payload.len()
    }

    /// From the wake after so many events were committed until the stream holds all of them.
    pub(crate) async fn carry(&self, events: u32) -> Duration {
        let wanted = self.held().await + events;
        // One statement: the events of many transactions, as far as a relay can tell them apart.
        let written = self.postgres.sql(&format!(
            "WITH written AS (INSERT INTO events (event_id, actor, kind, subjects, payload) \
             SELECT gen_random_uuid(), actor, kind, subjects, payload FROM generate_series(1, {events}), \
             (SELECT * FROM events WHERE kind = (SELECT kind FROM events ORDER BY lid DESC LIMIT 1) ORDER BY lid LIMIT 1) one \
             RETURNING 1) SELECT count(*) FROM written"
        ));
        assert_eq!(written.trim(), events.to_string(), "every event is committed");
        let begun = Instant::now();
        self.wakes.event.notify_one();
        let carried = async {
            while self.held().await < wanted {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(DEADLINE, carried).await.expect("every event reaches the stream in time");
        let took = begun.elapsed();
        assert_eq!(self.held().await, wanted, "each event is there once");
        took
    }

    pub(crate) async fn stop(self) {
        self.tasks.shutdown().ask();
        if let Err(error) = self.tasks.finish(Duration::from_secs(10)).await {
            tracing::warn!(%error, "the renderer did not end in order");
        }
    }
}

/// An audit service that has nothing yet, until its log has so many entries, each written and synced.
pub(crate) async fn catch_up(nats: &str, events: u32) -> Duration {
    let program = std::env::current_exe().expect("it runs");
    // Beside the program is a disk, where `/tmp` may be memory.
    let disk = program.parent().expect("a program lies in a folder");
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(disk).expect("a folder");
    let key = Arc::new(SigningKey::generate().expect("a key"));
    let bus = mk_bus(nats, "audit").await;
    let opened = Keeper::open(bus, "bench".to_owned(), folder.path(), TEST_AUTHORITY.to_string(), key);
    let (keeper, mut health) = opened.expect("an empty folder is a log");
    let shutdown = CancellationToken::new();
    let begun = Instant::now();
    let reached = async {
        let reached = health.wait_for(|health| health.head.n >= u64::from(events)).await;
        let head = reached.expect("the keeper runs").head.n;
        let took = begun.elapsed();
        shutdown.cancel();
        assert_eq!(head, u64::from(events), "every event is logged once");
        took
    };
    let both = async { tokio::join!(keeper.run(shutdown.clone()), reached) };
    let (kept, took) = tokio::time::timeout(DEADLINE, both).await.expect("the log catches up in time");
    kept.expect("the log can be kept");
    took
}

/// Leaves one event of an ordinary kind.
async fn create_token(postgres: &TestPostgres) {
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
    let operator = Actor::Operator(ApiTokenId::new(Uuid::from_u128(1)));
    let store = postgres.store("holdfast_gateway_operators");
    store.create_enrol_token(operator, token, TokenHash([3; 32])).await.expect("creates");
}

async fn mk_bus(url: &str, user: &str) -> Bus {
    let config = BusConfig { url: url.to_owned(), name: user.to_owned(), user: user.to_owned(), tls: None };
    Bus::connect(config).await.expect("the address is good")
}
