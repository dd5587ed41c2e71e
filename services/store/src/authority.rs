//! The lineage of the database, which of its lives this is, and whom it would take back.
//!
//! - A life begins when an operator says that the database was restored or promoted. What a host comes back with is compared with what is desired
//!   of it ([`crate::session::Opening::applied`]); where that is older, nothing of it is signed in the new life until an operator confirmed it.
//! - What is kept of that is in `claims`, which is empty but after a restore or a promotion.

use holdfast_events::{Actor, AuthorityEpochRaised, AuthorityRollbackConfirmed, CONFIRMED_HOSTS_MAX, Detail};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::statement::Authority;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, component, number, stamp, text};

/// How many claims are named at once; all of them are counted.
pub const CLAIMS_TOLD: u32 = 500;

/// The authority and its hosts in this life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorityFacts {
    /// Which life of which lineage.
    pub authority: Authority,
    /// Since when it is this life.
    pub since: OffsetDateTime,
    /// Who began it, and why; absent of the first.
    pub raised: Option<Raised>,
    /// Its hosts, counted.
    pub hosts: LifeCounts,
    /// What hosts hold that this database never rendered, by name: at most [`CLAIMS_TOLD`].
    pub claims: Vec<Claim>,
}

/// Who began a life of the authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raised {
    /// Who.
    pub by: String,
    /// Why, in their words.
    pub because: String,
}

/// Hosts by where they are between two lives; those that are in this one and hold nothing unknown are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifeCounts {
    /// Hold what this database never rendered in this life: it was restored or promoted, and nobody said so.
    pub ahead: u64,
    /// Would go back, and wait for an operator.
    pub going_back: u64,
    /// Not heard since this life began: whether they would go back is not known, and nothing is signed for them.
    pub unheard: u64,
    /// Heard, or confirmed, and about to be signed for.
    pub following: u64,
}

/// What one host says that it holds of one component, and that is not what is desired of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Which host.
    pub host: HostId,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Which part.
    pub component: Component,
    /// What it holds.
    pub held: Stamp,
    /// What is desired.
    pub latest: Stamp,
    /// Whether it waits for an operator's confirmation; if not, for somebody who says that the database was restored.
    pub waits_for_confirmation: bool,
}

/// What came of a confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirmed {
    /// These many hosts go back.
    Hosts(u64),
    /// Another number of hosts would go back than was expected; nothing was changed.
    Unexpected(u64),
}

/// A claim that waits for a confirmation, `c` being the claim, `l` what is desired and `a` the authority.
macro_rules! waits {
    () => {
        "c.authority_epoch = a.authority_epoch AND l.authority_epoch < a.authority_epoch AND c.goes_back \
         AND c.confirmed_at IS NULL"
    };
}

/// A claim of what this database never rendered, nobody having said that it was restored.
macro_rules! ahead {
    () => {
        "c.authority_epoch = a.authority_epoch AND l.authority_epoch = a.authority_epoch \
         AND (c.version > l.version OR (c.version = l.version AND c.digest <> l.digest))"
    };
}

pub(crate) use {ahead, waits};

impl Store {
    /// Reads the authority.
    ///
    /// # Errors
    /// [`Error::NoAuthority`] before the first migration.
    pub async fn load_authority(&self) -> Result<Authority, Error> {
        self.transact("load the authority", Mode::Snapshot, |tx| Box::pin(load(tx))).await
    }

    /// Reads the authority and what its hosts are to it.
    ///
    /// # Errors
    /// As [`Store::load_authority`].
    pub async fn authority_facts(&self) -> Result<AuthorityFacts, Error> {
        self.transact("look at the authority", Mode::LongSnapshot, |tx| Box::pin(facts(tx))).await
    }

