//! One schedule: processes, what lies between them, and what happens next.
//!
//! - Everything happens in [`World::step`], one action at a time, in simulated milliseconds; nothing else moves.
//! - After each step the reference model looks at what the step touched ([`crate::reference`]).
//! - A process that stands still does nothing until it goes on, then everything that waited for it at once.

mod agent;
mod ask;
mod chaos;
mod conn;
mod database;
mod engine;
pub(crate) mod facts;
mod gateway;
mod heal;
mod locks;
mod parts;
mod recorder;
mod registry;
mod relay;
mod renderer;
mod seeded;
mod session;
mod watch;
mod wires;

#[cfg(test)]
mod scenarios;

use std::collections::BTreeMap;

use holdfast_model::mutant::Mutant;
use holdfast_session::random::Random;

use crate::estate::{Estate, authority, host_id};
use crate::plan::{Plan, Repair};
use crate::queue::Queue;
use crate::reference::Reference;
use crate::store::Store;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::violation::{Invariant, Violation};
use conn::Conn;
use database::Op;
use engine::Disk;
use locks::Locks;
use parts::{Action, Agent, Bus, Gateway, Process, Renderer};
use relay::Stream;

/// A schedule that needs more steps than this goes round in a circle.
const STEPS_MAX: u64 = 200_000;

/// Everything.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: u64,
    pub(crate) queue: Queue<Action>,
    pub(crate) estate: Estate,
    pub(crate) store: Store,
    pub(crate) ops: Vec<Op>,
    pub(crate) locks: Locks,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) renderers: Vec<Renderer>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) bus: Bus,
    /// The database fails now and then, and is slow, until then.
    pub(crate) flaky_until: u64,
    /// State folders of an earlier day, by agent.
    pub(crate) old_disks: BTreeMap<usize, Disk>,
    pub(crate) stream: Stream,
    /// How many facts gateways were given.
    pub(crate) facts_taken: u64,
    pub(crate) reference: Reference,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
    pub(crate) is_healing: bool,
    pub(crate) is_done: bool,
    pub(crate) healed_at: u64,
    pub(crate) steps: u64,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<Violation>,
}

