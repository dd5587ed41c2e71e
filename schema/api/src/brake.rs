//! Changes that take much away: how they are told, and how somebody says that it is meant.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many hosts are named.
pub const HOSTS_NAMED_MAX: usize = 5;

/// What somebody says of a change that the brake holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgement {
    /// The digest that the refusal or the plan named: of this very change on this very revision, and of no other.
    pub digest: String,
    /// Why, for the audit log.
    #[serde(default)]
    pub because: String,
}

/// A change that takes so much away that somebody has to say that it is meant.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BrakeView {
    /// The digest to be acknowledged.
    pub acknowledge: String,
    /// How many hosts lose more than the share of their rules; 0 if they are no more than the limit.
    pub hosts_losing: u64,
    /// How many hosts have rules now, if none has any afterwards.
    pub hosts_emptied: u64,
    /// How many hosts enforce no longer; 0 if they are no more than the limit and their mode is said.
    pub hosts_leaving_enforced: u64,
    /// Of how many of those the change does not say in which mode they are to be.
    pub hosts_without_mode: u64,
    /// More than this share is much.
    pub share_percent: u64,
    /// More hosts than this are many.
    pub hosts_max: u64,
    /// The first of the hosts that the token may see, as `namespace/name`.
    pub hosts: Vec<String>,
    /// All of it in words.
    pub text: String,
}
