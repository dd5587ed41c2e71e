//! Concrete policy in words: rules, peers, and what differs between two versions.

use holdfast_model::policy::{Action, Direction, Mode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::brake::BrakeView;
use crate::object::ObjectChange;

/// The most address ranges of one set that are listed; the counts tell of all.
pub const RANGES_LISTED_MAX: usize = 1_000;

/// Address ranges, of which a bounded number is listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Ranges {
    /// How many there are.
    pub count: u64,
    /// The first of them, as `192.0.2.7` or `192.0.2.0-192.0.2.255`.
    pub ranges: Vec<String>,
    /// The hosts and endpoints that the token may see and of whose addresses listed ranges wholly consist, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The listed ranges that hold any other address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unnamed: Vec<String>,
}

/// One concrete rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    /// Its name across versions.
    pub key: String,
    /// Toward the host or from it.
    #[schema(value_type = String, example = "ingress")]
    pub direction: Direction,
    /// Lower orders decide first.
    pub order: i32,
    /// `allow` or `deny`.
    #[schema(value_type = String, example = "allow")]
    pub action: Action,
    /// Protocol and ports, as `tcp 80,443`.
    pub service: String,
    /// The other end; absent if it is anybody.
    pub peers: Option<Ranges>,
    /// Which of the host's own addresses; absent if all.
    pub local: Option<Ranges>,
    /// Whether a match is logged.
    pub log: bool,
}

/// A change of mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModeChange {
    /// Before.
    #[schema(value_type = String, example = "simulation")]
    pub from: Mode,
    /// After.
    #[schema(value_type = String, example = "enforced")]
    pub to: Mode,
}

/// A direction that becomes isolated or open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IsolationChange {
    /// Which direction.
    #[schema(value_type = String, example = "ingress")]
    pub direction: Direction,
    /// Whether what no rule allows is denied from now on.
    pub isolated: bool,
}

/// Rules whose other end, or own addresses, become others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PeersChange {
    /// The rules, each as `ingress allow tcp 443`.
    pub rules: Vec<String>,
    /// Ranges that come.
    pub added: Ranges,
    /// Ranges that go.
    pub removed: Ranges,
}

/// What leads from one policy to another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyChanges {
    /// The mode, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeChange>,
    /// Directions that become isolated or open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolation: Vec<IsolationChange>,
    /// Rules that come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules_added: Vec<RuleView>,
    /// Rules that go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules_removed: Vec<RuleView>,
    /// Peers that change in rules that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeersChange>,
}

impl PolicyChanges {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What one host holds against what it is to hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    /// The host.
    pub host: String,
    /// Its namespace and name.
    pub name: String,
    /// The version that it last said it holds; absent if it never did.
    pub applied_version: Option<u64>,
    /// The version that it is to hold.
    pub latest_version: u64,
    /// From the first to the second; from nothing at all if it never held one.
    pub changes: PolicyChanges,
    /// When the host said what it holds, in RFC 3339 and UTC; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Whether it has an open session now: without one, what it holds may be something else by now.
    #[serde(default)]
    pub online: bool,
}

/// The policy that one host is to hold, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostPolicyView {
    /// The host.
    pub host: String,
    /// Its namespace and name.
    pub name: String,
    /// The revision whose intent was read.
    pub revision: u64,
    /// The policies that govern it, as `Kind/namespace/name`.
    pub policies: Vec<String>,
    /// How far it is enforced.
    #[schema(value_type = String, example = "enforced")]
    pub mode: Mode,
    /// Whether what no rule allows toward the host is denied.
    pub ingress_isolated: bool,
    /// Whether what no rule allows from the host is denied.
    pub egress_isolated: bool,
    /// Its rules, those toward the host first, in the order in which they decide.
    pub rules: Vec<RuleView>,
    /// How many bytes it has on its way to the host.
    #[serde(default)]
    pub body_bytes: u64,
    /// How many may travel: a policy with more stays where it is, and the host keeps what it has.
    #[serde(default = "no_limit")]
    pub body_bytes_max: u64,
}

impl HostPolicyView {
    /// Whether it has more bytes than may travel, so that no gateway sends it.
    #[must_use]
    pub const fn is_too_large(&self) -> bool {
        self.body_bytes > self.body_bytes_max
    }
}

/// What a door says that does not know of a limit.
const fn no_limit() -> u64 {
    u64::MAX
}

/// What a change would do to one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedHost {
    /// The host.
    pub host: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What changes there.
    pub changes: PolicyChanges,
}

/// The most hosts of one stage that a plan names; the count tells of all.
pub const STAGE_HOSTS_LISTED_MAX: usize = 1_000;

/// Who would get a change together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedStage {
    /// Whom it opens for: a selector, a share, or `rest`.
    pub stage: String,
    /// How many hosts those are.
    pub hosts: u64,
    /// The first of them, as `namespace/name`.
    pub names: Vec<String>,
}

/// What a change would do; nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// The revision on which the change was tried.
    pub base_revision: u64,
    /// Names this plan: base, objects, every host's changes, and who is in which stage. An apply may demand it.
    pub digest: String,
    /// Whether no object would change.
    pub unchanged: bool,
    /// The objects that the documents name or that would be pruned.
    pub objects: Vec<ObjectChange>,
    /// The hosts whose policy would change and that the token may see.
    pub hosts: Vec<PlannedHost>,
    /// How many hosts would change that the token may not see.
    pub hosts_hidden: u64,
    /// How many hosts that the token may see would keep their policy.
    pub hosts_unchanged: u64,
    /// Through which stages it would go, in order, if it is to go in stages: who is in which, also hosts that would keep their policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<PlannedStage>,
    /// What it takes away, if that is so much that an apply is refused without an acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<BrakeView>,
    /// What is odd about the documents though they may be applied, such as a policy that governs no host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
