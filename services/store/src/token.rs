//! Tokens: what they allow, and the check of what proves them.
//!
//! - A token's secret never comes here: callers hand over its hash. Hashes are in tables of their own, outside events and `rebuild`.
//! - The check compares by index look-up of a 32-byte hash of a high-entropy secret, so its time tells nothing of use.

use holdfast_events::{
    Actor, ApiTokenCreated, ApiTokenRevoked, EnrolTokenCreated, EnrolTokenRevoked, NamespaceScope, Role,
};
use holdfast_model::ids::{ApiTokenId, EnrolTokenId};
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{from_json, text, to_json};

/// The hash of a token's secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(redacted)")
    }
}

/// What the holder of an API token may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiGrant {
    /// The token.
    pub token: ApiTokenId,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Where.
    pub namespaces: NamespaceScope,
}

/// An API token in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiTokenEntry {
    /// What it allows.
    pub grant: ApiGrant,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Until when it is good; for ever if absent.
    pub expires_at: Option<OffsetDateTime>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<OffsetDateTime>,
}

/// An enrolment token in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnrolTokenEntry {
    /// What it allows.
    pub scope: EnrolTokenCreated,
    /// How often it was used.
    pub uses: u32,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was revoked, if it was.
    pub revoked_at: Option<OffsetDateTime>,
}

/// Times have a resolution of a microsecond there; what is finer would differ between event and column.
pub(crate) fn truncated(time: OffsetDateTime) -> OffsetDateTime {
    time.truncate_to_microsecond()
}

impl Store {
    /// Makes an enrolment token.
    ///
    /// # Errors
    /// [`Error::Sql`] if the token or its hash exists.
    pub async fn create_enrol_token(
        &self,
        actor: Actor,
        mut token: EnrolTokenCreated,
        hash: TokenHash,
    ) -> Result<(), Error> {
        token.expires_at = truncated(token.expires_at);
        self.transact("create an enrolment token", Mode::Write, move |tx| {
            let token = token.clone();
            Box::pin(async move { insert_enrol_token(tx, actor, token, hash).await })
        })
        .await
    }

    /// Revokes an enrolment token; false if there is none or it was revoked before.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn revoke_enrol_token(&self, actor: Actor, token: EnrolTokenId) -> Result<bool, Error> {
        self.transact("revoke an enrolment token", Mode::Write, move |tx| {
            Box::pin(async move { revoke_enrol(tx, actor, token).await })
        })
        .await
    }

    /// Makes an API token.
    ///
    /// # Errors
    /// [`Error::Sql`] if the token or its hash exists.
    pub async fn create_api_token(
        &self,
        actor: Actor,
        mut token: ApiTokenCreated,
        hash: TokenHash,
    ) -> Result<(), Error> {
        token.expires_at = token.expires_at.map(truncated);
        self.transact("create an API token", Mode::Write, move |tx| {
            let token = token.clone();
            Box::pin(async move { insert_api_token(tx, actor, token, hash).await })
        })
        .await
    }

    /// Revokes an API token; false if there is none or it was revoked before.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn revoke_api_token(&self, actor: Actor, token: ApiTokenId) -> Result<bool, Error> {
        self.transact("revoke an API token", Mode::Write, move |tx| {
            Box::pin(async move { revoke_api(tx, actor, token).await })
        })
        .await
    }

    /// What the holder of an API token may do; nothing if the token is unknown, revoked or past its time.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn authorize_api(&self, hash: TokenHash) -> Result<Option<ApiGrant>, Error> {
        self.transact("check an API token", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let row: Option<GrantRow> = sqlx::query_as(
                    "SELECT t.token_id, t.name, t.role, t.namespaces FROM api_token_hashes h JOIN api_tokens t \
                     USING (token_id) WHERE h.hash = $1 AND t.revoked_at IS NULL \
                     AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())",
                )
                .bind(hash.0.as_slice())
                .fetch_optional(tx)
                .await?;
                row.map(grant).transpose()
            })
        })
        .await
    }

    /// One API token, if there is one of this id.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn api_token(&self, token: ApiTokenId) -> Result<Option<ApiTokenEntry>, Error> {
        self.transact("read an API token", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let row: Option<ApiTokenRow> = sqlx::query_as(
                    "SELECT token_id, name, role, namespaces, created_at, expires_at, revoked_at FROM api_tokens \
                     WHERE token_id = $1",
                )
                .bind(token.uuid())
                .fetch_optional(tx)
                .await?;
                row.map(ApiTokenRow::entry).transpose()
            })
        })
        .await
    }

    /// Every API token, newest first.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn list_api_tokens(&self) -> Result<Vec<ApiTokenEntry>, Error> {
        self.transact("list API tokens", Mode::Snapshot, |tx| {
            Box::pin(async move {
                let rows: Vec<ApiTokenRow> = sqlx::query_as(
                    "SELECT token_id, name, role, namespaces, created_at, expires_at, revoked_at FROM api_tokens \
                     ORDER BY created_at DESC, token_id DESC",
                )
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(ApiTokenRow::entry).collect()
            })
        })
        .await
    }

    /// Every enrolment token, newest first.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn list_enrol_tokens(&self) -> Result<Vec<EnrolTokenEntry>, Error> {
        self.transact("list enrolment tokens", Mode::Snapshot, |tx| {
            Box::pin(async move {
                let rows: Vec<EnrolTokenRow> = sqlx::query_as(
                    "SELECT token_id, namespace, labels, ports, region, owner, address_scope, uses_max, uses, \
                            expires_at, created_at, revoked_at \
                     FROM enrol_tokens ORDER BY created_at DESC, token_id DESC",
                )
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(EnrolTokenRow::entry).collect()
            })
        })
        .await
    }
}

