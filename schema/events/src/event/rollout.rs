//! Payloads about changes that go through the fleet in stages.

use holdfast_model::ids::{HostId, OperationId, RolloutId};
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::stage::StageSpec;

use super::payloads;
use crate::codes::HaltReason;
use crate::secret_free::entry;
use crate::text::Detail;

/// The most hosts in one event about who is in a stage: one is at most 42 bytes, so 1,000 are 42,000 of the 61,440 bytes that a payload may have.
pub const STAGED_HOSTS_MAX: usize = 1_000;

/// The most hosts that an event about a halt names: the first of them by their ids.
pub const HALTED_HOSTS_MAX: usize = 100;

payloads! {
    /// One stage of a rollout.
    RolloutStage {
        /// Whom it opens for.
        stage: StageSpec,
        /// How many hosts those are.
        hosts: u32,
    }

    /// A change began to go through the fleet: its first stage is opened, all other hosts are held at the revision before.
    RolloutStarted {
        /// Its identity.
        rollout: RolloutId,
        /// The operation that made the change.
        operation: OperationId,
        /// The change.
        revision: Revision,
        /// The revision that hosts are held at.
        held_revision: Revision,
        /// Its stages, in order.
        stages: Vec<RolloutStage>,
        /// How many hosts may fail.
        max_failed: u32,
        /// How many hosts may be unknown.
        max_unknown: u32,
        /// How long a stage may take, in seconds.
        stage_timeout_s: u32,
    }

    /// Who is in a stage, settled when the rollout began. As many of these as it needs, at most [`STAGED_HOSTS_MAX`] hosts in each.
    RolloutStaged {
        /// Which rollout.
        rollout: RolloutId,
        /// Which of its stages, from 1.
        stage: u32,
        /// The hosts.
        hosts: Vec<HostId>,
    }

    /// A stage opened: its hosts are no longer held.
    RolloutStageOpened {
        /// Which rollout.
        rollout: RolloutId,
        /// Which of its stages, from 1.
        stage: u32,
        /// How many hosts are no longer held by that.
        hosts: u32,
    }

    /// A rollout opens no further stage, because of what is seen of its hosts.
    RolloutHalted {
        /// Which rollout.
        rollout: RolloutId,
        /// How many of its stages are opened.
        stage: u32,
        /// Why.
        reason: HaltReason,
        /// How many hosts it is about.
        count: u32,
        /// The first [`HALTED_HOSTS_MAX`] of them.
        hosts: Vec<HostId>,
        /// Why, for people.
        detail: Detail,
    }

    /// An operator wants no further stage to open.
    RolloutPaused {
        /// Which rollout.
        rollout: RolloutId,
        /// How many of its stages are opened.
        stage: u32,
    }

    /// An operator wants it to go on; what is seen counts anew.
    RolloutResumed {
        /// Which rollout.
        rollout: RolloutId,
        /// How many of its stages are opened.
        stage: u32,
    }

    /// What a rollout changed is as it was before, and no host is held.
    RolloutAborted {
        /// Which rollout.
        rollout: RolloutId,
        /// The change that did it; absent if later changes had replaced all of what it changed.
        revision: Option<Revision>,
        /// How many objects stay as they are, because a later change changed them again.
        left: u32,
        /// What became of it, for people.
        detail: Detail,
    }

    /// A rollout came to the end of its last stage: its hosts were proven to have what it changed, but for those that might fail or be unknown.
    RolloutFinished {
        /// Which rollout.
        rollout: RolloutId,
        /// How many hosts were proven.
        hosts: u32,
        /// Of the others, and of what took the place of the change meanwhile, for people; absent if there is neither.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Detail>,
    }
}

entry!(RolloutStage);
