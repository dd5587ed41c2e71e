//! P1's floor: the same steps with raw calls and no product code.
//!
//! A transaction (a row of 4 kB and an outbox row), a JetStream publish to a durable pull consumer, a read of the row on another connection, a frame
//! of 4 kB over a held mTLS connection, an answer of 8 bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull;
use futures_util::StreamExt as _;
use holdfast_identity::tls::{mutual, mutual_door};
use holdfast_identity::{Ca, ServerRole};
use holdfast_store::StoreConfig;
use rustls_pki_types::ServerName;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ROW_BYTES: usize = 4_096;

/// The raw parts, connected.
pub(crate) struct Floor {
    writer: PgConnection,
    reader: PgConnection,
    jetstream: jetstream::Context,
    messages: pull::Stream,
    stream: TlsStream<TcpStream>,
    row: Vec<u8>,
}

impl Floor {
    /// Connects everything and makes a table of its own.
    ///
    /// # Panics
    /// If a server is not there: there is nothing to measure then.
    pub(crate) async fn start(database: &StoreConfig, nats: &str, ca: &Ca) -> Self {
        let options = PgConnectOptions::new()
            .host(&database.host)
            .port(database.port)
            .username(&database.user)
            .database(&database.database);
        let mut writer = PgConnection::connect_with(&options).await.expect("Postgres is there");
        let reader = PgConnection::connect_with(&options).await.expect("Postgres is there");
        for statement in [
            "CREATE SCHEMA floor",
            "CREATE TABLE floor.rows (id int PRIMARY KEY, bytes bytea NOT NULL)",
            "CREATE TABLE floor.outbox (id bigserial PRIMARY KEY, row_id int NOT NULL)",
            "INSERT INTO floor.rows VALUES (1, '')",
        ] {
            sqlx::query(statement).execute(&mut writer).await.expect("the table is made");
        }
        let jetstream = jetstream::new(async_nats::connect(nats).await.expect("NATS is there"));
        let config = jetstream::stream::Config {
            name: "FLOOR".to_owned(),
            subjects: vec!["floor".to_owned()],
            ..jetstream::stream::Config::default()
        };
        let made = jetstream.create_stream(config).await.expect("the stream is made");
        let durable = pull::Config { durable_name: Some("floor".to_owned()), ..pull::Config::default() };
        let consumer = made.create_consumer(durable).await.expect("the consumer is made");
        let messages = consumer.messages().await.expect("it pulls");
        Self { writer, reader, jetstream, messages, stream: connect(ca).await, row: vec![7; ROW_BYTES] }
    }

    /// One change, from before its transaction to the answer; and the part from its commit on.
    ///
    /// # Panics
    /// If a step fails.
    pub(crate) async fn change(&mut self, n: u32) -> (Duration, Duration) {
        self.row[..4].copy_from_slice(&n.to_be_bytes());
        let begun = Instant::now();
        let mut tx = self.writer.begin().await.expect("begins");
        let update = sqlx::query("UPDATE floor.rows SET bytes = $1 WHERE id = 1").bind(&self.row);
        update.execute(&mut *tx).await.expect("updates");
        sqlx::query("INSERT INTO floor.outbox (row_id) VALUES (1)").execute(&mut *tx).await.expect("inserts");
        tx.commit().await.expect("commits");
        let committed = Instant::now();

        let ack = self.jetstream.publish("floor", "1".into()).await.expect("publishes");
        let message = self.messages.next().await.expect("it pulls").expect("a message");
        message.ack().await.expect("acknowledges");
        let (bytes,): (Vec<u8>,) = sqlx::query_as("SELECT bytes FROM floor.rows WHERE id = 1")
            .fetch_one(&mut self.reader)
            .await
            .expect("reads");
        self.stream.write_all(&bytes).await.expect("writes");
        self.stream.flush().await.expect("writes");
        let mut answer = [0; 8];
        self.stream.read_exact(&mut answer).await.expect("answers");
        let done = (begun.elapsed(), committed.elapsed());
        ack.await.expect("the stream has it");
        done
    }
}

/// A held mTLS connection to something that answers 8 bytes to every 4 kB.
async fn connect(ca: &Ca) -> TlsStream<TcpStream> {
    let now = OffsetDateTime::now_utc();
    let name = ServerName::try_from("localhost").expect("a name");
    let roots = ca.roots().expect("roots");
    let server = ca.issue_server(ServerRole::Renderer, std::slice::from_ref(&name), now).expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(mutual_door(&server, &roots).expect("a configuration")));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let client = ca.issue_client("floor", now).expect("a certificate");
    let connector = TlsConnector::from(Arc::new(mutual(&client, &roots).expect("a configuration")));
    let answering = async move {
        let (stream, _) = listener.accept().await.expect("accepts");
        stream.set_nodelay(true).expect("sets");
        let mut stream = acceptor.accept(stream).await.expect("agrees");
        let mut frame = vec![0; ROW_BYTES];
        while stream.read_exact(&mut frame).await.is_ok() {
            if stream.write_all(&[1; 8]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    };
    let tasks = holdfast_runtime::Tasks::new(holdfast_runtime::Shutdown::new());
    tasks.detached("floor peer", async move {
        answering.await;
        Ok::<_, std::convert::Infallible>(())
    });
    let stream = TcpStream::connect(address).await.expect("connects");
    stream.set_nodelay(true).expect("sets");
    connector.connect(name, stream).await.expect("agrees")
}
