//! What hosts and objects were before: versions and changes, newest first, with who made them and when.

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::history::{HostVersionView, MadeView, ObjectVersionView};
use holdfast_api::object::Page;
use holdfast_api::problem::Problem;
use holdfast_events::Actor;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{Revision, Version};
use holdfast_store::intent::{ObjectRow, RevisionRow, VersionRow};
use std::str::FromStr as _;

use super::auth::{Act, Caller};
use super::cursor::{PageQuery, Paging};
use super::door::Shared;
use super::hosts::{find_one, rfc3339, stamp_view};
use super::objects::{key_of, word};
use super::refuse::Refusal;
use super::request::Params;

/// Who made a revision, as answers have it.
pub(crate) fn made(caller: &Caller, row: &RevisionRow) -> MadeView {
    MadeView {
        revision: row.revision.raw(),
        at: rfc3339(row.at),
        // A host that enrolled or moved is of any namespace.
        actor: if matches!(row.actor, Actor::Host(_)) && !caller.reaches_all() {
            "host".to_owned()
        } else {
            row.actor.to_string()
        },
        operation: row.operation.map(|(id, _)| id.to_string()),
        verb: row.operation.map(|(_, verb)| verb.word().to_owned()),
    }
}

/// The versions of the policy of a host, newest first.
#[utoipa::path(get, path = "/v1/hosts/{host}/history", operation_id = "host_history", tag = "history", params(
    ("host" = String, Path, description = "`ho_…`, also of one that was taken out, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
    PageQuery,
), responses(
    (status = 200, body = Page<HostVersionView>),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn of_host(
    State(door): State<Shared>,
    caller: Caller,
    Path(text): Path<String>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<HostVersionView>>, Refusal> {
    caller.may(Act::Read)?;
    let snapshot = door.intent.current().await?;
    let found = find_one(&snapshot, &caller, &text).map(|host| host.id);
    // One that was taken out has no name and no namespace any more: it is told of to whoever reaches all.
    let gone = HostId::from_str(&text).ok().filter(|_| caller.reaches_all());
    let host = found.clone().or_else(|refusal| gone.ok_or(refusal))?;
    let list = format!("history {host}");
    let paging: Paging<'_, Version> = Paging::of(&list, &query)?;
    let rows = door.store.host_history(host, Component::Policy, paging.before, paging.with_more()).await?;
    if let (Err(refusal), true, None) = (found, rows.is_empty(), paging.before) {
        return Err(refusal);
    }
    let one = |row: &VersionRow| HostVersionView {
        stamp: stamp_view(row.stamp),
        rendered_at: rfc3339(row.rendered_at),
        made: made(&caller, &row.revision),
        outcome: row.outcome.map(|outcome| outcome.to_string()),
    };
    Ok(Json(paging.page(rows, snapshot.revision, |row| &row.stamp.version, one)?))
}

/// The changes of an object, newest first; also of one that is not in force any more.
#[utoipa::path(get, path = "/v1/objects/{kind}/{namespace}/{name}/history", operation_id = "object_history", tag = "history", params(
    ("kind" = String, Path, description = "As `Policy`"),
    ("namespace" = String, Path, description = "Of a Namespace its own name"),
    ("name" = String, Path, description = "Its name"),
    PageQuery,
), responses(
    (status = 200, body = Page<ObjectVersionView>),
    (status = 404, description = "There never was such an object", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn of_object(
    State(door): State<Shared>,
    caller: Caller,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<ObjectVersionView>>, Refusal> {
    caller.may(Act::Read)?;
    let key = key_of(&kind, &namespace, &name)?;
    let list = format!("history {key}");
    let paging: Paging<'_, Revision> = Paging::of(&list, &query)?;
    let latest = door.store.latest_revision().await?;
    let rows = match caller.sees(&key.namespace) {
        true => door.store.object_history(key.clone(), paging.before, paging.with_more()).await?,
        false => Vec::new(),
    };
    if rows.is_empty() && paging.before.is_none() {
        return Err(Refusal::not_found(key));
    }
    let one = |row: &ObjectRow| ObjectVersionView { made: made(&caller, &row.revision), change: word(row.change) };
    Ok(Json(paging.page(rows, latest, |row| &row.revision.revision, one)?))
}
