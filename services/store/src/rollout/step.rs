//! The steps of a rollout: those that the gate takes, and those that operators ask for.
//!
//! A step of the gate is written on the row that it was decided on, or not at all.

use holdfast_events::{
    Actor, Detail, Event, HALTED_HOSTS_MAX, HaltReason, RolloutFinished, RolloutHalted, RolloutPaused, RolloutResumed,
    RolloutStageOpened,
};
use holdfast_model::ids::{HostId, OperationId, RolloutId};
use holdfast_model::rollout::RolloutState;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{Rollout, StoredStage};
use crate::error::Error;
use crate::once::{Deed, Once, RequestKey};
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, number, text};

/// What becomes of a rollout by what is seen of its hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RolloutStep {
    /// The next stage opens.
    Open,
    /// Every host has the change, but for those that may fail or be unknown.
    Finish {
        /// How many hosts were proven.
        hosts: u32,
        /// Of the others, and of what took the place of the change meanwhile, for people.
        detail: Option<Detail>,
    },
    /// No further stage opens.
    Halt {
        /// Why.
        reason: HaltReason,
        /// The hosts that it is about.
        hosts: Vec<HostId>,
        /// Why, for people.
        detail: Detail,
    },
}

/// What came of what an operator asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moved {
    /// It is so now.
    Done,
    /// It is in a state from which it does not go there.
    Not(RolloutState),
    /// Something became of it since it was read: its number is this now.
    Stale(u64),
    /// There is no such rollout.
    Unknown,
}

impl Store {
    /// Takes a step from the row as it was seen; false if it is another by now.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: look again.
    pub async fn step_rollout(&self, actor: Actor, seen: &Rollout, step: RolloutStep) -> Result<bool, Error> {
        let seen = seen.clone();
        self.transact("step a rollout", Mode::Write, move |tx| {
            let (seen, step) = (seen.clone(), step.clone());
            Box::pin(async move { take(tx, actor, &seen, step).await })
        })
        .await
    }

    /// Opens no further stage until it is resumed; if a number is expected, only a row with that one.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again with the same key.
    pub async fn pause_rollout(
        &self,
        actor: Actor,
        id: RolloutId,
        expected: Option<u64>,
        key: Option<RequestKey>,
    ) -> Result<Once<Moved>, Error> {
        self.move_rollout(actor, (id, expected), RolloutState::Paused, key).await
    }

    /// Lets it go on, likewise; what is seen of its hosts counts anew.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again with the same key.
    pub async fn resume_rollout(
        &self,
        actor: Actor,
        id: RolloutId,
        expected: Option<u64>,
        key: Option<RequestKey>,
    ) -> Result<Once<Moved>, Error> {
        self.move_rollout(actor, (id, expected), RolloutState::Progressing, key).await
    }

    async fn move_rollout(
        &self,
        actor: Actor,
        (id, expected): (RolloutId, Option<u64>),
        to: RolloutState,
        key: Option<RequestKey>,
    ) -> Result<Once<Moved>, Error> {
        self.transact_once("pause or resume a rollout", key, move |tx| {
            Box::pin(async move {
                Ok(match ask(tx, actor, (id, expected), to).await? {
                    answer @ Moved::Done => Deed::Done { answer, kept: answer, operation: None },
                    answer @ (Moved::Not(_) | Moved::Stale(_) | Moved::Unknown) => Deed::Refused(answer),
                })
            })
        })
        .await
    }
}

