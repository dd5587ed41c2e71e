//! Tokens of both kinds: make, list, revoke.
//!
//! - The secret is in the answer that made it and nowhere else: the store has its hash.
//! - Labels, ports and prefixes of an enrolment token pass the very grammar of documents.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_api::problem::{Finding, Problem, ProblemType};
use holdfast_api::token::{
    ApiTokenView, CreateApiToken, CreateEnrolToken, CreatedApiToken, CreatedEnrolToken, ENROL_TTL_S_DEFAULT,
    ENROL_TTL_S_MAX, EnrolTokenView, USES_MAX,
};
use holdfast_documents::Source;
use holdfast_events::{ApiTokenCreated, EnrolTokenCreated, Hint, Label128, NamespaceScope, Role};
use holdfast_identity::{Token, TokenKind};
use holdfast_model::ids::{ApiTokenId, EnrolTokenId, IdError};
use holdfast_model::intent::{DeclaredPort, Spec};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_store::token::{ApiTokenEntry, EnrolTokenEntry, TokenHash};
use ipnet::IpNet;
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::auth::{Act, Caller};
use super::door::Shared;
use super::hosts::{port_view, rfc3339};
use super::refuse::{Refusal, finding, findings};
use super::request::Body;

/// The longest life of an API token that has an end, in seconds: ten years.
const API_TTL_S_MAX: u64 = 10 * 366 * 24 * 3600;

/// Makes an enrolment token.
#[utoipa::path(post, path = "/v1/enrol-tokens", tag = "tokens", request_body = CreateEnrolToken, responses(
    (status = 201, body = CreatedEnrolToken),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn create_enrol(
    State(door): State<Shared>,
    caller: Caller,
    Body(wanted): Body<CreateEnrolToken>,
) -> Result<(StatusCode, Json<CreatedEnrolToken>), Refusal> {
    caller.may(Act::Operate)?;
    let scope = enrol_scope(&wanted, OffsetDateTime::now_utc())?;
    caller.may_in(Act::Operate, &scope.namespace)?;
    let (secret, hash) = generate(TokenKind::Enrol)?;
    door.store.create_enrol_token(caller.actor(), scope.clone(), hash).await?;
    door.ring([Hint::Event]);
    let token = enrol_view(&scope, 0, None, None);
    Ok((StatusCode::CREATED, Json(CreatedEnrolToken { token, secret: secret.reveal().to_owned() })))
}

fn generate(kind: TokenKind) -> Result<(Token, TokenHash), Refusal> {
    let token = Token::generate(kind).map_err(|error| Refusal::defect(&error))?;
    let hash = TokenHash(*token.hash().as_bytes());
    Ok((token, hash))
}

/// Checks everything that is asked for, all faults at once.
fn enrol_scope(wanted: &CreateEnrolToken, now: OffsetDateTime) -> Result<EnrolTokenCreated, Refusal> {
    let mut faults = Vec::new();
    let namespace = match &wanted.namespace {
        None => Some(Name::default_namespace()),
        Some(text) => name_of("namespace", text, &mut faults),
    };
    let region = wanted.region.as_deref().map(|text| name_of("region", text, &mut faults));
    let owner = wanted.owner.as_deref().map(|text| label_of("owner", text, &mut faults));
    let host = host_of(&wanted.labels, wanted, &mut faults);
    let address_scope = scope_of(&wanted.address_scope, &mut faults);
    let uses_max = wanted.uses.unwrap_or(1);
    if !(1..=USES_MAX).contains(&uses_max) {
        faults.push(finding("uses", "uses", format!("a token enrols 1 to {USES_MAX} hosts")));
    }
    let ttl_s = wanted.ttl_s.unwrap_or(ENROL_TTL_S_DEFAULT);
    if !(1..=ENROL_TTL_S_MAX).contains(&ttl_s) {
        faults.push(finding("ttl_s", "ttl", format!("a token is good for 1 to {ENROL_TTL_S_MAX} seconds")));
    }
    match (namespace, host, address_scope) {
        (Some(namespace), Some((labels, ports)), Some(address_scope)) if faults.is_empty() => Ok(EnrolTokenCreated {
            token: EnrolTokenId::new(Uuid::now_v7()),
            namespace,
            labels,
            ports,
            region: region.flatten(),
            owner: owner.flatten(),
            address_scope,
            uses_max,
            expires_at: now + time::Duration::seconds(i64::try_from(ttl_s).unwrap_or(i64::MAX)),
        }),
        _ => Err(Refusal::invalid_all(faults)),
    }
}

