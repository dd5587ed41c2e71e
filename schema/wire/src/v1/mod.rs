//! Protocol 1: the layouts and how they meet the messages.
//!
//! - It is frozen: a field is never added, moved, removed or given another meaning. Golden bytes that are pinned by their hash hold this still.
//! - What a message knows beside these layouts is not said here: a HelloAck of this protocol is one of a gateway that pushes.
//! - Encoding refuses what decoding would refuse, by the same caps.

pub(crate) mod changes;
pub(crate) mod codec;
mod control;
pub(crate) mod hello;
mod outcome;
pub(crate) mod scalar;
mod update;

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::message::{Kind, Message};
use crate::negotiate::Protocol;

/// Appends one message as a frame. On an error nothing is appended.
///
/// # Errors
/// [`EncodeError`] if a field is above its cap.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match message {
        Message::Hello(hello) => hello::encode(hello, out),
        Message::HelloAck(ack) => hello::encode_ack(ack, out),
        Message::Update(update) => update::encode(update, out),
        Message::Chunk(chunk) => encode_chunk(chunk.update_seq, chunk.offset, &chunk.bytes, out),
        Message::Outcome(report) => outcome::encode(report, out),
        Message::Inventory(inventory) => hello::encode_inventory(inventory, out),
        Message::Liveness(liveness) => control::encode_liveness(*liveness, out),
        Message::Drain(drain) => control::encode_drain(drain, out),
        Message::Directive(directive) => control::encode_directive(directive, out),
        Message::Refusal(refusal) => control::encode_refusal(refusal, out),
        Message::Fault(fault) => control::encode_fault(fault, out),
        Message::Drift(_) => Err(EncodeError::Unspeakable { kind: Kind::Drift, field: "anything" }),
        Message::Status(_) => Err(EncodeError::Unspeakable { kind: Kind::Status, field: "anything" }),
        Message::Unknown(number) => {
            codec::put_frame(out, *number, &[]);
            Ok(())
        }
    }
}

pub use update::encode_chunk;

/// Reads the message of a frame. A kind that this build does not know is a message too.
///
/// # Errors
/// [`DecodeError`] for any payload that is not exactly one message within its caps.
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    if frame.protocol != Protocol::V1.number() {
        return Err(DecodeError::Protocol { protocol: frame.protocol });
    }
    decode_payload(frame)
}

/// Reads the payload of a frame by the layouts of this protocol, whatever its envelope names.
pub(crate) fn decode_payload(frame: &Frame) -> Result<Message, DecodeError> {
    let payload = frame.payload.as_slice();
    let Some(kind) = Kind::from_number(frame.kind) else { return Ok(Message::Unknown(frame.kind)) };
    Ok(match kind {
        Kind::Hello => Message::Hello(hello::decode(payload)?),
        Kind::HelloAck => Message::HelloAck(hello::decode_ack(payload)?),
        Kind::Update => Message::Update(update::decode(payload)?),
        Kind::Chunk => Message::Chunk(update::decode_chunk(payload)?),
        Kind::Outcome => Message::Outcome(outcome::decode(payload)?),
        Kind::Inventory => Message::Inventory(hello::decode_inventory(payload)?),
        Kind::Liveness => Message::Liveness(control::decode_liveness(payload)?),
        Kind::Drain => Message::Drain(control::decode_drain(payload)?),
        Kind::Directive => Message::Directive(control::decode_directive(payload)?),
        Kind::Refusal => Message::Refusal(control::decode_refusal(payload)?),
        Kind::Fault => Message::Fault(control::decode_fault(payload)?),
        // Of a later protocol: here nobody knows it.
        Kind::Drift | Kind::Status => Message::Unknown(frame.kind),
    })
}
