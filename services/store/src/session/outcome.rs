//! What hosts say of updates, and what was sent to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_events::{Actor, Detail, Event, Fault, OutcomeRecorded, ProtocolFault, SignatureBytes, SnapshotSent};
use holdfast_model::condition::{Condition, DETAIL_BYTES_MAX, Reason, bounded};
use holdfast_model::desired::{Component, Stamp};
pub use holdfast_model::fence::Recorded;
use holdfast_model::fence::{HostSession, LastOutcome, judge};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::statement::{Outcome, OutcomeKind};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{Lock, lock_sessions};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, component, number, signature, small, to_json};

/// What a host says of one update. The gateway has verified the signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeReport {
    /// What was signed.
    pub outcome: Outcome,
    /// Why, as a code.
    pub reason: Reason,
    /// Why, in the agent's words.
    pub detail: Detail,
    /// Every condition of the attempt.
    pub conditions: Vec<Condition>,
    /// The host's word for it.
    pub signature: SignatureBytes,
}

/// A whole state that was written to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotReport {
    /// To whom.
    pub host: HostId,
    /// In which session.
    pub session_epoch: SessionEpoch,
    /// Which part.
    pub component: Component,
    /// Which content.
    pub stamp: Stamp,
    /// As which update.
    pub update_seq: UpdateSeq,
}

impl Store {
    /// Records outcomes, in the order given.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again, what was recorded is answered as repeated.
    pub async fn record_outcomes(
        &self,
        gateway: GatewayId,
        reports: Vec<OutcomeReport>,
    ) -> Result<Vec<Recorded>, Error> {
        let reports = Arc::new(reports);
        self.transact("record outcomes", Mode::Write, move |tx| {
            let reports = Arc::clone(&reports);
            Box::pin(async move {
                let hosts: BTreeSet<Uuid> = reports.iter().map(|report| report.outcome.host.uuid()).collect();
                let sessions = lock_sessions(tx, &hosts.into_iter().collect::<Vec<_>>(), Lock::Keep).await?;
                record(tx, gateway, &reports, &sessions).await
            })
        })
        .await
    }

    /// Records faults that a gateway found by itself: an update that was never sent, a signature that does not fit.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn record_faults(&self, gateway: GatewayId, faults: Vec<ProtocolFault>) -> Result<(), Error> {
        self.transact("record faults", Mode::Write, move |tx| {
            let faults = faults.clone();
            Box::pin(async move {
                let mut outbox = Outbox::new(Actor::Gateway(gateway));
                for fault in faults {
                    outbox.push(fault)?;
                }
                outbox.write(tx).await
            })
        })
        .await
    }

    /// Records that whole states were sent; says of each whether it counted. One that was recorded before counts and is not told of again.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn record_snapshots_sent(
        &self,
        gateway: GatewayId,
        sent: Vec<SnapshotReport>,
    ) -> Result<Vec<bool>, Error> {
        let sent = Arc::new(sent);
        self.transact("record snapshots sent", Mode::Write, move |tx| {
            let sent = Arc::clone(&sent);
            Box::pin(async move {
                let hosts: BTreeSet<Uuid> = sent.iter().map(|report| report.host.uuid()).collect();
                let sessions = lock_sessions(tx, &hosts.into_iter().collect::<Vec<_>>(), Lock::Keep).await?;
                record_sent(tx, gateway, &sent, &sessions).await
            })
        })
        .await
    }
}

/// What is known of the last outcome of one (host, component).
struct Known {
    last: LastOutcome<SignatureBytes>,
    /// The last whole state that was sent, as the session and the update that it was.
    last_snapshot: Option<(SessionEpoch, UpdateSeq)>,
}

#[derive(sqlx::FromRow)]
struct KnownRow {
    host_id: Uuid,
    component: i16,
    session_epoch: i64,
    update_seq: i64,
    signature: Option<Vec<u8>>,
    last_snapshot_session_epoch: Option<i64>,
    last_snapshot_update_seq: Option<i64>,
}

