//! Liveness: when each host was last heard. The gateways' word, in no event.

use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::big;

impl Store {
    /// Records that hosts were heard, each so many milliseconds ago; answers with those whose session is no longer theirs.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn record_presence(&self, heard: Vec<(HostId, SessionEpoch, u64)>) -> Result<Vec<HostId>, Error> {
        self.transact("record presence", Mode::Write, move |tx| {
            let heard = heard.clone();
            Box::pin(async move { record_heard(tx, heard).await })
        })
        .await
    }
}

/// Records presence; answers with hosts whose session is not the one that is named.
pub(super) async fn record_heard(
    tx: &mut PgConnection,
    mut heard: Vec<(HostId, SessionEpoch, u64)>,
) -> Result<Vec<HostId>, Error> {
    // In the order of their ids, so that two batches do not wait for each other.
    heard.sort_unstable();
    heard.dedup_by_key(|(host, epoch, _)| (*host, *epoch));
    let epochs = heard.iter().map(|(_, epoch, _)| big(epoch.raw())).collect::<Result<Vec<_>, _>>()?;
    let ages = heard.iter().map(|(_, _, age_ms)| big(*age_ms)).collect::<Result<Vec<_>, _>>()?;
    let stale: Vec<Uuid> = sqlx::query_scalar(
        "WITH given AS ( \
                         SELECT r.host_id, r.session_epoch, r.age_ms, \
                                s.session_epoch = r.session_epoch AND s.closed_at IS NULL AS is_current \
                         FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[]) AS r (host_id, session_epoch, age_ms) \
                         LEFT JOIN sessions s USING (host_id) \
                     ), heard AS ( \
                         INSERT INTO presence AS p (host_id, session_epoch, heard_at) \
                         SELECT host_id, session_epoch, clock_timestamp() - age_ms * interval '1 millisecond' \
                         FROM given WHERE is_current ORDER BY host_id \
                         ON CONFLICT (host_id) DO UPDATE SET session_epoch = excluded.session_epoch, \
                             heard_at = greatest(p.heard_at, excluded.heard_at) \
                         WHERE p.session_epoch <= excluded.session_epoch \
                     ) \
                     SELECT host_id FROM given WHERE is_current IS NOT TRUE",
    )
    .bind(heard.iter().map(|(host, _, _)| host.uuid()).collect::<Vec<_>>())
    .bind(epochs)
    .bind(ages)
    .fetch_all(tx)
    .await?;
    Ok(stale.into_iter().map(HostId::new).collect())
}
