//! The process: settings to doors.

mod operators;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_bus::{Bus, BusConfig, BusError, HintListener, Wake};
use holdfast_events::Hint;
use holdfast_identity::tls::{self, ServerTls, agents_door, mutual_of};
use holdfast_identity::{CertificateName, Credential, TrustRoots, VerifyingKey, credential, files, name};
use holdfast_model::ids::{AuthorityId, GatewayId};
use holdfast_runtime::config::{Loaded, Secret};
use holdfast_runtime::health::Check;
use holdfast_runtime::log::LogFormat;
use holdfast_runtime::process::{self, DRAIN_GRACE, Process};
use holdfast_runtime::{Build, Chain, Exit, Tasks, exit, tasks};
use holdfast_session::limits::{LIVENESS_INTERVAL_MAX, LIVENESS_INTERVAL_MIN};
use holdfast_store::{ConfigError, Servers, Store, StoreConfig};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::agents::{self, AgentsDoor, DRAIN_SPREAD_MAX, DoorConfig, Hooks, Pace, PgAgents};
use crate::bell::bell;
use crate::config::GatewayConfig;
use crate::directives::obey;
use crate::operators::AdminTokenError;
pub use operators::admin_token;

/// Who this is.
pub const BUILD: Build =
    Build { service: "gateway", version: env!("CARGO_PKG_VERSION"), commit: option_env!("HOLDFAST_COMMIT") };

/// Role in Postgres and user of NATS of the agents' door.
const AGENTS_ROLE: &str = "holdfast_gateway_agents";
/// The subjects that the agents' door listens to.
const AGENTS_SUBJECTS: [(&str, &str); 2] = [("host", "holdfast.hint.host"), ("answer", "holdfast.hint.answer")];
/// Wakes that wait for the door; more become one compare.
const WAKES_MAX: usize = 1_024;
/// How often the database is told that this process can write, which is how it is seen to be there.
const DATABASE_CHECK: Duration = Duration::from_secs(5);
/// For how long what hosts say may wait before this gateway is not ready: sooner than presence ends (45 s).
const FACTS_WAIT_MAX: Duration = Duration::from_secs(30);
/// The shortest lease and interval between compares.
const PACE_MIN: Duration = Duration::from_millis(500);

