//! One read that many share.

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::refuse::Refusal;

/// The last read, when it began, and what came of it: a failure is shared like an answer, or each who waits would find it out anew, one after the other.
#[derive(Debug)]
pub(crate) struct SharedRead<T>(Mutex<Option<(Instant, Result<T, Refusal>)>>);

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> SharedRead<T> {
    /// What came of a read that began at `since` or later: of one that others made, or of a new one.
    pub(crate) async fn read_since<F>(&self, since: Instant, read: impl FnOnce() -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        let mut last = self.0.lock().await;
        if let Some((begun, result)) = &*last
            && *begun >= since
        {
            return result.clone();
        }
        let begun = Instant::now();
        let result = read().await;
        *last = Some((begun, result.clone()));
        result
    }

    /// Keeps what came of the last read no longer, unless one is under way.
    pub(crate) fn forget(&self) {
        if let Ok(mut last) = self.0.try_lock() {
            *last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use holdfast_api::problem::ProblemType;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_share_one_read_that_began_after_they_asked_and_its_failure_too() {
        let (shared, reads) = (SharedRead::default(), Cell::new(0));
        let began = Instant::now();
        let ask = async |is_away: bool| {
            let read = || async {
                reads.set(reads.get() + 1);
                tokio::time::sleep(Duration::from_secs(5)).await;
                let away = || Refusal::new(ProblemType::DatabaseUnavailable, "the database does not answer");
                if is_away { Err(away()) } else { Ok(reads.get()) }
            };
            shared.read_since(Instant::now(), read).await
        };
        let (first, second, third) = tokio::join!(ask(true), ask(true), ask(true));
        // The first read began as all of them asked.
        assert!(first.is_err() && second.is_err() && third.is_err());
        assert_eq!((reads.get(), began.elapsed()), (1, Duration::from_secs(5)));
        // Who asks after it began is answered by a later one.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask(false).await.expect("it is back"), 2);
    }
}
