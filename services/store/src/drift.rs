//! What is kept of drift, for those who ask about a host.

use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::HostId;
use sqlx::postgres::PgConnection;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::error::Error;
use crate::session::drift_kind;
use crate::value::{from_json, number};

/// The newest of one kind that a host told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptDrift {
    /// What happened.
    pub kind: DriftKind,
    /// The start of the agent that counts.
    pub instance: Uuid,
    /// How often since that start.
    pub total: u64,
    /// When the last one was: when it was told, less its age by the host's clock.
    pub at: OffsetDateTime,
    /// The process that wrote, and its number.
    pub process: Option<(String, u32)>,
    /// What differed.
    pub counts: Option<DriftCounts>,
}

#[derive(sqlx::FromRow)]
struct DriftRow {
    host_id: Uuid,
    kind: i16,
    instance: Uuid,
    total: i64,
    age_ms: i64,
    process: Option<String>,
    pid: Option<i64>,
    counts: Option<serde_json::Value>,
    told_at: OffsetDateTime,
}

/// What is kept of these hosts, or of all, by kind; of each whether it can be read.
pub(crate) async fn load(
    tx: &mut PgConnection,
    hosts: Option<&Vec<Uuid>>,
) -> Result<Vec<(HostId, Result<KeptDrift, Error>)>, Error> {
    let rows: Vec<DriftRow> = sqlx::query_as(
        "SELECT host_id, kind, instance, total, age_ms, process, pid, counts, told_at FROM drifts \
         WHERE $1::uuid[] IS NULL OR host_id = ANY($1) ORDER BY host_id, kind",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (HostId::new(row.host_id), row.read())).collect())
}

impl DriftRow {
    fn read(self) -> Result<KeptDrift, Error> {
        let pid = self.pid.map(|pid| u32::try_from(pid).map_err(|_| Error::value("drifts.pid", pid)));
        let at = self.told_at.checked_sub(Duration::milliseconds(self.age_ms));
        Ok(KeptDrift {
            kind: drift_kind(self.kind)?,
            instance: self.instance,
            total: number("drifts.total", self.total)?,
            at: at.ok_or_else(|| Error::value("drifts.age_ms", self.age_ms))?,
            process: self.process.zip(pid.transpose()?),
            counts: self.counts.map(|counts| from_json("drifts.counts", counts)).transpose()?,
        })
    }
}
