//! Operations: one, many, the hosts of one, waiting for its end, and ending the waiting.
//!
//! - Waiting holds no transaction and changes nothing: whoever goes away cancels nothing, and may ask another door again.
//! - Of hosts everybody is told of those that the token may see.

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::object::Page;
use holdfast_api::operation::{OperationComponentView, OperationHostView, OperationView};
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_events::{Hint, OperationState, OperationVerb};
use holdfast_model::ids::{HostId, IdError, OperationId};
use holdfast_model::numbers::Revision;
use holdfast_model::operation::HostOutcome;
use holdfast_store::once::Once;
use holdfast_store::operation::{Cancelled, Operation};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::cursor::{self, PageQuery, Paging};
use super::door::Shared;
use super::fleet::JudgedFleet;
use super::gauges;
use super::hosts::{rfc3339, stamp_view};
use super::refuse::Refusal;
use super::request::{Key, Params, wait_of};
use super::rollouts::held_view;
use super::settle::{Looked, look_at};
use super::status::Looks;
use super::targets::{HostLook, Part, Presence, counts, evidence, look};

/// Why it ended so, as a caller may read it: of those that did not take it, hosts of every namespace are named.
fn detail(caller: &Caller, operation: &Operation) -> String {
    match operation.state {
        OperationState::Failed if !caller.reaches_all() => {
            "some hosts did not take it; those that this token may see are in the list of its hosts".to_owned()
        }
        OperationState::Accepted
        | OperationState::Applied
        | OperationState::Cancelled
        | OperationState::Failed
        | OperationState::Inactive
        | OperationState::Superseded => operation.detail.clone(),
    }
}

fn view(caller: &Caller, operation: &Operation) -> OperationView {
    OperationView {
        id: operation.id.to_string(),
        verb: operation.verb.word().to_owned(),
        actor: operation.actor.to_string(),
        revision: operation.revision.raw(),
        changes: u64::from(operation.changes),
        state: operation.state.word().to_owned(),
        finished: operation.state.is_terminal(),
        detail: detail(caller, operation),
        created_at: rfc3339(operation.created_at),
        finished_at: operation.finished_at.map(rfc3339),
        rendered: operation.is_rendered,
        hosts: None,
        held: None,
    }
}

fn id_of(text: &str) -> Result<OperationId, Refusal> {
    text.parse().map_err(|error: IdError| Refusal::invalid("id", "id", error.to_string()))
}

async fn found(door: &Shared, id: OperationId) -> Result<Operation, Refusal> {
    door.store.load_operation(id).await?.ok_or_else(|| Refusal::not_found(format!("operation {id}")))
}

/// An operation with what became of it on the hosts that a caller may see.
async fn counted(door: &Shared, caller: &Caller, operation: &Operation) -> Result<OperationView, Refusal> {
    if !operation.is_rendered {
        let held = door.store.open_rollout().await?.filter(|open| open.held_revision < operation.revision);
        return Ok(OperationView { held: held.as_ref().and_then(held_view), ..view(caller, operation) });
    }
    let (fleet, by) = evidence(door, operation, Instant::now()).await?;
    counted_by(door, caller, operation, by, &fleet).await
}

/// The same of one that is rendered, by evidence that was read.
async fn counted_by(
    door: &Shared,
    caller: &Caller,
    operation: &Operation,
    overwritten_at: Option<Revision>,
    fleet: &JudgedFleet,
) -> Result<OperationView, Refusal> {
    let hosts = look(door, operation, overwritten_at, fleet).await?;
    let seen: Vec<&HostLook<'_>> = hosts.iter().filter(|host| sees(caller, host)).collect();
    Ok(OperationView { hosts: Some(counts(&seen)), ..view(caller, operation) })
}

/// One that is a host no more is in no namespace: it is told of to whoever reaches all.
fn sees(caller: &Caller, host: &HostLook<'_>) -> bool {
    host.judged.map_or(caller.reaches_all(), |judged| caller.sees(&judged.status.namespace))
}

