//! Accepting a change of authored objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_events::{
    Actor, Content, Event, ObjectDeleted, ObjectPut, OperationAccepted, OperationState, OperationVerb,
};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{ObjectId, OperationId};
use holdfast_model::intent::{Kind, Object, ObjectKey};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{insert_revision, lock, next};
use crate::artifact;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, digest, from_json, text, to_json};

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
        let prepared = Arc::new(Prepared::new(change)?);
        self.transact("apply intent", Mode::Write, move |tx| {
            let prepared = Arc::clone(&prepared);
            Box::pin(async move { apply(tx, &prepared).await })
        })
        .await
    }
}

/// A change with its contents placed, made before any lock is held.
struct Prepared {
    change: IntentChange,
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
        Ok(Self { change, contents, artifacts })
    }
}

/// An object in force.
struct InForce {
    object: ObjectId,
    content: Content,
}

/// What is to be written: which contents, under which identity, and which objects end.
struct Plan<'a> {
    puts: Vec<(ObjectId, &'a ObjectKey, &'a Content)>,
    deletes: Vec<(ObjectId, &'a ObjectKey)>,
    missing: Vec<ObjectKey>,
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
    let latest = lock(tx).await?;
    let change = &prepared.change;
    if change.expected.is_some_and(|expected| expected != latest) {
        return Ok(Applied::Moved { revision: latest });
    }
    let in_force = load_in_force(tx, prepared).await?;
    let plan = plan_change(prepared, &in_force);
    if !plan.missing.is_empty() {
        return Ok(Applied::Missing { missing: plan.missing });
    }
    let count = plan.puts.len() + plan.deletes.len();
    if count == 0 {
        return Ok(Applied::Unchanged { revision: latest });
    }
    let revision = next(latest)?;
    let operation = OperationId::new(Uuid::now_v7());
    let changes = u32::try_from(count).map_err(|_| Error::value("changes", count))?;
    artifact::insert(tx, prepared.artifacts.iter()).await?;
    insert_revision(tx, revision, change.actor, Some(operation)).await?;
    write_objects(tx, revision, &plan).await?;
    insert_operation(tx, operation, change, revision, changes).await?;
    let mut outbox = Outbox::of_operation(change.actor, operation);
    outbox.push(OperationAccepted { operation, verb: change.verb, revision, changes })?;
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
    let put = plan.puts.iter().map(|(_, key, _)| (*key).clone()).collect();
    let deleted = plan.deletes.iter().map(|(_, key)| (*key).clone()).collect();
    Ok(Applied::Changed { revision, operation, put, deleted })
}

type InForceRow = (Uuid, String, String, String, Option<serde_json::Value>, Option<Vec<u8>>);

/// The objects in force that the change names or may prune.
async fn load_in_force(tx: &mut PgConnection, prepared: &Prepared) -> Result<BTreeMap<ObjectKey, InForce>, Error> {
    let named = || prepared.contents.keys().chain(&prepared.change.deletes);
    let pruned: Vec<&str> = match &prepared.change.prune {
        Prune::Nothing => Vec::new(),
        Prune::Namespaces(names) | Prune::InsideNamespaces(names) => names.iter().map(Name::as_str).collect(),
    };
    let rows: Vec<InForceRow> = sqlx::query_as(
        "SELECT object_id, kind, namespace, name, spec, spec_digest FROM objects \
         WHERE to_revision IS NULL AND (namespace = ANY($4) \
             OR (kind, namespace, name) IN (SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[])))",
    )
    .bind(named().map(|key| key.kind.word()).collect::<Vec<_>>())
    .bind(named().map(|key| key.namespace.as_str()).collect::<Vec<_>>())
    .bind(named().map(|key| key.name.as_str()).collect::<Vec<_>>())
    .bind(pruned)
    .fetch_all(tx)
    .await?;
    let read = |(object, kind, namespace, name, spec, spec_digest): InForceRow| {
        let kind = kind_of("objects.kind", &kind)?;
        let content = match (spec, spec_digest) {
            (Some(spec), None) => Content::Inline(from_json("objects.spec", spec)?),
            (None, Some(bytes)) => Content::Artifact { kind, digest: digest("objects.spec_digest", &bytes)? },
            (Some(_), Some(_)) | (None, None) => return Err(Error::value("objects.spec", "both or neither")),
        };
        let key =
            ObjectKey { kind, namespace: text("objects.namespace", &namespace)?, name: text("objects.name", &name)? };
        Ok((key, InForce { object: ObjectId::new(object), content }))
    };
    rows.into_iter().map(read).collect()
}

/// The kind with a word.
pub(crate) fn kind_of(column: &'static str, word: &str) -> Result<Kind, Error> {
    Kind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| Error::value(column, word))
}

async fn write_objects(tx: &mut PgConnection, revision: Revision, plan: &Plan<'_>) -> Result<(), Error> {
    let revision = big(revision.raw())?;
    let ended: Vec<Uuid> = {
        let puts = plan.puts.iter().map(|(object, _, _)| object.uuid());
        puts.chain(plan.deletes.iter().map(|(object, _)| object.uuid())).collect()
    };
    sqlx::query("UPDATE objects SET to_revision = $1 WHERE to_revision IS NULL AND object_id = ANY($2)")
        .bind(revision)
        .bind(ended)
        .execute(&mut *tx)
        .await?;
    let puts = &plan.puts;
    let spec = |content: &Content| match content {
        Content::Inline(spec) => to_json("objects.spec", spec).map(Some),
        Content::Artifact { .. } => Ok(None),
    };
    let digests = puts.iter().map(|(_, _, content)| content.artifact().map(|digest| digest.as_bytes().to_vec()));
    sqlx::query(
        "INSERT INTO objects (object_id, kind, namespace, name, spec, spec_digest, from_revision) \
         SELECT object_id, kind, namespace, name, spec, spec_digest, $1 \
         FROM UNNEST($2::uuid[], $3::text[], $4::text[], $5::text[], $6::jsonb[], $7::bytea[]) \
         AS r (object_id, kind, namespace, name, spec, spec_digest)",
    )
    .bind(revision)
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

async fn insert_operation(
    tx: &mut PgConnection,
    operation: OperationId,
    change: &IntentChange,
    revision: Revision,
    changes: u32,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO operations (operation_id, verb, actor, revision, changes, state, detail, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, '', transaction_timestamp())",
    )
    .bind(operation.uuid())
    .bind(change.verb.word())
    .bind(change.actor.to_string())
    .bind(big(revision.raw())?)
    .bind(i32::try_from(changes).map_err(|_| Error::value("changes", changes))?)
    .bind(OperationState::Accepted.word())
    .execute(tx)
    .await?;
    Ok(())
}
