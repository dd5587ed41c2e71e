//! Connections: they come about, carry bytes, and end on both sides, or on one that the other is not told of.

use holdfast_session::agent::{CloseCause, Ended};
use holdfast_session::gateway;
use holdfast_session::scheduler::Turns;
use holdfast_wire::decode;

use super::World;
use super::conn::{Conn, GatewaySide, Mail};
use super::parts::{Action, End};
use crate::estate::host_id;
use crate::pipe::Pipe;
use crate::violation::Invariant;

/// How long a dial takes that nobody answers, in milliseconds (the agent's connect timeout).
const DIAL_TIMEOUT_MS: u64 = 10_000;

impl World {
    /// It may be time to dial.
    pub(crate) fn dial(&mut self, agent: usize, life: u32) {
        if !self.is_agent(agent, life) {
            return;
        }
        let now = self.agent_now(agent);
        let at = &mut self.agents[agent];
        let Some(dialer) = &mut at.dialer else { return };
        if let Some(name) = dialer.poll_dial(now) {
            at.attempt += 1;
            let attempt = at.attempt;
            let named = self.gateway_names().iter().position(|known| *known == name).unwrap_or(0);
            let reachable = self.is_reachable(agent, named);
            let latency = self.plan.latency_ms;
            let when = if reachable { self.soon(1, 3 * latency) } else { self.now + DIAL_TIMEOUT_MS };
            self.queue.put(when, Action::Connect { agent, life, attempt, gateway: named });
        } else if let Some((until, _)) = dialer.poll_timeout() {
            let when = self.now + u64::try_from(until.since(now).as_millis()).unwrap_or(0).max(1);
            self.queue.put(when, Action::Dial { agent, life });
        }
    }

    fn is_reachable(&self, agent: usize, gateway: usize) -> bool {
        let is_cut = self.agents[agent].cut_off_until > self.now;
        let gateway = &self.gateways[gateway];
        !is_cut && gateway.is_up && gateway.paused_until <= self.now
    }

    /// A dial ends: with a connection, or without.
    pub(crate) fn connect(&mut self, agent: usize, life: u32, attempt: u64, gateway: usize) {
        if !self.is_agent(agent, life) || self.agents[agent].attempt != attempt {
            return;
        }
        if !self.is_reachable(agent, gateway) {
            let now = self.agent_now(agent);
            if let Some(dialer) = &mut self.agents[agent].dialer {
                dialer.handle_ended(Ended::NoSession, now);
            }
            self.queue.put(self.now, Action::Dial { agent, life });
            return;
        }
        let seed = self.random.next_u64();
        let machine = gateway::Session::new(self.session_config(), seed, self.gateway_now(gateway));
        let side = GatewaySide {
            machine: self.seeded(machine),
            host: host_id(self.agents[agent].host),
            session_epoch: None,
            turns: Turns::default(),
            mail: Mail::default(),
            timer_at: None,
            reading: 0,
            sent: std::collections::BTreeMap::new(),
            tips: [None; 4],
            recoveries: std::collections::BTreeMap::new(),
            resends: 0,
        };
        let conn = self.conns.len();
        self.conns.push(Conn {
            agent,
            gateway,
            to_agent: Pipe::new(),
            to_gateway: Pipe::new(),
            updates: 0,
            gateway_side: Some(Box::new(side)),
            agent_side: None,
        });
        self.tally.connections += 1;
        self.agents[agent].conn = Some(conn);
        self.advance_gateway(conn);
        if self.agents[agent].engine.is_idle() {
            self.begin_session(conn);
        } else {
            self.agents[agent].pending = Some(conn);
        }
    }

    fn session_config(&self) -> gateway::Config {
        let mut config = gateway::Config::standard(self.gateway_names());
        config.limits = self.plan.limits;
        config.liveness_interval = self.plan.liveness_interval();
        config
    }

    /// Plans that what was written arrives.
    pub(crate) fn carry(&mut self, conn: usize, toward: End) {
        let latency = self.plan.latency_ms;
        let when = self.soon(1, latency);
        let pipe = self.pipe(conn, toward);
        if !pipe.is_moving && (!pipe.bytes.is_empty() || pipe.is_finished) {
            pipe.is_moving = true;
            let when = when.max(pipe.stalled_until);
            self.queue.put(when, Action::Arrive { conn, toward });
        }
    }

    pub(crate) fn pipe(&mut self, conn: usize, toward: End) -> &mut Pipe {
        let conn = &mut self.conns[conn];
        match toward {
            End::Agent => &mut conn.to_agent,
            End::Gateway => &mut conn.to_gateway,
        }
    }

