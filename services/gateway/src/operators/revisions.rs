//! Revisions: who made them, what they changed, and how far each is.
//!
//! - The state of one is that of the hosts that it is for: those whose desired state it changed, so also those that may still hold what it removed.
//! - One that is for no host is judged by the whole fleet: no set is converged because it is empty.
//! - Each host is judged by the versions that it got with the revision: what came later and failed is no failure of this one.
//! - The derivation is the one of the fleet's status ([`super::fleet::JudgedFleet::status`]).

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::history::{HostChangeView, MadeView, RevisionView};
use holdfast_api::object::{ObjectChange, Page};
use holdfast_api::problem::Problem;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{Revision, Version};

use super::auth::{Act, Caller};
use super::cursor::{PageQuery, Paging};
use super::door::Shared;
use super::fleet::JudgedHost;
use super::history::made;
use super::objects::word;
use super::refuse::Refusal;
use super::request::Params;
use super::targets::state_since;

/// Revisions, newest first.
#[utoipa::path(get, path = "/v1/revisions", operation_id = "list_revisions", tag = "history", params(PageQuery), responses(
    (status = 200, body = Page<MadeView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<MadeView>>, Refusal> {
    const LIST: &str = "revisions";
    caller.may(Act::Read)?;
    let paging = Paging::of(LIST, &query)?;
    let latest = door.store.latest_revision().await?;
    let rows = door.store.list_revisions(paging.before, paging.with_more()).await?;
    Ok(Json(paging.page(rows, latest, |row| &row.revision, |row| made(&caller, row))?))
}

/// One revision: what it changed, and how far it is on the hosts that it is for.
#[utoipa::path(get, path = "/v1/revisions/{revision}", operation_id = "get_revision", tag = "history", params(
    ("revision" = u64, Path, description = "Its number"),
), responses(
    (status = 200, body = RevisionView),
    (status = 404, description = "There is no such revision", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(door): State<Shared>,
    caller: Caller,
    Path(revision): Path<String>,
) -> Result<Json<RevisionView>, Refusal> {
    caller.may(Act::Read)?;
    let number = revision.parse().map(Revision::from_raw);
    let number = number.map_err(|_| Refusal::invalid("revision", "id", "a revision is a number"))?;
    let row = door.store.load_revision(number).await?;
    let Some(row) = row else {
        let latest = door.store.latest_revision().await?;
        return Err(Refusal::not_found(format!("revision {number}: the last is {latest}")));
    };
    let objects = door.store.changes_of(number).await?;
    let hosts = door.store.hosts_changed_by(number).await?;
    let total = objects.len() + hosts.len();
    let objects: Vec<ObjectChange> = objects
        .into_iter()
        .filter(|(key, _)| caller.sees(&key.namespace))
        .map(|(key, kind)| ObjectChange { object: key.to_string(), change: word(kind) })
        .collect();
    let hosts_changed: Vec<HostChangeView> = hosts
        .into_iter()
        .filter(|host| caller.sees(&host.namespace))
        .map(|host| HostChangeView {
            host: host.host.to_string(),
            name: format!("{}/{}", host.namespace, host.name),
            change: word(host.change),
        })
        .collect();
    // Read before the fleet: a host that is rendered meanwhile is judged by what came, not left out.
    let mut relevant: BTreeMap<HostId, Vec<(Component, Version)>> = BTreeMap::new();
    let versions = door.store.versions_of_revision(number).await?;
    let overwritten_at = door.store.overwritten_at(vec![number]).await?.get(&number).copied();
    for (host, component, version, rendered_from) in versions {
        let of = relevant.entry(host).or_default();
        // What was rendered together with what overwrote it never had it.
        if overwritten_at.is_none_or(|at| rendered_from < at) {
            of.push((component, version));
        }
    }
    let fleet = door.fleet.read(None).await?;
    let sees = |host: &JudgedHost| caller.sees(&host.status.namespace);
    let is_held = |host: &JudgedHost| host.status.held.is_some_and(|held| held.revision < number);
    let versions_of = |host: &JudgedHost| relevant.get(&host.status.host);
    let is_there = fleet.hosts.iter().any(|host| sees(host) && versions_of(host).is_some());
    // Whom a rollout holds before it may be among its hosts: that is known once their stage is rendered.
    let had_it = |host: &JudgedHost| is_held(host) || versions_of(host).is_some_and(|versions| !versions.is_empty());
    let is_of_it = |host: &JudgedHost| sees(host) && (!is_there || had_it(host));
    let status = fleet.status_by(number, is_of_it, |host| match versions_of(host) {
        Some(versions) if host.status.held.is_none() => state_since(host, versions),
        Some(_) | None => host.state_with(number),
    });
    let hidden = (total - objects.len() - hosts_changed.len()) as u64;
    let (made, overwritten_at) = (made(&caller, &row), overwritten_at.map(Revision::raw));
    Ok(Json(RevisionView { made, objects, hosts_changed, hidden, has_hosts: is_there, overwritten_at, status }))
}
