//! What is kept of hosts' words of themselves as a whole, for those who judge.

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
use crate::pulse::silence_since;
use crate::session::FailingParts;
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
    /// How long ago that is, of which the database was there.
    pub told_ms_ago: u64,
    failing: FailingParts,
}

impl ObservedReport {
    /// One that was recorded just now, of which nothing was said before.
    #[must_use]
    pub const fn new(place: StatusPlace, report: HostReport, signature: SignatureBytes, at: OffsetDateTime) -> Self {
        Self { place, report, signature, at, told_ms_ago: 0, failing: FailingParts::new() }
    }

    /// What it says of one component.
    #[must_use]
    pub fn of(&self, component: Component) -> Option<&ComponentReport> {
        self.report.of(component)
    }

    /// Since when it was said each time that something that blocks is false of a component; absent if nothing is.
    #[must_use]
    pub fn failing_since(&self, component: Component) -> Option<OffsetDateTime> {
        self.failing.get(&component).and_then(|failing| failing.since())
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
    failing: serde_json::Value,
    told_at: OffsetDateTime,
    told_ms_ago: i64,
}

/// What is kept of these hosts, or of all; of each whether it can be read.
pub(crate) async fn load(
    tx: &mut PgConnection,
    hosts: Option<&Vec<Uuid>>,
) -> Result<Vec<(HostId, Result<ObservedReport, Error>)>, Error> {
    let rows: Vec<ReportRow> = sqlx::query_as(concat!(
        "SELECT host_id, session_epoch, seq, answered, components, signature, failing, told_at, \
                (extract(epoch FROM clock_timestamp() - greatest(told_at, ",
        silence_since!(),
        ")) * 1000)::bigint AS told_ms_ago \
         FROM statuses WHERE $1::uuid[] IS NULL OR host_id = ANY($1)",
    ))
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (HostId::new(row.host_id), row.read())).collect())
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
        let failing = from_json("statuses.failing", self.failing)?;
        // A clock that was set back makes a moment ago look like the future; that is young.
        let told_ms_ago = u64::try_from(self.told_ms_ago).unwrap_or(0);
        Ok(ObservedReport { place, report, signature, at: self.told_at, told_ms_ago, failing })
    }
}
