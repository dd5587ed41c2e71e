//! The agent's engine, after `agent/src/engine` and `agent/src/ledger`: candidate on disk, kernel, read back, good on disk, outcome.
//!
//! - Modelled: the order of the steps and what a start makes of a crash between any two of them. Each step is an action of its own, so that anything
//!   may happen in between.
//! - Real: how content becomes a body ([`holdfast_session::agent::body_of_delta`] and its kin).

use std::sync::Arc;

use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::Version;
use holdfast_model::policy::Body;
use holdfast_model::statement::OutcomeKind;
use holdfast_session::agent::{Apply, ApplyResult, Content, Dialer, body_of_delta, body_of_snapshot, check_snapshot};

use super::World;
use super::parts::{Action, Process};
use crate::violation::Invariant;

/// A policy as disk and memory have it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) stamp: Stamp,
    pub(crate) body: Arc<Body>,
}

/// What a host's disk and kernel hold: what outlives its agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) good: Option<Entry>,
    pub(crate) candidate: Option<Entry>,
    /// The components beside the policy.
    pub(crate) components: Vec<(Component, Stamp)>,
    /// What the kernel enforces; nothing before the first policy.
    pub(crate) kernel: Option<Entry>,
    /// Writes fail until then.
    pub(crate) refuses_until: u64,
    /// Writes take up to so many milliseconds.
    pub(crate) slow_ms: u64,
    /// The kernel refuses until then, or holds something else than what it was told.
    pub(crate) kernel_fails_until: u64,
}

/// What an agent remembers while it runs.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) held: Option<Entry>,
    working: Option<Working>,
}

impl Engine {
    pub(crate) const fn is_idle(&self) -> bool {
        self.working.is_none()
    }
}

#[derive(Debug)]
struct Working {
    conn: usize,
    apply: Apply,
    target: Option<Entry>,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Accept,
    Append,
    Kernel,
    Settle,
}

impl World {
    /// An agent's process begins: last good into force, then the first dial.
    pub(crate) fn start_agent(&mut self, agent: usize) {
        if self.agents[agent].is_up {
            return;
        }
        self.recover(agent);
        let at = &mut self.agents[agent];
        at.is_up = true;
        at.life += 1;
        at.seed = at.seed.wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(u64::from(at.life));
        let (life, seed, names) = (at.life, at.seed, at.gateways.clone());
        let now = self.agent_now(agent);
        self.agents[agent].dialer = Some(Dialer::new(names, seed, now));
        self.queue.put(self.now, Action::Dial { agent, life });
        self.check_host(agent);
    }

    /// What a start makes of the disk and the kernel.
    fn recover(&mut self, agent: usize) {
        let disk = &mut self.agents[agent].disk;
        if let Some(candidate) = disk.candidate.take() {
            let holds = disk.kernel.as_ref().is_some_and(|kernel| kernel.stamp.digest == candidate.stamp.digest);
            if holds {
                disk.good = Some(candidate);
            }
        }
        disk.kernel.clone_from(&disk.good);
        self.agents[agent].engine = Engine { held: self.agents[agent].disk.good.clone(), working: None };
    }

    /// An agent's process dies where it is; what was being written may be on disk or not.
    pub(crate) fn kill_agent(&mut self, agent: usize) {
        if !self.agents[agent].is_up {
            return;
        }
        let torn = self.chance(50);
        let at = &mut self.agents[agent];
        at.is_up = false;
        at.dialer = None;
        at.pending = None;
        if let Some(working) = at.engine.working.take()
            && torn
        {
            match working.step {
                Step::Append => at.disk.candidate = working.target,
                Step::Kernel => at.disk.kernel = working.target,
                Step::Settle => {
                    at.disk.good = working.target;
                    at.disk.candidate = None;
                }
                Step::Accept => {}
            }
        }
        if let Some(conn) = at.conn.take() {
            self.conns[conn].agent_side = None;
            self.finish(conn, super::parts::End::Gateway);
        }
        self.check_host(agent);
        let when = self.soon(10, 8_000);
        self.queue.put(when, Action::Start(Process::Agent(agent)));
    }

    /// An update is handed to the engine.
    pub(crate) fn begin_update(&mut self, agent: usize, conn: usize, apply: Apply) {
        if apply.component != Component::Policy {
            return self.apply_component(agent, conn, &apply);
        }
        self.agents[agent].engine.working = Some(Working { conn, apply, target: None, step: Step::Accept });
        self.plan_engine(agent, 1);
    }

    fn plan_engine(&mut self, agent: usize, slow_ms: u64) {
        let life = self.agents[agent].life;
        let when = self.soon(0, 3 + slow_ms);
        self.queue.put(when, Action::Engine { agent, life });
    }

    fn apply_component(&mut self, agent: usize, conn: usize, apply: &Apply) {
        let refuses = self.agents[agent].disk.refuses_until > self.now;
        let disk = &mut self.agents[agent].disk;
        let held = disk.components.iter().find(|(held, _)| *held == apply.component).map(|(_, stamp)| *stamp);
        let checked = match &apply.content {
            Content::Snapshot(bytes) => check_snapshot(apply.component, bytes, apply.stamp).map_err(|e| e.reason()),
            Content::VersionOnly => Ok(()),
            Content::Delta { .. } => Err(Reason::Malformed),
        };
        let failed = match checked {
            Err(reason) => Some(reason),
            Ok(()) if refuses => Some(Reason::NotDurable),
            Ok(()) => None,
        };
        let result = match failed {
            Some(reason) => result_of(apply, held, Some((ConditionType::SnapshotAccepted, reason))),
            None => {
                disk.components.retain(|(held, _)| *held != apply.component);
                disk.components.push((apply.component, apply.stamp));
                result_of(apply, Some(apply.stamp), None)
            }
        };
        self.check_host(agent);
        self.tell_result(agent, conn, apply, result);
    }