/// Locks what is known of hosts, in the order of its keys, and reads it.
async fn lock_observed(tx: &mut PgConnection, hosts: &[Uuid]) -> Result<BTreeMap<(HostId, Component), Known>, Error> {
    let rows: Vec<KnownRow> = sqlx::query_as(
        "SELECT host_id, component, session_epoch, update_seq, signature, last_snapshot_session_epoch, \
                last_snapshot_update_seq \
         FROM observed WHERE host_id = ANY($1) ORDER BY host_id, component FOR UPDATE",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    let read = |row: KnownRow| {
        let last_snapshot = row.last_snapshot_session_epoch.zip(row.last_snapshot_update_seq);
        let last_snapshot = last_snapshot.map(|(epoch, seq)| {
            let epoch = SessionEpoch::from_raw(number("observed.last_snapshot_session_epoch", epoch)?);
            Ok::<_, Error>((epoch, UpdateSeq::from_raw(number("observed.last_snapshot_update_seq", seq)?)))
        });
        let last = LastOutcome {
            session_epoch: SessionEpoch::from_raw(number("observed.session_epoch", row.session_epoch)?),
            update_seq: UpdateSeq::from_raw(number("observed.update_seq", row.update_seq)?),
            signature: row.signature.map(|bytes| signature("observed.signature", &bytes)).transpose()?,
        };
        let known = Known { last, last_snapshot: last_snapshot.transpose()? };
        Ok(((HostId::new(row.host_id), component(row.component)?), known))
    };
    rows.into_iter().map(read).collect()
}

fn judge_report(
    report: &OutcomeReport,
    sessions: &BTreeMap<HostId, HostSession>,
    known: &BTreeMap<(HostId, Component), Known>,
) -> Recorded {
    let Outcome { host, session_epoch, update_seq, component, .. } = report.outcome;
    match (sessions.get(&host), known.get(&(host, component))) {
        (Some(session), Some(known)) => judge(*session, &known.last, (session_epoch, update_seq), &report.signature),
        (Some(_) | None, _) => Recorded::UnknownHost,
    }
}

/// Records outcomes of hosts whose sessions are locked, each judged by its own.
pub(super) async fn record(
    tx: &mut PgConnection,
    gateway: GatewayId,
    reports: &[OutcomeReport],
    sessions: &BTreeMap<HostId, HostSession>,
) -> Result<Vec<Recorded>, Error> {
    let hosts: BTreeSet<Uuid> = reports.iter().map(|report| report.outcome.host.uuid()).collect();
    let hosts: Vec<Uuid> = hosts.into_iter().collect();
    let mut known = lock_observed(tx, &hosts).await?;
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let mut answers = Vec::with_capacity(reports.len());
    // A later outcome of one component in one batch is the one that stays.
    let mut last: BTreeMap<(HostId, Component), Said<'_>> = BTreeMap::new();
    for report in reports {
        let Outcome { host, session_epoch, update_seq, component, .. } = report.outcome;
        let answer = judge_report(report, sessions, &known);
        answers.push(answer);
        if answer == Recorded::Current {
            outbox.push_as(Actor::Host(host), None, &event_of(report))?;
            if let Some(known) = known.get_mut(&(host, component)) {
                known.last = LastOutcome { session_epoch, update_seq, signature: Some(report.signature) };
            }
            let said = last.entry((host, component)).or_insert(Said { report, acked: false, failed: false });
            said.report = report;
            said.acked |= report.outcome.kind == OutcomeKind::Applied;
            said.failed |= report.outcome.kind == OutcomeKind::Failed;
        }
        let Some(fault) = fault_of(answer) else { continue };
        let (component, update_seq) = (Some(component), Some(update_seq));
        outbox.push(ProtocolFault { host, session_epoch, fault, component, update_seq })?;
    }
    update_observed(tx, &last).await?;
    outbox.write(tx).await?;
    Ok(answers)
}

/// The fault that an outcome is by what is known already, if it is one.
pub(super) const fn fault_of(judged: Recorded) -> Option<Fault> {
    match judged {
        Recorded::StaleSession => Some(Fault::StaleSession),
        Recorded::OutOfOrder => Some(Fault::OutOfOrder),
        Recorded::Current | Recorded::Repeated | Recorded::UnknownHost => None,
    }
}

/// Conditions with bounded texts, whoever handed them over.
fn conditions_of(report: &OutcomeReport) -> Vec<Condition> {
    let mut conditions = report.conditions.clone();
    for condition in &mut conditions {
        condition.message = bounded(&condition.message, DETAIL_BYTES_MAX);
    }
    conditions
}

fn event_of(report: &OutcomeReport) -> Event {
    let Outcome { host, session_epoch, update_seq, component, kind, wanted, applied } = report.outcome;
    Event::from(OutcomeRecorded {
        host,
        session_epoch,
        update_seq,
        component,
        kind,
        wanted,
        applied,
        reason: report.reason,
        detail: report.detail.clone(),
        conditions: conditions_of(report),
        signature: report.signature,
    })
}

/// What a host said of one component in one batch.
#[derive(Clone, Copy)]
struct Said<'a> {
    /// The last of it.
    report: &'a OutcomeReport,
    /// Whether an update is in force by any of it.
    acked: bool,
    /// Whether one failed by any of it.
    failed: bool,
}

