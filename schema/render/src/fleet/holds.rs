//! The hosts that a rollout holds back.
//!
//! - A host that is held back is rendered exactly as of the revision that it is held at, from intent at that revision: once, when the hold begins or a
//!   renderer starts, and only if it may not have been rendered so already. Edits touch it and do nothing: it stays dirty.
//! - The fleet is not rendered with a revision that touches a host which is held back. How far the others are is told beside it.
//! - Let go, it is rendered like every other.

use std::collections::BTreeSet;

use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::intent::Intent;
use holdfast_model::numbers::Revision;

use super::{Fleet, Plan, Planned};
use crate::{Index, render_hosts};

/// Whom a rollout holds back now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holds {
    /// Which rollout.
    pub rollout: RolloutId,
    /// How many of its stages are opened.
    pub stage: u32,
    /// The revision that they are held at.
    pub pin: Revision,
    /// Who is held back.
    pub hosts: BTreeSet<HostId>,
}

/// How far those hosts are that a rollout does not hold back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LetGo {
    /// Which rollout.
    pub rollout: RolloutId,
    /// How many of its stages were opened then.
    pub stage: u32,
    /// The revision up to which every one of them is rendered.
    pub revision: Revision,
}

/// What a fleet knows of whom it holds back.
#[derive(Debug, Default)]
pub(super) struct Held {
    holds: Option<Holds>,
    /// Whether it was told whom, so that what is dirty says what is to be rendered.
    is_told: bool,
    /// Those that may not be rendered at the revision that they are held at.
    unpinned: BTreeSet<HostId>,
    /// What was committed last.
    let_go: Option<LetGo>,
}

impl Held {
    pub(super) fn handle_gone(&mut self, hosts: &BTreeSet<HostId>) {
        self.unpinned.retain(|host| !hosts.contains(host));
    }

    /// How far the others are, if some are held back.
    pub(super) fn let_go(&self, revision: Revision) -> Option<LetGo> {
        self.holds.as_ref().map(|holds| LetGo { rollout: holds.rollout, stage: holds.stage, revision })
    }

    /// Whether that was committed.
    pub(super) fn is_committed(&self, let_go: Option<LetGo>) -> bool {
        let_go.is_none() || let_go == self.let_go
    }
}

impl Fleet {
    /// Whether it is known here that this rollout, with so many of its stages opened, or none, holds hosts back.
    #[must_use]
    pub fn follows(&self, rollout: Option<(RolloutId, u32)>) -> bool {
        self.held.is_told && self.held.holds.as_ref().map(|holds| (holds.rollout, holds.stage)) == rollout
    }

    /// Takes whom a rollout holds back from now on. What is to be rendered for that is in [`Fleet::poll_pin`].
    pub fn handle_holds(&mut self, holds: Option<Holds>) {
        let hosts = holds.as_ref().map(|holds| holds.hosts.clone()).unwrap_or_default();
        self.coalescer.handle_held(hosts);
        self.held.unpinned = match &holds {
            None => BTreeSet::new(),
            // A fleet that starts knows of no host what it was rendered from.
            Some(holds) if !self.held.is_told => holds.hosts.clone(),
            Some(holds) => self.coalescer.held_since(holds.pin),
        };
        self.held.is_told = true;
        self.held.holds = holds;
    }

    /// The revision whose intent [`Fleet::plan_pinned`] needs, while some of those that are held back may not be rendered at it.
    #[must_use]
    pub fn poll_pin(&self) -> Option<Revision> {
        let holds = self.held.holds.as_ref()?;
        (!self.held.unpinned.is_empty()).then_some(holds.pin)
    }

    /// Renders those that are held back from intent at the revision that they are held at. It comes before any other plan.
    #[must_use]
    pub fn plan_pinned(&self, at_pin: &Intent) -> Planned {
        let pin = self.held.holds.as_ref().map_or(self.revision, |holds| holds.pin);
        let now = render_hosts(&self.index, self.held.unpinned.iter().copied());
        // Whoever is a host no more has nothing that is desired of it.
        let pinned = render_hosts(&Index::new(at_pin), now.keys().copied());
        let is_as_pinned = |host: &&HostId| pinned.get(*host) == now.get(*host);
        let hosts = now.keys().filter(is_as_pinned).copied().collect();
        let mut plan = Plan { revision: self.rendered, intent: pin, is_of_held: true, ..Plan::default() };
        plan.hosts_rendered = u32::try_from(pinned.len()).unwrap_or(u32::MAX);
        self.plan_bodies(&mut plan, pinned);
        Planned { plan, hosts, held: self.held.unpinned.clone() }
    }

    pub(super) fn handle_held_committed(&mut self, planned: &Planned) {
        if planned.plan.is_of_held {
            let later = planned.plan.intent.next().unwrap_or(planned.plan.intent);
            self.coalescer.handle_rendered_before(&planned.held, later);
            self.held.unpinned.retain(|host| !planned.held.contains(host));
        } else if planned.plan.let_go.is_some() {
            self.held.let_go = planned.plan.let_go;
        }
    }
}
