//! Accepting a change of authored objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_events::{
    Actor, Content, Detail, Event, ObjectDeleted, ObjectPut, OperationAccepted, OperationState, OperationVerb,
};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{ObjectId, OperationId};
use holdfast_model::intent::{Kind, Object, ObjectKey};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::before::KeptChange;
use super::{lock, next};
use crate::artifact::{self, Chunk};
use crate::error::Error;
use crate::once::{Deed, Once, RequestKey};
use crate::outbox::Outbox;
use crate::pool::Store;
use crate::rollout::{self, Obstacle, RolloutStart};
use crate::value::{big, digest, from_json, number, text, to_json};

/// A change that somebody asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntentChange {
    /// Who asks.
    pub actor: Actor,
    /// What the operation is called.
    pub verb: OperationVerb,
    /// Objects to put in force; one that is in force as it is does not count.
    pub puts: Vec<Object>,
    /// Objects to take out of force, all of them or none.
    pub deletes: Vec<ObjectKey>,
    /// What else to take out of force.
    pub prune: Prune,
    /// The last revision that the one who asks has seen; if it is not the last, nothing is done.
    pub expected: Option<Revision>,
    /// What the request is called, if it is to be done once only.
    pub key: Option<RequestKey>,
    /// Why it takes much away, if that had to be said.
    pub because: Option<Detail>,
}

/// What a change takes out of force without naming it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Prune {
    /// Nothing.
    #[default]
    Nothing,
    /// Everything in these namespaces that the change does not put.
    Namespaces(BTreeSet<Name>),
    /// The same, but for the Namespace objects, whose labels other namespaces go by.
    InsideNamespaces(BTreeSet<Name>),
}

/// What came of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It was made before, under the name of its request; nothing was written.
    Before(KeptChange),
    /// Something else was asked for under that name; nothing was written.
    OtherRequest,
    /// A new revision.
    Changed {
        /// Its number.
        revision: Revision,
        /// The operation that made it.
        operation: OperationId,
        /// What it put in force.
        put: Vec<ObjectKey>,
        /// What it took out of force.
        deleted: Vec<ObjectKey>,
    },
    /// Everything is as it was asked for; nothing was written.
    Unchanged {
        /// The last revision.
        revision: Revision,
    },
    /// Something that was to be taken out of force is not there; nothing was written.
    Missing {
        /// All of it.
        missing: Vec<ObjectKey>,
    },
    /// It was to go through the fleet in stages, and cannot now; nothing was written.
    NoRollout(
        /// Why.
        Obstacle,
    ),
    /// There is a later revision than the one that was expected; nothing was written.
    Moved {
        /// The last revision.
        revision: Revision,
    },
}

impl Store {
    /// Accepts a change: revision, objects, events and operation together.
    ///
    /// # Errors
    /// [`Error::NamedTwice`] if the change contradicts itself; [`Error::OutcomeUnknown`] if it may or may not have been made.
    pub async fn apply_intent(&self, change: IntentChange) -> Result<Applied, Error> {
        self.accept(change, None).await
    }

    /// The same, and hosts get it stage by stage: the rollout begins with it. What is changed already begins none.
    ///
    /// # Errors
    /// As [`Store::apply_intent`].
    pub async fn apply_in_stages(&self, change: IntentChange, start: RolloutStart) -> Result<Applied, Error> {
        self.accept(change, Some(start)).await
    }

    async fn accept(&self, change: IntentChange, start: Option<RolloutStart>) -> Result<Applied, Error> {
        let key = change.key.clone();
        let rollout = start.as_ref().map(|start| start.rollout);
        let prepared = Arc::new(Prepared { start, ..Prepared::new(change)? });
        let done = self.transact_once("apply intent", key, move |tx| {
            let prepared = Arc::clone(&prepared);
            Box::pin(async move {
                let answer = apply(tx, &prepared).await?;
                let kept = match &answer {
                    Applied::Changed { revision, operation, .. } => {
                        Some(KeptChange { revision: *revision, operation: Some(*operation), rollout })
                    }
                    Applied::Unchanged { revision } => {
                        Some(KeptChange { revision: *revision, operation: None, rollout: None })
                    }
                    Applied::Missing { .. }
                    | Applied::Moved { .. }
                    | Applied::NoRollout(_)
                    | Applied::Before(_)
                    | Applied::OtherRequest => None,
                };
                Ok(match kept {
                    Some(kept) => Deed::Done { answer, kept, operation: kept.operation },
                    None => Deed::Refused(answer),
                })
            })
        });
        Ok(match done.await? {
            Once::Now(applied) => applied,
            Once::Before(kept) => Applied::Before(kept),
            Once::Other => Applied::OtherRequest,
        })
    }
}

