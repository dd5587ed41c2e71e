//! What hosts say of themselves as a whole: the newest of each, and an event where it is something else than before.
//!
//! - Fenced by the session as outcomes are; within a session a later number counts, and one that is repeated changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_events::{Actor, SignatureBytes, StatusRecorded};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::value::{big, digest, number, to_json};

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

/// What is known of a host: the place of its last status, what it had answered by then, and its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    place: (SessionEpoch, u64),
    answered: UpdateSeq,
    digest: Digest,
}

impl Known {
    /// Whether evidence is another by this one: not if the same is only said again.
    fn is_news_after(&self, before: Option<&Self>) -> bool {
        let said = |known: &Self| (known.place.0, known.answered, known.digest);
        before.map(said) != Some(said(self))
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
    let (mut outbox, mut news) = (Outbox::new(Actor::Gateway(gateway)), 0);
    // A later one of a host in one batch is the one that stays.
    let mut last: BTreeMap<HostId, (&StatusFact, Digest)> = BTreeMap::new();
    for fact in facts {
        let StatusFact { host, session_epoch, said } = fact;
        let place = (*session_epoch, said.seq);
        let before = known.get(host);
        if before.is_some_and(|known| known.place >= place) {
            continue;
        }
        let digest = said.report.digest();
        let now = Known { place, answered: said.report.answered, digest };
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
        last.insert(*host, (fact, digest));
    }
    keep(tx, &last).await?;
    outbox.write(tx).await?;
    Ok(news)
}

async fn lock_known(tx: &mut PgConnection, hosts: &[Uuid]) -> Result<BTreeMap<HostId, Known>, Error> {
    type Row = (Uuid, i64, i64, i64, Vec<u8>);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT host_id, session_epoch, seq, answered, digest FROM statuses WHERE host_id = ANY($1) \
         ORDER BY host_id FOR UPDATE",
    )
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    let read = |(host, epoch, seq, answered, name): Row| {
        let epoch = SessionEpoch::from_raw(number("statuses.session_epoch", epoch)?);
        let known = Known {
            place: (epoch, number("statuses.seq", seq)?),
            answered: UpdateSeq::from_raw(number("statuses.answered", answered)?),
            digest: digest("statuses.digest", &name)?,
        };
        Ok((HostId::new(host), known))
    };
    rows.into_iter().map(read).collect()
}

async fn keep(tx: &mut PgConnection, last: &BTreeMap<HostId, (&StatusFact, Digest)>) -> Result<(), Error> {
    if last.is_empty() {
        return Ok(());
    }
    fn column<T>(
        last: &BTreeMap<HostId, (&StatusFact, Digest)>,
        read: impl Fn(&StatusFact) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        last.values().map(|(fact, _)| read(fact)).collect()
    }
    sqlx::query(
        "INSERT INTO statuses AS s (host_id, session_epoch, seq, answered, digest, components, signature, told_at) \
         SELECT r.*, transaction_timestamp() \
         FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::jsonb[], $7::bytea[]) \
         AS r (host_id, session_epoch, seq, answered, digest, components, signature) \
         ON CONFLICT (host_id) DO UPDATE SET session_epoch = excluded.session_epoch, seq = excluded.seq, \
             answered = excluded.answered, digest = excluded.digest, components = excluded.components, \
             signature = excluded.signature, told_at = excluded.told_at",
    )
    .bind(last.keys().map(|host| host.uuid()).collect::<Vec<_>>())
    .bind(column(last, |fact| big(fact.session_epoch.raw()))?)
    .bind(column(last, |fact| big(fact.said.seq))?)
    .bind(column(last, |fact| big(fact.said.report.answered.raw()))?)
    .bind(last.values().map(|(_, digest)| digest.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(column(last, |fact| to_json("statuses.components", &fact.said.report.components))?)
    .bind(column(last, |fact| Ok(fact.said.signature.as_bytes().to_vec()))?)
    .execute(tx)
    .await?;
    Ok(())
}
