//! Frames: a length, an envelope, a payload.
//!
//! - The length is held against the cap of the moment as soon as its four bytes are there; nothing beyond that cap is ever kept.
//! - Bytes may come in pieces of any size; what comes out does not depend on how they were cut.
//! - A frame above the cap may be passed over by its length: its bytes are dropped as they come.

use crate::error::FrameError;
use crate::limits::{ENVELOPE_BYTES, LENGTH_BYTES};

/// What a deframer keeps between frames.
const IDLE_BYTES: usize = 4 * 1024;

/// One frame, not yet understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Which protocol's layout the payload has.
    pub protocol: u16,
    /// The number of the kind; it may be one that this build does not know.
    pub kind: u16,
    /// The rest.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The bytes on the wire that it took.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        LENGTH_BYTES + ENVELOPE_BYTES + self.payload.len()
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct Deframer {
    buffer: Vec<u8>,
    taken: usize,
    /// How many bytes that are still to come belong to a frame that is passed over.
    passed_over: usize,
    frame_bytes_max: usize,
}

impl Deframer {
    /// A deframer that refuses frames above `frame_bytes_max`.
    #[must_use]
    pub const fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, passed_over: 0, frame_bytes_max }
    }

    /// Changes the cap for frames whose length was not read yet.
    pub const fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// How many more bytes complete the frame at hand: reading no more than this and a page keeps memory near one frame.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        if self.passed_over > 0 {
            return self.passed_over.min(self.frame_bytes_max);
        }
        let held = self.buffer.len() - self.taken;
        let whole = self.peek_length().map_or(LENGTH_BYTES, |length| LENGTH_BYTES + length.min(self.frame_bytes_max));
        whole.saturating_sub(held)
    }

    /// Whether bytes of an unfinished frame are held: the stream may not end here.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.passed_over == 0 && self.buffer.len() == self.taken
    }

    /// Takes bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let dropped = self.passed_over.min(bytes.len());
        self.passed_over -= dropped;
        let bytes = bytes.get(dropped..).unwrap_or_default();
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if its bytes are all there.
    ///
    /// # Errors
    /// [`FrameError`] if the stream cannot be followed any further; asking again gives the same answer.
    pub fn poll_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(bytes) = self.peek_length() else { return Ok(None) };
        if bytes > self.frame_bytes_max {
            return Err(FrameError::TooLong { bytes, bytes_max: self.frame_bytes_max });
        }
        if bytes < ENVELOPE_BYTES {
            return Err(FrameError::TooShort { bytes });
        }
        let start = self.taken + LENGTH_BYTES;
        let Some(frame) = self.buffer.get(start..start + bytes) else { return Ok(None) };
        let Some(([p0, p1, k0, k1], payload)) = frame.split_first_chunk::<ENVELOPE_BYTES>() else { return Ok(None) };
        let frame = Frame {
            protocol: u16::from_be_bytes([*p0, *p1]),
            kind: u16::from_be_bytes([*k0, *k1]),
            payload: payload.to_vec(),
        };
        self.taken = start + bytes;
        self.give_back();
        Ok(Some(frame))
    }

    /// Protocol and kind of the frame at hand, however long it is, once their bytes are there.
    #[must_use]
    pub fn peek_envelope(&self) -> Option<(u16, u16)> {
        let head = self.buffer.get(self.taken..)?.first_chunk::<{ LENGTH_BYTES + ENVELOPE_BYTES }>()?;
        let [_, _, _, _, p0, p1, k0, k1] = *head;
        (self.peek_length()? >= ENVELOPE_BYTES).then(|| (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([k0, k1])))
    }

    /// Passes over the frame at hand by its length: what is there of it is dropped, and so is the rest as it comes.
    pub fn pass_over(&mut self) {
        let Some(bytes) = self.peek_length() else { return };
        let (held, whole) = (self.buffer.len() - self.taken, LENGTH_BYTES.saturating_add(bytes));
        self.passed_over = whole.saturating_sub(held);
        self.taken += whole.min(held);
        self.give_back();
    }

    /// A stream that carried a large frame once does not keep its room.
    fn give_back(&mut self) {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
            self.buffer.shrink_to(IDLE_BYTES);
        }
    }

    fn peek_length(&self) -> Option<usize> {
        let length = self.buffer.get(self.taken..)?.first_chunk::<LENGTH_BYTES>()?;
        // A length that no usize holds is above every cap.
        Some(usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX))
    }
}