/// A change with its contents placed, made before any lock is held.
struct Prepared {
    change: IntentChange,
    /// How it goes through the fleet, if not at once.
    start: Option<RolloutStart>,
    contents: BTreeMap<ObjectKey, Content>,
    artifacts: BTreeMap<Digest, Vec<u8>>,
}

impl Prepared {
    fn new(mut change: IntentChange) -> Result<Self, Error> {
        let (mut contents, mut artifacts) = (BTreeMap::new(), BTreeMap::new());
        for object in std::mem::take(&mut change.puts) {
            let key = object.key();
            let (content, bytes) = Content::place(object.spec)?;
            artifacts.extend(content.artifact().zip(bytes));
            if contents.insert(key.clone(), content).is_some() {
                return Err(Error::NamedTwice(key));
            }
        }
        let mut deletes = BTreeSet::new();
        for key in &change.deletes {
            if contents.contains_key(key) || !deletes.insert(key) {
                return Err(Error::NamedTwice(key.clone()));
            }
        }
        Ok(Self { change, start: None, contents, artifacts })
    }
}

/// An object in force.
struct InForce {
    object: ObjectId,
    content: Content,
}

/// What is to be written: which contents, under which identity, and which objects end.
pub(crate) struct Plan<'a> {
    pub(crate) puts: Vec<(ObjectId, &'a ObjectKey, &'a Content)>,
    pub(crate) deletes: Vec<(ObjectId, &'a ObjectKey)>,
    pub(crate) missing: Vec<ObjectKey>,
}

fn plan_change<'a>(prepared: &'a Prepared, in_force: &'a BTreeMap<ObjectKey, InForce>) -> Plan<'a> {
    let mut plan = Plan { puts: Vec::new(), deletes: Vec::new(), missing: Vec::new() };
    for (key, content) in &prepared.contents {
        match in_force.get(key) {
            Some(old) if old.content == *content => {}
            Some(old) => plan.puts.push((old.object, key, content)),
            None => plan.puts.push((ObjectId::new(Uuid::now_v7()), key, content)),
        }
    }
    let listed: BTreeSet<_> = prepared.change.deletes.iter().collect();
    plan.missing = listed.iter().filter(|key| !in_force.contains_key(**key)).map(|key| (*key).clone()).collect();
    for (key, old) in in_force {
        let pruned = match &prepared.change.prune {
            Prune::Nothing => false,
            Prune::Namespaces(names) => names.contains(&key.namespace) && !prepared.contents.contains_key(key),
            Prune::InsideNamespaces(names) => {
                let is_inside = key.kind != Kind::Namespace && names.contains(&key.namespace);
                is_inside && !prepared.contents.contains_key(key)
            }
        };
        if pruned || listed.contains(key) {
            plan.deletes.push((old.object, key));
        }
    }
    plan
}

async fn apply(tx: &mut PgConnection, prepared: &Prepared) -> Result<Applied, Error> {
    lock(tx).await?;
    let change = &prepared.change;
    let (latest, in_force) = load_in_force(tx, prepared).await?;
    if change.expected.is_some_and(|expected| expected != latest) {
        return Ok(Applied::Moved { revision: latest });
    }
    let plan = plan_change(prepared, &in_force);
    if !plan.missing.is_empty() {
        return Ok(Applied::Missing { missing: plan.missing });
    }
    if plan.puts.is_empty() && plan.deletes.is_empty() {
        return Ok(Applied::Unchanged { revision: latest });
    }
    if prepared.start.is_some()
        && let Some(obstacle) = rollout::obstacle(tx).await?
    {
        return Ok(Applied::NoRollout(obstacle));
    }
    let artifacts = artifact::insert_all_but_last(tx, prepared.artifacts.iter()).await?;
    let (revision, operation) =
        write_plan(tx, (change.actor, change.verb), change.because.clone(), latest, &plan, artifacts).await?;
    if let Some(start) = &prepared.start {
        rollout::insert(tx, change.actor, start, (latest, revision), operation).await?;
    }
    let put = plan.puts.iter().map(|(_, key, _)| (*key).clone()).collect();
    let deleted = plan.deletes.iter().map(|(_, key)| (*key).clone()).collect();
    Ok(Applied::Changed { revision, operation, put, deleted })
}

