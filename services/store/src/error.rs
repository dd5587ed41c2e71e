//! Why the database did not do what it was asked, and whether asking again may help.

use std::time::Duration;

use holdfast_events::{ContentError, EventError};
use holdfast_model::intent::ObjectKey;
use holdfast_model::numbers::LeaseTerm;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::server::WrongServer;

/// Whether and when to ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// At once: another transaction was in the way.
    Now,
    /// After a while.
    After(Duration),
    /// Not as it is: the same will happen, or it may have happened already.
    Never,
}

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no working connection; nothing was changed.
    #[error("the database does not answer ({what})")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The server that answers is not the one to be asked; nothing was changed.
    #[error("the database is not asked")]
    WrongServer(#[source] WrongServer),
    /// Another transaction was in the way; nothing was changed.
    #[error("another transaction was in the way ({what})")]
    Contended {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The database lacks disk, memory or connections; nothing was changed.
    #[error("the database has no room ({what})")]
    Exhausted {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// It took too long and was given up; nothing was changed.
    #[error("the database took longer than {after:?} ({what})")]
    TimedOut {
        /// What was tried.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The connection was lost while the change was being committed: it happened or it did not.
    #[error("the connection was lost while committing ({what})")]
    OutcomeUnknown {
        /// What was tried.
        what: &'static str,
        /// The cause; absent if there was just no answer.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The lease is no longer held under this term; nothing was changed.
    #[error("the lease `{lease}` is not held under term {term}")]
    Fenced {
        /// Which lease.
        lease: String,
        /// Under which term it was thought to be held.
        term: LeaseTerm,
    },
    /// A version does not follow the one before it; nothing was changed.
    #[error("desired states must follow their predecessors by one: {0}")]
    VersionGap(String),
    /// A change names one object more than once.
    #[error("a change names {0} more than once")]
    NamedTwice(ObjectKey),
    /// A stored value cannot be read, or a value cannot be stored.
    #[error("`{column}` has a value that cannot be used: {value}")]
    Value {
        /// Which column.
        column: &'static str,
        /// The value, cut to 128 characters.
        value: String,
    },
    /// There is no authority row: the database was not set up.
    #[error("the database has no authority: `holdfast-renderer migrate` was not run")]
    NoAuthority,
    /// The database belongs to another authority than the keys.
    #[error("the database is of authority {found}, the keys are of {wanted}")]
    ForeignAuthority {
        /// Whose the database is.
        found: holdfast_model::ids::AuthorityId,
        /// Whose the keys are.
        wanted: holdfast_model::ids::AuthorityId,
    },
    /// The database was changed by a newer build, or a step was edited after it was taken.
    #[error("migration step {number} of the database is not the one of this build")]
    ForeignMigration {
        /// Which step.
        number: i32,
    },
    /// The database lacks migration steps of this build.
    #[error("the database has {found} of {wanted} migration steps: run `holdfast-renderer migrate`")]
    Unmigrated {
        /// How many it has.
        found: usize,
        /// How many this build has.
        wanted: usize,
    },
    /// An event cannot be written or read.
    #[error("an event is refused")]
    Event(#[from] EventError),
    /// An authored content cannot be written or read.
    #[error("an authored content is refused")]
    Content(#[from] ContentError),
    /// The statement was refused: a defect of this build, or a foreign hand in the database.
    #[error("the database refused a statement ({what})")]
    Sql {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The task that held the connection died.
    #[error("the task of a transaction died ({what})")]
    Task {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: tokio::task::JoinError,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } | Self::Contended { .. } | Self::Exhausted { .. } | Self::TimedOut { .. } => {
                "database-unavailable"
            }
            Self::WrongServer(wrong) => wrong.rule(),
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::Fenced { .. } => "lease-lost",
            Self::ForeignAuthority { .. } => "authority-foreign",
            Self::ForeignMigration { .. } => "migration-foreign",
            Self::NoAuthority | Self::Unmigrated { .. } => "migration-missing",
            Self::VersionGap(_)
            | Self::NamedTwice(_)
            | Self::Value { .. }
            | Self::Event(_)
            | Self::Content(_)
            | Self::Sql { .. }
            | Self::Task { .. } => "internal",
        }
    }
}

/// Classes of what is wrong with a value: cardinality, data, integrity, limits of a statement.
const VALUE_CLASSES: [&str; 4] = ["21", "22", "23", "54"];

/// Before it is known what was tried.
const SOMETHING: &str = "a statement";

impl Error {
    /// Whether and when to ask again.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Contended { .. } | Self::WrongServer(WrongServer::Replaced) => Retry::Now,
            Self::Unavailable { .. }
            | Self::WrongServer(WrongServer::Standby | WrongServer::Former { .. })
            | Self::TimedOut { .. } => Retry::After(Duration::from_secs(1)),
            Self::Exhausted { .. } => Retry::After(Duration::from_secs(5)),
            Self::OutcomeUnknown { .. }
            | Self::Fenced { .. }
            | Self::VersionGap(_)
            | Self::NamedTwice(_)
            | Self::Value { .. }
            | Self::NoAuthority
            | Self::ForeignAuthority { .. }
            | Self::ForeignMigration { .. }
            | Self::Unmigrated { .. }
            | Self::Event(_)
            | Self::Content(_)
            | Self::Sql { .. }
            | Self::Task { .. } => Retry::Never,
        }
    }

    /// Whether it is a value among those that were given that cannot be written: the others can, without it. Of what is the database's own state,
    /// nothing that was given is at fault.
    #[must_use]
    pub fn is_of_a_value(&self) -> bool {
        match self {
            Self::Value { .. } | Self::NamedTwice(_) | Self::Event(_) | Self::Content(_) => true,
            Self::Sql { source, .. } => {
                let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
                code.is_some_and(|code| VALUE_CLASSES.iter().any(|class| code.starts_with(class)))
            }
            Self::Task { source, .. } => source.is_panic(),
            Self::Unavailable { .. }
            | Self::WrongServer(_)
            | Self::Contended { .. }
            | Self::Exhausted { .. }
            | Self::TimedOut { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Fenced { .. }
            | Self::VersionGap(_)
            | Self::NoAuthority
            | Self::ForeignAuthority { .. }
            | Self::ForeignMigration { .. }
            | Self::Unmigrated { .. } => false,
        }
    }

    /// Says what was tried, where that was not known yet.
    pub(crate) fn at(mut self, tried: &'static str) -> Self {
        match &mut self {
            Self::Unavailable { what, .. }
            | Self::Contended { what, .. }
            | Self::Exhausted { what, .. }
            | Self::TimedOut { what, .. }
            | Self::OutcomeUnknown { what, .. }
            | Self::Sql { what, .. }
            | Self::Task { what, .. } => {
                if *what == SOMETHING {
                    *what = tried;
                }
            }
            Self::WrongServer(_)
            | Self::Fenced { .. }
            | Self::VersionGap(_)
            | Self::NamedTwice(_)
            | Self::Value { .. }
            | Self::NoAuthority
            | Self::ForeignAuthority { .. }
            | Self::ForeignMigration { .. }
            | Self::Unmigrated { .. }
            | Self::Event(_)
            | Self::Content(_) => {}
        }
        self
    }

    /// A value of a column that cannot be used.
    pub(crate) fn value(column: &'static str, value: impl std::fmt::Display) -> Self {
        Self::Value { column, value: value.to_string().chars().take(128).collect() }
    }
}

/// Whether a prepared statement no longer fits its tables, which a migration changed: the connection that prepared it is of no more use.
pub(crate) fn is_outdated(error: &Error) -> bool {
    let Error::Contended { source, .. } = error else { return false };
    source.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() == Some(OUTDATED_PLAN)
}

/// "Cached plan must not change result type", among other things that are not supported.
const OUTDATED_PLAN: &str = "0A000";

/// Whether the connection itself is gone, rather than a statement refused on it.
pub(crate) fn is_connection_loss(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Database(database) = error {
        // Of these severities the server process itself ends: what it was at is settled by the server's recovery, and not by its words.
        let severity = database.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
        return matches!(severity, Some(PgSeverity::Panic | PgSeverity::Fatal))
            || database.code().is_some_and(|code| {
                // 57P0x: the server ends the session; 25P03: idle in a transaction; 08: connection exceptions.
                code.starts_with("57P") || code.starts_with("08") || code == "25P03"
            });
    }
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
    )
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        let what = SOMETHING;
        if is_connection_loss(&source) {
            return Self::Unavailable { what, source };
        }
        let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        match code.as_deref() {
            // Serialization failure, deadlock, a plan that a migration outdated.
            Some("40001" | "40P01" | OUTDATED_PLAN) => Self::Contended { what, source },
            // Lock timeout: whoever holds the lock has held it that long already.
            Some("55P03") => Self::TimedOut { what, after: crate::pool::LOCK_TIMEOUT },
            // Statement timeout.
            Some("57014") => Self::TimedOut { what, after: crate::pool::STATEMENT_TIMEOUT },
            // Disk full, out of memory, too many connections.
            Some(code) if code.starts_with("53") => Self::Exhausted { what, source },
            Some(_) | None => Self::Sql { what, source },
        }
    }
}
