//! Rollouts: a change that goes through the fleet in stages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::HostCounts;

/// How a change is to go through the fleet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutRequest {
    /// 1 to 20 stages, in order: a selector of labels (`canary=true`), or a share of all hosts, those of earlier stages included (`10%`). A host is in the
    /// first that names it; those that none names make one more, the last. By hosts and labels as they are before the change.
    pub stages: Vec<String>,
    /// How many hosts may fail before it halts.
    #[serde(default)]
    pub max_failed: u32,
    /// How many hosts may be unknown before it halts.
    #[serde(default)]
    pub max_unknown: u32,
    /// How long a stage may take, in seconds; 1,800 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_timeout_s: Option<u32>,
}

/// One rollout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RolloutView {
    /// Its identity.
    pub id: String,
    /// How often something became of it: its `etag`, by which it is moved as it was read or not at all.
    #[serde(default)]
    pub version: u64,
    /// The operation that made the change.
    pub operation: String,
    /// The change.
    pub revision: u64,
    /// The revision that hosts of stages that are not opened are held at.
    pub held_revision: u64,
    /// `progressing`, `paused` or `halted`; or one of the ends `finished`, `aborted`.
    pub state: String,
    /// Whether nothing more will happen to it.
    pub finished: bool,
    /// Whether the token that asks may pause, resume or abort it, which takes one for all namespaces; never once it ended.
    #[serde(default)]
    pub may_move: bool,
    /// Why it is so.
    pub detail: String,
    /// How many of its stages are opened.
    pub stage: u32,
    /// Its stages, in order.
    pub stages: Vec<RolloutStageView>,
    /// How many hosts it holds back.
    pub held_hosts: u64,
    /// How many hosts may fail before it halts.
    pub max_failed: u32,
    /// How many hosts may be unknown before it halts.
    pub max_unknown: u32,
    /// How long a stage may take, in seconds.
    pub stage_timeout_s: u32,
    /// Who began it.
    pub actor: String,
    /// When it began, in RFC 3339 and UTC.
    pub created_at: String,
    /// When the stage that was opened last was, or was resumed.
    pub stage_began_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// The change that put back what it changed, if it was aborted.
    pub abort_revision: Option<u64>,
    /// The first later revision that has something else in the place of what it changed, or of a part of it, if one came while it was open;
    /// told where one rollout is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten_at: Option<u64>,
    /// Of an abort that was just made: its operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_operation: Option<String>,
    /// Of an abort that was just made: what a later change had changed again, and stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// One stage of a rollout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RolloutStageView {
    /// Whom it opens for: a selector, a share, or `rest`.
    pub stage: String,
    /// How many hosts those were when the rollout began.
    pub hosts: u32,
    /// Whether it is opened.
    pub opened: bool,
    /// How its hosts are now, of those that the token may see; absent in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<HostCounts>,
    /// The first of its hosts that are in the way of the next stage, as `namespace/name (why)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_the_way: Vec<String>,
}

/// What a rollout keeps from a change, or from a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeldView {
    /// Which rollout.
    pub rollout: String,
    /// The revision that is held.
    pub revision: u64,
    /// How many hosts it holds back; of a host: 1.
    pub hosts: u64,
    /// Its state.
    pub state: String,
}

impl HeldView {
    /// The same in words.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { rollout, revision, hosts, state } = self;
        let hosts = if *hosts == 1 { "1 host is".to_owned() } else { format!("{hosts} hosts are") };
        format!("{hosts} held at revision {revision} by {rollout} ({state})")
    }
}
