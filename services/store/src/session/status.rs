//! What hosts say of themselves as a whole: the newest of each, and an event where it is something else than before.
//!
//! - Fenced by the session as outcomes are; within a session a later number counts, and one that is repeated changes nothing.
//! - When it was told last moves with each; since when something that blocks is false does not, while it is of one version and one session.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_events::{Actor, SignatureBytes, StatusRecorded};
use holdfast_model::condition::Holds;
use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::report::{ComponentReport, HostReport};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::value::{big, digest, from_json, number, to_json};

/// What a host says of itself as a whole. The gateway has verified the signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusSaid {
    /// As which of its session.
    pub seq: u64,
    /// What is said.
    pub report: HostReport,
    /// The host's word for it.
    pub signature: SignatureBytes,
}

/// A status of a host in a session that is its own.
#[derive(Clone, Debug)]
pub(super) struct StatusFact {
    pub(super) host: HostId,
    pub(super) session_epoch: SessionEpoch,
    pub(super) said: StatusSaid,
}

/// Something that blocks is false of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Failing {
    /// At which version.
    version: Option<Version>,
    /// Since when it was said at each look, in microseconds since 1970 by the database's clock.
    since_us: i64,
}

impl Failing {
    /// Since when.
    pub(crate) fn since(self) -> Option<OffsetDateTime> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.since_us) * 1_000).ok()
    }
}

/// What of each component fails.
pub(crate) type FailingParts = BTreeMap<Component, Failing>;

/// The newest version at which something that blocks is false, if anything is.
fn failing_version(component: &ComponentReport) -> Option<Option<Version>> {
    let conditions = component.conditions.iter().map(|stated| &stated.condition);
    let failing = conditions.filter(|condition| condition.kind.is_blocking() && condition.status == Holds::False);
    failing.map(|condition| condition.observed_version).max()
}

/// What is known of a host: the place of its last status, what it had answered by then, its name, and what fails.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    place: (SessionEpoch, u64),
    answered: UpdateSeq,
    digest: Digest,
    failing: FailingParts,
}

impl Known {
    /// Whether evidence is another by this one: not if the same is only said again.
    fn is_news_after(&self, before: Option<&Self>) -> bool {
        let said = |known: &Self| (known.place.0, known.answered, known.digest);
        before.map(said) != Some(said(self))
    }

    /// What fails by a report: what failed before, at the same version and in the same session, since then.
    fn failing_by(said: &StatusSaid, session_epoch: SessionEpoch, before: Option<&Self>, now_us: i64) -> FailingParts {
        let before = before.filter(|known| known.place.0 == session_epoch).map(|known| &known.failing);
        let one = |component: &ComponentReport| {
            let version = failing_version(component)?;
            let earlier = before.and_then(|failing| failing.get(&component.component));
            let since_us = earlier.filter(|failing| failing.version == version).map_or(now_us, |one| one.since_us);
            Some((component.component, Failing { version, since_us }))
        };
        said.report.components.iter().filter_map(one).collect()
    }
}

/// Records statuses, in the order given; how many of them are news.
pub(super) async fn record_statuses(
    tx: &mut PgConnection,
    gateway: GatewayId,
    facts: &[StatusFact],
) -> Result<usize, Error> {
    let hosts: BTreeSet<Uuid> = facts.iter().map(|fact| fact.host.uuid()).collect();
    let mut known = lock_known(tx, &hosts.into_iter().collect::<Vec<_>>()).await?;
    let now_us: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint")
        .fetch_one(&mut *tx)
        .await?;
    let (mut outbox, mut news) = (Outbox::new(Actor::Gateway(gateway)), 0);
    // A later one of a host in one batch is the one that stays.
    let mut last: Last<'_> = BTreeMap::new();
    for fact in facts {
        let StatusFact { host, session_epoch, said } = fact;
        let place = (*session_epoch, said.seq);
        let before = known.get(host);
        if before.is_some_and(|known| known.place >= place) {
            continue;
        }
        let digest = said.report.digest();
        let failing = Known::failing_by(said, *session_epoch, before, now_us);
        let now = Known { place, answered: said.report.answered, digest, failing: failing.clone() };
        news += usize::from(now.is_news_after(before));
        if before.is_none_or(|known| known.digest != digest) {
            let event = StatusRecorded {
                host: *host,
                session_epoch: *session_epoch,
                seq: said.seq,
                answered: said.report.answered,
                digest,
                components: said.report.components.clone(),
                signature: said.signature,
            };
            outbox.push_as(Actor::Host(*host), None, &event.into())?;
        }
        known.insert(*host, now);
        last.insert(*host, (fact, digest, failing));
    }
    keep(tx, &last).await?;
    outbox.write(tx).await?;
    Ok(news)
}

/// What stays of each host in a batch.
type Last<'a> = BTreeMap<HostId, (&'a StatusFact, Digest, FailingParts)>;

/// What is kept of hosts; what of it cannot be read is as if it had never been said, and is written anew.
async fn lock_known(tx: &mut PgConnection, hosts: &[Uuid]) -> Result<BTreeMap<HostId, Known>, Error> {
    type Row = (Uuid, i64, i64, i64, Vec<u8>, serde_json::Value);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT host_id, session_epoch, seq, answered, digest, failing FROM statuses WHERE host_id = ANY($1) \
         ORDER BY host_id FOR UPDATE",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    let read = |(host, epoch, seq, answered, name, failing): Row| {
        let epoch = SessionEpoch::from_raw(number("statuses.session_epoch", epoch)?);
        let known = Known {
            place: (epoch, number("statuses.seq", seq)?),
            answered: UpdateSeq::from_raw(number("statuses.answered", answered)?),
            digest: digest("statuses.digest", &name)?,
            failing: from_json("statuses.failing", failing)?,
        };
        Ok::<_, Error>((HostId::new(host), known))
    };
    Ok(rows.into_iter().filter_map(|row| read(row).ok()).collect())
}

async fn keep(tx: &mut PgConnection, last: &Last<'_>) -> Result<(), Error> {
    if last.is_empty() {
        return Ok(());
    }
    fn column<T>(last: &Last<'_>, read: impl Fn(&StatusFact) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        last.values().map(|(fact, ..)| read(fact)).collect()
    }
    let failing =
        last.values().map(|(.., failing)| to_json("statuses.failing", failing)).collect::<Result<Vec<_>, _>>()?;
    sqlx::query(
        "INSERT INTO statuses AS s (host_id, session_epoch, seq, answered, digest, components, signature, failing, told_at) \
         SELECT r.*, transaction_timestamp() \
         FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::jsonb[], $7::bytea[], $8::jsonb[]) \
         AS r (host_id, session_epoch, seq, answered, digest, components, signature, failing) \
         ON CONFLICT (host_id) DO UPDATE SET session_epoch = excluded.session_epoch, seq = excluded.seq, \
             answered = excluded.answered, digest = excluded.digest, components = excluded.components, \
             signature = excluded.signature, failing = excluded.failing, told_at = excluded.told_at",
    )
    .bind(last.keys().map(|host| host.uuid()).collect::<Vec<_>>())
    .bind(column(last, |fact| big(fact.session_epoch.raw()))?)
    .bind(column(last, |fact| big(fact.said.seq))?)
    .bind(column(last, |fact| big(fact.said.report.answered.raw()))?)
    .bind(last.values().map(|(_, digest, _)| digest.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(column(last, |fact| to_json("statuses.components", &fact.said.report.components))?)
    .bind(column(last, |fact| Ok(fact.said.signature.as_bytes().to_vec()))?)
    .bind(failing)
    .execute(tx)
    .await?;
    Ok(())
}
