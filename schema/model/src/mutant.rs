//! Seeded faults of the machines that carry desired states: each is one plausible mistake, and a simulation that misses it is no check.
//!
//! - Without the feature `mutants` no fault can be seeded and every question for one is a constant `false`; nothing that is shipped has the feature
//!   (ADR 0015).

/// One plausible mistake of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// The relay goes on behind what the stream may not have.
    CursorAdvanced,
    /// A doubt about hints that comes while a compare runs is forgotten.
    DoubtForgotten,
    /// The goodbye of a session is written before what was seen in it.
    GoodbyeFirst,
    /// Of a batch of facts that is refused for a value, only one half is tried again.
    HalfForgotten,
    /// The end of an older session ends the newer one too.
    LateCleanupUnfenced,
    /// A lease is counted from when its answer came.
    LeaseFromAnswer,
    /// What was marked while a build was under way is forgotten with that build.
    MarkDropped,
    /// The end of an older session takes the newer one out of the gateway's map.
    OlderEndTakesNewer,
    /// A sign of life is written late with the age that it had at the first try.
    PresenceKept,
    /// A failed recovery is answered by another recovery.
    RecoveryLoops,
    /// A write counts under any session while one is open.
    StaleEpochAdmitted,
    /// The gateway does not remember what it wrote last.
    TipNotAdvanced,
    /// An outcome counts whatever update it names.
    UnsentAckAccepted,
    /// More updates are written than the window has room for.
    WindowIgnored,
    /// The agent takes a delta whatever its base is.
    WrongBaseAccepted,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::CursorAdvanced,
        Self::DoubtForgotten,
        Self::GoodbyeFirst,
        Self::HalfForgotten,
        Self::LateCleanupUnfenced,
        Self::LeaseFromAnswer,
        Self::MarkDropped,
        Self::OlderEndTakesNewer,
        Self::PresenceKept,
        Self::RecoveryLoops,
        Self::StaleEpochAdmitted,
        Self::TipNotAdvanced,
        Self::UnsentAckAccepted,
        Self::WindowIgnored,
        Self::WrongBaseAccepted,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::CursorAdvanced => "cursor-advanced",
            Self::DoubtForgotten => "doubt-forgotten",
            Self::GoodbyeFirst => "goodbye-first",
            Self::HalfForgotten => "half-forgotten",
            Self::LateCleanupUnfenced => "late-cleanup-unfenced",
            Self::LeaseFromAnswer => "lease-from-answer",
            Self::MarkDropped => "mark-dropped",
            Self::OlderEndTakesNewer => "older-end-takes-newer",
            Self::PresenceKept => "presence-kept",
            Self::RecoveryLoops => "recovery-loops",
            Self::StaleEpochAdmitted => "stale-epoch-admitted",
            Self::TipNotAdvanced => "tip-not-advanced",
            Self::UnsentAckAccepted => "unsent-ack-accepted",
            Self::WindowIgnored => "window-ignored",
            Self::WrongBaseAccepted => "wrong-base-accepted",
        }
    }

    /// What is wrong by it, in a line.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::CursorAdvanced => "what the stream did not say that it has counts as published",
            Self::DoubtForgotten => "a doubt about hints that comes while a compare runs is forgotten",
            Self::GoodbyeFirst => "the end of a session is written before what was seen in it",
            Self::HalfForgotten => "of facts that are refused for a value in one of them, half are forgotten",
            Self::LateCleanupUnfenced => "the late end of an older session ends the newer one",
            Self::LeaseFromAnswer => "a gateway's lease is counted from the answer, not from the question",
            Self::MarkDropped => "what is published while a build is under way is forgotten",
            Self::OlderEndTakesNewer => "the late end of an older session takes the newer one off its gateway's map",
            Self::PresenceKept => "a sign of life that is written late is taken for a fresh one",
            Self::RecoveryLoops => "a recovery that failed is answered by another recovery",
            Self::StaleEpochAdmitted => "what an older session says counts as if the newer one had said it",
            Self::TipNotAdvanced => "the gateway does not remember what it wrote last",
            Self::UnsentAckAccepted => "an outcome counts for an update that was never sent",
            Self::WindowIgnored => "updates are written beyond the window that was agreed",
            Self::WrongBaseAccepted => "the agent takes a delta that is relative to something else",
        }
    }

    /// The one of a name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.word() == word)
    }
}

/// The fault that a machine was seeded with, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    #[cfg(feature = "mutants")]
    seeded: Option<Mutant>,
}

impl Faults {
    /// Seeds one fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn seeded(mutant: Mutant) -> Self {
        Self { seeded: Some(mutant) }
    }

    /// Whether this fault was seeded.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn has(self, mutant: Mutant) -> bool {
        self.seeded == Some(mutant)
    }

    /// No fault can be seeded in this build.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    pub const fn has(self, _: Mutant) -> bool {
        false
    }
}

// A build without the feature has no room for a fault.
#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Faults>() == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own_that_leads_back_to_it() {
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::from_word(mutant.word()), Some(mutant));
        }
        assert_eq!(Mutant::from_word("none"), None);
    }
}