type GrantRow = (Uuid, String, String, serde_json::Value);

fn grant((token, name, role, namespaces): GrantRow) -> Result<ApiGrant, Error> {
    Ok(ApiGrant {
        token: ApiTokenId::new(token),
        name,
        role: text("api_tokens.role", &role)?,
        namespaces: from_json("api_tokens.namespaces", namespaces)?,
    })
}

#[derive(sqlx::FromRow)]
struct ApiTokenRow {
    token_id: Uuid,
    name: String,
    role: String,
    namespaces: serde_json::Value,
    created_at: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
    revoked_at: Option<OffsetDateTime>,
}

impl ApiTokenRow {
    fn entry(self) -> Result<ApiTokenEntry, Error> {
        Ok(ApiTokenEntry {
            grant: grant((self.token_id, self.name, self.role, self.namespaces))?,
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
        })
    }
}

/// A row of `enrol_tokens`.
#[derive(sqlx::FromRow)]
pub(crate) struct EnrolTokenRow {
    token_id: Uuid,
    namespace: String,
    labels: serde_json::Value,
    ports: serde_json::Value,
    region: Option<String>,
    owner: Option<String>,
    address_scope: Vec<IpNet>,
    uses_max: i32,
    uses: i32,
    expires_at: OffsetDateTime,
    created_at: OffsetDateTime,
    revoked_at: Option<OffsetDateTime>,
}

impl EnrolTokenRow {
    pub(crate) fn entry(self) -> Result<EnrolTokenEntry, Error> {
        let count = |column, value: i32| u32::try_from(value).map_err(|_| Error::value(column, value));
        let owner = self.owner.map(holdfast_events::Label128::try_from).transpose();
        Ok(EnrolTokenEntry {
            scope: EnrolTokenCreated {
                token: EnrolTokenId::new(self.token_id),
                namespace: text("enrol_tokens.namespace", &self.namespace)?,
                labels: from_json("enrol_tokens.labels", self.labels)?,
                ports: from_json("enrol_tokens.ports", self.ports)?,
                region: self.region.map(|region| text("enrol_tokens.region", &region)).transpose()?,
                owner: owner.map_err(|error| Error::value("enrol_tokens.owner", error))?,
                address_scope: self.address_scope,
                uses_max: count("enrol_tokens.uses_max", self.uses_max)?,
                expires_at: self.expires_at,
            },
            uses: count("enrol_tokens.uses", self.uses)?,
            created_at: self.created_at,
            revoked_at: self.revoked_at,
        })
    }
}

