//! A stream whose writes end with an error when the other side takes nothing for too long.
//!
//! - What counts is progress: a write that waits begins its time anew when some of it went out.
//! - Reads are as they were: who waits for a request has a time limit of his own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream with a limit on how long a write may wait.
#[derive(Debug)]
pub(crate) struct Unstalled<S> {
    stream: S,
    pause_max: Duration,
    until: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Unstalled<S> {
    /// Lets writes of `stream` wait so long.
    pub(crate) fn new(stream: S, pause_max: Duration) -> Self {
        Self { stream, pause_max, until: Box::pin(tokio::time::sleep(pause_max)), waits: false }
    }

    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.until.as_mut().reset(Instant::now() + self.pause_max);
        }
        self.until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.limit(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.limit(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limit(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PAUSE_MAX: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_reads_nothing_ends_a_write_and_one_that_is_slow_does_not() {
        let (near, mut far) = duplex(10);
        let mut near = Unstalled::new(near, PAUSE_MAX);
        let slow = async {
            for _ in 0..10 {
                tokio::time::sleep(PAUSE_MAX - Duration::from_secs(1)).await;
                far.read_exact(&mut [0; 10]).await.expect("it comes");
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[1; 100]), slow);
        written.expect("it was read, however slowly");

        let began = Instant::now();
        let stalled = near.write_all(&[1; 100]).await.expect_err("nobody reads");
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < PAUSE_MAX * 2, "{:?}", began.elapsed());
    }
}
