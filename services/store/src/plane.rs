//! What the database knows of the processes around it: who renders, who serves, and how far each step of an event's way is.
//!
//! - An event's way has three steps: its number (the renderer), the stream (the relay), the audit log. What waits before each is judged by its age, not
//!   by a count: ten thousand events are a second of one fleet and days of another.
//! - Ages are by the database's clock, but for when a gateway began, which its own clock put into its id.

use std::time::Duration;

use holdfast_model::ids::GatewayId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::authority::{self, LifeCounts};
use crate::error::Error;
use crate::lease::{BusReport, LEASE_TTL, RENDERER_LEASE};
use crate::pool::{Mode, Store};
use crate::session::{Instance, TURN_WINDOW};
use crate::value::{big, number, text};

/// How many events are looked at before each step: of the newest for those without a number (one is among them, or its relay has been away for longer
/// than these took), of the oldest for the others.
pub const EVENTS_LOOKED_AT: u32 = 10_000;

/// How long a gateway process is told whose lease ended without a word: who comes in the morning asks others.
pub const SILENCE_TOLD: Duration = Duration::from_secs(3_600);

/// How many hosts with two agents are told.
pub const CONTESTED_TOLD_MAX: u32 = 10;

/// A place in the order of events.
pub type EventPlace = (AuthorityEpoch, EventSeq);

/// The holder of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseFacts {
    /// Who.
    pub holder: String,
    /// How long ago it said that it lives.
    pub renewed_ago: Duration,
    /// How long its lease holds without renewal.
    pub lasts: Duration,
}

/// A host whose identity two agents have that live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContestedHost {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Who has its session.
    pub holder: Instance,
    /// Who had it before.
    pub other: Instance,
    /// How long ago one took it from the other.
    pub turned_ago: Duration,
}

/// Events before a step of their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitingEvents {
    /// How many, at most [`EVENTS_LOOKED_AT`].
    pub count: u64,
    /// How old the oldest of them is.
    pub age: Duration,
}

/// The processes, as the database knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaneFacts {
    /// Who holds the renderer's lease; nobody if it ran out.
    pub renderer: Option<LeaseFacts>,
    /// What the renderer said of the bus.
    pub bus: BusReport,
    /// The gateway processes that hold a lease.
    pub gateways: Vec<LeaseFacts>,
    /// The gateway processes whose lease ended within [`SILENCE_TOLD`] without being given back, and that no later one stands in for.
    pub silent_gateways: Vec<LeaseFacts>,
    /// Hosts whose identity two agents have, the last turn first; at most [`CONTESTED_TOLD_MAX`].
    pub contested: Vec<ContestedHost>,
    /// The last number that an event has; zero if none has one.
    pub last_event: EventPlace,
    /// The newest events that have no number.
    pub unnumbered: WaitingEvents,
    /// Events with a number that the stream is not known to hold; absent if nobody says what it holds.
    pub unrelayed: Option<WaitingEvents>,
    /// Events that the stream holds, as far as is known, and the audit log does not.
    pub unaudited: WaitingEvents,
    /// Hosts between two lives of the authority.
    pub life: LifeCounts,
}

impl Store {
    /// Reads them; `audited` is the last event that the audit log holds, zero if it holds none.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn plane_facts(&self, audited: Option<EventPlace>) -> Result<PlaneFacts, Error> {
        self.transact("look at the plane", Mode::Snapshot, move |tx| Box::pin(facts(tx, audited))).await
    }
}

#[derive(sqlx::FromRow)]
struct LeaseRow {
    name: String,
    holder: String,
    remaining: f64,
    lasts: f64,
    now: f64,
    hint_fault: Option<String>,
    event_fault: Option<String>,
    relayed_epoch: Option<i64>,
    relayed_seq: Option<i64>,
}

impl LeaseRow {
    fn is_held(&self) -> bool {
        self.remaining > 0.0
    }

    fn facts(&self) -> LeaseFacts {
        let renewed_ago = Duration::try_from_secs_f64(self.lasts - self.remaining).unwrap_or_default();
        let lasts = Duration::try_from_secs_f64(self.lasts).unwrap_or(LEASE_TTL);
        LeaseFacts { holder: self.holder.clone(), renewed_ago, lasts }
    }

    /// How long ago the gateway process began that this lease is of, by the time in its id; absent if its id has none.
    fn began_ago(&self) -> Option<Duration> {
        let gateway: GatewayId = self.name.parse().ok()?;
        let (seconds, nanos) = gateway.uuid().get_timestamp()?.to_unix();
        let began = Duration::new(seconds, nanos).as_secs_f64();
        Some(Duration::try_from_secs_f64(self.now - began).unwrap_or_default())
    }

