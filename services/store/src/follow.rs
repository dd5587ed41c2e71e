//! Letting hosts into a new life of the authority: what is desired of them, unchanged, under a signature that names it.
//!
//! - A host is let in once it was heard in this life, and holds nothing that what is desired of it would take back, or an operator confirmed that.
//! - What is signed again is what is stored, by version and digest: a render that came between is signed in its own turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_events::{Actor, RENDERED_STATES_MAX, RenderSignedAgain};
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::lease::{RENDERER_LEASE, fenced};
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::render::{LatestRow, LatestState, SignedState};
use crate::value::{big, number, small};

/// Rows of one transaction.
const ROWS_MAX: u32 = 1_000;

impl Store {
    /// States that may be signed in this life of the authority and are not, some at a time.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored state cannot be read.
    pub async fn states_to_sign_again(&self, epoch: AuthorityEpoch) -> Result<Vec<LatestState>, Error> {
        self.transact("look who follows", Mode::Snapshot, move |tx| {
            Box::pin(async move {
                let rows: Vec<LatestRow> = sqlx::query_as(
                    "SELECT l.host_id, l.component, l.version, l.digest, l.signature, l.authority_epoch, l.revision \
                     FROM desired_latest l WHERE l.authority_epoch < $1 AND EXISTS ( \
                         SELECT FROM claims c WHERE c.host_id = l.host_id AND c.authority_epoch = $1 \
                     ) AND NOT EXISTS ( \
                         SELECT FROM claims c WHERE c.host_id = l.host_id \
                             AND (c.authority_epoch <> $1 OR (c.goes_back AND c.confirmed_at IS NULL)) \
                     ) \
                     ORDER BY l.host_id, l.component LIMIT $2",
                )
                .bind(big(epoch.raw())?)
                .bind(i64::from(ROWS_MAX))
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(LatestRow::state).collect()
            })
        })
        .await
    }

    /// Puts new signatures on states that did not change.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the lease is no longer held, [`Error::VersionGap`] if a state is another one by now, [`Error::Value`] if the epoch is.
    pub async fn sign_again(
        &self,
        lease_term: LeaseTerm,
        authority_epoch: AuthorityEpoch,
        states: Vec<SignedState>,
    ) -> Result<(), Error> {
        let states = Arc::new(states);
        self.transact("sign states again", Mode::Write, move |tx| {
            let states = Arc::clone(&states);
            Box::pin(async move { sign(tx, lease_term, authority_epoch, &states).await })
        })
        .await
    }
}

async fn sign(
    tx: &mut PgConnection,
    lease_term: LeaseTerm,
    authority_epoch: AuthorityEpoch,
    states: &[SignedState],
) -> Result<(), Error> {
    let found: Option<Option<i64>> = sqlx::query_scalar(
        "SELECT (SELECT authority_epoch FROM authority) \
         FROM leases WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp() FOR KEY SHARE",
    )
    .bind(RENDERER_LEASE)
    .bind(big(lease_term.raw())?)
    .fetch_optional(&mut *tx)
    .await?;
    let found = found.ok_or_else(|| fenced(lease_term))?.ok_or(Error::NoAuthority)?;
    if number("authority_epoch", found)? != authority_epoch.raw() {
        return Err(Error::value("authority_epoch", authority_epoch));
    }
    let versions = states.iter().map(|state| big(state.desired.stamp.version.raw())).collect::<Result<Vec<_>, _>>()?;
    let signed = sqlx::query(
        "WITH given AS ( \
             SELECT * FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[], $5::bytea[]) \
             AS r (host_id, component, version, digest, signature) \
         ), let_in AS ( \
             DELETE FROM claims c USING given g WHERE c.host_id = g.host_id AND c.component = g.component \
         ) \
         UPDATE desired_latest l SET signature = g.signature, authority_epoch = $6 FROM given g \
         WHERE l.host_id = g.host_id AND l.component = g.component AND l.version = g.version AND l.digest = g.digest \
           AND l.authority_epoch < $6",
    )
    .bind(states.iter().map(|state| state.desired.host.uuid()).collect::<Vec<Uuid>>())
    .bind(states.iter().map(|state| small(state.desired.component)).collect::<Vec<i16>>())
    .bind(versions)
    .bind(states.iter().map(|state| state.desired.stamp.digest.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(states.iter().map(|state| state.signature.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(big(authority_epoch.raw())?)
    .execute(&mut *tx)
    .await?;
    let hosts: BTreeSet<_> = states.iter().map(|state| state.desired.host).collect();
    if usize::try_from(signed.rows_affected()) != Ok(states.len()) {
        return Err(Error::VersionGap(format!("states of {} hosts are other ones than were signed", hosts.len())));
    }
    let mut outbox = Outbox::new(Actor::Renderer);
    for some in states.chunks(RENDERED_STATES_MAX) {
        let states = some.iter().map(SignedState::told).collect();
        outbox.push(RenderSignedAgain { lease_term, authority_epoch, states })?;
    }
    outbox.write(tx).await
}
