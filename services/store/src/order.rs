//! The audit order of events.
//!
//! - One statement numbers every event that it sees and that has no number, ordered by (largest `lid` of its transaction, `lid`). One statement sees
//!   a transaction whole or not at all, so none is torn; a writer takes its `lid`s after its locks, so a cause comes before its effect.
//! - Numbers are dense within an authority epoch: they are given under the renderer's lease and one lock.
//! - Events of transactions that were in progress get their place next time: nothing that is committed could have depended on them.

use std::time::Duration;

use holdfast_events::{Event, NumberedRecord, Record};
use holdfast_model::ids::{AuthorityId, EventId, OperationId};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm};
use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::lease::fence;
use crate::pool::{Mode, Store};
use crate::value::{self, big, number, text};

/// Two numberings at once would both give the next number. The lock is waited for in a statement of its own, so that the next ones see what the
/// other did. The number that is locked is any that nothing else in this database locks, the bytes of "order".
const LOCK: &str = "SELECT pg_advisory_xact_lock(x'6f72646572'::bigint); SELECT authority_epoch FROM authority";

/// From where on events may lack a number: all of older transactions have one. Valid for one run of one relay; a new run begins with
/// [`Horizon::default`] and looks at everything once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Horizon(u64);

/// What a numbering did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The epoch in which it gave numbers.
    pub authority_epoch: AuthorityEpoch,
    /// The last number of that epoch, given now or before; zero if there is none.
    pub last: EventSeq,
    /// How many it gave.
    pub count: u64,
    /// Where the next numbering begins to look.
    pub horizon: Horizon,
}

impl Store {
    /// Numbers every event that is committed and has no number.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the lease is no longer held.
    pub async fn number_events(&self, lease_term: LeaseTerm, horizon: Horizon) -> Result<Numbered, Error> {
        self.transact("number events", Mode::LongWrite, move |tx| {
            Box::pin(async move { number_all(tx, lease_term, horizon).await })
        })
        .await
    }

    /// Numbered events of an epoch from a number on, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Event`] or [`Error::Value`] if a stored event cannot be read.
    pub async fn events_from(
        &self,
        authority_epoch: AuthorityEpoch,
        seq: EventSeq,
        limit: u32,
    ) -> Result<Vec<NumberedRecord>, Error> {
        self.transact("read events", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows = read_from(tx, authority_epoch, seq, limit).await?;
                rows.into_iter().map(|row| row.record(authority_epoch)).collect()
            })
        })
        .await
    }

    /// The place of an event, if it has one: where a relay goes on that knows only what was published last.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn place_of(&self, event: EventId) -> Result<Option<(AuthorityEpoch, EventSeq)>, Error> {
        self.transact("find an event's place", Mode::Statement, move |tx| {
            Box::pin(async move {
                let row: Option<(i64, i64)> =
                    sqlx::query_as("SELECT authority_epoch, seq FROM event_order WHERE event_id = $1")
                        .bind(event.uuid())
                        .fetch_optional(tx)
                        .await?;
                let Some((epoch, seq)) = row else { return Ok(None) };
                let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch)?);
                Ok(Some((epoch, EventSeq::from_raw(number("seq", seq)?))))
            })
        })
        .await
    }

    /// How many events have no number, and how old the oldest of them is.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn unnumbered(&self, horizon: Horizon) -> Result<(u64, Duration), Error> {
        let horizon = horizon.0.to_string();
        self.transact("count events without a number", Mode::Snapshot, move |tx| {
            let horizon = horizon.clone();
            Box::pin(async move {
                let (count, seconds): (i64, f64) = sqlx::query_as(
                    "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.at)), 0)::float8 \
                     FROM events e WHERE e.xid >= $1::text::xid8 \
                     AND NOT EXISTS (SELECT FROM event_order o WHERE o.event_id = e.event_id)",
                )
                .bind(horizon)
                .fetch_one(tx)
                .await?;
                Ok((number("count", count)?, Duration::from_secs_f64(seconds.max(0.0))))
            })
        })
        .await
    }
}

