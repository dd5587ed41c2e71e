//! Reading rollouts.

use std::collections::BTreeSet;

use holdfast_model::ids::{HostId, OperationId, RolloutId};
use holdfast_model::numbers::Revision;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Rollout;
use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::status::HeldAt;
use crate::value::{big, from_json, number, text};

/// What every read of rollouts begins with; what the renderer said counts for the stages that are opened now only, and the database's last absence
/// for nobody's time.
macro_rules! rollouts {
    ($rest:literal) => {
        concat!(
            "SELECT r.rollout_id, r.operation_id, r.revision, r.held_revision, r.stages, r.stage, r.state, r.detail, r.max_failed, \
                    r.max_unknown, r.stage_timeout_s, r.actor, r.created_at, r.stage_began_at, r.finished_at, r.abort_revision, \
                    r.version, r.halt_reason, r.excused_stage, p.let_go_revision, \
                    coalesce((SELECT l.rollouts_term = l.term FROM leases l WHERE l.name = 'renderer'), false) AS is_known_to_renderer, \
                    CASE WHEN r.state IN ('progressing', 'paused', 'halted') THEN \
                        (SELECT count(*) FROM rollout_hosts m JOIN hosts h USING (host_id) \
                         WHERE m.rollout_id = r.rollout_id AND m.stage > r.stage AND h.decommissioned_at IS NULL) ELSE 0 END AS held_hosts, \
                    (extract(epoch FROM clock_timestamp() - r.stage_began_at \
                        - greatest(a.ended - greatest(a.began, r.stage_began_at), interval '0')) * 1000)::bigint AS stage_age_ms \
             FROM rollouts r LEFT JOIN render_progress p \
                 ON p.let_go_rollout_id = r.rollout_id AND p.let_go_stage = r.stage \
             LEFT JOIN (SELECT \
                 CASE WHEN clock_timestamp() - beat_at > interval '12 s' THEN beat_at ELSE away_from END AS began, \
                 CASE WHEN clock_timestamp() - beat_at > interval '12 s' THEN clock_timestamp() ELSE away_until END AS ended \
                 FROM pulse) a ON true ",
            $rest
        )
    };
}

impl Store {
    /// The rollout that is open.
    ///
    /// # Errors
    /// [`Error::Value`] if it cannot be read.
    pub async fn open_rollout(&self) -> Result<Option<Rollout>, Error> {
        self.transact("read the open rollout", Mode::Statement, |tx| {
            Box::pin(async move {
                let row: Option<RolloutRow> =
                    sqlx::query_as(rollouts!("WHERE r.state IN ('progressing', 'paused', 'halted')"))
                        .fetch_optional(tx)
                        .await?;
                row.map(RolloutRow::rollout).transpose()
            })
        })
        .await
    }

    /// One rollout, if there is such.
    ///
    /// # Errors
    /// [`Error::Value`] if it cannot be read.
    pub async fn load_rollout(&self, id: RolloutId) -> Result<Option<Rollout>, Error> {
        self.transact("read a rollout", Mode::Statement, move |tx| {
            Box::pin(async move {
                let row: Option<RolloutRow> =
                    sqlx::query_as(rollouts!("WHERE r.rollout_id = $1")).bind(id.uuid()).fetch_optional(tx).await?;
                row.map(RolloutRow::rollout).transpose()
            })
        })
        .await
    }