    /// Some of what is on its way arrives, and its reader reads it.
    pub(crate) fn arrive(&mut self, conn: usize, toward: End) {
        let now = self.now;
        let stalled_until = self.pipe(conn, toward).stalled_until;
        if stalled_until > now {
            self.queue.put(stalled_until, Action::Arrive { conn, toward });
            return;
        }
        let waiting = self.pipe(conn, toward).bytes.len();
        // Mostly all of it, sometimes cut at any byte.
        let count = if self.chance(25) { 1 + self.below(waiting) } else { waiting };
        let pipe = self.pipe(conn, toward);
        pipe.is_moving = false;
        pipe.arrive(count);
        while self.violation.is_none() && self.has_side(conn, toward) {
            let message = match self.pipe(conn, toward).poll_frame() {
                Ok(Some(frame)) => decode(&frame).map_err(|error| error.to_string()),
                Ok(None) => break,
                Err(error) => Err(error.to_string()),
            };
            match (message, toward) {
                (Ok(message), End::Agent) => self.handle_at_agent(conn, message),
                (Ok(message), End::Gateway) => self.handle_at_gateway(conn, message),
                (Err(error), _) => self.violate(Invariant::NothingCrossesSessions, || {
                    format!("what one half wrote cannot be read by the other: {error}")
                }),
            }
        }
        let pipe = self.pipe(conn, toward);
        let is_over = pipe.bytes.is_empty() && pipe.is_finished;
        if is_over && self.has_side(conn, toward) {
            self.lose(conn, toward);
        } else if !is_over {
            self.carry(conn, toward);
        }
        self.advance_agent(conn);
        self.advance_gateway(conn);
    }

    pub(crate) fn has_side(&self, conn: usize, end: End) -> bool {
        match end {
            End::Agent => self.conns[conn].agent_side.is_some(),
            End::Gateway => self.conns[conn].gateway_side.is_some(),
        }
    }

    /// One end learns that the connection is gone.
    pub(crate) fn lose(&mut self, conn: usize, at: End) {
        match at {
            End::Agent => {
                if self.agents[self.conns[conn].agent].pending == Some(conn) {
                    return self.end_before_session(conn);
                }
                if let Some(side) = &mut self.conns[conn].agent_side {
                    side.machine.handle_lost();
                    self.advance_agent(conn);
                }
            }
            End::Gateway => {
                if let Some(side) = &mut self.conns[conn].gateway_side {
                    side.machine.handle_lost();
                    self.advance_gateway(conn);
                }
            }
        }
    }

    /// The connection breaks, and both ends learn of it, each at its own moment.
    pub(crate) fn break_link(&mut self, conn: usize) {
        self.conns[conn].to_agent.is_swallowing = true;
        self.conns[conn].to_gateway.is_swallowing = true;
        for at in [End::Agent, End::Gateway] {
            let when = self.soon(1, 50);
            self.queue.put(when, Action::Lost { conn, at });
        }
    }

    /// The connection swallows everything, and nobody is told.
    pub(crate) fn swallow(&mut self, conn: usize) {
        for pipe in [End::Agent, End::Gateway] {
            let pipe = self.pipe(conn, pipe);
            pipe.is_swallowing = true;
            pipe.bytes.clear();
        }
    }

    /// The agent's side is over: what it still had to say was written.
    pub(crate) fn finish_agent(&mut self, conn: usize, cause: CloseCause) {
        let agent = self.conns[conn].agent;
        let now = self.agent_now(agent);
        self.conns[conn].agent_side = None;
        self.finish(conn, End::Gateway);
        let at = &mut self.agents[agent];
        if at.conn == Some(conn) {
            at.conn = None;
            if let Some(dialer) = &mut at.dialer {
                dialer.handle_ended(Ended::Session(cause), now);
            }
            let life = at.life;
            self.queue.put(self.now, Action::Dial { agent, life });
        }
    }

    /// A connection ends that waited for the engine.
    fn end_before_session(&mut self, conn: usize) {
        self.agents[self.conns[conn].agent].pending = None;
        self.finish_agent(conn, CloseCause::Lost);
    }

    /// A writer closed: its reader learns of it behind the last byte, unless the way swallows.
    pub(crate) fn finish(&mut self, conn: usize, toward: End) {
        let pipe = self.pipe(conn, toward);
        if !pipe.is_swallowing {
            pipe.is_finished = true;
        }
        self.carry(conn, toward);
    }
}
