//! Supervised tasks: the only place that may call `tokio::spawn`.
//!
//! - Every task has a name. A panic inside one is caught, logged with that name, and counted; it never vanishes.
//! - A *critical* task may end only after shutdown was asked for. If it panics, fails or returns before, the process is
//!   asked to end, drains, and [`Tasks::finish`] says why.
//! - A *background* task (signals, admin listener) lives until everything else is finished and is then dropped, so that
//!   readiness is told during the whole drain.
//!
//! It restarts nothing: a process that lost a critical task is restarted by its supervisor, with clean state.

use crate::chain::Chain;
use crate::exit::{Exit, Fatal};
use crate::shutdown::Shutdown;
use futures_util::FutureExt as _;
use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

/// Why a process ended out of order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A critical task panicked.
    #[error("task `{task}` panicked: {message}")]
    Panicked {
        /// The task.
        task: &'static str,
        /// What it said.
        message: String,
    },
    /// A critical task failed.
    #[error("task `{task}` failed")]
    Failed {
        /// The task.
        task: &'static str,
        /// Its error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A critical task returned although nobody asked it to.
    #[error("task `{task}` ended before its time")]
    Ended {
        /// The task.
        task: &'static str,
    },
    /// The drain did not end in time.
    #[error("{} tasks did not end within {} ms: {}", tasks.len(), grace.as_millis(), tasks.join(", "))]
    Stuck {
        /// Their names.
        tasks: Vec<&'static str>,
        /// The time that they had.
        grace: Duration,
    },
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Panicked { .. } | Self::Failed { .. } | Self::Ended { .. } => Exit::Software,
            Self::Stuck { .. } => Exit::TemporaryFailure,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Panicked { .. } => "task-panicked",
            Self::Failed { .. } => "task-failed",
            Self::Ended { .. } => "task-ended",
            Self::Stuck { .. } => "task-stuck",
        }
    }
}

/// All tasks of a process.
#[derive(Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
}

struct Inner {
    shutdown: Shutdown,
    tracker: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    live: BTreeMap<u64, &'static str>,
    background: Vec<AbortHandle>,
    failure: Option<Error>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("live", &self.inner.state().live.len()).finish_non_exhaustive()
    }
}