    /// Rollouts, newest first, at most `limit`, older than one that is named.
    ///
    /// # Errors
    /// [`Error::Value`] if one cannot be read.
    pub async fn list_rollouts(&self, before: Option<RolloutId>, limit: u32) -> Result<Vec<Rollout>, Error> {
        self.transact("list rollouts", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<RolloutRow> = sqlx::query_as(rollouts!(
                    "WHERE $1::uuid IS NULL OR (r.created_at, r.rollout_id) < \
                         (SELECT created_at, rollout_id FROM rollouts WHERE rollout_id = $1) \
                     ORDER BY r.created_at DESC, r.rollout_id DESC LIMIT $2"
                ))
                .bind(before.map(RolloutId::uuid))
                .bind(i64::from(limit))
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(RolloutRow::rollout).collect()
            })
        })
        .await
    }

    /// The first later revision that has something else in the place of what a rollout changed, or of a part of it; of one that ended, while it was open.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored revision cannot be read.
    pub async fn rollout_overwritten_at(&self, rollout: &Rollout) -> Result<Option<Revision>, Error> {
        let (revision, ended) = (rollout.revision, rollout.finished_at);
        self.transact("find what overwrote a rollout", Mode::Statement, move |tx| {
            Box::pin(async move {
                let at: Option<i64> = sqlx::query_scalar(
                    "SELECT min(v.revision) FROM objects t \
                     JOIN objects o ON o.kind = t.kind AND o.namespace = t.namespace AND o.name = t.name \
                     CROSS JOIN LATERAL (VALUES (o.from_revision), (o.to_revision)) AS v (revision) \
                     JOIN revisions w ON w.revision = v.revision \
                     WHERE (t.from_revision = $1 OR t.to_revision = $1) AND v.revision > $1 \
                         AND ($2::timestamptz IS NULL OR w.at < $2)",
                )
                .bind(big(revision.raw())?)
                .bind(ended)
                .fetch_one(tx)
                .await?;
                at.map(|at| number("objects.from_revision", at).map(Revision::from_raw)).transpose()
            })
        })
        .await
    }

    /// Who is in which stage of a rollout, from 1, by their ids. It never changes.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn rollout_hosts(&self, id: RolloutId) -> Result<Vec<(HostId, u32)>, Error> {
        self.transact("read who is in which stage", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<(Uuid, i32)> =
                    sqlx::query_as("SELECT host_id, stage FROM rollout_hosts WHERE rollout_id = $1 ORDER BY host_id")
                        .bind(id.uuid())
                        .fetch_all(tx)
                        .await?;
                let one = |(host, stage)| {
                    let stage = u32::try_from(stage).map_err(|_| Error::value("rollout_hosts.stage", stage))?;
                    Ok((HostId::new(host), stage))
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// The hosts that are in no stage of a rollout, since they enrolled after it began.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn hosts_outside_rollout(&self, id: RolloutId) -> Result<Vec<HostId>, Error> {
        self.transact("read who is in no stage", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<Uuid> = sqlx::query_scalar(
                    "SELECT host_id FROM hosts h WHERE decommissioned_at IS NULL \
                     AND NOT EXISTS (SELECT FROM rollout_hosts m WHERE m.rollout_id = $1 AND m.host_id = h.host_id)",
                )
                .bind(id.uuid())
                .fetch_all(tx)
                .await?;
                Ok(rows.into_iter().map(HostId::new).collect())
            })
        })
        .await
    }

    /// Those of these hosts that the open rollout holds back, and how.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn held_of(&self, hosts: Vec<HostId>) -> Result<Vec<(HostId, HeldAt)>, Error> {
        self.transact("read who is held", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, Uuid, i64, i32, String)> = sqlx::query_as(
                    "SELECT m.host_id, r.rollout_id, r.held_revision, m.stage, r.state \
                     FROM rollouts r JOIN rollout_hosts m USING (rollout_id) \
                     WHERE r.state IN ('progressing', 'paused', 'halted') AND m.stage > r.stage AND m.host_id = ANY($1)",
                )
                .bind(hosts)
                .fetch_all(tx)
                .await?;
                let one = |(host, rollout, revision, stage, state): (Uuid, Uuid, i64, i32, String)| {
                    let revision = Revision::from_raw(number("rollouts.held_revision", revision)?);
                    let stage = u32::try_from(stage).map_err(|_| Error::value("rollout_hosts.stage", stage))?;
                    let (rollout, state) = (RolloutId::new(rollout), text("rollouts.state", &state)?);
                    Ok((HostId::new(host), HeldAt { rollout, revision, stage, state }))
                };
                rows.into_iter().map(one).collect()
            })
        })
        .await
    }

    /// The hosts of a rollout's stages after these: those that it holds back with so many opened.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn hosts_after_stage(&self, id: RolloutId, stage: u32) -> Result<BTreeSet<HostId>, Error> {
        let hosts = self.rollout_hosts(id).await?;
        Ok(hosts.into_iter().filter(|(_, of)| *of > stage).map(|(host, _)| host).collect())
    }
}

#[derive(sqlx::FromRow)]
struct RolloutRow {
    rollout_id: Uuid,
    operation_id: Uuid,
    revision: i64,
    held_revision: i64,
    stages: serde_json::Value,
    stage: i32,
    state: String,
    detail: String,
    max_failed: i64,
    max_unknown: i64,
    stage_timeout_s: i64,
    actor: String,
    created_at: OffsetDateTime,
    stage_began_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    abort_revision: Option<i64>,
    version: i64,
    halt_reason: Option<String>,
    excused_stage: i32,
    let_go_revision: Option<i64>,
    is_known_to_renderer: bool,
    held_hosts: i64,
    stage_age_ms: i64,
}

impl RolloutRow {
    fn rollout(self) -> Result<Rollout, Error> {
        let revision = |column, raw| number(column, raw).map(Revision::from_raw);
        let small = |column, raw: i64| u32::try_from(raw).map_err(|_| Error::value(column, raw));
        let abort_revision = self.abort_revision.map(|raw| revision("rollouts.abort_revision", raw)).transpose()?;
        let let_go = self.let_go_revision.map(|raw| revision("render_progress.let_go_revision", raw)).transpose()?;
        Ok(Rollout {
            id: RolloutId::new(self.rollout_id),
            operation: OperationId::new(self.operation_id),
            revision: revision("rollouts.revision", self.revision)?,
            held_revision: revision("rollouts.held_revision", self.held_revision)?,
            stages: from_json("rollouts.stages", self.stages)?,
            stage: small("rollouts.stage", i64::from(self.stage))?,
            state: text("rollouts.state", &self.state)?,
            detail: self.detail,
            held_hosts: number("rollout_hosts", self.held_hosts)?,
            halt_reason: self.halt_reason.map(|word| text("rollouts.halt_reason", &word)).transpose()?,
            excused_stage: small("rollouts.excused_stage", i64::from(self.excused_stage))?,
            max_failed: small("rollouts.max_failed", self.max_failed)?,
            max_unknown: small("rollouts.max_unknown", self.max_unknown)?,
            stage_timeout_s: small("rollouts.stage_timeout_s", self.stage_timeout_s)?,
            actor: text("rollouts.actor", &self.actor)?,
            created_at: self.created_at,
            stage_began_at: self.stage_began_at,
            // A clock that was set back makes a moment ago look like the future; that is no age.
            stage_age_ms: u64::try_from(self.stage_age_ms).unwrap_or(0),
            finished_at: self.finished_at,
            abort_revision,
            version: number("rollouts.version", self.version)?,
            let_go_revision: let_go,
            is_known_to_renderer: self.is_known_to_renderer,
        })
    }
}
