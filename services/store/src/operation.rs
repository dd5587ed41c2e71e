//! Operations: the durable record of accepted changes. `apply_intent` makes them; here they are read and ended.

use holdfast_events::{Actor, Detail, OperationFinished, OperationState, OperationVerb};
use holdfast_model::ids::OperationId;
use holdfast_model::numbers::Revision;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{number, text};

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
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at \
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
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at \
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

    /// Operations that have not ended, oldest first.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored operation cannot be read.
    pub async fn unfinished_operations(&self, limit: u32) -> Result<Vec<Operation>, Error> {
        self.transact("list unfinished operations", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let rows: Vec<OperationRow> = sqlx::query_as(
                    "SELECT operation_id, verb, actor, revision, changes, state, detail, created_at, finished_at \
                     FROM operations WHERE state = 'accepted' ORDER BY revision LIMIT $1",
                )
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
        self.transact("finish an operation", Mode::Write, move |tx| {
            let detail = detail.clone();
            Box::pin(async move { finish(tx, actor, id, state, detail).await })
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
        })
    }
}
