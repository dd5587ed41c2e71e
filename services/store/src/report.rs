//! What is kept of hosts' words of themselves as a whole, for those who judge.

use std::collections::BTreeMap;

use holdfast_events::SignatureBytes;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::{ComponentReport, HostReport};
use holdfast_model::statement::StatusPlace;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::value::{from_json, number, signature};

/// What a host said last of itself as a whole, in any session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedReport {
    /// As what it was said.
    pub place: StatusPlace,
    /// What was said.
    pub report: HostReport,
    /// The signature.
    pub signature: SignatureBytes,
    /// When it was recorded.
    pub at: OffsetDateTime,
}

impl ObservedReport {
    /// What it says of one component.
    #[must_use]
    pub fn of(&self, component: Component) -> Option<&ComponentReport> {
        self.report.of(component)
    }
}

#[derive(sqlx::FromRow)]
struct ReportRow {
    host_id: Uuid,
    session_epoch: i64,
    seq: i64,
    answered: i64,
    components: serde_json::Value,
    signature: Vec<u8>,
    told_at: OffsetDateTime,
}

/// What is kept of these hosts, or of all.
pub(crate) async fn load(
    tx: &mut PgConnection,
    hosts: Option<&Vec<Uuid>>,
) -> Result<BTreeMap<HostId, ObservedReport>, Error> {
    let rows: Vec<ReportRow> = sqlx::query_as(
        "SELECT host_id, session_epoch, seq, answered, components, signature, told_at FROM statuses \
         WHERE $1::uuid[] IS NULL OR host_id = ANY($1)",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    rows.into_iter().map(|row| Ok((HostId::new(row.host_id), row.read()?))).collect()
}

impl ReportRow {
    fn read(self) -> Result<ObservedReport, Error> {
        let place = StatusPlace {
            host: HostId::new(self.host_id),
            session_epoch: SessionEpoch::from_raw(number("statuses.session_epoch", self.session_epoch)?),
            seq: number("statuses.seq", self.seq)?,
        };
        let answered = UpdateSeq::from_raw(number("statuses.answered", self.answered)?);
        let report = HostReport { answered, components: from_json("statuses.components", self.components)? };
        let signature = signature("statuses.signature", &self.signature)?;
        Ok(ObservedReport { place, report, signature, at: self.told_at })
    }
}
