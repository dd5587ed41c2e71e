//! Taking a rollout back: what it changed is as it was before, and nobody is held.
//!
//! - An object that a later change changed again stays as that left it, and is named: nobody's later work is undone.
//! - Hosts that had the change get what was before as new versions; the others never saw it, and get none.

use std::collections::BTreeMap;

use holdfast_events::{Actor, Content, Detail, OperationVerb, RolloutAborted};
use holdfast_model::ids::{ObjectId, OperationId, RolloutId};
use holdfast_model::intent::ObjectKey;
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::step::{Locked, locked};
use crate::artifact::Chunk;
use crate::error::Error;
use crate::intent::apply::{Plan, content_of, kind_of, write_plan};
use crate::intent::{latest_revision, lock};
use crate::once::{Deed, Once, RequestKey};
use crate::outbox::Outbox;
use crate::pool::Store;
use crate::value::{big, text};

/// What an abort did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aborted {
    /// The change that put everything back; absent if there was nothing left to put back.
    pub change: Option<(Revision, OperationId)>,
    /// What a later change had changed again, and stays.
    pub left: Vec<ObjectKey>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AbortAnswer {
    /// It is aborted.
    Done(Aborted),
    /// It ended before, so.
    EndedBefore(RolloutState),
    /// Something became of it since it was read: its number is this now.
    Stale(u64),
    /// There is no such rollout.
    Unknown,
}

/// What is kept of it under the name of its request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptAbort {
    /// The change that put everything back.
    pub revision: Option<Revision>,
    /// Its operation.
    pub operation: Option<OperationId>,
    /// What stays, in words.
    pub left: Vec<String>,
}

impl Store {
    /// Aborts a rollout once; if a number is expected, only a row with that one.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again with the same key.
    pub async fn abort_rollout(
        &self,
        actor: Actor,
        id: RolloutId,
        expected: Option<u64>,
        key: Option<RequestKey>,
    ) -> Result<Once<AbortAnswer, KeptAbort>, Error> {
        self.transact_once("abort a rollout", key, move |tx| {
            Box::pin(async move {
                Ok(match abort(tx, actor, id, expected).await? {
                    AbortAnswer::Done(done) => {
                        let operation = done.change.map(|(_, operation)| operation);
                        let revision = done.change.map(|(revision, _)| revision);
                        let left = done.left.iter().map(ToString::to_string).collect();
                        let kept = KeptAbort { revision, operation, left };
                        Deed::Done { answer: AbortAnswer::Done(done), kept, operation }
                    }
                    answer @ (AbortAnswer::EndedBefore(_) | AbortAnswer::Stale(_) | AbortAnswer::Unknown) => {
                        Deed::Refused(answer)
                    }
                })
            })
        })
        .await
    }
}

async fn abort(
    tx: &mut PgConnection,
    actor: Actor,
    id: RolloutId,
    expected: Option<u64>,
) -> Result<AbortAnswer, Error> {
    lock(tx).await?;
    let Some(found) = locked(tx, id).await? else { return Ok(AbortAnswer::Unknown) };
    if let Some(version) = found.other_than(expected) {
        return Ok(AbortAnswer::Stale(version));
    }
    let Locked { operation: begun, state, revision: changed_at, .. } = found;
    if !state.is_open() {
        return Ok(AbortAnswer::EndedBefore(state));
    }
    let latest = latest_revision(tx).await?;
    let objects = changed(tx, changed_at).await?;
    let (mut plan, mut left) = (Plan { puts: Vec::new(), deletes: Vec::new(), missing: Vec::new() }, Vec::new());
    for (key, object) in &objects {
        match object.way_back() {
            WayBack::Put(id, content) => plan.puts.push((id, key, content)),
            WayBack::Delete(id) => plan.deletes.push((id, key)),
            WayBack::Left => left.push(key.clone()),
            WayBack::There => {}
        }
    }
    let change = if plan.puts.is_empty() && plan.deletes.is_empty() {
        None
    } else {
        Some(write_plan(tx, (actor, OperationVerb::Abort), None, latest, &plan, Chunk::default()).await?)
    };
    let detail = detail_of(actor, change, &left);
    let revision = change.map(|(revision, _)| revision);
    sqlx::query(
        "UPDATE rollouts SET state = 'aborted', detail = $2, abort_revision = $3, halt_reason = NULL, finished_at = transaction_timestamp(), \
             version = version + 1 WHERE rollout_id = $1",
    )
    .bind(id.uuid())
    .bind(detail.as_str())
    .bind(revision.map(|revision| big(revision.raw())).transpose()?)
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::of_operation(actor, change.map_or(begun, |(_, operation)| operation));
    let count = u32::try_from(left.len()).map_err(|_| Error::value("left", left.len()))?;
    outbox.push(RolloutAborted { rollout: id, revision, left: count, detail })?;
    outbox.write(tx).await?;
    Ok(AbortAnswer::Done(Aborted { change, left }))
}

