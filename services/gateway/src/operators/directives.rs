//! What an operator asks of one host's session: said on the bus, and carried out by nobody later.
//!
//! - Who asked is an event, for the audit log; it is recorded first, so that nothing that an operator asks is missing from the log.
//! - Fire and observe: the answer has what moves once the directive is obeyed, as it stood before. Nothing is promised but that it was said.
//! - A host that is known to be away is a refusal; one that only seems to be there is not, and then nothing moves.

use axum::Json;
use axum::extract::{Path, State};
use holdfast_api::directive::DirectiveView;
use holdfast_api::problem::Problem;
use holdfast_events::{Directive, DirectiveKind, Hint};

use super::auth::{Act, Caller};
use super::door::Shared;
use super::hosts::{find_one, last_snapshot_sent_at, rfc3339};
use super::refuse::Refusal;

/// Sends a host its whole state once more. `last_snapshot_sent_at` moves once it was sent.
#[utoipa::path(post, path = "/v1/hosts/{host}/resend-snapshot", operation_id = "resend_snapshot", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = DirectiveView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The host has no open session; `last_seen_at` says when it was last heard", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn resend_snapshot(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<Json<DirectiveView>, Refusal> {
    direct(&door, &caller, &host, DirectiveKind::ResendSnapshot).await
}

/// Has a host's agent drop its session and dial once. The number of its session rises once it did.
#[utoipa::path(post, path = "/v1/hosts/{host}/reconnect", operation_id = "reconnect_host", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = DirectiveView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The host has no open session; `last_seen_at` says when it was last heard", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn reconnect(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<Json<DirectiveView>, Refusal> {
    direct(&door, &caller, &host, DirectiveKind::Reconnect).await
}

/// Has a host's agent end its sessions until it is enrolled anew or started again; what it enforces stays. The host is offline once it did.
#[utoipa::path(post, path = "/v1/hosts/{host}/re-enrol", operation_id = "re_enrol_host", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = DirectiveView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The host has no open session; `last_seen_at` says when it was last heard", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn re_enrol(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<Json<DirectiveView>, Refusal> {
    direct(&door, &caller, &host, DirectiveKind::Reenrol).await
}

async fn direct(
    door: &Shared,
    caller: &Caller,
    text: &str,
    kind: DirectiveKind,
) -> Result<Json<DirectiveView>, Refusal> {
    caller.may(Act::Operate)?;
    let snapshot = door.intent.current().await?;
    let host = find_one(&snapshot, caller, text)?.id;
    let missing = || Refusal::not_found(format!("host {host}"));
    let judged = door.fleet.read(Some(vec![host])).await?.hosts.pop().ok_or_else(missing)?;
    let status = &judged.status;
    let name = format!("{}/{}", status.namespace, status.name);
    let open = status.session.as_ref().filter(|session| session.heard_ms_ago.is_some());
    let Some(session) = open else {
        return Err(Refusal::offline(&name, status.last_seen_at.map(rfc3339)));
    };
    door.store.record_directive(caller.actor(), Directive { kind, host }).await?;
    door.ring([Hint::Event]);
    tracing::info!(actor = %caller.actor(), %host, directive = %kind, "a directive is asked for");
    if let Err(error) = door.directives.try_send(Directive { kind, host }) {
        // As with any directive that nobody hears: nothing moves, and whoever asked sees that.
        tracing::warn!(%error, %host, directive = %kind, "a directive is lost");
    }
    Ok(Json(DirectiveView {
        host: host.to_string(),
        name,
        directive: kind.word().to_owned(),
        last_snapshot_sent_at: last_snapshot_sent_at(status).map(rfc3339),
        session_epoch: session.session_epoch.raw(),
    }))
}
