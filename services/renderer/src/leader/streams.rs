//! Makes the streams that are missing: hints are kept in memory, so their stream goes with the server that held it.
//!
//! Whoever listens cannot make a stream and waits for this.

use holdfast_bus::BusError;

use super::{Means, TermEnd, wait};

/// Looks at once, when something may have been missed, and behind that by the clock.
pub(super) async fn run(means: &Means) -> TermEnd {
    loop {
        ensure(means).await;
        // What was made anew is empty, and the relay may have nothing new to tell.
        means.wakes.event.notify_one();
        wait(&means.wakes.streams, None).await;
    }
}

/// Makes what is missing; a bus that is away is asked again later.
pub(super) async fn ensure(means: &Means) {
    for made in [means.bus.ensure_hints().await, means.events.ensure_events().await] {
        match made {
            Ok(()) => {}
            Err(error @ (BusError::StreamDiffers { .. } | BusError::StreamCut { .. })) => {
                tracing::error!(%error, "a stream is not ours");
            }
            Err(error) => tracing::debug!(error = %holdfast_runtime::Chain(&error), "a stream cannot be made yet"),
        }
    }
}
