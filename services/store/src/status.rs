//! Evidence about the fleet: what is stored, read in one consistent state, for the one derivation in the model.
//!
//! - A session counts as open only while its gateway's lease holds: a dead replica's hosts are offline by themselves.
//! - A time in which the database was away is counted against nobody: neither against a lease nor as silence of a host.
//! - An outcome counts only if it is of the session that is the host's now. Whether its signature is the host's is checked by the caller,
//!   who has the keys' code; what was signed, the signature and the key are handed out for that.
//! - What cannot be read costs the one host that it is of: nothing else of that is believed, and all others are told as ever. A host's own name and
//!   namespace alone are needed to tell of it at all, as they are to render it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_events::{SignatureBytes, VerifyingKeyBytes};
use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{GatewayId, HostId, RolloutId};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_model::numbers::{Revision, SessionEpoch, UpdateSeq};
use holdfast_model::rollout::RolloutState;
use holdfast_model::silence::{LOST_AFTER_MS, Others, Presence, Silence};
use holdfast_model::statement::{Outcome, OutcomeKind};
use holdfast_model::status::{Evidence, Link, Reported, Said, Verdict, Words, derive};
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::{ahead, waits};
use crate::drift::{self, KeptDrift};
use crate::error::Error;
use crate::intent::latest_revision;
use crate::pool::{Mode, Store};
use crate::pulse::{self, absence, mass_silence, silence_since};
use crate::render::rendered;
use crate::report::{self, ObservedReport};
use crate::value::{component, from_json, number, signature, stamp, text, verifying_key};

/// The fleet as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetStatus {
    /// The last revision; zero before the first.
    pub revision: Revision,
    /// Up to which revision everything is rendered; zero before the first render.
    pub rendered_revision: Revision,
    /// The hosts that were asked for, by their ids.
    pub hosts: Vec<HostStatus>,
}

/// One host as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStatus {
    /// Its identity.
    pub host: HostId,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Labels of its token.
    pub labels: Labels,
    /// Where it is.
    pub addresses: Vec<IpAddr>,
    /// The key with which it signs its outcomes.
    pub outcome_key: VerifyingKeyBytes,
    /// When it was enrolled.
    pub enrolled_at: OffsetDateTime,
    /// Its newest session, if it ever had one.
    pub session: Option<SessionStatus>,
    /// When it was last heard, in any session.
    pub last_seen_at: Option<OffsetDateTime>,
    /// What its silence makes of it; a time in which the database was away is no silence.
    pub presence: Presence,
    /// Every component.
    pub components: Vec<ComponentStatus>,
    /// What it told of its kernel, by kind.
    pub drifts: Vec<KeptDrift>,
    /// What it last said of itself as a whole, in any session.
    pub report: Option<ObservedReport>,
    /// What holds it at an earlier revision than the last, if anything does.
    pub held: Option<HeldAt>,
    /// The first column that holds something of it that cannot be read, if one does.
    pub unreadable: Option<&'static str>,
}

/// A host is held at a revision by a rollout that has not opened its stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldAt {
    /// Which rollout.
    pub rollout: RolloutId,
    /// The revision that the host is held at.
    pub revision: Revision,
    /// Its stage.
    pub stage: u32,
    /// How far the rollout is.
    pub state: RolloutState,
}

/// Something that a host signed.
#[derive(Clone, Copy, Debug)]
pub enum Signed<'a> {
    /// How an update ended.
    Outcome(&'a ObservedOutcome),
    /// How it is as a whole.
    Report(&'a ObservedReport),
}

/// A host's newest session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Its number.
    pub session_epoch: SessionEpoch,
    /// The gateway process that holds or held it.
    pub gateway: GatewayId,
    /// What the agent says of its build.
    pub agent_version: String,
    /// When it began.
    pub opened_at: OffsetDateTime,
    /// How long ago it began.
    pub opened_ms_ago: u64,
    /// For how long the authority has been there in it without a break.
    pub heard_of_ms: u64,
    /// How long ago the host was heard in it; absent if it is not open.
    pub heard_ms_ago: Option<u64>,
    /// What the host can say in it.
    pub words: Words,
}

