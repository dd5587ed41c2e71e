//! Authored objects: putting them in force, taking them out, reading them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::brake::Acknowledgement;
use crate::rollout::RolloutRequest;

/// The most bytes of the body of an apply or a plan: two files of the largest size that the documents' reader takes, as JSON text.
pub const APPLY_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most bytes of any other body.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// The most items of one page.
pub const PAGE_ITEMS_MAX: u32 = 500;
/// The items of one page that says nothing else.
pub const PAGE_ITEMS_DEFAULT: u32 = 100;

/// One input with the name that findings call it by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A path, or a word such as `stdin`.
    pub name: String,
    /// YAML or JSON documents of `holdfast.dev/v1` and `networking.k8s.io/v1`.
    pub text: String,
}

/// Objects to be put in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// The documents.
    pub sources: Vec<Source>,
    /// Whether everything else in the namespaces of these documents goes out of force.
    #[serde(default)]
    pub prune: bool,
    /// The last revision that the author has seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    /// The digest of a plan; refused if this would do something else now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_plan: Option<String>,
    /// That it is meant to take as much away as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledgement>,
    /// How it goes through the fleet, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutRequest>,
}

/// Objects to be taken out of force, all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    /// Each as `Kind/namespace/name`; a Namespace is `Namespace/name`.
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

/// What becomes of one object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It was not in force before.
    Created,
    /// It says something else than before.
    Updated,
    /// It is no longer in force.
    Deleted,
    /// It is as it was.
    Unchanged,
}

impl Change {
    /// The word in JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Unchanged => "unchanged",
        }
    }
}

/// One object and what becomes of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectChange {
    /// `Kind/namespace/name`; a Namespace is `Namespace/name`.
    pub object: String,
    /// What becomes of it.
    pub change: Change,
}

/// An accepted change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApplyResponse {
    /// The revision that has what was asked for; the last one if nothing was to be changed.
    pub revision: u64,
    /// The operation; absent if nothing was to be changed.
    pub operation: Option<String>,
    /// The rollout that it goes through, if it goes through one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// Whether everything was as asked for already.
    pub unchanged: bool,
    /// Whether this is what was done before under the name of the request (`Idempotency-Key`); nothing was done now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// Every object that was named or pruned.
    pub objects: Vec<ObjectChange>,
    /// What is odd about the documents though they are in force, such as a policy that governs no host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One authored object in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectView {
    /// `Kind/namespace/name`; a Namespace is `Namespace/name`.
    pub object: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; of a Namespace its own name.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The canonical document, which can be applied again; absent in a list that did not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub document: Option<serde_json::Value>,
    /// Of one that was asked for by name: the revision since which it says this, which is its `etag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Of a policy that was asked for by name: the hosts that it governs, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governs: Option<Vec<String>>,
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The revision at which the list was read.
    pub revision: u64,
}
