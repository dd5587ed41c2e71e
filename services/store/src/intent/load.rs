//! Reading intent: all of it at one revision, or what changed after one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_events::Content;
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{EnrolledHost, Intent, Kind, ObjectKey, Spec};
use holdfast_model::numbers::Revision;
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::apply::kind_of;
use super::latest_revision;
use crate::artifact;
use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::{big, digest, from_json, text};

/// What changed after one revision, up to and including another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The revision before all of this.
    pub after: Revision,
    /// The revision with all of this.
    pub until: Revision,
    /// Objects that differ.
    pub objects: Vec<ObjectChange>,
    /// Hosts that differ.
    pub hosts: Vec<HostChange>,
}

/// One object before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectChange {
    /// What names it.
    pub key: ObjectKey,
    /// What it said; absent if it was not in force.
    pub before: Option<Spec>,
    /// What it says; absent if it is not in force.
    pub now: Option<Spec>,
}

/// One host before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostChange {
    /// Which host.
    pub host: HostId,
    /// What it was; absent if it was not enrolled.
    pub before: Option<EnrolledHost>,
    /// What it is; absent if it is no longer enrolled.
    pub now: Option<EnrolledHost>,
}

impl Store {
    /// The last revision; zero before the first.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn latest_revision(&self) -> Result<Revision, Error> {
        self.transact("read the last revision", Mode::Snapshot, |tx| Box::pin(latest_revision(tx))).await
    }

    /// Everything in force at a revision, or at the last one.
    ///
    /// # Errors
    /// [`Error::Value`] or [`Error::Content`] if a stored object cannot be read: a read error is never an empty intent.
    pub async fn load_intent(&self, at: Option<Revision>) -> Result<(Revision, Intent), Error> {
        self.transact("load intent", Mode::LongSnapshot, move |tx| {
            Box::pin(async move {
                let revision = match at {
                    Some(revision) => revision,
                    None => latest_revision(tx).await?,
                };
                Ok((revision, load_at(tx, revision).await?))
            })
        })
        .await
    }

    /// What is in force now and was not after a revision, and the reverse.
    ///
    /// # Errors
    /// As [`Store::load_intent`].
    pub async fn changes_since(&self, after: Revision) -> Result<Changes, Error> {
        self.transact("load changes of intent", Mode::Snapshot, move |tx| {
            Box::pin(async move { load_changes(tx, after).await })
        })
        .await
    }
}

#[derive(sqlx::FromRow)]
struct ObjectRow {
    kind: String,
    namespace: String,
    name: String,
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
    from_revision: i64,
}

#[derive(sqlx::FromRow)]
struct HostRow {
    host_id: Uuid,
    namespace: String,
    name: String,
    labels: serde_json::Value,
    ports: serde_json::Value,
    addresses: Vec<IpNet>,
    from_revision: i64,
}

impl HostRow {
    fn host(self) -> Result<EnrolledHost, Error> {
        Ok(EnrolledHost {
            id: HostId::new(self.host_id),
            namespace: text("hosts.namespace", &self.namespace)?,
            name: text("hosts.name", &self.name)?,
            labels: from_json("host_facts.labels", self.labels)?,
            ports: from_json("host_facts.ports", self.ports)?,
            addresses: self.addresses.iter().map(IpNet::addr).collect::<Vec<IpAddr>>(),
        })
    }
}

impl ObjectRow {
    fn key(&self) -> Result<ObjectKey, Error> {
        Ok(ObjectKey {
            kind: kind_of("objects.kind", &self.kind)?,
            namespace: text("objects.namespace", &self.namespace)?,
            name: text("objects.name", &self.name)?,
        })
    }

    fn spec(self, kind: Kind, artifacts: &BTreeMap<Digest, Vec<u8>>) -> Result<Spec, Error> {
        if let Some(spec) = self.spec {
            return from_json("objects.spec", spec);
        }
        let digest = digest("objects.spec_digest", self.spec_digest.as_deref().unwrap_or_default())?;
        let bytes = artifacts.get(&digest).ok_or_else(|| Error::value("objects.spec_digest", digest))?;
        Ok(Content::read(kind, digest, bytes)?)
    }
}

