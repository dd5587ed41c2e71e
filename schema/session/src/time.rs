//! Monotonic time as a value.

use std::time::Duration;

/// A moment of a clock that only goes forward, in milliseconds since whatever the shell counts from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// So many milliseconds after the shell's beginning.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds after the shell's beginning.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// A later moment; the end of time if it is further away than that.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The earlier of two wake-ups, where either may be absent.
#[must_use]
pub fn sooner(
    a: Option<(Instant, &'static str)>,
    b: Option<(Instant, &'static str)>,
) -> Option<(Instant, &'static str)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}
