//! Enrolment tokens. Labels, ports and prefixes pass the very grammar of documents.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_api::problem::{Finding, Problem};
use holdfast_api::token::{
    CreateEnrolToken, CreatedEnrolToken, ENROL_TTL_S_DEFAULT, ENROL_TTL_S_MAX, EnrolTokenView, USES_MAX,
};
use holdfast_documents::Source;
use holdfast_events::{EnrolTokenCreated, Hint};
use holdfast_identity::TokenKind;
use holdfast_model::ids::EnrolTokenId;
use holdfast_model::intent::{DeclaredPort, Spec};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_store::once::Once;
use holdfast_store::token::EnrolTokenEntry;
use ipnet::IpNet;
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{bad_id, generate, label_of, name_of, revoked};
use crate::operators::auth::{Act, Caller};
use crate::operators::door::Shared;
use crate::operators::hosts::{port_view, rfc3339};
use crate::operators::refuse::{Refusal, finding, findings};
use crate::operators::request::{Body, Key};

/// Makes an enrolment token.
#[utoipa::path(post, path = "/v1/enrol-tokens", operation_id = "create_enrol_token", tag = "tokens", request_body = CreateEnrolToken, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
), responses(
    (status = 201, body = CreatedEnrolToken),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    State(door): State<Shared>,
    caller: Caller,
    Body { value: wanted, key }: Body<CreateEnrolToken>,
) -> Result<(StatusCode, Json<CreatedEnrolToken>), Refusal> {
    caller.may(Act::Operate)?;
    let scope = enrol_scope(&wanted, OffsetDateTime::now_utc())?;
    caller.may_in(Act::Operate, &scope.namespace)?;
    let (secret, hash) = generate(TokenKind::Enrol)?;
    let key = key.map(|key| key.of(&caller));
    match door.store.create_enrol_token_once(caller.actor(), scope.clone(), hash, key).await? {
        Once::Now(()) => {}
        Once::Before(token) => return Err(Refusal::secret_not_kept(token)),
        Once::Other => return Err(Refusal::other_request()),
    }
    door.ring([Hint::Event]);
    let token = enrol_view(&scope, 0, None, None);
    Ok((StatusCode::CREATED, Json(CreatedEnrolToken { token, secret: secret.reveal().to_owned() })))
}

/// Checks everything that is asked for, all faults at once.
pub(super) fn enrol_scope(wanted: &CreateEnrolToken, now: OffsetDateTime) -> Result<EnrolTokenCreated, Refusal> {
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
#[utoipa::path(get, path = "/v1/enrol-tokens", operation_id = "list_enrol_tokens", tag = "tokens", responses(
    (status = 200, body = Vec<EnrolTokenView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(State(door): State<Shared>, caller: Caller) -> Result<Json<Vec<EnrolTokenView>>, Refusal> {
    caller.may(Act::Operate)?;
    let tokens = door.store.list_enrol_tokens().await?;
    let seen = tokens.iter().filter(|token| caller.sees(&token.scope.namespace));
    let view = |token: &EnrolTokenEntry| enrol_view(&token.scope, token.uses, Some(token.created_at), token.revoked_at);
    Ok(Json(seen.map(view).collect()))
}

/// Revokes an enrolment token; hosts that it enrolled stay.
#[utoipa::path(delete, path = "/v1/enrol-tokens/{id}", operation_id = "revoke_enrol_token", tag = "tokens", params(
    ("id" = String, Path, description = "`et_…`"),
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
    caller.may(Act::Operate)?;
    let id: EnrolTokenId = id.parse().map_err(bad_id)?;
    let tokens = door.store.list_enrol_tokens().await?;
    let seen = tokens.iter().find(|token| token.scope.token == id && caller.sees(&token.scope.namespace));
    seen.ok_or_else(|| Refusal::not_found(format!("enrolment token {id}")))?;
    let key = key.map(|key| key.of(&caller));
    revoked(&door, door.store.revoke_enrol_token_once(caller.actor(), id, key).await?)
}
