//! Sessions begin and end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_events::{
    Actor, AgentVersion, ClaimedState, CloseReason, SessionClosed, SessionContested, SessionOpened, VerifyingKeyBytes,
};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::SessionEpoch;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::instance::{self, Instance, Known, Taking, Verdict};
use super::{Lock, lock_sessions};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, small, text, verifying_key};

/// A session that is to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Whose, as its certificate proved.
    pub host: HostId,
    /// The serial number of that certificate, big-endian.
    pub certificate_serial: Vec<u8>,
    /// What the agent says of its build.
    pub agent_version: AgentVersion,
    /// The host's boot, as its kernel names it, and from where its agent came.
    pub instance: Instance,
    /// What the agent says that it holds: told to people and weighed in a new life of the authority, no base of anything.
    pub applied: Vec<(Component, Stamp)>,
    /// The protocol of the session; none where it is of polls.
    pub protocol: Option<u16>,
}

/// What came of an [`Opening`], in the order in which they were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The session may begin.
    Session {
        /// The host's namespace.
        namespace: Name,
        /// Its number.
        session_epoch: SessionEpoch,
        /// The key with which the host signs its outcomes.
        outcome_key: VerifyingKeyBytes,
        /// Whether the host is between two lives of the authority, or ahead of this one: the renderer may have to look.
        is_between_lives: bool,
    },
    /// Two agents with this identity take the session from each other, and the other one has it for so much longer.
    Contested {
        /// When to come back.
        retry_after: Duration,
    },
    /// The certificate is none that was issued to this host.
    UnknownCertificate,
    /// The host is not enrolled.
    UnknownHost,
}

/// A session that is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closing {
    /// Whose.
    pub host: HostId,
    /// Its number.
    pub session_epoch: SessionEpoch,
    /// Why.
    pub reason: CloseReason,
}

impl Store {
    /// Begins sessions; an open one of the same host ends.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: ask again, a session that nobody holds is ended by the next.
    pub async fn open_sessions(&self, gateway: GatewayId, openings: Vec<Opening>) -> Result<Vec<Opened>, Error> {
        self.transact("open sessions", Mode::Write, move |tx| {
            let openings = openings.clone();
            Box::pin(async move { open(tx, gateway, &openings).await })
        })
        .await
    }

    /// Ends sessions; says of each whether it was the host's open one. Another one is left alone.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn close_sessions(&self, gateway: GatewayId, closings: Vec<Closing>) -> Result<Vec<bool>, Error> {
        self.transact("close sessions", Mode::Write, move |tx| {
            let closings = closings.clone();
            Box::pin(async move { close(tx, gateway, &closings).await })
        })
        .await
    }
}

