//! The service: wiring of keeper, door and health.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_bus::{Bus, BusConfig, BusError};
use holdfast_identity::tls::{ServerTls, mutual_door, mutual_of};
use holdfast_identity::{CertificateName, Credential, SigningKey, TrustRoots, credential, name, signing, tls};
use holdfast_runtime::config::Loaded;
use holdfast_runtime::health::Check;
use holdfast_runtime::https::{DoorLimits, serve_https};
use holdfast_runtime::log::LogFormat;
use holdfast_runtime::{Build, Exit, Health as Readiness, Shutdown, Tasks, admin, exit, log, metrics, shutdown, tasks};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::AuditConfig;
use crate::door::{Door, router};
use crate::keeper::{Health, Keeper, KeeperError};
use crate::log::LogError;

/// Who this is.
pub const BUILD: Build =
    Build { service: "audit", version: env!("CARGO_PKG_VERSION"), commit: option_env!("HOLDFAST_COMMIT") };

/// How long the end may take: the last batch, one checkpoint, the requests under way.
const GRACE: Duration = Duration::from_secs(20);
/// How often the state of the log becomes readiness and metrics.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);

/// Why the service did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs cannot be written as wanted.
    #[error("the log lines cannot be set up")]
    Log(#[from] log::Error),
    /// Signals.
    #[error("signals cannot be heard")]
    Shutdown(#[from] shutdown::Error),
    /// Metrics.
    #[error("metrics cannot be set up")]
    Metrics(#[from] metrics::Error),
    /// The admin listener.
    #[error("the admin listener cannot be set up")]
    Admin(#[from] admin::Error),
    /// A certificate or its key.
    #[error("the certificates of {identity} cannot be used")]
    Credential {
        /// The folder.
        identity: PathBuf,
        /// What is wrong.
        #[source]
        source: credential::Error,
    },
    /// The own certificate does not say whose it is.
    #[error("the certificate of the audit service names no authority")]
    Name(#[from] name::Error),
    /// The key that signs checkpoints.
    #[error("the key that signs checkpoints cannot be used")]
    Key(#[from] signing::Error),
    /// TLS.
    #[error("TLS cannot be set up")]
    Tls(#[from] tls::Error),
    /// NATS.
    #[error("the bus cannot be set up")]
    Bus(#[from] BusError),
    /// The log's files.
    #[error("the audit log cannot be opened")]
    Files(#[from] LogError),
    /// The door's address.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A task ended that must not.
    #[error("the service cannot go on")]
    Tasks(#[from] tasks::Error),
}

impl exit::Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Log(error) => error.exit(),
            Self::Admin(error) => error.exit(),
            Self::Tasks(error) => error.exit(),
            Self::Shutdown(_) | Self::Metrics(_) => Exit::Software,
            Self::Credential { .. } | Self::Name(_) | Self::Key(_) | Self::Tls(_) | Self::Listen { .. } => Exit::Config,
            Self::Bus(_) | Self::Files(_) => Exit::Unavailable,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Log(error) => error.rule(),
            Self::Admin(error) => error.rule(),
            Self::Tasks(error) => error.rule(),
            Self::Shutdown(_) => "signals",
            Self::Metrics(_) => "metrics",
            Self::Credential { source, .. } => source.rule(),
            Self::Name(error) => error.rule(),
            Self::Key(error) => error.rule(),
            Self::Tls(error) => error.rule(),
            Self::Listen { .. } => "listen",
            Self::Bus(error) => error.rule(),
            Self::Files(error) => error.rule(),
        }
    }
}

/// Runs until asked to end.
///
/// # Errors
/// [`Error`] says why it did not start or could not go on.
pub async fn run(loaded: Loaded<AuditConfig>) -> Result<(), Error> {
    let config = loaded.config;
    log::init(BUILD, &config.log, config.log_format.unwrap_or_else(LogFormat::of_terminal))?;
    let tasks = Tasks::new(Shutdown::new());
    shutdown::watch_signals(&tasks)?;
    let metrics = metrics::Metrics::install(BUILD, &tasks)?;
    let readiness = Readiness::new(tasks.shutdown().clone());
    let started = readiness.starting();
    let shown = admin::Shown { build: BUILD, health: readiness.clone(), metrics };
    admin::Admin::bind(config.admin_listen, shown).await?.serve(&tasks);

    let identity = Identity::load(&config.identity)?;
    let bus = Bus::connect(BusConfig {
        url: config.nats_url.clone(),
        name: "holdfast-audit".to_owned(),
        user: "holdfast_audit".to_owned(),
        tls: Some(mutual_of(&identity.client, &config.identity, "holdfast_audit", &identity.roots)?),
    })
    .await?;
    let (keeper, health) =
        Keeper::open(bus, "audit".to_owned(), &config.data, identity.authority.clone(), Arc::clone(&identity.key))?;
    let token = tasks.shutdown().token();
    tasks.critical("keeper", keeper.run(token.clone()));
    tasks.critical("observer", observe(health.clone(), readiness.register("event-stream", None), token.clone()));

    let tls = Arc::new(ServerTls::new(mutual_door(&identity.server, &identity.roots)?));
    let listen = |source| Error::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    tracing::info!(address = %config.listen, head = health.borrow().head.n, "the audit log is open");
    let door = Door {
        folder: config.data,
        authority: identity.authority,
        key: identity.key,
        health,
        readers: config.readers.split(',').map(|role| role.trim().to_owned()).collect(),
    };
    tasks.critical("door", async move {
        serve_https(listener, tls, router(door), DoorLimits::default(), token).await;
        Ok::<_, KeeperError>(())
    });
    started.ok();
    tasks.finish(GRACE).await?;
    Ok(())
}

struct Identity {
    roots: TrustRoots,
    server: Credential,
    client: Credential,
    key: Arc<SigningKey>,
    authority: String,
}

impl Identity {
    fn load(folder: &Path) -> Result<Self, Error> {
        let credential = |source| Error::Credential { identity: folder.to_owned(), source };
        let server = Credential::load_named(folder, "audit").map_err(credential)?;
        Ok(Self {
            roots: TrustRoots::load(&folder.join("ca.pem")).map_err(credential)?,
            client: Credential::load_named(folder, "holdfast_audit").map_err(credential)?,
            key: Arc::new(SigningKey::load(&folder.join("audit-signing.key"))?),
            authority: CertificateName::of(server.leaf())?.authority().to_string(),
            server,
        })
    }
}

/// Turns the state of the log into readiness and metrics.
async fn observe(
    mut health: watch::Receiver<Health>,
    check: Check,
    shutdown: CancellationToken,
) -> Result<(), KeeperError> {
    while !shutdown.is_cancelled() {
        let seen = health.borrow_and_update().clone();
        ::metrics::gauge!("holdfast_audit_entries").set(seen.head.n as f64);
        ::metrics::gauge!("holdfast_audit_missing").set(if seen.missing.is_some() { 1.0 } else { 0.0 });
        match (&seen.missing, seen.reading) {
            (Some(missing), _) => check.fail(format!("event {missing} is missing from the stream")),
            (None, false) => check.fail("the event stream is not being read"),
            (None, true) => check.ok(),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(OBSERVE_EVERY) => {}
            changed = health.changed() => if changed.is_err() { break },
        }
    }
    Ok(())
}
