//! The check that the tables are what the events say.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One value that is not what the events say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DifferenceView {
    /// Which table.
    pub table: String,
    /// Which row, by its key.
    pub row: String,
    /// Which column; empty if the whole row is missing or too many.
    pub column: String,
    /// What is stored.
    pub stored: String,
    /// What the events say.
    pub folded: String,
}

/// What the check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RebuildView {
    /// How many events were folded.
    pub events: u64,
    /// Whether there is no difference.
    pub clean: bool,
    /// Every difference, up to a bound.
    pub differences: Vec<DifferenceView>,
}
