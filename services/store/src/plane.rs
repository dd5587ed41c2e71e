//! What the database knows of the processes around it: who renders, who serves, and how far the order of events is.

use std::time::Duration;

use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::lease::RENDERER_LEASE;
use crate::pool::{Mode, Store};
use crate::value::number;

/// How many of the newest events are looked at: one without a number is among them, or its relay has been away for longer than these took.
const NEWEST_EVENTS: i64 = 10_000;

/// The processes, as the database knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaneFacts {
    /// Who holds the renderer's lease, and how long it still holds without renewal; nobody if it ran out.
    pub renderer: Option<(String, Duration)>,
    /// How many gateway processes hold a lease.
    pub gateways: u64,
    /// The epoch of the order of events, and its last number; zero if there is none.
    pub last_event: (AuthorityEpoch, EventSeq),
    /// How many of the newest events have no number.
    pub unnumbered: u64,
    /// How old the oldest of them is.
    pub unnumbered_age: Duration,
}

impl Store {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn plane_facts(&self) -> Result<PlaneFacts, Error> {
        self.transact("look at the plane", Mode::Snapshot, |tx| Box::pin(facts(tx))).await
    }
}

async fn facts(tx: &mut PgConnection) -> Result<PlaneFacts, Error> {
    let renderer: Option<(String, f64)> = sqlx::query_as(
        "SELECT holder, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM leases \
         WHERE name = $1 AND expires_at > clock_timestamp()",
    )
    .bind(RENDERER_LEASE)
    .fetch_optional(&mut *tx)
    .await?;
    let gateways: i64 =
        sqlx::query_scalar("SELECT count(*) FROM leases WHERE name LIKE 'gw\\_%' AND expires_at > clock_timestamp()")
            .fetch_one(&mut *tx)
            .await?;
    let (epoch, seq): (i64, i64) = sqlx::query_as(
        "SELECT a.authority_epoch, coalesce((SELECT max(seq) FROM event_order o \
         WHERE o.authority_epoch = a.authority_epoch), 0) FROM authority a",
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or(Error::NoAuthority)?;
    let (count, age): (i64, f64) = sqlx::query_as(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.at)), 0)::float8 \
         FROM (SELECT event_id, at FROM events ORDER BY lid DESC LIMIT $1) e \
         WHERE NOT EXISTS (SELECT FROM event_order o WHERE o.event_id = e.event_id)",
    )
    .bind(NEWEST_EVENTS)
    .fetch_one(&mut *tx)
    .await?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch)?);
    Ok(PlaneFacts {
        renderer: renderer.map(|(holder, seconds)| (holder, Duration::from_secs_f64(seconds.max(0.0)))),
        gateways: number("count", gateways)?,
        last_event: (epoch, EventSeq::from_raw(number("seq", seq)?)),
        unnumbered: number("count", count)?,
        unnumbered_age: Duration::from_secs_f64(age.max(0.0)),
    })
}
