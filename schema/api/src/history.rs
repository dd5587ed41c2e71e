//! What was before: revisions, versions of hosts, changes of objects, and going back to one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::brake::Acknowledgement;
use crate::object::{Change, ObjectChange};
use crate::rollout::RolloutRequest;
use crate::status::{StampView, StatusView};

/// Who made a revision, when and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeView {
    /// Its number.
    pub revision: u64,
    /// When, in RFC 3339 and UTC.
    pub at: String,
    /// Who; of a host without its id, where the token is for some namespaces.
    pub actor: String,
    /// The operation; absent where no operator asked, as for an enrolment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What it was asked to do: `apply`, `delete`, `mode`, `restore`, `decommission`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
}

/// A host that a revision changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostChangeView {
    /// Its identity.
    pub host: String,
    /// `namespace/name`.
    pub name: String,
    /// `created` is enrolled, `deleted` is taken out, `updated` is that its addresses changed.
    pub change: Change,
}

/// One revision: what it changed, and how far it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// Who made it, when and how.
    #[serde(flatten)]
    pub made: MadeView,
    /// What it changed, of what the token may see.
    pub objects: Vec<ObjectChange>,
    /// The hosts that it enrolled, moved or took out, of those that the token may see.
    pub hosts_changed: Vec<HostChangeView>,
    /// How much else it changed that the token may not see.
    pub hidden: u64,
    /// Whether it changed what some hosts are to hold: then its state is theirs. Otherwise it is that of the whole fleet.
    pub has_hosts: bool,
    /// The first later revision that has something else in the place of what it changed, or of a part of it. Hosts that were rendered with that at once
    /// never had this one, and do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten_at: Option<u64>,
    /// How far it is, on those hosts.
    pub status: StatusView,
}

/// One version of the policy of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostVersionView {
    /// Which.
    pub stamp: StampView,
    /// When it was rendered, in RFC 3339 and UTC.
    pub rendered_at: String,
    /// The revision that it was rendered from.
    #[serde(flatten)]
    pub made: MadeView,
    /// What became of it, as an operation saw it that waited for it: `applied`, `failed`, `superseded`, `inactive`, `cancelled` or `pending`; absent if
    /// none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// One change of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectVersionView {
    /// By whom, when and how.
    #[serde(flatten)]
    pub made: MadeView,
    /// What became of it.
    pub change: Change,
}

/// What was in force at a revision, to be put in force again as a new change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The revision.
    pub revision: u64,
    /// Only these objects, as `Kind/namespace/name`; all that the token may change if empty.
    #[serde(default)]
    pub objects: Vec<String>,
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
