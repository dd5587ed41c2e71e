//! What each event does to each table.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_events::{
    ApiTokenCreated, AuthorityCreated, AuthorityEpochRaised, CertificateIssued, Content, DesiredState,
    EnrolTokenCreated, Event, HostAddressesChanged, HostDecommissioned, HostEnrolled, LeaseAcquired, ObjectPut,
    OperationAccepted, OperationState, OutcomeRecorded, Record, RenderCommitted, RenderDesired, RenderSignedAgain,
    SessionOpened, SnapshotSent, StatusRecorded,
};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::drift::DriftKind;
use holdfast_model::ids::{EnrolTokenId, HostId, ObjectId, OperationId};
use holdfast_model::numbers::Revision;
use holdfast_model::statement::OutcomeKind;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;

use super::drift::{Told, drift_key};
use super::rollout;
use super::rows::{Row, Rows, at, bytes, list, maybe, row, set, words};
use crate::error::Error;
use crate::value::{small, to_json};

/// The state of everything after the events so far.
#[derive(Default)]
pub(super) struct Fold {
    rows: Rows,
    /// The row of each object that is in force.
    objects: BTreeMap<ObjectId, String>,
    /// The row of each host's facts that are in force.
    facts: BTreeMap<HostId, String>,
    /// The last revision that was added.
    revision: Revision,
    /// Operations with which not every host is rendered, by their revisions.
    unrendered: BTreeSet<(Revision, OperationId)>,
    /// The newest intent that a desired state is of.
    rendered: Revision,
}

/// Why an event cannot follow what came before it; `None` if it can.
pub(super) type Refused = Option<&'static str>;

impl Fold {
    /// Writes what is certain to the temporary tables.
    pub(super) async fn flush(&mut self, tx: &mut PgConnection, is_end: bool) -> Result<(), Error> {
        self.rows.flush(tx, is_end).await
    }

    /// Folds one event.
    pub(super) fn event(&mut self, record: &Record) -> Result<Refused, Error> {
        let time = at(record.time)?;
        let refused = match &record.event {
            Event::ApiTokenCreated(e) => self.put("api_tokens", e.token, api_token(e, record, time)?),
            Event::ApiTokenRevoked(e) => self.amend("api_tokens", e.token, [("revoked_at", time)]),
            Event::AuthorityCreated(e) => self.put("authority", "", authority(e, time)),
            Event::AuthorityEpochRaised(e) => self.raise(e, record, time),
            Event::CertificateIssued(e) => self.add("certificates", certificate(e, time)?),
            Event::DriftContended(e) => self.drift(&e.into(), time)?,
            Event::DriftFound(e) => self.drift(&e.into(), time)?,
            Event::DriftRepaired(e) => self.drift(&e.into(), time)?,
            Event::DriftSettled(e) => self.drift(&e.into(), time)?,
            Event::EnrolTokenCreated(e) => self.put("enrol_tokens", e.token, enrol_token(e, record, time)?),
            Event::EnrolTokenRevoked(e) => self.amend("enrol_tokens", e.token, [("revoked_at", time)]),
            Event::EnrolmentRequested(e) => self.use_token(e.token),
            Event::HostAddressesChanged(e) => {
                self.add_revision(e.revision, record, time);
                self.relocate(e)
            }
            Event::HostDecommissioned(e) => {
                self.add_revision(e.revision, record, time.clone());
                self.decommission(e, time)
            }
            Event::HostEnrolled(e) => {
                self.add_revision(e.revision, record, time.clone());
                self.enrol(e, time)?
            }
            Event::LeaseAcquired(e) => self.put("leases", &e.name, lease(e)),
            Event::ObjectDeleted(e) => {
                self.add_revision(e.revision, record, time);
                self.end_object(e.object, e.revision).err()
            }
            Event::ObjectPut(e) => {
                self.add_revision(e.revision, record, time);
                self.put_object(e)?
            }
            Event::OperationAccepted(e) => {
                self.add_revision(e.revision, record, time.clone());
                self.unrendered.insert((e.revision, e.operation));
                self.put("operations", e.operation, operation(e, record, time))
            }
            Event::OperationFinished(e) => {
                let columns = [("state", words(e.state)), ("detail", words(&e.detail)), ("finished_at", time)];
                self.amend("operations", e.operation, columns)
            }
            Event::OutcomeRecorded(e) => self.take_outcome(e, time)?,
            Event::RenderCommitted(e) => self.finish_rendering(e.revision, &time).or_else(|| self.progress(e, time)),
            Event::RenderDesired(e) => self.desire(e, &time),
            Event::RenderSignedAgain(e) => self.sign_again(e),
            Event::RolloutAborted(e) => rollout::aborted(&mut self.rows, e, time),
            Event::RolloutFinished(e) => rollout::finished(&mut self.rows, e, time),
            Event::RolloutHalted(e) => rollout::halted(&mut self.rows, e),
            Event::RolloutPaused(e) => rollout::paused(&mut self.rows, e, record),
            Event::RolloutResumed(e) => rollout::resumed(&mut self.rows, e, time),
            Event::RolloutStageOpened(e) => rollout::stage_opened(&mut self.rows, e, time),
            Event::RolloutStaged(e) => rollout::staged(&mut self.rows, e),
            Event::RolloutStarted(e) => self.put("rollouts", e.rollout, rollout::started(e, record, time)?),
            Event::SessionClosed(e) => {
                self.amend("sessions", e.host, [("closed_at", time), ("close_reason", words(e.reason))])
            }
            Event::SessionOpened(e) => self.amend("sessions", e.host, session(e, time)),
            Event::SnapshotSent(e) => self.amend("observed", observed_key(e.host, e.component), snapshot(e, time)),
            Event::StatusRecorded(e) => self.put("statuses", e.host, status(e, time)?),
            // These are facts about what did not become state.
            Event::AuthorityRollbackConfirmed(_)
            | Event::CertificateRequested(_)
            | Event::EnrolmentRefused(_)
            | Event::HostDirected(_)
            | Event::ProtocolFault(_)
            | Event::SessionContested(_) => None,
        };
        Ok(refused)
    }

