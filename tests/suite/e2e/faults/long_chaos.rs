//! Faults upon faults, in an order that a seed decides: 30 hosts, two gateways, and everything that the stories have one by one.
//!
//! - Packets and kernels are watched from before the first fault to after the last; after every few rounds all of it converges, and no history lost a line.
//! - The seed and each step are printed. `HOLDFAST_CHAOS_SEED` repeats the choices of a run; what the machine makes of them is its own.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use holdfast_session::random::Random;
use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, SmallDisk, wait_for};

use super::super::fleet::{AGENTS_PORTS, nobody_complained_but};
use super::nats::{everything_is_proven, is_of_nats};
use super::network::is_of_network;
use super::postgres::is_of_postgres;
use super::watch::{Watch, converges};

/// The seed where none is given.
const SEED: u64 = 4;
/// How many rounds of faults there are, some 20 s each.
const ROUNDS: u64 = 24;
/// After so many rounds everything must converge.
const CALM_EVERY: u64 = 4;
/// The faults that are underway at once, at most.
const AT_ONCE_MAX: usize = 4;
/// How many edits an agent that does not read misses at least.
const MISSED: usize = 10;
/// How long all of it may take to converge once nothing is wrong: an agent that found no gateway for a round waits up to 64 s for its next dial, and finds
/// one of two gateways by it.
const HEALS: Duration = Duration::from_secs(180);
/// The host whose disk is small.
const SMALL: &str = "jobs-1";
/// The hosts whose agents are killed, held still and cut off; edits touch each of them.
const HOSTS: [&str; 3] = ["api-1", "api-2", "cache-1"];

/// What goes wrong. Two faults of the same part are never underway at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// A process ends without a word.
    Killed(&'static str),
    /// A process is held still: its connections stay open and it says nothing.
    Held(&'static str),
    /// Nobody reaches the port of a gateway, and neither side is told.
    Cut(usize),
    /// An agent ends without a word.
    AgentKilled(&'static str),
    /// An agent reads nothing while edits are made.
    SlowReader(&'static str),
    /// A host is refused at one gateway.
    Refused(&'static str, usize),
    /// NATS ends and comes back without anything that it kept.
    EmptyNats,
    /// Postgres ends as by a power cut.
    Postgres,
    /// Every connection to Postgres ends.
    Connections,
    /// An agent's disk is full.
    FullDisk,
}

impl Fault {
    const ALL: [Self; 19] = [
        Self::Killed("gateway-agents-1"),
        Self::Killed("gateway-agents-2"),
        Self::Killed("gateway-operators"),
        Self::Killed("renderer"),
        Self::Killed("audit"),
        Self::Held("gateway-agents-1"),
        Self::Held("gateway-agents-2"),
        Self::Held("renderer"),
        Self::Held("nats"),
        Self::Cut(0),
        Self::Cut(1),
        Self::AgentKilled(HOSTS[0]),
        Self::SlowReader(HOSTS[1]),
        Self::SlowReader(HOSTS[2]),
        Self::Refused(HOSTS[0], 0),
        Self::EmptyNats,
        Self::Postgres,
        Self::Connections,
        Self::FullDisk,
    ];

    /// What it is done to.
    const fn part(self) -> &'static str {
        match self {
            Self::Killed(part) | Self::Held(part) | Self::AgentKilled(part) | Self::SlowReader(part) => part,
            Self::Cut(_) | Self::Refused(..) => "network",
            Self::EmptyNats => "nats",
            Self::Postgres | Self::Connections => "postgres",
            Self::FullDisk => SMALL,
        }
    }

    /// Whether intent can be changed while it is underway.
    fn lets_edit(self) -> bool {
        !matches!(self, Self::Postgres | Self::Killed("gateway-operators"))
    }
}

/// A plane in a storm.
struct Storm<'a> {
    plane: &'a Plane,
    watch: &'a Watch,
    disk: &'a SmallDisk,
    agent: Vec<String>,
    random: Random,
}

/// A fault that is underway, and how it ends.
type Underway<'a> = (Fault, Box<dyn FnOnce() + 'a>);

impl<'a> Storm<'a> {
    /// One round: faults begin one after the other, all last for a while, and end in an order of their own, with edits all the time.
    fn round(&mut self) {
        let count = 1 + self.pick(AT_ONCE_MAX);
        let mut underway: Vec<Underway<'a>> = Vec::new();
        while underway.len() < count {
            let fault = Fault::ALL[self.pick(Fault::ALL.len())];
            let taken: BTreeSet<_> = underway.iter().map(|(fault, _)| fault.part()).collect();
            if !taken.contains(fault.part()) {
                tell(&format!("  {fault:?}"));
                let end = self.begin(fault);
                underway.push((fault, end));
                self.go_on(&underway, 3_000);
            }
        }
        self.go_on(&underway, 8_000);
        while !underway.is_empty() {
            let (fault, end) = underway.swap_remove(self.pick(underway.len()));
            tell(&format!("  over: {fault:?}"));
            end();
            self.go_on(&underway, 2_000);
        }
    }

    /// An edit if one can be made, and a moment.
    fn go_on(&mut self, underway: &[Underway<'a>], span_ms_max: u64) {
        if underway.iter().all(|(fault, _)| fault.lets_edit()) {
            self.watch.edit(self.plane);
        }
        thread::sleep(Duration::from_millis(self.random.up_to(span_ms_max)));
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.up_to(count as u64 - 1)).expect("one of a few")
    }

    fn begin(&self, fault: Fault) -> Box<dyn FnOnce() + 'a> {
        let (plane, disk) = (self.plane, self.disk);
        match fault {
            Fault::Killed(service) => {
                let recipe = plane.recipe(service);
                plane.kill(service);
                Box::new(move || {
                    plane.start_service(&recipe);
                    // The next edit comes at once.
                    wait_for("the operators' door is open", HEALS, || is_reachable(plane));
                })
            }
            Fault::Held(service) => {
                let held = plane.freeze(service);
                Box::new(move || drop(held))
            }
            Fault::Cut(nth) => {
                let cut = plane.cut_port(AGENTS_PORTS[nth]);
                Box::new(move || drop(cut))
            }
            Fault::Refused(host, nth) => {
                let refused = plane.refuse_port(host, AGENTS_PORTS[nth]);
                Box::new(move || drop(refused))
            }
            Fault::AgentKilled(host) => {
                plane.kill_agent(host);
                let agent = self.agent.clone();
                Box::new(move || plane.start_agents(&agent))
            }
            Fault::SlowReader(host) => {
                let still = plane.freeze_agent(host);
                Box::new(move || drop(still))
            }
            Fault::EmptyNats => {
                let recipe = plane.recipe("nats");
                plane.kill("nats");
                std::fs::remove_dir_all(plane.folder().join("nats/jetstream")).expect("it kept something");
                Box::new(move || plane.start_service(&recipe))
            }
            Fault::Postgres => {
                plane.database().kill();
                Box::new(move || plane.database().start())
            }
            Fault::Connections => {
                let _count = plane.database().end_connections();
                Box::new(|| {})
            }
            Fault::FullDisk => {
                disk.fill();
                Box::new(|| disk.free())
            }
        }
    }
}

