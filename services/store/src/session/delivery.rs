//! What is to be sent: the newest states of hosts, and which held ones are older.

use holdfast_events::VerifyingKeyBytes;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, Version};
use holdfast_model::statement::Authority;
use uuid::Uuid;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::render::{LatestRow, LatestState};
use crate::value::{big, component, number, small, text, verifying_key, version};

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

/// What is newest of some hosts, and under whose authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Newest {
    /// Whose database it is, in which life.
    pub authority: Authority,
    /// Those of them that are enrolled, in the order of their ids.
    pub hosts: Vec<HostNewest>,
}

#[derive(sqlx::FromRow)]
struct NewestOf {
    authority_id: Uuid,
    authority_epoch: i64,
    host_id: Option<Uuid>,
    session_epoch: Option<i64>,
    component: Option<i16>,
    version: Option<i64>,
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

    /// Whether this version with this content was ever rendered for this component of a host.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn was_rendered(&self, host: HostId, component: Component, stamp: Stamp) -> Result<bool, Error> {
        let version = big(stamp.version.raw())?;
        self.transact("look for a version", Mode::Statement, move |tx| {
            Box::pin(async move {
                let found: Option<i32> = sqlx::query_scalar(
                    "SELECT 1 FROM desired_states WHERE host_id = $1 AND component = $2 AND version = $3 AND digest = $4",
                )
                .bind(host.uuid())
                .bind(small(component))
                .bind(version)
                .bind(stamp.digest.as_bytes().as_slice())
                .fetch_optional(tx)
                .await?;
                Ok(found.is_some())
            })
        })
        .await
    }

    /// The number of the newest session of each of these hosts, zero before the first; a host that is not enrolled is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored number cannot be read.
    pub async fn newest_sessions(&self, hosts: Vec<HostId>) -> Result<Vec<(HostId, SessionEpoch)>, Error> {
        self.transact("load newest sessions", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<(Uuid, i64)> =
                    sqlx::query_as("SELECT host_id, session_epoch FROM sessions WHERE host_id = ANY($1)")
                        .bind(hosts)
                        .fetch_all(tx)
                        .await?;
                let read = |(host, epoch)| {
                    let epoch = number("sessions.session_epoch", epoch)?;
                    Ok((HostId::new(host), SessionEpoch::from_raw(epoch)))
                };
                rows.into_iter().map(read).collect()
            })
        })
        .await
    }

    /// The newest session and versions of hosts, and the authority, by one query; a host that is not enrolled is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read, [`Error::NoAuthority`] before the first migration.
    pub async fn newest_of(&self, hosts: Vec<HostId>) -> Result<Newest, Error> {
        self.transact("compare sessions and versions", Mode::Statement, move |tx| {
            let hosts: Vec<Uuid> = hosts.iter().map(|host| host.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<NewestOf> = sqlx::query_as(
                    "SELECT a.authority_id, a.authority_epoch, s.host_id, s.session_epoch, l.component, l.version \
                     FROM authority a LEFT JOIN sessions s ON s.host_id = ANY($1) \
                     LEFT JOIN desired_latest l ON l.host_id = s.host_id ORDER BY s.host_id, l.component",
                )
                .bind(hosts)
                .fetch_all(tx)
                .await?;
                let first = rows.first().ok_or(Error::NoAuthority)?;
                let epoch = AuthorityEpoch::from_raw(number("authority_epoch", first.authority_epoch)?);
                let authority = Authority { id: AuthorityId::new(first.authority_id), epoch };
                let mut hosts: Vec<HostNewest> = Vec::new();
                for row in rows {
                    // Nobody who was asked for is enrolled: the one row is the authority's.
                    let Some((host, epoch)) = row.host_id.zip(row.session_epoch) else { continue };
                    let host = HostId::new(host);
                    if hosts.last().is_none_or(|last| last.host != host) {
                        let session_epoch = SessionEpoch::from_raw(number("sessions.session_epoch", epoch)?);
                        hosts.push(HostNewest { host, session_epoch, versions: Vec::new() });
                    }
                    if let (Some(last), Some((part, raw))) = (hosts.last_mut(), row.component.zip(row.version)) {
                        last.versions.push((component(part)?, version("desired_latest.version", raw)?));
                    }
                }
                Ok(Newest { authority, hosts })
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
