//! Protocol 3: what it says beside protocol 2, and that the rest is the same under another number.
//!
//! - Hello and Refusal are frames of protocol 1, always.
//! - An agent says what it found in its kernel, and how its host is as a whole: messages that a gateway of an earlier protocol is never sent.
//! - Liveness has the digest of what was said last of the host as a whole.
//! - It may still grow until it is released; then it is frozen as the earlier ones are.

mod drift;
mod status;

use holdfast_model::numbers::UpdateSeq;

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::message::{Kind, Message};
use crate::negotiate::Protocol;
use crate::v1::codec::relabel;
use crate::{v1, v2};

/// Appends one message as a frame. On an error nothing is appended.
///
/// # Errors
/// [`EncodeError`] if a field is above its cap.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    match message {
        Message::Hello(_) | Message::Refusal(_) => return v1::encode(message, out),
        Message::Drift(report) => drift::encode(report, out)?,
        Message::Status(report) => status::encode(report, out)?,
        Message::Liveness(liveness) => status::encode_liveness(*liveness, out)?,
        Message::HelloAck(_)
        | Message::Update(_)
        | Message::Chunk(_)
        | Message::Outcome(_)
        | Message::Inventory(_)
        | Message::Drain(_)
        | Message::Directive(_)
        | Message::Fault(_)
        | Message::Unknown(_) => v2::encode(message, out)?,
    }
    relabel(out, start, Protocol::V3);
    Ok(())
}

/// Appends one chunk as a frame, straight from bytes that hosts of one role share.
///
/// # Errors
/// [`EncodeError`] if there are more bytes than a chunk takes.
pub fn encode_chunk(update_seq: UpdateSeq, offset: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    v1::encode_chunk(update_seq, offset, bytes, out)?;
    relabel(out, start, Protocol::V3);
    Ok(())
}

/// Reads the message of a frame. A kind that this build does not know is a message too.
///
/// # Errors
/// [`DecodeError`] for any payload that is not exactly one message within its caps, and for what is never said in this protocol.
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    let protocol = frame.protocol;
    if protocol != Protocol::V3.number() {
        return Err(DecodeError::Protocol { protocol });
    }
    match Kind::from_number(frame.kind) {
        Some(Kind::Drift) => drift::decode(&frame.payload).map(Message::Drift),
        Some(Kind::Status) => status::decode(&frame.payload).map(Message::Status),
        Some(Kind::Liveness) => status::decode_liveness(&frame.payload).map(Message::Liveness),
        Some(
            Kind::Hello
            | Kind::HelloAck
            | Kind::Update
            | Kind::Chunk
            | Kind::Outcome
            | Kind::Inventory
            | Kind::Drain
            | Kind::Directive
            | Kind::Refusal
            | Kind::Fault,
        )
        | None => v2::decode_payload(frame),
    }
}