/// One component of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComponentStatus {
    /// Which.
    pub component: Component,
    /// What is desired; absent before the first render.
    pub latest: Option<Stamp>,
    /// The revision at which that got its content.
    pub latest_revision: Option<Revision>,
    /// What the host last said, in any session.
    pub outcome: Option<ObservedOutcome>,
    /// When a whole state was last sent.
    pub last_snapshot_sent_at: Option<OffsetDateTime>,
    /// When the host last said that an update is in force, in any session.
    pub last_acked_at: Option<OffsetDateTime>,
    /// When it last said that one failed; a success after it does not move it.
    pub last_apply_failed_at: Option<OffsetDateTime>,
    /// Why what is desired does not reach the host, where that is the authority's life.
    pub held_back: Option<HeldBack>,
}

/// Why what is desired does not reach a host: the database was restored or promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBack {
    /// It holds what this database never rendered, and nobody said that it was restored: it refuses what is older.
    Ahead(
        /// What it holds.
        Stamp,
    ),
    /// It would go back, and waits for an operator.
    Confirmation(
        /// What it holds.
        Stamp,
    ),
    /// It was not heard in this life of the authority.
    Unheard,
}

/// What a host said of one update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedOutcome {
    /// What was signed.
    pub outcome: Outcome,
    /// The signature.
    pub signature: SignatureBytes,
    /// Why, as a code.
    pub reason: Reason,
    /// Why, in the agent's words.
    pub detail: String,
    /// Every condition of the attempt.
    pub conditions: Vec<Condition>,
    /// When it was recorded.
    pub at: OffsetDateTime,
}

impl HostStatus {
    /// Something that is stored of it cannot be read. What else went wrong is no matter of one host.
    fn mark(&mut self, error: Error) -> Result<(), Error> {
        let Error::Value { column, .. } = error else { return Err(error) };
        self.unreadable.get_or_insert(column);
        Ok(())
    }

    /// For how long it has said nothing of itself as a whole in its newest session.
    fn untold_ms(&self) -> u64 {
        let Some(session) = &self.session else { return 0 };
        let is_of_it = |report: &&ObservedReport| report.place.session_epoch == session.session_epoch;
        let told = self.report.as_ref().filter(is_of_it).map(|report| report.told_ms_ago);
        told.unwrap_or(session.heard_of_ms)
    }

