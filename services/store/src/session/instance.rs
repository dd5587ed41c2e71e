//! Two agents with one identity, told apart by the boot that they name and the address that they come from.
//!
//! - An agent that restarts is the same; a host that boots anew is another one and never again the one before. So who takes the session *back* from another
//!   while that one has it, again and again, is one of two that live: a copied state folder. Their identity is *contested*.
//! - Under one boot only addresses differ, and a host with several ways may come by each in turn: more turns are wanted then.
//! - While it is contested, each holds the session for [`HOLD`] at least: whatever the two do, the plane opens one session a minute for them.
//! - It does not say which of the two is the right one: nobody can.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use holdfast_model::ids::HostId;
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// How long after the last turn an identity is contested.
pub const TURN_WINDOW: Duration = Duration::from_secs(600);
/// How long a session of a contested identity is not given to the other agent.
pub const HOLD: Duration = Duration::from_secs(60);
/// So many turns make an identity contested if the two name different boots.
const TURNS_OF_BOOTS: i32 = 2;
/// So many if they name the same.
const TURNS_OF_ADDRESSES: i32 = 4;

/// Who an agent is beside its identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// The host's boot, as its kernel names it.
    pub boot_id: Uuid,
    /// From where it came, as the gateway sees it.
    pub address: IpAddr,
}

/// What is known of who has a host's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// Who has it, or had it last.
    pub(super) holder: Instance,
    /// Who had it before.
    pub(super) other: Option<Instance>,
    /// How often in a row one took it back from the other.
    pub(super) turns: i32,
    /// Whether the last turn is within the window.
    pub(super) is_recent: bool,
    /// Whether that was often enough.
    pub(super) contested: bool,
    /// How long ago the session was opened.
    pub(super) opened_ago: Duration,
}

/// What becomes of an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It may; nothing is to be noted.
    Same,
    /// It may; this is to be noted.
    Note {
        /// Who had it before.
        other: Option<Instance>,
        /// How often one took it back from the other by now.
        turns: i32,
        /// Whether that is often enough.
        contested: bool,
        /// Whether it was not before.
        is_news: bool,
        /// Whether this is such a turn: the window runs from it, whatever the count was.
        is_turn: bool,
    },
    /// The other one has it for so much longer.
    Held(Duration),
}

/// Judges an opening by `instance`; `is_open` says whether somebody has the session now.
pub(super) fn judge(known: Option<&Known>, is_open: bool, instance: Instance) -> Verdict {
    let Some(known) = known else {
        return Verdict::Note { other: None, turns: 0, contested: false, is_news: false, is_turn: false };
    };
    if known.holder == instance {
        return Verdict::Same;
    }
    if !is_open {
        // Nobody has it: that is no turn, and what was before stays what it was until its window is over.
        let (turns, contested) = if known.is_recent { (known.turns, known.contested) } else { (0, false) };
        return Verdict::Note { other: Some(known.holder), turns, contested, is_news: false, is_turn: false };
    }
    let is_contested = known.contested && known.is_recent;
    if is_contested && known.opened_ago < HOLD {
        return Verdict::Held(HOLD.saturating_sub(known.opened_ago));
    }
    let is_turn = known.other == Some(instance);
    let turns = match (is_turn, known.is_recent || known.turns == 0) {
        (true, true) => known.turns.saturating_add(1),
        (true, false) => 1,
        (false, _) => 0,
    };
    let wanted = if known.holder.boot_id == instance.boot_id { TURNS_OF_ADDRESSES } else { TURNS_OF_BOOTS };
    let contested = turns >= wanted;
    Verdict::Note { other: Some(known.holder), turns, contested, is_news: contested && !is_contested, is_turn }
}

impl Known {
    /// What is known once `instance` was let in, which is the holder now, a moment ago.
    pub(super) fn after(before: Option<&Self>, instance: Instance, verdict: Verdict) -> Self {
        let was = before.copied().unwrap_or(Self {
            holder: instance,
            other: None,
            turns: 0,
            is_recent: false,
            contested: false,
            opened_ago: Duration::ZERO,
        });
        match verdict {
            Verdict::Note { other, turns, contested, is_turn, is_news: _ } => Self {
                holder: instance,
                other,
                turns,
                is_recent: is_turn || was.is_recent,
                contested,
                opened_ago: Duration::ZERO,
            },
            Verdict::Same => Self { opened_ago: Duration::ZERO, ..was },
            Verdict::Held(_) => was,
        }
    }
}

