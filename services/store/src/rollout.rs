//! Rollouts: a change that goes through the fleet in stages.
//!
//! - At most one is open in the whole plane. Who is in which stage is written when it begins and never changes; how many stages are opened is one number
//!   of its row. So the revision that a host is held at is stored, and one write moves a whole stage.
//! - It begins in the transaction of its change. Every later step is written on the row as it was seen, or not at all: of two that step, one does.
//! - Whoever aborts it puts back what it changed in the same transaction that lets the others go: none of them ever sees the change.

mod abort;
mod read;
mod start;
mod step;

pub use abort::{AbortAnswer, Aborted, KeptAbort};
use holdfast_events::HaltReason;
use holdfast_model::ids::{OperationId, RolloutId};
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use holdfast_model::rollout::stage::StageSpec;
use serde::{Deserialize, Serialize};
pub use start::{Obstacle, RolloutStart};
pub(crate) use start::{insert, obstacle};
pub use step::{Moved, RolloutStep};
use time::OffsetDateTime;

/// A rollout as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollout {
    /// Its identity.
    pub id: RolloutId,
    /// The operation that made the change.
    pub operation: OperationId,
    /// The change.
    pub revision: Revision,
    /// The revision that hosts of stages that are not opened are held at.
    pub held_revision: Revision,
    /// Its stages, in order.
    pub stages: Vec<StoredStage>,
    /// How many of them are opened.
    pub stage: u32,
    /// How far it is.
    pub state: RolloutState,
    /// Why, for people.
    pub detail: String,
    /// How many hosts it holds back: of those that no stage was opened for, and that are hosts still.
    pub held_hosts: u64,
    /// Why it halted, while it is.
    pub halt_reason: Option<HaltReason>,
    /// The last stage that an operator let pass though no host of it was left; zero if there is none.
    pub excused_stage: u32,
    /// How many hosts may fail.
    pub max_failed: u32,
    /// How many hosts may be unknown.
    pub max_unknown: u32,
    /// How long a stage may take, in seconds.
    pub stage_timeout_s: u32,
    /// Who began it.
    pub actor: holdfast_events::Actor,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When the stage that was opened last was, or was resumed.
    pub stage_began_at: OffsetDateTime,
    /// How long ago that is, by the database's clock and without its last absence.
    pub stage_age_ms: u64,
    /// When it ended, if it did.
    pub finished_at: Option<OffsetDateTime>,
    /// The change that put back what it changed, if one did.
    pub abort_revision: Option<Revision>,
    /// The number of its row.
    pub version: u64,
    /// Up to which revision every host is rendered that it does not hold back, with these stages opened; absent while nobody said so.
    pub let_go_revision: Option<Revision>,
    /// Whether the renderer that leads, or led last, knows rollouts: one that does not holds nobody back.
    pub is_known_to_renderer: bool,
}

impl Rollout {
    /// Whether an operator let its last opened stage pass without a host that could prove it.
    #[must_use]
    pub const fn is_excused(&self) -> bool {
        self.excused_stage == self.stage
    }

    /// Whether every host of the opened stages is rendered with the change.
    #[must_use]
    pub fn is_rendered(&self) -> bool {
        self.let_go_revision.is_some_and(|revision| revision >= self.revision)
    }
}

/// One stage as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredStage {
    /// Whom it opens for.
    pub stage: StageSpec,
    /// How many hosts those were when it began.
    pub hosts: u32,
}
