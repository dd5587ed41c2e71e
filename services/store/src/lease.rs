//! Leases: who may act alone, and until when.
//!
//! - A term rises with every new holder, never with a renewal. Whoever writes under a lease locks its row for the term in the same transaction:
//!   a successor's claim waits for that transaction, a renewal does not (the term is part of a key, the expiry is not).
//! - A lease that was given back ended in 1970, which tells it from one whose holder fell silent.
//! - A claim says of its build that it knows rollouts, by its term: one of an older build raises the term and does not say so.
//! - Time is the database's. A holder stops by its own clock, counted from before it asked.
//! - One that would last more than twice its span from now was given before that clock was set back: nobody renewed it since, and it is free. Its holder
//!   may live all the same; what it writes is held against its term, as after any other claim.

use std::time::Duration;

use holdfast_events::{Actor, Label128, LeaseAcquired};
use holdfast_model::condition::bounded;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm};
use holdfast_model::secret::redacted;
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, number};

/// How long a lease holds without renewal, unless its holder says otherwise.
pub const LEASE_TTL: Duration = Duration::from_secs(30);
/// The lease of the one renderer that renders, numbers and relays.
pub const RENDERER_LEASE: &str = "renderer";

/// How long what a holder says of the bus may be, in bytes.
const FAULT_BYTES_MAX: usize = 256;

/// What the holder of the renderer's lease says of the bus, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BusReport {
    /// What is wrong with the stream of hints, if anything.
    pub hint_fault: Option<String>,
    /// What is wrong with the stream of events, if anything.
    pub event_fault: Option<String>,
    /// The last event that the stream is known to hold; absent before the stream was looked at, zero if it holds none.
    pub relayed: Option<(AuthorityEpoch, EventSeq)>,
}

/// The answer to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It is the caller's now, under a new term.
    Acquired(LeaseTerm),
    /// Somebody else has it.
    Held {
        /// Who.
        holder: String,
        /// Until when, from now, if it is not renewed.
        remaining: Duration,
    },
}

