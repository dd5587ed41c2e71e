//! The authority: which life of the database this is, and whom it would take back.

use holdfast_model::desired::Component;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::StampView;

/// What a host waits for that is held back by the authority's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// `holdfast authority bump`: it holds what this database never rendered, and nobody said that it was restored.
    Bump,
    /// `holdfast authority confirm`: it would go back.
    Confirm,
    /// A session: it was not heard in this life of the authority.
    Session,
}

/// The authority and its hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    /// The lineage, as `au_…`.
    pub id: String,
    /// Which of its lives.
    pub epoch: u64,
    /// Since when, in RFC 3339 and UTC.
    pub since: String,
    /// Who began this life, and why; absent of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<RaisedView>,
    /// Whether somebody has to confirm that hosts go back.
    pub waits_for_confirmation: bool,
    /// Hosts that are between two lives, or ahead of this one.
    pub hosts: LifeView,
    /// What they hold, at most 500 of it, by name.
    pub claims: Vec<ClaimView>,
}

/// Who began a life of the authority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RaisedView {
    /// Who, as events name them.
    pub by: String,
    /// Why, in their words.
    pub because: String,
}

/// Hosts by where they are between two lives; all others are in this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LifeView {
    /// Hold what this database never rendered, and nobody said that it was restored.
    pub ahead: u64,
    /// Would go back, and keep what they hold until that is confirmed.
    pub going_back: u64,
    /// Not heard in this life: whether they would go back is not known.
    pub unheard: u64,
    /// Heard or confirmed, and about to follow.
    pub following: u64,
}

/// What one host holds of one component, and what is desired instead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimView {
    /// The host's id.
    pub host: String,
    /// `namespace/name`.
    pub name: String,
    /// Which part.
    #[schema(value_type = String, example = "policy")]
    pub component: Component,
    /// What the host says that it holds.
    pub held: StampView,
    /// What is desired of it.
    pub latest: StampView,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// Why what is desired of a component does not reach its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeldBackView {
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// What the host says that it holds, where it was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<StampView>,
}

/// The database was restored or promoted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BumpAuthority {
    /// Why, for people: at most 1,024 bytes.
    pub because: String,
    /// An epoch that hosts may know and this database and its audit log do not: the new one is above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
}

/// Hosts may go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRollback {
    /// How many do: refused if it is another number.
    pub expect: u64,
}

/// What was confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfirmedRollback {
    /// How many hosts go back.
    pub hosts: u64,
}
