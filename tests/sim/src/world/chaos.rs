//! What goes wrong.

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::{UpdateSeq, Version};
use holdfast_model::statement::{OutcomeKind, outcome_bytes};
use holdfast_wire::encode;
use holdfast_wire::message::{Drain, Message, OutcomeReport};
use holdfast_wire::negotiate::Protocol;

use super::World;
use super::engine::Engine;
use super::parts::{Action, Agent, End, Process};
use super::session::statement_of;
use crate::estate::{authority, host_id};
use crate::keys::{host_key, sign};
use crate::plan::{Kind, Repair};

impl World {
    /// The next fault, and when the one after it comes.
    pub(crate) fn fault(&mut self) {
        if self.is_healing {
            return;
        }
        let nth = self.below(self.plan.kinds.len());
        let kind = self.plan.kinds[nth];
        self.tally.faults += 1;
        self.trace.tell(self.now, || format!("fault: {kind:?}"));
        match kind {
            Kind::Links => self.fault_of_links(),
            Kind::Partitions => {
                let agent = self.below(self.agents.len());
                self.cut_agent_off(agent);
            }
            Kind::SlowReaders => self.stall_reader(),
            Kind::Gateways => self.fault_of_gateways(),
            Kind::Agents => self.fault_of_agents(),
            Kind::Renderers => self.fault_of_renderers(),
            Kind::Database => self.fault_of_database(),
            Kind::Bus => self.fault_of_bus(),
            Kind::Clocks => self.jump(),
            Kind::Disks => self.fault_of_disks(),
            Kind::Kernels => {
                let agent = self.below(self.agents.len());
                self.agents[agent].disk.kernel_fails_until = self.soon(5, 8_000);
            }
            Kind::Clones => self.clone_agent(),
            Kind::OldState => self.go_back(),
            Kind::Liars => {
                for _ in 0..self.between(1, 20) {
                    self.lie();
                }
            }
            Kind::Operators => self.fault_of_operators(),
        }
        let when = self.soon(20, self.plan.fault_gap_ms);
        self.queue.put(when, Action::Fault);
    }

    fn any_conn(&mut self) -> Option<usize> {
        let agent = self.below(self.agents.len());
        self.agents[agent].conn
    }

    fn fault_of_links(&mut self) {
        let Some(conn) = self.any_conn() else { return };
        match self.between(0, 2) {
            0 => self.swallow(conn),
            1 => {
                let nth = self.below(2);
                self.pipe(conn, [End::Agent, End::Gateway][nth]).is_swallowing = true;
            }
            _ => self.break_link(conn),
        }
    }

    fn cut_agent_off(&mut self, agent: usize) {
        self.agents[agent].cut_off_until = self.soon(500, 60_000);
        if let Some(conn) = self.agents[agent].conn {
            self.swallow(conn);
        }
    }

    fn stall_reader(&mut self) {
        let until = self.soon(200, 40_000);
        let nth = self.below(2);
        if let Some(conn) = self.any_conn() {
            self.pipe(conn, [End::Agent, End::Gateway][nth]).stalled_until = until;
        }
    }

    fn fault_of_gateways(&mut self) {
        let gateway = self.below(self.gateways.len());
        if self.chance(60) {
            self.kill_gateway(gateway);
        } else if self.chance(20) {
            self.gateways[gateway].stops_as_it_asks = true;
        } else {
            let until = self.soon(100, 70_000);
            let at = &mut self.gateways[gateway];
            at.paused_until = at.paused_until.max(until);
        }
    }

    fn fault_of_agents(&mut self) {
        let agent = self.below(self.agents.len());
        if self.chance(70) {
            self.kill_agent(agent);
        } else {
            let until = self.soon(100, 60_000);
            let at = &mut self.agents[agent];
            at.paused_until = at.paused_until.max(until);
        }
    }

    fn fault_of_renderers(&mut self) {
        let renderer = self.below(self.renderers.len());
        if self.chance(50) {
            self.kill_renderer(renderer);
        } else {
            let until = self.soon(100, 60_000);
            let at = &mut self.renderers[renderer];
            at.paused_until = at.paused_until.max(until);
        }
    }

    fn fault_of_database(&mut self) {
        match self.between(0, 2) {
            0 => self.store.away_until = self.soon(100, 40_000),
            1 => self.flaky_until = self.soon(500, 20_000),
            _ => {
                let gateway = self.below(self.gateways.len());
                self.gateways[gateway].cut_off_until = self.soon(100, 50_000);
            }
        }
    }

    pub(crate) const fn database_is_flaky(&self) -> bool {
        self.flaky_until > self.now
    }

    fn fault_of_bus(&mut self) {
        if self.plan.repair == Repair::HintsOnly {
            return;
        }
        self.bus.faulty_until = self.soon(500, 30_000);
        self.bus.lost_percent = self.between(0, 100);
        self.bus.doubled_percent = self.between(0, 60);
        self.bus.late_ms = self.between(10, 5_000);
        if self.chance(20) {
            self.stream.lose();
        }
    }

