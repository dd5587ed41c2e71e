//! The wish to end, and the signals that bring it.
//!
//! - The first SIGTERM or SIGINT asks everything to drain; the second one ends the process at once, but for the log's last lines.
//! - A [`Shutdown`] is only ever asked for, never taken back.

use crate::log;
use crate::tasks::Tasks;
use std::convert::Infallible;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The process was asked twice to end.
const EXIT_BY_SECOND_SIGNAL: i32 = 130;

/// Whether the process shall end.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Not yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same wish as a token, for what takes one; cancelling it asks.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Asks everything to end.
    pub fn ask(&self) {
        self.token.cancel();
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until it is asked for.
    pub async fn asked(&self) {
        self.token.cancelled().await;
    }

    /// Runs `work` until it is done or the end is asked for, in which case it is dropped and the answer is `None`.
    pub async fn unless_asked<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(work).await
    }
}

/// Why signals cannot be heard.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals")]
pub struct Error(#[source] io::Error);

/// Turns SIGTERM and SIGINT into the process's end. Called once, before anything else is started.
///
/// # Errors
/// [`Error`] when the system refuses the handlers.
pub fn watch_signals(tasks: &Tasks) -> Result<(), Error> {
    let terminate = signal(SignalKind::terminate()).map_err(Error)?;
    let interrupt = signal(SignalKind::interrupt()).map_err(Error)?;
    let shutdown = tasks.shutdown().clone();
    tasks.background("signals", async move {
        let end_now = || {
            log::flush();
            std::process::exit(EXIT_BY_SECOND_SIGNAL)
        };
        listen(shutdown, terminate, interrupt, end_now).await;
        Ok::<_, Infallible>(())
    });
    Ok(())
}

async fn listen(shutdown: Shutdown, mut terminate: Signal, mut interrupt: Signal, end_now: impl FnOnce()) {
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let signal = next().await;
    tracing::info!(signal, "asked to end: draining");
    shutdown.ask();
    let signal = next().await;
    tracing::warn!(signal, "asked to end a second time: ending at once");
    end_now();
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal as Raised, raise};

    // One test, because signals belong to the process: nextest gives each test its own, `cargo test` does not.
    #[tokio::test]
    async fn first_signal_drains_and_second_ends_at_once() {
        let shutdown = Shutdown::new();
        let (ended, wait_ended) = tokio::sync::oneshot::channel();
        let (terminate, interrupt) =
            (signal(SignalKind::terminate()).unwrap(), signal(SignalKind::interrupt()).unwrap());
        let listening = listen(shutdown.clone(), terminate, interrupt, move || ended.send(()).unwrap());
        let signalling = async {
            assert!(!shutdown.is_asked());
            raise(Raised::SIGTERM).unwrap();
            shutdown.asked().await;
            raise(Raised::SIGINT).unwrap();
            wait_ended.await.unwrap();
        };
        tokio::join!(listening, signalling);
    }

    #[tokio::test]
    async fn work_is_dropped_when_the_end_is_asked_for() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.unless_asked(async { 1 }).await, Some(1));
        shutdown.ask();
        assert_eq!(shutdown.unless_asked(std::future::pending::<u8>()).await, None);
    }
}
