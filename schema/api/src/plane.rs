//! The control plane as the operators' door knows it: what works, what does not, and what to do then.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::token::ApiTokenView;

/// One thing that the control plane needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlaneCheck {
    /// Its name.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
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
    /// What was looked at, in the order in which it depends on each other.
    pub checks: Vec<PlaneCheck>,
}
