//! How much is said, or heard, of something: so many at once, and then one back after each while.

use std::time::Duration;

use crate::time::Instant;

/// What is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    most: u32,
    pause: Duration,
    left: u32,
    counted_at: Instant,
}

impl Budget {
    /// All of it is there.
    #[must_use]
    pub(crate) const fn new(most: u32, pause: Duration, now: Instant) -> Self {
        Self { most, pause, left: most, counted_at: now }
    }

    /// Takes one; false if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        while self.left < self.most && self.counted_at.plus(self.pause) <= now {
            self.left += 1;
            self.counted_at = self.counted_at.plus(self.pause);
        }
        if self.left == self.most {
            self.counted_at = now;
        }
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }

    /// From when on there is one.
    #[must_use]
    pub(crate) fn next_at(&self) -> Instant {
        if self.left > 0 { self.counted_at } else { self.counted_at.plus(self.pause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_come_at_once_and_then_one_after_each_pause() {
        let at = Instant::from_millis;
        let mut budget = Budget::new(3, Duration::from_millis(100), at(0));
        assert_eq!([0; 5].map(|ms| budget.take(at(ms))), [true, true, true, false, false]);
        assert_eq!(budget.next_at(), at(100));
        assert_eq!([99, 100, 101, 200].map(|ms| budget.take(at(ms))), [false, true, false, true]);
        assert_eq!([10_000; 4].map(|ms| budget.take(at(ms))), [true, true, true, false], "no more than the most");
    }
}
