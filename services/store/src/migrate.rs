//! Bringing a database to the form that this build needs.
//!
//! - All missing steps are taken in one transaction under one lock, so a database has all of a build's steps or none of the new ones.
//! - A step that was taken is never edited: its digest is kept and compared.
//! - Services of the build before run meanwhile: a step only adds, and writes no table anew, which would be empty to whoever waits for its lock.
//! - The first migration of a new database also begins its lineage (`authority`).

use holdfast_events::{Actor, AuthorityCreated};
use holdfast_model::digest::Digest;
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::AuthorityEpoch;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::big;

macro_rules! steps {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../schema/sql/migrations/", $name, ".sql"))),)+]
    };
}

/// The steps, in order; a new one goes at the end, with the next number.
pub(crate) const STEPS: &[(&str, &str)] = steps! {
    "0001_roles",
    "0002_authority",
    "0003_events",
    "0004_leases",
    "0005_artifacts",
    "0006_intent",
    "0007_hosts",
    "0008_tokens",
    "0009_requests",
    "0010_desired",
    "0011_sessions",
    "0012_grants",
    "0013_agents_read_addresses",
    "0014_requests_of_a_key",
    "0015_leases_say_how_the_bus_is",
    "0016_lives_of_the_authority",
    "0017_absence",
    "0018_instances",
    "0019_drifts",
    "0020_operations",
    "0021_decommission",
    "0022_instants_of_outcomes",
    "0023_rollouts",
    "0024_directives",
    "0025_statuses",
    "0026_since_when",
    "0027_rollouts_and_who_leads",
};

/// Any number that nothing else in this database locks: the bytes of "migrate".
const MIGRATION_LOCK: i64 = 0x006d_6967_7261_7465;

/// What a migration did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// How many steps it took.
    pub steps: usize,
    /// Whether the lineage of the database began now.
    pub began: bool,
}

impl Store {
    /// Takes the missing steps and, in a new database, begins the lineage of `authority`, the one that the CA names. Needs the owner's role.
    ///
    /// # Errors
    /// [`Error::ForeignMigration`] if a step was taken that is not this build's, [`Error::ForeignAuthority`] if the database is of another lineage.
    pub async fn migrate(&self, authority: AuthorityId) -> Result<Migrated, Error> {
        self.transact("migrate", Mode::LongWrite, move |tx| Box::pin(migrate(tx, authority))).await
    }

    /// Refuses a database that lacks steps of this build. Steps of a newer build are fine: they only add.
    ///
    /// # Errors
    /// [`Error::Unmigrated`], or [`Error::ForeignMigration`] if a step is not this build's.
    pub async fn check_migrated(&self) -> Result<(), Error> {
        self.transact("check migrations", Mode::Snapshot, |tx| {
            Box::pin(async move {
                let exists: bool =
                    sqlx::query_scalar("SELECT to_regclass('migrations') IS NOT NULL").fetch_one(&mut *tx).await?;
                let found = if exists { taken(tx).await? } else { 0 };
                if found < STEPS.len() { Err(Error::Unmigrated { found, wanted: STEPS.len() }) } else { Ok(()) }
            })
        })
        .await
    }
}

/// How many of this build's steps were taken, all of which must be as they are in this build.
async fn taken(tx: &mut PgConnection) -> Result<usize, Error> {
    let rows: Vec<(i32, Vec<u8>)> =
        sqlx::query_as("SELECT number, digest FROM migrations ORDER BY number").fetch_all(&mut *tx).await?;
    for ((number, digest), (_, sql)) in rows.iter().zip(STEPS) {
        if digest != Digest::of(sql.as_bytes()).as_bytes() {
            return Err(Error::ForeignMigration { number: *number });
        }
    }
    Ok(rows.len().min(STEPS.len()))
}

async fn migrate(tx: &mut PgConnection, authority: AuthorityId) -> Result<Migrated, Error> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *tx).await?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS migrations ( \
             number integer PRIMARY KEY, \
             name text NOT NULL, \
             digest bytea NOT NULL, \
             taken_at timestamptz NOT NULL DEFAULT transaction_timestamp() \
         ); \
         GRANT SELECT ON migrations TO PUBLIC",
    )
    .execute(&mut *tx)
    .await?;
    let before = taken(tx).await?;
    for ((name, sql), number) in STEPS.iter().zip(1_i32..).skip(before) {
        sqlx::raw_sql(*sql).execute(&mut *tx).await?;
        sqlx::query("INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)")
            .bind(number)
            .bind(name)
            .bind(Digest::of(sql.as_bytes()).as_bytes().as_slice())
            .execute(&mut *tx)
            .await?;
    }
    Ok(Migrated { steps: STEPS.len() - before, began: begin_lineage(tx, authority).await? })
}

/// Begins the lineage in a new database; says whether it did.
async fn begin_lineage(tx: &mut PgConnection, authority: AuthorityId) -> Result<bool, Error> {
    let there: Option<Uuid> = sqlx::query_scalar("SELECT authority_id FROM authority").fetch_optional(&mut *tx).await?;
    match there.map(AuthorityId::new) {
        Some(found) if found == authority => return Ok(false),
        Some(found) => return Err(Error::ForeignAuthority { found, wanted: authority }),
        None => {}
    }
    let epoch = AuthorityEpoch::from_raw(1);
    sqlx::query(
        "INSERT INTO authority (authority_id, authority_epoch, created_at) VALUES ($1, $2, transaction_timestamp())",
    )
    .bind(authority.uuid())
    .bind(big(epoch.raw())?)
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::new(Actor::Bootstrap);
    outbox.push(AuthorityCreated { authority, epoch })?;
    outbox.write(tx).await?;
    Ok(true)
}