pub(crate) async fn insert_enrol_token(
    tx: &mut PgConnection,
    actor: Actor,
    token: EnrolTokenCreated,
    hash: TokenHash,
) -> Result<(), Error> {
    let uses_max = i32::try_from(token.uses_max).map_err(|_| Error::value("enrol_tokens.uses_max", token.uses_max))?;
    sqlx::query(
        "INSERT INTO enrol_tokens (token_id, namespace, labels, ports, region, owner, address_scope, uses_max, uses, \
                                   expires_at, created_at, created_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, transaction_timestamp(), $10)",
    )
    .bind(token.token.uuid())
    .bind(token.namespace.as_str())
    .bind(to_json("enrol_tokens.labels", &token.labels)?)
    .bind(to_json("enrol_tokens.ports", &token.ports)?)
    .bind(token.region.as_ref().map(holdfast_model::name::Name::as_str))
    .bind(token.owner.as_ref().map(holdfast_events::Label128::as_str))
    .bind(&token.address_scope)
    .bind(uses_max)
    .bind(token.expires_at)
    .bind(actor.to_string())
    .execute(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO enrol_token_hashes (hash, token_id) VALUES ($1, $2)")
        .bind(hash.0.as_slice())
        .bind(token.token.uuid())
        .execute(&mut *tx)
        .await?;
    let mut outbox = Outbox::new(actor);
    outbox.push(token)?;
    outbox.write(tx).await
}

pub(crate) async fn insert_api_token(
    tx: &mut PgConnection,
    actor: Actor,
    token: ApiTokenCreated,
    hash: TokenHash,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO api_tokens (token_id, name, role, namespaces, expires_at, created_at, created_by) \
         VALUES ($1, $2, $3, $4, $5, transaction_timestamp(), $6)",
    )
    .bind(token.token.uuid())
    .bind(token.name.as_str())
    .bind(token.role.word())
    .bind(to_json("api_tokens.namespaces", &token.namespaces)?)
    .bind(token.expires_at)
    .bind(actor.to_string())
    .execute(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO api_token_hashes (hash, token_id) VALUES ($1, $2)")
        .bind(hash.0.as_slice())
        .bind(token.token.uuid())
        .execute(&mut *tx)
        .await?;
    let mut outbox = Outbox::new(actor);
    outbox.push(token)?;
    outbox.write(tx).await
}

/// Revokes; false if there is none or it was revoked before.
pub(crate) async fn revoke_enrol(tx: &mut PgConnection, actor: Actor, token: EnrolTokenId) -> Result<bool, Error> {
    let done = sqlx::query(
        "UPDATE enrol_tokens SET revoked_at = transaction_timestamp() WHERE token_id = $1 AND revoked_at IS NULL",
    )
    .bind(token.uuid())
    .execute(&mut *tx)
    .await?;
    let is_new = done.rows_affected() == 1;
    if is_new {
        let mut outbox = Outbox::new(actor);
        outbox.push(EnrolTokenRevoked { token })?;
        outbox.write(tx).await?;
    }
    Ok(is_new)
}

/// Revokes; false if there is none or it was revoked before.
pub(crate) async fn revoke_api(tx: &mut PgConnection, actor: Actor, token: ApiTokenId) -> Result<bool, Error> {
    let done = sqlx::query(
        "UPDATE api_tokens SET revoked_at = transaction_timestamp() WHERE token_id = $1 AND revoked_at IS NULL",
    )
    .bind(token.uuid())
    .execute(&mut *tx)
    .await?;
    let is_new = done.rows_affected() == 1;
    if is_new {
        let mut outbox = Outbox::new(actor);
        outbox.push(ApiTokenRevoked { token })?;
        outbox.write(tx).await?;
    }
    Ok(is_new)
}
