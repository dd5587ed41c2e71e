//! Rollouts: one, many, and what operators ask of them.
//!
//! - They hold hosts of every namespace: beginning, moving and ending one needs a token for all of them. Reading needs none.
//! - Evidence is the one derivation's; what is counted is the hosts that the token may see, and nothing else is named to it.

mod drive;
mod place;
mod start;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::AppendHeaders;
use holdfast_api::object::Page;
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_api::rollout::{HeldView, RolloutStageView, RolloutView};
use holdfast_api::status::HostCounts;
use holdfast_events::{HaltReason, Hint};
use holdfast_model::ids::{IdError, RolloutId};
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use holdfast_model::status::{Counts, State as HostState};
use holdfast_store::once::{Once, RequestKey};
use holdfast_store::rollout::{AbortAnswer, Aborted, KeptAbort, Moved, Rollout};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

pub(crate) use self::drive::run;
use self::place::placed;
pub(crate) use self::start::InStages;
use super::auth::{Act, Caller};
use super::cursor::{PageQuery, Paging};
use super::door::Shared;
use super::etag::{self, IfMatch, Tag};
use super::fleet::{JudgedHost, failure_of};
use super::hosts::rfc3339;
use super::refuse::Refusal;
use super::request::{Key, Params, wait_of};
use super::status::Looks;

/// How many hosts of a stage that are in the way of the next one are named.
const IN_THE_WAY_MAX: usize = 5;
/// What keeps a stage from opening the next one before any host can.
const NOT_RENDERED: &str = "the renderer (it has not rendered the change for every host of this stage)";
/// What a renderer of an older build makes of a rollout.
const RENDERER_HOLDS_NOBODY: &str =
    "the renderer that leads is of a build that knows no rollouts, and holds nobody back: update it";

/// Why it is so, as a caller may read it: what names hosts and objects names those of every namespace.
fn detail(caller: &Caller, rollout: &Rollout) -> String {
    let names_others = match rollout.state {
        RolloutState::Progressing | RolloutState::Paused => false,
        RolloutState::Halted | RolloutState::Finished | RolloutState::Aborted => !rollout.detail.is_empty(),
    };
    let said = if caller.reaches_all() || !names_others { rollout.detail.clone() } else { unnamed(rollout) };
    if rollout.state.is_open() && !rollout.is_known_to_renderer && rollout.halt_reason != Some(HaltReason::Renderer) {
        let apart = if said.is_empty() { "" } else { "; " };
        return format!("{RENDERER_HOLDS_NOBODY}{apart}{said}");
    }
    said
}

/// The same without a name.
fn unnamed(rollout: &Rollout) -> String {
    let (state, stage) = (rollout.state, rollout.stage);
    let reason = rollout.halt_reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    format!(
        "{state} in stage {stage}{reason}; what is said of it names hosts and objects, and is told to tokens for all namespaces"
    )
}

fn view(caller: &Caller, rollout: &Rollout) -> RolloutView {
    let stages = rollout.stages.iter().zip(1_u32..).map(|(stage, number)| RolloutStageView {
        stage: stage.stage.to_string(),
        hosts: stage.hosts,
        opened: number <= rollout.stage,
        now: None,
        in_the_way: Vec::new(),
    });
    RolloutView {
        id: rollout.id.to_string(),
        version: rollout.version,
        operation: rollout.operation.to_string(),
        revision: rollout.revision.raw(),
        held_revision: rollout.held_revision.raw(),
        state: rollout.state.word().to_owned(),
        finished: !rollout.state.is_open(),
        may_move: rollout.state.is_open() && caller.may_everywhere(Act::Edit).is_ok(),
        detail: detail(caller, rollout),
        stage: rollout.stage,
        stages: stages.collect(),
        held_hosts: rollout.held_hosts,
        max_failed: rollout.max_failed,
        max_unknown: rollout.max_unknown,
        stage_timeout_s: rollout.stage_timeout_s,
        actor: rollout.actor.to_string(),
        created_at: rfc3339(rollout.created_at),
        stage_began_at: rfc3339(rollout.stage_began_at),
        finished_at: rollout.finished_at.map(rfc3339),
        abort_revision: rollout.abort_revision.map(Revision::raw),
        overwritten_at: None,
        abort_operation: None,
        left: Vec::new(),
    }
}

/// What the open rollout holds back, if it holds anything back.
pub(crate) fn held_view(rollout: &Rollout) -> Option<HeldView> {
    let hosts = rollout.held_hosts;
    (rollout.state.is_open() && hosts > 0).then(|| HeldView {
        rollout: rollout.id.to_string(),
        revision: rollout.held_revision.raw(),
        hosts,
        state: rollout.state.word().to_owned(),
    })
}

