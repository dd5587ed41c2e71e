//! Telling a war with another tool from a single change.
//!
//! - Two tools that each undo the other at once would fill the machine with batches: after so many repairs in so short a time only the slow tick
//!   repairs, until a while has passed without any.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Repairs within the span that make a war; a reload of a firewall or of a container engine is one or two.
const REPAIRS: usize = 6;
const SPAN: Duration = Duration::from_secs(60);

/// The repairs of the last while.
#[derive(Debug, Default)]
pub(super) struct War {
    repairs: VecDeque<Instant>,
    until: Option<Instant>,
}

impl War {
    /// A repair was made; whether a war begins with it.
    pub(super) fn repaired(&mut self) -> bool {
        self.repaired_at(Instant::now())
    }

    /// Whether a war is on.
    pub(super) fn is_on(&self) -> bool {
        self.is_on_at(Instant::now())
    }

    fn repaired_at(&mut self, now: Instant) -> bool {
        let was_on = self.is_on_at(now);
        self.repairs.push_back(now);
        while self.repairs.front().is_some_and(|first| now.duration_since(*first) > SPAN) {
            self.repairs.pop_front();
        }
        if was_on || self.repairs.len() >= REPAIRS {
            self.until = Some(now + SPAN);
        }
        !was_on && self.is_on_at(now)
    }

    fn is_on_at(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_repairs_in_a_short_time_are_a_war_that_ends_when_there_are_none() {
        let (mut war, begin) = (War::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let began: Vec<bool> = (0..8).map(|second| war.repaired_at(at(second))).collect();
        assert_eq!(began, [false, false, false, false, false, true, false, false]);
        // The slow tick's repairs go on with it.
        assert!(war.is_on_at(at(37)) && !war.repaired_at(at(37)) && war.is_on_at(at(96)));
        assert!(!war.is_on_at(at(98)));
    }

    #[test]
    fn a_change_now_and_then_is_no_war() {
        let (mut war, begin) = (War::default(), Instant::now());
        for minute in 0..20 {
            assert!(!war.repaired_at(begin + Duration::from_secs(minute * 20)));
        }
    }
}
