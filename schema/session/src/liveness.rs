//! Saying "I am here" and noticing when the other side no longer does.
//!
//! - Each interval is drawn anew within ± 20 %, so that a fleet does not speak in step.
//! - Anything heard counts as a sign of life; three intervals without any mean dead.

use std::time::Duration;

use crate::limits::{LIVENESS_DEAD_INTERVALS, LIVENESS_JITTER_PERCENT};
use crate::random::Random;
use crate::time::{Instant, sooner};

/// One side's watch over a session.
#[derive(Clone, Debug)]
pub struct Liveness {
    interval: Duration,
    random: Random,
    counter: u64,
    send_at: Instant,
    heard_at: Instant,
}

impl Liveness {
    /// A watch that begins now.
    #[must_use]
    pub fn new(interval: Duration, seed: u64, now: Instant) -> Self {
        let mut liveness = Self { interval, random: Random::new(seed), counter: 0, send_at: now, heard_at: now };
        liveness.send_at = now.plus(liveness.draw());
        liveness
    }

    /// Something of the other side came in.
    pub fn handle_heard(&mut self, now: Instant) {
        self.heard_at = self.heard_at.max(now);
    }

    /// The counter of the message to send now, if one is due.
    pub fn poll_send(&mut self, now: Instant) -> Option<u64> {
        if now < self.send_at {
            return None;
        }
        self.counter += 1;
        // From now, not from when it was due: a side that slept sends one, not all that it missed.
        self.send_at = now.plus(self.draw());
        Some(self.counter)
    }

    /// Whether the other side was silent for too long.
    #[must_use]
    pub fn is_dead(&self, now: Instant) -> bool {
        now >= self.dead_at()
    }

    /// When something is to be done, and what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        sooner(Some((self.send_at, "liveness is due")), Some((self.dead_at(), "the other side is silent")))
    }

    fn dead_at(&self) -> Instant {
        self.heard_at.plus(self.interval * LIVENESS_DEAD_INTERVALS)
    }

    fn draw(&mut self) -> Duration {
        let whole = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let jitter = whole / 100 * LIVENESS_JITTER_PERCENT;
        Duration::from_millis(whole - jitter + self.random.up_to(2 * jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LIVENESS_INTERVAL;

    #[test]
    fn intervals_stay_within_twenty_percent_and_are_not_all_equal() {
        let mut liveness = Liveness::new(LIVENESS_INTERVAL, 7, Instant::default());
        let mut now = Instant::default();
        let mut gaps = Vec::new();
        for counter in 1..=200 {
            let (due, reason) = liveness.poll_timeout().expect("always due some time");
            assert_eq!(reason, "liveness is due");
            liveness.handle_heard(due);
            assert_eq!(liveness.poll_send(due), Some(counter));
            assert_eq!(liveness.poll_send(due), None);
            gaps.push(due.since(now));
            now = due;
        }
        let within = |gap: &Duration| (12_000..=18_000).contains(&gap.as_millis());
        assert!(gaps.iter().all(within), "{gaps:?}");
        gaps.sort_unstable();
        gaps.dedup();
        assert!(gaps.len() > 100);
    }

    #[test]
    fn silence_of_three_intervals_is_death_and_any_sign_puts_it_off() {
        let mut liveness = Liveness::new(LIVENESS_INTERVAL, 7, Instant::default());
        assert!(!liveness.is_dead(Instant::from_millis(44_999)));
        assert!(liveness.is_dead(Instant::from_millis(45_000)));
        liveness.handle_heard(Instant::from_millis(44_000));
        assert!(!liveness.is_dead(Instant::from_millis(88_999)));
        assert!(liveness.is_dead(Instant::from_millis(89_000)));
    }
}
