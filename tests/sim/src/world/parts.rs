//! The processes and what they hold, and the actions that move them.

use std::sync::Arc;

use holdfast_events::relay::Relay;
use holdfast_events::{HintNumbers, HostHint};
use holdfast_model::desired::Component;
use holdfast_model::numbers::LeaseTerm;
use holdfast_render::fleet::{Fleet, Planned};
use holdfast_render::tenure::Tenure;
use holdfast_session::agent::Dialer;
use holdfast_session::time::Instant;

use super::World;
use super::engine::{Disk, Engine};
use super::gateway::Machines;
use super::relay::{Left, Publication};

/// One process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Process {
    Gateway(usize),
    Agent(usize),
    Renderer(usize),
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Agent,
    Gateway,
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Action {
    Arrive { conn: usize, toward: End },
    Lost { conn: usize, at: End },
    Dial { agent: usize, life: u32 },
    Connect { agent: usize, life: u32, attempt: u64, gateway: usize },
    AgentTimer { conn: usize },
    GatewayTimer { conn: usize },
    Mail { conn: usize },
    Scheduler { gateway: usize, life: u32 },
    Record { gateway: usize, life: u32 },
    Lease { gateway: usize, life: u32 },
    Compare { gateway: usize, life: u32 },
    Execute { op: usize },
    Commit { op: usize },
    Reply { op: usize },
    Hint { gateway: usize, life: u32, hint: Arc<HostHint> },
    Engine { agent: usize, life: u32 },
    Stand { renderer: usize, life: u32 },
    KeepLease { renderer: usize, turn: u64 },
    Render { renderer: usize, turn: u64 },
    Relay { renderer: usize, turn: u64 },
    Published { renderer: usize, turn: u64, publication: Publication },
    Start(Process),
    Edit,
    Fault,
    Heal,
    Look,
}

impl Action {
    /// The process that must go on for it.
    pub(crate) fn process(&self, world: &World) -> Option<Process> {
        let of_conn = |conn: usize, end: End| {
            let conn = world.conns.get(conn)?;
            Some(match end {
                End::Agent => Process::Agent(conn.agent),
                End::Gateway => Process::Gateway(conn.gateway),
            })
        };
        match self {
            Self::Arrive { conn, toward: end } | Self::Lost { conn, at: end } => of_conn(*conn, *end),
            Self::AgentTimer { conn } => of_conn(*conn, End::Agent),
            Self::GatewayTimer { conn } | Self::Mail { conn } => of_conn(*conn, End::Gateway),
            Self::Dial { agent, .. } | Self::Connect { agent, .. } | Self::Engine { agent, .. } => {
                Some(Process::Agent(*agent))
            }
            Self::Scheduler { gateway, .. }
            | Self::Record { gateway, .. }
            | Self::Lease { gateway, .. }
            | Self::Compare { gateway, .. }
            | Self::Hint { gateway, .. } => Some(Process::Gateway(*gateway)),
            Self::Stand { renderer, .. }
            | Self::KeepLease { renderer, .. }
            | Self::Render { renderer, .. }
            | Self::Relay { renderer, .. } => Some(Process::Renderer(*renderer)),
            Self::Reply { op } => world.ops.get(*op).and_then(|op| op.by),
            // What is on its way arrives, whoever sent it.
            Self::Published { .. }
            | Self::Execute { .. }
            | Self::Commit { .. }
            | Self::Start(_)
            | Self::Edit
            | Self::Fault
            | Self::Heal
            | Self::Look => None,
        }
    }

    /// Its kind, for the trace's digest.
    pub(crate) const fn number(&self) -> u64 {
        match self {
            Self::Arrive { .. } => 1,
            Self::Lost { .. } => 2,
            Self::Dial { .. } => 3,
            Self::Connect { .. } => 4,
            Self::AgentTimer { .. } => 5,
            Self::GatewayTimer { .. } => 6,
            Self::Mail { .. } => 7,
            Self::Scheduler { .. } => 8,
            Self::Record { .. } => 9,
            Self::Lease { .. } => 10,
            Self::Compare { .. } => 11,
            Self::Execute { .. } => 12,
            Self::Commit { .. } => 13,
            Self::Reply { .. } => 14,
            Self::Hint { .. } => 15,
            Self::Engine { .. } => 16,
            Self::Stand { .. } => 17,
            Self::KeepLease { .. } => 18,
            Self::Render { .. } => 19,
            Self::Relay { .. } => 20,
            Self::Published { .. } => 21,
            Self::Start(_) => 22,
            Self::Edit => 23,
            Self::Fault => 24,
            Self::Heal => 25,
            Self::Look => 26,
        }
    }
}

/// One gateway process, or the place of one that is down.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    pub(crate) paused_until: u64,
    pub(crate) clock_ahead: u64,
    /// It is held still the next time that it asked for its lease and is not answered yet.
    pub(crate) stops_as_it_asks: bool,
    /// The way to the database is cut until then.
    pub(crate) cut_off_until: u64,
    /// What it decides by, while it is up.
    pub(crate) machines: Option<Machines>,
    /// What it keeps of the numbers of hints.
    pub(crate) numbers: HintNumbers,
    /// When builds, facts and compares are looked at next.
    pub(crate) scheduler_at: Option<u64>,
    pub(crate) record_at: Option<u64>,
    pub(crate) compare_at: Option<u64>,
    pub(crate) term: Option<LeaseTerm>,
}