fn detail_of(actor: Actor, change: Option<(Revision, OperationId)>, left: &[ObjectKey]) -> Detail {
    let back = match change {
        Some((revision, _)) => format!("aborted by {actor}: revision {revision} has what was before"),
        None => format!("aborted by {actor}: nothing was left to put back"),
    };
    let stays = match left {
        [] => String::new(),
        [first] => format!("; {first} was changed again later and stays"),
        [first, ..] => format!("; {first} and {} more were changed again later and stay", left.len() - 1),
    };
    Detail::new(&format!("{back}{stays}"))
}

/// An object that a rollout changed: before it, right after it, and now.
#[derive(Default)]
struct Changed {
    before: Option<Content>,
    /// The object and the revision that its content is of.
    after: Option<(ObjectId, i64)>,
    now: Option<(ObjectId, i64, Content)>,
}

/// How an object gets back to what it was.
enum WayBack<'a> {
    Put(ObjectId, &'a Content),
    Delete(ObjectId),
    /// It was changed again.
    Left,
    /// It is as it was.
    There,
}

impl Changed {
    fn way_back(&self) -> WayBack<'_> {
        let now = self.now.as_ref();
        if now.map(|(_, _, content)| content) == self.before.as_ref() {
            return WayBack::There;
        }
        if now.map(|(object, from, _)| (*object, *from)) != self.after {
            return WayBack::Left;
        }
        match (&self.before, now) {
            (Some(content), Some((object, ..))) => WayBack::Put(*object, content),
            // What was taken out and comes again is another object of its name.
            (Some(content), None) => WayBack::Put(ObjectId::new(Uuid::now_v7()), content),
            (None, Some((object, ..))) => WayBack::Delete(*object),
            (None, None) => WayBack::There,
        }
    }
}

#[derive(sqlx::FromRow)]
struct ChangedRow {
    object_id: Uuid,
    kind: String,
    namespace: String,
    name: String,
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
    from_revision: i64,
    is_before: bool,
    is_after: bool,
    is_now: bool,
}

/// Every object that a revision put into force or took out.
async fn changed(tx: &mut PgConnection, revision: i64) -> Result<BTreeMap<ObjectKey, Changed>, Error> {
    let rows: Vec<ChangedRow> = sqlx::query_as(
        "WITH changed AS ( \
             SELECT DISTINCT kind, namespace, name FROM objects WHERE from_revision = $1 OR to_revision = $1 \
         ) \
         SELECT o.object_id, o.kind, o.namespace, o.name, o.spec, o.spec_digest, o.from_revision, \
                o.from_revision < $1 AND (o.to_revision IS NULL OR o.to_revision >= $1) AS is_before, \
                o.from_revision <= $1 AND (o.to_revision IS NULL OR o.to_revision > $1) AS is_after, \
                o.to_revision IS NULL AS is_now \
         FROM objects o JOIN changed USING (kind, namespace, name) WHERE o.to_revision IS NULL OR o.to_revision >= $1",
    )
    .bind(revision)
    .fetch_all(tx)
    .await?;
    let mut objects: BTreeMap<ObjectKey, Changed> = BTreeMap::new();
    for row in rows {
        let kind = kind_of("objects.kind", &row.kind)?;
        let (namespace, name) = (text("objects.namespace", &row.namespace)?, text("objects.name", &row.name)?);
        let object = objects.entry(ObjectKey { kind, namespace, name }).or_default();
        let (id, content) = (ObjectId::new(row.object_id), content_of(kind, row.spec, row.spec_digest)?);
        if row.is_after {
            object.after = Some((id, row.from_revision));
        }
        if row.is_now {
            object.now = Some((id, row.from_revision, content.clone()));
        }
        if row.is_before {
            object.before = Some(content);
        }
    }
    Ok(objects)
}