    fn raise(&mut self, e: &AuthorityEpochRaised, record: &Record, time: Value) -> Refused {
        let raised = [
            ("authority_epoch", json!(e.epoch)),
            ("raised_at", time),
            ("raised_by", words(record.actor)),
            ("raised_for", words(&e.detail)),
        ];
        self.amend("authority", "", raised)
    }

    fn drift(&mut self, told: &Told<'_>, time: Value) -> Result<Refused, Error> {
        Ok(self.put("drifts", told.key(), told.row(time)?))
    }

    fn put(&mut self, table: &'static str, key: impl ToString, row: Row) -> Refused {
        self.rows.put(table, key, row);
        None
    }

    fn add(&mut self, table: &'static str, row: Row) -> Refused {
        self.rows.add(table, row);
        None
    }

    fn use_token(&mut self, token: EnrolTokenId) -> Refused {
        let Some(row) = self.rows.find("enrol_tokens", token) else { return Some(NO_ROW) };
        let uses = row.get("uses").and_then(Value::as_u64).unwrap_or_default();
        set(row, [("uses", json!(uses + 1))]);
        None
    }

    fn take_outcome(&mut self, e: &OutcomeRecorded, time: Value) -> Result<Refused, Error> {
        let key = observed_key(e.host, e.component);
        if let (Some(column), Some(row)) = (instant(e.kind), self.rows.find("observed", &key)) {
            set(row, [(column, time.clone())]);
        }
        Ok(self.amend("observed", key, outcome(e, time)?))
    }

    fn put_object(&mut self, e: &ObjectPut) -> Result<Refused, Error> {
        // The first of its name has nothing to end.
        self.end_object(e.object, e.revision).unwrap_or_default();
        let (spec, digest) = match &e.content {
            Content::Inline(spec) => (to_json("spec", spec)?, Value::Null),
            Content::Artifact { digest, .. } => (Value::Null, bytes(digest)),
        };
        let row = row([
            ("object_id", words(e.object.uuid())),
            ("kind", words(e.content.kind())),
            ("namespace", words(&e.namespace)),
            ("name", words(&e.name)),
            ("spec", spec),
            ("spec_digest", digest),
            ("from_revision", json!(e.revision)),
            ("to_revision", Value::Null),
        ]);
        let key = format!("{} {}", e.object, e.revision);
        self.objects.insert(e.object, key.clone());
        Ok(self.put("objects", key, row))
    }

