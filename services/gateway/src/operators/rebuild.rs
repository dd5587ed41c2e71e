//! `POST /v1/rebuild/check`: whether the tables are what the events say.

use axum::Json;
use axum::extract::State;
use holdfast_api::problem::Problem;
use holdfast_api::rebuild::{DifferenceView, RebuildView};

use super::auth::{Act, Caller};
use super::door::Shared;
use super::refuse::Refusal;

/// Folds every event and compares every column of every projection; changes nothing.
#[utoipa::path(post, path = "/v1/rebuild/check", operation_id = "check_rebuild", tag = "authority", responses(
    (status = 200, body = RebuildView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn check(State(door): State<Shared>, caller: Caller) -> Result<Json<RebuildView>, Refusal> {
    caller.may_everywhere(Act::Audit)?;
    let report = door.store.rebuild_check().await?;
    if !report.differences.is_empty() {
        tracing::error!(differences = report.differences.len(), "the tables are not what the events say");
    }
    let view = |difference: holdfast_store::rebuild::Difference| DifferenceView {
        table: difference.table.to_owned(),
        key: difference.key,
        column: difference.column,
        expected: difference.expected,
        found: difference.found,
    };
    Ok(Json(RebuildView {
        clean: report.differences.is_empty(),
        events: report.events,
        unnumbered: report.unnumbered,
        rows: report.rows,
        artifacts: report.artifacts,
        differences: report.differences.into_iter().map(view).collect(),
    }))
}