    /// Raises the epoch: the database was restored or promoted. The new one is above `above` too, if an epoch is known that this database forgot.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn raise_authority_epoch(
        &self,
        actor: Actor,
        detail: Detail,
        above: Option<AuthorityEpoch>,
    ) -> Result<Authority, Error> {
        self.transact("raise the authority's epoch", Mode::Write, move |tx| {
            let detail = detail.clone();
            Box::pin(async move { raise(tx, actor, detail, above).await })
        })
        .await
    }

    /// Lets those hosts go back that wait for it, if there are as many as expected.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn confirm_rollback(&self, actor: Actor, expected: u64) -> Result<Confirmed, Error> {
        self.transact("confirm a step back", Mode::Write, move |tx| {
            Box::pin(async move { confirm(tx, actor, expected).await })
        })
        .await
    }
}

/// Raises the epoch.
pub(crate) async fn raise(
    tx: &mut PgConnection,
    actor: Actor,
    detail: Detail,
    above: Option<AuthorityEpoch>,
) -> Result<Authority, Error> {
    let (id, raw): (Uuid, i64) = sqlx::query_as(
        "UPDATE authority SET authority_epoch = greatest(authority_epoch, $1) + 1, raised_by = $2, raised_for = $3, \
             raised_at = transaction_timestamp() \
         RETURNING authority_id, authority_epoch",
    )
    .bind(big(above.map_or(0, AuthorityEpoch::raw))?)
    .bind(actor.to_string())
    .bind(detail.as_str())
    .fetch_optional(&mut *tx)
    .await?
    .ok_or(Error::NoAuthority)?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", raw)?);
    let mut outbox = Outbox::new(actor);
    outbox.push(AuthorityEpochRaised { epoch, detail })?;
    outbox.write(tx).await?;
    Ok(Authority { id: AuthorityId::new(id), epoch })
}

/// Lets hosts go back, if there are as many as expected.
pub(crate) async fn confirm(tx: &mut PgConnection, actor: Actor, expected: u64) -> Result<Confirmed, Error> {
    let authority = load(&mut *tx).await?;
    let waiting: Vec<(Uuid, i16)> = sqlx::query_as(concat!(
        "SELECT c.host_id, c.component \
         FROM claims c JOIN desired_latest l USING (host_id, component) CROSS JOIN authority a \
         WHERE ",
        waits!(),
        " ORDER BY c.host_id, c.component FOR UPDATE OF c"
    ))
    .fetch_all(&mut *tx)
    .await?;
    let mut hosts: Vec<HostId> = waiting.iter().map(|(host, _)| HostId::new(*host)).collect();
    hosts.dedup();
    let found = u64::try_from(hosts.len()).unwrap_or(u64::MAX);
    if found != expected {
        return Ok(Confirmed::Unexpected(found));
    }
    let (ids, components): (Vec<Uuid>, Vec<i16>) = waiting.into_iter().unzip();
    sqlx::query(
        "UPDATE claims c SET confirmed_at = transaction_timestamp() \
         FROM UNNEST($1::uuid[], $2::smallint[]) AS g (host_id, component) \
         WHERE c.host_id = g.host_id AND c.component = g.component",
    )
    .bind(ids)
    .bind(components)
    .execute(&mut *tx)
    .await?;
    let mut outbox = Outbox::new(actor);
    for some in hosts.chunks(CONFIRMED_HOSTS_MAX) {
        outbox.push(AuthorityRollbackConfirmed { epoch: authority.epoch, hosts: some.to_vec() })?;
    }
    outbox.write(tx).await?;
    Ok(Confirmed::Hosts(found))
}

pub(crate) async fn load(tx: &mut PgConnection) -> Result<Authority, Error> {
    let row: Option<(Uuid, i64)> =
        sqlx::query_as("SELECT authority_id, authority_epoch FROM authority").fetch_optional(&mut *tx).await?;
    let (id, epoch) = row.ok_or(Error::NoAuthority)?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch)?);
    Ok(Authority { id: AuthorityId::new(id), epoch })
}

