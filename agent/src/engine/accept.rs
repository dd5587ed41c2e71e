//! Whether an update may be tried at all, and what is written down of it.

use std::error::Error;

use holdfast_model::artifact;
use holdfast_model::condition::{ConditionType, Holds, Reason};
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{self, Delta};
use holdfast_runtime::Chain;
use holdfast_wire::decode_changes;

use super::{Content, Entry, RecordContent, Update};
use crate::plan::Difference;

/// Why an update is not in force, and how far it got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// The step that failed.
    at: ConditionType,
    /// What is known of that step.
    status: Holds,
    pub(super) reason: Reason,
    pub(super) detail: String,
}

impl Refusal {
    fn unacceptable(reason: Reason, detail: impl Into<String>) -> Self {
        Self { at: ConditionType::SnapshotAccepted, status: Holds::False, reason, detail: detail.into() }
    }

    /// It was tried once, and taken back.
    pub(super) fn cut_off() -> Self {
        Self::unacceptable(Reason::SelfIsolation, "it cut this host off from its gateways once, and is not tried again")
    }

    /// Accepted, and then something beside the kernel failed.
    pub(super) fn accepted(reason: Reason, cause: &dyn Error) -> Self {
        Self { at: ConditionType::Applied, status: Holds::False, reason, detail: chain(cause) }
    }

    pub(super) fn refused_by_kernel(cause: &dyn Error) -> Self {
        Self::accepted(Reason::KernelRefused, cause)
    }

    pub(super) fn differs(difference: &Difference) -> Self {
        Self {
            at: ConditionType::Verified,
            status: Holds::False,
            reason: Reason::ReadBackDiffers,
            detail: difference.to_string(),
        }
    }

    pub(super) fn unreadable(cause: &dyn Error) -> Self {
        let detail = chain(cause);
        Self { at: ConditionType::Applied, status: Holds::Unknown, reason: Reason::ReadBackFailed, detail }
    }

    /// What is known of a step, and why.
    pub(super) fn of(&self, step: ConditionType) -> (Holds, Reason) {
        match step.cmp(&self.at) {
            std::cmp::Ordering::Less => (Holds::True, Reason::Done),
            std::cmp::Ordering::Equal => (self.status, self.reason),
            std::cmp::Ordering::Greater => (Holds::Unknown, Reason::NotReached),
        }
    }
}

/// An error with its causes, in one line.
fn chain(cause: &dyn Error) -> String {
    Chain(cause).to_string()
}

/// The policy that an update leads to, after every check.
pub(super) fn accept(held: Option<&Entry>, update: &Update) -> Result<Body, Refusal> {
    if let Some(held) = held {
        check_order(held, update)?;
    }
    let body = match &update.content {
        Content::Whole(bytes) => {
            artifact::decode(bytes).map_err(|error| Refusal::unacceptable(Reason::Malformed, chain(&error)))?
        }
        Content::Same => match held {
            Some(held) => held.body.clone(),
            None => return Err(Refusal::unacceptable(Reason::WrongBase, "nothing is held that could stay")),
        },
        Content::Changes { base, changes } => {
            let held = held.filter(|held| held.stamp == *base);
            let held = held.ok_or_else(|| Refusal::unacceptable(Reason::WrongBase, "the base is not the one held"))?;
            let changes =
                decode_changes(changes).map_err(|error| Refusal::unacceptable(Reason::Malformed, chain(&error)))?;
            // The same content under another version is told as such; a delta that says nothing says that its maker is wrong.
            if changes.is_empty() {
                return Err(Refusal::unacceptable(Reason::Malformed, "the delta has no change"));
            }
            let delta = Delta { base: base.digest, target: update.stamp.digest, changes };
            delta::apply(&held.body, &delta).map_err(|error| Refusal::unacceptable(reason_of(&error), chain(&error)))?
        }
    };
    if body.digest() != update.stamp.digest {
        return Err(Refusal::unacceptable(Reason::WrongDigest, "the content does not have the digest that names it"));
    }
    Ok(body)
}

fn reason_of(error: &delta::DeltaError) -> Reason {
    match error {
        delta::DeltaError::WrongBase { .. } => Reason::WrongBase,
        delta::DeltaError::WrongTarget { .. } => Reason::WrongDigest,
        delta::DeltaError::NoRule { .. }
        | delta::DeltaError::NoSet { .. }
        | delta::DeltaError::Edit { .. }
        | delta::DeltaError::Body(_) => Reason::Malformed,
    }
}

/// Under one authority nothing goes back, and a version means one content.
fn check_order(held: &Entry, update: &Update) -> Result<(), Refusal> {
    let (Some(ours), Some(theirs)) = (held.origin, update.origin) else { return Ok(()) };
    let (ours, theirs) = (ours.authority, theirs.authority);
    if ours.id != theirs.id {
        return Err(Refusal::unacceptable(Reason::WrongHost, "the update is of another authority"));
    }
    let backward = |detail| Err(Refusal::unacceptable(Reason::Backward, detail));
    if theirs.epoch < ours.epoch {
        return backward("the update is of an earlier epoch of the authority");
    }
    if theirs.epoch > ours.epoch {
        return Ok(());
    }
    if update.stamp.version < held.stamp.version {
        return backward("the version goes back");
    }
    if update.stamp.version == held.stamp.version && update.stamp.digest != held.stamp.digest {
        let detail = "the version is known with other content";
        return Err(Refusal::unacceptable(Reason::SameVersionOtherContent, detail));
    }
    Ok(())
}

/// What the disk keeps of an accepted update.
pub(super) fn record(update: &Update) -> RecordContent {
    match &update.content {
        Content::Whole(bytes) => RecordContent::Whole(bytes.clone()),
        Content::Changes { changes, .. } => RecordContent::Changes(changes.clone()),
        Content::Same => RecordContent::Same,
    }
}
