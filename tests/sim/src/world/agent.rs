//! The agent's shell, after `agent/src/session`: sessions of the machine, one update at a time for the engine, and when to dial.
//!
//! - Real: the machine, and the dialler. Modelled: the socket and the worker.

use holdfast_model::desired::Component;
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_session::agent::{self, ApplyResult, Content, Event, Settling};
use holdfast_session::limits::EVENTS_MAX;
use holdfast_wire::message::{Hello, Inventory, Kind, Message, UpdateContent};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN};
use uuid::Uuid;

use super::World;
use super::conn::AgentSide;
use super::parts::{Action, End, place};
use crate::estate::{authority, host_id};
use crate::keys::{HostKeys, host_key};
use crate::violation::Invariant;

impl World {
    pub(crate) fn agent_side(&mut self, conn: usize) -> Option<&mut AgentSide> {
        self.conns[conn].agent_side.as_deref_mut()
    }

    /// The connection is there and the engine is idle: a session begins with what is in force.
    pub(crate) fn begin_session(&mut self, conn: usize) {
        let agent = self.conns[conn].agent;
        let seed = self.random.next_u64();
        let now = self.agent_now(agent);
        let at = &self.agents[agent];
        let held = at.engine.held.as_ref();
        let policy = held.map(|entry| (Component::Policy, entry.stamp));
        let hello = Hello {
            protocols: if at.is_old { ProtocolRange { max: SPOKEN.min, ..SPOKEN } } else { SPOKEN },
            agent_version: String::new(),
            boot_id: Uuid::nil(),
            applied: policy.into_iter().chain(at.disk.components.iter().copied()).collect(),
            capabilities: vec![],
            inventory: Inventory::default(),
        };
        let pinned = Authority { ..authority() };
        let config = agent::Config { host: host_id(at.host), hello, pinned };
        let machine = agent::Session::new(config, HostKeys(host_key(at.host)), seed, now);
        let side = AgentSide {
            machine: self.seeded(machine),
            session_epoch: None,
            protocol: Protocol::FIRST,
            timer_at: None,
            written: [None; 4],
            taken: [None; 4],
            unanswered: 0,
        };
        self.conns[conn].agent_side = Some(Box::new(side));
        self.advance_agent(conn);
    }

    /// Lets the machine say what it has to, and takes what it tells.
    pub(crate) fn advance_agent(&mut self, conn: usize) {
        let room = self.plan.socket_bytes;
        let mut frame = Vec::new();
        loop {
            self.handle_agent_events(conn);
            let at = &mut self.conns[conn];
            let Some(side) = &mut at.agent_side else { return };
            if at.to_gateway.bytes.len() >= room {
                break;
            }
            let Ok(Some(kind)) = side.machine.poll_transmit(&mut frame) else { break };
            at.to_gateway.write(&frame);
            if kind == Kind::Outcome {
                side.unanswered = side.unanswered.saturating_sub(1);
            }
            frame.clear();
            self.carry(conn, End::Gateway);
        }
        let agent = self.conns[conn].agent;
        let now = self.agent_now(agent);
        let Some(side) = self.agent_side(conn) else { return };
        let Some((due, _)) = side.machine.poll_timeout() else { return };
        let known = side.timer_at;
        let when = self.now + u64::try_from(due.since(now).as_millis()).unwrap_or(0).max(1);
        if known.is_none_or(|known| known > when) {
            if let Some(side) = self.agent_side(conn) {
                side.timer_at = Some(when);
            }
            self.queue.put(when, Action::AgentTimer { conn });
        }
    }

    pub(crate) fn agent_timer(&mut self, conn: usize) {
        let now = self.agent_now(self.conns[conn].agent);
        let at = self.now;
        let Some(side) = self.agent_side(conn) else { return };
        if side.timer_at.is_some_and(|planned| planned <= at) {
            side.timer_at = None;
            side.machine.handle_timeout(now);
            self.advance_agent(conn);
        }
    }

    /// A message of the gateway arrives.
    pub(crate) fn handle_at_agent(&mut self, conn: usize, message: Message) {
        if let Message::Update(update) = &message {
            let (component, stamp) = (update.component, update.stamp);
            let Some(side) = self.agent_side(conn) else { return };
            side.unanswered += 1;
            let before = side.written[place(component)].replace(stamp);
            let fits = match &update.content {
                UpdateContent::Snapshot { .. } => true,
                UpdateContent::Delta { base, .. } => before == Some(*base),
                UpdateContent::VersionOnly => before.is_some_and(|before| before.digest == stamp.digest),
            };
            if !fits {
                self.violate(Invariant::NothingCrossesSessions, || {
                    format!(
                        "version {} of {component} is relative to what this session did not write last",
                        stamp.version
                    )
                });
            }
        }
        let now = self.agent_now(self.conns[conn].agent);
        if let Some(side) = self.agent_side(conn) {
            side.machine.handle_message(message, now);
        }
        self.handle_agent_events(conn);
    }