/// Reads what is known of hosts whose sessions are locked.
pub(super) async fn load(tx: &mut PgConnection, hosts: &[Uuid]) -> Result<BTreeMap<HostId, Known>, Error> {
    #[derive(sqlx::FromRow)]
    struct Row {
        host_id: Uuid,
        boot_id: Uuid,
        address: IpNet,
        other_boot_id: Option<Uuid>,
        other_address: Option<IpNet>,
        turns: i32,
        is_recent: bool,
        contested: bool,
        opened_ago: f64,
    }
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT i.host_id, i.boot_id, i.address, i.other_boot_id, i.other_address, i.turns, i.contested, \
                coalesce(i.turned_at > clock_timestamp() - make_interval(secs => $2), false) AS is_recent, \
                coalesce(extract(epoch FROM clock_timestamp() - s.opened_at), 0)::float8 AS opened_ago \
         FROM instances i JOIN sessions s USING (host_id) WHERE i.host_id = ANY($1)",
    )
    .bind(hosts)
    .bind(TURN_WINDOW.as_secs_f64())
    .fetch_all(tx)
    .await?;
    let read = |row: Row| {
        let other = row.other_boot_id.zip(row.other_address);
        let known = Known {
            holder: Instance { boot_id: row.boot_id, address: row.address.addr() },
            other: other.map(|(boot_id, address)| Instance { boot_id, address: address.addr() }),
            turns: row.turns,
            is_recent: row.is_recent,
            contested: row.contested,
            opened_ago: Duration::try_from_secs_f64(row.opened_ago).unwrap_or_default(),
        };
        (HostId::new(row.host_id), known)
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Who takes a session, as it is to be noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    pub(super) holder: Instance,
    pub(super) other: Option<Instance>,
    pub(super) turns: i32,
    pub(super) contested: bool,
    pub(super) is_turn: bool,
}

