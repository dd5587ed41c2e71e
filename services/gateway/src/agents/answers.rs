//! Waiting for the renderer's answer to a request.
//!
//! - A waiter is entered before the first look, so that an answer between look and wait is not missed.
//! - Several may wait for one request, since the same request once more is the one that is there: each gets the answer, and who leaves takes nobody
//!   along.
//! - One statement looks for the answers of all that wait; nothing is looked for while nobody waits.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_model::ids::EventId;
use holdfast_runtime::Chain;
use holdfast_store::request::RequestAnswer;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use super::limits::{ANSWERS_INTERVAL, REQUEST_WAIT, REQUESTS_WAITING_MAX};
use super::store::AgentsStore;

/// Who waits for which request.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    shared: Arc<Shared>,
}

/// A place among those who wait for an answer, taken before the request is stored.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Shared {
    places: Arc<Semaphore>,
    waiting: Mutex<Vec<Waiter>>,
    look: Notify,
}

#[derive(Debug)]
struct Waiter {
    request: EventId,
    answer: oneshot::Sender<RequestAnswer>,
}

impl Default for Shared {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(REQUESTS_WAITING_MAX));
        Self { places, waiting: Mutex::default(), look: Notify::default() }
    }
}

impl Answers {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiter>> {
        // Nothing that can panic runs under this lock.
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one who is going to wait; nothing if all are taken.
    pub(super) fn enter(&self) -> Option<WaitingPlace> {
        let place = Arc::clone(&self.shared.places).try_acquire_owned();
        place.ok().map(|place| WaitingPlace { _place: place })
    }

    /// Something may have been answered.
    pub(super) fn look(&self) {
        self.shared.look.notify_one();
    }

    /// Waits for the answer, for a bounded time; the request lives on if it does not come.
    pub(super) async fn wait(&self, request: EventId, _place: WaitingPlace) -> Option<RequestAnswer> {
        let (answer, answered) = oneshot::channel();
        self.waiting().push(Waiter { request, answer });
        self.look();
        let answer = tokio::time::timeout(REQUEST_WAIT, answered).await;
        // Its receiver is gone by now.
        self.waiting().retain(|waiter| !waiter.answer.is_closed());
        answer.ok()?.ok()
    }

    /// Looks for answers, for ever.
    pub(super) async fn run<S: AgentsStore>(self, store: S) {
        loop {
            let ids = self.requests();
            if ids.is_empty() {
                self.shared.look.notified().await;
                continue;
            }
            match store.load_answers(ids).await {
                Ok(answers) => self.tell(answers),
                Err(error) => tracing::warn!(error = %Chain(&error), "answers cannot be read; looking again"),
            }
            tokio::select! {
                () = self.shared.look.notified() => {}
                () = tokio::time::sleep(ANSWERS_INTERVAL) => {}
            }
        }
    }

    /// What is waited for, each once.
    fn requests(&self) -> Vec<EventId> {
        let mut waiting = self.waiting();
        // Who was cut off waits no more.
        waiting.retain(|waiter| !waiter.answer.is_closed());
        let mut ids: Vec<EventId> = waiting.iter().map(|waiter| waiter.request).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Tells everybody whose request is decided.
    fn tell(&self, answers: Vec<(EventId, RequestAnswer)>) {
        let decided: HashMap<EventId, RequestAnswer> =
            answers.into_iter().filter(|(_, answer)| *answer != RequestAnswer::Waiting).collect();
        let mut waiting = self.waiting();
        for waiter in mem::take(&mut *waiting) {
            match decided.get(&waiter.request) {
                // Who was cut off meanwhile finds the answer by asking again.
                Some(answer) => drop(waiter.answer.send(answer.clone())),
                None => waiting.push(waiter),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_before_anything_is_asked_and_there_are_so_many() {
        let answers = Answers::default();
        let mut places: Vec<WaitingPlace> = std::iter::from_fn(|| answers.enter()).collect();
        assert_eq!(places.len(), REQUESTS_WAITING_MAX);
        places.pop();
        assert!(answers.enter().is_some());
    }
}
