//! Operations: the durable record of accepted changes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
}
