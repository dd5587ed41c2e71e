//! Faults of every kind, in an order that a seed decides, on a plane with two or three gateways: what each does, how it ends, what it may provoke.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use holdfast_session::random::Random;
use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, SmallDisk, THIRD_PORT, wait_for};
use holdfast_suite::steps::Steps;

use super::super::fleet::AGENTS_PORTS;
use super::watch::Watch;

/// The faults that are underway at once, at most.
const AT_ONCE_MAX: usize = 4;
/// How long the operators' door may take until it is open.
const OPENS: Duration = Duration::from_secs(60);
/// The host whose disk is small.
pub(super) const SMALL: &str = "jobs-1";
/// The hosts whose agents are killed, held still and cut off; edits touch each of them.
pub(super) const HOSTS: [&str; 3] = ["api-1", "api-2", "cache-1"];
/// The gateways for agents: their names and where they listen. The third has the first one's port at another address: a cut of the port is one of both.
pub(super) const GATEWAYS: [(&str, u16); 3] =
    [("gateway-agents-1", AGENTS_PORTS[0]), ("gateway-agents-2", AGENTS_PORTS[1]), ("gateway-agents-3", THIRD_PORT)];

/// What goes wrong. Two faults of the same part are never underway at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A service ends without a word.
    Killed(&'static str),
    /// A service is held still: its connections stay open and it says nothing.
    Held(&'static str),
    /// A gateway for agents ends without a word.
    GatewayKilled(usize),
    /// A gateway for agents is held still.
    GatewayHeld(usize),
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
    /// All that may happen on a plane with so many gateways.
    fn all(gateways: usize) -> Vec<Self> {
        let of_gateways =
            (0..gateways).flat_map(|nth| [Self::GatewayKilled(nth), Self::GatewayHeld(nth), Self::Cut(nth)]);
        let others = [
            Self::Killed("gateway-operators"),
            Self::Killed("renderer"),
            Self::Killed("audit"),
            Self::Held("renderer"),
            Self::Held("nats"),
            Self::AgentKilled(HOSTS[0]),
            Self::SlowReader(HOSTS[1]),
            Self::SlowReader(HOSTS[2]),
            Self::Refused(HOSTS[0], 0),
            Self::EmptyNats,
            Self::Postgres,
            Self::Connections,
            Self::FullDisk,
        ];
        of_gateways.chain(others).collect()
    }

    /// What it is done to.
    fn part(self) -> &'static str {
        match self {
            Self::Killed(part) | Self::Held(part) | Self::AgentKilled(part) | Self::SlowReader(part) => part,
            Self::GatewayKilled(nth) | Self::GatewayHeld(nth) => GATEWAYS[nth].0,
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

    /// Whether it makes a process of ours say this.
    pub(super) fn explains(self, complaint: &Complaint) -> bool {
        match self {
            // Agents that dial it while it is gone.
            Self::GatewayKilled(nth) => complaint.is_of_killed_gateway(GATEWAYS[nth].1),
            // Agents that dial it meanwhile; and what it had under way itself is over when it goes on.
            Self::GatewayHeld(nth) => {
                complaint.is_of_lost_gateway(GATEWAYS[nth].1) || is_of_rest(complaint, GATEWAYS[nth].0)
            }
            Self::Cut(nth) => complaint.is_of_lost_gateway(GATEWAYS[nth].1),
            Self::Refused(host, nth) => {
                complaint.is_of_agent_of(host) && complaint.is_of_killed_gateway(GATEWAYS[nth].1)
            }
            Self::Held("nats") | Self::Killed("nats") | Self::EmptyNats => complaint.is_of_lost_nats(),
            Self::Held(service) => is_of_rest(complaint, service),
            Self::Postgres | Self::Connections => complaint.is_of_absent_database(),
            // What ends without a word says none, and nobody else complains of it.
            Self::Killed(_) | Self::AgentKilled(_) => false,
            // It holds what it has, and says what it cannot keep: on the same disk, so that a line may be cut.
            Self::FullDisk => {
                complaint.is_of_refused_policy(SMALL, "not_durable")
                    || complaint.is_of_refused_policy_and_cut(SMALL)
                    || complaint.is_of_unkept_trial(SMALL)
            }
            // Its gateway goes on, and so does it.
            Self::SlowReader(_) => false,
        }
    }
}

/// What a service says that was held still: its peers gave it up, and its time was up.
fn is_of_rest(complaint: &Complaint, service: &str) -> bool {
    complaint.is_of_service(service) && (complaint.is_of_lost_nats() || complaint.is_of_absent_database())
}

/// A plane in a storm.
pub(super) struct Storm<'a> {
    pub(super) plane: &'a Plane,
    pub(super) watch: &'a Watch,
    pub(super) disk: &'a SmallDisk,
    pub(super) steps: &'a Steps,
    pub(super) agent: Vec<String>,
    pub(super) gateways: usize,
    pub(super) random: Random,
    pub(super) played: Vec<Fault>,
}

/// A fault that is underway, and how it ends.
type Underway<'a> = (Fault, Box<dyn FnOnce() + 'a>);

