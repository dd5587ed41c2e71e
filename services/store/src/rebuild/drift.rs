//! What events of drift do to their table: each is the row of its kind.

use holdfast_events::{DriftContended, DriftFound, DriftRepaired, DriftSettled, ProcessName};
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use serde_json::{Value, json};
use uuid::Uuid;

use super::rows::{Row, maybe, row, words};
use crate::error::Error;
use crate::session::small_drift_kind;
use crate::value::to_json;

/// What names a row of drift.
pub(super) fn drift_key(host: HostId, kind: DriftKind) -> String {
    format!("{host} {kind}")
}

/// What an event of drift says, whichever it is.
pub(super) struct Told<'a> {
    kind: DriftKind,
    host: HostId,
    session_epoch: SessionEpoch,
    instance: Uuid,
    total: u64,
    age_ms: u64,
    process: Option<&'a ProcessName>,
    pid: Option<u32>,
    counts: Option<&'a DriftCounts>,
}

impl<'a> From<&'a DriftFound> for Told<'a> {
    fn from(e: &'a DriftFound) -> Self {
        let DriftFound { host, session_epoch, instance, total, age_ms, pid, .. } = *e;
        let (kind, process, counts) = (DriftKind::Found, e.process.as_ref(), Some(&e.counts));
        Self { kind, host, session_epoch, instance, total, age_ms, process, pid, counts }
    }
}

impl<'a> From<&'a DriftRepaired> for Told<'a> {
    fn from(e: &'a DriftRepaired) -> Self {
        let DriftRepaired { host, session_epoch, instance, total, age_ms, pid, .. } = *e;
        let (kind, process, counts) = (DriftKind::Repaired, e.process.as_ref(), Some(&e.counts));
        Self { kind, host, session_epoch, instance, total, age_ms, process, pid, counts }
    }
}

impl<'a> From<&'a DriftContended> for Told<'a> {
    fn from(e: &'a DriftContended) -> Self {
        let DriftContended { host, session_epoch, instance, total, age_ms, pid, .. } = *e;
        let (kind, process, counts) = (DriftKind::Contended, e.process.as_ref(), None);
        Self { kind, host, session_epoch, instance, total, age_ms, process, pid, counts }
    }
}

impl From<&DriftSettled> for Told<'_> {
    fn from(e: &DriftSettled) -> Self {
        let DriftSettled { host, session_epoch, instance, total, age_ms, .. } = *e;
        let (kind, process, pid, counts) = (DriftKind::Settled, None, None, None);
        Self { kind, host, session_epoch, instance, total, age_ms, process, pid, counts }
    }
}

impl Told<'_> {
    /// What names its row.
    pub(super) fn key(&self) -> String {
        drift_key(self.host, self.kind)
    }

    /// Its row, told at that time.
    pub(super) fn row(&self, time: Value) -> Result<Row, Error> {
        Ok(row([
            ("host_id", words(self.host.uuid())),
            ("kind", json!(small_drift_kind(self.kind))),
            ("session_epoch", json!(self.session_epoch)),
            ("instance", words(self.instance)),
            ("total", json!(self.total)),
            ("age_ms", json!(self.age_ms)),
            ("process", maybe(self.process)),
            ("pid", json!(self.pid)),
            ("counts", self.counts.map(|counts| to_json("counts", counts)).transpose()?.unwrap_or_default()),
            ("told_at", time),
        ]))
    }
}
