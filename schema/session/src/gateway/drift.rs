//! How much a gateway hears of one host's drift.
//!
//! - An agent that keeps its own pauses never meets the end of it; one that floods is told, and its session ends as for any other fault.

use std::time::Duration;

use holdfast_model::drift::DriftKind;

use crate::budget::Budget;
use crate::limits::DRIFT_PAUSE;
use crate::time::Instant;

/// How many reports of a session a gateway takes: so many at once, and then one back after each while.
#[derive(Clone, Copy, Debug)]
pub struct DriftBudget(Budget);

/// At once: a whole set of kinds, eight times.
const BUDGET: u32 = 32;
/// One comes back in each of these: as many kinds as there are in a pause.
const BUDGET_PAUSE: Duration = Duration::from_millis(500);
const _: () = assert!(BUDGET_PAUSE.as_millis() * DriftKind::ALL.len() as u128 <= DRIFT_PAUSE.as_millis());

impl DriftBudget {
    /// All of it is there.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self(Budget::new(BUDGET, BUDGET_PAUSE, now))
    }

    /// Takes one; false if there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        self.0.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn an_agent_that_says_all_that_it_may_never_meets_the_end_of_its_budget_and_one_that_says_more_does() {
        let mut budget = DriftBudget::new(at(0));
        for pause in 0..1_000 {
            assert!((0..4).all(|_| budget.take(at(2_000 * pause))), "{pause}");
        }
        let now = at(2_000 * 1_000);
        let taken = (0..100).filter(|_| budget.take(now)).count();
        assert!((4..=32).contains(&taken), "{taken}");
        assert!(!budget.take(now) && budget.take(now.plus(BUDGET_PAUSE)) && !budget.take(now.plus(BUDGET_PAUSE)));
    }
}