    fn report(&self) -> Result<BusReport, Error> {
        let relayed = match (self.relayed_epoch, self.relayed_seq) {
            (Some(epoch), Some(seq)) => Some(place(epoch, seq)?),
            (Some(_) | None, _) => None,
        };
        Ok(BusReport { hint_fault: self.hint_fault.clone(), event_fault: self.event_fault.clone(), relayed })
    }
}

async fn facts(tx: &mut PgConnection, audited: Option<EventPlace>) -> Result<PlaneFacts, Error> {
    let leases: Vec<LeaseRow> = sqlx::query_as(
        "SELECT name, holder, extract(epoch FROM expires_at - n.now)::float8 AS remaining, \
                coalesce(lasts_s, 30) AS lasts, extract(epoch FROM n.now)::float8 AS now, hint_fault, event_fault, relayed_epoch, relayed_seq \
         FROM leases, (SELECT clock_timestamp() AS now) n ORDER BY name",
    )
    .fetch_all(&mut *tx)
    .await?;
    let renderer = leases.iter().find(|lease| lease.name == RENDERER_LEASE && lease.is_held());
    let gateways: Vec<&LeaseRow> = leases.iter().filter(|lease| lease.name.starts_with("gw_")).collect();
    let (epoch, seq): (i64, i64) = sqlx::query_as(
        "SELECT a.authority_epoch, coalesce((SELECT max(seq) FROM event_order o \
         WHERE o.authority_epoch = a.authority_epoch), 0) FROM authority a",
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or(Error::NoAuthority)?;
    let last_event = place(epoch, seq)?;
    let bus = renderer.map(LeaseRow::report).transpose()?.unwrap_or_default();
    let unrelayed = match bus.relayed {
        Some(relayed) => Some(between(tx, relayed, last_event).await?),
        None => None,
    };
    // A place of a later life than this database has is none: it was restored, or the log is another's.
    let audited = audited.filter(|audited| audited.0 <= last_event.0);
    let audited = audited.unwrap_or((AuthorityEpoch::from_raw(1), EventSeq::ZERO));
    Ok(PlaneFacts {
        life: authority::counts(&mut *tx).await?,
        unnumbered: unnumbered(&mut *tx).await?,
        unrelayed,
        unaudited: between(tx, audited, bus.relayed.unwrap_or(last_event)).await?,
        renderer: renderer.map(LeaseRow::facts),
        silent_gateways: silent(&gateways),
        gateways: gateways.into_iter().filter(|lease| lease.is_held()).map(LeaseRow::facts).collect(),
        contested: contested(tx).await?,
        bus,
        last_event,
    })
}

/// Those that fell silent and have no successor. A gateway that is started again is a new process with a new id, so each one that began after another
/// was last heard stands in for one, whatever became of it: what counts is that somebody saw to it.
fn silent(gateways: &[&LeaseRow]) -> Vec<LeaseFacts> {
    let mut begun: Vec<Duration> = gateways.iter().filter_map(|lease| lease.began_ago()).collect();
    begun.sort_unstable_by(|one, other| other.cmp(one));
    let ended = gateways.iter().filter(|lease| !lease.is_held()).map(|lease| lease.facts());
    let mut ended: Vec<LeaseFacts> = ended.filter(|lease| lease.renewed_ago < SILENCE_TOLD + LEASE_TTL).collect();
    ended.sort_by_key(|lease| lease.renewed_ago);
    // The last to fall silent takes the last that began.
    ended.retain(|lease| begun.pop_if(|began| *began < lease.renewed_ago).is_none());
    ended
}

async fn contested(tx: &mut PgConnection) -> Result<Vec<ContestedHost>, Error> {
    let rows: Vec<(String, String, Uuid, IpNet, Uuid, IpNet, f64)> = sqlx::query_as(
        "SELECT h.namespace, h.name, i.boot_id, i.address, i.other_boot_id, i.other_address, \
                extract(epoch FROM clock_timestamp() - i.turned_at)::float8 \
         FROM instances i JOIN hosts h USING (host_id) \
         WHERE i.contested AND i.turned_at > clock_timestamp() - make_interval(secs => $1) AND i.other_boot_id IS NOT NULL \
         ORDER BY i.turned_at DESC LIMIT $2",
    )
    .bind(TURN_WINDOW.as_secs_f64())
    .bind(i64::from(CONTESTED_TOLD_MAX))
    .fetch_all(tx)
    .await?;
    let read = |(namespace, name, boot_id, address, other_boot_id, other_address, ago): (
        String,
        String,
        _,
        IpNet,
        _,
        IpNet,
        f64,
    )| {
        Ok(ContestedHost {
            namespace: text("hosts.namespace", &namespace)?,
            name: text("hosts.name", &name)?,
            holder: Instance { boot_id, address: address.addr() },
            other: Instance { boot_id: other_boot_id, address: other_address.addr() },
            turned_ago: Duration::try_from_secs_f64(ago).unwrap_or_default(),
        })
    };
    rows.into_iter().map(read).collect()
}

async fn unnumbered(tx: &mut PgConnection) -> Result<WaitingEvents, Error> {
    let row: (i64, f64) = sqlx::query_as(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.at)), 0)::float8 \
         FROM (SELECT event_id, at FROM events ORDER BY lid DESC LIMIT $1) e \
         WHERE NOT EXISTS (SELECT FROM event_order o WHERE o.event_id = e.event_id)",
    )
    .bind(i64::from(EVENTS_LOOKED_AT))
    .fetch_one(tx)
    .await?;
    waiting(row)
}

