//! Telling a war with another tool from a single change.
//!
//! - Two tools that each undo the other at once would fill the machine with batches: after so many repairs in so short a time only the slow tick
//!   repairs, until a while has passed in which nothing was to be repaired. A repair that fails counts too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So often within the span is a war; a reload of a firewall or of a container engine is one or two.
const FOUND: usize = 6;
const SPAN: Duration = Duration::from_secs(60);

/// When the table was found to be another one in the last while.
#[derive(Debug, Default)]
pub(super) struct War {
    found: VecDeque<Instant>,
    until: Option<Instant>,
}

impl War {
    /// The table was found to be another one, and is about to be repaired.
    pub(super) fn found(&mut self, now: Instant) {
        let was_on = self.is_on(now);
        self.found.push_back(now);
        while self.found.front().is_some_and(|first| now.duration_since(*first) > SPAN) {
            self.found.pop_front();
        }
        if was_on || self.found.len() >= FOUND {
            self.until = Some(now + SPAN);
        }
    }

    /// Whether a war is on.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_it_so_again_and_again_is_a_war_that_ends_when_it_is_not() {
        let (mut war, begin) = (War::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let is_on = (0..8).map(|second| {
            war.found(at(second));
            war.is_on(at(second))
        });
        assert_eq!(is_on.collect::<Vec<_>>(), [false, false, false, false, false, true, true, true]);
        // The slow tick's repairs go on with it.
        assert!(war.is_on(at(37)));
        war.found(at(37));
        assert!(war.is_on(at(96)) && !war.is_on(at(98)));
    }

    #[test]
    fn a_change_now_and_then_is_no_war() {
        let (mut war, begin) = (War::default(), Instant::now());
        for minute in 0..20 {
            let now = begin + Duration::from_secs(minute * 20);
            war.found(now);
            assert!(!war.is_on(now));
        }
    }
}
