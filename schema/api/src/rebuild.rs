//! The check that the tables are what the events say.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One value that is not what the events say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DifferenceView {
    /// Which table.
    pub table: String,
    /// Which row, by its key.
    pub key: String,
    /// Which column; empty if the whole row is missing or too many.
    pub column: String,
    /// What the events say.
    pub expected: String,
    /// What is stored.
    pub found: String,
}

/// What the check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RebuildView {
    /// Whether there is no difference.
    pub clean: bool,
    /// How many events were folded.
    pub events: u64,
    /// How many events have no number yet.
    pub unnumbered: u64,
    /// How many rows were compared.
    pub rows: u64,
    /// How many artifacts were read.
    pub artifacts: u64,
    /// Every difference, up to a bound.
    pub differences: Vec<DifferenceView>,
}
