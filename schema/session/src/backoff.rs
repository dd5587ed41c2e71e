//! How long to wait before another attempt: full jitter.
//!
//! - The wait is uniform in `[0, min(cap, base × 2^n)]`: attempts of many spread over the whole window, whatever brought them down together.
//! - It resets only when told that something went well; being connected for a moment is not that.

use std::time::Duration;

use crate::limits::{BACKOFF_BASE, BACKOFF_CAP};
use crate::random::Random;

/// The waits of one thing that is tried again and again.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    attempt: u32,
    random: Random,
}

impl Backoff {
    /// The waits between dials: base 1 s, cap 5 min.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self::with_bounds(seed, BACKOFF_BASE, BACKOFF_CAP)
    }

    /// Waits with other bounds.
    #[must_use]
    pub const fn with_bounds(seed: u64, base: Duration, cap: Duration) -> Self {
        Self { base, cap, attempt: 0, random: Random::new(seed) }
    }

    /// The window of the next wait.
    #[must_use]
    pub fn window(&self) -> Duration {
        // 2^20 × 1 s is past every cap; a larger exponent would only risk overflow.
        self.base.saturating_mul(1 << self.attempt.min(20)).min(self.cap)
    }

    /// The next wait; the one after it comes from a window twice as large.
    pub fn next_wait(&mut self) -> Duration {
        let window = u64::try_from(self.window().as_millis()).unwrap_or(u64::MAX);
        self.attempt = self.attempt.saturating_add(1);
        Duration::from_millis(self.random.up_to(window))
    }

    /// Starts again from the first window.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a26_waits_are_full_jitter_inside_a_doubling_window_with_a_cap() {
        for (attempt, window) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300].into_iter().enumerate() {
            let window = Duration::from_secs(window);
            let samples: Vec<Duration> = (0..200)
                .map(|seed| {
                    let mut backoff = Backoff::new(seed);
                    (0..attempt).for_each(|_| _ = backoff.next_wait());
                    assert_eq!(backoff.window(), window);
                    backoff.next_wait()
                })
                .collect();
            assert!(samples.iter().all(|wait| *wait <= window), "attempt {attempt}");
            let half = samples.iter().filter(|wait| **wait <= window / 2).count();
            assert!((60..140).contains(&half), "attempt {attempt}: {half} of 200 in the lower half");
        }
    }

    #[test]
    fn many_attempts_do_not_overflow_and_a_reset_starts_again() {
        let mut backoff = Backoff::new(1);
        (0..10_000).for_each(|_| _ = backoff.next_wait());
        assert_eq!(backoff.window(), BACKOFF_CAP);
        backoff.reset();
        assert_eq!(backoff.window(), BACKOFF_BASE);
    }
}
