//! Liveness, Drain, Directive, Refusal and Fault.

use holdfast_model::numbers::UpdateSeq;
use serde::{Deserialize, Serialize};

use super::codec::{fits, put, take, within};
use super::hello::{gateways_fit, gateways_in};
use super::scalar::{Blob, update_seq};
use crate::code::{DirectiveCode, FaultCode, RefusalCode};
use crate::error::{DecodeError, EncodeError};
use crate::limits::{
    DIRECTIVE_BYTES_MAX, FRAME_BYTES_MAX, LENGTH_BYTES, LIVENESS_FRAME_BYTES_MAX, STATUS_FRAME_BYTES_MAX,
    TEXT_BYTES_MAX,
};
use crate::message::{Directive, Drain, Fault, Kind, Liveness, Refusal};

#[derive(Serialize, Deserialize)]
struct WireLiveness {
    counter: u64,
}

#[derive(Serialize, Deserialize)]
struct WireDrain<'a> {
    reconnect_after_ms: u32,
    #[serde(borrow)]
    gateways: Vec<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct WireDirective<'a> {
    code: u16,
    #[serde(borrow)]
    argument: Blob<'a>,
}

#[derive(Serialize, Deserialize)]
struct WireRefusal<'a> {
    code: u16,
    retry_after_ms: u32,
    detail: &'a str,
}

#[derive(Serialize, Deserialize)]
struct WireFault {
    code: u16,
    message_kind: u16,
    update_seq: Option<u64>,
}

pub(super) fn encode_liveness(liveness: Liveness, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if liveness.status.is_some() {
        return Err(EncodeError::Unspeakable { kind: Kind::Liveness, field: "a status" });
    }
    let wire = WireLiveness { counter: liveness.counter };
    put(out, Kind::Liveness, LIVENESS_FRAME_BYTES_MAX - LENGTH_BYTES, &wire)
}

pub(super) fn decode_liveness(payload: &[u8]) -> Result<Liveness, DecodeError> {
    let WireLiveness { counter } = take(Kind::Liveness, payload)?;
    Ok(Liveness { counter, status: None })
}

pub(super) fn encode_drain(drain: &Drain, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    gateways_fit(Kind::Drain, &drain.gateways)?;
    let gateways = drain.gateways.iter().map(String::as_str).collect();
    put(out, Kind::Drain, FRAME_BYTES_MAX, &WireDrain { reconnect_after_ms: drain.reconnect_after_ms, gateways })
}

pub(super) fn decode_drain(payload: &[u8]) -> Result<Drain, DecodeError> {
    let wire: WireDrain<'_> = take(Kind::Drain, payload)?;
    let gateways = gateways_in(Kind::Drain, &wire.gateways)?;
    Ok(Drain { reconnect_after_ms: wire.reconnect_after_ms, gateways })
}

pub(super) fn encode_directive(directive: &Directive, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    fits(Kind::Directive, "argument", directive.argument.len(), DIRECTIVE_BYTES_MAX)?;
    let wire = WireDirective { code: directive.code.number(), argument: Blob(&directive.argument) };
    put(out, Kind::Directive, FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode_directive(payload: &[u8]) -> Result<Directive, DecodeError> {
    let wire: WireDirective<'_> = take(Kind::Directive, payload)?;
    within(Kind::Directive, "argument", wire.argument.0.len(), DIRECTIVE_BYTES_MAX)?;
    Ok(Directive { code: DirectiveCode::from_number(wire.code), argument: wire.argument.0.to_vec() })
}

pub(super) fn encode_refusal(refusal: &Refusal, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    fits(Kind::Refusal, "detail", refusal.detail.len(), TEXT_BYTES_MAX)?;
    let wire =
        WireRefusal { code: refusal.code.number(), retry_after_ms: refusal.retry_after_ms, detail: &refusal.detail };
    put(out, Kind::Refusal, STATUS_FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode_refusal(payload: &[u8]) -> Result<Refusal, DecodeError> {
    let wire: WireRefusal<'_> = take(Kind::Refusal, payload)?;
    within(Kind::Refusal, "detail", wire.detail.len(), TEXT_BYTES_MAX)?;
    Ok(Refusal {
        code: RefusalCode::from_number(wire.code),
        retry_after_ms: wire.retry_after_ms,
        detail: wire.detail.to_owned(),
    })
}

pub(super) fn encode_fault(fault: &Fault, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let wire = WireFault {
        code: fault.code.number(),
        message_kind: fault.message_kind,
        update_seq: fault.update_seq.map(UpdateSeq::raw),
    };
    put(out, Kind::Fault, STATUS_FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode_fault(payload: &[u8]) -> Result<Fault, DecodeError> {
    let kind = Kind::Fault;
    let wire: WireFault = take(kind, payload)?;
    Ok(Fault {
        code: FaultCode::from_number(wire.code),
        message_kind: wire.message_kind,
        update_seq: wire.update_seq.map(|raw| update_seq(kind, raw)).transpose()?,
    })
}
