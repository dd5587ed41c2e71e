//! The process: wiring of database, bus, keys and the leader.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_bus::{Bus, BusConfig, BusError, HintListener, StreamReplicas, Wake};
use holdfast_events::Hint;
use holdfast_identity::tls::{self, mutual_of};
use holdfast_identity::{Ca, Credential, SigningKey, TrustRoots, ca, credential, signing};
use holdfast_model::ids::AuthorityId;
use holdfast_runtime::config::Loaded;
use holdfast_runtime::log::LogFormat;
use holdfast_runtime::{Build, Check, Exit, Process, exit, process, tasks};
use holdfast_store::{ConfigError, Store, StoreConfig};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::RendererConfig;
use crate::init::{DESIRED_KEY, RENDERER, RENDERER_EVENTS};
use crate::leader::{self, Means, Wakes};

/// Who this is.
pub const BUILD: Build =
    Build { service: "renderer", version: env!("CARGO_PKG_VERSION"), commit: option_env!("HOLDFAST_COMMIT") };

/// How often database and bus are asked for readiness.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Why the renderer did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs, signals, metrics or the admin listener.
    #[error("the process cannot be set up")]
    Process(#[from] process::Error),
    /// The database's address.
    #[error("the database's address cannot be used")]
    Database(#[from] ConfigError),
    /// The database.
    #[error("the database refused")]
    Store(#[from] holdfast_store::Error),
    /// The address of NATS.
    #[error("`nats-url` is not set")]
    NoNats,
    /// On how many servers streams are kept.
    #[error("`nats-replicas` is {0}: streams are kept on 1 to 5 servers of a cluster")]
    Replicas(usize),
    /// The CA.
    #[error("the CA cannot be used")]
    Ca(#[from] ca::Error),
    /// A certificate.
    #[error("the certificates of {identity} cannot be used")]
    Credential {
        /// The folder.
        identity: PathBuf,
        /// What is wrong.
        #[source]
        source: credential::Error,
    },
    /// The key that signs desired states.
    #[error("the key that signs desired states cannot be used")]
    Key(#[from] signing::Error),
    /// TLS.
    #[error("TLS cannot be set up")]
    Tls(#[from] tls::Error),
    /// NATS.
    #[error("the bus cannot be set up")]
    Bus(#[from] BusError),
    /// A task ended that must not.
    #[error("the renderer cannot go on")]
    Tasks(#[from] tasks::Error),
}

impl exit::Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Process(error) => error.exit(),
            Self::Tasks(error) => error.exit(),
            Self::Database(_)
            | Self::NoNats
            | Self::Replicas(_)
            | Self::Ca(_)
            | Self::Credential { .. }
            | Self::Key(_)
            | Self::Tls(_) => Exit::Config,
            Self::Store(_) | Self::Bus(_) => Exit::Unavailable,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Process(error) => error.rule(),
            Self::Tasks(error) => error.rule(),
            Self::Database(error) => error.rule(),
            Self::Store(error) => error.rule(),
            Self::NoNats => "setting-needed",
            Self::Replicas(_) => "setting-value",
            Self::Ca(error) => error.rule(),
            Self::Credential { source, .. } => source.rule(),
            Self::Key(error) => error.rule(),
            Self::Tls(error) => error.rule(),
            Self::Bus(error) => error.rule(),
        }
    }
}

/// Brings the database to the form of this build and binds it to the authority of the CA's certificate in `identity`.
///
/// # Errors
/// [`Error`] says what refused.
pub async fn migrate(config: &RendererConfig) -> Result<holdfast_store::migrate::Migrated, Error> {
    let store = Store::connect(&StoreConfig::from_url(config.database_url.reveal(), "holdfast-renderer")?).await?;
    Ok(store.migrate(authority_of(&config.identity)?).await?)
}

fn authority_of(identity: &Path) -> Result<AuthorityId, Error> {
    let credential = |source| Error::Credential { identity: identity.to_owned(), source };
    let roots = TrustRoots::load(&identity.join("ca.pem")).map_err(credential)?;
    let name = roots.certificates().first().map(holdfast_identity::CertificateName::of);
    match name {
        Some(Ok(name)) => Ok(name.authority()),
        Some(Err(_)) | None => Err(credential(credential::Error::Certificate)),
    }
}

/// Runs until asked to end.
///
/// # Errors
/// [`Error`] says why it did not start or could not go on.
pub async fn run(loaded: Loaded<RendererConfig>) -> Result<(), Error> {
    let config = loaded.config;
    let format = config.log_format.unwrap_or_else(LogFormat::of_terminal);
    let process = Process::start(BUILD, &config.log, format, Some(config.admin_listen)).await?;
    let means = means(&config, config.admin_listen).await?;
    let token = process.tasks.shutdown().token();

    listen(&process, &means, token.clone());
    let database = process.health.register("database", Some(PROBE_EVERY * 4));
    let bus = process.health.register("bus", Some(PROBE_EVERY * 4));
    process.tasks.critical("probe", probe(means.clone(), database, bus, token.clone()));
    process.tasks.critical("leader", async move {
        leader::run(means, token).await;
        Ok::<_, Infallible>(())
    });
    process.finish(process::DRAIN_GRACE).await?;
    Ok(())
}

async fn means(config: &RendererConfig, admin: SocketAddr) -> Result<Means, Error> {
    let identity = &config.identity;
    let credential = |source| Error::Credential { identity: identity.clone(), source };
    let roots = TrustRoots::load(&identity.join("ca.pem")).map_err(credential)?;
    let url = config.nats_url.clone().ok_or(Error::NoNats)?;
    let replicas = StreamReplicas::new(config.nats_replicas).ok_or(Error::Replicas(config.nats_replicas))?;
    let connect = async |user: &str| {
        let client = Credential::load_named(identity, user).map_err(credential)?;
        let tls = Some(mutual_of(&client, identity, user, &roots)?);
        let (name, user) = (user.replace('_', "-"), user.to_owned());
        let bus = Bus::connect(BusConfig { url: url.clone(), name, user, tls }).await?;
        Ok::<_, Error>(bus.with_replicas(replicas))
    };
    Ok(Means {
        store: Store::connect_lazily(&StoreConfig::from_url(config.database_url.reveal(), "holdfast-renderer")?),
        bus: connect(RENDERER).await?,
        events: connect(RENDERER_EVENTS).await?,
        ca: Arc::new(Ca::load(identity)?),
        key: Arc::new(SigningKey::load(&identity.join(DESIRED_KEY))?),
        wakes: Arc::new(Wakes::default()),
        holder: format!("renderer {admin} {}", std::process::id()),
    })
}

/// Turns hints into wakes, one listener a subject.
fn listen(process: &Process, means: &Means, token: CancellationToken) {
    let (told, mut wakes) = mpsc::channel(256);
    let start = Uuid::now_v7();
    for hint in [Hint::Intent, Hint::Request, Hint::Event] {
        let name = format!("renderer-{start}-{}", hint.subject().replace('.', "-"));
        let listener = HintListener::new(means.bus.clone(), name, hint.subject(), told.clone());
        process.tasks.critical("hints", async move {
            listener.run().await;
            Ok::<_, Infallible>(())
        });
    }
    drop(told);
    let means = Arc::clone(&means.wakes);
    process.tasks.critical("wakes", async move {
        loop {
            let wake = tokio::select! {
                () = token.cancelled() => return Ok::<_, Infallible>(()),
                wake = wakes.recv() => wake,
            };
            match wake {
                Some(Wake::Lapsed) => means.all(),
                Some(Wake::Hint(Hint::Intent)) => means.intent.notify_one(),
                Some(Wake::Hint(Hint::Request)) => means.ask(),
                Some(Wake::Hint(Hint::Event)) => means.event.notify_one(),
                Some(Wake::Hint(Hint::Answer { .. } | Hint::Host(_))) => {}
                None => return Ok(()),
            }
        }
    });
}

async fn probe(means: Means, database: Check, bus: Check, token: CancellationToken) -> Result<(), Infallible> {
    let mut warned = false;
    while !token.is_cancelled() {
        match means.store.check_migrated().await {
            Ok(()) => database.ok(),
            Err(error) => database.fail(holdfast_runtime::Chain(&error).to_string()),
        }
        let seen = leader::look_at_bus(&means).await;
        if seen.is_away {
            means.wakes.streams.notify_one();
        }
        match seen.hint_fault.or(seen.event_fault) {
            Some(fault) => bus.fail(fault),
            None => bus.ok(),
        }
        if !warned && means.bus.server_is_current() == Some(false) {
            warned = true;
            let version = means.bus.server_version().unwrap_or_default();
            tracing::warn!(%version, "this nats-server lacks security fixes of 2.12.6; do not share it with others");
        }
        tokio::select! {
            () = token.cancelled() => {}
            () = tokio::time::sleep(PROBE_EVERY) => {}
        }
    }
    Ok(())
}
