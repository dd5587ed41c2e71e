//! The beginning of a rollout, in the transaction of its change.

use std::collections::BTreeSet;

use holdfast_events::{Actor, RolloutStage, RolloutStaged, RolloutStarted, STAGED_HOSTS_MAX};
use holdfast_model::ids::{HostId, OperationId, RolloutId};
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use holdfast_model::rollout::stage::Stage;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoredStage;
use crate::error::Error;
use crate::lease::knows_rollouts;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, to_json};

/// How a change is to go through the fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutStart {
    /// What it is called.
    pub rollout: RolloutId,
    /// Who is in which stage: all hosts of the revision that the change is made on, and it is made on no other.
    pub stages: Vec<Stage>,
    /// How many hosts may fail.
    pub max_failed: u32,
    /// How many hosts may be unknown.
    pub max_unknown: u32,
    /// How long a stage may take, in seconds.
    pub stage_timeout_s: u32,
}

async fn open_id(tx: &mut PgConnection) -> Result<Option<RolloutId>, Error> {
    let id: Option<Uuid> =
        sqlx::query_scalar("SELECT rollout_id FROM rollouts WHERE state IN ('progressing', 'paused', 'halted')")
            .fetch_optional(tx)
            .await?;
    Ok(id.map(RolloutId::new))
}

/// Why no rollout can begin now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// One is open.
    Open(RolloutId),
    /// The renderer that leads, or led last, knows none.
    Renderer,
}

/// Why none can begin now, if that is so.
pub(crate) async fn obstacle(tx: &mut PgConnection) -> Result<Option<Obstacle>, Error> {
    Ok(match open_id(tx).await? {
        Some(open) => Some(Obstacle::Open(open)),
        None if knows_rollouts(tx).await? => None,
        None => Some(Obstacle::Renderer),
    })
}

impl Store {
    /// Why no rollout can begin now, if that is so.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn rollout_obstacle(&self) -> Result<Option<Obstacle>, Error> {
        self.transact("see whether a rollout can begin", Mode::Snapshot, |tx| Box::pin(obstacle(tx))).await
    }
}

/// Writes a rollout with its first stage opened. The caller holds the lock of intent and has made sure that none is open.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    actor: Actor,
    start: &RolloutStart,
    (held_revision, revision): (Revision, Revision),
    operation: OperationId,
) -> Result<(), Error> {
    let mut told = Vec::new();
    for Stage { spec, hosts } in &start.stages {
        told.push(RolloutStage { stage: spec.clone(), hosts: count(hosts)? });
    }
    let stages: Vec<StoredStage> =
        told.iter().map(|one| StoredStage { stage: one.stage.clone(), hosts: one.hosts }).collect();
    sqlx::query(
        "INSERT INTO rollouts (rollout_id, operation_id, revision, held_revision, stages, stage, state, detail, max_failed, \
             max_unknown, stage_timeout_s, actor, created_at, stage_began_at, version) \
         VALUES ($1, $2, $3, $4, $5, 1, $6, '', $7, $8, $9, $10, transaction_timestamp(), transaction_timestamp(), 1)",
    )
    .bind(start.rollout.uuid())
    .bind(operation.uuid())
    .bind(big(revision.raw())?)
    .bind(big(held_revision.raw())?)
    .bind(to_json("rollouts.stages", &stages)?)
    .bind(RolloutState::Progressing.word())
    .bind(i64::from(start.max_failed))
    .bind(i64::from(start.max_unknown))
    .bind(i64::from(start.stage_timeout_s))
    .bind(actor.to_string())
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::of_operation(actor, operation);
    outbox.push(RolloutStarted {
        rollout: start.rollout,
        operation,
        revision,
        held_revision,
        stages: told,
        max_failed: start.max_failed,
        max_unknown: start.max_unknown,
        stage_timeout_s: start.stage_timeout_s,
    })?;
    for (Stage { hosts, .. }, number) in start.stages.iter().zip(1_u32..) {
        insert_hosts(tx, start.rollout, hosts, number).await?;
        let hosts: Vec<HostId> = hosts.iter().copied().collect();
        for hosts in hosts.chunks(STAGED_HOSTS_MAX) {
            outbox.push(RolloutStaged { rollout: start.rollout, stage: number, hosts: hosts.to_vec() })?;
        }
    }
    outbox.write(tx).await
}

fn count(hosts: &BTreeSet<HostId>) -> Result<u32, Error> {
    u32::try_from(hosts.len()).map_err(|_| Error::value("rollouts.stages", hosts.len()))
}

async fn insert_hosts(
    tx: &mut PgConnection,
    rollout: RolloutId,
    hosts: &BTreeSet<HostId>,
    stage: u32,
) -> Result<(), Error> {
    sqlx::query("INSERT INTO rollout_hosts (rollout_id, host_id, stage) SELECT $1, host_id, $3 FROM UNNEST($2::uuid[]) AS g (host_id)")
        .bind(rollout.uuid())
        .bind(hosts.iter().map(|host| host.uuid()).collect::<Vec<_>>())
        .bind(i32::try_from(stage).map_err(|_| Error::value("rollout_hosts.stage", stage))?)
        .execute(tx)
        .await?;
    Ok(())
}
