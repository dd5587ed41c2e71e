//! One direction of one connection: bytes on their way, in order, until somebody cuts it.
//!
//! - Within a connection nothing is lost, doubled or reordered: it is cut, held up or swallowed whole from a moment on, as TCP is.
//! - What waits is bounded by the writer: it asks for room before it makes another frame.

use std::mem::take;

use holdfast_wire::error::FrameError;
use holdfast_wire::frame::{Deframer, Frame};
use holdfast_wire::limits::FRAME_BYTES_MAX;

/// Bytes from one end to the other.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) bytes: Vec<u8>,
    deframer: Deframer,
    /// Whether an arrival is planned already.
    pub(crate) is_moving: bool,
    /// The writer closed behind its last byte.
    pub(crate) is_finished: bool,
    /// Everything from now on is swallowed, and neither end is told.
    pub(crate) is_swallowing: bool,
    /// The reader does not read before.
    pub(crate) stalled_until: u64,
}

impl Pipe {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            deframer: Deframer::new(FRAME_BYTES_MAX),
            is_moving: false,
            is_finished: false,
            is_swallowing: false,
            stalled_until: 0,
        }
    }

    /// Takes what the writer wrote.
    pub(crate) fn write(&mut self, frame: &[u8]) {
        if !self.is_swallowing {
            self.bytes.extend_from_slice(frame);
        }
    }

    /// Lets so many bytes arrive.
    pub(crate) fn arrive(&mut self, count: usize) {
        if count >= self.bytes.len() {
            self.deframer.push(&take(&mut self.bytes));
        } else {
            let arrived: Vec<u8> = self.bytes.drain(..count).collect();
            self.deframer.push(&arrived);
        }
    }

    /// The next whole frame that arrived.
    pub(crate) fn poll_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        self.deframer.poll_frame()
    }
}