async fn load_artifacts(tx: &mut PgConnection, rows: &[ObjectRow]) -> Result<BTreeMap<Digest, Vec<u8>>, Error> {
    let named = rows.iter().filter_map(|row| row.spec_digest.as_deref());
    let digests = named.map(|bytes| digest("objects.spec_digest", bytes)).collect::<Result<Vec<_>, _>>()?;
    artifact::fetch(tx, &digests).await
}

async fn load_at(tx: &mut PgConnection, revision: Revision) -> Result<Intent, Error> {
    let at = big(revision.raw())?;
    let rows: Vec<ObjectRow> = sqlx::query_as(
        "SELECT kind, namespace, name, spec, spec_digest, from_revision FROM objects \
         WHERE from_revision <= $1 AND (to_revision IS NULL OR to_revision > $1)",
    )
    .bind(at)
    .fetch_all(&mut *tx)
    .await?;
    let artifacts = load_artifacts(tx, &rows).await?;
    let mut intent = Intent::default();
    for row in rows {
        let key = row.key()?;
        let spec = row.spec(key.kind, &artifacts)?;
        intent.objects.insert(key, spec);
    }
    let rows: Vec<HostRow> = sqlx::query_as(
        "SELECT h.host_id, h.namespace, h.name, f.labels, f.ports, f.addresses, f.from_revision \
         FROM host_facts f JOIN hosts h USING (host_id) \
         WHERE f.from_revision <= $1 AND (f.to_revision IS NULL OR f.to_revision > $1)",
    )
    .bind(at)
    .fetch_all(tx)
    .await?;
    for row in rows {
        let host = row.host()?;
        intent.hosts.insert(host.id, host);
    }
    Ok(intent)
}

async fn load_changes(tx: &mut PgConnection, after: Revision) -> Result<Changes, Error> {
    let until = latest_revision(tx).await?;
    let bound = big(after.raw())?;
    // Rows that were in force after `after` and ended since, and rows that began since and are in force.
    let rows: Vec<ObjectRow> = sqlx::query_as(
        "SELECT kind, namespace, name, spec, spec_digest, from_revision FROM objects \
         WHERE (from_revision <= $1 AND to_revision > $1) OR (from_revision > $1 AND to_revision IS NULL)",
    )
    .bind(bound)
    .fetch_all(&mut *tx)
    .await?;
    let artifacts = load_artifacts(tx, &rows).await?;
    let mut objects: BTreeMap<ObjectKey, (Option<Spec>, Option<Spec>)> = BTreeMap::new();
    for row in rows {
        let (key, is_new) = (row.key()?, row.from_revision > bound);
        let spec = row.spec(key.kind, &artifacts)?;
        let entry = objects.entry(key).or_default();
        *(if is_new { &mut entry.1 } else { &mut entry.0 }) = Some(spec);
    }
    let rows: Vec<HostRow> = sqlx::query_as(
        "SELECT h.host_id, h.namespace, h.name, f.labels, f.ports, f.addresses, f.from_revision \
         FROM host_facts f JOIN hosts h USING (host_id) \
         WHERE (f.from_revision <= $1 AND f.to_revision > $1) OR (f.from_revision > $1 AND f.to_revision IS NULL)",
    )
    .bind(bound)
    .fetch_all(tx)
    .await?;
    let mut hosts: BTreeMap<HostId, (Option<EnrolledHost>, Option<EnrolledHost>)> = BTreeMap::new();
    for row in rows {
        let is_new = row.from_revision > bound;
        let host = row.host()?;
        let entry = hosts.entry(host.id).or_default();
        *(if is_new { &mut entry.1 } else { &mut entry.0 }) = Some(host);
    }
    Ok(Changes {
        after,
        until,
        objects: objects
            .into_iter()
            .filter(|(_, (before, now))| before != now)
            .map(|(key, (before, now))| ObjectChange { key, before, now })
            .collect(),
        hosts: hosts
            .into_iter()
            .filter(|(_, (before, now))| before != now)
            .map(|(host, (before, now))| HostChange { host, before, now })
            .collect(),
    })
}
