//! What fails again and again while the database is away, told once.
//!
//! - The first failure is a warning, and each that has another cause, up to some; the rest are for who looks closely (DEBUG).
//! - The end is told with how often it failed, so that the log has both ends of an absence.

use std::sync::{Mutex, PoisonError};

use holdfast_runtime::Chain;

use super::limits::ABSENCE_CAUSES_MAX;

/// One thing that is tried until it works.
#[derive(Debug, Default)]
pub(super) struct Absence {
    failed: Mutex<Failed>,
}

#[derive(Debug, Default)]
struct Failed {
    times: u64,
    /// The causes that were told.
    told: Vec<String>,
}

impl Absence {
    /// It failed: whether that is to be told, since nothing like it was since it worked.
    pub(super) fn is_news(&self, error: &Chain<'_>) -> bool {
        // Nothing that can panic runs under this lock.
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.times = failed.times.saturating_add(1);
        let cause = error.to_string();
        let is_news = failed.told.len() < ABSENCE_CAUSES_MAX && !failed.told.contains(&cause);
        if is_news {
            failed.told.push(cause);
        }
        is_news
    }

    /// It worked: how often it had failed, if it had.
    pub(super) fn ended(&self) -> Option<u64> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = std::mem::take(&mut *failed);
        (failed.times > 0).then_some(failed.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cause {0}")]
    struct Cause(usize);

    #[test]
    fn each_cause_is_news_once_until_it_works_again_and_there_are_some_at_most() {
        let absence = Absence::default();
        let is_news = |n| absence.is_news(&Chain(&Cause(n)));
        assert_eq!(absence.ended(), None, "it never failed");
        assert_eq!([is_news(1), is_news(1), is_news(2), is_news(1), is_news(2)], [true, false, true, false, false]);
        assert_eq!((absence.ended(), absence.ended()), (Some(5), None));
        assert_eq!((0..2 * ABSENCE_CAUSES_MAX).filter(|n| is_news(*n)).count(), ABSENCE_CAUSES_MAX);
    }
}