impl Tasks {
    /// No tasks yet.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        let inner = Inner { shutdown, tracker: TaskTracker::new(), state: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The wish to end, which every task of the process obeys.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    /// Starts a task whose end before shutdown ends the process.
    pub fn critical<F, E>(&self, name: &'static str, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: StdError + Send + Sync + 'static,
    {
        let _detached = self.start(name, Role::Critical, future);
    }

    /// Starts a task that may end at any time (a connection); a failure or a panic is logged and ends nothing else.
    pub fn spawn<F, E>(&self, name: &'static str, future: F) -> AbortHandle
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: StdError + Send + Sync + 'static,
    {
        self.start(name, Role::Plain, future)
    }

    /// Starts a task that outlives the drain and is dropped at its end; its own end before shutdown ends the process.
    pub fn background<F, E>(&self, name: &'static str, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: StdError + Send + Sync + 'static,
    {
        let handle = self.start(name, Role::Background, future);
        self.inner.state().background.push(handle);
    }

    /// Starts a task that nobody waits for at the end (a connection of a background listener); a failure or a panic is logged.
    pub fn detached<F, E>(&self, name: &'static str, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: StdError + Send + Sync + 'static,
    {
        let _detached = self.start(name, Role::Detached, future);
    }

    #[expect(clippy::disallowed_methods, reason = "this is the supervised spawn that every other place uses")]
    fn start<F, E>(&self, name: &'static str, role: Role, future: F) -> AbortHandle
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: StdError + Send + Sync + 'static,
    {
        // Not waited for at the end: background tasks end only because everything else did.
        let (token, live) = match role {
            Role::Critical | Role::Plain => (Some(self.inner.tracker.token()), Some(Live::enter(&self.inner, name))),
            Role::Background | Role::Detached => (None, None),
        };
        let inner = Arc::clone(&self.inner);
        let supervised = async move {
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            inner.handle_end(name, role, ended);
            // In this order: whoever waits for the tracker then finds the name gone.
            drop(live);
            drop(token);
        };
        tokio::spawn(supervised).abort_handle()
    }

    /// Waits until shutdown is asked for, by a signal or by a failed task, then until every task has ended, `grace` at
    /// most; then drops the background tasks.
    ///
    /// # Errors
    /// [`Error`]: the first failure of a critical task, or else the tasks that did not end in time.
    pub async fn finish(self, grace: Duration) -> Result<(), Error> {
        self.inner.shutdown.asked().await;
        self.inner.tracker.close();
        let drained = tokio::time::timeout(grace, self.inner.tracker.wait()).await.is_ok();
        let mut state = self.inner.state();
        state.background.drain(..).for_each(|handle| handle.abort());
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let tasks: Vec<_> = state.live.values().copied().collect();
        if drained || tasks.is_empty() { Ok(()) } else { Err(Error::Stuck { tasks, grace }) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Critical,
    Plain,
    Background,
    Detached,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_end<E>(&self, task: &'static str, role: Role, ended: Result<Result<(), E>, Box<dyn Any + Send>>)
    where
        E: StdError + Send + Sync + 'static,
    {
        let failure = match ended {
            Ok(Ok(())) if self.shutdown.is_asked() || matches!(role, Role::Plain | Role::Detached) => return,
            Ok(Ok(())) => Error::Ended { task },
            Ok(Err(error)) => Error::Failed { task, source: Box::new(error) },
            Err(payload) => {
                metrics::counter!("holdfast_task_panics_total", "task" => task).increment(1);
                Error::Panicked { task, message: panic_message(payload.as_ref()) }
            }
        };
        match (role, &failure) {
            // A connection that failed is its peer's affair as often as ours.
            (Role::Plain | Role::Detached, Error::Failed { .. }) => {
                tracing::debug!(task, error = %Chain(&failure), "task failed")
            }
            (Role::Plain | Role::Detached, Error::Panicked { .. } | Error::Ended { .. } | Error::Stuck { .. }) => {
                tracing::error!(task, error = %Chain(&failure), "task panicked");
            }
            (Role::Critical | Role::Background, _) => {
                tracing::error!(task, error = %Chain(&failure), "critical task ended: the process ends");
                self.state().failure.get_or_insert(failure);
                self.shutdown.ask();
            }
        }
    }
}

/// The name of a task for as long as it lives, also when it is aborted.
struct Live {
    inner: Arc<Inner>,
    number: u64,
}

impl Live {
    fn enter(inner: &Arc<Inner>, name: &'static str) -> Self {
        let mut state = inner.state();
        let number = state.next;
        state.next += 1;
        state.live.insert(number, name);
        drop(state);
        Self { inner: Arc::clone(inner), number }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.inner.state().live.remove(&self.number);
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").chars().take(1_024).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::future::pending;
    use std::io;

    const GRACE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn panic_of_a_critical_task_ends_the_process_and_is_named() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.critical("relay", async { mk_panic("out of order") });
        let error = tasks.finish(GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), "task `relay` panicked: out of order");
        assert_eq!(error.exit(), Exit::Software);
    }

    #[tokio::test]
    async fn error_and_early_end_of_a_critical_task_end_the_process_and_the_others_drain() {
        for early in [true, false] {
            let tasks = Tasks::new(Shutdown::new());
            let shutdown = tasks.shutdown().clone();
            tasks.critical("drains", async move {
                shutdown.asked().await;
                Ok::<_, Infallible>(())
            });
            tasks.critical("lease", async move { if early { Ok(()) } else { Err(io::Error::other("lost")) } });
            match tasks.finish(GRACE).await.unwrap_err() {
                Error::Ended { task: "lease" } => assert!(early),
                Error::Failed { task: "lease", source } => assert_eq!(source.to_string(), "lost"),
                other @ (Error::Panicked { .. } | Error::Ended { .. } | Error::Failed { .. } | Error::Stuck { .. }) => {
                    panic!("{other}")
                }
            }
        }
    }

    #[tokio::test]
    async fn plain_task_may_end_fail_or_panic_and_the_process_goes_on() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.spawn("ends", async { Ok::<_, Infallible>(()) });
        tasks.spawn("fails", async { Err(io::Error::other("gone")) });
        tasks.spawn("panics", async { mk_panic("x") });
        while !tasks.inner.tracker.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(!tasks.shutdown().is_asked());
        tasks.shutdown().ask();
        assert!(tasks.finish(GRACE).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_does_not_drain_is_named_when_the_grace_is_over() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.spawn("session", pending::<Result<(), Infallible>>());
        tasks.shutdown().ask();
        let error = tasks.finish(GRACE).await.unwrap_err();
        assert!(matches!(&error, Error::Stuck { tasks, .. } if tasks == &["session"]), "{error}");
        assert_eq!(error.exit(), Exit::TemporaryFailure);
    }

    #[tokio::test]
    async fn aborted_task_is_gone_and_background_does_not_hold_up_the_end() {
        let tasks = Tasks::new(Shutdown::new());
        let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
        tasks.background("admin", async move {
            let _alive = alive;
            pending::<Result<(), Infallible>>().await
        });
        tasks.spawn("connection", pending::<Result<(), Infallible>>()).abort();
        tasks.shutdown().ask();
        assert!(tasks.finish(GRACE).await.is_ok());
        assert!(dropped.await.is_err(), "the background task was dropped");
    }

    #[expect(clippy::panic_in_result_fn, reason = "the panic is what is tested")]
    fn mk_panic(text: &str) -> Result<(), Infallible> {
        panic!("{text}")
    }
}