    /// A clock jumps: ahead on a host or a gateway, either way in the database.
    fn jump(&mut self) {
        let by = self.between(100, 90_000);
        match self.between(0, 2) {
            0 => {
                let gateway = self.below(self.gateways.len());
                self.gateways[gateway].clock_ahead += by;
                for conn in 0..self.conns.len() {
                    if self.conns[conn].gateway == gateway {
                        self.queue.put(self.now, Action::GatewayTimer { conn });
                        if let Some(side) = self.gateway_side(conn) {
                            side.timer_at = Some(0);
                        }
                    }
                }
            }
            1 => {
                let agent = self.below(self.agents.len());
                self.agents[agent].clock_ahead += by;
                if let Some(conn) = self.agents[agent].conn
                    && let Some(side) = self.agent_side(conn)
                {
                    side.timer_at = Some(0);
                    self.queue.put(self.now, Action::AgentTimer { conn });
                }
            }
            _ if self.chance(50) => self.store.clock_ahead += by,
            _ => self.store.clock_ahead = self.store.clock_ahead.saturating_sub(by).max(100_000),
        }
    }

    fn fault_of_disks(&mut self) {
        let agent = self.below(self.agents.len());
        let until = self.soon(50, 15_000);
        let slow = self.between(50, 3_000);
        let disk = &mut self.agents[agent].disk;
        if until.is_multiple_of(2) {
            disk.refuses_until = until;
        } else {
            disk.slow_ms = slow;
        }
    }

    /// A machine is copied, agent, identity, state and all.
    fn clone_agent(&mut self) {
        if self.agents.len() > self.plan.hosts {
            return;
        }
        let of = self.below(self.plan.hosts);
        let seed = self.random.next_u64();
        let mut clone = Agent::new(self.agents[of].host, self.gateway_names(), seed);
        clone.is_clone = true;
        clone.disk = self.agents[of].disk.clone();
        let agent = self.agents.len();
        self.agents.push(clone);
        self.queue.put(self.now, Action::Start(Process::Agent(agent)));
    }

    /// A host starts from a state folder of an earlier day, on a kernel that forgot everything.
    fn go_back(&mut self) {
        let agent = self.below(self.plan.hosts);
        let Some(old) = self.old_disks.get(&agent).cloned() else {
            let disk = self.agents[agent].disk.clone();
            self.old_disks.insert(agent, disk);
            return;
        };
        self.kill_agent(agent);
        let at = &mut self.agents[agent];
        at.disk = old;
        at.disk.kernel = None;
        at.engine = Engine::default();
    }

    /// A host says of an update what cannot be: of one that was never sent, or of another version than was sent.
    pub(super) fn lie(&mut self) {
        let Some(conn) = self.any_conn() else { return };
        let host = self.agents[self.conns[conn].agent].host;
        let epoch = self.conns[conn].agent_side.as_ref().and_then(|side| side.session_epoch);
        let protocol = self.conns[conn].agent_side.as_ref().map_or(Protocol::NEWEST, |side| side.protocol);
        let Some(epoch) = epoch else { return };
        let sent = self.conns[conn].gateway_side.as_ref().and_then(|side| side.sent.keys().next().copied());
        let far = self.between(1, 50);
        let update_seq = match sent {
            Some(sent) if far.is_multiple_of(2) => sent,
            Some(_) | None => UpdateSeq::from_raw(1_000 + far),
        };
        let newest = self.store.latest.get(&(host_id(host), Component::Policy)).map(|row| row.stamp);
        let never = Version::from_raw(900 + far).unwrap_or(Version::FIRST);
        let forged = Stamp { version: never, digest: Digest::of(b"never rendered") };
        let wanted = newest.filter(|_| !far.is_multiple_of(2)).unwrap_or(forged);
        let mut report = OutcomeReport {
            update_seq,
            component: Component::Policy,
            kind: OutcomeKind::Applied,
            wanted,
            applied: Some(wanted),
            conditions: super::engine::all_true(wanted.version),
            signature: [0; 64],
        };
        let statement = statement_of(host_id(host), epoch, &report);
        report.signature = sign(host_key(host), &outcome_bytes(authority(), &statement, &report.conditions));
        let mut frame = Vec::new();
        let pipe = &mut self.conns[conn].to_gateway;
        // Between two whole frames, which this writer makes and nobody cuts.
        if encode(protocol, &Message::Outcome(report), &mut frame).is_ok() && !pipe.is_finished {
            pipe.write(&frame);
            self.tally.lies += 1;
            self.carry(conn, End::Gateway);
        }
    }

    fn fault_of_operators(&mut self) {
        let agent = self.below(self.plan.hosts);
        if self.chance(70) {
            return self.resend(agent);
        }
        let gateway = self.below(self.gateways.len());
        let spread = self.between(0, 10_000);
        for conn in self.held_by(gateway) {
            let reconnect_after_ms = u32::try_from(spread).unwrap_or(0);
            self.mail(conn, |mail| mail.drain = Some(Drain { reconnect_after_ms, gateways: vec![] }));
        }
    }

    /// An operator asks for the whole state of a host once more, wherever its session is held.
    pub(crate) fn resend(&mut self, agent: usize) {
        let host = host_id(self.agents[agent].host);
        for conn in self.sessions_of(host) {
            self.mail(conn, |mail| mail.resend = true);
        }
    }
}
