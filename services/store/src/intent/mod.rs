//! Authored intent: accepting changes of it, and reading it at a revision.
//!
//! - Changes take one lock that ends with their transaction, so revisions are dense and known at commit.
//! - Rows are in force over a range of revisions; nothing is overwritten, so every past revision can be read.
//! - A change that changes nothing writes nothing.

pub(crate) mod apply;
mod before;
mod decommission;
mod history;
mod load;

pub use apply::{Applied, IntentChange, Prune};
pub use before::{ChangeKind, KeptChange};
pub use decommission::{Decommission, Decommissioned, KeptDecommission};
pub use history::{HostRow, ObjectRow, RevisionRow, VersionRow};
use holdfast_model::numbers::Revision;
pub use load::{Changes, HostChange, ObjectChange, OpenRollout};
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::value::{big, number};

/// Any number that nothing else in this database locks: the bytes of "intent".
const INTENT_LOCK: i64 = 0x696e_7465_6e74;

/// Waits until this transaction alone may make revisions. Only the next statement sees what whoever was waited for committed.
pub(crate) async fn lock(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(INTENT_LOCK).execute(tx).await?;
    Ok(())
}

/// The last revision; zero before the first.
pub(crate) async fn latest_revision(tx: &mut PgConnection) -> Result<Revision, Error> {
    let raw: i64 = sqlx::query_scalar("SELECT coalesce(max(revision), 0) FROM revisions").fetch_one(tx).await?;
    Ok(Revision::from_raw(number("revision", raw)?))
}

/// The revision after one.
pub(crate) fn next(revision: Revision) -> Result<Revision, Error> {
    revision.next().ok_or_else(|| Error::value("revision", revision))
}

/// Records a revision. The caller holds the lock.
pub(crate) async fn insert_revision(
    tx: &mut PgConnection,
    revision: Revision,
    actor: holdfast_events::Actor,
    operation: Option<holdfast_model::ids::OperationId>,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO revisions (revision, at, actor, operation_id) VALUES ($1, transaction_timestamp(), $2, $3)",
    )
    .bind(big(revision.raw())?)
    .bind(actor.to_string())
    .bind(operation.map(holdfast_model::ids::OperationId::uuid))
    .execute(tx)
    .await?;
    Ok(())
}