    /// What the evidence of one component amounts to. `trusts` says whether a signature is the host's: without one that is, nothing was said.
    #[must_use]
    pub fn verdict_of(
        &self,
        component: &ComponentStatus,
        trusts: &impl Fn(&VerifyingKeyBytes, Signed<'_>) -> bool,
    ) -> Verdict {
        let session = self.session.as_ref();
        let link = match session.map(|session| session.heard_ms_ago) {
            None => Link::Never,
            Some(None) => Link::Closed,
            Some(Some(heard_ms_ago)) => Link::Open { heard_ms_ago },
        };
        let said = component.outcome.as_ref().map(|said| Said {
            in_this_session: session.is_some_and(|session| session.session_epoch == said.outcome.session_epoch),
            is_genuine: trusts(&self.outcome_key, Signed::Outcome(said)),
            kind: said.outcome.kind,
            wanted: said.outcome.wanted,
            applied: said.outcome.applied,
            conditions: &said.conditions,
        });
        let is_held = self.held.is_some();
        let words = session.map_or(Words::Outcomes, |session| session.words);
        let of_component = self.report.as_ref().and_then(|report| Some((report, report.of(component.component)?)));
        let reported = of_component.map(|(report, of)| Reported {
            in_this_session: session.is_some_and(|session| session.session_epoch == report.place.session_epoch),
            is_genuine: trusts(&self.outcome_key, Signed::Report(report)),
            is_newer: component.outcome.as_ref().is_none_or(|said| {
                let Outcome { session_epoch, update_seq, .. } = said.outcome;
                (session_epoch, update_seq) <= (report.place.session_epoch, report.report.answered)
            }),
            applied: of.applied,
            conditions: &of.conditions,
        });
        derive(&Evidence {
            component: component.component,
            words,
            reported,
            untold_ms: self.untold_ms(),
            is_readable: self.unreadable.is_none(),
            latest: component.latest,
            link,
            said,
            is_held,
        })
    }
}

impl Store {
    /// The fleet, or some hosts of it.
    ///
    /// # Errors
    /// [`Error::Value`] if it cannot be read which hosts there are. What of one cannot be read is told of that one, and never shown as something else.
    pub async fn fleet_status(&self, hosts: Option<Vec<HostId>>) -> Result<FleetStatus, Error> {
        self.transact("load the fleet's status", Mode::LongSnapshot, move |tx| {
            let hosts: Option<Vec<Uuid>> = hosts.as_ref().map(|hosts| hosts.iter().map(|host| host.uuid()).collect());
            Box::pin(async move { load(tx, hosts).await })
        })
        .await
    }
}

#[derive(sqlx::FromRow)]
struct HostRow {
    host_id: Uuid,
    namespace: String,
    name: String,
    labels: serde_json::Value,
    addresses: Vec<IpNet>,
    outcome_key: Vec<u8>,
    enrolled_at: OffsetDateTime,
    session_epoch: i64,
    gateway_id: Option<Uuid>,
    agent_version: Option<String>,
    opened_at: Option<OffsetDateTime>,
    protocol: Option<i16>,
    opened_ms_ago: Option<i64>,
    heard_of_ms: Option<i64>,
    is_open: bool,
    heard_at: Option<OffsetDateTime>,
    heard_ms_ago: Option<i64>,
    silent_ms: Option<i64>,
    silent_with_others_ms: Option<i64>,
    held_by: Option<Uuid>,
    held_revision: Option<i64>,
    held_stage: Option<i32>,
    held_state: Option<String>,
}

#[derive(sqlx::FromRow)]
struct ComponentRow {
    host_id: Uuid,
    component: i16,
    latest_version: Option<i64>,
    latest_digest: Option<Vec<u8>>,
    latest_revision: Option<i64>,
    session_epoch: i64,
    update_seq: i64,
    outcome: Option<i16>,
    wanted_version: Option<i64>,
    wanted_digest: Option<Vec<u8>>,
    applied_version: Option<i64>,
    applied_digest: Option<Vec<u8>>,
    reason: Option<String>,
    detail: Option<String>,
    conditions: serde_json::Value,
    signature: Option<Vec<u8>>,
    outcome_at: Option<OffsetDateTime>,
    last_snapshot_sent_at: Option<OffsetDateTime>,
    last_acked_at: Option<OffsetDateTime>,
    last_apply_failed_at: Option<OffsetDateTime>,
    held_back: Option<String>,
    claimed_version: Option<i64>,
    claimed_digest: Option<Vec<u8>>,
}

async fn load(tx: &mut PgConnection, hosts: Option<Vec<Uuid>>) -> Result<FleetStatus, Error> {
    let revision = latest_revision(&mut *tx).await?;
    let rendered_revision = rendered(&mut *tx).await?.unwrap_or_default();
    let rows: Vec<HostRow> = sqlx::query_as(concat!(
        "SELECT h.host_id, h.namespace, h.name, f.labels, f.addresses, h.outcome_key, h.enrolled_at, \
                s.session_epoch, s.gateway_id, s.agent_version, s.opened_at, s.protocol, p.heard_at, \
                (extract(epoch FROM clock_timestamp() - s.opened_at) * 1000)::bigint AS opened_ms_ago, \
                (extract(epoch FROM clock_timestamp() - greatest(s.opened_at, ",
        silence_since!(),
        ")) * 1000)::bigint AS heard_of_ms, \
                s.opened_at IS NOT NULL AND s.closed_at IS NULL AND p.session_epoch = s.session_epoch \
                    AND coalesce(l.expires_at > clock_timestamp() OR l.expires_at > a.began, false) AS is_open, \
                (extract(epoch FROM clock_timestamp() - p.heard_at \
                    - greatest(a.ended - greatest(a.began, p.heard_at), interval '0')) * 1000)::bigint AS heard_ms_ago, \
                (extract(epoch FROM clock_timestamp() - greatest(p.heard_at, ",
        silence_since!(),
        ")) * 1000)::bigint AS silent_ms, \
                (extract(epoch FROM q.ended - greatest(q.began, p.heard_at, ",
        silence_since!(),
        ")) * 1000)::bigint AS silent_with_others_ms, \
                m.rollout_id AS held_by, m.stage AS held_stage, r.held_revision, r.state AS held_state \
         FROM hosts h JOIN host_facts f ON f.host_id = h.host_id AND f.to_revision IS NULL \
         JOIN sessions s ON s.host_id = h.host_id \
         LEFT JOIN presence p ON p.host_id = h.host_id \
         LEFT JOIN rollouts r ON r.state IN ('progressing', 'paused', 'halted') \
         LEFT JOIN rollout_hosts m ON m.rollout_id = r.rollout_id AND m.host_id = h.host_id AND m.stage > r.stage \
         LEFT JOIN leases l ON l.name = 'gw_' || s.gateway_id::text \
         LEFT JOIN ",
        absence!(),
        " a ON true CROSS JOIN ",
        mass_silence!(),
        " q WHERE $1::uuid[] IS NULL OR h.host_id = ANY($1)",
    ))
    .bind(&hosts)
    .fetch_all(&mut *tx)
    .await?;
    let others = others(tx, &rows).await?;
    let mut statuses = BTreeMap::new();
    for row in rows {
        let status = row.status(others)?;
        statuses.insert(status.host, status);
    }
    for row in load_components(tx, hosts.as_ref()).await? {
        let host = HostId::new(row.host_id);
        let status = statuses.get_mut(&host).ok_or_else(|| Error::value("observed.host_id", host))?;
        status.take(row)?;
    }
    for (host, drift) in drift::load(tx, hosts.as_ref()).await? {
        let Some(status) = statuses.get_mut(&host) else { continue };
        match drift {
            Ok(drift) => status.drifts.push(drift),
            Err(error) => status.mark(error)?,
        }
    }
    for (host, report) in report::load(tx, hosts.as_ref()).await? {
        let Some(status) = statuses.get_mut(&host) else { continue };
        match report {
            Ok(report) => status.report = Some(report),
            Err(error) => status.mark(error)?,
        }
    }
    Ok(FleetStatus { revision, rendered_revision, hosts: statuses.into_values().collect() })
}

async fn load_components(tx: &mut PgConnection, hosts: Option<&Vec<Uuid>>) -> Result<Vec<ComponentRow>, Error> {
    let rows = sqlx::query_as(concat!(
        "SELECT o.host_id, o.component, l.version AS latest_version, l.digest AS latest_digest, \
                l.revision AS latest_revision, o.session_epoch, o.update_seq, o.outcome, o.wanted_version, \
                o.wanted_digest, o.applied_version, o.applied_digest, o.reason, o.detail, o.conditions, o.signature, \
                o.outcome_at, o.last_snapshot_sent_at, o.last_acked_at, o.last_apply_failed_at, c.version AS claimed_version, c.digest AS claimed_digest, \
                CASE WHEN ",
        waits!(),
        " THEN 'confirmation' WHEN ",
        ahead!(),
        " THEN 'ahead' WHEN l.authority_epoch < a.authority_epoch AND c.authority_epoch IS DISTINCT FROM a.authority_epoch \
                THEN 'unheard' END AS held_back \
         FROM observed o CROSS JOIN authority a LEFT JOIN desired_latest l USING (host_id, component) \
         LEFT JOIN claims c USING (host_id, component) \
         WHERE $1::uuid[] IS NULL OR o.host_id = ANY($1) ORDER BY o.host_id, o.component"
    ))
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    Ok(rows)
}

/// Whether most of the fleet is silent, which is asked only if it makes a difference for one of these.
async fn others(tx: &mut PgConnection, rows: &[HostRow]) -> Result<Others, Error> {
    if !rows.iter().any(|row| row.silence().is_some_and(|silence| silence.alone_ms >= LOST_AFTER_MS)) {
        return Ok(Others::default());
    }
    pulse::others(tx).await
}

/// What was read; or what stands in its place, and the column that it cannot be read of.
#[derive(Default)]
struct Unread(Option<&'static str>);

impl Unread {
    fn or<T>(&mut self, read: Result<T, Error>, otherwise: T) -> Result<T, Error> {
        match read {
            Ok(read) => Ok(read),
            Err(Error::Value { column, .. }) => {
                self.0.get_or_insert(column);
                Ok(otherwise)
            }
            Err(error) => Err(error),
        }
    }
}

impl HostRow {
    fn held(&self) -> Result<Option<HeldAt>, Error> {
        let (Some(rollout), Some(stage), Some(raw)) = (self.held_by, self.held_stage, self.held_revision) else {
            return Ok(None);
        };
        Ok(Some(HeldAt {
            rollout: RolloutId::new(rollout),
            revision: Revision::from_raw(number("rollouts.held_revision", raw)?),
            stage: u32::try_from(stage).map_err(|_| Error::value("rollout_hosts.stage", stage))?,
            state: text("rollouts.state", self.held_state.as_deref().unwrap_or_default())?,
        }))
    }

    fn silence(&self) -> Option<Silence> {
        // As for `heard_ms_ago`; who was never heard is not silent since the database was away.
        let ms = self.heard_at.and(self.silent_ms).map(|ms| u64::try_from(ms).unwrap_or(0))?;
        let with_others = self.silent_with_others_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
        Some(Silence { ms, alone_ms: ms.saturating_sub(with_others) })
    }

    fn session(&self) -> Result<Option<SessionStatus>, Error> {
        Ok(match (self.gateway_id, self.opened_at) {
            (Some(gateway), Some(opened_at)) => Some(SessionStatus {
                session_epoch: SessionEpoch::from_raw(number("sessions.session_epoch", self.session_epoch)?),
                gateway: GatewayId::new(gateway),
                agent_version: self.agent_version.clone().unwrap_or_default(),
                opened_at,
                opened_ms_ago: self.opened_ms_ago.map_or(0, |ms| u64::try_from(ms).unwrap_or(0)),
                heard_of_ms: self.heard_of_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0)),
                words: Words::of_protocol(self.protocol.and_then(|protocol| u16::try_from(protocol).ok())),
                // A clock that was set back makes a moment ago look like the future; that is fresh.
                heard_ms_ago: self.heard_ms_ago.filter(|_| self.is_open).map(|ms| u64::try_from(ms).unwrap_or(0)),
            }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(Error::value("sessions.gateway_id", self.host_id)),
        })
    }

    fn status(self, others: Others) -> Result<HostStatus, Error> {
        let mut unread = Unread::default();
        let presence = Presence::of(self.silence(), others);
        let (host, no_key) = (HostId::new(self.host_id), VerifyingKeyBytes::from_bytes([0; 32]));
        Ok(HostStatus {
            held: unread.or(self.held(), None)?,
            session: unread.or(self.session(), None)?,
            host,
            namespace: unread.or(text("hosts.namespace", &self.namespace), Name::unreadable(host))?,
            name: unread.or(text("hosts.name", &self.name), Name::unreadable(host))?,
            labels: unread.or(from_json("host_facts.labels", self.labels), Labels::new())?,
            addresses: self.addresses.iter().map(IpNet::addr).collect(),
            outcome_key: unread.or(verifying_key("hosts.outcome_key", &self.outcome_key), no_key)?,
            enrolled_at: self.enrolled_at,
            last_seen_at: self.heard_at,
            presence,
            components: Vec::new(),
            drifts: Vec::new(),
            report: None,
            unreadable: unread.0,
        })
    }
}

impl HostStatus {
    /// Takes in what is stored of one component; one that cannot be read is there, with nothing known of it.
    fn take(&mut self, row: ComponentRow) -> Result<(), Error> {
        let unread = component(row.component).map(ComponentStatus::unread);
        match row.status() {
            Ok(status) => self.components.push(status),
            Err(error) => {
                self.mark(error)?;
                self.components.extend(unread.ok());
            }
        }
        Ok(())
    }
}

impl ComponentStatus {
    const fn unread(component: Component) -> Self {
        Self {
            component,
            latest: None,
            latest_revision: None,
            outcome: None,
            last_snapshot_sent_at: None,
            last_acked_at: None,
            last_apply_failed_at: None,
            held_back: None,
        }
    }
}

impl ComponentRow {
    fn status(self) -> Result<ComponentStatus, Error> {
        let latest = stamp("desired_latest.version", self.latest_version, self.latest_digest.as_deref())?;
        let held_back = self.held_back()?;
        let revision = self.latest_revision.map(|raw| number("desired_latest.revision", raw)).transpose()?;
        Ok(ComponentStatus {
            component: component(self.component)?,
            latest,
            latest_revision: revision.map(Revision::from_raw),
            last_snapshot_sent_at: self.last_snapshot_sent_at,
            last_acked_at: self.last_acked_at,
            last_apply_failed_at: self.last_apply_failed_at,
            held_back,
            outcome: self.outcome()?,
        })
    }

