//! The second phase: nothing goes wrong any more, and everything must come to rest within a bound.

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::Revision;
use holdfast_model::status::State;
use holdfast_render::fleet::{Fleet, MAX_WAIT_MS};

use super::World;
use super::parts::{Action, Process};
use crate::estate::host_id;
use crate::violation::Invariant;

/// How often the world is looked at, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// When the operator asks for what failed: a failed recovery is not tried again by itself, only by something newer, a new session or an operator.
const RESEND_MS: u64 = 60_000;
/// The longest way to rest: the largest wait between dials (5 min), a hello that is not answered (30 s), a link that is dead unnoticed (45 s), a
/// lease (30 s), the compare (36 s), the backstops of rendering and relaying (2 × 30 s), the retries of facts and builds (15 s), two of them after
/// one another where an operator must ask, a process that stands still (70 s); rounded up.
const REST_MS: u64 = 12 * 60_000;

impl World {
    /// Everything that is broken is mended; a process that stands still goes on by itself, and not before: what waits for it waits until then.
    pub(crate) fn heal(&mut self) {
        self.is_healing = true;
        self.healed_at = self.now;
        self.flaky_until = 0;
        self.store.away_until = 0;
        self.bus.faulty_until = 0;
        for gateway in 0..self.gateways.len() {
            self.gateways[gateway].cut_off_until = 0;
            self.queue.put(self.now + 10, Action::Start(Process::Gateway(gateway)));
        }
        for renderer in 0..self.renderers.len() {
            self.queue.put(self.now + 10, Action::Start(Process::Renderer(renderer)));
        }
        for agent in 0..self.agents.len() {
            if self.agents[agent].is_clone {
                // The copy is switched off, for good.
                self.kill_agent(agent);
                self.agents[agent].paused_until = u64::MAX;
                continue;
            }
            let at = &mut self.agents[agent];
            at.cut_off_until = 0;
            at.disk.refuses_until = 0;
            at.disk.slow_ms = 0;
            at.disk.kernel_fails_until = 0;
            self.queue.put(self.now + 10, Action::Start(Process::Agent(agent)));
        }
        for conn in &mut self.conns {
            conn.to_agent.stalled_until = 0;
            conn.to_gateway.stalled_until = 0;
        }
        self.queue.put(self.now + LOOK_MS, Action::Look);
    }

    /// Is everything at rest?
    pub(crate) fn look(&mut self) {
        let since = self.now - self.healed_at;
        let Some(missing) = self.missing() else {
            self.tally.rest_ms_max = since;
            self.is_done = true;
            return;
        };
        if since > REST_MS {
            return self.violate(Invariant::DeliveredOrSuperseded, || {
                format!("{missing}, {} s after everything was mended", since / 1_000)
            });
        }
        if since.is_multiple_of(RESEND_MS) {
            self.ask_for_what_failed();
        }
        self.queue.put(self.now + LOOK_MS, Action::Look);
    }

    fn ask_for_what_failed(&mut self) {
        for agent in 0..self.plan.hosts {
            let host = host_id(self.agents[agent].host);
            let failed = |part| self.store.state_of(host, part, self.clock()) == State::Failed;
            if Component::ALL.into_iter().any(failed) {
                self.tally.asked_again += 1;
                self.resend(agent);
            }
        }
    }

    /// What is not at rest.
    pub(super) fn missing(&self) -> Option<String> {
        if self.store.rendered != self.store.revision {
            return Some(format!("revision {} is not rendered", self.store.revision));
        }
        for agent in &self.agents {
            if agent.is_clone {
                continue;
            }
            let host = host_id(agent.host);
            for component in Component::ALL {
                let Some(row) = self.store.latest.get(&(host, component)) else {
                    return Some(format!("{component} of {host} has no version"));
                };
                let held = match component {
                    Component::Policy => agent.disk.kernel.as_ref().map(|entry| entry.stamp),
                    Component::Settings | Component::Credentials | Component::Workloads => {
                        agent.disk.components.iter().find(|(of, _)| *of == component).map(|(_, stamp)| *stamp)
                    }
                };
                let state = self.store.state_of(host, component, self.clock());
                if held != Some(row.stamp) || state != State::Converged {
                    let (wanted, held) = (row.stamp.version, held.map(|stamp| stamp.version.raw()));
                    return Some(format!("{component} of {host} is {state} with {held:?}, version {wanted} is wanted"));
                }
            }
        }
        if let Some(host) = self.rendered_otherwise() {
            return Some(format!("the newest policy of {host} is not what the last intent renders to"));
        }
        let waiting = self.reference.taken();
        if waiting > 0 {
            return Some(format!("{waiting} facts that gateways took are not written"));
        }
        let relayed = self.stream.messages.len();
        let (events, numbered) = (self.store.events.len(), self.store.order.len());
        (events != relayed).then(|| format!("{events} events, {numbered} numbered, {relayed} in the stream"))
    }

    /// A host whose newest policy is another than a renderer makes that knows the last intent alone, and nothing of how it came about.
    fn rendered_otherwise(&self) -> Option<HostId> {
        let nothing = Revision::from_raw(0);
        let fleet = Fleet::new(&self.estate.intent(), self.store.revision, nothing, [], self.now);
        let planned = fleet.poll_plan(self.now + MAX_WAIT_MS)?;
        let mut policies = planned.plan.states.iter().filter(|state| state.component == Component::Policy);
        let differs = policies.find(|state| {
            let row = self.store.latest.get(&(state.host, Component::Policy));
            row.is_none_or(|row| row.stamp.digest != state.stamp.digest)
        });
        differs.map(|state| state.host)
    }
}
