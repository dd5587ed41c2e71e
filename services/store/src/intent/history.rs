//! What was before: revisions with who made them, the revision of a time, and what objects and hosts had.
//!
//! - Nothing of it is kept for its own sake: intent is in force over ranges of revisions, and desired states are only ever added.
//! - What became of a version is what an operation that waited for it saw for good; of one that nobody waited for nothing is known here.

use holdfast_events::{Actor, OperationVerb};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{HostId, OperationId};
use holdfast_model::intent::ObjectKey;
use holdfast_model::name::Name;
use holdfast_model::numbers::{Revision, Version};
use holdfast_model::operation::HostOutcome;
use time::OffsetDateTime;
use uuid::Uuid;

use super::before::ChangeKind;
use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::{big, bound, component, digest, number, small, text, version};

/// One revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionRow {
    /// Its number.
    pub revision: Revision,
    /// When it was made.
    pub at: OffsetDateTime,
    /// By whom.
    pub actor: Actor,
    /// The operation that made it; absent where no operator asked, as for an enrolment.
    pub operation: Option<(OperationId, OperationVerb)>,
}

/// One version of what a host is to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRow {
    /// Which.
    pub stamp: Stamp,
    /// When it was rendered.
    pub rendered_at: OffsetDateTime,
    /// The revision that it was rendered from.
    pub revision: RevisionRow,
    /// What was seen to become of it for good, by an operation that waited for it.
    pub outcome: Option<HostOutcome>,
}

/// One time that an object came, changed or went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRow {
    /// By which revision.
    pub revision: RevisionRow,
    /// What it did.
    pub change: ChangeKind,
}

/// A host that a revision changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRow {
    /// Which.
    pub host: HostId,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Created is enrolled, deleted is taken out, updated is that its addresses changed.
    pub change: ChangeKind,
}

#[derive(sqlx::FromRow)]
struct RawRevision {
    revision: i64,
    at: OffsetDateTime,
    actor: String,
    operation_id: Option<Uuid>,
    verb: Option<String>,
}