    fn end_object(&mut self, object: ObjectId, revision: Revision) -> Result<(), &'static str> {
        let key = self.objects.remove(&object).ok_or(NO_ROW)?;
        let refused = self.amend("objects", &key, [("to_revision", json!(revision))]);
        self.rows.finish("objects", key);
        refused.map_or(Ok(()), Err)
    }

    fn relocate(&mut self, e: &HostAddressesChanged) -> Refused {
        let Some(old) = self.facts.remove(&e.host) else { return Some(NO_ROW) };
        let Some(facts) = self.rows.find("host_facts", &old) else { return Some(NO_ROW) };
        let mut new = facts.clone();
        set(facts, [("to_revision", json!(e.revision))]);
        self.rows.finish("host_facts", old);
        set(&mut new, [("addresses", list(&e.addresses)), ("from_revision", json!(e.revision))]);
        let key = format!("{} {}", e.host, e.revision);
        self.facts.insert(e.host, key.clone());
        self.put("host_facts", key, new)
    }

    fn amend<const N: usize>(
        &mut self,
        table: &'static str,
        key: impl ToString,
        columns: [(&str, Value); N],
    ) -> Refused {
        match self.rows.find(table, key) {
            Some(row) => {
                set(row, columns);
                None
            }
            None => Some(NO_ROW),
        }
    }

    /// A revision may be told of by several events of its transaction; the first adds it.
    fn add_revision(&mut self, revision: Revision, record: &Record, time: Value) {
        if revision <= self.revision {
            return;
        }
        self.revision = revision;
        let row = row([
            ("revision", json!(revision)),
            ("at", time),
            ("actor", words(record.actor)),
            ("operation_id", maybe(record.correlation.map(OperationId::uuid))),
        ]);
        self.rows.add("revisions", row);
    }

    fn enrol(&mut self, e: &HostEnrolled, time: Value) -> Result<Refused, Error> {
        let host = words(e.host.uuid());
        let identity = row([
            ("host_id", host.clone()),
            ("namespace", words(&e.namespace)),
            ("name", words(&e.name)),
            ("region", maybe(e.region.as_ref())),
            ("owner", maybe(e.owner.as_ref())),
            ("address_scope", list(&e.address_scope)),
            ("token_id", words(e.token.uuid())),
            ("outcome_key", bytes(e.outcome_key)),
            ("enrolled_at", time),
        ]);
        self.rows.put("hosts", e.host, identity);
        let facts = row([
            ("host_id", host.clone()),
            ("labels", to_json("labels", &e.labels)?),
            ("ports", to_json("ports", &e.ports)?),
            ("addresses", list(&e.addresses)),
            ("from_revision", json!(e.revision)),
            ("to_revision", Value::Null),
        ]);
        let key = format!("{} {}", e.host, e.revision);
        self.facts.insert(e.host, key.clone());
        self.rows.put("host_facts", key, facts);
        self.rows.put("sessions", e.host, row([("host_id", host.clone()), ("session_epoch", json!(0))]));
        for component in Component::ALL {
            let row = row([
                ("host_id", host.clone()),
                ("component", json!(small(component))),
                ("session_epoch", json!(0)),
                ("update_seq", json!(0)),
                ("conditions", json!([])),
            ]);
            self.rows.put("observed", observed_key(e.host, component), row);
        }
        Ok(None)
    }

    fn decommission(&mut self, e: &HostDecommissioned, time: Value) -> Refused {
        let Some(facts) = self.facts.remove(&e.host) else { return Some(NO_ROW) };
        let refused = self
            .amend("host_facts", &facts, [("to_revision", json!(e.revision))])
            .or_else(|| self.amend("hosts", e.host, [("decommissioned_at", time)]));
        self.rows.finish("host_facts", facts);
        self.rows.finish("hosts", e.host);
        self.rows.remove("sessions", e.host);
        self.rows.remove("statuses", e.host);
        for component in Component::ALL {
            self.rows.remove("observed", observed_key(e.host, component));
        }
        for kind in DriftKind::ALL {
            self.rows.remove("drifts", drift_key(e.host, kind));
        }
        refused
    }

    fn sign_again(&mut self, e: &RenderSignedAgain) -> Refused {
        let sign = |state: &DesiredState| {
            let columns = [("signature", bytes(state.signature)), ("authority_epoch", json!(e.authority_epoch))];
            self.amend("desired_latest", observed_key(state.host, state.component), columns)
        };
        e.states.iter().map(sign).find_map(std::convert::identity)
    }

    fn finish_rendering(&mut self, revision: Revision, time: &Value) -> Refused {
        let newest = self.rendered.max(revision);
        while let Some((of, operation)) = self.unrendered.first().copied().filter(|(of, _)| *of <= revision) {
            self.unrendered.remove(&(of, operation));
            let columns = [("rendered_revision", json!(newest)), ("rendered_at", time.clone())];
            if let Some(refused) = self.amend("operations", operation, columns) {
                return Some(refused);
            }
        }
        None
    }

    /// What was said of hosts that are not held back stays until it is said of others.
    fn progress(&mut self, e: &RenderCommitted, time: Value) -> Refused {
        const LET_GO: [&str; 3] = ["let_go_rollout_id", "let_go_stage", "let_go_revision"];
        let said = match &e.let_go {
            Some(e) => [words(e.rollout.uuid()), json!(e.stage), json!(e.revision)],
            None => {
                let before = self.rows.find("render_progress", "");
                LET_GO.map(|column| before.as_ref().and_then(|row| row.get(column)).cloned().unwrap_or_default())
            }
        };
        let mut new = row([
            ("only_row", json!(true)),
            ("revision", json!(e.revision)),
            ("lease_term", json!(e.lease_term)),
            ("rendered_at", time),
        ]);
        new.extend(LET_GO.map(str::to_owned).into_iter().zip(said));
        self.put("render_progress", "", new)
    }

    fn desire(&mut self, e: &RenderDesired, time: &Value) -> Refused {
        self.rendered = self.rendered.max(e.revision);
        for state in &e.states {
            let mut row = row([
                ("host_id", words(state.host.uuid())),
                ("component", json!(small(state.component))),
                ("version", json!(state.version)),
                ("digest", bytes(state.digest)),
                ("signature", bytes(state.signature)),
                ("authority_epoch", json!(e.authority_epoch)),
                ("revision", json!(e.revision)),
                ("rendered_at", time.clone()),
            ]);
            self.rows.put("desired_latest", observed_key(state.host, state.component), row.clone());
            set(&mut row, [("lease_term", json!(e.lease_term))]);
            self.rows.add("desired_states", row);
        }
        None
    }
}