#[test]
fn thirty_hosts_behind_two_gateways_enforce_and_converge_through_a_storm_of_faults() {
    let seed = std::env::var("HOLDFAST_CHAOS_SEED").map_or(SEED, |seed| seed.parse().expect("a seed is a number"));
    eprintln!("seed {seed}");
    let plane = Plane::start(&["--hosts", "30"]);
    let agent = plane.agent_command(SMALL);
    plane.kill_agent(SMALL);
    let disk = plane.small_disk(SMALL);
    plane.start_agents(&agent);
    let watch = Watch::start(&plane);
    let mut storm =
        Storm { plane: &plane, watch: &watch, disk: &disk, agent: agent.clone(), random: Random::new(seed) };
    for round in 1..=ROUNDS {
        eprintln!("round {round}");
        storm.round();
        if round % CALM_EVERY == 0 {
            watch.edit(&plane);
            let took = converges(&plane, HEALS);
            eprintln!("  converged after {took:?}");
            plane.histories_agree();
        }
    }
    one_that_missed_everything_gets_what_is_current(&plane, &watch);
    plane.kill_agent(SMALL);
    drop(disk);
    plane.start_agents(&agent);
    converges(&plane, HEALS);
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_a_storm);
    plane.wipe();
}

/// Whoever repeats a run wants to know how far it came.
#[expect(clippy::print_stderr, reason = "the words of a test, shown when it fails")]
fn tell(step: &str) {
    eprintln!("{step}");
}

/// Whether the API answers, be it that it has no database.
fn is_reachable(plane: &Plane) -> bool {
    !String::from_utf8_lossy(&plane.holdfast(&["status"]).stderr).contains("the API cannot be reached")
}

/// A reader that stopped for many edits, at the end of the storm.
fn one_that_missed_everything_gets_what_is_current(plane: &Plane, watch: &Watch) {
    let still = plane.freeze_agent(HOSTS[1]);
    for _ in 0..MISSED {
        watch.edit(plane);
    }
    drop(still);
    converges(plane, HEALS);
}

/// What the faults of a storm provoke.
fn is_of_a_storm(complaint: &Complaint) -> bool {
    is_of_nats(complaint) || is_of_postgres(complaint) || is_of_network(complaint)
}