impl Store {
    /// Claims a lease that nobody holds. A gateway's lease has the name of its id.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn acquire_lease(&self, actor: Actor, name: &str, holder: &str) -> Result<Claim, Error> {
        self.acquire_lease_for(actor, name, holder, LEASE_TTL).await
    }

    /// The same for a lease that holds for another span without renewal.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn acquire_lease_for(
        &self,
        actor: Actor,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<Claim, Error> {
        let (name, holder) = (Label128::new(name), Label128::new(holder));
        self.transact("acquire a lease", Mode::Write, move |tx| {
            let (name, holder) = (name.clone(), holder.clone());
            Box::pin(async move { acquire(tx, actor, name, holder, ttl).await })
        })
        .await
    }

    /// Renews a lease; false if it is no longer held under this term.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn renew_lease(&self, name: &str, term: LeaseTerm) -> Result<bool, Error> {
        self.renew_lease_for(name, term, LEASE_TTL).await
    }

    /// The same for a lease that holds for another span without renewal.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn renew_lease_for(&self, name: &str, term: LeaseTerm, ttl: Duration) -> Result<bool, Error> {
        let (name, term) = (name.to_owned(), big(term.raw())?);
        self.transact("renew a lease", Mode::Write, move |tx| {
            let name = name.clone();
            Box::pin(async move {
                let done = sqlx::query(
                    "UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $3), lasts_s = $3 \
                     WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp()",
                )
                .bind(name)
                .bind(term)
                .bind(ttl.as_secs_f64())
                .execute(tx)
                .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// Writes beside the renderer's lease what its holder sees of the bus; false if it is no longer held under this term. The words are cut to what
    /// fits, and no token in them is kept.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn report_bus(&self, term: LeaseTerm, report: &BusReport) -> Result<bool, Error> {
        let words = |fault: &Option<String>| fault.as_deref().map(|text| bounded(&redacted(text), FAULT_BYTES_MAX));
        let (hints, events) = (words(&report.hint_fault), words(&report.event_fault));
        let relayed = match report.relayed {
            Some((epoch, seq)) => Some((big(epoch.raw())?, big(seq.raw())?)),
            None => None,
        };
        let term = big(term.raw())?;
        self.transact("report the bus", Mode::Write, move |tx| {
            let (hints, events) = (hints.clone(), events.clone());
            Box::pin(async move {
                let done = sqlx::query(
                    "UPDATE leases SET hint_fault = $3, event_fault = $4, relayed_epoch = $5, relayed_seq = $6 \
                     WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp()",
                )
                .bind(RENDERER_LEASE)
                .bind(term)
                .bind(hints)
                .bind(events)
                .bind(relayed.map(|(epoch, _)| epoch))
                .bind(relayed.map(|(_, seq)| seq))
                .execute(tx)
                .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// Gives a lease up, so that a successor need not wait; false if it was not held under this term.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn release_lease(&self, name: &str, term: LeaseTerm) -> Result<bool, Error> {
        self.release(name, term, None).await
    }

    /// The same of one holder's: a server that was promoted without the last commits may have given the same term to another.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn release_lease_of(&self, holder: &str, name: &str, term: LeaseTerm) -> Result<bool, Error> {
        self.release(name, term, Some(Label128::new(holder))).await
    }

    async fn release(&self, name: &str, term: LeaseTerm, holder: Option<Label128>) -> Result<bool, Error> {
        let (name, term) = (name.to_owned(), big(term.raw())?);
        self.transact("release a lease", Mode::Write, move |tx| {
            let (name, holder) = (name.clone(), holder.clone());
            Box::pin(async move {
                let done = sqlx::query(
                    "UPDATE leases SET expires_at = 'epoch' \
                     WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp() AND holder = coalesce($3, holder)",
                )
                .bind(name)
                .bind(term)
                .bind(holder.as_ref().map(|holder| holder.as_str().to_owned()))
                .execute(tx)
                .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }
}

async fn acquire(
    tx: &mut PgConnection,
    actor: Actor,
    name: Label128,
    holder: Label128,
    ttl: Duration,
) -> Result<Claim, Error> {
    let taken: Option<i64> = sqlx::query_scalar(
        "INSERT INTO leases AS l (name, holder, term, expires_at, lasts_s, rollouts_term) \
         VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3), $3, 1) \
         ON CONFLICT (name) DO UPDATE \
         SET holder = excluded.holder, term = l.term + 1, expires_at = clock_timestamp() + make_interval(secs => $3), \
             lasts_s = excluded.lasts_s, rollouts_term = l.term + 1, hint_fault = NULL, event_fault = NULL, relayed_epoch = NULL, relayed_seq = NULL \
         WHERE l.expires_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + 2 * make_interval(secs => coalesce(l.lasts_s, $3)) \
         RETURNING term",
    )
    .bind(name.as_str())
    .bind(holder.as_str())
    .bind(ttl.as_secs_f64())
    .fetch_optional(&mut *tx)
    .await?;
    let Some(raw) = taken else {
        let (holder, seconds): (String, f64) = sqlx::query_as(
            "SELECT holder, greatest(extract(epoch FROM expires_at - clock_timestamp()), 0)::float8 \
             FROM leases WHERE name = $1",
        )
        .bind(name.as_str())
        .fetch_one(&mut *tx)
        .await?;
        return Ok(Claim::Held { holder, remaining: Duration::from_secs_f64(seconds) });
    };
    let term = LeaseTerm::from_raw(number("term", raw)?);
    let mut outbox = Outbox::new(actor);
    outbox.push(LeaseAcquired { name, holder, term })?;
    outbox.write(tx).await?;
    Ok(Claim::Acquired(term))
}

/// Whether whoever claimed the renderer's lease last knows rollouts; false if nobody ever did. Whether it still holds does not matter: the next claim
/// says so of itself.
pub(crate) async fn knows_rollouts(tx: &mut PgConnection) -> Result<bool, Error> {
    let knows: Option<bool> =
        sqlx::query_scalar("SELECT coalesce(rollouts_term = term, false) FROM leases WHERE name = $1")
            .bind(RENDERER_LEASE)
            .fetch_optional(tx)
            .await?;
    Ok(knows.unwrap_or(false))
}

/// Makes sure that the renderer's lease is held under this term, until the end of this transaction.
pub(crate) async fn fence(tx: &mut PgConnection, term: LeaseTerm) -> Result<(), Error> {
    let held = sqlx::query(
        "SELECT FROM leases WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp() FOR KEY SHARE",
    )
    .bind(RENDERER_LEASE)
    .bind(big(term.raw())?)
    .fetch_optional(&mut *tx)
    .await?;
    if held.is_some() { Ok(()) } else { Err(fenced(term)) }
}

/// The renderer's lease is not held under this term.
pub(crate) fn fenced(term: LeaseTerm) -> Error {
    Error::Fenced { lease: RENDERER_LEASE.to_owned(), term }
}