pub(super) const NO_ROW: &str = "an event about something that an earlier event made";

fn api_token(e: &ApiTokenCreated, record: &Record, time: Value) -> Result<Row, Error> {
    Ok(row([
        ("token_id", words(e.token.uuid())),
        ("name", words(&e.name)),
        ("role", words(e.role)),
        ("namespaces", to_json("namespaces", &e.namespaces)?),
        ("expires_at", e.expires_at.map(at).transpose()?.unwrap_or_default()),
        ("created_at", time),
        ("created_by", words(record.actor)),
        ("revoked_at", Value::Null),
    ]))
}

fn authority(e: &AuthorityCreated, time: Value) -> Row {
    row([
        ("only_row", json!(true)),
        ("authority_id", words(e.authority.uuid())),
        ("authority_epoch", json!(e.epoch)),
        ("created_at", time),
        ("raised_at", Value::Null),
        ("raised_by", Value::Null),
        ("raised_for", Value::Null),
    ])
}

fn certificate(e: &CertificateIssued, time: Value) -> Result<Row, Error> {
    Ok(row([
        ("serial", words(&e.serial)),
        ("host_id", words(e.host.uuid())),
        ("request_id", words(e.request.uuid())),
        ("not_before", at(e.not_before)?),
        ("not_after", at(e.not_after)?),
        ("issued_at", time),
    ]))
}

fn lease(e: &LeaseAcquired) -> Row {
    row([
        ("name", words(&e.name)),
        ("holder", words(&e.holder)),
        ("term", json!(e.term)),
        // Not compared, but no row is without it.
        ("expires_at", words("epoch")),
    ])
}

