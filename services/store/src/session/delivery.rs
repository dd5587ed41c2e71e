//! What is to be sent: the newest states of hosts, and which held ones are older.

use holdfast_events::VerifyingKeyBytes;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use uuid::Uuid;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::render::{LatestRow, LatestState};
use crate::value::{big, component, number, small, text, verifying_key, version};

/// What a session has written for a component; absent before the first write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldVersion {
    /// Whose session.
    pub host: HostId,
    /// Which part.
    pub component: Component,
    /// The version, or none yet.
    pub version: Option<Version>,
}

/// Who a host is, for the gateway that holds its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// Its identity.
    pub host: HostId,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The key with which it signs its outcomes.
    pub outcome_key: VerifyingKeyBytes,
}

/// What is newest of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostNewest {
    /// Which host.
    pub host: HostId,
    /// The number of its newest session; zero before the first.
    pub session_epoch: SessionEpoch,
    /// The newest version of each component that was rendered.
    pub versions: Vec<(Component, Version)>,
}

/// A desired state, and whose session is its host's.
#[derive(sqlx::FromRow)]
struct NewestRow {
    #[sqlx(flatten)]
    latest: LatestRow,
    session_epoch: i64,
}

impl Store {
    /// The newest desired states of hosts: version, digest and signature read in one row each.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored state cannot be read.
    pub async fn latest_of(&self, hosts: Vec<HostId>) -> Result<Vec<LatestState>, Error> {
        Ok(self.latest_for_sessions(hosts).await?.into_iter().map(|(state, _)| state).collect())
    }

    /// The same with the number of each host's newest session, zero before the first: what is read for an older one is for nobody.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored state cannot be read.
    pub async fn latest_for_sessions(&self, hosts: Vec<HostId>) -> Result<Vec<(LatestState, SessionEpoch)>, Error> {
        self.transact("load desired states", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<NewestRow> = sqlx::query_as(
                    "SELECT l.host_id, l.component, l.version, l.digest, l.signature, l.authority_epoch, l.revision, \
                            coalesce(s.session_epoch, 0) AS session_epoch \
                     FROM desired_latest l LEFT JOIN sessions s USING (host_id) \
                     WHERE l.host_id = ANY($1) ORDER BY l.host_id, l.component",
                )
                .bind(hosts)
                .fetch_all(tx)
                .await?;
                let read = |NewestRow { latest, session_epoch }| {
                    let epoch = number("sessions.session_epoch", session_epoch)?;
                    Ok((latest.state()?, SessionEpoch::from_raw(epoch)))
                };
                rows.into_iter().map(read).collect()
            })
        })
        .await
    }

    /// Which of the held versions are older than what is desired: one query for all sessions of a replica.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn compare(&self, held: Vec<HeldVersion>) -> Result<Vec<(HostId, Component, Version)>, Error> {
        self.transact("compare held versions", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = held.iter().map(|one| one.host.uuid()).collect();
            let components: Vec<i16> = held.iter().map(|one| small(one.component)).collect();
            let versions: Result<Vec<i64>, Error> =
                held.iter().map(|one| big(one.version.map_or(0, Version::raw))).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, i16, i64)> = sqlx::query_as(
                    "SELECT l.host_id, l.component, l.version \
                     FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[]) AS h (host_id, component, version) \
                     JOIN desired_latest l USING (host_id, component) WHERE l.version > h.version",
                )
                .bind(hosts)
                .bind(components)
                .bind(versions?)
                .fetch_all(tx)
                .await?;
                let read = |(host, part, raw)| {
                    Ok((HostId::new(host), component(part)?, version("desired_latest.version", raw)?))
                };
                rows.into_iter().map(read).collect()
            })
        })
        .await
    }

    /// The newest session and versions of hosts, by one query; a host that is not enrolled is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn newest_of(&self, hosts: Vec<HostId>) -> Result<Vec<HostNewest>, Error> {
        self.transact("compare sessions and versions", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, i64, Option<i16>, Option<i64>)> = sqlx::query_as(
                    "SELECT s.host_id, s.session_epoch, l.component, l.version \
                     FROM sessions s LEFT JOIN desired_latest l USING (host_id) \
                     WHERE s.host_id = ANY($1) ORDER BY s.host_id, l.component",
                )
                .bind(hosts)
                .fetch_all(tx)
                .await?;
                let mut newest: Vec<HostNewest> = Vec::new();
                for (host, epoch, part, raw) in rows {
                    let host = HostId::new(host);
                    if newest.last().is_none_or(|last| last.host != host) {
                        let session_epoch = SessionEpoch::from_raw(number("sessions.session_epoch", epoch)?);
                        newest.push(HostNewest { host, session_epoch, versions: Vec::new() });
                    }
                    if let (Some(last), Some((part, raw))) = (newest.last_mut(), part.zip(raw)) {
                        last.versions.push((component(part)?, version("desired_latest.version", raw)?));
                    }
                }
                Ok(newest)
            })
        })
        .await
    }

    /// Who these hosts are; one that is not enrolled is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored host cannot be read.
    pub async fn host_identities(&self, hosts: Vec<HostId>) -> Result<Vec<HostIdentity>, Error> {
        self.transact("load hosts", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, String, String, Vec<u8>)> = sqlx::query_as(
                    "SELECT host_id, namespace, name, outcome_key FROM hosts WHERE host_id = ANY($1) ORDER BY host_id",
                )
                .bind(hosts)
                .fetch_all(tx)
                .await?;
                let read = |(host, namespace, name, key): (Uuid, String, String, Vec<u8>)| {
                    Ok(HostIdentity {
                        host: HostId::new(host),
                        namespace: text("hosts.namespace", &namespace)?,
                        name: text("hosts.name", &name)?,
                        outcome_key: verifying_key("hosts.outcome_key", &key)?,
                    })
                };
                rows.into_iter().map(read).collect()
            })
        })
        .await
    }
}
