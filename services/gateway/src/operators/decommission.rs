//! Taking a host out of the fleet.
//!
//! - It is a change of intent: a revision, an operation, an event that says who and why. Peers are rendered without the host.
//! - Its peers are judged without it: where many of them lose much by it, as when it was the one that they let in, somebody has to say so.
//! - Its session ends by itself at the next compare of whoever holds it; its agent is told to dial once before, and is refused.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::brake::Acknowledgement;
use holdfast_api::problem::Problem;
use holdfast_api::status::{DecommissionHost, DecommissionedHost};
use holdfast_events::{Detail, Directive, DirectiveKind, Hint};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::Revision;
use holdfast_model::secret::secret_at;
use holdfast_store::intent::{Decommission, Decommissioned, KeptDecommission};
use holdfast_store::once::{Once, RequestKey};

use super::auth::{Act, Caller};
use super::brake::{self, Judged, TRIES_MAX};
use super::door::Shared;
use super::etag::IfMatch;
use super::hosts::find_one;
use super::names::host_name;
use super::objects::held;
use super::plan::Wanted;
use super::refuse::Refusal;
use super::request::Body;

/// Takes a host out: nothing is rendered for it any more, its name is free, and no session of it begins. What the machine enforces stays there
/// until somebody ends it there.
#[utoipa::path(post, path = "/v1/hosts/{host}/decommission", operation_id = "decommission_host", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the host that was read: refused if it is enrolled in another way now"),
), request_body = DecommissionHost, responses(
    (status = 200, body = DecommissionedHost),
    (status = 409, description = "Many of its peers lose much by it", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such host, or it is out already", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The host is not as it was read", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn decommission(
    State(door): State<Shared>,
    caller: Caller,
    IfMatch(shown): IfMatch,
    Path(host): Path<String>,
    Body { value: wanted, key }: Body<DecommissionHost>,
) -> Result<Json<DecommissionedHost>, Refusal> {
    caller.may(Act::Operate)?;
    if secret_at(&wanted.because).is_some() {
        return Err(Refusal::invalid("because", "secret", "this is a token, and would be shown in events"));
    }
    let detail =
        Detail::try_from(wanted.because).map_err(|error| Refusal::invalid("because", "text", error.to_string()))?;
    let key = key.map(|key| key.of(&caller));
    if let Some(key) = key.clone()
        && let Some(before) = door.store.recall_decommission(key).await?
    {
        return before_of(&door, before).await;
    }
    let asked = Asked { host, shown, detail, acknowledge: wanted.acknowledge, key };
    let (host, name, done) = take_out(&door, &caller, asked).await?;
    let (revision, operation) = match done {
        Once::Now(Decommissioned::Out { revision, operation }) => (revision, operation),
        Once::Now(Decommissioned::Unknown) => {
            return Err(Refusal::not_found(format!("host {host}: it is out already")));
        }
        Once::Now(Decommissioned::Moved) => return Err(Refusal::overtaken()),
        before @ (Once::Before(_) | Once::Other) => return before_of(&door, before).await,
    };
    door.ring([Hint::Intent, Hint::Event]);
    tracing::info!(actor = %caller.actor(), %host, %revision, "a host was taken out");
    if let Err(error) = door.directives.try_send(Directive { kind: DirectiveKind::Reconnect, host }) {
        tracing::warn!(%error, %host, "its agent is not told; its session ends at the next compare");
    }
    Ok(Json(out(&door, KeptDecommission { host, name, revision, operation }).await))
}

/// What was done, with what does not happen at once.
async fn out(door: &Shared, kept: KeptDecommission) -> DecommissionedHost {
    let KeptDecommission { host, name, revision, operation } = kept;
    let outcome = format!("those that let {name} in go on until their stage opens or the rollout is aborted");
    DecommissionedHost {
        warnings: held(door, None, &outcome).await,
        host: host.to_string(),
        name,
        revision: revision.raw(),
        operation: operation.to_string(),
    }
}

/// A host that somebody wants out.
struct Asked {
    /// As it was written.
    host: String,
    /// Since which revision it is enrolled as it was read, if that is shown.
    shown: Option<u64>,
    detail: Detail,
    acknowledge: Option<Acknowledgement>,
    key: Option<RequestKey>,
}

/// A host, its name, and what came of taking it out.
type Taken = (HostId, String, Once<Decommissioned, KeptDecommission>);

/// What was done under the name of the request, where it cannot be done now: another that came at once may have done it while this one waited.
async fn done_before(door: &Shared, key: Option<&RequestKey>, refusal: Refusal) -> Result<Taken, Refusal> {
    let Some(key) = key else { return Err(refusal) };
    match door.store.recall_decommission(key.clone()).await? {
        Some(Once::Before(kept)) => Ok((kept.host, kept.name.clone(), Once::Before(kept))),
        Some(Once::Other) => Err(Refusal::other_request()),
        Some(Once::Now(_)) | None => Err(refusal),
    }
}

/// Takes it out on a revision on which its peers lose little by it, or are said to lose much.
async fn take_out(door: &Shared, caller: &Caller, asked: Asked) -> Result<Taken, Refusal> {
    let Asked { host: text, shown, detail, acknowledge, key } = asked;
    let said = brake::because(acknowledge.as_ref())?;
    let turn = door.brake.turn().await;
    let mut tries = 0;
    loop {
        let base = door.intent.current().await?;
        let (host, name) = match find_one(&base, caller, &text) {
            Ok(found) => (found.id, host_name(found)),
            Err(refusal) => return done_before(door, key.as_ref(), refusal).await,
        };
        if let Some(shown) = shown {
            let there = door.store.host_since(host, base.revision).await?;
            if there.map(Revision::raw) != Some(shown) {
                let refusal = Refusal::stale_object(format!("host {name}"), there, shown);
                return done_before(door, key.as_ref(), refusal).await;
            }
        }
        let wanted = Arc::new(Wanted { hosts_out: [host].into(), ..Wanted::default() });
        let judged = brake::judged(door, caller, &turn, &base, (&wanted, None), acknowledge.as_ref());
        let because = match judged.await? {
            Judged::Little => None,
            Judged::Meant => said.clone(),
            Judged::Braked(refusal) => return done_before(door, key.as_ref(), refusal).await,
        };
        let (actor, expected) = (caller.actor(), Some(base.revision));
        let asked = Decommission { actor, host, detail: detail.clone(), expected, because };
        let done = door.store.decommission_once(asked, name.clone(), key.clone()).await?;
        tries += 1;
        if tries < TRIES_MAX && matches!(done, Once::Now(Decommissioned::Moved)) {
            continue;
        }
        return Ok((host, name, done));
    }
}

/// The answer to what was done before under the name of the request.
async fn before_of(
    door: &Shared,
    before: Once<Decommissioned, KeptDecommission>,
) -> Result<Json<DecommissionedHost>, Refusal> {
    let Once::Before(kept) = before else { return Err(Refusal::other_request()) };
    Ok(Json(out(door, kept).await))
}