/// Writes a change that changes something: the revision after the latest, with its objects, operation and events. The caller holds the lock.
pub(crate) async fn write_plan(
    tx: &mut PgConnection,
    asked: (Actor, OperationVerb),
    because: Option<Detail>,
    latest: Revision,
    plan: &Plan<'_>,
    artifacts: Chunk<'_>,
) -> Result<(Revision, OperationId), Error> {
    let (revision, operation) = (next(latest)?, OperationId::new(Uuid::now_v7()));
    let count = plan.puts.len() + plan.deletes.len();
    let changes = u32::try_from(count).map_err(|_| Error::value("changes", count))?;
    write(tx, asked, &Numbers { revision, operation, changes }, plan, artifacts).await?;
    let (actor, verb) = asked;
    let mut outbox = Outbox::of_operation(actor, operation);
    outbox.push(OperationAccepted { operation, verb, revision, changes, because })?;
    for (object, key, content) in &plan.puts {
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        let content = (*content).clone();
        outbox.push(ObjectPut { revision, object: *object, namespace, name, content })?;
    }
    for (object, key) in &plan.deletes {
        let ObjectKey { kind, namespace, name } = (*key).clone();
        outbox.push(Event::from(ObjectDeleted { revision, object: *object, kind, namespace, name }))?;
    }
    outbox.write(tx).await?;
    Ok((revision, operation))
}

#[derive(sqlx::FromRow)]
struct InForceRow {
    revision: i64,
    object_id: Option<Uuid>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
}

/// The last revision, and the objects in force that the change names or may prune.
async fn load_in_force(
    tx: &mut PgConnection,
    prepared: &Prepared,
) -> Result<(Revision, BTreeMap<ObjectKey, InForce>), Error> {
    let named = || prepared.contents.keys().chain(&prepared.change.deletes);
    let pruned: Vec<&str> = match &prepared.change.prune {
        Prune::Nothing => Vec::new(),
        Prune::Namespaces(names) | Prune::InsideNamespaces(names) => names.iter().map(Name::as_str).collect(),
    };
    let rows: Vec<InForceRow> = sqlx::query_as(
        "SELECT l.revision, o.object_id, o.kind, o.namespace, o.name, o.spec, o.spec_digest \
         FROM (SELECT coalesce(max(revision), 0) AS revision FROM revisions) l LEFT JOIN objects o \
         ON o.to_revision IS NULL AND (o.namespace = ANY($4) \
             OR (o.kind, o.namespace, o.name) IN (SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[])))",
    )
    .bind(named().map(|key| key.kind.word()).collect::<Vec<_>>())
    .bind(named().map(|key| key.namespace.as_str()).collect::<Vec<_>>())
    .bind(named().map(|key| key.name.as_str()).collect::<Vec<_>>())
    .bind(pruned)
    .fetch_all(tx)
    .await?;
    let latest = rows.first().ok_or_else(|| Error::value("revisions.revision", "none"))?.revision;
    let mut in_force = BTreeMap::new();
    for row in rows {
        in_force.extend(row.object()?);
    }
    Ok((Revision::from_raw(number("revisions.revision", latest)?), in_force))
}

impl InForceRow {
    /// The object; none if the row has the revision alone.
    fn object(self) -> Result<Option<(ObjectKey, InForce)>, Error> {
        let (Some(object), Some(kind), Some(namespace), Some(name)) =
            (self.object_id, self.kind, self.namespace, self.name)
        else {
            return Ok(None);
        };
        let kind = kind_of("objects.kind", &kind)?;
        let content = content_of(kind, self.spec, self.spec_digest)?;
        let key =
            ObjectKey { kind, namespace: text("objects.namespace", &namespace)?, name: text("objects.name", &name)? };
        Ok(Some((key, InForce { object: ObjectId::new(object), content })))
    }
}