/// Operations, newest first.
#[utoipa::path(get, path = "/v1/operations", operation_id = "list_operations", tag = "operations", params(PageQuery), responses(
    (status = 200, body = Page<OperationView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<OperationView>>, Refusal> {
    const LIST: &str = "operations";
    caller.may(Act::Read)?;
    let paging = Paging::of(LIST, &query)?;
    let revision = door.store.latest_revision().await?;
    let operations = door.store.list_operations(paging.before, paging.with_more()).await?;
    let view = |operation: &Operation| view(&caller, operation);
    Ok(Json(paging.page(operations, revision, |operation| &operation.id, view)?))
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
    let id = id_of(&id)?;
    let mut looks = Looks::new(&door, wait_of(query.wait.as_deref())?.unwrap_or_default());
    let mut since = looks.next().await;
    loop {
        let operation = found(&door, id).await?;
        if operation.state.is_terminal() || query.wait.is_none() {
            return Ok(Json(counted(&door, &caller, &operation).await?));
        }
        // Whoever waits looks for itself, at the deadline too: hints, by which the others look, may be away.
        let (fleet, by) = evidence(&door, &operation, since).await?;
        if look_at(&door, &operation, by, &fleet).await? == Looked::Ended {
            door.ring([Hint::Event]);
            continue;
        }
        if looks.is_over() {
            // Another door may have ended it meanwhile; if none did, what is counted is what this look went by, and no newer evidence that ended nothing.
            let now = found(&door, id).await?;
            return Ok(Json(match now.state.is_terminal() || !operation.is_rendered {
                true => counted(&door, &caller, &now).await?,
                false => counted_by(&door, &caller, &now, by, &fleet).await?,
            }));
        }
        since = looks.next().await;
    }
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HostsQuery {
    /// Only hosts with this outcome: `applied`, `inactive`, `failed`, `superseded`, `cancelled` or `pending`.
    outcome: Option<String>,
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// The hosts that an operation is for, and what became of it on each.
#[utoipa::path(get, path = "/v1/operations/{id}/hosts", operation_id = "list_operation_hosts", tag = "operations", params(
    ("id" = String, Path, description = "`op_…`"), HostsQuery,
), responses(
    (status = 200, body = Page<OperationHostView>),
    (status = 404, description = "There is no such operation", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn hosts(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<HostsQuery>,
) -> Result<Json<Page<OperationHostView>>, Refusal> {
    caller.may(Act::Read)?;
    let id = id_of(&id)?;
    let wanted = query.outcome.as_deref().map(str::parse::<HostOutcome>).transpose();
    let wanted = wanted.map_err(|error| Refusal::invalid("outcome", "outcome", error.to_string()))?;
    let limit = cursor::limit_of(query.limit)?;
    let list = format!("hosts of {id} {wanted:?}");
    let after: Option<HostId> = cursor::decode(&list, query.cursor.as_deref())?;
    let operation = found(&door, id).await?;
    let (fleet, by) = evidence(&door, &operation, Instant::now()).await?;
    let looks = look(&door, &operation, by, &fleet).await?;
    let is_asked_for = |host: &&HostLook<'_>| {
        let is_outcome = wanted.is_none_or(|wanted| wanted == host.outcome);
        is_outcome && sees(&caller, host) && after.is_none_or(|after| host.host > after)
    };
    let mut rest = looks.iter().filter(is_asked_for);
    let page: Vec<&HostLook<'_>> = rest.by_ref().take(limit).collect();
    let next_cursor = match (rest.next(), page.last()) {
        (Some(_), Some(last)) => Some(cursor::encode(&list, &last.host)?),
        (Some(_) | None, _) => None,
    };
    let items = page.into_iter().map(host_view).collect();
    Ok(Json(Page { items, next_cursor, revision: fleet.revision.raw() }))
}

fn host_view(host: &HostLook<'_>) -> OperationHostView {
    let component = |part: &Part| OperationComponentView {
        component: part.component.to_string(),
        target: stamp_view(part.stamp),
        outcome: part.outcome.word().to_owned(),
    };
    let presence = match host.presence() {
        Presence::Offline => Some("offline".to_owned()),
        Presence::Silent => Some("unknown".to_owned()),
        Presence::Heard => None,
    };
    OperationHostView {
        host: host.host.to_string(),
        name: host.judged.map(|judged| format!("{}/{}", judged.status.namespace, judged.status.name)),
        outcome: host.outcome.word().to_owned(),
        presence: presence.filter(|_| host.outcome == HostOutcome::Pending),
        components: host.parts.iter().map(component).collect(),
    }
}

/// Who may end the waiting for a change is who might have made it.
async fn may_cancel(door: &Shared, caller: &Caller, operation: &Operation) -> Result<(), Refusal> {
    let act = match operation.verb {
        OperationVerb::Decommission => Act::Operate,
        OperationVerb::Apply
        | OperationVerb::Delete
        | OperationVerb::Mode
        | OperationVerb::Restore
        | OperationVerb::Abort => Act::Edit,
    };
    caller.may(act)?;
    let reach = door.store.operation_reach(operation.id, operation.revision).await?;
    if reach.in_stages {
        caller.may_everywhere(act)?;
    }
    if reach.namespaces.iter().all(|namespace| caller.sees(namespace)) {
        return Ok(());
    }
    // Which those are is not told to who does not see them.
    let text = format!("operation {} is of namespaces that the token does not reach", operation.id);
    Err(Refusal::new(ProblemType::NotAllowed, text))
}

/// Ends the waiting for an operation. No host is changed by it, and what it put in force stays in force.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel", operation_id = "cancel_operation", tag = "operations", params(
    ("id" = String, Path, description = "`op_…`"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 200, body = OperationView),
    (status = 404, description = "There is no such operation", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It ended before", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn cancel(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Key(key): Key,
) -> Result<Json<OperationView>, Refusal> {
    let id = id_of(&id)?;
    let operation = found(&door, id).await?;
    may_cancel(&door, &caller, &operation).await?;
    let key = key.map(|key| key.of(&caller));
    match door.store.cancel_operation(caller.actor(), id, key).await? {
        Once::Now(Cancelled::Ended) => {
            gauges::record_end(OperationState::Cancelled, operation.created_at);
            tracing::info!(operation = %id, actor = %caller.actor(), "an operation was cancelled");
            door.ring([Hint::Event]);
        }
        Once::Before(_) => {}
        Once::Now(Cancelled::EndedBefore(state)) => {
            let text = format!("operation {id} ended before as {state}");
            return Err(Refusal::new(ProblemType::OperationEnded, text));
        }
        Once::Now(Cancelled::Unknown) => return Err(Refusal::not_found(format!("operation {id}"))),
        Once::Other => return Err(Refusal::other_request()),
    }
    let operation = found(&door, id).await.map_err(Refusal::once_made)?;
    Ok(Json(counted(&door, &caller, &operation).await.map_err(Refusal::once_made)?))
}
