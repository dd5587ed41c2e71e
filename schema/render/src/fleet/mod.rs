//! The fleet as the renderer holds it: intent at a revision, the latest stamp of each (host, component), what is dirty, and when it is due.
//!
//! - No clock, no database, no key: `now` comes in, commits and signatures are the shell's.
//! - A plan changes nothing here until the shell says that it was committed, so a failed commit is simply planned again.
//! - One that may have been committed is planned again before any later edit is taken, so that the fence tells: an edit that takes back what the plan had
//!   would leave nothing to plan, and what is stored would never be known here.
//! - What a rollout holds back is in [`holds`]: rendered at its own revision, once, and then left as it is.

mod coalesce;
mod holds;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use holdfast_model::artifact::tree_of;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::intent::Intent;
use holdfast_model::numbers::{Revision, Version};
use holdfast_model::policy::Body;

use crate::{Edit, Index, render_hosts};
pub use coalesce::{Coalescer, MAX_WAIT_MS, Millis, QUIET_MS};
pub use holds::{Holds, LetGo};

/// How many digests of stored nodes are remembered: 64 MiB at most. Forgetting costs inserts that the database finds to be there already.
const KNOWN_MAX: usize = 1 << 20;

/// The fleet.
pub struct Fleet {
    index: Index,
    revision: Revision,
    rendered: Revision,
    latest: HashMap<(HostId, Component), Stamp>,
    known: HashSet<Digest>,
    coalescer: Coalescer,
    held: holds::Held,
}

/// What to commit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The revision up to which every host is rendered with it.
    pub revision: Revision,
    /// The revision of the intent that the states are rendered from.
    pub intent: Revision,
    /// How many hosts were rendered.
    pub hosts_rendered: u32,
    /// While hosts are held back: up to which revision every other one is rendered with it.
    pub let_go: Option<LetGo>,
    /// Whether it is of hosts that are held back, as of an earlier revision than others have.
    pub is_of_held: bool,
    /// What is new.
    pub states: Vec<Desired>,
    /// Nodes that the states name and that are not known to be stored.
    pub artifacts: BTreeMap<Digest, Vec<u8>>,
}

/// A plan, and what it settles once it is committed.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What to commit.
    pub plan: Plan,
    hosts: BTreeSet<HostId>,
    /// Those that are held back and are rendered with it as of their own revision.
    held: BTreeSet<HostId>,
}

impl Fleet {
    /// Starts from all intent of a revision and all that is stored. Every host is dirty: a start-up render finds out what is different, which is
    /// nothing if nothing changed.
    #[must_use]
    pub fn new(
        intent: &Intent,
        revision: Revision,
        rendered: Revision,
        latest: impl IntoIterator<Item = Desired>,
        now: Millis,
    ) -> Self {
        let latest = latest.into_iter().map(|state| ((state.host, state.component), state.stamp)).collect();
        let index = Index::new(intent);
        let mut coalescer = Coalescer::default();
        coalescer.handle_touched(index.hosts(), revision, now);
        Self { index, revision, rendered, latest, known: HashSet::new(), coalescer, held: holds::Held::default() }
    }

    /// The revision of the intent that is held.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Takes the edits that lead to a later revision.
    pub fn handle_edits(&mut self, edits: impl IntoIterator<Item = Edit>, until: Revision, now: Millis) {
        // The oldest of them: what is rendered is told by the revision before it.
        let since = self.revision.next().unwrap_or(until);
        self.revision = until;
        for edit in edits {
            let affected = self.index.apply(edit);
            self.coalescer.handle_touched(affected.hosts, since, now);
            self.coalescer.handle_gone(&affected.gone);
            self.held.handle_gone(&affected.gone);
            self.latest.retain(|(host, _), _| !affected.gone.contains(host));
        }
    }

    /// When there is something to plan, and why one would wake for it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, &'static str)> {
        self.coalescer.poll_timeout()
    }

    /// What is to be committed now; nothing if no host is due and every revision is rendered.
    #[must_use]
    pub fn poll_plan(&self, now: Millis) -> Option<Planned> {
        let hosts = self.coalescer.poll_due(now);
        let until = |oldest: Option<Revision>| match oldest {
            None => self.revision,
            Some(dirty) => Revision::from_raw(dirty.raw().saturating_sub(1)),
        };
        let revision = until(self.coalescer.oldest_after(&hosts)).max(self.rendered);
        let let_go = self.held.let_go(until(self.coalescer.oldest_let_go_after(&hosts)));
        if hosts.is_empty() && revision == self.rendered && self.held.is_committed(let_go) {
            return None;
        }
        let mut plan = Plan { revision, intent: self.revision, let_go, ..Plan::default() };
        self.plan_bodies(&mut plan, render_hosts(&self.index, hosts.iter().copied()));
        plan.hosts_rendered = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        Some(Planned { plan, hosts, held: BTreeSet::new() })
    }

    /// Adds what is new of these hosts, whose policies are these.
    fn plan_bodies(&self, plan: &mut Plan, bodies: BTreeMap<HostId, Arc<Body>>) {
        // Hosts of one role share a body, which is walked once.
        let mut digests: HashMap<*const Body, Digest> = HashMap::new();
        for (host, body) in bodies {
            let digest = *digests.entry(Arc::as_ptr(&body)).or_insert_with(|| body.digest());
            if self.plan_component(plan, host, Component::Policy, digest) {
                let artifacts = &plan.artifacts;
                let (_, nodes) = tree_of(&body, |node| self.known.contains(&node) || artifacts.contains_key(&node));
                plan.artifacts.extend(nodes);
            }
            for component in [Component::Settings, Component::Credentials, Component::Workloads] {
                if self.plan_component(plan, host, component, component.empty_digest()) {
                    plan.artifacts.entry(component.empty_digest()).or_insert_with(|| component.empty_bytes());
                }
            }
        }
    }

    /// Adds a state if its digest is new; says whether it did.
    fn plan_component(&self, plan: &mut Plan, host: HostId, component: Component, digest: Digest) -> bool {
        let version = match self.latest.get(&(host, component)) {
            None => Version::FIRST,
            Some(stamp) if stamp.digest == digest => return false,
            // No host lives to see u64::MAX versions; at the end the last one stays.
            Some(stamp) => match stamp.version.next() {
                Some(version) => version,
                None => return false,
            },
        };
        plan.states.push(Desired { host, component, stamp: Stamp { version, digest } });
        true
    }

    /// A plan was committed.
    pub fn handle_committed(&mut self, planned: &Planned) {
        self.rendered = self.rendered.max(planned.plan.revision);
        for state in &planned.plan.states {
            self.latest.insert((state.host, state.component), state.stamp);
        }
        if self.known.len() + planned.plan.artifacts.len() > KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(planned.plan.artifacts.keys());
        self.coalescer.handle_rendered(&planned.hosts);
        self.handle_held_committed(planned);
    }
}

#[cfg(test)]
mod tests;
