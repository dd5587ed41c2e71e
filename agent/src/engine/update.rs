//! What goes into the engine and what comes out.

use std::cmp::Ordering;

use holdfast_model::condition::{Condition, ConditionType, DETAIL_BYTES_MAX, Holds, Reason, bounded};
use holdfast_model::desired::Stamp;
use holdfast_model::statement::OutcomeKind;

use super::Origin;
use super::accept::Refusal;

/// A policy to put into force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Who rendered it; absent for one from a local file.
    pub origin: Option<Origin>,
    /// Which one it is.
    pub stamp: Stamp,
    /// Itself.
    pub content: Content,
}

/// How an update carries its policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Its flat bytes.
    Whole(Vec<u8>),
    /// Changes, as `holdfast_wire` encodes them.
    Changes {
        /// Of what.
        base: Stamp,
        /// Which.
        changes: Vec<u8>,
    },
    /// It is the one held; only the version rises.
    Same,
}

/// How an update ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// In force or not.
    pub kind: OutcomeKind,
    /// What the update named.
    pub wanted: Stamp,
    /// What is in force now.
    pub applied: Option<Stamp>,
    /// What was seen on the way.
    pub conditions: Vec<Condition>,
}

impl Outcome {
    pub(super) fn new(update: &Update, applied: Option<Stamp>, refusal: Option<Refusal>) -> Self {
        let version = update.stamp.version;
        let condition = |kind, status, reason, message: &str| Condition {
            kind,
            status,
            reason,
            message: bounded(message, DETAIL_BYTES_MAX),
            observed_version: Some(version),
        };
        let conditions = match &refusal {
            None => ConditionType::OF_ATTEMPT.map(|kind| condition(kind, Holds::True, Reason::Done, "")).into(),
            Some(refusal) => ConditionType::OF_ATTEMPT
                .map(|kind| {
                    let (status, reason) = refusal.of(kind);
                    let message = if reason == refusal.reason { refusal.detail.as_str() } else { "" };
                    condition(kind, status, reason, message)
                })
                .into(),
        };
        let kind = if refusal.is_none() { OutcomeKind::Applied } else { OutcomeKind::Failed };
        Self { kind, wanted: update.stamp, applied, conditions }
    }

    /// Accepted and kept, and not in force: a local policy is.
    pub(super) fn retained(update: &Update) -> Self {
        let condition = |kind: ConditionType| {
            let (status, reason) = match kind.cmp(&ConditionType::Applied) {
                Ordering::Less => (Holds::True, Reason::Done),
                Ordering::Equal => (Holds::False, Reason::LocalOverride),
                Ordering::Greater => (Holds::Unknown, Reason::NotReached),
            };
            let told = status == Holds::False;
            let message = if told { "a local policy of this host is in force" } else { "" }.to_owned();
            Condition { kind, status, reason, message, observed_version: Some(update.stamp.version) }
        };
        let conditions = ConditionType::OF_ATTEMPT.map(condition).into();
        Self { kind: OutcomeKind::RetainedLocalOverride, wanted: update.stamp, applied: None, conditions }
    }

    /// The text of the condition that failed; empty if none did.
    #[must_use]
    pub fn detail(&self) -> &str {
        let failed = self.conditions.iter().find(|condition| condition.status != Holds::True);
        failed.map_or("", |condition| condition.message.as_str())
    }

    /// The reason of the condition that failed.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let failed = self.conditions.iter().find(|condition| condition.status != Holds::True);
        failed.map_or(Reason::Done, |condition| condition.reason)
    }
}