async fn number_all(tx: &mut PgConnection, lease_term: LeaseTerm, horizon: Horizon) -> Result<Numbered, Error> {
    fence(tx, lease_term).await?;
    let rows = sqlx::raw_sql(LOCK).fetch_all(&mut *tx).await?;
    // The lock's own row is the first.
    let epoch = rows.get(1).ok_or(Error::NoAuthority)?.try_get(0)?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch)?);
    let (count, last, xmin): (i64, i64, String) = sqlx::query_as(
        "WITH base AS ( \
             SELECT coalesce(max(seq), 0) AS seq FROM event_order WHERE authority_epoch = $1 \
         ), waiting AS ( \
             SELECT event_id, lid, max(lid) OVER (PARTITION BY xid) AS last_lid FROM events e \
             WHERE e.xid >= $2::text::xid8 AND NOT EXISTS (SELECT FROM event_order o WHERE o.event_id = e.event_id) \
         ), given AS ( \
             INSERT INTO event_order (authority_epoch, seq, event_id) \
             SELECT $1, base.seq + row_number() OVER (ORDER BY last_lid, lid), event_id FROM waiting, base \
             ORDER BY last_lid, lid RETURNING seq \
         ) \
         SELECT count(given.seq), coalesce(max(given.seq), (SELECT seq FROM base)), \
                pg_snapshot_xmin(pg_current_snapshot())::text \
         FROM given",
    )
    .bind(big(epoch.raw())?)
    .bind(horizon.0.to_string())
    .fetch_one(&mut *tx)
    .await?;
    Ok(Numbered {
        authority_epoch: epoch,
        last: EventSeq::from_raw(number("seq", last)?),
        count: number("count", count)?,
        // What was in progress when this statement looked had at least this transaction number.
        horizon: Horizon(text("xmin", &xmin)?),
    })
}

/// An event as it is stored, with its number.
#[derive(sqlx::FromRow)]
pub(crate) struct EventRow {
    pub(crate) seq: i64,
    event_id: Uuid,
    lid: i64,
    at: OffsetDateTime,
    actor: String,
    kind: String,
    pub(crate) payload: serde_json::Value,
    causation: Option<Uuid>,
    correlation: Option<Uuid>,
}

/// An event with its number, as one row has it.
#[derive(sqlx::FromRow)]
struct NumberedRow {
    authority_id: Uuid,
    #[sqlx(flatten)]
    event: EventRow,
}

async fn read_from(
    tx: &mut PgConnection,
    authority_epoch: AuthorityEpoch,
    seq: EventSeq,
    limit: u32,
) -> Result<Vec<NumberedRow>, Error> {
    let rows = sqlx::query_as(
        "SELECT a.authority_id, o.seq, e.event_id, e.lid, e.at, e.actor, e.kind, e.payload, e.causation, e.correlation \
         FROM authority a, event_order o JOIN events e USING (event_id) \
         WHERE o.authority_epoch = $1 AND o.seq >= $2 ORDER BY o.seq LIMIT $3",
    )
    .bind(big(authority_epoch.raw())?)
    .bind(big(seq.raw())?)
    .bind(i64::from(limit))
    .fetch_all(tx)
    .await?;
    Ok(rows)
}

impl NumberedRow {
    fn record(self, authority_epoch: AuthorityEpoch) -> Result<NumberedRecord, Error> {
        let authority = AuthorityId::new(self.authority_id);
        let seq = EventSeq::from_raw(number("seq", self.event.seq)?);
        Ok(NumberedRecord { authority, authority_epoch, seq, record: self.event.record()? })
    }
}

impl EventRow {
    /// The event without its number.
    pub(crate) fn record(self) -> Result<Record, Error> {
        let kind = text("kind", &self.kind)?;
        Ok(Record {
            id: EventId::new(self.event_id),
            lid: self.lid,
            time: self.at,
            actor: value::text("actor", &self.actor)?,
            causation: self.causation.map(EventId::new),
            correlation: self.correlation.map(OperationId::new),
            event: Event::read(kind, self.payload)?,
        })
    }
}
