//! Times and their distribution.

use std::time::Duration;

use serde::Serialize;

/// The times of one stage over many repetitions.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

/// A distribution in three numbers, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// How many repetitions.
    pub count: usize,
    /// Half of them took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// None took longer.
    pub max_ms: f64,
}

impl Times {
    /// Adds one repetition.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Adds all repetitions of another.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// The distribution; zeros for none.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: usize| {
            let index = (sorted.len() * share).div_ceil(100).saturating_sub(1);
            sorted.get(index).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
        };
        Figure { count: sorted.len(), p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_times_have_their_percentiles() {
        let mut times = Times::default();
        (1..=100).rev().for_each(|ms| times.push(Duration::from_millis(ms)));
        let figure = times.figure();
        assert_eq!((figure.count, figure.p50_ms, figure.p99_ms, figure.max_ms), (100, 50.0, 99.0, 100.0));
        assert_eq!(Times::default().figure().count, 0);
    }
}
