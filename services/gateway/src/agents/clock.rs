//! The clock of one door, as machines count and as the runtime does.

use std::time::Duration;

use holdfast_session::time::Instant;

use super::session::FAR;

/// Counts from when the door opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: tokio::time::Instant,
}

impl Clock {
    /// It is zero now.
    pub(super) fn start() -> Self {
        Self { started: tokio::time::Instant::now() }
    }

    /// Now, as machines count.
    pub(super) fn now(&self) -> Instant {
        let since = self.started.elapsed().as_millis();
        Instant::from_millis(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// A machine's moment, as the runtime counts.
    pub(super) fn instant_of(&self, at: Instant) -> tokio::time::Instant {
        self.started + Duration::from_millis(at.as_millis()).min(self.started.elapsed() + FAR)
    }
}