    fn handle_agent_events(&mut self, conn: usize) -> bool {
        let mut count = 0;
        while let Some(event) = self.agent_side(conn).and_then(|side| side.machine.poll_event()) {
            count += 1;
            self.handle_agent_event(conn, event);
        }
        if count > EVENTS_MAX {
            self.violate(Invariant::MemoryIsBounded, || format!("{count} events of one agent waited"));
        }
        count > 0
    }

    fn handle_agent_event(&mut self, conn: usize, event: Event) {
        let agent = self.conns[conn].agent;
        let now = self.agent_now(agent);
        match event {
            Event::Opened(ack) => {
                self.tally.sessions += 1;
                let report = self.report_of(agent);
                if let Some(side) = self.agent_side(conn) {
                    side.session_epoch = Some(ack.session_epoch);
                    side.protocol = Protocol::from_number(ack.protocol).unwrap_or(Protocol::FIRST);
                    side.machine.handle_status(report, Settling::Stands, now);
                }
                if let Some(dialer) = &mut self.agents[agent].dialer {
                    dialer.handle_opened(now);
                    dialer.handle_gateways(ack.gateways);
                }
            }
            Event::Apply(apply) => {
                self.check_base(conn, &apply);
                self.begin_update(agent, conn, *apply);
            }
            Event::Drain(drain) => {
                if let Some(dialer) = &mut self.agents[agent].dialer {
                    dialer.handle_drain(&drain, now);
                }
            }
            Event::Closed(cause) => {
                // What it still has to say is written before the connection ends.
                let mut frame = Vec::new();
                let at = &mut self.conns[conn];
                if let Some(side) = &mut at.agent_side
                    && let Ok(Some(_)) = side.machine.poll_transmit(&mut frame)
                {
                    at.to_gateway.write(&frame);
                }
                self.finish_agent(conn, cause);
            }
            Event::Refused { .. } => self.tally.refused += 1,
            Event::Directive(_) | Event::Fault { .. } => {}
        }
    }

    /// How a host is as a whole: well, with what it holds.
    fn report_of(&self, agent: usize) -> HostReport {
        let at = &self.agents[agent];
        let policy = at.engine.held.as_ref().map(|entry| (Component::Policy, entry.stamp));
        let held: Vec<_> = policy.into_iter().chain(at.disk.components.iter().copied()).collect();
        HostReport::of_health(&held, UpdateSeq::ZERO, self.now)
    }

    /// What is relative is relative to what this very session took last.
    fn check_base(&mut self, conn: usize, apply: &agent::Apply) {
        let Some(side) = self.agent_side(conn) else { return };
        let taken = side.taken[place(apply.component)];
        let fits = match &apply.content {
            Content::Snapshot(_) => true,
            Content::Delta { base, .. } => taken == Some(*base),
            Content::VersionOnly => taken.is_some_and(|taken| taken.digest == apply.stamp.digest),
        };
        if !fits {
            let version = apply.stamp.version;
            self.violate(Invariant::NothingCrossesSessions, || {
                format!("version {version} is put on a base that this session did not take last")
            });
        }
    }

    /// The engine is done with an update: its session hears of it, if it is still there, and one that waits begins.
    pub(crate) fn tell_result(&mut self, agent: usize, conn: usize, apply: &agent::Apply, result: ApplyResult) {
        let host = host_id(self.agents[agent].host);
        let (report, now) = (self.report_of(agent), self.agent_now(agent));
        if let Some(side) = self.agent_side(conn) {
            if result.kind == OutcomeKind::Applied {
                side.taken[place(apply.component)] = Some(apply.stamp);
            }
            let (epoch, in_force) = (side.session_epoch, result.in_force);
            side.machine.handle_status(report, Settling::Stands, now);
            side.machine.handle_result(apply.update_seq, result);
            if let (Some(epoch), Some(stamp)) = (epoch, in_force) {
                self.reference.note_held(host, apply.component, epoch, stamp);
            }
            self.advance_agent(conn);
        }
        if let Some(waiting) = self.agents[agent].pending.take() {
            self.begin_session(waiting);
        }
    }
}
