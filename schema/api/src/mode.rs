//! Moving many hosts from one mode to another.

use holdfast_model::policy::Mode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::brake::Acknowledgement;
use crate::rollout::RolloutRequest;

/// Hosts to be put into a mode: all that the selector matches at the revision on which this is stored, or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// Labels: `app=web`, `app!=web`, `app` (has it), `!app` (has it not), several with commas; `all` for every host.
    pub selector: String,
    /// Only hosts of this namespace; of all that the token may see if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Into which.
    #[schema(value_type = String, example = "simulation")]
    pub mode: Mode,
    /// How many hosts that are; refused if the selector matches another number.
    pub expect: u64,
    /// The last revision that the one who asks has seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    /// That it is meant to take as much away as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledgement>,
    /// How it goes through the fleet, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutRequest>,
}
