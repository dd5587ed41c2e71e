//! Postcard in frames, and the one way to hold a field against its cap.

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use crate::error::{DecodeError, EncodeError};
use crate::limits::{ENVELOPE_BYTES, FRAME_BYTES_MAX, LENGTH_BYTES};
use crate::message::Kind;
use crate::negotiate::Protocol;

/// Appends a frame with these bytes as its payload, which the caller has held against the cap.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let length = u32::try_from(ENVELOPE_BYTES + payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&Protocol::V1.number().to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a frame, its length patched in after its payload; `frame_bytes_max` counts envelope and payload.
pub(crate) fn put<T: Serialize>(
    out: &mut Vec<u8>,
    kind: Kind,
    frame_bytes_max: usize,
    wire: &T,
) -> Result<(), EncodeError> {
    let start = out.len();
    put_frame(out, kind.number(), &[]);
    let result = put_payload(out, kind, wire).and_then(|()| {
        let size = out.len() - start - LENGTH_BYTES;
        let size_max = frame_bytes_max.min(FRAME_BYTES_MAX);
        let length = u32::try_from(size).ok().filter(|_| size <= size_max);
        let length = length.ok_or(EncodeError::TooLarge { kind, field: "frame", size, size_max })?;
        if let Some(place) = out.get_mut(start..start + LENGTH_BYTES) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends the bare bytes of a wire type.
pub(super) fn put_payload<T: Serialize>(out: &mut Vec<u8>, kind: Kind, wire: &T) -> Result<(), EncodeError> {
    postcard::serialize_with_flavor(wire, Append(out)).map_err(|source| EncodeError::Payload { kind, source })
}

/// Writes a protocol's number into the envelope of a frame that begins at `start`.
pub(crate) fn relabel(out: &mut [u8], start: usize, protocol: Protocol) {
    let at = start + LENGTH_BYTES;
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&protocol.number().to_be_bytes());
    }
}

/// Reads exactly one wire type.
pub(crate) fn take<'a, T: Deserialize<'a>>(kind: Kind, payload: &'a [u8]) -> Result<T, DecodeError> {
    let (wire, rest) = postcard::take_from_bytes(payload).map_err(|source| DecodeError::Payload { kind, source })?;
    if rest.is_empty() { Ok(wire) } else { Err(DecodeError::Trailing { kind, bytes: rest.len() }) }
}

/// A field on its way out is within its cap.
pub(crate) fn fits(kind: Kind, field: &'static str, size: usize, size_max: usize) -> Result<(), EncodeError> {
    if size <= size_max { Ok(()) } else { Err(EncodeError::TooLarge { kind, field, size, size_max }) }
}

/// A field that came in is within its cap.
pub(crate) fn within(kind: Kind, field: &'static str, size: usize, size_max: usize) -> Result<(), DecodeError> {
    if size <= size_max { Ok(()) } else { Err(DecodeError::TooLarge { kind, field, size, size_max }) }
}

struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
