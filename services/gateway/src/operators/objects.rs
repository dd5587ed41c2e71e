//! Authored objects: apply, delete, list, one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderName;
use axum::response::AppendHeaders;
use holdfast_api::brake::Acknowledgement;
use holdfast_api::object::{ApplyRequest, ApplyResponse, Change, DeleteRequest, ObjectView, Page};
use holdfast_api::problem::Problem;
use holdfast_documents::near::did_you_mean;
use holdfast_events::{Hint, OperationVerb};
use holdfast_model::ids::RolloutId;
use holdfast_model::intent::{Kind, Object, ObjectKey, Spec};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::stage::StageSpec;
use holdfast_runtime::fail_point;
use holdfast_store::intent::{Applied, ChangeKind, KeptChange};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::brake::{self, Asked};
use super::cursor;
use super::door::Shared;
use super::etag::{self, IfMatch, Tag};
use super::intent::Snapshot;
use super::names::{host_name, suggestion};
use super::plan::{Wanted, check_digest, plan_now, views};
use super::refuse::Refusal;
use super::request::{Body, Key, LargeBody, NamedRequest, Params};
use super::rollouts::{self, InStages};

/// How many bytes of documents one page has before it ends: half of what clients take of an answer.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Puts objects in force; all of them or none.
#[utoipa::path(post, path = "/v1/apply", operation_id = "apply", tag = "objects", request_body = ApplyRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the intent that was read: refused if there is a later revision"),
), responses(
    (status = 200, body = ApplyResponse),
    (status = 409, description = "There is a later revision, or another plan, or another request has this name", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The documents have faults", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn apply(
    State(door): State<Shared>,
    caller: Caller,
    tag: IfMatch,
    body: LargeBody<ApplyRequest>,
) -> Result<Answered, Refusal> {
    caller.may(Act::Edit)?;
    let LargeBody { mut value, permit, key } = body;
    let in_stages = InStages::read(&caller, Act::Edit, value.rollout.take())?;
    let mut expected = etag::expected(value.expected_revision, tag)?;
    let acknowledge = value.acknowledge.clone();
    let demanded = value.expected_plan.clone();
    let wanted = Arc::new(Wanted::read(value, &caller, Act::Edit)?);
    let named = wanted.puts.iter().map(Object::key).collect();
    let key = key.map(|key| key.of(&caller));
    if demanded.is_some() {
        // The plan of what was done already would be another one.
        if let Some(key) = key.clone()
            && let Some(before) = door.store.recall_intent(key).await?
        {
            return answer(&door, None, (before, None), named, expected).await;
        }
        let (_, plan) = plan_now(&door, Arc::clone(&wanted), in_stages.as_ref()).await?;
        if let Err(refusal) = check_digest(&plan, demanded.as_deref()) {
            // Another that came at once may have done it while this one planned.
            let before = match key {
                Some(key) => door.store.recall_intent(key).await?,
                None => None,
            };
            return match before {
                Some(before) => answer(&door, None, (before, None), named, expected).await,
                None => Err(refusal),
            };
        }
        // What was planned is done on what it was planned on, or not at all.
        expected = expected.or(Some(plan.base_revision.raw()));
    }
    let (wanted, verb) = (brake::fixed(wanted), OperationVerb::Apply);
    let asked = Asked { wanted, verb, expected, only_if: None, key, acknowledge, in_stages };
    let (base, applied) = brake::store(&door, &caller, asked).await?;
    let response = answer(&door, Some(&base), applied, named, expected).await?;
    drop(permit);
    Ok(response)
}

/// An answer, and whether it is of what was done before.
pub(crate) type Answered = (AppendHeaders<Option<(HeaderName, &'static str)>>, Json<ApplyResponse>);

/// Says that an answer is of what was done before, under the name of the request.
const REPLAYED: (HeaderName, &str) = (HeaderName::from_static("idempotency-replayed"), "true");

/// Tells what was done, and rings.
pub(crate) async fn answer(
    door: &Shared,
    base: Option<&Snapshot>,
    (applied, mut rollout): (Applied, Option<RolloutId>),
    named: Vec<ObjectKey>,
    expected: Option<u64>,
) -> Result<Answered, Refusal> {
    let mut changes: BTreeMap<ObjectKey, Change> = named.into_iter().map(|key| (key, Change::Unchanged)).collect();
    let (mut replayed, mut by) = (None, None);
    let revision = match applied {
        Applied::OtherRequest => return Err(Refusal::other_request()),
        Applied::Moved { revision } => return Err(Refusal::stale(revision, expected.unwrap_or_default())),
        Applied::Missing { missing } => return Err(Refusal::none_of(&missing)),
        Applied::NoRollout(obstacle) => return Err(Refusal::no_rollout(obstacle)),
        Applied::Before(KeptChange { revision, operation, rollout: begun }) => {
            rollout = begun;
            if operation.is_some() {
                changes.extend(door.store.changes_of(revision).await?.into_iter().map(|(key, kind)| (key, word(kind))));
            }
            tracing::info!(%revision, "a change was asked for again, and is answered");
            (replayed, by) = (Some(REPLAYED), operation);
            revision
        }
        Applied::Unchanged { revision } => revision,
        Applied::Changed { revision, operation, put, deleted } => {
            fail_point("a change", "stored, before hints and answer");
            door.ring([Hint::Intent, Hint::Event]);
            tracing::info!(%revision, %operation, put = put.len(), deleted = deleted.len(), "intent changed");
            let created = created(door, base, revision, &put).await;
            for key in put {
                let change = if created.contains(&key) { Change::Created } else { Change::Updated };
                changes.insert(key, change);
            }
            changes.extend(deleted.into_iter().map(|key| (key, Change::Deleted)));
            by = Some(operation);
            revision
        }
    };
    let mut warnings = warnings(door, changes.keys()).await;
    warnings.extend(held(door, rollout, "they get this when their stage opens").await);
    let (operation, unchanged) = (by.map(|operation| operation.to_string()), by.is_none());
    let rollout = rollout.map(|rollout| rollout.to_string());
    let (revision, objects) = (revision.raw(), views(changes));
    let is_replayed = replayed.is_some();
    let response = ApplyResponse { revision, operation, rollout, unchanged, replayed: is_replayed, objects, warnings };
    Ok((AppendHeaders(replayed), Json(response)))
}

/// What a revision did to something, as answers have it.
pub(crate) const fn word(kind: ChangeKind) -> Change {
    match kind {
        ChangeKind::Created => Change::Created,
        ChangeKind::Updated => Change::Updated,
        ChangeKind::Deleted => Change::Deleted,
    }
}

/// What is odd about objects that are in force now.
async fn warnings(door: &Shared, keys: impl Iterator<Item = &ObjectKey>) -> Vec<String> {
    match door.intent.current().await {
        Ok(snapshot) => snapshot.warnings(keys),
        Err(error) => {
            // The change is made: failing now would say otherwise.
            tracing::warn!(%error, "what is odd about a change cannot be told");
            Vec::new()
        }
    }
}

/// What the open rollout holds back of a change, if it does: this change's own, or another's; and what comes of that.
pub(crate) async fn held(door: &Shared, own: Option<RolloutId>, outcome: &str) -> Vec<String> {
    let open = match door.store.open_rollout().await {
        Ok(open) => open,
        Err(error) => {
            // The change is made: failing now would say otherwise.
            tracing::warn!(%error, "what a rollout holds back of a change cannot be told");
            return Vec::new();
        }
    };
    let Some(open) = open else { return Vec::new() };
    let Some(held) = rollouts::held_view(&open) else { return Vec::new() };
    let mut said = vec![format!("{}: {outcome}", held.text())];
    if let Some(rest) = open.stages.last().filter(|last| own == Some(open.id) && last.stage == StageSpec::Rest) {
        said.push(format!("no stage names {} of them: they are its last stage", rest.hosts));
    }
    said
}

/// Which of the objects that a revision put were not in force before it.
async fn created(door: &Shared, base: Option<&Snapshot>, revision: Revision, put: &[ObjectKey]) -> Vec<ObjectKey> {
    let was_there = |intent: &holdfast_model::intent::Intent, key: &ObjectKey| intent.objects.contains_key(key);
    if let Some(base) = base.filter(|base| base.revision.next() == Some(revision)) {
        return put.iter().filter(|key| !was_there(&base.intent, key)).cloned().collect();
    }
    // Somebody else changed something in between: the state just before this revision decides.
    let before = Revision::from_raw(revision.raw().saturating_sub(1));
    match door.past(before).await {
        Ok(past) => put.iter().filter(|key| !was_there(&past.intent, key)).cloned().collect(),
        Err(refusal) => {
            // The change is made: failing now would say otherwise.
            tracing::warn!(?refusal, "which objects are new cannot be told");
            Vec::new()
        }
    }
}

/// The key of an object by its three words.
pub(crate) fn key_of(kind: &str, namespace: &str, name: &str) -> Result<ObjectKey, Refusal> {
    let kind = kind_of(kind)?;
    let read = |path: &str, text: &str| -> Result<Name, Refusal> {
        text.parse().map_err(|error: holdfast_model::name::NameError| Refusal::invalid(path, "name", error.to_string()))
    };
    let (namespace, name) = (read("namespace", namespace)?, read("name", name)?);
    // A Namespace is in the namespace of its own name, whatever the path says in its place.
    let namespace = if kind == Kind::Namespace { name.clone() } else { namespace };
    Ok(ObjectKey { kind, namespace, name })
}

/// The kind with a word, in any case and also in the plural.
fn kind_of(word: &str) -> Result<Kind, Refusal> {
    let lower = word.to_ascii_lowercase();
    let fits = |kind: &Kind| {
        let known = kind.word().to_ascii_lowercase();
        let plural = known.strip_suffix('y').map_or_else(|| format!("{known}s"), |stem| format!("{stem}ies"));
        lower == known || lower == plural
    };
    Kind::ALL.into_iter().find(fits).ok_or_else(|| {
        let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        let near = did_you_mean(word, words.iter().copied());
        Refusal::invalid("kind", "kind-unknown", format!("`{}` is none of {}{near}", cut(word), words.join(", ")))
    })
}

/// The key of `Kind/namespace/name`, or of `Namespace/name`.
fn key_of_text(text: &str) -> Result<ObjectKey, Refusal> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [kind, name] if kind_of(kind)? == Kind::Namespace => key_of(kind, name, name),
        [kind, namespace, name] => key_of(kind, namespace, name),
        _ => {
            let message = format!("`{}` is no object: write Kind/namespace/name or Namespace/name", cut(text));
            Err(Refusal::invalid("objects", "object", message))
        }
    }
}

/// The keys of several, each once.
pub(crate) fn keys_of_texts(texts: &[String]) -> Result<BTreeSet<ObjectKey>, Refusal> {
    texts.iter().map(|text| key_of_text(text)).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteQuery {
    /// That it is meant to take as much away as it does: the digest that the refusal named.
    acknowledge: Option<String>,
    /// Why it is meant, for the audit log; beside an acknowledgement alone.
    because: Option<String>,
}

/// Takes one object out of force.
#[utoipa::path(delete, path = "/v1/objects/{kind}/{namespace}/{name}", operation_id = "delete_object", tag = "objects", params(
    ("kind" = String, Path, description = "As `Policy`"),
    ("namespace" = String, Path, description = "Of a Namespace its own name"),
    ("name" = String, Path, description = "Its name"),
    DeleteQuery,
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the object that was read: refused if it is another now"),
), responses(
    (status = 200, body = ApplyResponse),
    (status = 404, description = "There is no such object", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The object is not the one that was read", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(
    State(door): State<Shared>,
    caller: Caller,
    IfMatch(shown): IfMatch,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    Params(query): Params<DeleteQuery>,
    Key(named): Key,
) -> Result<Answered, Refusal> {
    let key = key_of(&kind, &namespace, &name)?;
    let because = query.because.unwrap_or_default();
    let acknowledge = query.acknowledge.map(|digest| Acknowledgement { digest, because });
    let (request, only_if) =
        (DeleteRequest { acknowledge, ..DeleteRequest::default() }, shown.map(|shown| (key.clone(), shown)));
    take_out(&door, &caller, BTreeSet::from([key]), request, only_if, named).await
}

/// Takes objects out of force; all of them or none.
#[utoipa::path(post, path = "/v1/delete", operation_id = "delete_objects", tag = "objects", request_body = DeleteRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the intent that was read: refused if there is a later revision"),
), responses(
    (status = 200, body = ApplyResponse),
    (status = 404, description = "Some of them are not there; nothing was changed", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "There is a later revision, or another request has this name", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn delete_all(
    State(door): State<Shared>,
    caller: Caller,
    tag: IfMatch,
    Body { value: mut request, key }: Body<DeleteRequest>,
) -> Result<Answered, Refusal> {
    request.expected_revision = etag::expected(request.expected_revision, tag)?;
    let keys = keys_of_texts(&request.objects)?;
    if keys.is_empty() {
        return Err(Refusal::invalid("objects", "required", "name at least one object"));
    }
    take_out(&door, &caller, keys, request, None, key).await
}

async fn take_out(
    door: &Shared,
    caller: &Caller,
    keys: BTreeSet<ObjectKey>,
    request: DeleteRequest,
    only_if: Option<(ObjectKey, u64)>,
    named: Option<NamedRequest>,
) -> Result<Answered, Refusal> {
    keys.iter().try_for_each(|key| caller.may_change(Act::Edit, key))?;
    let wanted = Arc::new(Wanted { deletes: keys, ..Wanted::default() });
    let (expected, key) = (request.expected_revision, named.map(|named| named.of(caller)));
    let asked = Asked {
        wanted: brake::fixed(wanted),
        verb: OperationVerb::Delete,
        expected,
        only_if,
        key,
        acknowledge: request.acknowledge,
        in_stages: InStages::read(caller, Act::Edit, request.rollout)?,
    };
    let (base, applied) = brake::store(door, caller, asked).await?;
    answer(door, Some(&base), applied, Vec::new(), expected).await
}

fn view(key: &ObjectKey, spec: &Spec, with_document: bool) -> ObjectView {
    let document = with_document.then(|| {
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        holdfast_documents::write(&Object { namespace, name, spec: spec.clone() })
    });
    ObjectView {
        object: key.to_string(),
        kind: key.kind.word().to_owned(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        document,
        revision: None,
        governs: None,
    }
}

/// One object with its document.
#[utoipa::path(get, path = "/v1/objects/{kind}/{namespace}/{name}", operation_id = "get_object", tag = "objects", params(
    ("kind" = String, Path, description = "As `Policy`"),
    ("namespace" = String, Path, description = "Of a Namespace its own name"),
    ("name" = String, Path, description = "Its name"),
), responses(
    (status = 200, body = ObjectView),
    (status = 404, description = "There is no such object", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(door): State<Shared>,
    caller: Caller,
    Path((kind, namespace, name)): Path<(String, String, String)>,
) -> Result<(AppendHeaders<Tag>, Json<ObjectView>), Refusal> {
    caller.may(Act::Read)?;
    let key = key_of(&kind, &namespace, &name)?;
    let snapshot = door.intent.current().await?;
    let object = snapshot.object(&key).filter(|_| caller.sees(&key.namespace));
    let object = object.ok_or_else(|| Refusal::not_found(format!("{key}{}", near_object(&snapshot, &caller, &key))))?;
    let hosts = snapshot.governed_by(&key);
    let governs = hosts.map(|hosts| hosts.into_iter().map(host_name).collect());
    // Of the very revision that is shown: one that came since has a tag of its own.
    let since = door.store.object_since(key.clone(), snapshot.revision).await?;
    let since = since.ok_or_else(|| Refusal::not_found(&key))?;
    let view = ObjectView { revision: Some(since.raw()), governs, ..view(&key, &object.spec, true) };
    Ok((AppendHeaders(etag::etag(since)), Json(view)))
}

/// An object of the kind that the caller may see and may have meant, as words to be put after a refusal.
fn near_object(snapshot: &Snapshot, caller: &Caller, asked: &ObjectKey) -> String {
    let seen = snapshot.intent.objects.keys().filter(|key| key.kind == asked.kind && caller.sees(&key.namespace));
    let known: Vec<String> = seen.map(ToString::to_string).collect();
    suggestion(&asked.to_string(), known.iter().map(String::as_str))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only this kind.
    kind: Option<String>,
    /// Only this namespace.
    namespace: Option<String>,
    /// Whether each item has its document.
    #[serde(default)]
    documents: bool,
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// Objects in force, by kind, namespace and name.
#[utoipa::path(get, path = "/v1/objects", operation_id = "list_objects", tag = "objects", params(ListQuery), responses(
    (status = 200, body = Page<ObjectView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<ListQuery>,
) -> Result<(AppendHeaders<Tag>, Json<Page<ObjectView>>), Refusal> {
    caller.may(Act::Read)?;
    let kind = query.kind.as_deref().map(kind_of).transpose()?;
    let limit = cursor::limit_of(query.limit)?;
    let list = format!("objects {kind:?} {:?}", query.namespace);
    let after: Option<ObjectKey> = cursor::decode(&list, query.cursor.as_deref())?;
    let snapshot = door.intent.current().await?;
    let wanted = |key: &ObjectKey| {
        kind.is_none_or(|kind| kind == key.kind)
            && query.namespace.as_ref().is_none_or(|namespace| namespace == key.namespace.as_str())
            && caller.sees(&key.namespace)
    };
    let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = snapshot.intent.objects.range((begin, Bound::Unbounded)).filter(|(key, _)| wanted(key)).peekable();
    let (mut items, mut bytes, mut last) = (Vec::new(), 0, None);
    while items.len() < limit && bytes < PAGE_BYTES_MAX {
        let Some((key, spec)) = rest.next() else { break };
        let item = view(key, spec, query.documents);
        bytes += item.document.as_ref().map_or(0, |document| document.to_string().len());
        items.push(item);
        last = Some(key);
    }
    let next_cursor = match (rest.peek(), last) {
        (Some(_), Some(last)) => Some(cursor::encode(&list, last)?),
        (Some(_) | None, _) => None,
    };
    let page = Page { items, next_cursor, revision: snapshot.revision.raw() };
    Ok((AppendHeaders(etag::etag(snapshot.revision)), Json(page)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_in_any_case_and_in_the_plural() {
        for word in ["Policy", "policy", "policies", "POLICIES"] {
            assert_eq!(kind_of(word).expect("known"), Kind::Policy);
        }
        assert_eq!(kind_of("networkpolicies").expect("known"), Kind::NetworkPolicy);
        assert_eq!(kind_of("addressgroups").expect("known"), Kind::AddressGroup);
        assert!(kind_of("pod").is_err());
    }

    #[test]
    fn a_namespace_is_in_the_namespace_of_its_own_name() {
        let key = key_of("namespace", "whatever", "edge").expect("a key");
        assert_eq!(key.to_string(), "Namespace/edge");
        assert_eq!(key.namespace.as_str(), "edge");
        assert!(key_of("host", "default", "Not A Name").is_err());
        assert_eq!(key_of_text("namespace/edge").expect("a key").to_string(), "Namespace/edge");
        assert_eq!(key_of_text("Policy/edge/web").expect("a key").to_string(), "Policy/edge/web");
        for text in ["Policy/web", "Policy", "", "Policy/a/b/c"] {
            assert!(key_of_text(text).is_err(), "{text}");
        }
    }
}
