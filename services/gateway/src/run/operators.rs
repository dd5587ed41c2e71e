//! The operators' door of the process, and its first token.

use std::path::Path;
use std::sync::Arc;

use holdfast_bus::{Bus, BusConfig};
use holdfast_identity::https::Client;
use holdfast_identity::tls::{ServerTls, https_door, mutual_of};
use holdfast_identity::{CertificateName, Credential, Token, TrustRoots};
use holdfast_model::brake::BrakeLimits;
use holdfast_model::ids::{AuthorityId, GatewayId};
use holdfast_runtime::config::Loaded;
use holdfast_runtime::process::Process;
use holdfast_store::Servers;
use tokio::net::TcpListener;

use super::{Error, background, check_authority, open_store, watch_store};
use crate::bell::bell;
use crate::config::GatewayConfig;
use crate::directives::say;
use crate::operators::{self, AuditDoor, DoorConfig};

/// Role in Postgres, user of NATS and reader of the audit log.
const ROLE: &str = "holdfast_gateway_operators";
/// The name of the server's certificate.
const SERVER: &str = "gateway-operators";

/// What the folder of this door holds.
struct Identity {
    roots: TrustRoots,
    server: Credential,
    client: Credential,
    authority: AuthorityId,
}

impl Identity {
    fn load(folder: &Path) -> Result<Self, Error> {
        let credential = |source| Error::Credential { folder: folder.to_owned(), source };
        let server = Credential::load_named(folder, SERVER).map_err(credential)?;
        Ok(Self {
            roots: TrustRoots::load(&folder.join("ca.pem")).map_err(credential)?,
            client: Credential::load_named(folder, ROLE).map_err(credential)?,
            authority: CertificateName::of(server.leaf())?.authority(),
            server,
        })
    }
}

pub(super) async fn start(
    config: &GatewayConfig,
    gateway: GatewayId,
    servers: &Servers,
    process: &Process,
) -> Result<(), Error> {
    let folder = config.operators_identity.as_deref().ok_or(Error::Missing { key: "operators-identity" })?;
    let identity = Identity::load(folder)?;
    // Postgres cuts application names at 63 bytes.
    let name = format!("holdfast-operators {gateway}");
    let is_open = process.health.register("operators-door", None);
    let store = open_store(config.operators_database_url.as_ref(), "operators-database-url", &name, servers)?;
    watch_store(&store, "operators-database", process);
    check_authority(&store, identity.authority).await?;

    let client = mutual_of(&identity.client, folder, ROLE, &identity.roots)?;
    let tls = Some(client.clone());
    let bus = Bus::connect(BusConfig { url: config.nats_url.clone(), name, user: ROLE.to_owned(), tls }).await?;
    let (rings, ringing) = bell(bus.clone());
    background(&process.tasks, "operators bell", ringing);
    let (directives, saying) = say(bus.clone());
    background(&process.tasks, "directives", saying);
    let wakes = operators::listen(&bus, gateway, &process.tasks);

    let audit = config.operators_audit_url.as_deref().map(|url| AuditDoor::new(Client::new(client), url));
    let tls = Arc::new(ServerTls::new(https_door(&identity.server)?));
    let address = config.operators_listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let brake = BrakeLimits { hosts_max: config.operators_brake_hosts, share_percent: config.operators_brake_share };
    if brake.share_percent >= 100 {
        let share = brake.share_percent;
        tracing::warn!(
            share,
            "operators-brake-share lets hosts lose any share of their rules: only changes that empty them are asked about"
        );
    }
    let door =
        DoorConfig { gateway, tls, audit, bus: bus.link(), directives, brake, metrics: Some(process.metrics.clone()) };
    operators::start(door, store, listener, rings, wakes, &process.tasks);
    is_open.ok();
    tracing::info!(%gateway, %address, "the operators' door is open");
    Ok(())
}

/// Makes an API token for everything, by the database role of the operators' door.
///
/// # Errors
/// [`Error`] says what it lacked; no token is good then.
pub async fn admin_token(loaded: Loaded<GatewayConfig>, name: &str) -> Result<Token, Error> {
    let config = loaded.config;
    let (url, application) = (config.operators_database_url.as_ref(), "holdfast-gateway admin-token");
    let store = open_store(url, "operators-database-url", application, &Servers::default())?;
    Ok(operators::create_admin_token(&store, name).await?)
}
