//! Taking a host out: a revision, an operation, and the end of everything that is of now.
//!
//! - Who it was, what was desired of it and every fact about it stay; its name is free again. A host never comes back: the machine is enrolled anew.
//! - Its session ends in the same transaction, under the lock that every write of a session takes: what comes of it later finds no session.
//! - It does not reach into the machine: what is enforced there stays until somebody ends it there.

use holdfast_events::{
    Actor, CloseReason, Detail, HostDecommissioned, OperationAccepted, OperationState, OperationVerb, SessionClosed,
};
use holdfast_model::ids::{HostId, OperationId};
use holdfast_model::numbers::{Revision, SessionEpoch};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{insert_revision, latest_revision, lock, next};
use crate::error::Error;
use crate::once::{Deed, Kept, Once, RequestKey};
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, number, text};

/// A host that somebody wants out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decommission {
    /// Who asks.
    pub actor: Actor,
    /// Which host.
    pub host: HostId,
    /// Why, in their words.
    pub detail: Detail,
    /// The last revision that it was judged on; if it is not the last, nothing is done.
    pub expected: Option<Revision>,
    /// Why it takes much away from others, if that had to be said.
    pub because: Option<Detail>,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decommissioned {
    /// It is out.
    Out {
        /// The revision that this is.
        revision: Revision,
        /// The operation that made it.
        operation: OperationId,
    },
    /// There is no such host, or it was out before.
    Unknown,
    /// There is a later revision than the one that was expected; nothing was written.
    Moved,
}

/// What is kept of it under the name of its request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptDecommission {
    /// Which host.
    pub host: HostId,
    /// What it was called.
    pub name: String,
    /// The revision that this is.
    pub revision: Revision,
    /// The operation that made it.
    pub operation: OperationId,
}

impl Store {
    /// Takes a host out once.
    ///
    /// # Errors
    /// As [`Store::decommission`].
    pub async fn decommission_once(
        &self,
        asked: Decommission,
        name: String,
        key: Option<RequestKey>,
    ) -> Result<Once<Decommissioned, KeptDecommission>, Error> {
        self.transact_once("decommission a host", key, move |tx| {
            let (asked, name) = (asked.clone(), name.clone());
            Box::pin(async move {
                let host = asked.host;
                Ok(match decommission(tx, asked).await? {
                    answer @ Decommissioned::Out { revision, operation } => {
                        let kept = KeptDecommission { host, name, revision, operation };
                        Deed::Done { answer, kept, operation: Some(operation) }
                    }
                    answer @ (Decommissioned::Unknown | Decommissioned::Moved) => Deed::Refused(answer),
                })
            })
        })
        .await
    }

    /// What came of it, if it was done before under this name: the host cannot be found by its name any more.
    ///
    /// # Errors
    /// [`Error::Value`] if what is kept cannot be read.
    pub async fn recall_decommission(
        &self,
        key: RequestKey,
    ) -> Result<Option<Once<Decommissioned, KeptDecommission>>, Error> {
        Ok(match self.recall(key).await? {
            Kept::Nothing => None,
            Kept::Answer(kept) => Some(Once::Before(kept)),
            Kept::Other => Some(Once::Other),
        })
    }

    /// Takes a host out: revision, facts, session, events and operation together.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if it may or may not have been done.
    pub async fn decommission(&self, asked: Decommission) -> Result<Decommissioned, Error> {
        self.transact("decommission a host", Mode::Write, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { decommission(tx, asked).await })
        })
        .await
    }
}

async fn decommission(tx: &mut PgConnection, asked: Decommission) -> Result<Decommissioned, Error> {
    lock(tx).await?;
    let (host, id) = (asked.host, asked.host.uuid());
    let named: Option<(String, String)> =
        sqlx::query_as("SELECT namespace, name FROM hosts WHERE host_id = $1 AND decommissioned_at IS NULL")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
    let Some((namespace, name)) = named else { return Ok(Decommissioned::Unknown) };
    let latest = latest_revision(tx).await?;
    if asked.expected.is_some_and(|expected| expected != latest) {
        return Ok(Decommissioned::Moved);
    }
    let revision = next(latest)?;
    let operation = OperationId::new(Uuid::now_v7());
    // The lock that every write of a session takes comes first: what a gateway wrote before it is told before this.
    let open: Option<(i64, bool)> = sqlx::query_as(
        "DELETE FROM sessions WHERE host_id = $1 RETURNING session_epoch, opened_at IS NOT NULL AND closed_at IS NULL",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    insert_revision(tx, revision, asked.actor, Some(operation)).await?;
    end_facts(tx, host, revision).await?;
    forget(tx, host).await?;
    sqlx::query(
        "INSERT INTO operations (operation_id, verb, actor, revision, changes, state, detail, created_at) \
         VALUES ($1, $2, $3, $4, 1, $5, '', transaction_timestamp())",
    )
    .bind(operation.uuid())
    .bind(OperationVerb::Decommission.word())
    .bind(asked.actor.to_string())
    .bind(big(revision.raw())?)
    .bind(OperationState::Accepted.word())
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::of_operation(asked.actor, operation);
    outbox.push(OperationAccepted {
        operation,
        verb: OperationVerb::Decommission,
        revision,
        changes: 1,
        because: asked.because,
    })?;
    if let Some((raw, true)) = open {
        let session_epoch = SessionEpoch::from_raw(number("sessions.session_epoch", raw)?);
        outbox.push(SessionClosed { host, session_epoch, reason: CloseReason::Decommissioned })?;
    }
    let (namespace, name) = (text("hosts.namespace", &namespace)?, text("hosts.name", &name)?);
    outbox.push(HostDecommissioned { revision, host, namespace, name, detail: asked.detail })?;
    outbox.write(tx).await?;
    Ok(Decommissioned::Out { revision, operation })
}

async fn end_facts(tx: &mut PgConnection, host: HostId, revision: Revision) -> Result<(), Error> {
    sqlx::query("UPDATE hosts SET decommissioned_at = transaction_timestamp() WHERE host_id = $1")
        .bind(host.uuid())
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE host_facts SET to_revision = $2 WHERE host_id = $1 AND to_revision IS NULL")
        .bind(host.uuid())
        .bind(big(revision.raw())?)
        .execute(tx)
        .await?;
    Ok(())
}

/// What is of now.
async fn forget(tx: &mut PgConnection, host: HostId) -> Result<(), Error> {
    for statement in [
        "DELETE FROM observed WHERE host_id = $1",
        "DELETE FROM presence WHERE host_id = $1",
        "DELETE FROM claims WHERE host_id = $1",
        "DELETE FROM instances WHERE host_id = $1",
        "DELETE FROM drifts WHERE host_id = $1",
        "DELETE FROM statuses WHERE host_id = $1",
    ] {
        sqlx::query(statement).bind(host.uuid()).execute(&mut *tx).await?;
    }
    Ok(())
}