    /// The next step of the update at hand.
    pub(crate) fn engine_step(&mut self, agent: usize, life: u32) {
        if !self.is_agent(agent, life) {
            return;
        }
        let now = self.now;
        let held = self.agents[agent].engine.held.clone();
        let disk = &mut self.agents[agent].disk;
        let (disk_refuses, slow_ms) = (disk.refuses_until > now, disk.slow_ms);
        let kernel_fails = disk.kernel_fails_until > now;
        let Some(mut working) = self.agents[agent].engine.working.take() else { return };
        let disk = &mut self.agents[agent].disk;
        let failed = match working.step {
            Step::Accept => match body_of(held.as_ref(), &working.apply) {
                Ok(body) => {
                    working.target = Some(Entry { stamp: working.apply.stamp, body: Arc::new(body) });
                    working.step = Step::Append;
                    None
                }
                Err(reason) => Some((ConditionType::SnapshotAccepted, reason)),
            },
            Step::Append if disk_refuses => Some((ConditionType::Applied, Reason::NotDurable)),
            Step::Append => {
                disk.candidate.clone_from(&working.target);
                working.step = Step::Kernel;
                None
            }
            Step::Kernel if kernel_fails => {
                // Refused, or found to hold something else and brought back: what is held stays in force.
                disk.kernel.clone_from(&held);
                disk.candidate = if disk_refuses { disk.candidate.take() } else { None };
                Some((ConditionType::Applied, Reason::KernelRefused))
            }
            Step::Kernel => {
                disk.kernel.clone_from(&working.target);
                working.step = Step::Settle;
                None
            }
            Step::Settle if disk_refuses => {
                disk.kernel.clone_from(&held);
                Some((ConditionType::Applied, Reason::NotDurable))
            }
            Step::Settle => {
                disk.good.clone_from(&working.target);
                disk.candidate = None;
                self.agents[agent].engine.held = working.target.take();
                self.check_host(agent);
                let result = result_of(&working.apply, Some(working.apply.stamp), None);
                return self.tell_result(agent, working.conn, &working.apply, result);
            }
        };
        if failed.is_some() {
            self.check_host(agent);
            let result = result_of(&working.apply, held.map(|entry| entry.stamp), failed);
            return self.tell_result(agent, working.conn, &working.apply, result);
        }
        self.agents[agent].engine.working = Some(working);
        self.check_host(agent);
        self.plan_engine(agent, slow_ms);
    }

    /// The reference looks at everything that a host holds.
    pub(crate) fn check_host(&mut self, agent: usize) {
        let at = &self.agents[agent];
        let host = crate::estate::host_id(at.host);
        let entries = [&at.disk.good, &at.disk.candidate, &at.disk.kernel, &at.engine.held];
        let policies = entries.into_iter().flatten().map(|entry| (Component::Policy, entry.stamp));
        let held = policies.chain(at.disk.components.iter().copied());
        let stranger =
            held.into_iter().find(|(component, stamp)| !self.reference.was_rendered(host, *component, *stamp));
        if let Some((component, stamp)) = stranger {
            self.violate(Invariant::InstalledWasRendered, || {
                format!(
                    "{host} has version {} of {component} with a digest that was never rendered for it",
                    stamp.version
                )
            });
        }
        let at = &self.agents[agent];
        if let (Some(kernel), Some(held)) = (&at.disk.kernel, &at.engine.held)
            && at.engine.is_idle()
            && at.is_up
            && kernel.stamp != held.stamp
        {
            let (kernel, held) = (kernel.stamp.version, held.stamp.version);
            self.violate(Invariant::InstalledWasRendered, || {
                format!("{host} enforces version {kernel} and takes it for version {held}")
            });
        }
    }
}

/// The body that an update leads to; its digest is the one that the update names.
fn body_of(held: Option<&Entry>, apply: &Apply) -> Result<Body, Reason> {
    match &apply.content {
        Content::Snapshot(bytes) => body_of_snapshot(bytes, apply.stamp).map_err(|error| error.reason()),
        Content::Delta { base, changes } => {
            let held = held.filter(|held| held.stamp == *base).ok_or(Reason::WrongBase)?;
            body_of_delta(&held.body, *base, changes, apply.stamp).map_err(|error| error.reason())
        }
        Content::VersionOnly => {
            let held = held.filter(|held| held.stamp.digest == apply.stamp.digest).ok_or(Reason::WrongBase)?;
            Ok(held.body.as_ref().clone())
        }
    }
}

/// The conditions of an update that is in force and proven.
pub(crate) fn all_true(version: Version) -> Vec<Condition> {
    let condition = |kind| Condition {
        kind,
        status: Holds::True,
        reason: Reason::Done,
        message: String::new(),
        observed_version: Some(version),
    };
    ConditionType::OF_ATTEMPT.map(condition).to_vec()
}

fn result_of(apply: &Apply, in_force: Option<Stamp>, failed: Option<(ConditionType, Reason)>) -> ApplyResult {
    let condition = |kind: ConditionType| {
        let (status, reason) = match failed {
            None => (Holds::True, Reason::Done),
            Some((at, _)) if kind < at => (Holds::True, Reason::Done),
            Some((at, reason)) if kind == at => (Holds::False, reason),
            Some(_) => (Holds::Unknown, Reason::NotReached),
        };
        Condition { kind, status, reason, message: String::new(), observed_version: Some(apply.stamp.version) }
    };
    let kind = if failed.is_none() { OutcomeKind::Applied } else { OutcomeKind::Failed };
    ApplyResult { kind, in_force, conditions: ConditionType::OF_ATTEMPT.map(condition).to_vec() }
}
