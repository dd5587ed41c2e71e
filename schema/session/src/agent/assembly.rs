//! Putting the chunks of a snapshot together.
//!
//! - Chunks come in order and without gaps, of the update that announced them and of no other.
//! - Memory follows what came, not what was announced.

use holdfast_wire::message::{Chunk, Update};

/// Chunks that do not fit the snapshot at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WrongChunk;

#[derive(Debug)]
pub(super) struct Assembly {
    update: Update,
    bytes_total: usize,
    came: usize,
    bytes: Vec<u8>,
    keep: bool,
}

impl Assembly {
    /// Begins with the update that announces the bytes. Those of an update that is refused already are counted and not kept.
    pub(super) const fn new(update: Update, bytes_total: usize, keep: bool) -> Self {
        Self { update, bytes_total, came: 0, bytes: Vec::new(), keep }
    }

    pub(super) fn put(&mut self, chunk: &Chunk) -> Result<(), WrongChunk> {
        let at = usize::try_from(chunk.offset).ok();
        let end = self.came + chunk.bytes.len();
        if chunk.update_seq != self.update.update_seq || at != Some(self.came) || end > self.bytes_total {
            return Err(WrongChunk);
        }
        self.came = end;
        if self.keep {
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        Ok(())
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.came == self.bytes_total
    }

    pub(super) const fn bytes_total(&self) -> usize {
        self.bytes_total
    }

    pub(super) const fn is_kept(&self) -> bool {
        self.keep
    }

    pub(super) fn take(self) -> (Update, Vec<u8>) {
        (self.update, self.bytes)
    }
}