fn name_of(path: &str, text: &str, faults: &mut Vec<Finding>) -> Option<Name> {
    match text.parse::<Name>() {
        Ok(name) => Some(name),
        Err(error) => {
            faults.push(finding(path, "name", error.to_string()));
            None
        }
    }
}

fn label_of(path: &str, text: &str, faults: &mut Vec<Finding>) -> Option<Label128> {
    match Label128::try_from(text.to_owned()) {
        Ok(label) if !text.is_empty() => Some(label),
        Ok(_) => {
            faults.push(finding(path, "text", "the text is empty"));
            None
        }
        Err(error) => {
            faults.push(finding(path, "text", error.to_string()));
            None
        }
    }
}

/// One document of ours, read by the reader of documents; its faults are told under the request's own names.
fn read_document(kind: &str, spec: &serde_json::Value, faults: &mut Vec<Finding>) -> Option<Spec> {
    let document =
        json!({ "apiVersion": "holdfast.dev/v1", "kind": kind, "metadata": { "name": "token" }, "spec": spec });
    let source = Source { name: String::new(), text: document.to_string() };
    match holdfast_documents::read(&[source]) {
        Ok(mut objects) => objects.pop().map(|object| object.spec),
        Err(found) => {
            faults.extend(findings(&found).into_iter().map(|mut fault| {
                (fault.document, fault.line) = (0, 0);
                fault.path = fault.path.trim_start_matches("spec.").replace("cidrs", "address_scope");
                fault
            }));
            None
        }
    }
}

fn host_of(
    labels: &BTreeMap<String, String>,
    wanted: &CreateEnrolToken,
    faults: &mut Vec<Finding>,
) -> Option<(Labels, Vec<DeclaredPort>)> {
    let spec = json!({ "labels": labels, "ports": wanted.ports });
    match read_document("Host", &spec, faults)? {
        Spec::Host(host) => Some((host.labels, host.ports.unwrap_or_default())),
        Spec::AddressGroup(_) | Spec::Endpoint(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_) => {
            None
        }
    }
}

fn scope_of(prefixes: &[String], faults: &mut Vec<Finding>) -> Option<Vec<IpNet>> {
    match read_document("AddressGroup", &json!({ "cidrs": prefixes }), faults)? {
        Spec::AddressGroup(group) => Some(group.cidrs),
        Spec::Host(_) | Spec::Endpoint(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_) => None,
    }
}

fn enrol_view(
    scope: &EnrolTokenCreated,
    uses: u32,
    created_at: Option<OffsetDateTime>,
    revoked_at: Option<OffsetDateTime>,
) -> EnrolTokenView {
    EnrolTokenView {
        id: scope.token.to_string(),
        namespace: scope.namespace.to_string(),
        labels: scope.labels.clone(),
        ports: scope.ports.iter().map(port_view).collect(),
        region: scope.region.as_ref().map(ToString::to_string),
        owner: scope.owner.as_ref().map(ToString::to_string),
        address_scope: scope.address_scope.iter().map(ToString::to_string).collect(),
        uses_max: scope.uses_max,
        uses,
        created_at: created_at.map(rfc3339),
        expires_at: rfc3339(scope.expires_at),
        revoked_at: revoked_at.map(rfc3339),
    }
}

