//! Seeding one fault into the machines of a world; without the feature `mutants` there is none to seed.

use super::World;

#[cfg(feature = "mutants")]
mod with_mutant {
    use holdfast_events::relay::Relay;
    use holdfast_model::mutant::Mutant;
    use holdfast_session::replica::{Compares, Facts, Lease, Sessions};
    use holdfast_session::{agent, gateway};

    use super::super::facts::SimFacts;
    use crate::keys::HostKeys;

    /// A machine that can have a fault.
    pub(crate) trait Seedable {
        fn with_mutant(self, mutant: Mutant) -> Self;
    }

    macro_rules! seedable {
        ($($machine:ty),+) => {
            $(impl Seedable for $machine {
                fn with_mutant(self, mutant: Mutant) -> Self {
                    <$machine>::with_mutant(self, mutant)
                }
            })+
        };
    }

    seedable!(agent::Session<HostKeys>, gateway::Session, Sessions<usize>, Facts<SimFacts>, Lease, Compares, Relay);
}

#[cfg(feature = "mutants")]
impl World {
    /// A machine with the fault of this world, if it has one.
    pub(crate) fn seeded<T: with_mutant::Seedable>(&self, machine: T) -> T {
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
    /// There is nothing to seed.
    pub(crate) fn seeded<T>(&self, machine: T) -> T {
        machine
    }

    /// There is nothing to seed.
    pub(crate) const fn seed_store(&mut self) {}
}
