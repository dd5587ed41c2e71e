//! Update and Chunk.

use holdfast_model::numbers::UpdateSeq;
use serde::{Deserialize, Serialize};

use super::codec::{fits, put, take, within};
use super::scalar::{Blob, WireSignature, WireStamp, component, update_seq};
use crate::error::{DecodeError, EncodeError};
use crate::limits::{BODY_BYTES_MAX, CHUNK_BYTES_MAX, DELTA_BYTES_MAX, FRAME_BYTES_MAX};
use crate::message::{Chunk, Kind, Update, UpdateContent};

#[derive(Serialize, Deserialize)]
struct WireUpdate<'a> {
    update_seq: u64,
    component: u8,
    stamp: WireStamp,
    signature: WireSignature,
    #[serde(borrow)]
    content: WireContent<'a>,
}

#[derive(Serialize, Deserialize)]
enum WireContent<'a> {
    Snapshot {
        bytes_total: u32,
    },
    Delta {
        base: WireStamp,
        #[serde(borrow)]
        changes: Blob<'a>,
    },
    VersionOnly,
}

#[derive(Serialize, Deserialize)]
struct WireChunk<'a> {
    update_seq: u64,
    offset: u32,
    #[serde(borrow)]
    bytes: Blob<'a>,
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) fn encode(update: &Update, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let kind = Kind::Update;
    let content = match &update.content {
        UpdateContent::Snapshot { bytes_total } => {
            fits(kind, "body", size(*bytes_total), BODY_BYTES_MAX)?;
            WireContent::Snapshot { bytes_total: *bytes_total }
        }
        UpdateContent::Delta { base, changes } => {
            fits(kind, "delta", changes.len(), DELTA_BYTES_MAX)?;
            WireContent::Delta { base: (*base).into(), changes: Blob(changes) }
        }
        UpdateContent::VersionOnly => WireContent::VersionOnly,
    };
    let wire = WireUpdate {
        update_seq: update.update_seq.raw(),
        component: update.component.number(),
        stamp: update.stamp.into(),
        signature: WireSignature(update.signature),
        content,
    };
    put(out, kind, FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode(payload: &[u8]) -> Result<Update, DecodeError> {
    let kind = Kind::Update;
    let wire: WireUpdate<'_> = take(kind, payload)?;
    let content = match wire.content {
        WireContent::Snapshot { bytes_total } => {
            within(kind, "body", size(bytes_total), BODY_BYTES_MAX)?;
            if bytes_total == 0 {
                return Err(DecodeError::Value { kind, field: "size of the body" });
            }
            UpdateContent::Snapshot { bytes_total }
        }
        WireContent::Delta { base, changes } => {
            within(kind, "delta", changes.0.len(), DELTA_BYTES_MAX)?;
            UpdateContent::Delta { base: base.stamp(kind)?, changes: changes.0.to_vec() }
        }
        WireContent::VersionOnly => UpdateContent::VersionOnly,
    };
    Ok(Update {
        update_seq: update_seq(kind, wire.update_seq)?,
        component: component(kind, wire.component)?,
        stamp: wire.stamp.stamp(kind)?,
        signature: wire.signature.0,
        content,
    })
}

/// Appends one chunk as a frame, straight from bytes that hosts of one role share.
///
/// # Errors
/// [`EncodeError`] if there are more bytes than a chunk takes.
pub fn encode_chunk(update_seq: UpdateSeq, offset: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    fits(Kind::Chunk, "piece", bytes.len(), CHUNK_BYTES_MAX)?;
    put(out, Kind::Chunk, FRAME_BYTES_MAX, &WireChunk { update_seq: update_seq.raw(), offset, bytes: Blob(bytes) })
}

pub(super) fn decode_chunk(payload: &[u8]) -> Result<Chunk, DecodeError> {
    let kind = Kind::Chunk;
    let wire: WireChunk<'_> = take(kind, payload)?;
    within(kind, "piece", wire.bytes.0.len(), CHUNK_BYTES_MAX)?;
    if wire.bytes.0.is_empty() {
        return Err(DecodeError::Value { kind, field: "piece" });
    }
    let end = size(wire.offset).saturating_add(wire.bytes.0.len());
    within(kind, "body", end, BODY_BYTES_MAX)?;
    Ok(Chunk { update_seq: update_seq(kind, wire.update_seq)?, offset: wire.offset, bytes: wire.bytes.0.to_vec() })
}
