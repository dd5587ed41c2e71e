//! Operations: the durable record of accepted changes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rollout::HeldView;
use crate::status::StampView;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationView {
    /// Its identity.
    pub id: String,
    /// What it was asked to do.
    pub verb: String,
    /// Who asked.
    pub actor: String,
    /// The revision that it made.
    pub revision: u64,
    /// How many objects it put into force or took out.
    pub changes: u64,
    /// `accepted`, or one of the ends `applied`, `inactive`, `failed`, `superseded`, `cancelled`.
    pub state: String,
    /// Whether nothing more will happen to it.
    pub finished: bool,
    /// Why it ended so.
    pub detail: String,
    /// When it was accepted, in RFC 3339 and UTC.
    pub created_at: String,
    /// When it ended, in RFC 3339 and UTC.
    pub finished_at: Option<String>,
    /// Whether every host is rendered with it: which hosts it waits for is known, and stays.
    #[serde(default)]
    pub rendered: bool,
    /// What became of it on its hosts, of those that the token may see; absent in a list, and before it is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<OperationHosts>,
    /// What a rollout holds back while this is not rendered for every host; absent in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
}

/// On how many hosts an operation came to what. The first six outcomes add up to `total`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationHosts {
    /// All of its hosts.
    pub total: u64,
    /// Proven to have had it in force, or a later version that includes it.
    pub applied: u64,
    /// The agent was stopped.
    pub inactive: u64,
    /// Did not take it, and stayed so.
    pub failed: u64,
    /// A later revision has something else in its place.
    pub superseded: u64,
    /// Nobody waits for it any more, or the host is no more.
    pub cancelled: u64,
    /// Not known yet; of an operation that ended, not known by then.
    pub pending: u64,
    /// Of the pending: those without an open session.
    pub offline: u64,
    /// Of the pending: those whose session is open, and in which nothing was heard for a while.
    pub unknown: u64,
    /// Of the applied: those of which a condition that does not block is false now.
    pub degraded: u64,
}

/// One host of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationHostView {
    /// Its identity.
    pub host: String,
    /// `namespace/name`; absent if it is a host no more.
    pub name: Option<String>,
    /// `applied`, `inactive`, `failed`, `superseded`, `cancelled` or `pending`.
    pub outcome: String,
    /// Of a pending one: `offline` without an open session, `unknown` if nothing was heard for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<String>,
    /// What it waits for, or waited for.
    pub components: Vec<OperationComponentView>,
}

/// One component of a host of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationComponentView {
    /// Which.
    pub component: String,
    /// The exact version that is waited for.
    pub target: StampView,
    /// What became of it, in the same words.
    pub outcome: String,
}
