//! `POST /v1/restore`: what was in force at a revision, in force again by a new change.
//!
//! - Nothing is taken back: a new revision says what the old one said, and what came in between stays in the history.
//! - Objects alone go back. Which hosts are enrolled, and where they are, is as it is.
//! - It goes through the brake as any change, and is planned by the same code.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_api::history::RestoreRequest;
use holdfast_api::object::ApplyResponse;
use holdfast_api::policy::PlanView;
use holdfast_api::problem::Problem;
use holdfast_events::OperationVerb;
use holdfast_model::intent::{Kind, Object, ObjectKey, Spec};
use holdfast_model::numbers::Revision;

use super::auth::{Act, Caller};
use super::brake::{self, Asked};
use super::door::{Past, Shared};
use super::etag::{IfMatch, expected};
use super::intent::Snapshot;
use super::objects::{Answered, answer, keys_of_texts};
use super::plan::{self, Wanted, plan_of};
use super::refuse::Refusal;
use super::request::Body;
use super::rollouts::InStages;

/// What goes back, and to what.
struct Back {
    then: Past,
    only: BTreeSet<ObjectKey>,
    caller: Caller,
}

impl Back {
    async fn read(door: &Shared, caller: &Caller, request: &RestoreRequest, act: Act) -> Result<Self, Refusal> {
        let only = keys_of_texts(&request.objects)?;
        only.iter().try_for_each(|key| caller.may_change(act, key))?;
        let (wanted, latest) = (Revision::from_raw(request.revision), door.store.latest_revision().await?);
        if wanted == Revision::ZERO || wanted > latest {
            return Err(Refusal::not_found(format!("revision {wanted}: the last is {latest}")));
        }
        let then = door.past(wanted).await?;
        Ok(Self { then, only, caller: caller.clone() })
    }

    /// Whether an object is one of those that go back.
    fn is_meant(&self, key: &ObjectKey) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(key);
        }
        self.caller.sees(&key.namespace) && (key.kind != Kind::Namespace || self.caller.reaches_all())
    }

    /// What differs from a snapshot.
    fn wanted(&self, base: &Snapshot) -> Result<Arc<Wanted>, Refusal> {
        let is_nowhere =
            |key: &&ObjectKey| !self.then.intent.objects.contains_key(*key) && !base.intent.objects.contains_key(*key);
        let missing: Vec<&ObjectKey> = self.only.iter().filter(is_nowhere).collect();
        if !missing.is_empty() {
            return Err(Refusal::none_of(&missing));
        }
        let put = |(key, spec): (&ObjectKey, &Spec)| {
            let is_new = self.is_meant(key) && base.intent.objects.get(key) != Some(spec);
            is_new.then(|| Object { namespace: key.namespace.clone(), name: key.name.clone(), spec: spec.clone() })
        };
        let is_gone = |key: &&ObjectKey| self.is_meant(key) && !self.then.intent.objects.contains_key(*key);
        Ok(Arc::new(Wanted {
            puts: self.then.intent.objects.iter().filter_map(put).collect(),
            deletes: base.intent.objects.keys().filter(is_gone).cloned().collect(),
            ..Wanted::default()
        }))
    }
}

/// Puts what was in force at a revision in force again, all of it or none.
#[utoipa::path(post, path = "/v1/restore", operation_id = "restore", tag = "history", request_body = RestoreRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the intent that was read: refused if there is a later revision"),
), responses(
    (status = 200, body = ApplyResponse),
    (status = 404, description = "There is no such revision or object", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "There is a later revision, or it takes much away", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn restore(
    State(door): State<Shared>,
    caller: Caller,
    tag: IfMatch,
    Body { value: request, key }: Body<RestoreRequest>,
) -> Result<Answered, Refusal> {
    caller.may(Act::Edit)?;
    let on = expected(request.expected_revision, tag)?;
    let back = Back::read(&door, &caller, &request, Act::Edit).await?;
    let asked = Asked {
        wanted: Box::new(move |base| back.wanted(base)),
        verb: OperationVerb::Restore,
        expected: on,
        only_if: None,
        key: key.map(|key| key.of(&caller)),
        acknowledge: request.acknowledge,
        in_stages: InStages::read(&caller, Act::Edit, request.rollout)?,
    };
    let (base, applied) = brake::store(&door, &caller, asked).await?;
    answer(&door, Some(&base), applied, Vec::new(), on).await
}

/// What going back to a revision would change, host by host; writes nothing.
#[utoipa::path(post, path = "/v1/restore/plan", operation_id = "plan_restore", tag = "history", request_body = RestoreRequest, responses(
    (status = 200, body = PlanView),
    (status = 404, description = "There is no such revision or object", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn plan_restore(
    State(door): State<Shared>,
    caller: Caller,
    Body { value: mut request, key: _ }: Body<RestoreRequest>,
) -> Result<Json<PlanView>, Refusal> {
    caller.may(Act::Read)?;
    let in_stages = InStages::read(&caller, Act::Read, request.rollout.take())?;
    let back = Back::read(&door, &caller, &request, Act::Read).await?;
    let base = door.intent.current().await?;
    let wanted = back.wanted(&base)?;
    if let Some(revision) = request.expected_revision.filter(|revision| *revision != base.revision.raw()) {
        return Err(Refusal::stale(base.revision, revision));
    }
    let plan = plan_of(&door, Arc::clone(&base), wanted, in_stages.as_ref()).await?;
    plan::answer(&door, &caller, &base, plan).await
}
