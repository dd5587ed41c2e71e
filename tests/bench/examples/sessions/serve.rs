//! One server, in whatever process: the product's door for agents, or the floor. It says where it listens, does what it is told by lines, and ends with them.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bus::{Bus, BusConfig, HintListener};
use holdfast_gateway::agents::{AgentsDoor, DoorConfig, Hooks, Pace, PgAgents, start};
use holdfast_identity::tls::{ServerTls, agents_door, mutual_door};
use holdfast_identity::{Ca, Credential, ServerRole, VerifyingKey};
use holdfast_model::ids::GatewayId;
use holdfast_runtime::{Shutdown, Tasks};
use holdfast_session::gateway::Config as SessionConfig;
use holdfast_store::{Store, StoreConfig, Tls};
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// What the floor sends for a snapshot, and for a change.
pub(crate) const ROW_BYTES: usize = 4_096;
/// What the floor is told to do.
pub(crate) const PUSH: &str = "push";
/// What the product is asked by: how much its sessions hold for agents to read.
pub(crate) const HELD: &str = "held";

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Product,
    Floor,
}

/// What a server needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) agents: u32,
    /// Where the CA lies.
    pub(crate) ca: PathBuf,
    pub(crate) postgres: (String, u16, String),
    pub(crate) nats: String,
    /// The key that proves desired states.
    pub(crate) renderer: [u8; 32],
}

/// Serves until the lines end.
pub(crate) fn run(order: Order, commands: impl BufRead, mut told: impl Write) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let tasks = Tasks::new(Shutdown::new());
    let (push, pushed) = watch::channel(Arc::new(Vec::new()));
    let (address, door) = runtime.block_on(async {
        match order.kind {
            Kind::Product => {
                let (address, door) = product(&order, &tasks).await;
                (address, Some(door))
            }
            Kind::Floor => (floor(&order, pushed, &tasks).await, None),
        }
    });
    let mut rows = (order.kind == Kind::Floor).then(|| runtime.block_on(Rows::open(&order)));
    writeln!(told, "{address}").and_then(|()| told.flush()).expect("somebody listens");
    for line in commands.lines() {
        match (line.expect("a line").as_str(), &door, &mut rows) {
            (HELD, Some(door), _) => {
                writeln!(told, "{}", door.held_bytes()).and_then(|()| told.flush()).expect("somebody listens");
            }
            (PUSH, _, Some(rows)) => _ = push.send_replace(Arc::new(runtime.block_on(rows.read()))),
            (other, ..) => panic!("{:?} has no command {other}", order.kind),
        }
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn credential(order: &Order, role: ServerRole) -> (Ca, Credential) {
    let ca = Ca::load(&order.ca).expect("the benchmark made a CA");
    let names = [ServerName::try_from("localhost").expect("a name")];
    let server = ca.issue_server(role, &names, OffsetDateTime::now_utc()).expect("a certificate");
    (ca, server)
}

async fn product(order: &Order, tasks: &Tasks) -> (std::net::SocketAddr, AgentsDoor) {
    let (ca, server) = credential(order, ServerRole::GatewayAgents);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (wake, wakes) = mpsc::channel(1_024);
    let bus = mk_bus(&order.nats, "gateway").await;
    let gateway = GatewayId::new(Uuid::now_v7());
    for (name, subject) in [("host", "holdfast.hint.host"), ("answer", "holdfast.hint.answer")] {
        let listener = HintListener::new(bus.clone(), format!("{gateway}-{name}"), subject, wake.clone());
        tasks.background("hints", async move {
            listener.run().await;
            Ok::<_, std::convert::Infallible>(())
        });
    }
    let (ring, mut bell) = mpsc::channel(4_096);
    tasks.background("bell", async move {
        while let Some(hint) = bell.recv().await {
            drop(bus.publish_hint(&hint).await);
        }
        Ok::<_, std::convert::Infallible>(())
    });
    let renderer = VerifyingKey::from_bytes(order.renderer);
    let roots = ca.roots().expect("roots");
    let config = DoorConfig {
        authority: ca.authority(),
        renderer_certificate: ca.certify_signing_key(&renderer, OffsetDateTime::now_utc()).expect("a certificate"),
        session: SessionConfig::standard(vec![address.to_string()]),
        tls: Arc::new(ServerTls::new(agents_door(&server, &roots).expect("a configuration"))),
        pace: Pace::default(),
        seed: 1,
        hooks: Hooks::default(),
    };
    let (host, port, database) = order.postgres.clone();
    let store = Store::connect_lazily(&StoreConfig {
        host,
        port,
        database,
        user: "holdfast_gateway_agents".to_owned(),
        password: None,
        tls: Tls::Off,
        connections_max: 8,
        application_name: "bench".to_owned(),
    });
    (address, start(config, PgAgents::new(store, gateway), listener, wakes, ring, tasks))
}

/// A task a connection: 4 kB, a byte back; then the same for every change.
async fn floor(order: &Order, pushed: watch::Receiver<Arc<Vec<Vec<u8>>>>, tasks: &Tasks) -> std::net::SocketAddr {
    let (ca, server) = credential(order, ServerRole::Renderer);
    let acceptor =
        TlsAcceptor::from(Arc::new(mutual_door(&server, &ca.roots().expect("roots")).expect("a configuration")));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let connections = tasks.clone();
    tasks.background("floor", async move {
        for nth in 0.. {
            let (stream, _) = listener.accept().await?;
            let (acceptor, mut pushed) = (acceptor.clone(), pushed.clone());
            connections.spawn("floor connection", async move {
                stream.set_nodelay(true)?;
                let mut stream = acceptor.accept(stream).await?;
                let mut row = vec![7; ROW_BYTES];
                loop {
                    stream.write_all(&row).await?;
                    stream.flush().await?;
                    stream.read_exact(&mut [0]).await?;
                    if pushed.changed().await.is_err() {
                        return Ok::<_, std::io::Error>(());
                    }
                    let rows = Arc::clone(&pushed.borrow_and_update());
                    if let Some(new) = rows.get(nth) {
                        row.clone_from(new);
                    }
                }
            });
        }
        Ok::<_, std::io::Error>(())
    });
    address
}

/// The rows that a change of the floor reads: one of 4 kB an agent.
struct Rows(PgConnection, Vec<i32>);

impl Rows {
    async fn open(order: &Order) -> Self {
        let (host, port, database) = &order.postgres;
        let options = PgConnectOptions::new().host(host).port(*port).username("postgres").database(database);
        let connection = PgConnection::connect_with(&options).await.expect("Postgres is there");
        Self(connection, (1..=i32::try_from(order.agents).expect("a fleet")).collect())
    }

    async fn read(&mut self) -> Vec<Vec<u8>> {
        let read = sqlx::query_scalar("SELECT bytes FROM floor.rows WHERE id = ANY($1)").bind(&self.1);
        let rows: Vec<Vec<u8>> = read.fetch_all(&mut self.0).await.expect("reads");
        assert_eq!(rows.len(), self.1.len(), "there is a row an agent");
        rows
    }
}

pub(crate) async fn mk_bus(url: &str, user: &str) -> Bus {
    let config = BusConfig { url: url.to_owned(), name: user.to_owned(), user: user.to_owned(), tls: None };
    Bus::connect(config).await.expect("the address is good")
}