/// Why the process did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs, signals, metrics or the admin listener.
    #[error("the process cannot be started")]
    Process(#[from] process::Error),
    /// A setting that an open door needs.
    #[error("`{key}` is needed for this door")]
    Missing {
        /// Its name.
        key: &'static str,
    },
    /// The address of the database.
    #[error("the database's address cannot be used")]
    Database(#[from] ConfigError),
    /// A certificate or its key.
    #[error("the certificates of {folder} cannot be used")]
    Credential {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        #[source]
        source: credential::Error,
    },
    /// The own certificate does not say whose it is.
    #[error("the certificate of the agents' door names no authority")]
    Name(#[from] name::Error),
    /// A file.
    #[error("a file cannot be read")]
    File(#[from] files::Error),
    /// The certificate of the renderer's signing key.
    #[error("{path} does not prove the key that signs desired states under this CA")]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// TLS.
    #[error("TLS cannot be set up")]
    Tls(#[from] tls::Error),
    /// NATS.
    #[error("the bus cannot be set up")]
    Bus(#[from] BusError),
    /// The address of a door.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The database is another authority's than the certificates.
    #[error("the database belongs to {found}, the certificates to {wanted}")]
    Authority {
        /// Whose the certificates are.
        wanted: AuthorityId,
        /// Whose the database is.
        found: AuthorityId,
    },
    /// What tests make this gateway do wrong is no list of hosts.
    #[cfg(feature = "test-hooks")]
    #[error("the test hooks cannot be read")]
    Hooks(#[from] holdfast_model::ids::IdError),
    /// The first API token.
    #[error("there is no token")]
    AdminToken(#[from] AdminTokenError),
    /// A task ended that must not.
    #[error("the process cannot go on")]
    Tasks(#[from] tasks::Error),
}

impl exit::Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Process(error) => error.exit(),
            Self::Tasks(error) => error.exit(),
            Self::Bus(_) | Self::AdminToken(_) => Exit::Unavailable,
            Self::Missing { .. }
            | Self::Database(_)
            | Self::Credential { .. }
            | Self::Name(_)
            | Self::File(_)
            | Self::Key { .. }
            | Self::Tls(_)
            | Self::Listen { .. }
            | Self::Authority { .. } => Exit::Config,
            #[cfg(feature = "test-hooks")]
            Self::Hooks(_) => Exit::Config,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Process(error) => error.rule(),
            Self::Tasks(error) => error.rule(),
            Self::Bus(error) => error.rule(),
            Self::AdminToken(error) => error.rule(),
            Self::Missing { .. } => "setting-needed",
            Self::Database(error) => error.rule(),
            Self::Credential { source, .. } => source.rule(),
            Self::Name(error) => error.rule(),
            Self::File(error) => error.rule(),
            Self::Key { .. } => "signing-key-uncertified",
            Self::Tls(error) => error.rule(),
            Self::Listen { .. } => "listen",
            Self::Authority { .. } => "authority-foreign",
            #[cfg(feature = "test-hooks")]
            Self::Hooks(_) => "test-hooks",
        }
    }
}

/// Runs until asked to end.
///
/// # Errors
/// [`Error`] says why it did not start or could not go on.
pub async fn run(loaded: Loaded<GatewayConfig>) -> Result<(), Error> {
    let config = loaded.config;
    let log_format = config.log_format.unwrap_or_else(LogFormat::of_terminal);
    let process = Process::start(BUILD, &config.log, log_format, Some(config.admin_listen)).await?;
    let gateway = GatewayId::new(Uuid::now_v7());
    let servers = Servers::default();
    if config.doors.has_operators() {
        operators::start(&config, gateway, &servers, &process).await?;
    }
    if config.doors.has_agents() {
        start_agents(&config, gateway, &servers, &process).await?;
    }
    process.finish(DRAIN_GRACE).await?;
    Ok(())
}

async fn start_agents(
    config: &GatewayConfig,
    gateway: GatewayId,
    servers: &Servers,
    process: &Process,
) -> Result<(), Error> {
    let folder = config.agents_identity.as_deref().ok_or(Error::Missing { key: "agents-identity" })?;
    let identity = Identity::load(folder, "gateway-agents", AGENTS_ROLE)?;
    let name = format!("holdfast-gateway {gateway}");
    let is_open = process.health.register("agents-door", None);
    let store = open_store(config.agents_database_url.as_ref(), "agents-database-url", &name, servers)?;
    watch_store(&store, "agents-database", process);
    check_authority(&store, identity.authority).await?;

    let tls = Some(mutual_of(&identity.client, folder, AGENTS_ROLE, &identity.roots)?);
    let bus = Bus::connect(BusConfig { url: config.nats_url.clone(), name, user: AGENTS_ROLE.to_owned(), tls }).await?;
    let (rings, ringing) = bell(bus.clone());
    background(&process.tasks, "bell", ringing);
    let wakes = listen(&bus, gateway, &store, &process.tasks);

    let mut session = holdfast_session::gateway::Config::standard(config.gateways());
    // What an agent would not take is not offered.
    let interval = config.agents_liveness_interval.duration();
    session.liveness_interval = interval.clamp(LIVENESS_INTERVAL_MIN, LIVENESS_INTERVAL_MAX);
    session.delivery = config.delivery_mode;
    let door = DoorConfig {
        authority: identity.authority,
        renderer_certificate: identity.renderer_certificate,
        session,
        tls: Arc::new(ServerTls::new(agents_door(&identity.server, &identity.roots)?)),
        pace: pace(config),
        seed: gateway.uuid().as_u64_pair().1,
        hooks: hooks()?,
    };
    let address = config.agents_listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let door = agents::start(door, PgAgents::new(store, gateway), listener, wakes, rings, &process.tasks);
    background(&process.tasks, "facts check", watch_facts(door.clone(), process.health.register("agents-facts", None)));
    background(&process.tasks, "directives", obey(bus, door));
    is_open.ok();
    tracing::info!(%gateway, %address, "the agents' door is open");
    Ok(())
}

/// How fast the agents' door goes: by its settings, within what works.
fn pace(config: &GatewayConfig) -> Pace {
    Pace {
        lease: config.agents_lease.duration().max(PACE_MIN),
        compare_interval: config.agents_compare_interval.duration().max(PACE_MIN),
        drain_spread: config.agents_drain_spread.duration().min(DRAIN_SPREAD_MAX),
        openings_waiting_max: usize::try_from(config.agents_openings_max).unwrap_or(usize::MAX).max(1),
    }
}

#[cfg(feature = "test-hooks")]
fn hooks() -> Result<Hooks, Error> {
    let hooks = Hooks::of_environment()?;
    tracing::warn!(?hooks, "this build does wrong on purpose where tests ask it to");
    Ok(hooks)
}

#[cfg(not(feature = "test-hooks"))]
#[expect(clippy::unnecessary_wraps, reason = "one signature with and without the feature")]
fn hooks() -> Result<Hooks, Error> {
    Ok(Hooks::default())
}

fn open_store(url: Option<&Secret>, key: &'static str, application: &str, servers: &Servers) -> Result<Store, Error> {
    let url = url.ok_or(Error::Missing { key })?;
    Ok(Store::connect_lazily_among(&StoreConfig::from_url(url.reveal(), application)?, servers.clone()))
}

/// A database of another authority is refused; one that is away is waited for by those who need it.
async fn check_authority(store: &Store, wanted: AuthorityId) -> Result<(), Error> {
    match store.load_authority().await {
        Ok(authority) if authority.id != wanted => Err(Error::Authority { wanted, found: authority.id }),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "the database cannot be asked yet");
            Ok(())
        }
    }
}

/// Turns the state of the database into readiness.
fn watch_store(store: &Store, name: &'static str, process: &Process) {
    let (store, check) = (store.clone(), process.health.register(name, Some(3 * DATABASE_CHECK)));
    background(&process.tasks, "database check", async move {
        loop {
            match store.beat().await {
                Ok(()) => check.ok(),
                Err(error) => check.fail(Chain(&error).to_string()),
            }
            tokio::time::sleep(DATABASE_CHECK).await;
        }
    });
}

/// Turns what waits to be written of hosts into readiness: while it waits, hosts are taken for unknown, whatever the database says of itself.
async fn watch_facts(door: AgentsDoor, check: Check) {
    loop {
        match door.facts_wait().filter(|wait| *wait > FACTS_WAIT_MAX) {
            None => check.ok(),
            Some(wait) => check.fail(format!("what hosts say has not been written for {} s", wait.as_secs())),
        }
        tokio::time::sleep(DATABASE_CHECK).await;
    }
}

/// Listens to the hints of the agents' door, each subject by a consumer of this start's own. Another server that takes over as the database is a doubt
/// like a hint that is lost: it may lack what sessions have.
fn listen(bus: &Bus, gateway: GatewayId, store: &Store, tasks: &Tasks) -> mpsc::Receiver<Wake> {
    let (wakes, woken) = mpsc::channel(WAKES_MAX);
    let (mut successors, doubts) = (store.successors(), wakes.clone());
    background(tasks, "successors of the database", async move {
        loop {
            successors.next().await;
            if doubts.send(Wake::Lapsed).await.is_err() {
                return;
            }
        }
    });
    for (word, subject) in AGENTS_SUBJECTS {
        debug_assert!(Hint::SUBJECTS.contains(&subject), "a subject of a hint");
        let consumer = format!("gw-{}-{word}", gateway.uuid().simple());
        background(tasks, "hints", HintListener::new(bus.clone(), consumer, subject, wakes.clone()).run());
    }
    woken
}

/// A task that serves the doors and ends with them.
fn background(tasks: &Tasks, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tasks.background(name, async move {
        work.await;
        Ok::<_, Infallible>(())
    });
}

/// What the folder of one door holds.
struct Identity {
    roots: TrustRoots,
    server: Credential,
    client: Credential,
    renderer_certificate: String,
    authority: AuthorityId,
}

impl Identity {
    fn load(folder: &Path, server: &str, client: &str) -> Result<Self, Error> {
        let credential = |source| Error::Credential { folder: folder.to_owned(), source };
        let server = Credential::load_named(folder, server).map_err(credential)?;
        let path = folder.join("desired-signing.pem");
        let pem = String::from_utf8(files::read(&path)?).map_err(|_| Error::Key { path: path.clone() })?;
        let roots = TrustRoots::load(&folder.join("ca.pem")).map_err(credential)?;
        // What no host would believe is found here and not at every enrolment.
        let now = OffsetDateTime::now_utc();
        let proven = roots.certificates().iter().any(|ca| VerifyingKey::certified(&pem, ca, now).is_ok());
        if !proven {
            return Err(Error::Key { path });
        }
        Ok(Self {
            roots,
            client: Credential::load_named(folder, client).map_err(credential)?,
            renderer_certificate: pem,
            authority: CertificateName::of(server.leaf())?.authority(),
            server,
        })
    }
}
