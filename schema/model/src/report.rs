//! What a host says of itself as a whole: every component, and of each every condition that there is.
//!
//! - Complete or refused: every component once, in their order, and of each the conditions of [`ConditionType::of`] once, in their order.
//!   What was not reached is there as `Unknown(not_reached)`.
//! - Its digest is of what is said, not of when it was seen: what is seen again and is the same has the same digest.
//! - Bounded in bytes, at its maker and at its reader alike.

use serde::{Deserialize, Serialize};

use crate::condition::{Basis, Condition, ConditionType, Holds, Reason, bounded};
use crate::desired::{Component, Stamp};
use crate::digest::Digest;
use crate::numbers::{UpdateSeq, Version};

/// How long an agent leaves a host unsaid that does not change, in milliseconds.
pub const REPORT_INTERVAL_MS: u64 = 300_000;
/// How old a report may become in an open session before nothing is known by it, in milliseconds: two in a row may be lost.
pub const REPORT_LATE_MS: u64 = 3 * REPORT_INTERVAL_MS;
/// The most conditions of a report.
pub const REPORT_CONDITIONS_MAX: usize = 32;
/// The most bytes of a condition's message in one.
pub const REPORT_TEXT_BYTES_MAX: usize = 256;

const CONTEXT: &str = "holdfast.dev 2026-11 host status v1";

const _: () = {
    let (mut conditions, mut nth) = (0, 0);
    while nth < Component::ALL.len() {
        conditions += ConditionType::of(Component::ALL[nth]).len();
        nth += 1;
    }
    assert!(conditions <= REPORT_CONDITIONS_MAX);
};

/// One condition as a report has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatedCondition {
    /// What is said.
    #[serde(flatten)]
    pub condition: Condition,
    /// How it is known.
    pub basis: Basis,
    /// When it was seen, in milliseconds since 1970 by the host's own clock: for people, and nothing is decided by it.
    pub observed_at_ms: u64,
}

impl StatedCondition {
    /// What it proves: what may have ended by itself and was not seen is not known.
    #[must_use]
    pub const fn proves(&self) -> Holds {
        match (self.basis, self.condition.status) {
            (Basis::Inferred, _) if self.condition.kind.can_decay() => Holds::Unknown,
            (Basis::Observed | Basis::Inferred, status) => status,
        }
    }
}

/// One component as a report has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentReport {
    /// Which.
    pub component: Component,
    /// What is in force, if anything is.
    pub applied: Option<Stamp>,
    /// Every condition of it.
    pub conditions: Vec<StatedCondition>,
}

impl ComponentReport {
    /// A component of which nothing was reached yet.
    #[must_use]
    pub fn unreached(component: Component, applied: Option<Stamp>, observed_at_ms: u64) -> Self {
        let version = applied.map(|stamp| stamp.version);
        let one = |kind: &ConditionType| unreached(*kind, version, observed_at_ms);
        Self { component, applied, conditions: ConditionType::of(component).iter().map(one).collect() }
    }
}

/// A condition that was not reached.
#[must_use]
pub fn unreached(kind: ConditionType, observed_version: Option<Version>, observed_at_ms: u64) -> StatedCondition {
    let (status, reason, message) = (Holds::Unknown, Reason::NotReached, String::new());
    let condition = Condition { kind, status, reason, message, observed_version };
    StatedCondition { condition, basis: Basis::Observed, observed_at_ms }
}

/// A host as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// The last update of its session that the host had answered before: this is newer than those answers.
    pub answered: UpdateSeq,
    /// Every component.
    pub components: Vec<ComponentReport>,
}

/// What is wrong with a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReportError {
    /// It has not every component once, in their order.
    #[error("a report has not every component once, in their order")]
    Components,
    /// A component has not each of its conditions once, in their order.
    #[error("the report of {component} has not each of its conditions once, in their order")]
    Conditions {
        /// Which.
        component: Component,
    },
    /// A message is too long, or has control characters.
    #[error("a message in the report of {component} is too long or has control characters")]
    Message {
        /// Of which component.
        component: Component,
    },
}

/// Whether bytes say when conditions were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    /// They do.
    With,
    /// They do not: what is the same has the same bytes.
    Without,
}

impl HostReport {
    /// Holds a report against what a complete one is.
    ///
    /// # Errors
    /// [`ReportError`]: the first thing that is wrong.
    pub fn check(&self) -> Result<(), ReportError> {
        if !self.components.iter().map(|one| one.component).eq(Component::ALL) {
            return Err(ReportError::Components);
        }
        for ComponentReport { component, conditions, .. } in &self.components {
            let component = *component;
            if !conditions.iter().map(|one| &one.condition.kind).eq(ConditionType::of(component)) {
                return Err(ReportError::Conditions { component });
            }
            let is_wrong = |text: &str| text.len() > REPORT_TEXT_BYTES_MAX || text.contains(char::is_control);
            if conditions.iter().any(|one| is_wrong(&one.condition.message)) {
                return Err(ReportError::Message { component });
            }
        }
        Ok(())
    }

    /// The same with messages that fit.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for one in self.components.iter_mut().flat_map(|component| &mut component.conditions) {
            one.condition.message = bounded(&one.condition.message, REPORT_TEXT_BYTES_MAX);
        }
        self
    }

    /// The name of what is said.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        self.put_bytes(&mut bytes, Times::Without);
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&bytes);
        Digest::from_bytes(*hasher.finalize().as_bytes())
    }

    /// What is said of one component.
    #[must_use]
    pub fn of(&self, component: Component) -> Option<&ComponentReport> {
        self.components.iter().find(|one| one.component == component)
    }

    /// What a host says on which all is well with what it holds, and with nothing else.
    #[must_use]
    pub fn of_health(held: &[(Component, Stamp)], answered: UpdateSeq, observed_at_ms: u64) -> Self {
        let one = |component: Component| {
            let applied = held.iter().find(|(one, _)| *one == component).map(|(_, stamp)| *stamp);
            let mut report = ComponentReport::unreached(component, applied, observed_at_ms);
            if applied.is_some() {
                for one in &mut report.conditions {
                    (one.condition.status, one.condition.reason) = (Holds::True, Reason::Done);
                }
            }
            report
        };
        Self { answered, components: Component::ALL.map(one).into() }
    }

    /// Fixed width, but for lists whose lengths stand before them.
    pub(crate) fn put_bytes(&self, bytes: &mut Vec<u8>, times: Times) {
        for ComponentReport { component, applied, conditions } in &self.components {
            bytes.push(component.number());
            // "Nothing in force" is version 0, which no version is, with a digest of zeros.
            bytes.extend_from_slice(&applied.map_or(0, |stamp| stamp.version.raw()).to_be_bytes());
            bytes.extend_from_slice(&applied.map_or([0; 32], |stamp| *stamp.digest.as_bytes()));
            bytes.extend_from_slice(&u64::try_from(conditions.len()).unwrap_or(u64::MAX).to_be_bytes());
            for StatedCondition { condition, basis, observed_at_ms } in conditions {
                let Condition { kind, status, reason, observed_version, message: _ } = condition;
                bytes.extend_from_slice(&[kind.number(), status.number(), reason.number(), basis.number()]);
                bytes.extend_from_slice(&observed_version.map_or(0, Version::raw).to_be_bytes());
                if times == Times::With {
                    bytes.extend_from_slice(&observed_at_ms.to_be_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
