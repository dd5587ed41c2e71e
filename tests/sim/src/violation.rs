//! What must hold after every step, and the word for it where it does not.

use std::fmt;

/// The invariants, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Invariant {
    /// What a host has in force, on its disk or in its kernel, was rendered and committed for that host at that version.
    InstalledWasRendered,
    /// Nothing of one session reaches another: no base, no outcome, no end, no result.
    NothingCrossesSessions,
    /// Every committed version is delivered or superseded in the end.
    DeliveredOrSuperseded,
    /// The authority calls a host converged only if it held the latest digest in the session that is the host's now.
    SyncedIsProven,
    /// Queues, windows and slots stay within the limits that they state.
    MemoryIsBounded,
    /// Events are numbered without a hole, a cause before its effect, and the stream has them in that order, each once.
    EventsAreOrdered,
    /// Versions rise by one, one version has one content, only the leader of the newest term commits, and no gateway writes once its lease could have
    /// ended.
    OneWriter,
    /// What a gateway took of a session is written, in order, its end last, and no sign of life is said to be younger than it is.
    FactsAreKept,
}

impl Invariant {
    /// The name in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::InstalledWasRendered => "installed-was-rendered",
            Self::NothingCrossesSessions => "nothing-crosses-sessions",
            Self::DeliveredOrSuperseded => "delivered-or-superseded",
            Self::SyncedIsProven => "synced-is-proven",
            Self::MemoryIsBounded => "memory-is-bounded",
            Self::EventsAreOrdered => "events-are-ordered",
            Self::OneWriter => "one-writer",
            Self::FactsAreKept => "facts-are-kept",
        }
    }
}

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What was seen instead.
    pub message: String,
    /// In which step.
    pub step: u64,
    /// When, in simulated milliseconds.
    pub at_ms: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (step {}, {} ms)", self.invariant.word(), self.message, self.step, self.at_ms)
    }
}