async fn update_observed(tx: &mut PgConnection, last: &BTreeMap<(HostId, Component), Said<'_>>) -> Result<(), Error> {
    fn column<T>(
        last: &BTreeMap<(HostId, Component), Said<'_>>,
        read: impl Fn(&OutcomeReport) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        last.values().map(|said| read(said.report)).collect()
    }
    let bytes = |stamp: Stamp| stamp.digest.as_bytes().to_vec();
    sqlx::query(
        "UPDATE observed o SET session_epoch = r.session_epoch, update_seq = r.update_seq, outcome = r.outcome, \
             wanted_version = r.wanted_version, wanted_digest = r.wanted_digest, \
             applied_version = r.applied_version, applied_digest = r.applied_digest, \
             reason = r.reason, detail = r.detail, conditions = r.conditions, signature = r.signature, \
             outcome_at = transaction_timestamp(), \
             last_acked_at = CASE WHEN r.acked THEN transaction_timestamp() ELSE o.last_acked_at END, \
             last_apply_failed_at = CASE WHEN r.failed THEN transaction_timestamp() ELSE o.last_apply_failed_at END \
         FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], \
                     $7::bytea[], $8::bigint[], $9::bytea[], $10::text[], $11::text[], $12::jsonb[], $13::bytea[], \
                     $14::boolean[], $15::boolean[]) \
         AS r (host_id, component, session_epoch, update_seq, outcome, wanted_version, wanted_digest, \
               applied_version, applied_digest, reason, detail, conditions, signature, acked, failed) \
         WHERE o.host_id = r.host_id AND o.component = r.component",
    )
    .bind(last.keys().map(|(host, _)| host.uuid()).collect::<Vec<_>>())
    .bind(last.keys().map(|(_, component)| small(*component)).collect::<Vec<_>>())
    .bind(column(last, |report| big(report.outcome.session_epoch.raw()))?)
    .bind(column(last, |report| big(report.outcome.update_seq.raw()))?)
    .bind(column(last, |report| Ok(i16::from(report.outcome.kind.number())))?)
    .bind(column(last, |report| big(report.outcome.wanted.version.raw()))?)
    .bind(column(last, |report| Ok(bytes(report.outcome.wanted)))?)
    .bind(column(last, |report| report.outcome.applied.map(|stamp| big(stamp.version.raw())).transpose())?)
    .bind(column(last, |report| Ok(report.outcome.applied.map(bytes)))?)
    .bind(column(last, |report| Ok(report.reason.word()))?)
    .bind(column(last, |report| Ok(report.detail.as_str().to_owned()))?)
    .bind(column(last, |report| to_json("observed.conditions", &conditions_of(report)))?)
    .bind(column(last, |report| Ok(report.signature.as_bytes().to_vec()))?)
    .bind(last.values().map(|said| said.acked).collect::<Vec<_>>())
    .bind(last.values().map(|said| said.failed).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Records what was sent to hosts whose sessions are locked.
pub(super) async fn record_sent(
    tx: &mut PgConnection,
    gateway: GatewayId,
    sent: &[SnapshotReport],
    sessions: &BTreeMap<HostId, HostSession>,
) -> Result<Vec<bool>, Error> {
    let hosts: BTreeSet<Uuid> = sent.iter().map(|report| report.host.uuid()).collect();
    let hosts: Vec<Uuid> = hosts.into_iter().collect();
    let known = lock_observed(tx, &hosts).await?;
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let mut answers = Vec::with_capacity(sent.len());
    let mut last: BTreeMap<(HostId, Component), &SnapshotReport> = BTreeMap::new();
    for report in sent {
        let SnapshotReport { host, session_epoch, component, stamp, update_seq } = *report;
        let counts = sessions.get(&host).is_some_and(|session| session.admits(session_epoch));
        answers.push(counts);
        let before = known.get(&(host, component)).and_then(|known| known.last_snapshot);
        let is_repeated = before.is_some_and(|before| before >= (session_epoch, update_seq));
        if counts && !is_repeated {
            outbox.push(SnapshotSent { host, session_epoch, component, stamp, update_seq })?;
            last.insert((host, component), report);
        }
    }
    let numbers =
        |read: fn(&SnapshotReport) -> u64| last.values().map(|report| big(read(report))).collect::<Result<Vec<_>, _>>();
    sqlx::query(
        "UPDATE observed o SET last_snapshot_session_epoch = r.session_epoch, \
             last_snapshot_update_seq = r.update_seq, last_snapshot_version = r.version, \
             last_snapshot_digest = r.digest, last_snapshot_sent_at = transaction_timestamp() \
         FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[]) \
         AS r (host_id, component, session_epoch, update_seq, version, digest) \
         WHERE o.host_id = r.host_id AND o.component = r.component",
    )
    .bind(last.keys().map(|(host, _)| host.uuid()).collect::<Vec<_>>())
    .bind(last.keys().map(|(_, component)| small(*component)).collect::<Vec<_>>())
    .bind(numbers(|report| report.session_epoch.raw())?)
    .bind(numbers(|report| report.update_seq.raw())?)
    .bind(numbers(|report| report.stamp.version.raw())?)
    .bind(last.values().map(|report| report.stamp.digest.as_bytes().to_vec()).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    outbox.write(tx).await?;
    Ok(answers)
}
