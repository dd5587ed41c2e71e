//! Outcome.

use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::numbers::Version;
use holdfast_model::statement::OutcomeKind;
use serde::{Deserialize, Serialize};

use super::codec::{fits, put, take, within};
use super::scalar::{WireSignature, WireStamp, component, number, update_seq};
use crate::error::{DecodeError, EncodeError};
use crate::limits::{CONDITIONS_MAX, STATUS_FRAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::message::{Kind, OutcomeReport};

const KIND: Kind = Kind::Outcome;

#[derive(Serialize, Deserialize)]
struct WireOutcome<'a> {
    update_seq: u64,
    component: u8,
    kind: u8,
    wanted: WireStamp,
    applied: Option<WireStamp>,
    #[serde(borrow)]
    conditions: Vec<WireCondition<'a>>,
    signature: WireSignature,
}

#[derive(Serialize, Deserialize)]
struct WireCondition<'a> {
    kind: u8,
    holds: u8,
    reason: u8,
    message: &'a str,
    observed_version: u64,
}

/// Nothing for those that an outcome does not say.
const fn type_number(kind: ConditionType) -> Option<u8> {
    match kind {
        ConditionType::SnapshotAccepted => Some(1),
        ConditionType::Applied => Some(2),
        ConditionType::Verified => Some(3),
        ConditionType::Confirmed
        | ConditionType::LedgerReadable
        | ConditionType::ForwardingCovered
        | ConditionType::NoDrift => None,
    }
}

const fn holds_number(holds: Holds) -> u8 {
    match holds {
        Holds::True => 1,
        Holds::False => 2,
        Holds::Unknown => 3,
    }
}

fn condition_in(wire: &WireCondition<'_>) -> Result<Option<Condition>, DecodeError> {
    within(KIND, "message of a condition", wire.message.len(), TEXT_BYTES_MAX)?;
    let status = match wire.holds {
        1 => Holds::True,
        2 => Holds::False,
        3 => Holds::Unknown,
        _ => return Err(DecodeError::Value { kind: KIND, field: "status of a condition" }),
    };
    let observed_version = number(KIND, "version of a condition", wire.observed_version)?;
    let condition = |kind| Condition {
        kind,
        status,
        reason: Reason::from_number(wire.reason),
        message: wire.message.to_owned(),
        observed_version: Version::from_raw(observed_version),
    };
    // A type of a later build blocks nothing here: it is left out, not refused.
    Ok(ConditionType::OF_ATTEMPT.into_iter().find(|kind| type_number(*kind) == Some(wire.kind)).map(condition))
}

pub(super) fn encode(report: &OutcomeReport, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    fits(KIND, "list of conditions", report.conditions.len(), CONDITIONS_MAX)?;
    let mut conditions = Vec::with_capacity(report.conditions.len());
    for condition in &report.conditions {
        fits(KIND, "message of a condition", condition.message.len(), TEXT_BYTES_MAX)?;
        conditions.push(WireCondition {
            kind: type_number(condition.kind)
                .ok_or(EncodeError::Unspeakable { kind: KIND, field: "a condition of no attempt" })?,
            holds: holds_number(condition.status),
            reason: condition.reason.number(),
            message: &condition.message,
            // Zero is no version, so that it can stand for none.
            observed_version: condition.observed_version.map_or(0, Version::raw),
        });
    }
    let wire = WireOutcome {
        update_seq: report.update_seq.raw(),
        component: report.component.number(),
        kind: report.kind.number(),
        wanted: report.wanted.into(),
        applied: report.applied.map(WireStamp::from),
        conditions,
        signature: WireSignature(report.signature),
    };
    put(out, KIND, STATUS_FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode(payload: &[u8]) -> Result<OutcomeReport, DecodeError> {
    let wire: WireOutcome<'_> = take(KIND, payload)?;
    within(KIND, "list of conditions", wire.conditions.len(), CONDITIONS_MAX)?;
    let mut conditions = Vec::with_capacity(wire.conditions.len());
    for condition in &wire.conditions {
        conditions.extend(condition_in(condition)?);
    }
    Ok(OutcomeReport {
        update_seq: update_seq(KIND, wire.update_seq)?,
        component: component(KIND, wire.component)?,
        kind: OutcomeKind::from_number(wire.kind).ok_or(DecodeError::Value { kind: KIND, field: "kind of outcome" })?,
        wanted: wire.wanted.stamp(KIND)?,
        applied: wire.applied.map(|stamp| stamp.stamp(KIND)).transpose()?,
        conditions,
        signature: wire.signature.0,
    })
}