/// Counts hosts between two lives.
pub(crate) async fn counts(tx: &mut PgConnection) -> Result<LifeCounts, Error> {
    let (ahead, going_back, unheard, following): (i64, i64, i64, i64) = sqlx::query_as(concat!(
        "WITH behind AS ( \
             SELECT l.host_id, bool_or(c.authority_epoch = a.authority_epoch) AS is_heard, bool_or(",
        waits!(),
        ") AS waits \
             FROM desired_latest l JOIN hosts h USING (host_id) CROSS JOIN authority a \
                  LEFT JOIN claims c USING (host_id, component) \
             WHERE h.decommissioned_at IS NULL AND l.authority_epoch < a.authority_epoch GROUP BY l.host_id \
         ), ahead AS ( \
             SELECT count(DISTINCT c.host_id) AS n \
             FROM claims c JOIN desired_latest l USING (host_id, component) CROSS JOIN authority a WHERE ",
        ahead!(),
        ") \
         SELECT (SELECT n FROM ahead), count(*) FILTER (WHERE waits), count(*) FILTER (WHERE is_heard IS NOT TRUE), \
                count(*) FILTER (WHERE is_heard AND waits IS NOT TRUE) FROM behind"
    ))
    .fetch_one(tx)
    .await?;
    Ok(LifeCounts {
        ahead: number("count", ahead)?,
        going_back: number("count", going_back)?,
        unheard: number("count", unheard)?,
        following: number("count", following)?,
    })
}

#[derive(sqlx::FromRow)]
struct ClaimRow {
    host_id: Uuid,
    namespace: String,
    name: String,
    component: i16,
    version: Option<i64>,
    digest: Option<Vec<u8>>,
    latest_version: Option<i64>,
    latest_digest: Option<Vec<u8>>,
    waits: bool,
}

impl ClaimRow {
    fn claim(self) -> Result<Claim, Error> {
        let none = || Error::value("claims.version", "nothing");
        Ok(Claim {
            host: HostId::new(self.host_id),
            namespace: text("hosts.namespace", &self.namespace)?,
            name: text("hosts.name", &self.name)?,
            component: component(self.component)?,
            held: stamp("claims.version", self.version, self.digest.as_deref())?.ok_or_else(none)?,
            latest: stamp("desired_latest.version", self.latest_version, self.latest_digest.as_deref())?
                .ok_or_else(none)?,
            waits_for_confirmation: self.waits,
        })
    }
}

async fn facts(tx: &mut PgConnection) -> Result<AuthorityFacts, Error> {
    type Began = (OffsetDateTime, Option<OffsetDateTime>, Option<String>, Option<String>);
    let authority = load(&mut *tx).await?;
    let (created_at, raised_at, by, because): Began =
        sqlx::query_as("SELECT created_at, raised_at, raised_by, raised_for FROM authority")
            .fetch_one(&mut *tx)
            .await?;
    let rows: Vec<ClaimRow> = sqlx::query_as(concat!(
        "SELECT c.host_id, h.namespace, h.name, c.component, c.version, c.digest, l.version AS latest_version, \
                l.digest AS latest_digest, (",
        waits!(),
        ") AS waits \
         FROM claims c JOIN desired_latest l USING (host_id, component) JOIN hosts h USING (host_id) CROSS JOIN authority a \
         WHERE (",
        waits!(),
        ") OR (",
        ahead!(),
        ") ORDER BY h.namespace, h.name, c.component LIMIT $1"
    ))
    .bind(i64::from(CLAIMS_TOLD))
    .fetch_all(&mut *tx)
    .await?;
    Ok(AuthorityFacts {
        authority,
        since: raised_at.unwrap_or(created_at),
        raised: by.zip(because).map(|(by, because)| Raised { by, because }),
        hosts: counts(tx).await?,
        claims: rows.into_iter().map(ClaimRow::claim).collect::<Result<_, _>>()?,
    })
}