fn observed_key(host: HostId, component: Component) -> String {
    format!("{host} {component}")
}

fn enrol_token(e: &EnrolTokenCreated, record: &Record, time: Value) -> Result<Row, Error> {
    Ok(row([
        ("token_id", words(e.token.uuid())),
        ("namespace", words(&e.namespace)),
        ("labels", to_json("labels", &e.labels)?),
        ("ports", to_json("ports", &e.ports)?),
        ("region", maybe(e.region.as_ref())),
        ("owner", maybe(e.owner.as_ref())),
        ("address_scope", list(&e.address_scope)),
        ("uses_max", json!(e.uses_max)),
        ("uses", json!(0)),
        ("expires_at", at(e.expires_at)?),
        ("created_at", time),
        ("created_by", words(record.actor)),
        ("revoked_at", Value::Null),
    ]))
}

fn operation(e: &OperationAccepted, record: &Record, time: Value) -> Row {
    row([
        ("operation_id", words(e.operation.uuid())),
        ("verb", words(e.verb)),
        ("actor", words(record.actor)),
        ("revision", json!(e.revision)),
        ("changes", json!(e.changes)),
        ("state", words(OperationState::Accepted)),
        ("detail", words("")),
        ("created_at", time),
        ("finished_at", Value::Null),
        ("rendered_revision", Value::Null),
        ("rendered_at", Value::Null),
    ])
}

fn session(e: &SessionOpened, time: Value) -> [(&'static str, Value); 8] {
    [
        ("session_epoch", json!(e.session_epoch)),
        ("protocol", json!(e.protocol)),
        ("gateway_id", words(e.gateway.uuid())),
        ("agent_version", words(&e.agent_version)),
        ("boot_id", words(e.boot_id)),
        ("opened_at", time),
        ("closed_at", Value::Null),
        ("close_reason", Value::Null),
    ]
}

fn status(e: &StatusRecorded, time: Value) -> Result<Row, Error> {
    Ok(row([
        ("host_id", words(e.host.uuid())),
        ("session_epoch", json!(e.session_epoch)),
        ("seq", json!(e.seq)),
        ("answered", json!(e.answered)),
        ("digest", bytes(e.digest)),
        ("components", to_json("components", &e.components)?),
        ("signature", bytes(e.signature)),
        ("told_at", time),
        ("failing", json!({})),
    ]))
}

fn snapshot(e: &SnapshotSent, time: Value) -> [(&'static str, Value); 5] {
    [
        ("last_snapshot_session_epoch", json!(e.session_epoch)),
        ("last_snapshot_update_seq", json!(e.update_seq)),
        ("last_snapshot_version", json!(e.stamp.version)),
        ("last_snapshot_digest", bytes(e.stamp.digest)),
        ("last_snapshot_sent_at", time),
    ]
}

/// The column for the instant of outcomes of this kind, which those of another kind leave as it is.
const fn instant(kind: OutcomeKind) -> Option<&'static str> {
    match kind {
        OutcomeKind::Applied => Some("last_acked_at"),
        OutcomeKind::Failed => Some("last_apply_failed_at"),
        OutcomeKind::RetainedLocalOverride => None,
    }
}

fn outcome(e: &OutcomeRecorded, time: Value) -> Result<[(&'static str, Value); 12], Error> {
    let version = |stamp: Option<Stamp>| stamp.map_or(Value::Null, |stamp| json!(stamp.version));
    let digest = |stamp: Option<Stamp>| stamp.map_or(Value::Null, |stamp| bytes(stamp.digest));
    Ok([
        ("session_epoch", json!(e.session_epoch)),
        ("update_seq", json!(e.update_seq)),
        ("outcome", json!(e.kind.number())),
        ("wanted_version", version(Some(e.wanted))),
        ("wanted_digest", digest(Some(e.wanted))),
        ("applied_version", version(e.applied)),
        ("applied_digest", digest(e.applied)),
        ("reason", words(e.reason)),
        ("detail", words(&e.detail)),
        ("conditions", to_json("conditions", &e.conditions)?),
        ("signature", bytes(e.signature)),
        ("outcome_at", time),
    ])
}