impl Gateway {
    pub(crate) const fn down() -> Self {
        Self {
            life: 0,
            is_up: false,
            paused_until: 0,
            clock_ahead: 0,
            stops_as_it_asks: false,
            cut_off_until: 0,
            machines: None,
            numbers: HintNumbers::new(),
            scheduler_at: None,
            record_at: None,
            compare_at: None,
            term: None,
        }
    }

    /// The name of this process's lease: one for each start.
    pub(crate) fn lease(&self, place: usize) -> u64 {
        1 + place as u64 + 1_000 * u64::from(self.life)
    }
}

/// One agent, and the machine that it runs on.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    pub(crate) is_clone: bool,
    /// Of a build that knows the first protocol only.
    pub(crate) is_old: bool,
    pub(crate) paused_until: u64,
    pub(crate) clock_ahead: u64,
    /// No gateway is reached until then.
    pub(crate) cut_off_until: u64,
    pub(crate) gateways: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) dialer: Option<Dialer>,
    pub(crate) attempt: u64,
    pub(crate) conn: Option<usize>,
    /// A connection that waits for the engine to be done with the update of an earlier session.
    pub(crate) pending: Option<usize>,
    pub(crate) disk: Disk,
    pub(crate) engine: Engine,
}

impl Agent {
    pub(crate) fn new(host: usize, gateways: Vec<String>, seed: u64) -> Self {
        Self {
            host,
            life: 0,
            is_up: false,
            is_clone: false,
            is_old: false,
            paused_until: 0,
            clock_ahead: 0,
            cut_off_until: 0,
            gateways,
            seed,
            dialer: None,
            attempt: 0,
            conn: None,
            pending: None,
            disk: Disk::default(),
            engine: Engine::default(),
        }
    }
}

/// One renderer process.
pub(crate) struct Renderer {
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    pub(crate) paused_until: u64,
    /// Rises with each term, so that what belongs to an earlier one is known.
    pub(crate) turn: u64,
    pub(crate) term: Option<LeaseTerm>,
    pub(crate) tenure: Option<Tenure>,
    /// When the lease was asked for.
    pub(crate) asked: u64,
    pub(crate) fleet: Option<Fleet>,
    pub(crate) planned: Option<Planned>,
    pub(crate) stand_at: Option<u64>,
    pub(crate) keep_at: Option<u64>,
    pub(crate) render_at: Option<u64>,
    /// When a commit that failed is tried again, before anything newer is read.
    pub(crate) commit_again_at: Option<u64>,
    pub(crate) relay_at: Option<u64>,
    pub(crate) is_rendering: bool,
    pub(crate) is_woken: bool,
    pub(crate) hints: u64,
    pub(crate) is_relaying: bool,
    pub(crate) relay_is_woken: bool,
    pub(crate) horizon: u64,
    /// What it decides by about the stream, where its writing end left that, and from which number on it reads.
    pub(crate) relay: Relay,
    pub(crate) left: Left,
    pub(crate) reading_from: usize,
}

impl Renderer {
    pub(crate) fn down() -> Self {
        Self {
            life: 0,
            is_up: false,
            paused_until: 0,
            turn: 0,
            term: None,
            tenure: None,
            asked: 0,
            fleet: None,
            planned: None,
            stand_at: None,
            keep_at: None,
            render_at: None,
            commit_again_at: None,
            relay_at: None,
            is_rendering: false,
            is_woken: false,
            hints: 1,
            is_relaying: false,
            relay_is_woken: false,
            horizon: 0,
            relay: Relay::new(),
            left: None,
            reading_from: 0,
        }
    }
}

/// The bus of hints, and its faults of the moment.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    pub(crate) faulty_until: u64,
    pub(crate) lost_percent: u64,
    pub(crate) doubled_percent: u64,
    pub(crate) late_ms: u64,
}

/// Where a component stands in arrays.
pub(crate) const fn place(component: Component) -> usize {
    match component {
        Component::Policy => 0,
        Component::Settings => 1,
        Component::Credentials => 2,
        Component::Workloads => 3,
    }
}

impl World {
    pub(crate) fn gateway_now(&self, gateway: usize) -> Instant {
        let ahead = self.gateways.get(gateway).map_or(0, |gateway| gateway.clock_ahead);
        Instant::from_millis(self.now + ahead)
    }

    pub(crate) fn agent_now(&self, agent: usize) -> Instant {
        let ahead = self.agents.get(agent).map_or(0, |agent| agent.clock_ahead);
        Instant::from_millis(self.now + ahead)
    }

    /// Whether a process still is the one that something was begun for.
    pub(crate) fn is_gateway(&self, gateway: usize, life: u32) -> bool {
        self.gateways.get(gateway).is_some_and(|gateway| gateway.is_up && gateway.life == life)
    }

    pub(crate) fn is_agent(&self, agent: usize, life: u32) -> bool {
        self.agents.get(agent).is_some_and(|agent| agent.is_up && agent.life == life)
    }
}
