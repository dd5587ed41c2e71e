//! What one schedule is made of, all of it drawn from its seed.
//!
//! - Each schedule has some kinds of faults and not others, so that each kind also meets a world without the rest.

use std::time::Duration;

use holdfast_session::random::Random;
use holdfast_session::replica::{Limits, Pace};
use holdfast_wire::message::SessionLimits;

/// The product's pace of compares (`COMPARE_INTERVAL`, `HOLE_PAUSE`, `COMPARE_RETRY`).
pub(crate) const PACE: Pace =
    Pace { interval: Duration::from_secs(30), doubt_pause: Duration::from_secs(1), retry: Duration::from_secs(5) };

/// How sessions come to know of what is newer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// By hints, and by the compare behind them.
    Both,
    /// By hints alone: nothing loses one, and no compare runs.
    HintsOnly,
    /// By the compare alone: every hint is lost.
    CompareOnly,
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Connections break, or swallow what is written.
    Links,
    /// Hosts are cut off from every gateway for a while.
    Partitions,
    /// A reader stops reading for a while.
    SlowReaders,
    /// Gateways are killed or stand still.
    Gateways,
    /// Agents are killed at any point of an update, or stand still.
    Agents,
    /// Renderers are killed or stand still beyond their lease.
    Renderers,
    /// The database is away, or away for one gateway; commits fail or are not answered.
    Database,
    /// Hints are lost, doubled, late.
    Bus,
    /// Clocks jump.
    Clocks,
    /// Disks of hosts are slow or refuse.
    Disks,
    /// Kernels of hosts refuse, or hold something else.
    Kernels,
    /// Two agents have one identity.
    Clones,
    /// A host's state folder is of an earlier day.
    OldState,
    /// A host says what is not so.
    Liars,
    /// An operator asks for whole states, drains gateways.
    Operators,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Links,
        Self::Partitions,
        Self::SlowReaders,
        Self::Gateways,
        Self::Agents,
        Self::Renderers,
        Self::Database,
        Self::Bus,
        Self::Clocks,
        Self::Disks,
        Self::Kernels,
        Self::Clones,
        Self::OldState,
        Self::Liars,
        Self::Operators,
    ];
}

/// One schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many gateways there are.
    pub gateways: usize,
    /// How many hosts.
    pub hosts: usize,
    /// How long there are faults, in milliseconds.
    pub chaos_ms: u64,
    /// How many edits an operator makes meanwhile.
    pub edits: u64,
    /// How sessions come to know of what is newer.
    pub repair: Repair,
    /// What may happen.
    pub kinds: Vec<Kind>,
    /// How far faults are apart at most, in milliseconds.
    pub fault_gap_ms: u64,
    /// What a session may carry.
    pub limits: SessionLimits,
    /// Builds at once on each gateway.
    pub builds_max: usize,
    /// How facts wait on each gateway.
    pub facts: Limits,
    /// How far apart compares are.
    pub pace: Pace,
    /// What a socket holds.
    pub socket_bytes: usize,
    /// How long bytes travel at most, in milliseconds.
    pub latency_ms: u64,
    /// How long what was read from the database travels at most, in milliseconds.
    pub read_ms: u64,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(random: &mut Random) -> Self {
        let mut between = |first: u64, last: u64| first + random.up_to(last - first);
        let repair = match between(0, 9) {
            0 | 1 => Repair::HintsOnly,
            2 => Repair::CompareOnly,
            _ => Repair::Both,
        };
        let kinds = Kind::ALL.into_iter().filter(|_| between(0, 9) < 4).collect();
        let small = |n: u64| usize::try_from(n).unwrap_or(1);
        let ms = Duration::from_millis;
        let limits = SessionLimits {
            body_bytes_max: 64 * 1024,
            updates_in_flight_max: u16::try_from(between(1, 8)).unwrap_or(4),
            bytes_in_flight_max: u32::try_from(between(400, 8_000)).unwrap_or(4_000),
        };
        Self {
            gateways: small(between(1, 3)),
            hosts: small(between(1, 3)),
            chaos_ms: between(5_000, 60_000),
            edits: between(1, 8),
            repair,
            kinds,
            fault_gap_ms: between(300, 12_000),
            limits,
            builds_max: small(between(4, 8)),
            facts: Limits {
                // In half of them little more than what hosts that connect at once make.
                waiting_max: small(if between(0, 1) == 0 { between(14, 24) } else { between(24, 200) }),
                batch_max: small(between(2, 48)),
                gather: ms(between(1, 20)),
                presence_gather: ms(between(50, 500)),
                retry: ms(between(50, 300)),
                retry_max: ms(between(500, 5_000)),
            },
            pace: PACE,
            socket_bytes: small(between(200, 6_000)),
            latency_ms: between(1, 60),
            read_ms: if between(0, 2) == 0 { between(10, 800) } else { 3 },
        }
    }

    /// Whether a kind of fault may happen.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The interval of liveness.
    #[must_use]
    pub const fn liveness_interval(&self) -> Duration {
        Duration::from_secs(15)
    }
}
