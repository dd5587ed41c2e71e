//! What hosts found in their kernels: facts that are told, the newest of each kind kept.
//!
//! - A report counts once: it has the total of its kind, and one that is not above what is kept says nothing new.
//! - What was lost on the way is in the next one's count.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_events::{Actor, DriftContended, DriftFound, DriftRepaired, DriftSettled, Event, ProcessName};
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::SessionEpoch;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::value::{big, number, to_json};

/// A hundred years: what a host says beyond it is its clock's, or a lie.
const AGE_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;
/// The most that a column holds.
const TOTAL_MAX: u64 = i64::MAX.unsigned_abs();

/// What a host says of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriftSaid {
    /// What happened.
    pub kind: DriftKind,
    /// The start of the agent that counts.
    pub instance: Uuid,
    /// How often since that start.
    pub total: u64,
    /// How long ago the last one was.
    pub age_ms: u64,
    /// The process that wrote, and its number.
    pub process: Option<(ProcessName, u32)>,
    /// What differed.
    pub counts: DriftCounts,
}

/// A report of a host in a session that is its own.
#[derive(Clone, Debug)]
pub(super) struct DriftReport {
    pub(super) host: HostId,
    pub(super) session_epoch: SessionEpoch,
    pub(super) said: DriftSaid,
}

/// A kind as a `smallint`.
pub(crate) fn small_kind(kind: DriftKind) -> i16 {
    i16::from(kind.number())
}

/// A `smallint` that is a kind.
pub(crate) fn kind(value: i16) -> Result<DriftKind, Error> {
    let kind = u8::try_from(value).ok().and_then(DriftKind::from_number);
    kind.ok_or_else(|| Error::value("drifts.kind", value))
}

/// Records reports, in the order given.
pub(super) async fn record_drifts(
    tx: &mut PgConnection,
    gateway: GatewayId,
    reports: &[DriftReport],
) -> Result<(), Error> {
    let hosts: BTreeSet<Uuid> = reports.iter().map(|report| report.host.uuid()).collect();
    let mut known = lock_known(tx, &hosts.into_iter().collect::<Vec<_>>()).await?;
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    // A later one of one kind in one batch is the one that stays.
    let mut last: BTreeMap<(HostId, DriftKind), DriftReport> = BTreeMap::new();
    for report in reports {
        let key = (report.host, report.said.kind);
        let total = report.said.total.min(TOTAL_MAX);
        let before = known.get(&key).filter(|(instance, _)| *instance == report.said.instance);
        let count = total.saturating_sub(before.map_or(0, |(_, total)| *total));
        if count == 0 {
            continue;
        }
        let mut report = report.clone();
        report.said.total = total;
        report.said.age_ms = report.said.age_ms.min(AGE_MS_MAX);
        outbox.push_as(Actor::Host(report.host), None, &event_of(&report, count))?;
        known.insert(key, (report.said.instance, total));
        last.insert(key, report);
    }
    keep(tx, &last).await?;
    outbox.write(tx).await
}

async fn lock_known(
    tx: &mut PgConnection,
    hosts: &[Uuid],
) -> Result<BTreeMap<(HostId, DriftKind), (Uuid, u64)>, Error> {
    let rows: Vec<(Uuid, i16, Uuid, i64)> = sqlx::query_as(
        "SELECT host_id, kind, instance, total FROM drifts WHERE host_id = ANY($1) ORDER BY host_id, kind FOR UPDATE",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    let read = |(host, raw, instance, total)| {
        Ok(((HostId::new(host), kind(raw)?), (instance, number("drifts.total", total)?)))
    };
    rows.into_iter().map(read).collect()
}

fn event_of(report: &DriftReport, count: u64) -> Event {
    let DriftReport { host, session_epoch, said } = report;
    let (host, session_epoch) = (*host, *session_epoch);
    let DriftSaid { kind, instance, total, age_ms, process, counts } = said.clone();
    let (process, pid) = process.unzip();
    match kind {
        DriftKind::Found => {
            DriftFound { host, session_epoch, instance, total, count, age_ms, process, pid, counts }.into()
        }
        DriftKind::Repaired => {
            DriftRepaired { host, session_epoch, instance, total, count, age_ms, process, pid, counts }.into()
        }
        DriftKind::Contended => {
            DriftContended { host, session_epoch, instance, total, count, age_ms, process, pid }.into()
        }
        DriftKind::Settled => DriftSettled { host, session_epoch, instance, total, count, age_ms }.into(),
    }
}

/// What of a kind has counts and a process: the others' columns are empty.
const fn has_counts(kind: DriftKind) -> bool {
    matches!(kind, DriftKind::Found | DriftKind::Repaired)
}

const fn has_process(kind: DriftKind) -> bool {
    !matches!(kind, DriftKind::Settled)
}

async fn keep(tx: &mut PgConnection, last: &BTreeMap<(HostId, DriftKind), DriftReport>) -> Result<(), Error> {
    if last.is_empty() {
        return Ok(());
    }
    let said = || last.values().map(|report| &report.said);
    let process = |said: &DriftSaid| said.process.clone().filter(|_| has_process(said.kind));
    let counts = |said: &DriftSaid| has_counts(said.kind).then(|| to_json("drifts.counts", &said.counts)).transpose();
    sqlx::query(
        "INSERT INTO drifts AS d \
             (host_id, kind, session_epoch, instance, total, age_ms, process, pid, counts, told_at) \
         SELECT r.*, transaction_timestamp() \
         FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::text[], \
                     $8::bigint[], $9::jsonb[]) \
         AS r (host_id, kind, session_epoch, instance, total, age_ms, process, pid, counts) \
         ON CONFLICT (host_id, kind) DO UPDATE SET session_epoch = excluded.session_epoch, \
             instance = excluded.instance, total = excluded.total, age_ms = excluded.age_ms, \
             process = excluded.process, pid = excluded.pid, counts = excluded.counts, told_at = excluded.told_at",
    )
    .bind(last.keys().map(|(host, _)| host.uuid()).collect::<Vec<_>>())
    .bind(last.keys().map(|(_, kind)| small_kind(*kind)).collect::<Vec<_>>())
    .bind(last.values().map(|report| big(report.session_epoch.raw())).collect::<Result<Vec<_>, _>>()?)
    .bind(said().map(|said| said.instance).collect::<Vec<_>>())
    .bind(said().map(|said| big(said.total)).collect::<Result<Vec<_>, _>>()?)
    .bind(said().map(|said| big(said.age_ms)).collect::<Result<Vec<_>, _>>()?)
    .bind(said().map(|said| process(said).map(|(name, _)| name.as_str().to_owned())).collect::<Vec<_>>())
    .bind(said().map(|said| process(said).map(|(_, pid)| i64::from(pid))).collect::<Vec<_>>())
    .bind(said().map(counts).collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}
