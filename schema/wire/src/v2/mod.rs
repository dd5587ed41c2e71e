//! Protocol 2: what it says otherwise than protocol 1, and that the rest is the same under another number.
//!
//! - Hello and Refusal are frames of protocol 1, always.
//! - A HelloAck begins with the fields of protocol 1 and then says how the gateway delivers.
//! - It may still grow until it is released; then it is frozen as protocol 1 is.

mod hello;

use holdfast_model::numbers::UpdateSeq;

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::limits::LENGTH_BYTES;
use crate::message::{Kind, Message};
use crate::negotiate::Protocol;
use crate::v1;

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
        | Message::Unknown(_) => v1::encode(message, out)?,
    }
    relabel(out, start);
    Ok(())
}

/// Appends one chunk as a frame, straight from bytes that hosts of one role share.
///
/// # Errors
/// [`EncodeError`] if there are more bytes than a chunk takes.
pub fn encode_chunk(update_seq: UpdateSeq, offset: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    v1::encode_chunk(update_seq, offset, bytes, out)?;
    relabel(out, start);
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
            | Kind::Fault,
        )
        | None => v1::decode_payload(frame),
    }
}

/// Writes this protocol's number into the envelope of a frame that begins here.
fn relabel(out: &mut [u8], start: usize) {
    let at = start + LENGTH_BYTES;
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&Protocol::V2.number().to_be_bytes());
    }
}
