//! Liveness with the digest of what was said last, and what a host says of itself as a whole.

use holdfast_model::condition::{Basis, Condition, ConditionType, Holds, Reason};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::Version;
use holdfast_model::report::{
    ComponentReport, HostReport, REPORT_CONDITIONS_MAX, REPORT_TEXT_BYTES_MAX, StatedCondition,
};
use serde::{Deserialize, Serialize};

use crate::error::{DecodeError, EncodeError};
use crate::limits::{
    ENVELOPE_BYTES, LENGTH_BYTES, LIVENESS_FRAME_BYTES_MAX, REPORT_COMPONENTS_MAX, REPORT_FRAME_BYTES_MAX,
};
use crate::message::{Kind, Liveness, StatusReport};
use crate::v1::codec::{fits, put, take, within};
use crate::v1::scalar::{WireSignature, WireStamp, component, number, update_seq};

const KIND: Kind = Kind::Status;

#[derive(Serialize, Deserialize)]
struct WireLiveness3 {
    counter: u64,
    status: Option<[u8; 32]>,
}

#[derive(Serialize, Deserialize)]
struct WireStatus<'a> {
    seq: u64,
    answered: u64,
    #[serde(borrow)]
    components: Vec<WireComponent<'a>>,
    signature: WireSignature,
}

#[derive(Serialize, Deserialize)]
struct WireComponent<'a> {
    component: u8,
    applied: Option<WireStamp>,
    #[serde(borrow)]
    conditions: Vec<WireStated<'a>>,
}

#[derive(Serialize, Deserialize)]
struct WireStated<'a> {
    kind: u8,
    holds: u8,
    reason: u8,
    basis: u8,
    observed_version: u64,
    observed_at_ms: u64,
    message: &'a str,
}

pub(super) fn encode_liveness(liveness: Liveness, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let status = liveness.status.map(|digest| *digest.as_bytes());
    let wire = WireLiveness3 { counter: liveness.counter, status };
    put(out, Kind::Liveness, LIVENESS_FRAME_BYTES_MAX - LENGTH_BYTES, &wire)
}

pub(super) fn decode_liveness(payload: &[u8]) -> Result<Liveness, DecodeError> {
    let WireLiveness3 { counter, status } = take(Kind::Liveness, payload)?;
    Ok(Liveness { counter, status: status.map(Digest::from_bytes) })
}

pub(super) fn encode(status: &StatusReport, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let StatusReport { seq, report, signature } = status;
    fits(KIND, "list of components", report.components.len(), REPORT_COMPONENTS_MAX)?;
    let conditions = report.components.iter().map(|one| one.conditions.len()).sum();
    fits(KIND, "list of conditions", conditions, REPORT_CONDITIONS_MAX)?;
    for one in report.components.iter().flat_map(|one| &one.conditions) {
        fits(KIND, "message of a condition", one.condition.message.len(), REPORT_TEXT_BYTES_MAX)?;
    }
    let components = report.components.iter().map(component_out).collect();
    let (answered, signature) = (report.answered.raw(), WireSignature(*signature));
    put(out, KIND, REPORT_FRAME_BYTES_MAX, &WireStatus { seq: *seq, answered, components, signature })
}

fn component_out(one: &ComponentReport) -> WireComponent<'_> {
    let ComponentReport { component, applied, conditions } = one;
    let conditions = conditions.iter().map(stated_out).collect();
    WireComponent { component: component.number(), applied: applied.map(WireStamp::from), conditions }
}

fn stated_out(one: &StatedCondition) -> WireStated<'_> {
    let StatedCondition { condition, basis, observed_at_ms } = one;
    WireStated {
        kind: condition.kind.number(),
        holds: condition.status.number(),
        reason: condition.reason.number(),
        basis: basis.number(),
        // Zero is no version, so that it can stand for none.
        observed_version: condition.observed_version.map_or(0, Version::raw),
        observed_at_ms: *observed_at_ms,
        message: &condition.message,
    }
}

fn stated_in(wire: &WireStated<'_>) -> Result<StatedCondition, DecodeError> {
    let invalid = |field| DecodeError::Value { kind: KIND, field };
    let observed_version = number(KIND, "version of a condition", wire.observed_version)?;
    let condition = Condition {
        // A report is signed as a whole, and complete: a type that is not known is not left out.
        kind: ConditionType::from_number(wire.kind).ok_or(invalid("type of a condition"))?,
        status: Holds::from_number(wire.holds).ok_or(invalid("status of a condition"))?,
        reason: Reason::from_number(wire.reason),
        message: wire.message.to_owned(),
        observed_version: Version::from_raw(observed_version),
    };
    let basis = Basis::from_number(wire.basis).ok_or(invalid("basis of a condition"))?;
    let observed_at_ms = number(KIND, "time of a condition", wire.observed_at_ms)?;
    Ok(StatedCondition { condition, basis, observed_at_ms })
}

pub(super) fn decode(payload: &[u8]) -> Result<StatusReport, DecodeError> {
    within(KIND, "frame", ENVELOPE_BYTES + payload.len(), REPORT_FRAME_BYTES_MAX)?;
    let wire: WireStatus<'_> = take(KIND, payload)?;
    let mut components = Vec::with_capacity(wire.components.len());
    for one in &wire.components {
        let conditions = one.conditions.iter().map(stated_in).collect::<Result<_, _>>()?;
        let applied = one.applied.as_ref().map(|stamp| stamp.stamp(KIND)).transpose()?;
        components.push(ComponentReport { component: component(KIND, one.component)?, applied, conditions });
    }
    let report = HostReport { answered: update_seq(KIND, wire.answered)?, components };
    report.check().map_err(|_| DecodeError::Value { kind: KIND, field: "complete report" })?;
    let seq = number(KIND, "number of a status", wire.seq)?;
    Ok(StatusReport { seq, report, signature: wire.signature.0 })
}
