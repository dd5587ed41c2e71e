//! The database's own absence, so that it is not held against any host.
//!
//! - Every gateway writes a beat each few seconds, in place of asking whether the database is there. A hole in the beats of all of them is a time in
//!   which nobody could write: leases that were in force when it began, and hosts that were heard then, count as if it had not been, until
//!   everybody had the time to claim and to be heard again ([`RETURN_GRACE`]).
//! - It tells nothing of a gateway that alone cannot reach the database: the others beat on, and its hosts are offline by its lease.

use std::time::Duration;

use crate::error::Error;
use crate::pool::{Mode, Store};

/// A hole in the beats that is longer is an absence: two beats of a gateway and a slow statement are shorter.
pub const AWAY_AFTER: Duration = Duration::from_secs(12);
/// How long after its end an absence is taken into account: longer than a gateway takes to claim its lease, and an agent to be heard, again.
pub const RETURN_GRACE: Duration = Duration::from_secs(30);

impl Store {
    /// Says that this process can write, as a gateway does every few seconds.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and others of the connection.
    pub async fn beat(&self) -> Result<(), Error> {
        self.transact("beat", Mode::Write, |tx| {
            Box::pin(async move {
                // Many gateways: one beat a second is enough.
                sqlx::query(
                    "UPDATE pulse SET beat_at = n.now, \
                         away_from = CASE WHEN n.now - beat_at > make_interval(secs => $1) THEN beat_at ELSE away_from END, \
                         away_until = CASE WHEN n.now - beat_at > make_interval(secs => $1) THEN n.now ELSE away_until END \
                     FROM (SELECT clock_timestamp() AS now) n \
                     WHERE beat_at IS NULL OR n.now NOT BETWEEN beat_at AND beat_at + interval '1 s'",
                )
                .bind(AWAY_AFTER.as_secs_f64())
                .execute(tx)
                .await?;
                Ok(())
            })
        })
        .await
    }
}

/// The absence that is to be taken into account now, as a table of one row or none: `began`, `ended`. One that nobody has recorded yet ends now.
macro_rules! absence {
    () => {
        "(SELECT began, ended FROM (SELECT \
              CASE WHEN clock_timestamp() - beat_at > interval '12 s' THEN beat_at ELSE away_from END AS began, \
              CASE WHEN clock_timestamp() - beat_at > interval '12 s' THEN clock_timestamp() ELSE away_until END AS ended \
          FROM pulse) p WHERE ended > clock_timestamp() - interval '30 s')"
    };
}
pub(crate) use absence;

/// Since when the silence of a host may count: the end of the last absence, or now while one lasts. Null before the first beat.
macro_rules! silence_since {
    () => {
        "(SELECT CASE WHEN clock_timestamp() - beat_at > interval '12 s' THEN clock_timestamp() ELSE away_until END FROM pulse)"
    };
}
pub(crate) use silence_since;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_has_the_spans_that_are_stated() {
        let statement = absence!();
        assert!(statement.contains(&format!("> interval '{} s' THEN beat_at", AWAY_AFTER.as_secs())));
        assert!(statement.contains(&format!("- interval '{} s')", RETURN_GRACE.as_secs())));
    }
}
