//! The beginning and the end that every service and the agent share.
//!
//! - Logs first, so that everything after is told; then signals, metrics and the admin listener; then the service's own tasks.
//! - It is not ready before its last part has said what it needs: until [`Process::finish`] is called, the check `started` is not well.
//! - The end is always the same: asked, drained within a grace, or out of order with the task that caused it.
//!
//! What a process does between the two is its own.

use crate::Build;
use crate::admin::{self, Admin, Shown};
use crate::exit::{Exit, Fatal};
use crate::health::{Check, Health};
use crate::log::{self, LogFormat};
use crate::metrics::{self, Metrics};
use crate::shutdown::{self, Shutdown};
use crate::tasks::{self, Tasks};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a process drains: under the 30 s that compose and Nomad are told to wait before they kill.
pub const DRAIN_GRACE: Duration = Duration::from_secs(25);

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// Signals.
    #[error(transparent)]
    Signals(#[from] shutdown::Error),
    /// Metrics.
    #[error(transparent)]
    Metrics(#[from] metrics::Error),
    /// The admin listener.
    #[error(transparent)]
    Admin(#[from] admin::Error),
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Log(error) => error.exit(),
            Self::Admin(error) => error.exit(),
            Self::Signals(_) | Self::Metrics(_) => Exit::Software,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Log(error) => error.rule(),
            Self::Admin(error) => error.rule(),
            Self::Signals(_) => "signals",
            Self::Metrics(_) => "metrics",
        }
    }
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    /// Where its tasks are started; they obey [`Tasks::shutdown`].
    pub tasks: Tasks,
    /// Where its checks are registered.
    pub health: Health,
    /// Where what is read for each scrape is registered.
    pub metrics: Metrics,
    /// Where its admin listener is, if it has one (port 0 is resolved).
    pub admin: Option<SocketAddr>,
    started: Check,
}

impl Process {
    /// Starts logs, signals, metrics and the admin listener. Called once, inside the runtime.
    ///
    /// # Errors
    /// [`Error`] for the first that does not start.
    pub async fn start(
        build: Build,
        log_filter: &str,
        log_format: LogFormat,
        admin_listen: Option<SocketAddr>,
    ) -> Result<Self, Error> {
        log::init(build, log_filter, log_format)?;
        let tasks = Tasks::new(Shutdown::new());
        shutdown::watch_signals(&tasks)?;
        let metrics = Metrics::install(build, &tasks)?;
        let health = Health::new(tasks.shutdown().clone());
        let started = health.starting();
        let admin = match admin_listen {
            Some(address) => {
                let admin =
                    Admin::bind(address, Shown { build, health: health.clone(), metrics: metrics.clone() }).await?;
                let address = admin.address();
                admin.serve(&tasks);
                Some(address)
            }
            None => None,
        };
        tracing::info!(admin = admin.map(tracing::field::display), "started");
        Ok(Self { tasks, health, metrics, admin, started })
    }

    /// Everything is started: the process may be ready from now on. Waits for the end and drains.
    ///
    /// # Errors
    /// [`tasks::Error`]: the task that ended the process, or those that did not drain in time.
    pub async fn finish(self, grace: Duration) -> Result<(), tasks::Error> {
        self.started.ok();
        self.tasks.finish(grace).await?;
        tracing::info!("ended in order");
        Ok(())
    }
}
