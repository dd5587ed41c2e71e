//! Why a connection may be opened or may not.

use holdfast_model::policy::Mode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most pairs of addresses of two ends that an answer lists. All of them are judged.
pub const PAIRS_LISTED_MAX: usize = 64;
/// The most pairs that one question is for: more are refused.
pub const PAIRS_MAX: usize = 65_536;

/// Who is at one end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndView {
    /// `host`, `endpoint` or `outside`.
    pub kind: String,
    /// `namespace/name` of a host or endpoint; the address of somebody outside.
    pub name: String,
    /// The identity of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How far a host enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "enforced")]
    pub mode: Option<Mode>,
    /// The revision that a rollout holds a host at: its rules are those of that one. Absent where they are those of the answer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_revision: Option<u64>,
    /// What keeps a host from being proven to hold its policy, in words: its kernel may do something else than the answer says. Absent where it is
    /// proven, where a rollout holds it, and of the past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
}

/// What the rules of one end say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// `not-governed`, `open`, `allowed`, `denied` or `isolated`.
    pub decision: String,
    /// Whether that lets the packet through.
    pub allows: bool,
    /// The policy whose rule decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The rule in it, as `ingress[2]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The policies that isolate this end, where no rule allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolated_by: Vec<String>,
    /// How far this end enforces; absent if there is no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "enforced")]
    pub mode: Option<Mode>,
    /// All of it in words.
    pub text: String,
}

/// The verdict on one pair of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// The address that opens.
    pub from: String,
    /// The address toward which.
    pub to: String,
    /// Whether the packet gets through, in the modes that the ends are in.
    pub allowed: bool,
    /// Whether it would if both enforced.
    pub allowed_if_enforced: bool,
    /// What the source's rules say.
    pub egress: DecisionView,
    /// What the destination's rules say.
    pub ingress: DecisionView,
}

/// The verdict on a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainView {
    /// The revision whose intent was judged.
    pub revision: u64,
    /// Who opens.
    pub from: EndView,
    /// Toward whom.
    pub to: EndView,
    /// With what, as `443/tcp`.
    pub service: String,
    /// `allowed`, `denied`, or `mixed` if it depends on the addresses.
    pub verdict: String,
    /// How many pairs of addresses of one family there are, all of which were judged.
    #[serde(default)]
    pub pairs: u64,
    /// How many of them are allowed.
    #[serde(default)]
    pub pairs_allowed: u64,
    /// The pairs; of more than 64 the first of those that are denied, then of those that are allowed.
    pub flows: Vec<FlowView>,
}
