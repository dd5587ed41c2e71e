//! Many questions, one statement: whoever asks while a statement is under way shares the next one.
//!
//! - No timer: the first question goes at once, load makes the batches.
//! - A full queue answers `None` at once, so that nobody waits without a bound.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::limits::{BATCH_MAX, QUESTIONS_MAX};

/// Where questions are put.
#[derive(Debug)]
pub(super) struct Asker<Q, A> {
    questions: mpsc::Sender<(Q, oneshot::Sender<A>)>,
}

impl<Q, A> Clone for Asker<Q, A> {
    fn clone(&self) -> Self {
        Self { questions: self.questions.clone() }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Asker<Q, A> {
    /// A queue and what serves it, so many batches at once: `answer` gets questions and gives as many answers, in their order.
    pub(super) fn new<F, R>(at_once_max: usize, answer: F) -> (Self, impl Future<Output = ()> + Send)
    where
        F: Fn(Vec<Q>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<A>> + Send + 'static,
    {
        let (questions, waiting) = mpsc::channel(QUESTIONS_MAX);
        (Self { questions }, serve(waiting, at_once_max, answer))
    }

    /// Asks; `None` if there is no room or nobody answers any more.
    pub(super) async fn ask(&self, question: Q) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send((question, answer)).ok()?;
        answered.await.ok()
    }
}

/// Ends when every asker is gone.
async fn serve<Q, A, F, R>(mut waiting: mpsc::Receiver<(Q, oneshot::Sender<A>)>, at_once_max: usize, answer: F)
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Vec<Q>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<A>> + Send + 'static,
{
    let at_once = Arc::new(Semaphore::new(at_once_max));
    let mut batches = JoinSet::new();
    loop {
        while batches.try_join_next().is_some() {}
        // First a place, then the questions: whoever comes while all places are taken shares the next batch.
        let Ok(place) = Arc::clone(&at_once).acquire_owned().await else { return };
        let mut batch = Vec::new();
        if waiting.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let (questions, askers): (Vec<Q>, Vec<oneshot::Sender<A>>) = batch.into_iter().unzip();
        let answers = answer(questions);
        batches.spawn(async move {
            for (asker, answer) in askers.into_iter().zip(answers.await) {
                // Who does not wait any more does not want to know.
                drop(asker.send(answer));
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn questions_that_come_while_a_batch_is_under_way_share_the_next() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sizes);
        let gate = Arc::new(Semaphore::new(0));
        let opened = Arc::clone(&gate);
        let (asker, serving) = Asker::new(4, move |questions: Vec<u32>| {
            seen.lock().unwrap().push(questions.len());
            let gate = Arc::clone(&opened);
            async move {
                gate.acquire().await.unwrap().forget();
                questions.into_iter().map(|n| n * 2).collect()
            }
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serving);
        let mut asks = JoinSet::new();
        for n in 0..50 {
            let asker = asker.clone();
            asks.spawn(async move { (n, asker.ask(n).await) });
            tokio::task::yield_now().await;
        }
        gate.add_permits(100);
        while let Some(joined) = asks.join_next().await {
            let (n, answer) = joined.unwrap();
            assert_eq!(answer, Some(n * 2));
        }
        let sizes = sizes.lock().unwrap().clone();
        assert!(sizes.len() <= 4 + 2, "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 50);
    }
}
