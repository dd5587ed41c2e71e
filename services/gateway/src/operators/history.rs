//! What hosts and objects were before: versions and changes, newest first, with who made them and when.

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::history::{HostVersionView, MadeView, ObjectVersionView};
use holdfast_api::object::Page;
use holdfast_api::problem::Problem;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{Revision, Version};
use holdfast_store::intent::{RevisionRow, VersionRow};
use serde::Deserialize;
use std::str::FromStr as _;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::cursor;
use super::door::Shared;
use super::hosts::{find_one, rfc3339, stamp_view};
use super::objects::{key_of, word};
use super::refuse::Refusal;
use super::request::Params;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// Who made a revision, as answers have it.
pub(crate) fn made(row: &RevisionRow) -> MadeView {
    MadeView {
        revision: row.revision.raw(),
        at: rfc3339(row.at),
        actor: row.actor.to_string(),
        operation: row.operation.map(|(id, _)| id.to_string()),
        verb: row.operation.map(|(_, verb)| verb.word().to_owned()),
    }
}

/// One more than a page has tells whether there is another.
pub(crate) fn with_more(limit: usize) -> u32 {
    u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX)
}

/// The versions of the policy of a host, newest first.
#[utoipa::path(get, path = "/v1/hosts/{host}/history", operation_id = "host_history", tag = "history", params(
    ("host" = String, Path, description = "`ho_…`, also of one that was taken out, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
    HistoryQuery,
), responses(
    (status = 200, body = Page<HostVersionView>),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn of_host(
    State(door): State<Shared>,
    caller: Caller,
    Path(text): Path<String>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<Page<HostVersionView>>, Refusal> {
    caller.may(Act::Read)?;
    let snapshot = door.intent.current().await?;
    let found = find_one(&snapshot, &caller, &text).map(|host| host.id);
    // One that was taken out has no name and no namespace any more: it is told of to whoever reaches all.
    let gone = HostId::from_str(&text).ok().filter(|_| caller.reaches_all());
    let host = found.clone().or_else(|refusal| gone.ok_or(refusal))?;
    let limit = cursor::limit_of(query.limit)?;
    let list = format!("history {host}");
    let before: Option<Version> = cursor::decode(&list, query.cursor.as_deref())?;
    let mut rows = door.store.host_history(host, Component::Policy, before, with_more(limit)).await?;
    if let (Err(refusal), true, None) = (found, rows.is_empty(), before) {
        return Err(refusal);
    }
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = match rows.last() {
        Some(last) if has_more => Some(cursor::encode(&list, &last.stamp.version)?),
        Some(_) | None => None,
    };
    let one = |row: &VersionRow| HostVersionView {
        stamp: stamp_view(row.stamp),
        rendered_at: rfc3339(row.rendered_at),
        made: made(&row.revision),
        outcome: row.outcome.map(|outcome| outcome.to_string()),
    };
    Ok(Json(Page { items: rows.iter().map(one).collect(), next_cursor, revision: snapshot.revision.raw() }))
}

/// The changes of an object, newest first; also of one that is not in force any more.
#[utoipa::path(get, path = "/v1/objects/{kind}/{namespace}/{name}/history", operation_id = "object_history", tag = "history", params(
    ("kind" = String, Path, description = "As `Policy`"),
    ("namespace" = String, Path, description = "Of a Namespace its own name"),
    ("name" = String, Path, description = "Its name"),
    HistoryQuery,
), responses(
    (status = 200, body = Page<ObjectVersionView>),
    (status = 404, description = "There never was such an object", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn of_object(
    State(door): State<Shared>,
    caller: Caller,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<Page<ObjectVersionView>>, Refusal> {
    caller.may(Act::Read)?;
    let key = key_of(&kind, &namespace, &name)?;
    let limit = cursor::limit_of(query.limit)?;
    let list = format!("history {key}");
    let before: Option<Revision> = cursor::decode(&list, query.cursor.as_deref())?;
    let latest = door.store.latest_revision().await?;
    let mut rows = match caller.sees(&key.namespace) {
        true => door.store.object_history(key.clone(), before, with_more(limit)).await?,
        false => Vec::new(),
    };
    if rows.is_empty() && before.is_none() {
        return Err(Refusal::not_found(key));
    }
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = match rows.last() {
        Some(last) if has_more => Some(cursor::encode(&list, &last.revision.revision)?),
        Some(_) | None => None,
    };
    let items = rows.iter().map(|row| ObjectVersionView { made: made(&row.revision), change: word(row.change) });
    Ok(Json(Page { items: items.collect(), next_cursor, revision: latest.raw() }))
}
