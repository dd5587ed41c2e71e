//! Operations: the durable record of accepted changes. `apply_intent` makes them; here they are read and ended.
//!
//! What they wait for, and what became of it, is in [`targets`].

mod targets;

use holdfast_events::{Actor, Detail, OperationFinished, OperationState, OperationVerb};
use holdfast_model::ids::OperationId;
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

pub use self::targets::{Seen, Target};
use crate::error::Error;
use crate::once::{Deed, Once, RequestKey};
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, number, text};

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its identity.
    pub id: OperationId,
    /// What it was asked to do.
    pub verb: OperationVerb,
    /// Who asked.
    pub actor: Actor,
    /// The revision that it made.
    pub revision: Revision,
    /// How many objects it put into force or took out.
    pub changes: u32,
    /// How far it is.
    pub state: OperationState,
    /// Why it ended so, for people.
    pub detail: String,
    /// When it was accepted.
    pub created_at: OffsetDateTime,
    /// When it ended, if it did.
    pub finished_at: Option<OffsetDateTime>,
    /// Whether every host is rendered with it: what it waits for is known, and stays.
    pub is_rendered: bool,
}

/// What came of a cancellation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It ended by it.
    Ended,
    /// It ended before, so.
    EndedBefore(OperationState),
    /// There is no such operation.
    Unknown,
}

/// What a change reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The namespaces of what it put into force or took out, hosts among it.
    pub namespaces: Vec<Name>,
    /// Whether it went through the fleet in stages, or took such a change back.
    pub in_stages: bool,
}

