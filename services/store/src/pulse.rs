//! The database's own absence, so that it is not held against any host.
//!
//! - Every gateway writes a beat each few seconds, in place of asking whether the database is there. A hole in the beats of all of them is a time in
//!   which nobody could write: leases that were in force when it began, and hosts that were heard then, count as if it had not been, until
//!   everybody had the time to claim and to be heard again ([`RETURN_GRACE`]).
//! - It tells nothing of a gateway that alone cannot reach the database: the others beat on, and its hosts are offline by its lease.
//! - A beat also says whether most hosts are silent, so that the time in which they were is known afterwards, and the same to everybody.

use std::time::Duration;

use holdfast_model::silence::{LOST_AFTER_MS, Others, SILENT_AFTER_MS};
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::{big, number};

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
                let is_mass_silence = others(tx).await?.is_mass_silence();
                // Many gateways: one beat a second is enough.
                sqlx::query(
                    "UPDATE pulse SET beat_at = n.now, \
                         away_from = CASE WHEN n.now - beat_at > make_interval(secs => $1) THEN beat_at ELSE away_from END, \
                         away_until = CASE WHEN n.now - beat_at > make_interval(secs => $1) THEN n.now ELSE away_until END, \
                         silent_from = CASE WHEN NOT $2 OR n.now - silent_until < $4 * interval '1 ms' THEN silent_from \
                             ELSE n.now - $3 * interval '1 ms' END, \
                         silent_until = CASE WHEN $2 THEN n.now ELSE silent_until END \
                     FROM (SELECT clock_timestamp() AS now) n \
                     WHERE $2 OR beat_at IS NULL OR n.now NOT BETWEEN beat_at AND beat_at + interval '1 s'",
                )
                .bind(AWAY_AFTER.as_secs_f64())
                .bind(is_mass_silence)
                // Those that are silent now have been for so long; and one that ended a moment before another is one with it.
                .bind(big(SILENT_AFTER_MS)?)
                .bind(big(LOST_AFTER_MS)?)
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

/// The last time in which most hosts were silent, as a table of one row: `began`, `ended`, null if there was none. While the beats say so, it lasts.
macro_rules! mass_silence {
    () => {
        "(SELECT silent_from AS began, \
              CASE WHEN clock_timestamp() - silent_until < interval '12 s' THEN clock_timestamp() ELSE silent_until END AS ended \
          FROM pulse)"
    };
}
pub(crate) use mass_silence;

/// How many hosts there are that were ever heard, and how many of them say nothing now.
pub(crate) async fn others(tx: &mut PgConnection) -> Result<Others, Error> {
    let (heard, silent): (i64, i64) = sqlx::query_as(concat!(
        "SELECT count(*), count(*) FILTER (WHERE clock_timestamp() - greatest(p.heard_at, ",
        silence_since!(),
        ") >= $1 * interval '1 ms') \
         FROM presence p JOIN hosts h USING (host_id) WHERE h.decommissioned_at IS NULL AND p.heard_at IS NOT NULL",
    ))
    .bind(big(SILENT_AFTER_MS)?)
    .fetch_one(tx)
    .await?;
    Ok(Others { heard: number("presence", heard)?, silent: number("presence", silent)? })
}

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
