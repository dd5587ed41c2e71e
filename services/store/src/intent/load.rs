//! Reading intent: all of it at one revision, or what changed after one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_events::Content;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::intent::{EnrolledHost, Intent, Kind, ObjectKey, Spec};
use holdfast_model::numbers::{AuthorityEpoch, Revision};
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::apply::kind_of;
use super::latest_revision;
use crate::artifact;
use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::{big, digest, from_json, number, text};

/// What changed after one revision, up to and including another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The revision before all of this.
    pub after: Revision,
    /// When the revision before all of this was made; absent if there is none, or not in this database. In another history of the database, as after a
    /// restore, it is another time: then none of this leads on from what was read there.
    pub after_at: Option<OffsetDateTime>,
    /// The revision with all of this.
    pub until: Revision,
    /// When that was made; absent before the first.
    pub until_at: Option<OffsetDateTime>,
    /// In which life of the authority it was read.
    pub authority_epoch: AuthorityEpoch,
    /// The rollout that is open, as it was then: one that ends with a revision is never seen open beside it.
    pub rollout: Option<OpenRollout>,
    /// Objects that differ.
    pub objects: Vec<ObjectChange>,
    /// Hosts that differ.
    pub hosts: Vec<HostChange>,
}

/// Which rollout is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRollout {
    /// Which.
    pub rollout: RolloutId,
    /// How many of its stages are opened.
    pub stage: u32,
    /// The revision that the hosts of the others are held at.
    pub held_revision: Revision,
}

/// One object that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectChange {
    /// What names it.
    pub key: ObjectKey,
    /// What it says; absent if it is not in force.
    pub now: Option<Spec>,
}

/// One host that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostChange {
    /// Which host.
    pub host: HostId,
    /// What it is; absent if it is no longer enrolled.
    pub now: Option<EnrolledHost>,
}

impl Store {
    /// The last revision; zero before the first.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn latest_revision(&self) -> Result<Revision, Error> {
        self.transact("read the last revision", Mode::Statement, |tx| Box::pin(latest_revision(tx))).await
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

    /// Everything in force at the last revision, and when that was made: nothing before the first.
    ///
    /// # Errors
    /// As [`Store::load_intent`].
    pub async fn load_last_intent(&self) -> Result<(Revision, Option<OffsetDateTime>, Intent), Error> {
        self.transact("load the last intent", Mode::LongSnapshot, move |tx| {
            Box::pin(async move {
                let last: Option<(i64, OffsetDateTime)> =
                    sqlx::query_as("SELECT revision, at FROM revisions ORDER BY revision DESC LIMIT 1")
                        .fetch_optional(&mut *tx)
                        .await?;
                let revision = last.map(|(raw, _)| number("revisions.revision", raw)).transpose()?;
                let revision = Revision::from_raw(revision.unwrap_or_default());
                Ok((revision, last.map(|(_, at)| at), load_at(tx, revision).await?))
            })
        })
        .await
    }