/// What an object says, or the digest of it.
pub(crate) fn content_of(
    kind: Kind,
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
) -> Result<Content, Error> {
    match (spec, spec_digest) {
        (Some(spec), None) => Ok(Content::Inline(from_json("objects.spec", spec)?)),
        (None, Some(bytes)) => Ok(Content::Artifact { kind, digest: digest("objects.spec_digest", &bytes)? }),
        (Some(_), Some(_)) | (None, None) => Err(Error::value("objects.spec", "both or neither")),
    }
}

/// The kind with a word.
pub(crate) fn kind_of(column: &'static str, word: &str) -> Result<Kind, Error> {
    Kind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| Error::value(column, word))
}

/// What a change is called in the tables.
struct Numbers {
    revision: Revision,
    operation: OperationId,
    changes: u32,
}

/// Everything but the events, by one statement; the caller holds the lock, so nothing in it waits for another change.
///
/// The rows that begin come after those that end, since one name is in force once: the count of the ended is known when all of them are.
async fn write(
    tx: &mut PgConnection,
    (actor, verb): (Actor, OperationVerb),
    Numbers { revision, operation, changes }: &Numbers,
    plan: &Plan<'_>,
    artifacts: Chunk<'_>,
) -> Result<(), Error> {
    let puts = &plan.puts;
    let ended = puts.iter().map(|(object, _, _)| object).chain(plan.deletes.iter().map(|(object, _)| object));
    let spec = |content: &Content| match content {
        Content::Inline(spec) => to_json("objects.spec", spec).map(Some),
        Content::Artifact { .. } => Ok(None),
    };
    let digests = puts.iter().map(|(_, _, content)| content.artifact().map(|digest| digest.as_bytes().to_vec()));
    sqlx::query(
        "WITH made AS ( \
             INSERT INTO revisions (revision, at, actor, operation_id) VALUES ($1, transaction_timestamp(), $2, $3) \
         ), accepted AS ( \
             INSERT INTO operations (operation_id, verb, actor, revision, changes, state, detail, created_at) \
             VALUES ($3, $4, $2, $1, $5, $6, '', transaction_timestamp()) \
         ), stored AS ( \
             INSERT INTO artifacts (digest, bytes) SELECT * FROM UNNEST($7::bytea[], $8::bytea[]) \
             ON CONFLICT (digest) DO NOTHING \
         ), ended AS ( \
             UPDATE objects SET to_revision = $1 WHERE to_revision IS NULL AND object_id = ANY($9) RETURNING 1 \
         ) \
         INSERT INTO objects (object_id, kind, namespace, name, spec, spec_digest, from_revision) \
         SELECT object_id, kind, namespace, name, spec, spec_digest, $1 \
         FROM (SELECT count(*) FROM ended) AS done, \
              UNNEST($10::uuid[], $11::text[], $12::text[], $13::text[], $14::jsonb[], $15::bytea[]) \
              AS r (object_id, kind, namespace, name, spec, spec_digest)",
    )
    .bind(big(revision.raw())?)
    .bind(actor.to_string())
    .bind(operation.uuid())
    .bind(verb.word())
    .bind(i32::try_from(*changes).map_err(|_| Error::value("changes", changes))?)
    .bind(OperationState::Accepted.word())
    .bind(artifacts.digests)
    .bind(artifacts.contents)
    .bind(ended.map(|object| object.uuid()).collect::<Vec<_>>())
    .bind(puts.iter().map(|(object, _, _)| object.uuid()).collect::<Vec<_>>())
    .bind(puts.iter().map(|(_, key, _)| key.kind.word()).collect::<Vec<_>>())
    .bind(puts.iter().map(|(_, key, _)| key.namespace.as_str()).collect::<Vec<_>>())
    .bind(puts.iter().map(|(_, key, _)| key.name.as_str()).collect::<Vec<_>>())
    .bind(puts.iter().map(|(_, _, content)| spec(content)).collect::<Result<Vec<_>, _>>()?)
    .bind(digests.collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}
