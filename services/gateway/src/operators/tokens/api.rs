//! API tokens. Nobody gives what he does not have.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_api::problem::Problem;
use holdfast_api::token::{ApiTokenView, CreateApiToken, CreatedApiToken};
use holdfast_events::{ApiTokenCreated, Hint, NamespaceScope, Role};
use holdfast_identity::TokenKind;
use holdfast_model::ids::ApiTokenId;
use holdfast_model::name::Name;
use holdfast_store::once::Once;
use holdfast_store::token::ApiTokenEntry;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{bad_id, generate, label_of, name_of, revoked};
use crate::operators::auth::{Act, Caller};
use crate::operators::door::Shared;
use crate::operators::hosts::rfc3339;
use crate::operators::refuse::{Refusal, finding};
use crate::operators::request::{Body, Key};

/// The longest life of an API token that has an end, in seconds: ten years.
const API_TTL_S_MAX: u64 = 10 * 366 * 24 * 3600;

/// Makes an API token.
#[utoipa::path(post, path = "/v1/api-tokens", operation_id = "create_api_token", tag = "tokens", request_body = CreateApiToken, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 201, body = CreatedApiToken),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    State(door): State<Shared>,
    caller: Caller,
    Body { value: wanted, key }: Body<CreateApiToken>,
) -> Result<(StatusCode, Json<CreatedApiToken>), Refusal> {
    caller.may(Act::Administer)?;
    let created = api_token(&wanted, OffsetDateTime::now_utc())?;
    may_give(&caller, &created.namespaces)?;
    let (secret, hash) = generate(TokenKind::Api)?;
    let key = key.map(|key| key.of(&caller));
    match door.store.create_api_token_once(caller.actor(), created.clone(), hash, key).await? {
        Once::Now(()) => {}
        Once::Before(token) => return Err(Refusal::secret_not_kept(token)),
        Once::Other => return Err(Refusal::other_request()),
    }
    door.ring([Hint::Event]);
    let ApiTokenCreated { token, name, role, namespaces, expires_at } = created;
    let token = ApiTokenView {
        id: token.to_string(),
        name: name.to_string(),
        role: role.word().to_owned(),
        namespaces: scope_view(&namespaces),
        created_at: None,
        expires_at: expires_at.map(rfc3339),
        revoked_at: None,
    };
    Ok((StatusCode::CREATED, Json(CreatedApiToken { token, secret: secret.reveal().to_owned() })))
}

pub(super) fn api_token(wanted: &CreateApiToken, now: OffsetDateTime) -> Result<ApiTokenCreated, Refusal> {
    let mut faults = Vec::new();
    let name = label_of("name", &wanted.name, &mut faults);
    let role = wanted.role.parse::<Role>();
    if role.is_err() {
        let words: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
        faults.push(finding("role", "role", format!("a role is one of {}", words.join(", "))));
    }
    let namespaces = match &wanted.namespaces {
        None => NamespaceScope::All,
        Some(list) if list.is_empty() => {
            faults.push(finding("namespaces", "namespaces", "leave the field out for all namespaces"));
            NamespaceScope::Of(Vec::new())
        }
        Some(list) => {
            let read = |(index, text): (usize, &String)| name_of(&format!("namespaces[{index}]"), text, &mut faults);
            let mut names: Vec<Name> = list.iter().enumerate().filter_map(read).collect();
            names.sort_unstable();
            names.dedup();
            NamespaceScope::Of(names)
        }
    };
    if wanted.ttl_s.is_some_and(|ttl_s| !(1..=API_TTL_S_MAX).contains(&ttl_s)) {
        faults.push(finding("ttl_s", "ttl", format!("a token is good for 1 to {API_TTL_S_MAX} seconds, or for ever")));
    }
    match (name, role) {
        (Some(name), Ok(role)) if faults.is_empty() => Ok(ApiTokenCreated {
            token: ApiTokenId::new(Uuid::now_v7()),
            name,
            role,
            namespaces,
            expires_at: wanted
                .ttl_s
                .map(|ttl_s| now + time::Duration::seconds(i64::try_from(ttl_s).unwrap_or(i64::MAX))),
        }),
        _ => Err(Refusal::invalid_all(faults)),
    }
}

/// Nobody gives what he does not have.
fn may_give(caller: &Caller, namespaces: &NamespaceScope) -> Result<(), Refusal> {
    match namespaces {
        NamespaceScope::All => caller.may_everywhere(Act::Administer),
        NamespaceScope::Of(names) => names.iter().try_for_each(|name| caller.may_in(Act::Administer, name)),
    }
}

fn scope_view(scope: &NamespaceScope) -> Option<Vec<String>> {
    match scope {
        NamespaceScope::All => None,
        NamespaceScope::Of(names) => Some(names.iter().map(ToString::to_string).collect()),
    }
}

/// The token that a caller shows.
pub(crate) async fn shown(door: &Shared, caller: &Caller) -> Result<ApiTokenView, Refusal> {
    let grant = caller.grant();
    let entry = door.store.api_token(grant.token).await?;
    Ok(ApiTokenView {
        id: grant.token.to_string(),
        name: grant.name.clone(),
        role: grant.role.word().to_owned(),
        namespaces: scope_view(&grant.namespaces),
        created_at: entry.as_ref().map(|entry| rfc3339(entry.created_at)),
        expires_at: entry.as_ref().and_then(|entry| entry.expires_at).map(rfc3339),
        revoked_at: None,
    })
}

/// API tokens, newest first.
#[utoipa::path(get, path = "/v1/api-tokens", operation_id = "list_api_tokens", tag = "tokens", responses(
    (status = 200, body = Vec<ApiTokenView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(State(door): State<Shared>, caller: Caller) -> Result<Json<Vec<ApiTokenView>>, Refusal> {
    caller.may(Act::Administer)?;
    let tokens = door.store.list_api_tokens().await?;
    let view = |entry: &ApiTokenEntry| ApiTokenView {
        id: entry.grant.token.to_string(),
        name: entry.grant.name.clone(),
        role: entry.grant.role.word().to_owned(),
        namespaces: scope_view(&entry.grant.namespaces),
        created_at: Some(rfc3339(entry.created_at)),
        expires_at: entry.expires_at.map(rfc3339),
        revoked_at: entry.revoked_at.map(rfc3339),
    };
    Ok(Json(tokens.iter().filter(|token| may_give(&caller, &token.grant.namespaces).is_ok()).map(view).collect()))
}

/// Revokes an API token.
#[utoipa::path(delete, path = "/v1/api-tokens/{id}", operation_id = "revoke_api_token", tag = "tokens", params(
    ("id" = String, Path, description = "`at_…`"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 204, description = "Revoked"),
    (status = 404, description = "There is no such token", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It was revoked before", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Key(key): Key,
) -> Result<StatusCode, Refusal> {
    caller.may(Act::Administer)?;
    let id: ApiTokenId = id.parse().map_err(bad_id)?;
    let tokens = door.store.list_api_tokens().await?;
    let seen = |token: &&ApiTokenEntry| token.grant.token == id && may_give(&caller, &token.grant.namespaces).is_ok();
    tokens.iter().find(seen).ok_or_else(|| Refusal::not_found(format!("API token {id}")))?;
    let key = key.map(|key| key.of(&caller));
    revoked(&door, door.store.revoke_api_token_once(caller.actor(), id, key).await?)
}