/// Enrolment tokens, newest first.
#[utoipa::path(get, path = "/v1/enrol-tokens", tag = "tokens", responses(
    (status = 200, body = Vec<EnrolTokenView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list_enrol(
    State(door): State<Shared>,
    caller: Caller,
) -> Result<Json<Vec<EnrolTokenView>>, Refusal> {
    caller.may(Act::Operate)?;
    let tokens = door.store.list_enrol_tokens().await?;
    let seen = tokens.iter().filter(|token| caller.sees(&token.scope.namespace));
    let view = |token: &EnrolTokenEntry| enrol_view(&token.scope, token.uses, Some(token.created_at), token.revoked_at);
    Ok(Json(seen.map(view).collect()))
}

/// Revokes an enrolment token; hosts that it enrolled stay.
#[utoipa::path(delete, path = "/v1/enrol-tokens/{id}", tag = "tokens", params(
    ("id" = String, Path, description = "`et_…`"),
), responses(
    (status = 204, description = "Revoked"),
    (status = 404, description = "There is no such token", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It was revoked before", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke_enrol(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    caller.may(Act::Operate)?;
    let id: EnrolTokenId = id.parse().map_err(bad_id)?;
    let tokens = door.store.list_enrol_tokens().await?;
    let seen = tokens.iter().find(|token| token.scope.token == id && caller.sees(&token.scope.namespace));
    seen.ok_or_else(|| Refusal::not_found(format!("enrolment token {id}")))?;
    revoked(&door, door.store.revoke_enrol_token(caller.actor(), id).await?)
}

fn bad_id(error: IdError) -> Refusal {
    Refusal::invalid("id", "id", error.to_string())
}

fn revoked(door: &Shared, is_new: bool) -> Result<StatusCode, Refusal> {
    if !is_new {
        return Err(Refusal::new(ProblemType::AlreadyRevoked, "the token was revoked before"));
    }
    door.ring([Hint::Event]);
    Ok(StatusCode::NO_CONTENT)
}

/// Makes an API token.
#[utoipa::path(post, path = "/v1/api-tokens", tag = "tokens", request_body = CreateApiToken, responses(
    (status = 201, body = CreatedApiToken),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn create_api(
    State(door): State<Shared>,
    caller: Caller,
    Body(wanted): Body<CreateApiToken>,
) -> Result<(StatusCode, Json<CreatedApiToken>), Refusal> {
    caller.may(Act::Administer)?;
    let created = api_token(&wanted, OffsetDateTime::now_utc())?;
    may_give(&caller, &created.namespaces)?;
    let (secret, hash) = generate(TokenKind::Api)?;
    door.store.create_api_token(caller.actor(), created.clone(), hash).await?;
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

fn api_token(wanted: &CreateApiToken, now: OffsetDateTime) -> Result<ApiTokenCreated, Refusal> {
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

/// API tokens, newest first.
#[utoipa::path(get, path = "/v1/api-tokens", tag = "tokens", responses(
    (status = 200, body = Vec<ApiTokenView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list_api(State(door): State<Shared>, caller: Caller) -> Result<Json<Vec<ApiTokenView>>, Refusal> {
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
#[utoipa::path(delete, path = "/v1/api-tokens/{id}", tag = "tokens", params(
    ("id" = String, Path, description = "`at_…`"),
), responses(
    (status = 204, description = "Revoked"),
    (status = 404, description = "There is no such token", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It was revoked before", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke_api(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    caller.may(Act::Administer)?;
    let id: ApiTokenId = id.parse().map_err(bad_id)?;
    let tokens = door.store.list_api_tokens().await?;
    let seen = |token: &&ApiTokenEntry| token.grant.token == id && may_give(&caller, &token.grant.namespaces).is_ok();
    tokens.iter().find(seen).ok_or_else(|| Refusal::not_found(format!("API token {id}")))?;
    revoked(&door, door.store.revoke_api_token(caller.actor(), id).await?)
}

#[cfg(test)]
mod tests;
