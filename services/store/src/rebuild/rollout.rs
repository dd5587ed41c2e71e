//! What the events of rollouts do to their tables.

use holdfast_events::{
    HaltReason, Record, RolloutAborted, RolloutFinished, RolloutHalted, RolloutPaused, RolloutResumed,
    RolloutStageOpened, RolloutStaged, RolloutStarted,
};
use holdfast_model::rollout::RolloutState;
use serde_json::{Value, json};

use super::fold::{NO_ROW, Refused};
use super::rows::{Row, Rows, row, set, words};
use crate::error::Error;
use crate::rollout::StoredStage;
use crate::value::to_json;

pub(super) fn staged(rows: &mut Rows, e: &RolloutStaged) -> Refused {
    for host in &e.hosts {
        let (rollout, host) = (words(e.rollout.uuid()), words(host.uuid()));
        rows.add("rollout_hosts", row([("rollout_id", rollout), ("host_id", host), ("stage", json!(e.stage))]));
    }
    None
}

pub(super) fn stage_opened(rows: &mut Rows, e: &RolloutStageOpened, time: Value) -> Refused {
    amend(rows, e.rollout, [("stage", json!(e.stage)), ("stage_began_at", time), ("detail", words(""))])
}

pub(super) fn halted(rows: &mut Rows, e: &RolloutHalted) -> Refused {
    let state = ("state", words(RolloutState::Halted));
    amend(rows, e.rollout, [state, ("detail", words(&e.detail)), ("halt_reason", words(e.reason))])
}

pub(super) fn paused(rows: &mut Rows, e: &RolloutPaused, record: &Record) -> Refused {
    let detail = words(format_args!("paused by {}", record.actor));
    amend(rows, e.rollout, [("state", words(RolloutState::Paused)), ("detail", detail)])
}

pub(super) fn resumed(rows: &mut Rows, e: &RolloutResumed, time: Value) -> Refused {
    if let Some(row) = rows.find("rollouts", e.rollout)
        && row.get("halt_reason") == Some(&words(HaltReason::Nobody))
    {
        set(row, [("excused_stage", json!(e.stage))]);
    }
    let state = ("state", words(RolloutState::Progressing));
    amend(rows, e.rollout, [state, ("detail", words("")), ("stage_began_at", time), ("halt_reason", Value::Null)])
}

pub(super) fn aborted(rows: &mut Rows, e: &RolloutAborted, time: Value) -> Refused {
    let columns = [
        ("state", words(RolloutState::Aborted)),
        ("detail", words(&e.detail)),
        ("abort_revision", e.revision.map_or(Value::Null, |revision| json!(revision))),
        ("finished_at", time),
        ("halt_reason", Value::Null),
    ];
    amend(rows, e.rollout, columns)
}

pub(super) fn finished(rows: &mut Rows, e: &RolloutFinished, time: Value) -> Refused {
    let state = ("state", words(RolloutState::Finished));
    let detail = e.detail.as_ref().map_or_else(|| words(""), words);
    amend(rows, e.rollout, [state, ("detail", detail), ("finished_at", time)])
}

/// Sets columns; the row has another number by that.
fn amend<const N: usize>(rows: &mut Rows, rollout: impl ToString, columns: [(&str, Value); N]) -> Refused {
    let Some(row) = rows.find("rollouts", rollout) else { return Some(NO_ROW) };
    let version = row.get("version").and_then(Value::as_u64).unwrap_or_default();
    set(row, columns);
    set(row, [("version", json!(version + 1))]);
    None
}

pub(super) fn started(e: &RolloutStarted, record: &Record, time: Value) -> Result<Row, Error> {
    let stages = e.stages.iter().map(|one| StoredStage { stage: one.stage.clone(), hosts: one.hosts });
    Ok(row([
        ("rollout_id", words(e.rollout.uuid())),
        ("operation_id", words(e.operation.uuid())),
        ("revision", json!(e.revision)),
        ("held_revision", json!(e.held_revision)),
        ("stages", to_json("rollouts.stages", &stages.collect::<Vec<_>>())?),
        ("stage", json!(1)),
        ("state", words(RolloutState::Progressing)),
        ("detail", words("")),
        ("max_failed", json!(e.max_failed)),
        ("max_unknown", json!(e.max_unknown)),
        ("stage_timeout_s", json!(e.stage_timeout_s)),
        ("actor", words(record.actor)),
        ("created_at", time.clone()),
        ("stage_began_at", time),
        ("finished_at", Value::Null),
        ("abort_revision", Value::Null),
        ("halt_reason", Value::Null),
        ("excused_stage", json!(0)),
        ("version", json!(1)),
    ]))
}
