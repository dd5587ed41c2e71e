//! Operations: one, many, and waiting for the end of one.

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::object::Page;
use holdfast_api::operation::OperationView;
use holdfast_api::problem::Problem;
use holdfast_model::ids::OperationId;
use holdfast_store::operation::Operation;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::cursor;
use super::door::Shared;
use super::hosts::rfc3339;
use super::refuse::Refusal;
use super::request::{Params, wait_of};
use super::status::look_again;

fn view(operation: &Operation) -> OperationView {
    OperationView {
        id: operation.id.to_string(),
        verb: operation.verb.word().to_owned(),
        actor: operation.actor.to_string(),
        revision: operation.revision.raw(),
        changes: u64::from(operation.changes),
        state: operation.state.word().to_owned(),
        finished: operation.state.is_terminal(),
        detail: operation.detail.clone(),
        created_at: rfc3339(operation.created_at),
        finished_at: operation.finished_at.map(rfc3339),
    }
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// Operations, newest first.
#[utoipa::path(get, path = "/v1/operations", operation_id = "list_operations", tag = "operations", params(ListQuery), responses(
    (status = 200, body = Page<OperationView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<OperationView>>, Refusal> {
    const LIST: &str = "operations";
    caller.may(Act::Read)?;
    let limit = cursor::limit_of(query.limit)?;
    let before: Option<OperationId> = cursor::decode(LIST, query.cursor.as_deref())?;
    let revision = door.store.latest_revision().await?;
    // One more than asked for tells whether there is another page.
    let more = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let mut operations = door.store.list_operations(before, more).await?;
    let has_more = operations.len() > limit;
    operations.truncate(limit);
    let next_cursor = match operations.last() {
        Some(last) if has_more => Some(cursor::encode(LIST, &last.id)?),
        Some(_) | None => None,
    };
    Ok(Json(Page { items: operations.iter().map(view).collect(), next_cursor, revision: revision.raw() }))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OneQuery {
    /// Wait up to this long for its end, as `30s`; one request waits for a minute at most.
    wait: Option<String>,
}

/// One operation.
#[utoipa::path(get, path = "/v1/operations/{id}", operation_id = "get_operation", tag = "operations", params(
    ("id" = String, Path, description = "`op_…`"), OneQuery,
), responses(
    (status = 200, body = OperationView),
    (status = 404, description = "There is no such operation", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<OneQuery>,
) -> Result<Json<OperationView>, Refusal> {
    caller.may(Act::Read)?;
    let id: OperationId =
        id.parse().map_err(|error: holdfast_model::ids::IdError| Refusal::invalid("id", "id", error.to_string()))?;
    let deadline = Instant::now() + wait_of(query.wait.as_deref())?.unwrap_or_default();
    let mut wakes = door.wakes.clone();
    loop {
        wakes.mark_unchanged();
        let operation =
            door.store.load_operation(id).await?.ok_or_else(|| Refusal::not_found(format!("operation {id}")))?;
        if operation.state.is_terminal() || Instant::now() >= deadline || door.shutdown.is_asked() {
            return Ok(Json(view(&operation)));
        }
        look_again(&door, &mut wakes, deadline).await;
    }
}