    fn held_back(&self) -> Result<Option<HeldBack>, Error> {
        let claimed = stamp("claims.version", self.claimed_version, self.claimed_digest.as_deref())?;
        match (self.held_back.as_deref(), claimed) {
            (None, _) => Ok(None),
            (Some("confirmation"), Some(held)) => Ok(Some(HeldBack::Confirmation(held))),
            (Some("ahead"), Some(held)) => Ok(Some(HeldBack::Ahead(held))),
            (Some("unheard"), _) => Ok(Some(HeldBack::Unheard)),
            (Some(word), _) => Err(Error::value("claims", word)),
        }
    }

    fn outcome(self) -> Result<Option<ObservedOutcome>, Error> {
        let Some(raw) = self.outcome else { return Ok(None) };
        let lacks = |column| Error::value(column, "nothing beside an outcome");
        let kind = u8::try_from(raw).ok().and_then(OutcomeKind::from_number);
        let wanted = stamp("observed.wanted_version", self.wanted_version, self.wanted_digest.as_deref())?;
        let outcome = Outcome {
            host: HostId::new(self.host_id),
            session_epoch: SessionEpoch::from_raw(number("observed.session_epoch", self.session_epoch)?),
            update_seq: UpdateSeq::from_raw(number("observed.update_seq", self.update_seq)?),
            component: component(self.component)?,
            kind: kind.ok_or_else(|| Error::value("observed.outcome", raw))?,
            wanted: wanted.ok_or(lacks("observed.wanted_version"))?,
            applied: stamp("observed.applied_version", self.applied_version, self.applied_digest.as_deref())?,
        };
        let reason = self.reason.ok_or(lacks("observed.reason"))?;
        Ok(Some(ObservedOutcome {
            outcome,
            signature: signature("observed.signature", &self.signature.ok_or(lacks("observed.signature"))?)?,
            reason: Reason::from_word(&reason).ok_or_else(|| Error::value("observed.reason", &reason))?,
            detail: self.detail.ok_or(lacks("observed.detail"))?,
            conditions: from_json("observed.conditions", self.conditions)?,
            at: self.outcome_at.ok_or(lacks("observed.outcome_at"))?,
        }))
    }
}
