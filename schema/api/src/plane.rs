//! The control plane as the operators' door knows it: what works, what does not, and what to do then.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::token::ApiTokenView;

/// How a thing that was looked at is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// Well.
    Ok,
    /// Under way, overdue, or waiting for another part that is in trouble: it may pass, so look again.
    Watch,
    /// In trouble: it does not pass by itself.
    Trouble,
}

/// One thing that the control plane needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlaneCheck {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: CheckState,
    /// Whether it is well.
    pub ok: bool,
    /// What was seen; absent for a token that does not reach all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do; absent while it is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The control plane, and who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlaneView {
    /// The version of the gateway that answers.
    pub version: String,
    /// Its clock, in RFC 3339 and UTC.
    pub now: String,
    /// The token that was shown.
    pub token: ApiTokenView,
    /// What was looked at within the last second, in the order in which it depends on each other.
    pub checks: Vec<PlaneCheck>,
}
