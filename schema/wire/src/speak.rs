//! Messages to and from frames, in whichever protocol a session speaks.

use holdfast_model::numbers::UpdateSeq;

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::message::{Kind, Message};
use crate::negotiate::{Protocol, ProtocolRange, SPOKEN};
use crate::{v1, v2, v3};

/// Appends one message as a frame of a protocol. On an error nothing is appended.
///
/// # Errors
/// [`EncodeError`] if a field is above its cap, or the protocol has no place for it.
pub fn encode(protocol: Protocol, message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match protocol {
        Protocol::V1 => v1::encode(message, out),
        Protocol::V2 => v2::encode(message, out),
        Protocol::V3 => v3::encode(message, out),
    }
}

/// Appends one chunk as a frame of a protocol, straight from bytes that hosts of one role share.
///
/// # Errors
/// [`EncodeError`] if there are more bytes than a chunk takes.
pub fn encode_chunk(
    protocol: Protocol,
    update_seq: UpdateSeq,
    offset: u32,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match protocol {
        Protocol::V1 => v1::encode_chunk(update_seq, offset, bytes, out),
        Protocol::V2 => v2::encode_chunk(update_seq, offset, bytes, out),
        Protocol::V3 => v3::encode_chunk(update_seq, offset, bytes, out),
    }
}

/// Reads the message of a frame of any protocol that this build speaks.
///
/// # Errors
/// As [`decode_as`].
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    decode_as(SPOKEN, frame)
}

/// Reads the message of a frame of one of these protocols. Hello and Refusal are of the first protocol and are always read.
///
/// # Errors
/// [`DecodeError`] for another protocol, for an answer to Hello that chooses another one than it is written in, and for any payload that is not
/// exactly one message within its caps.
pub fn decode_as(spoken: ProtocolRange, frame: &Frame) -> Result<Message, DecodeError> {
    let number = frame.protocol;
    let is_of_all = matches!(Kind::from_number(frame.kind), Some(Kind::Hello | Kind::Refusal));
    let is_spoken = spoken.has(number) || (is_of_all && number == Protocol::FIRST.number());
    let protocol = Protocol::from_number(number).filter(|_| is_spoken);
    let message = match protocol.ok_or(DecodeError::Protocol { protocol: number })? {
        Protocol::V1 => v1::decode(frame)?,
        Protocol::V2 => v2::decode(frame)?,
        Protocol::V3 => v3::decode(frame)?,
    };
    if let Message::HelloAck(ack) = &message
        && ack.protocol != number
    {
        return Err(DecodeError::Value { kind: Kind::HelloAck, field: "protocol" });
    }
    Ok(message)
}