    /// What is in force now and was not after a revision, and the reverse.
    ///
    /// # Errors
    /// As [`Store::load_intent`].
    pub async fn changes_since(&self, after: Revision) -> Result<Changes, Error> {
        self.transact("load changes of intent", Mode::Statement, move |tx| {
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
}

#[derive(sqlx::FromRow)]
struct HostRow {
    host_id: Uuid,
    namespace: String,
    name: String,
    labels: serde_json::Value,
    ports: serde_json::Value,
    addresses: Vec<IpNet>,
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
        key_of(&self.kind, &self.namespace, &self.name)
    }

    fn spec(self, kind: Kind, artifacts: &BTreeMap<Digest, Vec<u8>>) -> Result<Spec, Error> {
        let digest = self.spec_digest.as_deref().map(|bytes| digest("objects.spec_digest", bytes)).transpose()?;
        let bytes = digest.and_then(|digest| artifacts.get(&digest));
        spec_of(kind, self.spec, self.spec_digest.as_deref(), bytes.map(Vec::as_slice))
    }
}

fn key_of(kind: &str, namespace: &str, name: &str) -> Result<ObjectKey, Error> {
    Ok(ObjectKey {
        kind: kind_of("objects.kind", kind)?,
        namespace: text("objects.namespace", namespace)?,
        name: text("objects.name", name)?,
    })
}

/// What an object says: by itself, or in its artifact, whose digest is checked.
fn spec_of(
    kind: Kind,
    spec: Option<serde_json::Value>,
    spec_digest: Option<&[u8]>,
    bytes: Option<&[u8]>,
) -> Result<Spec, Error> {
    if let Some(spec) = spec {
        return from_json("objects.spec", spec);
    }
    let digest = digest("objects.spec_digest", spec_digest.unwrap_or_default())?;
    let bytes = bytes.ok_or_else(|| Error::value("objects.spec_digest", digest))?;
    Ok(Content::read(kind, digest, bytes)?)
}

async fn load_artifacts(tx: &mut PgConnection, rows: &[ObjectRow]) -> Result<BTreeMap<Digest, Vec<u8>>, Error> {
    let named = rows.iter().filter_map(|row| row.spec_digest.as_deref());
    let digests = named.map(|bytes| digest("objects.spec_digest", bytes)).collect::<Result<Vec<_>, _>>()?;
    artifact::fetch(tx, &digests).await
}

async fn load_at(tx: &mut PgConnection, revision: Revision) -> Result<Intent, Error> {
    let at = big(revision.raw())?;
    let rows: Vec<ObjectRow> = sqlx::query_as(
        "SELECT kind, namespace, name, spec, spec_digest FROM objects \
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
        "SELECT h.host_id, h.namespace, h.name, f.labels, f.ports, f.addresses \
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

/// A row of what changed: the last revision, an object, or a host, each with the columns of its kind.
#[derive(sqlx::FromRow)]
struct ChangeRow {
    until: Option<i64>,
    until_at: Option<OffsetDateTime>,
    after_at: Option<OffsetDateTime>,
    epoch: Option<i64>,
    rollout_id: Option<Uuid>,
    stage: Option<i32>,
    held_revision: Option<i64>,
    is_now: bool,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
    bytes: Option<Vec<u8>>,
    host_id: Option<Uuid>,
    labels: Option<serde_json::Value>,
    ports: Option<serde_json::Value>,
    addresses: Option<Vec<IpNet>>,
}

/// What an object says, as it is stored.
#[derive(PartialEq, Eq)]
struct Stored {
    spec: Option<serde_json::Value>,
    spec_digest: Option<Vec<u8>>,
}

/// One thing in two revisions, and what is needed to read it in the later one.
struct BeforeAndNow<T, R> {
    before: Option<T>,
    now: Option<(T, R)>,
}

impl<T, R> Default for BeforeAndNow<T, R> {
    fn default() -> Self {
        Self { before: None, now: None }
    }
}

impl<T: PartialEq, R> BeforeAndNow<T, R> {
    fn put(&mut self, is_now: bool, value: T, rest: R) {
        if is_now {
            self.now = Some((value, rest));
        } else {
            self.before = Some(value);
        }
    }

    fn differs(&self) -> bool {
        self.before.as_ref() != self.now.as_ref().map(|(value, _)| value)
    }
}

/// Everything by one statement: rows that were in force after `after` and ended since, and rows that began since and are in force. Contents that
/// are in force no longer are compared and not read.
async fn load_changes(tx: &mut PgConnection, after: Revision) -> Result<Changes, Error> {
    let rows: Vec<ChangeRow> = sqlx::query_as(
        "SELECT coalesce(last.revision, 0) AS until, last.at AS until_at, (SELECT at FROM revisions WHERE revision = $1) AS after_at, \
                (SELECT authority_epoch FROM authority) AS epoch, r.rollout_id, r.stage, r.held_revision, false AS is_now, \
                NULL::text AS kind, NULL::text AS namespace, NULL::text AS name, NULL::jsonb AS spec, \
                NULL::bytea AS spec_digest, NULL::bytea AS bytes, NULL::uuid AS host_id, NULL::jsonb AS labels, \
                NULL::jsonb AS ports, NULL::inet[] AS addresses \
         FROM (VALUES (1)) AS one LEFT JOIN (SELECT revision, at FROM revisions ORDER BY revision DESC LIMIT 1) AS last ON true \
         LEFT JOIN rollouts r ON r.state IN ('progressing', 'paused', 'halted') \
         UNION ALL \
         SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, o.from_revision > $1, o.kind, o.namespace, o.name, o.spec, o.spec_digest, a.bytes, \
                NULL, NULL, NULL, NULL \
         FROM objects o LEFT JOIN artifacts a ON a.digest = o.spec_digest AND o.to_revision IS NULL \
         WHERE (o.from_revision <= $1 AND o.to_revision > $1) OR (o.from_revision > $1 AND o.to_revision IS NULL) \
         UNION ALL \
         SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, f.from_revision > $1, NULL, h.namespace, h.name, NULL, NULL, NULL, \
                h.host_id, f.labels, f.ports, f.addresses \
         FROM host_facts f JOIN hosts h USING (host_id) \
         WHERE (f.from_revision <= $1 AND f.to_revision > $1) OR (f.from_revision > $1 AND f.to_revision IS NULL)",
    )
    .bind(big(after.raw())?)
    .fetch_all(tx)
    .await?;
    changes_of(after, rows)
}

fn changes_of(after: Revision, rows: Vec<ChangeRow>) -> Result<Changes, Error> {
    let (mut until, mut until_at, mut after_at, mut epoch, mut rollout) = (None, None, None, None, None);
    let mut objects: BTreeMap<ObjectKey, BeforeAndNow<Stored, Option<Vec<u8>>>> = BTreeMap::new();
    let mut hosts: BTreeMap<HostId, BeforeAndNow<EnrolledHost, ()>> = BTreeMap::new();
    for row in rows {
        let (namespace, name) = (row.namespace.unwrap_or_default(), row.name.unwrap_or_default());
        if let Some(raw) = row.until {
            until = Some(Revision::from_raw(number("revisions.revision", raw)?));
            (until_at, after_at, epoch) = (row.until_at, row.after_at, row.epoch);
            rollout = open_rollout(row.rollout_id, row.stage, row.held_revision)?;
        } else if let Some(host) = row.host_id {
            let facts = HostRow {
                host_id: host,
                namespace,
                name,
                labels: row.labels.unwrap_or_default(),
                ports: row.ports.unwrap_or_default(),
                addresses: row.addresses.unwrap_or_default(),
            };
            hosts.entry(HostId::new(host)).or_default().put(row.is_now, facts.host()?, ());
        } else {
            let key = key_of(row.kind.as_deref().unwrap_or_default(), &namespace, &name)?;
            let stored = Stored { spec: row.spec, spec_digest: row.spec_digest };
            objects.entry(key).or_default().put(row.is_now, stored, row.bytes);
        }
    }
    let objects = objects.into_iter().filter(|(_, change)| change.differs()).map(|(key, change)| {
        let spec = |(stored, bytes): (Stored, Option<Vec<u8>>)| {
            spec_of(key.kind, stored.spec, stored.spec_digest.as_deref(), bytes.as_deref())
        };
        let now = change.now.map(spec).transpose()?;
        Ok(ObjectChange { key, now })
    });
    let hosts = hosts.into_iter().filter(|(_, change)| change.differs());
    Ok(Changes {
        after,
        after_at,
        until_at,
        until: until.ok_or_else(|| Error::value("revisions.revision", "none"))?,
        authority_epoch: AuthorityEpoch::from_raw(number("authority_epoch", epoch.ok_or(Error::NoAuthority)?)?),
        rollout,
        objects: objects.collect::<Result<_, Error>>()?,
        hosts: hosts.map(|(host, change)| HostChange { host, now: change.now.map(|(now, ())| now) }).collect(),
    })
}

fn open_rollout(id: Option<Uuid>, stage: Option<i32>, held: Option<i64>) -> Result<Option<OpenRollout>, Error> {
    let (Some(id), Some(stage), Some(held)) = (id, stage, held) else { return Ok(None) };
    Ok(Some(OpenRollout {
        rollout: RolloutId::new(id),
        stage: u32::try_from(stage).map_err(|_| Error::value("rollouts.stage", stage))?,
        held_revision: Revision::from_raw(number("rollouts.held_revision", held)?),
    }))
}