/// A rollout with what is seen of the hosts of each stage.
async fn looked_at(door: &Shared, caller: &Caller, rollout: &Rollout) -> Result<RolloutView, Refusal> {
    let fleet = door.fleet.read_since(Instant::now()).await?;
    let members = door.store.rollout_hosts(rollout.id).await?;
    let mut view = view(caller, rollout);
    // An abort is what took the place of its change: what hosts are proven to have since is that.
    if rollout.state == RolloutState::Aborted {
        return Ok(view);
    }
    view.overwritten_at = door.store.rollout_overwritten_at(rollout).await?.map(Revision::raw);
    let mut hosts: BTreeMap<u32, Vec<&JudgedHost>> = BTreeMap::new();
    for (host, stage) in placed(&members, &fleet.hosts).filter(|(host, _)| caller.sees(&host.status.namespace)) {
        stage.into_iter().for_each(|stage| hosts.entry(stage).or_default().push(host));
    }
    for (stage, number) in view.stages.iter_mut().zip(1_u32..) {
        let hosts = hosts.remove(&number).unwrap_or_default();
        let is_open = stage.opened && rollout.state.is_open();
        // What its hosts are proven to have is what was before the change.
        let is_unrendered = is_open && number == rollout.stage && !rollout.is_rendered();
        let state =
            |host: &&JudgedHost| if is_unrendered && is_proven(host) { HostState::Progressing } else { host.state };
        stage.now = Some(HostCounts::from(hosts.iter().map(state).collect::<Counts>()));
        if is_open {
            let in_the_way = hosts.iter().filter(|host| !is_proven(host)).map(|host| why(host));
            let first = is_unrendered.then(|| NOT_RENDERED.to_owned());
            stage.in_the_way = first.into_iter().chain(in_the_way).take(IN_THE_WAY_MAX).collect();
        }
    }
    Ok(view)
}

fn is_proven(host: &JudgedHost) -> bool {
    matches!(host.state, HostState::Converged | HostState::Degraded)
}

/// A host with what keeps it from being proven.
fn why(host: &JudgedHost) -> String {
    let in_question = host.judged().find(|(_, judged)| judged.state == host.state);
    let reason = in_question.and_then(|(status, judged)| match judged.state {
        HostState::Failed => failure_of(&host.status, status, judged),
        HostState::Converged | HostState::Degraded | HostState::Progressing | HostState::Unknown => {
            judged.missing.map(|missing| missing.word().to_owned())
        }
    });
    let state = host.state;
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}/{} ({state}{reason})", host.status.namespace, host.status.name)
}

fn id_of(text: &str) -> Result<RolloutId, Refusal> {
    text.parse().map_err(|error: IdError| Refusal::invalid("id", "id", error.to_string()))
}

async fn found(door: &Shared, id: RolloutId) -> Result<Rollout, Refusal> {
    door.store.load_rollout(id).await?.ok_or_else(|| Refusal::not_found(format!("rollout {id}")))
}