/// The text form of a serial number, as it is stored.
fn serial_text(serial: &[u8]) -> String {
    serial.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who may have a session: hosts with their keys and namespaces, and the serial numbers of their certificates.
struct Admitted {
    hosts: BTreeMap<HostId, (VerifyingKeyBytes, Name)>,
    certificates: BTreeSet<(HostId, String)>,
}

async fn load_admitted(tx: &mut PgConnection, hosts: &[Uuid], openings: &[Opening]) -> Result<Admitted, Error> {
    let rows: Vec<(Uuid, Vec<u8>, String)> =
        sqlx::query_as("SELECT host_id, outcome_key, namespace FROM hosts WHERE host_id = ANY($1)")
            .bind(hosts)
            .fetch_all(&mut *tx)
            .await?;
    let read = |(host, key, namespace): (Uuid, Vec<u8>, String)| {
        let key = verifying_key("hosts.outcome_key", &key)?;
        Ok((HostId::new(host), (key, text("hosts.namespace", &namespace)?)))
    };
    let hosts = rows.into_iter().map(read).collect::<Result<_, Error>>()?;
    let serials: Vec<String> = openings.iter().map(|opening| serial_text(&opening.certificate_serial)).collect();
    let rows: Vec<(Uuid, String)> = sqlx::query_as("SELECT host_id, serial FROM certificates WHERE serial = ANY($1)")
        .bind(serials)
        .fetch_all(tx)
        .await?;
    let certificates = rows.into_iter().map(|(host, serial)| (HostId::new(host), serial)).collect();
    Ok(Admitted { hosts, certificates })
}

async fn open(tx: &mut PgConnection, gateway: GatewayId, openings: &[Opening]) -> Result<Vec<Opened>, Error> {
    let hosts: Vec<Uuid> = openings.iter().map(|opening| opening.host.uuid()).collect();
    let mut current = lock_sessions(tx, &hosts, Lock::Change).await?;
    let admitted = load_admitted(tx, &hosts, openings).await?;
    let mut known = instance::load(tx, &hosts).await?;
    let mut takings: BTreeMap<HostId, Taking> = BTreeMap::new();
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let mut answers = Vec::with_capacity(openings.len());
    // The last opening of a host in one batch is the one that stays.
    let mut last: BTreeMap<HostId, (SessionEpoch, &Opening)> = BTreeMap::new();
    for opening in openings {
        let host = opening.host;
        let (Some(session), Some((outcome_key, namespace))) =
            (current.get_mut(&host), admitted.hosts.get(&host).cloned())
        else {
            answers.push(Opened::UnknownHost);
            continue;
        };
        if !admitted.certificates.contains(&(host, serial_text(&opening.certificate_serial))) {
            answers.push(Opened::UnknownCertificate);
            continue;
        }
        // Who opened earlier in the same batch has it by now, and is known as such.
        let verdict = instance::judge(known.get(&host), session.is_open(), opening.instance);
        if let Verdict::Held(retry_after) = verdict {
            answers.push(Opened::Contested { retry_after });
            continue;
        }
        let before = session.session_epoch();
        let begun = session.begin().ok_or_else(|| Error::value("sessions.session_epoch", before))?;
        if let Some(session_epoch) = begun.superseded {
            let reason = CloseReason::Superseded;
            outbox.push(SessionClosed { host, session_epoch, reason })?;
        }
        let session_epoch = begun.session_epoch;
        let agent_version = opening.agent_version.clone();
        outbox.push(SessionOpened {
            host,
            session_epoch,
            gateway,
            agent_version,
            boot_id: opening.instance.boot_id,
            applied: claimed(opening),
            protocol: opening.protocol,
        })?;
        known.insert(host, Known::after(known.get(&host), opening.instance, verdict));
        if let Verdict::Note { other, turns, contested, is_news, is_turn } = verdict {
            let is_turn = is_turn || takings.get(&host).is_some_and(|earlier| earlier.is_turn);
            takings.insert(host, Taking { holder: opening.instance, other, turns, contested, is_turn });
            if let Some(other) = other.filter(|_| is_news) {
                outbox.push(contest(host, session_epoch, opening.instance, other))?;
            }
        }
        last.insert(host, (session_epoch, opening));
        answers.push(Opened::Session { namespace, session_epoch, outcome_key, is_between_lives: false });
    }
    write_opened(tx, gateway, &last).await?;
    instance::note(tx, &takings).await?;
    let claiming = write_claims(tx, &last).await?;
    for (opening, answer) in openings.iter().zip(&mut answers) {
        if let Opened::Session { is_between_lives, .. } = answer {
            *is_between_lives = claiming.contains(&opening.host);
        }
    }
    outbox.write(tx).await?;
    Ok(answers)
}

/// What the agent says that it holds, each part once, whatever it says twice.
fn claimed(opening: &Opening) -> Vec<ClaimedState> {
    let newest = |part: Component| {
        let said = opening.applied.iter().filter(|(component, _)| *component == part);
        said.max_by_key(|(_, stamp)| stamp.version).map(|(component, stamp)| (*component, *stamp))
    };
    let said = Component::ALL.into_iter().filter_map(newest);
    said.map(|(component, stamp)| ClaimedState { component, stamp }).collect()
}

/// Two agents live with the identity of one host.
fn contest(host: HostId, session_epoch: SessionEpoch, one: Instance, other: Instance) -> SessionContested {
    SessionContested {
        host,
        session_epoch,
        boot_id: one.boot_id,
        address: one.address,
        other_boot_id: other.boot_id,
        other_address: other.address,
    }
}

async fn write_opened(
    tx: &mut PgConnection,
    gateway: GatewayId,
    last: &BTreeMap<HostId, (SessionEpoch, &Opening)>,
) -> Result<(), Error> {
    let epochs = last.values().map(|(epoch, _)| big(epoch.raw())).collect::<Result<Vec<_>, _>>()?;
    let protocol = |raw: u16| i16::try_from(raw).map_err(|_| Error::value("sessions.protocol", raw));
    let protocols = last.values().map(|(_, opening)| opening.protocol.map(protocol).transpose());
    let protocols = protocols.collect::<Result<Vec<_>, _>>()?;
    sqlx::query(
        "WITH given AS ( \
             SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $6::smallint[]) \
             AS r (host_id, session_epoch, agent_version, boot_id, protocol) \
         ), heard AS ( \
             INSERT INTO presence (host_id, session_epoch, heard_at) \
             SELECT host_id, session_epoch, clock_timestamp() FROM given \
             ON CONFLICT (host_id) DO UPDATE \
             SET session_epoch = excluded.session_epoch, heard_at = excluded.heard_at \
         ) \
         UPDATE sessions s SET session_epoch = g.session_epoch, gateway_id = $5, agent_version = g.agent_version, \
             boot_id = g.boot_id, protocol = g.protocol, protocol_session_epoch = g.session_epoch, opened_at = transaction_timestamp(), closed_at = NULL, close_reason = NULL \
         FROM given g WHERE s.host_id = g.host_id",
    )
    .bind(last.keys().map(|host| host.uuid()).collect::<Vec<_>>())
    .bind(epochs)
    .bind(last.values().map(|(_, opening)| opening.agent_version.as_str()).collect::<Vec<_>>())
    .bind(last.values().map(|(_, opening)| opening.instance.boot_id).collect::<Vec<_>>())
    .bind(gateway.uuid())
    .bind(protocols)
    .execute(tx)
    .await?;
    Ok(())
}

/// Keeps what hosts hold beyond what is desired of them, and what those hold for whom nothing is signed in this life of the authority; forgets what
/// is so no longer; whose claims are kept. Who goes back is decided as the host comes: what is desired of it may pass its version later, and is of another history all the same.
async fn write_claims(
    tx: &mut PgConnection,
    last: &BTreeMap<HostId, (SessionEpoch, &Opening)>,
) -> Result<BTreeSet<HostId>, Error> {
    let (mut hosts, mut components, mut versions, mut digests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (host, (_, opening)) in last {
        for (component, stamp) in &opening.applied {
            hosts.push(host.uuid());
            components.push(small(*component));
            versions.push(big(stamp.version.raw())?);
            digests.push(stamp.digest.as_bytes().to_vec());
        }
    }
    let epochs = last.values().map(|(epoch, _)| big(epoch.raw())).collect::<Result<Vec<_>, _>>()?;
    let claiming: Vec<Uuid> = sqlx::query_scalar(
        "WITH given AS ( \
             SELECT * FROM UNNEST($1::uuid[], $2::bigint[]) AS r (host_id, session_epoch) \
         ), said AS ( \
             SELECT DISTINCT ON (host_id, component) * \
             FROM UNNEST($3::uuid[], $4::smallint[], $5::bigint[], $6::bytea[]) AS r (host_id, component, version, digest) \
             ORDER BY host_id, component, version DESC \
         ), kept AS MATERIALIZED ( \
             SELECT l.host_id, l.component, g.session_epoch, a.authority_epoch, s.version, s.digest, \
                    s.version IS NOT NULL AND s.version >= l.version AND s.digest <> l.digest AS goes_back \
             FROM given g JOIN desired_latest l USING (host_id) CROSS JOIN authority a \
             LEFT JOIN said s USING (host_id, component) \
             WHERE l.authority_epoch < a.authority_epoch OR s.version > l.version \
                OR (s.version = l.version AND s.digest <> l.digest) \
         ), gone AS ( \
             DELETE FROM claims c USING given g WHERE c.host_id = g.host_id AND NOT EXISTS ( \
                 SELECT FROM kept k WHERE k.host_id = c.host_id AND k.component = c.component) \
         ) \
         INSERT INTO claims AS c (host_id, component, session_epoch, authority_epoch, version, digest, goes_back, claimed_at) \
         SELECT host_id, component, session_epoch, authority_epoch, version, digest, goes_back, transaction_timestamp() \
         FROM kept \
         ON CONFLICT (host_id, component) DO UPDATE \
         SET session_epoch = excluded.session_epoch, authority_epoch = excluded.authority_epoch, \
             version = excluded.version, digest = excluded.digest, claimed_at = excluded.claimed_at, \
             goes_back = excluded.goes_back OR (c.goes_back AND (c.authority_epoch, c.version, c.digest) \
                 IS NOT DISTINCT FROM (excluded.authority_epoch, excluded.version, excluded.digest)), \
             confirmed_at = CASE WHEN (c.authority_epoch, c.version, c.digest) \
                 IS NOT DISTINCT FROM (excluded.authority_epoch, excluded.version, excluded.digest) THEN c.confirmed_at END \
         RETURNING host_id",
    )
    .bind(last.keys().map(|host| host.uuid()).collect::<Vec<_>>())
    .bind(epochs)
    .bind(hosts)
    .bind(components)
    .bind(versions)
    .bind(digests)
    .fetch_all(tx)
    .await?;
    Ok(claiming.into_iter().map(HostId::new).collect())
}

pub(super) async fn close(tx: &mut PgConnection, gateway: GatewayId, closings: &[Closing]) -> Result<Vec<bool>, Error> {
    let hosts: Vec<Uuid> = closings.iter().map(|closing| closing.host.uuid()).collect();
    let mut current = lock_sessions(tx, &hosts, Lock::Change).await?;
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let (mut ended, mut reasons, mut answers) = (Vec::new(), Vec::new(), Vec::with_capacity(closings.len()));
    for Closing { host, session_epoch, reason } in closings.iter().copied() {
        let is_current = current.get_mut(&host).is_some_and(|found| found.end(session_epoch));
        answers.push(is_current);
        if is_current {
            outbox.push(SessionClosed { host, session_epoch, reason })?;
            ended.push(host.uuid());
            reasons.push(reason.word());
        }
    }
    sqlx::query(
        "UPDATE sessions s SET closed_at = transaction_timestamp(), close_reason = g.reason \
         FROM UNNEST($1::uuid[], $2::text[]) AS g (host_id, reason) WHERE s.host_id = g.host_id",
    )
    .bind(ended)
    .bind(reasons)
    .execute(&mut *tx)
    .await?;
    outbox.write(tx).await?;
    Ok(answers)
}
