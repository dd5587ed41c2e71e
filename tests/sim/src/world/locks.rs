//! Locks that a transaction holds from its first statement to its end, as the product's statements take them.
//!
//! - Rows of hosts exclude each other; a render and a numbering hold the renderer's lease fast together, a claim of it excludes both; numberings
//!   exclude each other.

use std::collections::BTreeSet;

use holdfast_model::ids::HostId;
use holdfast_model::numbers::LeaseTerm;

use super::World;
use super::ask::Ask;
use crate::store::RENDERER_LEASE;

/// Locks that are held.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    hosts: BTreeSet<HostId>,
    order: bool,
    /// Transactions that hold the renderer's lease fast.
    fences: usize,
    /// A claim of that lease is under way.
    is_claimed: bool,
    /// The transaction whose events are being inserted, its next number, and when it had its locks.
    pub(super) writing: Option<(u64, u64, u64)>,
}

/// What a transaction locks.
#[derive(Debug, Default)]
struct Wants {
    hosts: BTreeSet<HostId>,
    order: bool,
    fence: Option<LeaseTerm>,
    claim: bool,
}

impl Wants {
    fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Open { host, .. } => Self { hosts: BTreeSet::from([*host]), ..Self::default() },
            Ask::Record { batch } => Self { hosts: batch.iter().map(|fact| fact.host).collect(), ..Self::default() },
            Ask::Acquire => Self { claim: true, ..Self::default() },
            Ask::Store { term, .. } => Self { fence: Some(*term), ..Self::default() },
            Ask::Number { term, .. } => Self { fence: Some(*term), order: true, ..Self::default() },
            Ask::Read { .. }
            | Ask::Compare { .. }
            | Ask::Lease
            | Ask::Renew { .. }
            | Ask::Release { .. }
            | Ask::Load { .. }
            | Ask::Changes { .. } => Self::default(),
        }
    }
}

impl World {
    /// Takes all locks of a transaction, or none.
    pub(super) fn lock(&mut self, op: usize) -> bool {
        let wants = Wants::of(&self.ops[op].ask);
        let locks = &mut self.locks;
        let is_held = wants.hosts.iter().any(|host| locks.hosts.contains(host))
            || (wants.claim && (locks.fences > 0 || locks.is_claimed))
            || (wants.fence.is_some() && locks.is_claimed)
            || (wants.order && locks.order);
        if !is_held {
            locks.hosts.extend(wants.hosts);
            locks.order |= wants.order;
            locks.is_claimed |= wants.claim;
            locks.fences += usize::from(wants.fence.is_some());
        }
        !is_held
    }

    pub(super) fn unlock(&mut self, op: usize) {
        let wants = Wants::of(&self.ops[op].ask);
        let locks = &mut self.locks;
        locks.hosts.retain(|host| !wants.hosts.contains(host));
        locks.order &= !wants.order;
        locks.is_claimed &= !wants.claim;
        locks.fences -= usize::from(wants.fence.is_some());
    }

    /// Whether a transaction is of a term that is over.
    pub(super) fn is_fenced_out(&self, op: usize) -> bool {
        let term = Wants::of(&self.ops[op].ask).fence;
        term.is_some_and(|term| !self.store.holds(RENDERER_LEASE, term, self.clock()))
    }
}