impl RawRevision {
    fn row(self) -> Result<RevisionRow, Error> {
        let operation = match (self.operation_id, self.verb) {
            (Some(id), Some(verb)) => Some((OperationId::new(id), text("operations.verb", &verb)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(Error::value("revisions.operation_id", self.revision)),
        };
        Ok(RevisionRow {
            revision: Revision::from_raw(number("revisions.revision", self.revision)?),
            at: self.at,
            actor: text("revisions.actor", &self.actor)?,
            operation,
        })
    }
}

#[derive(sqlx::FromRow)]
struct RawVersion {
    version: i64,
    digest: Vec<u8>,
    rendered_at: OffsetDateTime,
    outcome: Option<String>,
    #[sqlx(flatten)]
    of: RawRevision,
}

#[derive(sqlx::FromRow)]
struct RawObject {
    began: bool,
    ended: bool,
    #[sqlx(flatten)]
    of: RawRevision,
}

impl Store {
    /// One revision, if there is such.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored revision cannot be read.
    pub async fn load_revision(&self, revision: Revision) -> Result<Option<RevisionRow>, Error> {
        // The number below it is no limit of its own: only zero has none, and nothing is there.
        let Some(next) = revision.next() else { return Ok(None) };
        let found = self.list_revisions(Some(next), 1).await?;
        Ok(found.into_iter().find(|row| row.revision == revision))
    }

    /// Revisions, newest first, at most `limit`, older than one that is named.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored revision cannot be read.
    pub async fn list_revisions(&self, before: Option<Revision>, limit: u32) -> Result<Vec<RevisionRow>, Error> {
        self.transact("list revisions", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<RawRevision> = sqlx::query_as(
                    "SELECT r.revision, r.at, r.actor, r.operation_id, o.verb \
                     FROM revisions r LEFT JOIN operations o USING (operation_id) \
                     WHERE $1::bigint IS NULL OR r.revision < $1 ORDER BY r.revision DESC LIMIT $2",
                )
                .bind(before.map(|before| bound(before.raw())))
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(RawRevision::row).collect()
            })
        })
        .await
    }

    /// The last revision that was made by a time; nothing before the first.
    ///
    /// Its time is when its transaction began: it could be seen later, by as long as that waited for others.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn revision_at(&self, at: OffsetDateTime) -> Result<Option<Revision>, Error> {
        self.transact("find the revision of a time", Mode::Statement, move |tx| {
            Box::pin(async move {
                let raw: Option<i64> = sqlx::query_scalar("SELECT max(revision) FROM revisions WHERE at <= $1")
                    .bind(at)
                    .fetch_one(tx)
                    .await?;
                raw.map(|raw| number("revisions.revision", raw).map(Revision::from_raw)).transpose()
            })
        })
        .await
    }

    /// Since which revision an object says what it says at a revision; nothing if it is not in force there.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn object_since(&self, key: ObjectKey, at: Revision) -> Result<Option<Revision>, Error> {
        self.transact("find since when an object is as it is", Mode::Statement, move |tx| {
            let key = key.clone();
            Box::pin(async move {
                let raw: Option<i64> = sqlx::query_scalar(
                    "SELECT from_revision FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3 \
                     AND from_revision <= $4 AND (to_revision IS NULL OR to_revision > $4)",
                )
                .bind(key.kind.word())
                .bind(key.namespace.as_str())
                .bind(key.name.as_str())
                .bind(big(at.raw())?)
                .fetch_optional(tx)
                .await?;
                raw.map(|raw| number("objects.from_revision", raw).map(Revision::from_raw)).transpose()
            })
        })
        .await
    }

    /// Since which revision a host is enrolled as it is at a revision; nothing if it is not there.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn host_since(&self, host: HostId, at: Revision) -> Result<Option<Revision>, Error> {
        self.transact("find since when a host is as it is", Mode::Statement, move |tx| {
            Box::pin(async move {
                let raw: Option<i64> = sqlx::query_scalar(
                    "SELECT from_revision FROM host_facts WHERE host_id = $1 \
                     AND from_revision <= $2 AND (to_revision IS NULL OR to_revision > $2)",
                )
                .bind(host.uuid())
                .bind(big(at.raw())?)
                .fetch_optional(tx)
                .await?;
                raw.map(|raw| number("host_facts.from_revision", raw).map(Revision::from_raw)).transpose()
            })
        })
        .await
    }

    /// What happened to an object, newest first, at most `limit`, before a revision that is named.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn object_history(
        &self,
        key: ObjectKey,
        before: Option<Revision>,
        limit: u32,
    ) -> Result<Vec<ObjectRow>, Error> {
        self.transact("load the history of an object", Mode::Statement, move |tx| {
            let key = key.clone();
            Box::pin(async move {
                let rows: Vec<RawObject> = sqlx::query_as(
                    "SELECT r.revision, r.at, r.actor, r.operation_id, p.verb, \
                            bool_or(r.revision = o.from_revision) AS began, \
                            coalesce(bool_or(r.revision = o.to_revision), false) AS ended \
                     FROM objects o JOIN revisions r ON r.revision IN (o.from_revision, o.to_revision) \
                     LEFT JOIN operations p USING (operation_id) \
                     WHERE o.kind = $1 AND o.namespace = $2 AND o.name = $3 AND ($4::bigint IS NULL OR r.revision < $4) \
                     GROUP BY r.revision, p.verb ORDER BY r.revision DESC LIMIT $5",
                )
                .bind(key.kind.word())
                .bind(key.namespace.as_str())
                .bind(key.name.as_str())
                .bind(before.map(|before| bound(before.raw())))
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                let one = |row: RawObject| {
                    Ok(ObjectRow { change: ChangeKind::of(row.began, row.ended), revision: row.of.row()? })
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// The versions of a component of a host, newest first, at most `limit`, before one that is named. An operation's outcome is that of the version that
    /// it waited for, the first of those that were rendered with it, and of no later one.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn host_history(
        &self,
        host: HostId,
        component: Component,
        before: Option<Version>,
        limit: u32,
    ) -> Result<Vec<VersionRow>, Error> {
        self.transact("load the history of a host", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<RawVersion> = sqlx::query_as(
                    "SELECT t.version, t.digest, t.rendered_at, r.revision, r.at, r.actor, r.operation_id, p.verb, \
                         (SELECT h.outcome FROM operations o JOIN operation_hosts h USING (operation_id) \
                          WHERE t.revision BETWEEN o.revision AND o.rendered_revision AND t.rendered_at <= o.rendered_at \
                              AND h.host_id = t.host_id AND h.component = t.component \
                              AND NOT EXISTS (SELECT FROM desired_states e WHERE e.host_id = t.host_id \
                                  AND e.component = t.component AND e.version < t.version \
                                  AND e.revision BETWEEN o.revision AND o.rendered_revision AND e.rendered_at <= o.rendered_at) \
                          ORDER BY o.revision DESC LIMIT 1) AS outcome \
                     FROM desired_states t JOIN revisions r USING (revision) LEFT JOIN operations p USING (operation_id) \
                     WHERE t.host_id = $1 AND t.component = $2 AND ($3::bigint IS NULL OR t.version < $3) \
                     ORDER BY t.version DESC LIMIT $4",
                )
                .bind(host.uuid())
                .bind(small(component))
                .bind(before.map(|before| bound(before.raw())))
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                let one = |row: RawVersion| {
                    Ok(VersionRow {
                        stamp: Stamp {
                            version: version("desired_states.version", row.version)?,
                            digest: digest("desired_states.digest", &row.digest)?,
                        },
                        rendered_at: row.rendered_at,
                        outcome: row.outcome.map(|word| text("operation_hosts.outcome", &word)).transpose()?,
                        revision: row.of.row()?,
                    })
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// The first versions that hosts got with a revision, and the revision that each was rendered from: a later one where several were rendered together.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored version cannot be read.
    pub async fn versions_of_revision(
        &self,
        revision: Revision,
    ) -> Result<Vec<(HostId, Component, Version, Revision)>, Error> {
        self.transact("find the versions of a revision", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<(Uuid, i16, i64, i64)> = sqlx::query_as(
                    "SELECT DISTINCT ON (host_id, component) host_id, component, version, revision FROM ( \
                     SELECT host_id, component, version, revision FROM desired_states WHERE revision = $1 \
                     UNION SELECT t.host_id, t.component, t.version, t.revision FROM operations o JOIN desired_states t \
                         ON t.revision BETWEEN o.revision AND o.rendered_revision AND t.rendered_at <= o.rendered_at \
                     WHERE o.revision = $1) AS t ORDER BY host_id, component, version",
                )
                .bind(big(revision.raw())?)
                .fetch_all(tx)
                .await?;
                let one = |(host, part, raw, of)| {
                    let of = Revision::from_raw(number("desired_states.revision", of)?);
                    Ok((HostId::new(host), component(part)?, version("desired_states.version", raw)?, of))
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// The hosts that a revision enrolled, moved or took out.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn hosts_changed_by(&self, revision: Revision) -> Result<Vec<HostRow>, Error> {
        self.transact("load the hosts that a revision changed", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<(Uuid, String, String, bool, bool)> = sqlx::query_as(
                    "SELECT h.host_id, h.namespace, h.name, bool_or(f.from_revision = $1), \
                            coalesce(bool_or(f.to_revision = $1), false) \
                     FROM host_facts f JOIN hosts h USING (host_id) \
                     WHERE f.from_revision = $1 OR f.to_revision = $1 GROUP BY h.host_id ORDER BY h.namespace, h.name",
                )
                .bind(big(revision.raw())?)
                .fetch_all(tx)
                .await?;
                let one = |(host, namespace, name, began, ended): (Uuid, String, String, bool, bool)| {
                    Ok(HostRow {
                        host: HostId::new(host),
                        namespace: text("hosts.namespace", &namespace)?,
                        name: text("hosts.name", &name)?,
                        change: ChangeKind::of(began, ended),
                    })
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }
}
