//! The session path: sessions, delivery and what hosts say.
//!
//! - Every statement takes arrays; one host is an array of one.
//! - A write counts only under the session that is the host's now: the row is locked, then compared, then written, then the events.
//! - What a stale session says is answered as stale and changes nothing.

mod delivery;
mod drift;
mod facts;
mod instance;
mod open;
mod outcome;
mod presence;
mod status;

use std::collections::BTreeMap;

pub use delivery::{HostIdentity, HostNewest, Newest};
pub use drift::DriftSaid;
pub(crate) use drift::{kind as drift_kind, small_kind as small_drift_kind};
pub use facts::{Fact, FactsRecorded, Seen};
use holdfast_model::fence::HostSession;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
pub use instance::{HOLD, Instance, TURN_WINDOW};
pub use open::{Closing, Opened, Opening};
pub use outcome::{OutcomeReport, Recorded, SnapshotReport};
use sqlx::postgres::PgConnection;
pub(crate) use status::FailingParts;
pub use status::StatusSaid;
use uuid::Uuid;

use crate::error::Error;
use crate::value::number;

/// How a writer locks sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    /// It will begin or end them.
    Change,
    /// They must stay as they are until it has written.
    Keep,
}

/// Locks hosts' sessions in the order of their ids and reads them. A host that is not enrolled is not in the answer.
pub(crate) async fn lock_sessions(
    tx: &mut PgConnection,
    hosts: &[Uuid],
    lock: Lock,
) -> Result<BTreeMap<HostId, HostSession>, Error> {
    let sql = match lock {
        Lock::Change => {
            "SELECT host_id, session_epoch, opened_at IS NOT NULL AND closed_at IS NULL FROM sessions \
             WHERE host_id = ANY($1) ORDER BY host_id FOR UPDATE"
        }
        Lock::Keep => {
            "SELECT host_id, session_epoch, opened_at IS NOT NULL AND closed_at IS NULL FROM sessions \
             WHERE host_id = ANY($1) ORDER BY host_id FOR SHARE"
        }
    };
    let rows: Vec<(Uuid, i64, bool)> = sqlx::query_as(sql).bind(hosts).fetch_all(tx).await?;
    let read = |(host, raw, is_open)| {
        let session_epoch = SessionEpoch::from_raw(number("sessions.session_epoch", raw)?);
        Ok((HostId::new(host), HostSession::new(session_epoch, is_open)))
    };
    rows.into_iter().map(read).collect()
}
