//! Which server answers at the database's address: a primary, and none that another has taken over from.
//!
//! - Each new connection is asked once, before anybody uses it: decisions are never read from a standby, which lags behind, and nothing is written to
//!   an old primary that came back after another one was promoted.
//! - What connections were let in before another server took over is counted as one reign; the pool uses no connection of an earlier one.
//! - The history of a cluster is numbered by its timelines, which rise with each promotion. What was the highest is known from this process's own
//!   connections; a process that is started anew believes the first server that answers. For hosts that is what the authority's epoch is for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use tokio::sync::{Notify, watch};

/// Why the server that answered is not asked anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WrongServer {
    /// It follows a primary, and what it says may be old.
    #[error("the server at the database's address is a standby: it follows a primary and lags behind it")]
    Standby,
    /// Another server of the same cluster was promoted, and this process has already seen that one.
    #[error(
        "the server at the database's address is a former primary: it is on timeline {found}, and timeline {seen} was seen"
    )]
    Former {
        /// The timeline that it writes.
        found: i32,
        /// The highest that was seen of its cluster.
        seen: i32,
    },
    /// Another server took over while this one was asked, and this process has seen that one.
    #[error("the server of the database was replaced by another one while it was asked")]
    Replaced,
}

impl WrongServer {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Standby => "database-standby",
            Self::Former { .. } | Self::Replaced => "database-former-primary",
        }
    }
}

/// What one server says of itself; no timeline while it follows another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Server {
    cluster: i64,
    timeline: Option<i32>,
}

/// What one process knows of the servers that answered: all of its stores of one database share it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<Known>,
    refused: Notify,
    /// The reign that is known, for those who wait for the next one.
    reigns: watch::Sender<Reign>,
}

/// How many servers took over from another one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Reign(u64);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The highest timeline, and of which cluster.
    newest: Option<(i64, i32)>,
    /// Since when that is so.
    reign: Reign,
    /// Why the last server that answered is not asked.
    wrong: Option<WrongServer>,
}

impl Known {
    fn judge(&mut self, server: Server) -> Result<(), WrongServer> {
        let verdict = match (server.timeline, self.newest) {
            (None, _) => Err(WrongServer::Standby),
            (Some(found), Some((cluster, seen))) if cluster == server.cluster && found < seen => {
                Err(WrongServer::Former { found, seen })
            }
            // A cluster that was made anew has a history of its own.
            (Some(timeline), _) => {
                let newest = (server.cluster, timeline);
                if self.newest.replace(newest).is_some_and(|before| before != newest) {
                    self.reign.0 += 1;
                }
                Ok(())
            }
        };
        self.wrong = verdict.err();
        verdict
    }
}

impl Servers {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing that can panic runs under this lock.
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server of a new connection who it is.
    ///
    /// # Errors
    /// The driver's, or that it is the wrong one: whoever waits for a connection is then told by [`Servers::refused`].
    pub(crate) async fn admit(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let server = ask(connection).await?;
        let (verdict, reign) = {
            let mut known = self.known();
            (known.judge(server), known.reign)
        };
        self.inner.reigns.send_if_modified(|told| {
            let is_next = *told < reign;
            *told = reign.max(*told);
            is_next
        });
        verdict.map_err(|wrong| {
            self.inner.refused.notify_waiters();
            sqlx::Error::Configuration(Box::new(wrong))
        })
    }

    /// Since when the newest server is the newest: what was connected in an earlier reign may reach a former one.
    pub(crate) fn reign(&self) -> Reign {
        self.known().reign
    }

    /// Tells when another server takes over from the newest that was seen so far.
    pub(crate) fn successors(&self) -> Successors {
        Successors { reigns: self.inner.reigns.subscribe() }
    }

    /// Waits until a server is refused.
    pub(crate) async fn refused(&self) -> WrongServer {
        loop {
            self.inner.refused.notified().await;
            if let Some(wrong) = self.known().wrong {
                return wrong;
            }
        }
    }
}

/// Tells each time that another server has taken over as the database: what was read before may never have been there.
#[derive(Debug)]
pub struct Successors {
    reigns: watch::Receiver<Reign>,
}

impl Successors {
    /// Waits for the next; never, once nobody asks the database any more.
    pub async fn next(&mut self) {
        if self.reigns.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

async fn ask(connection: &mut PgConnection) -> Result<Server, sqlx::Error> {
    // One statement, answered as text; the first eight digits of a segment's name are its timeline.
    let row = sqlx::raw_sql(
        "SELECT system_identifier AS cluster, CASE WHEN NOT pg_is_in_recovery() THEN \
             ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer END AS timeline \
         FROM pg_control_system()",
    )
    .fetch_one(connection)
    .await?;
    Ok(Server { cluster: row.try_get("cluster")?, timeline: row.try_get("timeline")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_and_a_primary_of_an_earlier_timeline_are_refused_and_another_cluster_is_not() {
        let mut known = Known::default();
        let server = |cluster, timeline| Server { cluster, timeline };
        assert_eq!(known.judge(server(1, None)), Err(WrongServer::Standby));
        assert_eq!(known.judge(server(1, Some(2))), Ok(()));
        assert_eq!(known.judge(server(1, Some(2))), Ok(()));
        assert_eq!(known.judge(server(1, Some(3))), Ok(()));
        assert_eq!(known.judge(server(1, Some(2))), Err(WrongServer::Former { found: 2, seen: 3 }));
        assert_eq!(known.judge(server(1, None)), Err(WrongServer::Standby));
        assert_eq!(known.wrong, Some(WrongServer::Standby));
        assert_eq!(known.judge(server(1, Some(3))), Ok(()));
        assert_eq!(known.wrong, None);
        assert_eq!(known.reign, Reign(1), "one took over, and those that were refused did not");
        // Restored into a new cluster, whose history begins.
        assert_eq!(known.judge(server(9, Some(1))), Ok(()));
        assert_eq!(known.reign, Reign(2));
    }
}
