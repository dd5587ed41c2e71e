//! What becomes of an operation on each host, and of the operation by that.
//!
//! - An operation waits for exact versions: of each (host, component) the first that was rendered with its revision or a later one.
//! - That, or a later version of the same component, has what the operation changed where its revision still has that; where it has something else
//!   in its place, the operation is superseded there: so also where changes that came close behind one another were rendered together. A version of
//!   another component says nothing.
//! - A failure counts only of the newest version: one that was overtaken may yet come right.
//! - What is not known is pending, and ends nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::numbers::{Revision, Version};

/// What became of an operation on one host, or on one component of it. In order of what is told of several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostOutcome {
    /// Proven to have been in force.
    Applied,
    /// The host's agent was stopped: what is wanted waits for it.
    Inactive,
    /// Nobody waits for it any more, or the host is no more.
    Cancelled,
    /// A later revision has something else in its place.
    Superseded,
    /// Not known yet.
    Pending,
    /// The host did not take it, and stayed so.
    Failed,
}

/// The text is no outcome.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an outcome is one of applied, inactive, cancelled, superseded, pending, failed")]
pub struct HostOutcomeError;

impl HostOutcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Applied, Self::Inactive, Self::Cancelled, Self::Superseded, Self::Pending, Self::Failed];

    /// The word in columns, JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Inactive => "inactive",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }

    /// Whether it may still become another one while the operation is open.
    #[must_use]
    pub const fn may_change(self) -> bool {
        match self {
            // A stopped agent may start again, a host that failed may recover.
            Self::Inactive | Self::Pending | Self::Failed => true,
            Self::Applied | Self::Cancelled | Self::Superseded => false,
        }
    }
}

impl fmt::Display for HostOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for HostOutcome {
    type Err = HostOutcomeError;

    fn from_str(text: &str) -> Result<Self, HostOutcomeError> {
        Self::ALL.into_iter().find(|one| one.word() == text).ok_or(HostOutcomeError)
    }
}

/// A version of a component, and the revision of the intent that it was rendered from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rendered {
    /// The version.
    pub version: Version,
    /// The revision.
    pub revision: Revision,
}

/// What is known of one (host, component) that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetFacts {
    /// The version that is waited for. Its revision is that of the operation or a later one.
    pub target: Rendered,
    /// The first later revision that has something else in the place of what the operation changed; absent while there is none.
    pub overwritten_at: Option<Revision>,
    /// Whether the host is one still.
    pub is_enrolled: bool,
    /// The newest version; absent if there is none, as of a host that is no more.
    pub latest: Option<Rendered>,
    /// What it is proven to have in force.
    pub in_force: Option<Rendered>,
    /// Whether it did not take the newest version, and stayed so.
    pub has_failed: bool,
    /// Whether its agent was stopped, and stayed so.
    pub is_stopped: bool,
}

/// What became of one (host, component).
#[must_use]
pub fn outcome_of(facts: &TargetFacts) -> HostOutcome {
    let includes = |revision: Revision| facts.overwritten_at.is_none_or(|at| revision < at);
    if let Some(in_force) = facts.in_force
        && in_force.version >= facts.target.version
    {
        let revision = if in_force.version == facts.target.version { facts.target.revision } else { in_force.revision };
        return if includes(revision) { HostOutcome::Applied } else { HostOutcome::Superseded };
    }
    if !facts.is_enrolled {
        return HostOutcome::Cancelled;
    }
    // Nobody will be sent it any more, or ever was.
    let is_past = |latest: Rendered| latest.version > facts.target.version && !includes(latest.revision);
    if facts.latest.is_some_and(is_past) || !includes(facts.target.revision) {
        return HostOutcome::Superseded;
    }
    if facts.has_failed {
        return HostOutcome::Failed;
    }
    if facts.is_stopped { HostOutcome::Inactive } else { HostOutcome::Pending }
}

/// How many hosts an operation came to what on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutcomeCounts {
    /// All of them.
    pub total: u64,
    /// See [`HostOutcome::Applied`].
    pub applied: u64,
    /// See [`HostOutcome::Inactive`].
    pub inactive: u64,
    /// See [`HostOutcome::Cancelled`].
    pub cancelled: u64,
    /// See [`HostOutcome::Superseded`].
    pub superseded: u64,
    /// See [`HostOutcome::Pending`].
    pub pending: u64,
    /// See [`HostOutcome::Failed`].
    pub failed: u64,
}

impl OutcomeCounts {
    /// Counts one more.
    pub fn add(&mut self, outcome: HostOutcome) {
        self.total += 1;
        *match outcome {
            HostOutcome::Applied => &mut self.applied,
            HostOutcome::Inactive => &mut self.inactive,
            HostOutcome::Cancelled => &mut self.cancelled,
            HostOutcome::Superseded => &mut self.superseded,
            HostOutcome::Pending => &mut self.pending,
            HostOutcome::Failed => &mut self.failed,
        } += 1;
    }

    /// The end that an operation comes to by these; nothing while it goes on. Without a host there was nothing to do.
    #[must_use]
    pub const fn end(&self) -> Option<HostOutcome> {
        if self.failed > 0 {
            Some(HostOutcome::Failed)
        } else if self.pending > 0 {
            None
        } else if self.superseded > 0 {
            Some(HostOutcome::Superseded)
        } else if self.applied > 0 {
            Some(HostOutcome::Applied)
        } else if self.inactive > 0 || self.total == 0 {
            Some(HostOutcome::Inactive)
        } else {
            Some(HostOutcome::Cancelled)
        }
    }
}

impl FromIterator<HostOutcome> for OutcomeCounts {
    fn from_iter<T: IntoIterator<Item = HostOutcome>>(outcomes: T) -> Self {
        let mut counts = Self::default();
        outcomes.into_iter().for_each(|outcome| counts.add(outcome));
        counts
    }
}

#[cfg(test)]
mod tests;
