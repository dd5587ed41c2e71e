//! Waiting for the end of something: one request after another until it is there, the time is over, or Ctrl-C.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::error::Error;
use crate::output::Format;
use crate::progress::Progress;

/// The pause before an API that is away, or one that cannot say more yet, is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// What one look shows of the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// It is over.
    Over,
    /// The next request waits for what comes.
    Ask,
    /// No request waits for what is missing: ask again after a pause.
    Pause,
}

/// Something that a command waits for.
pub(super) trait Awaited {
    /// What a look at it is.
    type View: DeserializeOwned;

    /// How long one request waits: as often somebody who watches is told how far it is.
    const REQUEST_WAIT: Duration;

    /// What is asked for, for people.
    fn subject(&self) -> String;
    /// The path of one look that waits for so long.
    fn path(&self, once: Duration) -> String;
    /// Takes one look, tells how far it is, and says how it goes on.
    fn see(&self, view: &Self::View, progress: &Progress) -> Next;
    /// The arguments that wait for it again.
    fn again(&self) -> String;
}

/// Waits until it is over, the time is, or Ctrl-C, and gives the last look. An API that is away for a while is asked again.
///
/// # Errors
/// What the API answers, [`Error::Interrupted`] at Ctrl-C.
pub(super) async fn wait<A: Awaited>(api: &Api, what: &A, timeout: Duration, format: Format) -> Result<A::View, Error> {
    tokio::select! {
        biased;
        ended = on(api, what, timeout, format) => ended,
        pressed = tokio::signal::ctrl_c() => {
            pressed.map_err(Error::Runtime)?;
            Err(Error::Interrupted { again: what.again() })
        }
    }
}

async fn on<A: Awaited>(api: &Api, what: &A, timeout: Duration, format: Format) -> Result<A::View, Error> {
    let deadline = Instant::now() + timeout;
    let progress = Progress::new(format);
    progress.say(&format!("waiting: asking how far {} is", what.subject()));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let once = left.min(A::REQUEST_WAIT);
        match api.get_waiting(&what.path(once), once).await {
            Ok(view) => match what.see(&view, &progress) {
                Next::Over => {
                    progress.finish();
                    return Ok(view);
                }
                Next::Ask | Next::Pause if left <= once => {
                    progress.finish();
                    return Ok(view);
                }
                Next::Pause => tokio::time::sleep(RETRY.min(left)).await,
                Next::Ask => {}
            },
            Err(error) if error.is_passing() && left > RETRY => {
                progress.warn(&error.to_text());
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => {
                progress.finish();
                return Err(error);
            }
        }
    }
}