/// Numbered events behind one place, up to another.
async fn between(tx: &mut PgConnection, behind: EventPlace, to: EventPlace) -> Result<WaitingEvents, Error> {
    let row: (i64, f64) = sqlx::query_as(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.at)), 0)::float8 \
         FROM (SELECT event_id FROM event_order \
               WHERE (authority_epoch, seq) > ($1, $2) AND (authority_epoch, seq) <= ($3, $4) \
               ORDER BY authority_epoch, seq LIMIT $5) o JOIN events e USING (event_id)",
    )
    .bind(big(behind.0.raw())?)
    .bind(big(behind.1.raw())?)
    .bind(big(to.0.raw())?)
    .bind(big(to.1.raw())?)
    .bind(i64::from(EVENTS_LOOKED_AT))
    .fetch_one(tx)
    .await?;
    waiting(row)
}

fn place(epoch: i64, seq: i64) -> Result<EventPlace, Error> {
    Ok((AuthorityEpoch::from_raw(number("authority_epoch", epoch)?), EventSeq::from_raw(number("seq", seq)?)))
}

fn waiting((count, age): (i64, f64)) -> Result<WaitingEvents, Error> {
    Ok(WaitingEvents { count: number("count", count)?, age: Duration::from_secs_f64(age.max(0.0)) })
}

#[cfg(test)]
mod tests {
    use uuid::{NoContext, Timestamp, Uuid};

    use super::*;

    const NOW_SECONDS: u64 = 1_800_000_000;

    /// A gateway that began and was last heard so many seconds ago.
    fn mk_row(began_ago: u64, heard_ago: u32) -> LeaseRow {
        let began = Timestamp::from_unix(NoContext, NOW_SECONDS - began_ago, 0);
        let name = GatewayId::new(Uuid::new_v7(began)).to_string();
        let remaining = LEASE_TTL.as_secs_f64() - f64::from(heard_ago);
        let (holder, now) = (name.clone(), 1_800_000_000.0);
        let (hint_fault, event_fault, relayed_epoch, relayed_seq) = (None, None, None, None);
        let lasts = LEASE_TTL.as_secs_f64();
        LeaseRow { name, holder, remaining, lasts, now, hint_fault, event_fault, relayed_epoch, relayed_seq }
    }

    /// When the silent ones of these were last heard, in seconds before now.
    fn heard(rows: &[LeaseRow]) -> Vec<u64> {
        silent(&rows.iter().collect::<Vec<_>>()).iter().map(|lease| lease.renewed_ago.as_secs()).collect()
    }

    #[test]
    fn a_gateway_that_fell_silent_is_told_for_an_hour_unless_a_later_one_stands_in_for_it() {
        const GIVEN_BACK: u32 = 1_800_000_000;
        let held = || mk_row(9_000, 3);
        assert_eq!(heard(&[held(), mk_row(9_000, 29)]), [] as [u64; 0], "its lease has not ended");
        assert_eq!(heard(&[held(), mk_row(9_000, 31)]), [31]);
        assert_eq!(heard(&[held(), mk_row(9_000, 3_629)]), [3_629]);
        assert_eq!(heard(&[held(), mk_row(9_000, 3_630)]), [] as [u64; 0], "an hour after its lease ended");
        assert_eq!(heard(&[held(), mk_row(9_000, GIVEN_BACK)]), [] as [u64; 0]);
        // Each start makes up for one end that was before it, also where it ended in turn.
        assert_eq!(heard(&[mk_row(50, 3), mk_row(9_000, 60)]), [] as [u64; 0]);
        assert_eq!(heard(&[mk_row(70, 3), mk_row(9_000, 60)]), [60], "it began before");
        assert_eq!(heard(&[mk_row(50, 3), mk_row(9_000, 60), mk_row(9_000, 80)]), [80]);
        assert_eq!(heard(&[mk_row(50, 3), mk_row(90, 60), mk_row(9_000, 100)]), [] as [u64; 0]);
        assert_eq!(heard(&[held(), mk_row(50, GIVEN_BACK), mk_row(9_000, 60)]), [] as [u64; 0], "somebody saw to it");
    }
}
