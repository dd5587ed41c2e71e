//! Connections, and the one way to use them.
//!
//! - Every use of a connection runs in a task of its own, which a caller that goes away does not cancel: the driver's `begin` is not cancel-safe,
//!   and a statement cut in the middle leaves its connection in an unknown state.
//! - A connection that failed in any other way than a refused statement is closed, never returned. So is one that did not answer in time:
//!   the driver does not notice a peer that went silent.
//! - A new connection is let in only if the server is the one to be asked ([`crate::server`]). Once any of them has met its successor, the whole pool is
//!   replaced: no older connection begins anything, nothing that one of them has read is believed, and nothing is committed on it.
//! - No ping before use: the first statement finds a dead connection, which is then replaced; nothing has happened by then.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use holdfast_runtime::fail_point;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, Postgres};
use tokio::time::timeout;

use crate::config::StoreConfig;
use crate::error::{Error, Retry, is_connection_loss, is_outdated};
use crate::server::{Reign, Servers, Successors, WrongServer};

/// The longest that the server works on one statement.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest that a statement waits for a lock: no transaction that holds one waits for anything but the database.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that one transaction may take, as this side sees it: two of the longest statements.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest for a check of everything.
const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest wait for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Tries of a transaction that met another one.
const TRIES_MAX: u32 = 4;
/// Waits for a connection that must fail in a row before the pool is thought to have leaked its permits and is replaced.
const POOL_TIMEOUTS_MAX: u32 = 3;

/// What a transaction does; boxed, because it borrows the connection.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'c>>;

/// How a transaction reads and how long it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Writes; each statement sees what is committed when it begins.
    Write,
    /// Writes a lot.
    LongWrite,
    /// Reads one consistent state.
    Snapshot,
    /// Reads with one statement, which sees one state by itself, or things that never change: the round trips of a transaction are saved.
    Statement,
    /// Reads one consistent state for a check of everything; may make temporary tables.
    LongSnapshot,
}

impl Mode {
    const fn begin(self) -> &'static str {
        match self {
            Self::Write => "BEGIN",
            Self::LongWrite => "BEGIN; SET LOCAL statement_timeout = '600s'",
            Self::Snapshot | Self::Statement => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // A READ ONLY transaction may still write to temporary tables but not make them.
            Self::LongSnapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = '600s'",
        }
    }

    const fn writes(self) -> bool {
        match self {
            Self::Write | Self::LongWrite => true,
            Self::Snapshot | Self::Statement | Self::LongSnapshot => false,
        }
    }

    const fn call_timeout(self) -> Duration {
        match self {
            Self::Write | Self::Snapshot | Self::Statement => CALL_TIMEOUT,
            Self::LongWrite | Self::LongSnapshot => LONG_CALL_TIMEOUT,
        }
    }
}

/// The database, as one role sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: PgConnectOptions,
    connections_max: u32,
    pool: RwLock<Pool>,
    pool_timeouts: AtomicU32,
    servers: Servers,
}

/// Connections that were all let in while the same server was the newest, or are of no more use.
#[derive(Clone, Debug)]
struct Pool {
    connections: PgPool,
    reign: Reign,
}