impl<'a> Storm<'a> {
    /// One round: faults begin one after the other, all last for a while, and end in an order of their own, with edits all the time.
    pub(super) fn round(&mut self) {
        let count = 1 + self.pick(AT_ONCE_MAX);
        let all = Fault::all(self.gateways);
        let mut underway: Vec<Underway<'a>> = Vec::new();
        while underway.len() < count {
            let fault = all[self.pick(all.len())];
            let taken: BTreeSet<_> = underway.iter().map(|(fault, _)| fault.part()).collect();
            if !taken.contains(fault.part()) {
                self.steps.tell(&format!("  {fault:?}"));
                let end = self.begin(fault);
                self.played.push(fault);
                underway.push((fault, end));
                self.go_on(&underway, 3_000);
            }
        }
        self.go_on(&underway, 8_000);
        while !underway.is_empty() {
            let (fault, end) = underway.swap_remove(self.pick(underway.len()));
            self.steps.tell(&format!("  over: {fault:?}"));
            end();
            self.go_on(&underway, 2_000);
        }
    }

    /// An edit if one can be made, and a moment.
    fn go_on(&mut self, underway: &[Underway<'a>], span_ms_max: u64) {
        if underway.iter().all(|(fault, _)| fault.lets_edit()) {
            self.watch.edit(self.plane);
            self.steps.tell("    edited");
        }
        thread::sleep(Duration::from_millis(self.random.up_to(span_ms_max)));
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.up_to(count as u64 - 1)).expect("one of a few")
    }

    fn begin(&self, fault: Fault) -> Box<dyn FnOnce() + 'a> {
        let (plane, disk) = (self.plane, self.disk);
        match fault {
            Fault::Killed(service) => self.kill(service),
            Fault::GatewayKilled(nth) => self.kill(GATEWAYS[nth].0),
            Fault::Held(service) => self.hold(service),
            Fault::GatewayHeld(nth) => self.hold(GATEWAYS[nth].0),
            Fault::Cut(nth) => {
                let cut = plane.cut_port(GATEWAYS[nth].1);
                Box::new(move || drop(cut))
            }
            Fault::Refused(host, nth) => {
                let refused = plane.refuse_port(host, GATEWAYS[nth].1);
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

    fn kill(&self, service: &str) -> Box<dyn FnOnce() + 'a> {
        let (plane, recipe) = (self.plane, self.plane.recipe(service));
        plane.kill(service);
        Box::new(move || {
            plane.start_service(&recipe);
            // The next edit comes at once, unless somebody else keeps the door closed.
            if recipe.service() == "gateway-operators" {
                wait_for("the operators' door is open", OPENS, || is_reachable(plane));
            }
        })
    }

    fn hold(&self, service: &str) -> Box<dyn FnOnce() + 'a> {
        let held = self.plane.freeze(service);
        Box::new(move || drop(held))
    }
}

/// Whether the API answers, be it that it has no database.
fn is_reachable(plane: &Plane) -> bool {
    !String::from_utf8_lossy(&plane.holdfast(&["status"]).stderr).contains("the API cannot be reached")
}