impl World {
    /// The world of a seed, with one seeded fault if one is named.
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>, trace: Trace) -> Self {
        let mut random = Random::new(seed);
        let plan = Plan::of(&mut random);
        Self::of(plan, random, mutant, trace)
    }

    /// The world of a plan.
    pub(crate) fn of(plan: Plan, random: Random, mutant: Option<Mutant>, trace: Trace) -> Self {
        let estate = Estate::new(plan.hosts);
        let mut world = Self {
            random,
            now: 0,
            queue: Queue::new(),
            estate,
            store: Store::new(),
            ops: Vec::new(),
            locks: Locks::default(),
            gateways: Vec::new(),
            agents: Vec::new(),
            renderers: Vec::new(),
            conns: Vec::new(),
            bus: Bus::default(),
            flaky_until: 0,
            old_disks: BTreeMap::new(),
            stream: Stream::default(),
            facts_taken: 0,
            reference: Reference::default(),
            #[cfg(feature = "mutants")]
            mutant,
            is_healing: false,
            is_done: false,
            healed_at: 0,
            steps: 0,
            trace,
            tally: Tally::default(),
            violation: None,
            plan,
        };
        let plan = world.plan.clone();
        world.trace.tell(0, || format!("{plan:?}, seeded: {mutant:?}"));
        world.begin();
        world
    }

    fn begin(&mut self) {
        for host in 0..self.plan.hosts {
            self.store.enrol(host_id(host));
            let seed = self.random.next_u64();
            let mut agent = Agent::new(host, self.gateway_names(), seed);
            agent.is_old = self.chance(20);
            self.agents.push(agent);
        }
        self.seed_store();
        self.gateways = (0..self.plan.gateways).map(|_| Gateway::down()).collect();
        self.renderers = (0..2).map(|_| Renderer::down()).collect();
        for renderer in 0..self.renderers.len() {
            let at = self.between(0, 50);
            self.queue.put(at, Action::Start(Process::Renderer(renderer)));
        }
        for gateway in 0..self.gateways.len() {
            let at = self.between(0, 200);
            self.queue.put(at, Action::Start(Process::Gateway(gateway)));
        }
        for agent in 0..self.agents.len() {
            let at = self.between(0, 2_000);
            self.queue.put(at, Action::Start(Process::Agent(agent)));
        }
        let mut at = 0;
        for _ in 0..self.plan.edits {
            // Some come right behind others.
            let follows = self.chance(40);
            at = if follows { at + self.between(1, 400) } else { self.between(100, self.plan.chaos_ms) };
            self.queue.put(at, Action::Edit);
        }
        if !self.plan.kinds.is_empty() {
            let at = self.between(200, self.plan.fault_gap_ms + 200);
            self.queue.put(at, Action::Fault);
        }
        self.queue.put(self.plan.chaos_ms, Action::Heal);
    }

    pub(crate) fn gateway_names(&self) -> Vec<String> {
        (0..self.plan.gateways).map(|gateway| format!("gateway-{gateway}:7443")).collect()
    }

    /// Lets one action happen; false once there is nothing more to see.
    pub(crate) fn step(&mut self) -> bool {
        if self.is_done || self.violation.is_some() {
            return false;
        }
        let Some((at, action)) = self.queue.take() else {
            self.violate(Invariant::DeliveredOrSuperseded, || "nothing happens any more".to_owned());
            return false;
        };
        self.now = at;
        if let Some(until) = self.stands_still_until(&action) {
            self.queue.put(until, action);
            return true;
        }
        self.steps += 1;
        self.trace.add(at);
        self.trace.add(action.number());
        self.trace.tell(at, || format!("{action:?}"));
        self.act(action);
        self.check_memory();
        if self.steps > STEPS_MAX {
            self.violate(Invariant::DeliveredOrSuperseded, || format!("{STEPS_MAX} steps and no end"));
        }
        true
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Arrive { conn, toward } => self.arrive(conn, toward),
            Action::Lost { conn, at } => self.lose(conn, at),
            Action::Dial { agent, life } => self.dial(agent, life),
            Action::Connect { agent, life, attempt, gateway } => self.connect(agent, life, attempt, gateway),
            Action::AgentTimer { conn } => self.agent_timer(conn),
            Action::GatewayTimer { conn } => self.gateway_timer(conn),
            Action::Mail { conn } => self.handle_mail(conn),
            Action::Scheduler { gateway, life } => self.scheduler_timer(gateway, life),
            Action::Record { gateway, life } => self.record(gateway, life),
            Action::Lease { gateway, life } => self.hold_lease(gateway, life),
            Action::Compare { gateway, life } => self.compare(gateway, life),
            Action::Execute { op } => self.execute(op),
            Action::Commit { op } => self.commit(op),
            Action::Reply { op } => self.reply(op),
            Action::Hint { gateway, life, hint } => self.hear(gateway, life, &hint),
            Action::Engine { agent, life } => self.engine_step(agent, life),
            Action::Stand { renderer, life } => self.stand_by(renderer, life),
            Action::KeepLease { renderer, turn } => self.keep_lease(renderer, turn),
            Action::Render { renderer, turn } => self.render_wake(renderer, turn),
            Action::Relay { renderer, turn } => self.relay_wake(renderer, turn),
            Action::Published { renderer, turn, publication } => self.published(renderer, turn, publication),
            Action::Start(process) => self.start(process),
            Action::Edit => self.author(),
            Action::Fault => self.fault(),
            Action::Heal => self.heal(),
            Action::Look => self.look(),
        }
    }

    /// The process that an action needs stands still until then.
    fn stands_still_until(&self, action: &Action) -> Option<u64> {
        let until = match action.process(self)? {
            Process::Gateway(gateway) => self.gateways.get(gateway)?.paused_until,
            Process::Agent(agent) => self.agents.get(agent)?.paused_until,
            Process::Renderer(renderer) => self.renderers.get(renderer)?.paused_until,
        };
        (until > self.now).then_some(until)
    }

    fn start(&mut self, process: Process) {
        match process {
            Process::Gateway(gateway) => self.start_gateway(gateway),
            Process::Agent(agent) => self.start_agent(agent),
            Process::Renderer(renderer) => self.start_renderer(renderer),
        }
    }

    /// An operator changes something.
    fn author(&mut self) {
        if self.is_healing || self.database_is_away() {
            return;
        }
        let edit = self.estate.edit(&mut self.random);
        self.store.edits.push(edit);
        self.store.revision = self.store.revision.next().unwrap_or(self.store.revision);
        self.insert_events(1);
        self.ring_renderers();
    }

    /// A moment from now.
    pub(crate) fn soon(&mut self, first: u64, last: u64) -> u64 {
        self.now + self.between(first, last)
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.random.up_to(last.saturating_sub(first))
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.random.up_to(99) < percent
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        let last = u64::try_from(count.saturating_sub(1)).unwrap_or(0);
        usize::try_from(self.random.up_to(last)).unwrap_or(0)
    }

    /// The database's clock.
    pub(crate) const fn clock(&self) -> u64 {
        self.now + self.store.clock_ahead
    }

    pub(crate) fn violate(&mut self, invariant: Invariant, message: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let (step, at_ms) = (self.steps, self.now);
            self.violation = Some(Violation { invariant, message: message(), step, at_ms });
        }
    }

    pub(crate) fn compares(&self) -> bool {
        self.plan.repair != Repair::HintsOnly
    }
}

/// What every signature names.
pub(crate) fn signed(desired: &holdfast_model::desired::Desired) -> Vec<u8> {
    holdfast_model::statement::desired_bytes(authority(), desired)
}
