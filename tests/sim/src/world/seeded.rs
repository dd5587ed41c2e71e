//! Seeding one fault into the machines of a world; without the feature `mutants` there is none to seed.

use holdfast_session::scheduler::Scheduler;
use holdfast_session::{agent, gateway};

use super::World;
use crate::keys::HostKeys;

#[cfg(feature = "mutants")]
impl World {
    pub(crate) fn seeded_gateway(&self, machine: gateway::Session) -> gateway::Session {
        match self.mutant {
            Some(mutant) => machine.with_mutant(mutant),
            None => machine,
        }
    }

    pub(crate) fn seeded_agent(&self, machine: agent::Session<HostKeys>) -> agent::Session<HostKeys> {
        match self.mutant {
            Some(mutant) => machine.with_mutant(mutant),
            None => machine,
        }
    }

    pub(crate) fn seeded_scheduler(&self, machine: Scheduler) -> Scheduler {
        match self.mutant {
            Some(mutant) => machine.with_mutant(mutant),
            None => machine,
        }
    }

    /// The authority's rows too.
    pub(crate) fn seed_store(&mut self) {
        if let Some(mutant) = self.mutant {
            for row in self.store.sessions.values_mut() {
                row.session = row.session.with_mutant(mutant);
            }
        }
    }
}

#[cfg(not(feature = "mutants"))]
#[expect(clippy::unused_self, reason = "one signature with and without the feature")]
impl World {
    pub(crate) const fn seeded_gateway(&self, machine: gateway::Session) -> gateway::Session {
        machine
    }

    pub(crate) const fn seeded_agent(&self, machine: agent::Session<HostKeys>) -> agent::Session<HostKeys> {
        machine
    }

    pub(crate) const fn seeded_scheduler(&self, machine: Scheduler) -> Scheduler {
        machine
    }

    /// There is nothing to seed.
    pub(crate) const fn seed_store(&mut self) {}
}