/// Notes who took sessions.
pub(super) async fn note(tx: &mut PgConnection, takings: &BTreeMap<HostId, Taking>) -> Result<(), Error> {
    if takings.is_empty() {
        return Ok(());
    }
    let all = || takings.values();
    sqlx::query(
        "INSERT INTO instances AS i (host_id, boot_id, address, other_boot_id, other_address, turns, contested, turned_at) \
         SELECT r.host_id, r.boot_id, r.address, r.other_boot_id, r.other_address, r.turns, r.contested, \
                CASE WHEN r.is_turn THEN clock_timestamp() END \
         FROM UNNEST($1::uuid[], $2::uuid[], $3::inet[], $4::uuid[], $5::inet[], $6::integer[], $7::boolean[], $8::boolean[]) \
              AS r (host_id, boot_id, address, other_boot_id, other_address, turns, contested, is_turn) \
         ON CONFLICT (host_id) DO UPDATE SET boot_id = excluded.boot_id, address = excluded.address, \
             other_boot_id = excluded.other_boot_id, other_address = excluded.other_address, turns = excluded.turns, \
             contested = excluded.contested, \
             turned_at = coalesce(excluded.turned_at, i.turned_at)",
    )
    .bind(takings.keys().map(|host| host.uuid()).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.holder.boot_id).collect::<Vec<_>>())
    .bind(all().map(|taking| IpNet::from(taking.holder.address)).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.other.map(|other| other.boot_id)).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.other.map(|other| IpNet::from(other.address))).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.turns).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.contested).collect::<Vec<_>>())
    .bind(all().map(|taking| taking.is_turn).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Openings by agents in turn, each while the one before has the session, so many seconds apart: who is let in, and when it is told.
    fn openings(agents: &[Instance], apart: u64) -> (Vec<bool>, Vec<usize>) {
        let (mut known, mut since, mut turned, mut let_in, mut told) = (None::<Known>, 0, 0, Vec::new(), Vec::new());
        for (n, agent) in agents.iter().enumerate() {
            since += apart;
            turned += apart;
            if let Some(known) = &mut known {
                known.opened_ago = Duration::from_secs(since);
                known.is_recent &= turned < TURN_WINDOW.as_secs();
            }
            let verdict = judge(known.as_ref(), known.is_some(), *agent);
            let_in.push(!matches!(verdict, Verdict::Held(_)));
            if let Verdict::Note { is_news, is_turn, .. } = verdict {
                if is_news {
                    told.push(n);
                }
                if is_turn {
                    turned = 0;
                }
            }
            known = Some(Known::after(known.as_ref(), *agent, verdict));
            if !matches!(verdict, Verdict::Held(_)) {
                since = 0;
            }
        }
        (let_in, told)
    }

    fn mk_instance(boot: u128, address: u8) -> Instance {
        Instance { boot_id: Uuid::from_u128(boot), address: [10, 0, 0, address].into() }
    }

    #[test]
    fn two_boots_that_take_a_session_from_each_other_in_turn_are_told_once_and_take_it_once_a_minute() {
        let (one, two) = (mk_instance(1, 1), mk_instance(2, 2));
        let agents = [one, two].repeat(4);
        let (let_in, told) = openings(&agents, 5);
        assert_eq!(told, [3], "the second return");
        assert_eq!(let_in, [true, true, true, true, false, true, false, true], "the holder itself may always");
        let (let_in, told) = openings(&agents, 60);
        assert_eq!((let_in, told), (vec![true; 8], vec![3]));
        // An hour apart they are two that are never up together.
        assert_eq!(openings(&agents, 3_600).1, [] as [usize; 0]);
    }

    #[test]
    fn two_that_rest_and_begin_anew_are_told_anew() {
        let (one, two) = (mk_instance(1, 1), mk_instance(2, 2));
        let mut known = None::<Known>;
        let mut told = Vec::new();
        for (n, agent) in [one, two].repeat(8).into_iter().enumerate() {
            let rests = n == 8;
            if let Some(known) = &mut known {
                known.opened_ago = HOLD;
                known.is_recent &= !rests;
            }
            let verdict = judge(known.as_ref(), known.is_some(), agent);
            if matches!(verdict, Verdict::Note { is_news: true, .. }) {
                told.push(n);
            }
            known = Some(Known::after(known.as_ref(), agent, verdict));
        }
        assert_eq!(told, [3, 9], "the second turn after a rest of more than the window, as at first");
    }

    #[test]
    fn a_host_that_restarts_boots_or_moves_is_no_two() {
        let restarts = [mk_instance(1, 1)].repeat(20);
        assert_eq!(openings(&restarts, 1), (vec![true; 20], vec![]));
        let boots: Vec<Instance> = (0..20).map(|n| mk_instance(n, 1)).collect();
        assert_eq!(openings(&boots, 30), (vec![true; 20], vec![]));
        let moves: Vec<Instance> = (0..20).map(|n| mk_instance(1, n)).collect();
        assert_eq!(openings(&moves, 1), (vec![true; 20], vec![]));
        // Another way and back, and once more: what a host with two ways may do.
        let ways = [1, 2, 1, 2].map(|way| mk_instance(1, way));
        assert_eq!(openings(&ways, 1), (vec![true; 4], vec![]));
    }

    #[test]
    fn two_addresses_of_one_boot_need_more_turns() {
        let agents = [mk_instance(1, 1), mk_instance(1, 2)].repeat(4);
        let (let_in, told) = openings(&agents, 1);
        assert_eq!(told, [5]);
        assert_eq!(let_in.iter().filter(|let_in| !**let_in).count(), 1);
    }

    #[test]
    fn a_session_that_ended_is_taken_from_nobody() {
        let known = Known {
            holder: mk_instance(1, 1),
            other: Some(mk_instance(2, 2)),
            turns: 5,
            is_recent: true,
            contested: true,
            opened_ago: Duration::ZERO,
        };
        let verdict = judge(Some(&known), false, mk_instance(2, 2));
        assert_eq!(
            verdict,
            Verdict::Note { other: Some(known.holder), turns: 5, contested: true, is_news: false, is_turn: false }
        );
        let verdict = judge(Some(&known), true, mk_instance(2, 2));
        assert_eq!(verdict, Verdict::Held(HOLD));
    }
}
