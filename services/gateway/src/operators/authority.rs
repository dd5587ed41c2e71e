//! `/v1/authority`: which life of the database this is, that it has another one, and that hosts may go back.

use axum::Json;
use axum::extract::State;
use holdfast_api::authority::{
    AuthorityView, BumpAuthority, ClaimView, ConfirmRollback, ConfirmedRollback, LifeView, RaisedView, WaitsFor,
};
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_events::{Detail, Hint};
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::secret::secret_at;
use holdfast_store::authority::{AuthorityFacts, Claim, Confirmed};
use holdfast_store::once::Once;

use super::auth::{Act, Caller};
use super::door::Shared;
use super::hosts::{rfc3339, stamp_view};
use super::plane::audited_epoch;
use super::refuse::Refusal;
use super::request::Body;

/// The highest epoch that may be named: far beyond any that is reached, and far below what a column holds.
const ABOVE_MAX: u64 = 1 << 40;

/// Which life of the database this is, and whom it would take back.
#[utoipa::path(get, path = "/v1/authority", operation_id = "get_authority", tag = "authority", responses(
    (status = 200, body = AuthorityView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn show(State(door): State<Shared>, caller: Caller) -> Result<Json<AuthorityView>, Refusal> {
    caller.may_everywhere(Act::Read)?;
    Ok(Json(view(door.store.authority_facts().await?)))
}

/// The database was restored or promoted: its next life begins. Nothing that takes a host back is sent until that is confirmed.
#[utoipa::path(post, path = "/v1/authority/bump", operation_id = "bump_authority", tag = "authority", request_body = BumpAuthority, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 200, body = AuthorityView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn bump(
    State(door): State<Shared>,
    caller: Caller,
    Body { value: wanted, key }: Body<BumpAuthority>,
) -> Result<Json<AuthorityView>, Refusal> {
    caller.may_everywhere(Act::Administer)?;
    if secret_at(&wanted.because).is_some() {
        return Err(Refusal::invalid("because", "secret", "this is a token, and would be shown in events"));
    }
    if wanted.because.trim().is_empty() {
        return Err(Refusal::invalid("because", "text", "say why: it is what the audit log will tell"));
    }
    let because =
        Detail::try_from(wanted.because).map_err(|error| Refusal::invalid("because", "text", error.to_string()))?;
    if wanted.above.is_some_and(|above| above > ABOVE_MAX) {
        return Err(Refusal::invalid("above", "above", format!("an epoch is at most {ABOVE_MAX}")));
    }
    // The audit log outlives a database that is restored: an epoch that it knows may be known to hosts, so it is not used again.
    let audited = match (wanted.above, audited_epoch(&door).await) {
        (_, Ok(audited)) => audited,
        (Some(_), Err(_)) => None,
        (None, Err(detail)) => {
            let text = format!("which epochs there were is not known: {detail}; nothing was changed; `above` says it");
            return Err(Refusal::new(ProblemType::AuditUnavailable, text));
        }
    };
    let above = wanted.above.map(AuthorityEpoch::from_raw).max(audited);
    let key = key.map(|key| key.of(&caller));
    match door.store.raise_authority_epoch_once(caller.actor(), because, above, key).await? {
        Once::Now(epoch) => {
            tracing::warn!(%epoch, "an operator says that the database was restored or promoted");
            door.ring([Hint::Intent, Hint::Event]);
        }
        Once::Before(epoch) => tracing::info!(%epoch, "a life that was begun is asked for again"),
        Once::Other => return Err(Refusal::other_request()),
    }
    let facts = door.store.authority_facts().await.map_err(|error| Refusal::from(error).once_made())?;
    Ok(Json(view(facts)))
}

/// Lets those hosts go back that wait for it.
#[utoipa::path(post, path = "/v1/authority/confirm", operation_id = "confirm_rollback", tag = "authority", request_body = ConfirmRollback, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 200, body = ConfirmedRollback),
    (status = 409, description = "Another number of hosts would go back", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn confirm(
    State(door): State<Shared>,
    caller: Caller,
    Body { value: wanted, key }: Body<ConfirmRollback>,
) -> Result<Json<ConfirmedRollback>, Refusal> {
    caller.may_everywhere(Act::Administer)?;
    let key = key.map(|key| key.of(&caller));
    match door.store.confirm_rollback_once(caller.actor(), wanted.expect, key).await? {
        Once::Before(hosts) => Ok(Json(ConfirmedRollback { hosts })),
        Once::Other => Err(Refusal::other_request()),
        Once::Now(Confirmed::Hosts(hosts)) => {
            tracing::warn!(hosts, "an operator confirmed that hosts go back");
            door.ring([Hint::Intent, Hint::Event]);
            Ok(Json(ConfirmedRollback { hosts }))
        }
        Once::Now(Confirmed::Unexpected(found)) => {
            let text = format!("{found} would go back, {} were expected; nothing was changed", wanted.expect);
            Err(Refusal::new(ProblemType::UnexpectedCount, text))
        }
    }
}

fn view(facts: AuthorityFacts) -> AuthorityView {
    let AuthorityFacts { authority, since, raised, hosts, claims } = facts;
    AuthorityView {
        id: authority.id.to_string(),
        epoch: authority.epoch.raw(),
        since: rfc3339(since),
        raised: raised.map(|raised| RaisedView { by: raised.by, because: raised.because }),
        waits_for_confirmation: hosts.going_back > 0,
        hosts: LifeView {
            ahead: hosts.ahead,
            going_back: hosts.going_back,
            unheard: hosts.unheard,
            following: hosts.following,
        },
        claims: claims.into_iter().map(claim_view).collect(),
    }
}

fn claim_view(claim: Claim) -> ClaimView {
    ClaimView {
        host: claim.host.to_string(),
        name: format!("{}/{}", claim.namespace, claim.name),
        component: claim.component,
        held: stamp_view(claim.held),
        latest: stamp_view(claim.latest),
        waits_for: if claim.waits_for_confirmation { WaitsFor::Confirm } else { WaitsFor::Bump },
    }
}