fn new_pool(options: &PgConnectOptions, connections_max: u32, servers: &Servers) -> Pool {
    // Taken first: who is let in after this is no former server of this reign.
    let reign = servers.reign();
    let servers = servers.clone();
    let connections = PgPoolOptions::new()
        .after_connect(move |connection, _| {
            let servers = servers.clone();
            Box::pin(async move { servers.admit(connection).await })
        })
        .max_connections(connections_max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(Duration::from_secs(600))
        .max_lifetime(Duration::from_secs(1800))
        .test_before_acquire(false)
        .connect_lazy_with(options.clone());
    Pool { connections, reign }
}

impl Store {
    /// Makes a pool of connections; none is opened yet.
    #[must_use]
    pub fn connect_lazily(config: &StoreConfig) -> Self {
        Self::connect_lazily_among(config, Servers::default())
    }

    /// The same for a process that has several stores of one database: what one of them has seen of its servers holds for all.
    #[must_use]
    pub fn connect_lazily_among(config: &StoreConfig, servers: Servers) -> Self {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let options = config.options().options([
            ("statement_timeout", milliseconds(STATEMENT_TIMEOUT)),
            ("lock_timeout", milliseconds(LOCK_TIMEOUT)),
            ("idle_in_transaction_session_timeout", milliseconds(Duration::from_secs(10))),
            ("timezone", "UTC".to_owned()),
        ]);
        let connections_max = config.connections_max;
        let pool = RwLock::new(new_pool(&options, connections_max, &servers));
        let inner = Inner { options, connections_max, pool, pool_timeouts: AtomicU32::new(0), servers };
        Self { inner: Arc::new(inner) }
    }

    /// Makes a pool of connections and opens the first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached or does not let the role in.
    pub async fn connect(config: &StoreConfig) -> Result<Self, Error> {
        let store = Self::connect_lazily(config);
        store.ping().await?;
        Ok(store)
    }

    /// Tells when another server takes over as the database.
    #[must_use]
    pub fn successors(&self) -> Successors {
        self.inner.servers.successors()
    }

    /// Asks the server for a sign of life.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and others of the connection.
    pub async fn ping(&self) -> Result<(), Error> {
        self.transact("ping", Mode::Snapshot, |tx| {
            Box::pin(async move {
                sqlx::query("SELECT 1").execute(tx).await?;
                Ok(())
            })
        })
        .await
    }

    /// Closes every connection once it is free.
    pub async fn close(&self) {
        self.inner.pool().connections.close().await;
    }

    /// Runs a transaction in a task of its own, again if another was in the way.
    pub(crate) async fn transact<T, F>(&self, what: &'static str, mode: Mode, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Send + Sync + 'static,
    {
        let inner = Arc::clone(&self.inner);
        // Not the supervised spawn: the task ends by itself within its time limit, and its result is awaited right here.
        #[expect(clippy::disallowed_methods, reason = "watched by the join below")]
        let task = tokio::spawn(async move { inner.repeat(what, mode, &work).await });
        match task.await {
            Ok(result) => result.map_err(|error| error.at(what)),
            Err(source) => Err(Error::Task { what, source }),
        }
    }
}

impl Inner {
    /// The pool of this reign: the connections of an earlier one close as they come back.
    fn pool(&self) -> Pool {
        // A panic while the lock is held is not possible: it is held for a clone or a store only.
        let pool = self.pool.read().unwrap_or_else(PoisonError::into_inner).clone();
        if self.is_newest(pool.reign) {
            return pool;
        }
        let mut pool = self.pool.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_newest(pool.reign) {
            tracing::warn!("another server took over as the database; no connection to the one before is used again");
            *pool = new_pool(&self.options, self.connections_max, &self.servers);
        }
        pool.clone()
    }

    fn is_newest(&self, reign: Reign) -> bool {
        self.servers.reign() == reign
    }

    /// A connection to the newest server that this process has seen.
    async fn acquire(&self) -> Result<Held, Error> {
        // The one that finds out that another server took over is of the pool that ends thereby, like all that were waited for meanwhile.
        for _ in 0..TRIES_MAX {
            let held = self.acquire_any().await?;
            if self.is_newest(held.reign) {
                return Ok(held);
            }
        }
        Err(Error::WrongServer(WrongServer::Replaced))
    }

    async fn acquire_any(&self) -> Result<Held, Error> {
        let Pool { connections, reign } = self.pool();
        // The pool itself would go on asking a server that is refused until the wait is over.
        let acquired = tokio::select! {
            biased;
            wrong = self.servers.refused() => return Err(Error::WrongServer(wrong)),
            acquired = connections.acquire() => acquired,
        };
        match acquired {
            Ok(connection) => {
                self.pool_timeouts.store(0, Ordering::Relaxed);
                Ok(Held { connection: Some(connection), reign })
            }
            Err(error) => {
                if matches!(error, sqlx::Error::PoolTimedOut) {
                    self.note_pool_timeout();
                }
                Err(Error::Unavailable { what: "connect", source: error })
            }
        }
    }

    fn note_pool_timeout(&self) {
        let in_a_row = self.pool_timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        if in_a_row < POOL_TIMEOUTS_MAX {
            return;
        }
        self.pool_timeouts.store(0, Ordering::Relaxed);
        tracing::warn!(in_a_row, "no database connection to be had; replacing the pool");
        let pool = new_pool(&self.options, self.connections_max, &self.servers);
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = pool;
    }

    async fn repeat<T, F>(&self, what: &'static str, mode: Mode, work: &F) -> Result<T, Error>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Send + Sync,
    {
        let mut tries = 1;
        loop {
            let result = self.once(what, mode, work).await;
            match result {
                Err(error) if error.retry() == Retry::Now && tries < TRIES_MAX => {
                    tracing::debug!(tries, %error, "transaction is tried again");
                    // Those that met each other come back at different times: the low bits of a new id are random.
                    let spread = u64::from(uuid::Uuid::now_v7().as_bytes()[15] % 16);
                    tokio::time::sleep(Duration::from_millis(u64::from(tries) * (4 + spread))).await;
                    tries += 1;
                }
                Ok(_) | Err(_) => return result,
            }
        }
    }

    async fn once<T, F>(&self, what: &'static str, mode: Mode, work: &F) -> Result<T, Error>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Send + Sync,
    {
        if mode == Mode::Statement
            && let Some(result) = self.alone(work).await?
        {
            return result;
        }
        let after = mode.call_timeout();
        let mut held = self.begin(mode).await?;
        match timeout(after, work(held.connection())).await {
            Err(_) => Err(Error::TimedOut { what: "a transaction", after }),
            Ok(Err(error)) => {
                held.settle(&error).await;
                Err(error)
            }
            Ok(Ok(_)) if !self.is_newest(held.reign) => Err(Error::WrongServer(WrongServer::Replaced)),
            Ok(Ok(value)) => {
                if mode.writes() {
                    fail_point(what, "before the commit");
                    commit(held.connection(), after).await?;
                    fail_point(what, "after the commit");
                    if !self.is_newest(held.reign) {
                        // Whether the successor has it is not known.
                        return Err(Error::OutcomeUnknown { what: "commit", source: None });
                    }
                    held.release();
                } else if commit(held.connection(), after).await.is_ok() {
                    // What was read is one state however its transaction ends: only the connection is of no more use.
                    held.release();
                }
                Ok(value)
            }
        }
    }

    /// Reads without a transaction. `None` if the connection was dead or silent: nothing has happened by reading, so it is read again the long
    /// way, which finds a connection that lives and gives slow statements their time.
    async fn alone<T, F>(&self, work: &F) -> Result<Option<Result<T, Error>>, Error>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Send + Sync,
    {
        let mut held = self.acquire().await?;
        match timeout(ACQUIRE_TIMEOUT, work(held.connection())).await {
            Ok(Ok(_)) if !self.is_newest(held.reign) => Ok(None),
            Ok(Ok(value)) => {
                held.release();
                Ok(Some(Ok(value)))
            }
            Ok(Err(Error::Unavailable { .. })) | Err(_) => Ok(None),
            Ok(Err(error)) => {
                held.settle(&error).await;
                Ok(Some(Err(error)))
            }
        }
    }

    /// A connection with a transaction begun. Dead connections are dropped on the way: nothing has happened on them.
    async fn begin(&self, mode: Mode) -> Result<Held, Error> {
        let mut dead = 0;
        loop {
            let mut held = self.acquire().await?;
            let begun = timeout(ACQUIRE_TIMEOUT, sqlx::raw_sql(mode.begin()).execute(held.connection())).await;
            let error = match begun {
                Ok(Ok(_)) => return Ok(held),
                Ok(Err(source)) => Error::from(source),
                Err(_) => Error::TimedOut { what: "begin", after: ACQUIRE_TIMEOUT },
            };
            dead += 1;
            if matches!(error.retry(), Retry::Never) || dead > self.connections_max {
                return Err(error);
            }
        }
    }
}

/// Ends a transaction; a failure that is no refusal leaves open whether it is stored.
async fn commit(connection: &mut PgConnection, after: Duration) -> Result<(), Error> {
    match timeout(after, sqlx::raw_sql("COMMIT").execute(connection)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) if source.as_database_error().is_some() && !is_connection_loss(&source) => Err(source.into()),
        Ok(Err(source)) => Err(Error::OutcomeUnknown { what: "commit", source: Some(source) }),
        Err(_) => Err(Error::OutcomeUnknown { what: "commit", source: None }),
    }
}

/// A connection that is closed unless it is released.
struct Held {
    connection: Option<PoolConnection<Postgres>>,
    reign: Reign,
}

impl Held {
    fn connection(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("taken only by release and drop, which end its life")
    }

    fn release(mut self) {
        drop(self.connection.take());
    }

    /// What failed is over; the connection is worth keeping only if it says so in time.
    async fn settle(mut self, error: &Error) {
        let rollback = sqlx::raw_sql("ROLLBACK").execute(self.connection());
        if !is_outdated(error) && matches!(timeout(ACQUIRE_TIMEOUT, rollback).await, Ok(Ok(_))) {
            self.release();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}