async fn take(tx: &mut PgConnection, actor: Actor, seen: &Rollout, step: RolloutStep) -> Result<bool, Error> {
    let (rollout, next) = (seen.id, seen.stage + 1);
    let (state, stage, detail): (_, _, String) = match &step {
        RolloutStep::Open => (RolloutState::Progressing, next, String::new()),
        RolloutStep::Finish { detail, .. } => {
            let detail = detail.as_ref().map_or_else(String::new, |detail| detail.as_str().to_owned());
            (RolloutState::Finished, seen.stage, detail)
        }
        RolloutStep::Halt { detail, .. } => (RolloutState::Halted, seen.stage, detail.as_str().to_owned()),
    };
    let halt_reason = match &step {
        RolloutStep::Open | RolloutStep::Finish { .. } => None,
        RolloutStep::Halt { reason, .. } => Some(reason.word()),
    };
    let event = match step {
        RolloutStep::Open => {
            let Some(StoredStage { hosts, .. }) = seen.stages.get(seen.stage as usize) else {
                return Err(Error::value("rollouts.stage", next));
            };
            Event::from(RolloutStageOpened { rollout, stage: next, hosts: *hosts })
        }
        RolloutStep::Finish { hosts, detail } => RolloutFinished { rollout, hosts, detail }.into(),
        RolloutStep::Halt { reason, mut hosts, detail } => {
            let count = u32::try_from(hosts.len()).map_err(|_| Error::value("hosts", hosts.len()))?;
            hosts.truncate(HALTED_HOSTS_MAX);
            RolloutHalted { rollout, stage, reason, count, hosts, detail }.into()
        }
    };
    let done = sqlx::query(
        "UPDATE rollouts SET state = $3, stage = $4, detail = $5, halt_reason = $6, version = version + 1, \
             stage_began_at = CASE WHEN $4 > stage THEN transaction_timestamp() ELSE stage_began_at END, \
             finished_at = CASE WHEN $3 = 'finished' THEN transaction_timestamp() END \
         WHERE rollout_id = $1 AND version = $2 AND state = 'progressing'",
    )
    .bind(rollout.uuid())
    .bind(big(seen.version)?)
    .bind(state.word())
    .bind(i32::try_from(stage).map_err(|_| Error::value("rollouts.stage", stage))?)
    .bind(detail)
    .bind(halt_reason)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    let mut outbox = Outbox::of_operation(actor, seen.operation);
    outbox.push(event)?;
    outbox.write(tx).await?;
    Ok(true)
}

/// A rollout whose row is held until the end of the transaction.
pub(super) struct Locked {
    pub(super) operation: OperationId,
    pub(super) stage: u32,
    pub(super) state: RolloutState,
    pub(super) revision: i64,
    version: u64,
}

impl Locked {
    /// The number that its row has, if that is another than the one that is expected.
    pub(super) fn other_than(&self, expected: Option<u64>) -> Option<u64> {
        expected.filter(|expected| *expected != self.version).map(|_| self.version)
    }
}

pub(super) async fn locked(tx: &mut PgConnection, id: RolloutId) -> Result<Option<Locked>, Error> {
    type Row = (Uuid, i32, String, i64, i64);
    let row: Option<Row> = sqlx::query_as(
        "SELECT operation_id, stage, state, revision, version FROM rollouts WHERE rollout_id = $1 FOR UPDATE",
    )
    .bind(id.uuid())
    .fetch_optional(tx)
    .await?;
    let Some((operation, stage, state, revision, version)) = row else { return Ok(None) };
    Ok(Some(Locked {
        operation: OperationId::new(operation),
        stage: u32::try_from(stage).map_err(|_| Error::value("rollouts.stage", stage))?,
        state: text("rollouts.state", &state)?,
        revision,
        version: number("rollouts.version", version)?,
    }))
}

async fn ask(
    tx: &mut PgConnection,
    actor: Actor,
    (id, expected): (RolloutId, Option<u64>),
    to: RolloutState,
) -> Result<Moved, Error> {
    let Some(found) = locked(tx, id).await? else { return Ok(Moved::Unknown) };
    if let Some(version) = found.other_than(expected) {
        return Ok(Moved::Stale(version));
    }
    let Locked { operation, stage, state, .. } = found;
    let event: Event = match (state, to) {
        (RolloutState::Progressing, RolloutState::Paused) => RolloutPaused { rollout: id, stage }.into(),
        (RolloutState::Paused | RolloutState::Halted, RolloutState::Progressing) => {
            RolloutResumed { rollout: id, stage }.into()
        }
        (from, _) => return Ok(Moved::Not(from)),
    };
    let detail =
        if to == RolloutState::Paused { Detail::new(&format!("paused by {actor}")) } else { Detail::default() };
    sqlx::query(
        "UPDATE rollouts SET state = $2, detail = $3, version = version + 1, \
             stage_began_at = CASE WHEN $2 = 'progressing' THEN transaction_timestamp() ELSE stage_began_at END, \
             excused_stage = CASE WHEN halt_reason = 'nobody' THEN stage ELSE excused_stage END, halt_reason = NULL \
         WHERE rollout_id = $1",
    )
    .bind(id.uuid())
    .bind(to.word())
    .bind(detail.as_str())
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::of_operation(actor, operation);
    outbox.push(event)?;
    outbox.write(tx).await?;
    Ok(Moved::Done)
}
