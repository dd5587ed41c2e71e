//! `holdfast-renderer init`: the keys, certificates and server configurations of one installation.
//!
//! - Each process gets a folder with what it needs and nothing else; [`PROCESSES`] is the list.
//! - A second run keeps what is there and makes what is missing; nothing that exists is ever replaced, for hosts pin it.
//! - Private keys are files of mode 0600 in folders of mode 0700. The CA's key and the key that signs desired states never leave the renderer's folder.

mod nats;
mod postgres;

use std::path::{Path, PathBuf};

use holdfast_identity::{Ca, Credential, ServerRole, SigningKey, VerifyingKey, ca, credential, files, signing};
use holdfast_model::ids::AuthorityId;
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use uuid::Uuid;

/// Role in Postgres of the renderer, and its user of NATS for hints.
pub const RENDERER: &str = "holdfast_renderer";
/// The renderer's user of NATS for events.
pub const RENDERER_EVENTS: &str = "holdfast_renderer_events";
/// Role in Postgres and user of NATS of the agents' door.
pub const GATEWAY_AGENTS: &str = "holdfast_gateway_agents";
/// Role in Postgres and user of NATS of the operators' door.
pub const GATEWAY_OPERATORS: &str = "holdfast_gateway_operators";
/// User of NATS of the audit service; it has no role in Postgres.
pub const AUDIT: &str = "holdfast_audit";
/// Role in Postgres that owns the tables; only migrations use it.
pub const OWNER: &str = "holdfast_owner";
/// User of NATS who may do everything with events; for people.
pub const NATS_ADMIN: &str = "holdfast_nats_admin";
/// The same for hints.
pub const NATS_HINTS_ADMIN: &str = "holdfast_nats_hints_admin";
/// Client certificate of people who read the audit log.
pub const AUDITOR: &str = "auditor";

/// One process and what its folder holds.
struct Process {
    folder: &'static str,
    server: Option<ServerRole>,
    clients: &'static [&'static str],
}

/// Every folder below the one that was named.
const PROCESSES: &[Process] = &[
    Process { folder: "renderer", server: Some(ServerRole::Renderer), clients: &[RENDERER, RENDERER_EVENTS] },
    Process { folder: "migrate", server: None, clients: &[OWNER] },
    Process { folder: "gateway-agents", server: Some(ServerRole::GatewayAgents), clients: &[GATEWAY_AGENTS] },
    Process { folder: "gateway-operators", server: Some(ServerRole::GatewayOperators), clients: &[GATEWAY_OPERATORS] },
    Process { folder: "audit", server: Some(ServerRole::Audit), clients: &[AUDIT] },
    Process { folder: "auditor", server: None, clients: &[AUDITOR] },
    Process { folder: "nats", server: Some(ServerRole::Nats), clients: &[] },
    Process { folder: "nats-admin", server: None, clients: &[NATS_ADMIN, NATS_HINTS_ADMIN] },
    Process { folder: "postgres", server: Some(ServerRole::Postgres), clients: &[] },
];

/// The file with the key that signs desired states, in the renderer's folder.
pub const DESIRED_KEY: &str = "desired-signing.key";
/// The file with the CA's certificate of that key, in the folder of the agents' door.
pub const DESIRED_CERTIFICATE: &str = "desired-signing.pem";
/// The file with the key that signs checkpoints, in the audit service's folder.
pub const AUDIT_KEY: &str = "audit-signing.key";

/// Under which names the servers are reached, beside `localhost` and loopback addresses.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Of the agents' doors.
    pub gateway_agents: Vec<String>,
    /// Of the operators' doors.
    pub gateway_operators: Vec<String>,
    /// Of the audit service.
    pub audit: Vec<String>,
    /// Of NATS.
    pub nats: Vec<String>,
    /// Of Postgres.
    pub postgres: Vec<String>,
}

impl Names {
    fn of(&self, role: ServerRole) -> &[String] {
        match role {
            ServerRole::Audit => &self.audit,
            ServerRole::GatewayAgents => &self.gateway_agents,
            ServerRole::GatewayOperators => &self.gateway_operators,
            ServerRole::Nats => &self.nats,
            ServerRole::Postgres => &self.postgres,
            ServerRole::Renderer => &[],
        }
    }
}

/// What was made, and what people need to know of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Made {
    /// The authority.
    pub authority: AuthorityId,
    /// What an agent is given to know the CA: `holdfast-agent enrol --ca-pin`.
    pub ca_pin: String,
    /// Files that were written now; none when everything was there.
    pub written: Vec<PathBuf>,
}

