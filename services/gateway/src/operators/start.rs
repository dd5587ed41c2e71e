//! Putting the parts of the door together.

use std::convert::Infallible;
use std::sync::Arc;

use holdfast_bus::Link;
use holdfast_events::{Actor, ApiTokenCreated, Directive, Hint, Label128, NamespaceScope, Role};
use holdfast_identity::tls::ServerTls;
use holdfast_identity::{Token, TokenKind, token};
use holdfast_model::brake::BrakeLimits;
use holdfast_model::ids::{ApiTokenId, GatewayId};
use holdfast_runtime::Tasks;
use holdfast_runtime::https::{DoorLimits, serve_https};
use holdfast_runtime::metrics::Metrics;
use holdfast_store::Store;
use holdfast_store::token::TokenHash;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::audit::AuditDoor;
use super::door::Door;
use super::rollouts;
use super::router::router;
use super::{scrape, settle};

/// What a door is made of.
#[derive(Debug)]
pub struct DoorConfig {
    /// This start of this process.
    pub gateway: GatewayId,
    /// Certificate of the door.
    pub tls: Arc<ServerTls>,
    /// Where the audit service is; without it `/v1/audit` answers that it is not there.
    pub audit: Option<AuditDoor>,
    /// Whether the bus is there, to be told to who asks how the plane is.
    pub bus: watch::Receiver<Link>,
    /// Where directives go out.
    pub directives: mpsc::Sender<Directive>,
    /// How much a change may take away without anybody saying so.
    pub brake: BrakeLimits,
    /// Where the fleet and the plane are shown; without it nobody scrapes this door.
    pub metrics: Option<Metrics>,
}

/// Opens the door: serves until the shutdown, then drains. What rings goes to `bell`; `wakes` moves when something happened.
pub fn start(
    config: DoorConfig,
    store: Store,
    listener: TcpListener,
    bell: mpsc::Sender<Hint>,
    wakes: watch::Receiver<u64>,
    tasks: &Tasks,
) {
    let door = Arc::new(Door::new(
        config.gateway,
        store,
        bell,
        config.directives,
        wakes,
        config.bus,
        config.audit,
        config.brake,
        tasks.shutdown().clone(),
    ));
    if let Some(metrics) = &config.metrics {
        scrape::show(&door, metrics);
    }
    tasks.background("operators settle", settle::run(Arc::clone(&door)));
    tasks.background("operators rollouts", rollouts::run(Arc::clone(&door)));
    let shutdown = tasks.shutdown().token();
    let routes = router(door);
    tasks.critical("operators door", async move {
        serve_https(listener, config.tls, routes, DoorLimits::default(), shutdown).await;
        Ok::<_, Infallible>(())
    });
}

/// Why there is no first token.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// No randomness.
    #[error("a token cannot be made")]
    Token(#[from] token::Error),
    /// The database.
    #[error("the token cannot be stored")]
    Store(#[from] holdfast_store::Error),
}

impl AdminTokenError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Token(error) => error.rule(),
            Self::Store(error) => error.rule(),
        }
    }
}

/// Makes an API token for everything, on the machine itself, with the database role of this door: the first one, or after all others were lost.
///
/// # Errors
/// [`AdminTokenError`] says what it lacked; no token is good then.
pub async fn create_admin_token(store: &Store, name: &str) -> Result<Token, AdminTokenError> {
    let secret = Token::generate(TokenKind::Api)?;
    let created = ApiTokenCreated {
        token: ApiTokenId::new(Uuid::now_v7()),
        name: Label128::new(name),
        role: Role::Admin,
        namespaces: NamespaceScope::All,
        expires_at: None,
    };
    store.create_api_token(Actor::Bootstrap, created, TokenHash(*secret.hash().as_bytes())).await?;
    Ok(secret)
}
