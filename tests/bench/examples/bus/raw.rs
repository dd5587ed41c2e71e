//! The floors: an outbox, and JetStream's own publishes and pulls.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use holdfast_bus::EVENTS_STREAM;
use holdfast_store::testing::TestPostgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

/// Rows that are claimed at once, and acknowledgements that are under way: where the gain of more ends.
const CLAIMED: i64 = 1_000;
const WINDOW: usize = 256;
const PULLED: usize = 500;

/// An outbox of its own in the product's Postgres.
pub(crate) struct Outbox(PgConnection);

impl Outbox {
    pub(crate) async fn start(postgres: &TestPostgres) -> Self {
        let config = postgres.config("postgres");
        let options = PgConnectOptions::new().host(&config.host).port(config.port);
        let options = options.username(&config.user).database(&config.database);
        let mut connection = PgConnection::connect_with(&options).await.expect("Postgres is there");
        for statement in [
            "CREATE SCHEMA floor",
            "CREATE TABLE floor.outbox (id bigserial PRIMARY KEY, payload jsonb NOT NULL, sent boolean NOT NULL DEFAULT false)",
            "CREATE INDEX ON floor.outbox (id) WHERE NOT sent",
        ] {
            sqlx::query(statement).execute(&mut connection).await.expect("the table is made");
        }
        Self(connection)
    }

    /// So many rows claimed, read and marked, a transaction each thousand.
    pub(crate) async fn claim(&mut self, events: u32) -> Duration {
        let fill = "INSERT INTO floor.outbox (payload) SELECT (SELECT payload FROM events ORDER BY lid DESC LIMIT 1) FROM generate_series(1, $1)";
        let wanted = i32::try_from(events).expect("not that many");
        sqlx::query(fill).bind(wanted).execute(&mut self.0).await.expect("inserts");
        let begun = Instant::now();
        let mut claimed = 0;
        while claimed < wanted as usize {
            let claim = "UPDATE floor.outbox o SET sent = true \
                         FROM (SELECT id FROM floor.outbox WHERE NOT sent ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) c \
                         WHERE o.id = c.id RETURNING o.id, o.payload::text";
            let rows: Vec<(i64, String)> =
                sqlx::query_as(claim).bind(CLAIMED).fetch_all(&mut self.0).await.expect("claims");
            assert!(!rows.is_empty(), "there are rows to claim");
            claimed += rows.len();
        }
        begun.elapsed()
    }
}

/// A connection of its own to the product's nats-server.
pub(crate) struct Jet(jetstream::Context);

impl Jet {
    pub(crate) async fn start(nats: &str) -> Self {
        let jetstream = jetstream::new(async_nats::connect(nats).await.expect("NATS is there"));
        let config = stream::Config {
            name: "FLOOR".to_owned(),
            subjects: vec!["floor.>".to_owned()],
            ..stream::Config::default()
        };
        jetstream.create_stream(config).await.expect("the stream is made");
        Self(jetstream)
    }

    /// So many messages of a size into a stream on disk, 256 acknowledgements under way.
    pub(crate) async fn publish(&self, events: u32, bytes: usize) -> Duration {
        let payload = Bytes::from(vec![b'x'; bytes]);
        let begun = Instant::now();
        let mut acks = VecDeque::with_capacity(WINDOW);
        for _ in 0..events {
            if acks.len() == WINDOW
                && let Some(ack) = acks.pop_front()
            {
                let ack: jetstream::context::PublishAckFuture = ack;
                ack.await.expect("the stream has it");
            }
            acks.push_back(self.0.publish("floor.event", payload.clone()).await.expect("publishes"));
        }
        for ack in acks {
            ack.await.expect("the stream has it");
        }
        begun.elapsed()
    }

    /// All of the product's events by a new durable consumer, each acknowledged.
    pub(crate) async fn pull(&self, round: usize, events: u32) -> Duration {
        let begun = Instant::now();
        let stream = self.0.get_stream(EVENTS_STREAM).await.expect("the stream is there");
        let durable = pull::Config { durable_name: Some(format!("floor-{round}")), ..pull::Config::default() };
        let consumer = stream.create_consumer(durable).await.expect("the consumer is made");
        let messages = consumer.stream().max_messages_per_batch(PULLED).messages().await.expect("it pulls");
        let mut messages = messages.take(events as usize);
        let mut count = 0;
        while let Some(message) = messages.next().await {
            message.expect("a message").ack().await.expect("acknowledges");
            count += 1;
        }
        assert_eq!(count, events, "every event is pulled");
        begun.elapsed()
    }
}
