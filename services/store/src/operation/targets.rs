//! What operations wait for, and what was seen to become of it.
//!
//! - A target is derived from desired states, which are only ever added: the first version of a (host, component) that is of the operation's revision
//!   or a later one, of those that were there when the last host was rendered with it. So it is fixed from then on (ADR 0018).
//! - What was seen is added once and stays; after the end of its operation nothing is added.

use std::collections::BTreeMap;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{HostId, OperationId};
use holdfast_model::numbers::Revision;
use holdfast_model::operation::HostOutcome;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::{big, component, digest, number, small, text, version};

/// One (host, component) that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Whose.
    pub host: HostId,
    /// Which part.
    pub component: Component,
    /// What is waited for.
    pub stamp: Stamp,
    /// The revision that was rendered from: that of the operation, or a later one where several were rendered together.
    pub revision: Revision,
    /// What was seen to become of it, for good.
    pub seen: Option<HostOutcome>,
    /// Whether its agent left 30 seconds ago or more: one that is started again, as by an upgrade, is back by then.
    pub is_stopped: bool,
}

/// What was seen to become of one (host, component).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Whose.
    pub host: HostId,
    /// Which part.
    pub component: Component,
    /// What; anything but pending.
    pub outcome: HostOutcome,
}

impl Store {
    /// What an operation waits for, by host and component; nothing before every host is rendered with it.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn operation_targets(&self, id: OperationId) -> Result<Vec<Target>, Error> {
        self.transact("load what an operation waits for", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<TargetRow> = sqlx::query_as(
                    "SELECT DISTINCT ON (t.host_id, t.component) t.host_id, t.component, t.version, t.digest, t.revision, h.outcome, \
                         coalesce(s.close_reason = 'agent_left' \
                             AND s.closed_at < clock_timestamp() - interval '30 seconds', false) AS is_stopped \
                     FROM operations o JOIN desired_states t \
                         ON t.revision BETWEEN o.revision AND o.rendered_revision AND t.rendered_at <= o.rendered_at \
                     LEFT JOIN operation_hosts h ON h.operation_id = o.operation_id AND h.host_id = t.host_id \
                         AND h.component = t.component \
                     LEFT JOIN sessions s ON s.host_id = t.host_id \
                     WHERE o.operation_id = $1 ORDER BY t.host_id, t.component, t.version",
                )
                .bind(id.uuid())
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(TargetRow::target).collect()
            })
        })
        .await
    }

    /// For each of these revisions the first later one that has something else in the place of what it changed.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored revision cannot be read.
    pub async fn overwritten_at(&self, revisions: Vec<Revision>) -> Result<BTreeMap<Revision, Revision>, Error> {
        self.transact("find what was overwritten", Mode::Statement, move |tx| {
            let raw = revisions.iter().map(|revision| big(revision.raw())).collect::<Result<Vec<_>, _>>();
            Box::pin(async move {
                let rows: Vec<(i64, i64)> = sqlx::query_as(
                    "SELECT k.revision, min(v.revision) \
                     FROM UNNEST($1::bigint[]) AS k (revision) \
                     JOIN objects t ON t.from_revision = k.revision OR t.to_revision = k.revision \
                     JOIN objects o ON o.kind = t.kind AND o.namespace = t.namespace AND o.name = t.name \
                     CROSS JOIN LATERAL (VALUES (o.from_revision), (o.to_revision)) AS v (revision) \
                     WHERE v.revision > k.revision GROUP BY k.revision",
                )
                .bind(raw?)
                .fetch_all(tx)
                .await?;
                let revision = |raw| number("objects.from_revision", raw).map(Revision::from_raw);
                rows.into_iter().map(|(of, at)| Ok((revision(of)?, revision(at)?))).collect()
            })
        })
        .await
    }

    /// The revisions of the intent that these states were rendered from; those that were never rendered are left out.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn revisions_of(
        &self,
        states: Vec<(HostId, Component, Stamp)>,
    ) -> Result<BTreeMap<(HostId, Component), Revision>, Error> {
        self.transact("find the revisions of states", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = states.iter().map(|(host, ..)| host.uuid()).collect();
            let parts: Vec<i16> = states.iter().map(|(_, part, _)| small(*part)).collect();
            let versions: Result<Vec<i64>, Error> = states.iter().map(|(.., stamp)| big(stamp.version.raw())).collect();
            let digests: Vec<Vec<u8>> = states.iter().map(|(.., stamp)| stamp.digest.as_bytes().to_vec()).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, i16, i64)> = sqlx::query_as(
                    "SELECT t.host_id, t.component, t.revision \
                     FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[]) \
                          AS g (host_id, component, version, digest) \
                     JOIN desired_states t USING (host_id, component, version, digest)",
                )
                .bind(hosts)
                .bind(parts)
                .bind(versions?)
                .bind(digests)
                .fetch_all(tx)
                .await?;
                let one = |(host, part, raw)| {
                    let revision = Revision::from_raw(number("desired_states.revision", raw)?);
                    Ok(((HostId::new(host), component(part)?), revision))
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// Adds what was seen to become of parts of an operation that is open; what was seen before stays as it is.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn record_seen(&self, id: OperationId, seen: Vec<Seen>) -> Result<(), Error> {
        self.transact("record what became of an operation", Mode::Write, move |tx| {
            let seen = seen.clone();
            Box::pin(async move {
                // Whoever ends it waits for this, or this sees the end.
                let open: Option<i32> = sqlx::query_scalar(
                    "SELECT 1 FROM operations WHERE operation_id = $1 AND state = 'accepted' FOR SHARE",
                )
                .bind(id.uuid())
                .fetch_optional(&mut *tx)
                .await?;
                if open.is_some() { insert(tx, id, &seen).await } else { Ok(()) }
            })
        })
        .await
    }
}

/// Adds what was seen. The caller holds the operation's row.
pub(super) async fn insert(tx: &mut PgConnection, id: OperationId, seen: &[Seen]) -> Result<(), Error> {
    if seen.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO operation_hosts (operation_id, host_id, component, outcome) \
         SELECT $1, host_id, component, outcome \
         FROM UNNEST($2::uuid[], $3::smallint[], $4::text[]) AS g (host_id, component, outcome) ORDER BY 2, 3 \
         ON CONFLICT (operation_id, host_id, component) DO NOTHING",
    )
    .bind(id.uuid())
    .bind(seen.iter().map(|one| one.host.uuid()).collect::<Vec<_>>())
    .bind(seen.iter().map(|one| small(one.component)).collect::<Vec<_>>())
    .bind(seen.iter().map(|one| one.outcome.word()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct TargetRow {
    host_id: Uuid,
    component: i16,
    version: i64,
    digest: Vec<u8>,
    revision: i64,
    outcome: Option<String>,
    is_stopped: bool,
}

impl TargetRow {
    fn target(self) -> Result<Target, Error> {
        Ok(Target {
            host: HostId::new(self.host_id),
            component: component(self.component)?,
            stamp: Stamp {
                version: version("desired_states.version", self.version)?,
                digest: digest("desired_states.digest", &self.digest)?,
            },
            revision: Revision::from_raw(number("desired_states.revision", self.revision)?),
            seen: self.outcome.map(|word| text("operation_hosts.outcome", &word)).transpose()?,
            is_stopped: self.is_stopped,
        })
    }
}