/// Rollouts, newest first.
#[utoipa::path(get, path = "/v1/rollouts", operation_id = "list_rollouts", tag = "rollouts", params(PageQuery), responses(
    (status = 200, body = Page<RolloutView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<RolloutView>>, Refusal> {
    const LIST: &str = "rollouts";
    caller.may(Act::Read)?;
    let paging = Paging::of(LIST, &query)?;
    let revision = door.store.latest_revision().await?;
    let rollouts = door.store.list_rollouts(paging.before, paging.with_more()).await?;
    let view = |rollout: &Rollout| view(&caller, rollout);
    Ok(Json(paging.page(rollouts, revision, |rollout| &rollout.id, view)?))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OneQuery {
    /// Wait up to this long until it progresses no more, as `30s`; one request waits for a minute at most.
    wait: Option<String>,
}

/// One rollout, with how the hosts of each stage are.
#[utoipa::path(get, path = "/v1/rollouts/{id}", operation_id = "get_rollout", tag = "rollouts", params(
    ("id" = String, Path, description = "`ro_…`"), OneQuery,
), responses(
    (status = 200, body = RolloutView),
    (status = 404, description = "There is no such rollout", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(door): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<OneQuery>,
) -> Result<Answered, Refusal> {
    caller.may(Act::Read)?;
    let id = id_of(&id)?;
    let mut looks = Looks::new(&door, wait_of(query.wait.as_deref())?.unwrap_or_default());
    loop {
        looks.next().await;
        let rollout = found(&door, id).await?;
        if rollout.state != RolloutState::Progressing || looks.is_over() {
            return Ok(answered(looked_at(&door, &caller, &rollout).await?));
        }
    }
}

/// A rollout, and the number of its row.
type Answered = (AppendHeaders<Tag>, Json<RolloutView>);

fn answered(view: RolloutView) -> Answered {
    (AppendHeaders(etag::numbered(view.version)), Json(view))
}

/// What somebody asks of a rollout.
pub(crate) struct Move {
    caller: Caller,
    id: RolloutId,
    /// The number that its row had when it was read.
    shown: Option<u64>,
    key: Option<RequestKey>,
}

impl FromRequestParts<Shared> for Move {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, door: &Shared) -> Result<Self, Refusal> {
        let caller = Caller::from_request_parts(parts, door).await?;
        caller.may_everywhere(Act::Edit)?;
        let path: Result<Path<String>, _> = Path::from_request_parts(parts, door).await;
        let Path(id) = path.map_err(|error| Refusal::invalid("id", "id", error.to_string()))?;
        let id = id_of(&id)?;
        let IfMatch(shown) = IfMatch::from_request_parts(parts, door).await?;
        let Key(key) = Key::from_request_parts(parts, door).await?;
        let key = key.map(|key| key.of(&caller));
        Ok(Self { caller, id, shown, key })
    }
}

/// What is told after a rollout was moved; it is moved, so where its hosts cannot be looked at it is told without them.
async fn moved(door: &Shared, caller: &Caller, id: RolloutId, was: Once<Moved>) -> Result<Answered, Refusal> {
    match was {
        Once::Now(Moved::Done) => {
            tracing::info!(rollout = %id, actor = %caller.actor(), "a rollout was moved");
            door.ring([Hint::Intent, Hint::Event]);
        }
        Once::Before(_) => {}
        Once::Now(Moved::Not(state)) => return Err(not_from(id, state)),
        Once::Now(Moved::Stale(version)) => return Err(Refusal::stale_rollout(id, version)),
        Once::Now(Moved::Unknown) => return Err(Refusal::not_found(format!("rollout {id}"))),
        Once::Other => return Err(Refusal::other_request()),
    }
    let rollout = found(door, id).await.map_err(Refusal::once_made)?;
    Ok(answered(looked_at(door, caller, &rollout).await.unwrap_or_else(|_| view(caller, &rollout))))
}

fn not_from(id: RolloutId, state: RolloutState) -> Refusal {
    Refusal::new(ProblemType::RolloutState, format!("rollout {id} is {state}; nothing was changed"))
}

/// Opens no further stage until it is resumed. Hosts keep what they have.
#[utoipa::path(post, path = "/v1/rollouts/{id}/pause", operation_id = "pause_rollout", tag = "rollouts", params(
    ("id" = String, Path, description = "`ro_…`"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the rollout that was read: refused if something became of it since"),
), responses(
    (status = 200, body = RolloutView),
    (status = 412, description = "It is not as it was read", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It does not progress", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn pause(State(door): State<Shared>, asked: Move) -> Result<Answered, Refusal> {
    let Move { caller, id, shown, key } = asked;
    let was = door.store.pause_rollout(caller.actor(), id, shown, key).await?;
    moved(&door, &caller, id, was).await
}

/// Lets one that was paused or halted go on. What is seen of its hosts counts anew, and its stage has its whole time.
#[utoipa::path(post, path = "/v1/rollouts/{id}/resume", operation_id = "resume_rollout", tag = "rollouts", params(
    ("id" = String, Path, description = "`ro_…`"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the rollout that was read: refused if something became of it since"),
), responses(
    (status = 200, body = RolloutView),
    (status = 412, description = "It is not as it was read", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It was neither paused nor halted", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn resume(State(door): State<Shared>, asked: Move) -> Result<Answered, Refusal> {
    let Move { caller, id, shown, key } = asked;
    let was = door.store.resume_rollout(caller.actor(), id, shown, key).await?;
    moved(&door, &caller, id, was).await
}

/// Puts back what it changed, as a new change, and holds no host any more. What a later change changed again stays, and is named.
#[utoipa::path(post, path = "/v1/rollouts/{id}/abort", operation_id = "abort_rollout", tag = "rollouts", params(
    ("id" = String, Path, description = "`ro_…`"),
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the rollout that was read: refused if something became of it since"),
), responses(
    (status = 200, body = RolloutView),
    (status = 412, description = "It is not as it was read", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It ended before", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn abort(State(door): State<Shared>, asked: Move) -> Result<Answered, Refusal> {
    let Move { caller, id, shown, key } = asked;
    let was = door.store.abort_rollout(caller.actor(), id, shown, key).await?;
    let (operation, left) = match was {
        Once::Now(AbortAnswer::Done(Aborted { change, left })) => {
            tracing::info!(rollout = %id, actor = %caller.actor(), left = left.len(), "a rollout was aborted");
            door.ring([Hint::Intent, Hint::Event]);
            (change.map(|(_, operation)| operation), left.iter().map(ToString::to_string).collect())
        }
        Once::Before(KeptAbort { operation, left, .. }) => (operation, left),
        Once::Now(AbortAnswer::EndedBefore(state)) => return Err(not_from(id, state)),
        Once::Now(AbortAnswer::Stale(version)) => return Err(Refusal::stale_rollout(id, version)),
        Once::Now(AbortAnswer::Unknown) => return Err(Refusal::not_found(format!("rollout {id}"))),
        Once::Other => return Err(Refusal::other_request()),
    };
    let abort_operation = operation.map(|operation| operation.to_string());
    let rollout = found(&door, id).await.map_err(Refusal::once_made)?;
    Ok(answered(RolloutView { abort_operation, left, ..view(&caller, &rollout) }))
}