impl Store {
    /// One operation, if there is such.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored operation cannot be read.
    pub async fn load_operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        self.transact("load an operation", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let row: Option<OperationRow> = sqlx::query_as(
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at, \
                            rendered_at IS NOT NULL AS is_rendered \
                     FROM operations WHERE operation_id = $1",
                )
                .bind(id.uuid())
                .fetch_optional(tx)
                .await?;
                row.map(OperationRow::operation).transpose()
            })
        })
        .await
    }

    /// Operations, newest first, at most `limit`, older than one that is named.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored operation cannot be read.
    pub async fn list_operations(&self, before: Option<OperationId>, limit: u32) -> Result<Vec<Operation>, Error> {
        self.transact("list operations", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let rows: Vec<OperationRow> = sqlx::query_as(
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at, \
                            rendered_at IS NOT NULL AS is_rendered \
                     FROM operations WHERE $1::uuid IS NULL OR (created_at, operation_id) < \
                         (SELECT created_at, operation_id FROM operations WHERE operation_id = $1) \
                     ORDER BY created_at DESC, operation_id DESC LIMIT $2",
                )
                .bind(before.map(OperationId::uuid))
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(OperationRow::operation).collect()
            })
        })
        .await
    }

    /// Operations of later revisions than one that have not ended, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored operation cannot be read.
    pub async fn unfinished_operations(&self, after: Revision, limit: u32) -> Result<Vec<Operation>, Error> {
        self.transact("list unfinished operations", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let rows: Vec<OperationRow> = sqlx::query_as(
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at, \
                            rendered_at IS NOT NULL AS is_rendered \
                     FROM operations WHERE state = 'accepted' AND revision > $1 ORDER BY revision LIMIT $2",
                )
                .bind(big(after.raw())?)
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(OperationRow::operation).collect()
            })
        })
        .await
    }

    /// Ends an operation; false if there is no such, or it ended before.
    ///
    /// # Errors
    /// [`Error::Value`] if the state is not terminal.
    pub async fn finish_operation(
        &self,
        actor: Actor,
        id: OperationId,
        state: OperationState,
        detail: Detail,
    ) -> Result<bool, Error> {
        if !state.is_terminal() {
            return Err(Error::value("operations.state", state));
        }
        self.settle_operation(actor, id, state, detail, Vec::new()).await
    }

    /// The same, with what became of its hosts in the end.
    ///
    /// # Errors
    /// As [`Store::finish_operation`].
    pub async fn settle_operation(
        &self,
        actor: Actor,
        id: OperationId,
        state: OperationState,
        detail: Detail,
        seen: Vec<Seen>,
    ) -> Result<bool, Error> {
        if !state.is_terminal() {
            return Err(Error::value("operations.state", state));
        }
        self.transact("finish an operation", Mode::Write, move |tx| {
            let (detail, seen) = (detail.clone(), seen.clone());
            Box::pin(async move {
                let is_new = finish(&mut *tx, actor, id, state, detail).await?;
                if is_new {
                    targets::insert(tx, id, &seen).await?;
                }
                Ok(is_new)
            })
        })
        .await
    }

    /// Ends the waiting for an operation. No host is changed by it, and the intent stays as it is.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again with the same key.
    pub async fn cancel_operation(
        &self,
        actor: Actor,
        id: OperationId,
        key: Option<RequestKey>,
    ) -> Result<Once<Cancelled>, Error> {
        self.transact_once("cancel an operation", key, move |tx| {
            Box::pin(async move {
                let detail = Detail::new(&format!("cancelled by {actor}"));
                if finish(&mut *tx, actor, id, OperationState::Cancelled, detail).await? {
                    let (answer, kept) = (Cancelled::Ended, Cancelled::Ended);
                    return Ok(Deed::Done { answer, kept, operation: Some(id) });
                }
                let state: Option<String> = sqlx::query_scalar("SELECT state FROM operations WHERE operation_id = $1")
                    .bind(id.uuid())
                    .fetch_optional(tx)
                    .await?;
                Ok(Deed::Refused(match state {
                    Some(state) => Cancelled::EndedBefore(text("operations.state", &state)?),
                    None => Cancelled::Unknown,
                }))
            })
        })
        .await
    }

    /// What a change of an operation reached.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored name cannot be read.
    pub async fn operation_reach(&self, operation: OperationId, revision: Revision) -> Result<Reach, Error> {
        self.transact("find what an operation reached", Mode::Statement, move |tx| {
            Box::pin(async move {
                let (names, in_stages): (Vec<String>, bool) = sqlx::query_as(
                    "SELECT array(SELECT namespace FROM objects WHERE from_revision = $1 OR to_revision = $1 \
                                  UNION SELECT h.namespace FROM host_facts f JOIN hosts h USING (host_id) \
                                  WHERE f.from_revision = $1 OR f.to_revision = $1), \
                            EXISTS (SELECT 1 FROM rollouts WHERE operation_id = $2 OR abort_revision = $1)",
                )
                .bind(big(revision.raw())?)
                .bind(operation.uuid())
                .fetch_one(tx)
                .await?;
                let namespaces = names.iter().map(|name| text("objects.namespace", name)).collect::<Result<_, _>>()?;
                Ok(Reach { namespaces, in_stages })
            })
        })
        .await
    }
}

async fn finish(
    tx: &mut PgConnection,
    actor: Actor,
    operation: OperationId,
    state: OperationState,
    detail: Detail,
) -> Result<bool, Error> {
    let done = sqlx::query(
        "UPDATE operations SET state = $2, detail = $3, finished_at = transaction_timestamp() \
         WHERE operation_id = $1 AND state = 'accepted'",
    )
    .bind(operation.uuid())
    .bind(state.word())
    .bind(detail.as_str())
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    let mut outbox = Outbox::of_operation(actor, operation);
    outbox.push(OperationFinished { operation, state, detail })?;
    outbox.write(tx).await?;
    Ok(true)
}

#[derive(sqlx::FromRow)]
struct OperationRow {
    operation_id: Uuid,
    verb: String,
    actor: String,
    revision: i64,
    changes: i32,
    state: String,
    detail: String,
    created_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    is_rendered: bool,
}

impl OperationRow {
    fn operation(self) -> Result<Operation, Error> {
        Ok(Operation {
            id: OperationId::new(self.operation_id),
            verb: text("operations.verb", &self.verb)?,
            actor: text("operations.actor", &self.actor)?,
            revision: Revision::from_raw(number("operations.revision", self.revision)?),
            changes: u32::try_from(self.changes).map_err(|_| Error::value("operations.changes", self.changes))?,
            state: text("operations.state", &self.state)?,
            detail: self.detail,
            created_at: self.created_at,
            finished_at: self.finished_at,
            is_rendered: self.is_rendered,
        })
    }
}
