//! What one session holds for an agent to read: the bytes on their way into the socket, and how much memory all of it takes.
//!
//! - What was written is given back before more is made, also for a reader that is never done with everything: however long a session lasts and however
//!   slowly it is read, its buffer stays below [`WRITE_BUFFER_BYTES_MAX`](super::limits::WRITE_BUFFER_BYTES_MAX).
//! - Bodies that wait or are being written are the machine's; here is only what was made of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::limits::{IDLE_BUFFER_BYTES, WRITE_BUFFER_BYTES};

/// Frames that wait for the socket.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    flushed: bool,
}

impl Outgoing {
    /// Nothing waits, and nothing was written that the socket may still have.
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), written: 0, flushed: true }
    }

    /// What waits.
    pub(super) fn waits(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// Whether all of it went out and was flushed.
    pub(super) const fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Where the next frame goes, while there is room for one.
    pub(super) fn room(&mut self) -> Option<&mut Vec<u8>> {
        let waits = self.waits().len();
        if waits >= WRITE_BUFFER_BYTES {
            return None;
        }
        // Moves no more than it gives back.
        if self.written > 0 && self.written >= waits {
            self.bytes.drain(..self.written);
            self.written = 0;
            self.bytes.shrink_to(WRITE_BUFFER_BYTES);
        }
        Some(&mut self.bytes)
    }

    /// A frame was put there.
    pub(super) const fn handle_put(&mut self) {
        self.flushed = false;
    }

    /// So much was written; true if nothing waits any more.
    pub(super) fn handle_written(&mut self, count: usize) -> bool {
        self.written += count;
        let is_all = self.written == self.bytes.len();
        if is_all {
            self.bytes.clear();
            self.written = 0;
            // Thousands of sessions each had a large snapshot once: none keeps the room that it took.
            self.bytes.shrink_to(IDLE_BUFFER_BYTES);
        }
        is_all
    }

    /// What was written is the peer's now.
    pub(super) const fn handle_flushed(&mut self) {
        self.flushed = true;
    }

    /// The memory that it takes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The memory that all sessions hold for agents to read: bodies that are staged or being written, and what waits for sockets.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    /// One session holds more or less than before.
    pub(super) fn moved(&self, before: usize, now: usize) {
        let gauge = metrics::gauge!("holdfast_gateway_held_bytes");
        // Below 2^32: two bodies and a buffer.
        let step = |bytes: usize| f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        if now > before {
            self.0.fetch_add(now - before, Ordering::Relaxed);
            gauge.increment(step(now - before));
        } else if now < before {
            self.0.fetch_sub(before - now, Ordering::Relaxed);
            gauge.decrement(step(before - now));
        }
    }

    /// What all hold now.
    pub(super) fn all(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a turn of the writing side did.
pub(super) enum Pushed {
    Bytes(usize),
    Flushed,
}

/// Writes some of what waits, or flushes when nothing does. Dropped before it is done, nothing was written.
pub(super) async fn push(writer: &mut (impl AsyncWrite + Unpin), waits: &[u8]) -> std::io::Result<Pushed> {
    if waits.is_empty() {
        return writer.flush().await.map(|()| Pushed::Flushed);
    }
    match writer.write(waits).await? {
        0 => Err(std::io::ErrorKind::WriteZero.into()),
        count => Ok(Pushed::Bytes(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::WRITE_BUFFER_BYTES_MAX;
    use super::*;

    #[test]
    fn c22_a_reader_that_is_never_done_with_everything_costs_no_more_for_all_that_was_written() {
        let (mut outgoing, mut sent, mut read) = (Outgoing::new(), 0_usize, 0_usize);
        let frame = vec![7; WRITE_BUFFER_BYTES / 2];
        let mut most = 0;
        while read < 1 << 27 {
            while let Some(out) = outgoing.room() {
                out.extend_from_slice(&frame);
                outgoing.handle_put();
                sent += frame.len();
            }
            most = most.max(outgoing.held_bytes());
            // All but a few bytes each time.
            let some = outgoing.waits().len() - 3;
            assert!(!outgoing.handle_written(some) && !outgoing.is_flushed());
            read += some;
        }
        assert_eq!(outgoing.waits().len(), sent - read);
        assert!(most <= WRITE_BUFFER_BYTES_MAX, "{most} bytes for what waits");
        assert!(outgoing.handle_written(3));
        outgoing.handle_flushed();
        assert!(outgoing.is_flushed() && outgoing.waits().is_empty() && outgoing.held_bytes() <= IDLE_BUFFER_BYTES);
    }

    #[test]
    fn bytes_come_out_in_the_order_in_which_they_were_put_however_they_are_written() {
        let mut outgoing = Outgoing::new();
        let (mut next, mut expected) = (0_u8, 0_u8);
        for turn in 1..300_usize {
            while let Some(out) = outgoing.room() {
                for _ in 0..WRITE_BUFFER_BYTES / 7 {
                    out.push(next);
                    next = next.wrapping_add(1);
                }
                outgoing.handle_put();
            }
            let count = (turn * 7_919) % outgoing.waits().len() + 1;
            for byte in outgoing.waits().iter().take(count) {
                assert_eq!(*byte, expected);
                expected = expected.wrapping_add(1);
            }
            outgoing.handle_written(count);
        }
    }
}
