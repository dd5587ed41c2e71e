//! Protocol 2: what it says otherwise than protocol 1, and that the rest is the same under another number.
//!
//! - Hello and Refusal are frames of protocol 1, always.
//! - A HelloAck begins with the fields of protocol 1 and then says how the gateway delivers.
//! - It is frozen as protocol 1 is: its golden bytes are pinned by their hash.

mod hello;

use holdfast_model::numbers::UpdateSeq;

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::message::{Kind, Message};
use crate::negotiate::Protocol;
use crate::v1;
use crate::v1::codec::relabel;

/// Appends one message as a frame. On an error nothing is appended.
///
/// # Errors
/// [`EncodeError`] if a field is above its cap.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    match message {
        Message::Hello(_) | Message::Refusal(_) => return v1::encode(message, out),
        Message::HelloAck(ack) => hello::encode_ack(ack, out)?,
        Message::Update(_)
        | Message::Chunk(_)
        | Message::Outcome(_)
        | Message::Inventory(_)
        | Message::Liveness(_)
        | Message::Drain(_)
        | Message::Directive(_)
        | Message::Fault(_)
        | Message::Drift(_)
        | Message::Status(_)
        | Message::Unknown(_) => v1::encode(message, out)?,
    }
    relabel(out, start, Protocol::V2);
    Ok(())
}

/// Appends one chunk as a frame, straight from bytes that hosts of one role share.
///
/// # Errors
/// [`EncodeError`] if there are more bytes than a chunk takes.
pub fn encode_chunk(update_seq: UpdateSeq, offset: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    v1::encode_chunk(update_seq, offset, bytes, out)?;
    relabel(out, start, Protocol::V2);
    Ok(())
}

/// Reads the message of a frame. A kind that this build does not know is a message too.
///
/// # Errors
/// [`DecodeError`] for any payload that is not exactly one message within its caps, and for what is never said in this protocol.
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    let protocol = frame.protocol;
    if protocol != Protocol::V2.number() {
        return Err(DecodeError::Protocol { protocol });
    }
    decode_payload(frame)
}

/// Reads the payload of a frame by the layouts of this protocol, whatever its envelope names.
pub(crate) fn decode_payload(frame: &Frame) -> Result<Message, DecodeError> {
    let protocol = frame.protocol;
    match Kind::from_number(frame.kind) {
        Some(Kind::Hello | Kind::Refusal) => Err(DecodeError::Protocol { protocol }),
        Some(Kind::HelloAck) => hello::decode_ack(&frame.payload).map(Message::HelloAck),
        Some(
            Kind::Update
            | Kind::Chunk
            | Kind::Outcome
            | Kind::Inventory
            | Kind::Liveness
            | Kind::Drain
            | Kind::Directive
            | Kind::Fault
            | Kind::Drift
            | Kind::Status,
        )
        | None => v1::decode_payload(frame),
    }
}