/// Why not everything is in place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CA.
    #[error("the CA cannot be made or used")]
    Ca(#[from] ca::Error),
    /// A certificate that is there already.
    #[error("a certificate that is there cannot be used")]
    Credential(#[from] credential::Error),
    /// A signing key.
    #[error("a signing key cannot be made or used")]
    Signing(#[from] signing::Error),
    /// A file.
    #[error("a file cannot be read or written")]
    File(#[from] files::Error),
    /// A name that no certificate can carry.
    #[error("`{name}` is neither a DNS name nor an address")]
    Name {
        /// The name.
        name: String,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Ca(error) => error.rule(),
            Self::Credential(error) => error.rule(),
            Self::Signing(error) => error.rule(),
            Self::File(error) => error.rule(),
            Self::Name { .. } => "server-name",
        }
    }
}

/// Makes what is missing below `folder`.
///
/// # Errors
/// [`Error`] names what could not be made; what was made before it stays and a second run goes on.
pub fn init(folder: &Path, names: &Names, now: OffsetDateTime) -> Result<Made, Error> {
    let mut written = Vec::new();
    let ca = ensure_ca(&folder.join("renderer"), now, &mut written)?;
    for process in PROCESSES {
        let home = folder.join(process.folder);
        ensure_file(&home.join("ca.pem"), ca.certificate_pem().as_bytes(), &mut written)?;
        for client in process.clients {
            ensure_credential(&home, client, &mut written, || Ok(ca.issue_client(client, now)?))?;
        }
        if let Some(role) = process.server {
            let names = server_names(names.of(role))?;
            ensure_credential(&home, role.as_str(), &mut written, || Ok(ca.issue_server(role, &names, now)?))?;
        }
    }
    let desired = ensure_key(&folder.join("renderer").join(DESIRED_KEY), &mut written)?;
    let audit = ensure_key(&folder.join("audit").join(AUDIT_KEY), &mut written)?;
    let ca_pin = ca.pin().to_string();
    let public = folder.join("public");
    let facts = [
        ("ca.pem", ca.certificate_pem()),
        ("ca.pin", format!("{ca_pin}\n")),
        ("authority", format!("{}\n", ca.authority())),
        ("desired-signing.pub", format!("{desired}\n")),
        ("audit-signing.pub", format!("{audit}\n")),
    ];
    for (name, text) in facts {
        ensure_file(&public.join(name), text.as_bytes(), &mut written)?;
    }
    // The agents' door hands out the key that proves desired states, and the CA's word for it: a host believes the CA, not the door.
    let certificate = folder.join("gateway-agents").join(DESIRED_CERTIFICATE);
    if !certificate.exists() {
        ensure_file(&certificate, ca.certify_signing_key(&desired, now)?.as_bytes(), &mut written)?;
    }
    ensure_file(&folder.join("nats").join("holdfast.conf"), nats::configuration().as_bytes(), &mut written)?;
    for (name, text) in postgres::files() {
        ensure_file(&folder.join("postgres").join(name), text.as_bytes(), &mut written)?;
    }
    Ok(Made { authority: ca.authority(), ca_pin, written })
}

fn ensure_ca(folder: &Path, now: OffsetDateTime, written: &mut Vec<PathBuf>) -> Result<Ca, Error> {
    let (certificate, key) = credential::paths(folder, ca::FILE_NAME);
    if certificate.exists() {
        return Ok(Ca::load(folder)?);
    }
    let ca = Ca::create(AuthorityId::new(Uuid::now_v7()), now)?;
    ca.save(folder)?;
    written.extend([key, certificate]);
    Ok(ca)
}

fn ensure_credential(
    folder: &Path,
    name: &str,
    written: &mut Vec<PathBuf>,
    issue: impl FnOnce() -> Result<Credential, Error>,
) -> Result<(), Error> {
    let (chain, key) = credential::paths(folder, name);
    if chain.exists() {
        // Read, so that a broken one is named now and not by the process that needs it.
        Credential::load(&chain, &key)?;
        return Ok(());
    }
    issue()?.save(folder, name)?;
    written.extend([key, chain]);
    Ok(())
}

/// The public half of a signing key, which is made if it is not there.
fn ensure_key(path: &Path, written: &mut Vec<PathBuf>) -> Result<VerifyingKey, Error> {
    let key = if path.exists() {
        SigningKey::load(path)?
    } else {
        let key = SigningKey::generate()?;
        key.save(path)?;
        written.push(path.to_owned());
        key
    };
    Ok(key.verifying_key())
}

fn ensure_file(path: &Path, bytes: &[u8], written: &mut Vec<PathBuf>) -> Result<(), Error> {
    if !path.exists() {
        files::write_public(path, bytes)?;
        written.push(path.to_owned());
    }
    Ok(())
}

fn server_names(extra: &[String]) -> Result<Vec<ServerName<'static>>, Error> {
    let always = ["localhost", "127.0.0.1", "::1"].into_iter().map(str::to_owned);
    let mut all: Vec<String> = always.chain(extra.iter().cloned()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|name| ServerName::try_from(name.clone()).map_err(|_| Error::Name { name })).collect()
}

#[cfg(test)]
mod tests;
