//! `GET /v1/plane`: whether everything that a change needs on its way is there, and what to do where it is not.
//!
//! - What is asked is what this door can reach: its database, its bus, the leases with their holders' words, the audit service.
//! - A look is shared by everybody who asks within a second, so that asking costs the database nothing more.
//! - What was seen is told to tokens that reach all namespaces; to others only whether it is well, and what to do.

mod judge;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use holdfast_api::audit::Place;
use holdfast_api::plane::{PlaneCheck, PlaneView};
use holdfast_api::problem::Problem;
use holdfast_identity::https;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use holdfast_runtime::Chain;
use holdfast_store::Error as StoreError;
use holdfast_store::plane::{EventPlace, PlaneFacts, WaitingEvents};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::audit::AuditDoor;
use super::auth::{Act, Caller};
use super::door::{Door, Shared};
use super::hosts::rfc3339;
use super::refuse::Refusal;
use super::shared::SharedRead;
use super::tokens::api;

/// How long what was seen is good for everybody who asks.
const LOOK_GOOD_FOR: Duration = Duration::from_secs(1);
/// How long the audit service may take to say how it is.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The control plane as this door knows it, and the token that was shown.
#[utoipa::path(get, path = "/v1/plane", operation_id = "get_plane", tag = "status", responses(
    (status = 200, body = PlaneView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn plane(State(door): State<Shared>, caller: Caller) -> Result<Json<PlaneView>, Refusal> {
    caller.may(Act::Read)?;
    let token = api::shown(&door, &caller).await?;
    let mut checks = checks(&door).await?;
    if !caller.reaches_all() {
        checks.iter_mut().for_each(hide);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(PlaneView { version, now: rfc3339(OffsetDateTime::now_utc()), token, checks }))
}

/// Every check, as it was within the last second.
pub(super) async fn checks(door: &Door) -> Result<Vec<PlaneCheck>, Refusal> {
    let look = door.plane.look(door).await?;
    Ok(judge::judge(&look, *door.bus.borrow()))
}

/// Every check, and the events that wait for each step to the stream; nothing where it is not known how many.
pub(super) async fn gauged(
    door: &Door,
) -> Result<(Vec<PlaneCheck>, [(&'static str, Option<WaitingEvents>); 2]), Refusal> {
    let look = door.plane.look(door).await?;
    let (unnumbered, unrelayed) = match &look {
        Look::Unmigrated(_) => (None, None),
        Look::Seen { facts, .. } => (Some(facts.unnumbered), facts.unrelayed),
    };
    Ok((judge::judge(&look, *door.bus.borrow()), [("number", unnumbered), ("stream", unrelayed)]))
}

/// Takes away what a token of some namespaces has no business with: names and addresses of processes, counts over all namespaces.
fn hide(check: &mut PlaneCheck) {
    check.detail = None;
}

/// The last look.
#[derive(Debug, Default)]
pub(crate) struct PlaneLook(SharedRead<Look>);

/// What was seen.
#[derive(Clone, Debug)]
enum Look {
    /// The database is not in the form of this build, and why: nothing of it can be read.
    Unmigrated(String),
    /// What the database knows, and the audit service.
    Seen {
        /// Of processes, leases and events.
        facts: Box<PlaneFacts>,
        /// Of the audit log.
        audit: AuditSeen,
    },
}

/// What was seen of the audit service.
#[derive(Clone, PartialEq, Eq, Debug)]
enum AuditSeen {
    /// This door was not told where it is.
    NotTold,
    /// It does not answer as it should, and how.
    Away(String),
    /// What it says of itself.
    Says(AuditHealth),
}

/// What the audit service says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct AuditHealth {
    place: Option<Place>,
    missing: Option<Place>,
    reading: bool,
}

impl PlaneLook {
    /// The last look if it is young enough, else a new one. Who asks meanwhile waits for it.
    async fn look(&self, door: &Door) -> Result<Look, Refusal> {
        let now = Instant::now();
        let since = now.checked_sub(LOOK_GOOD_FOR).unwrap_or(now);
        self.0.read_since(since, || look(door)).await
    }
}

async fn look(door: &Door) -> Result<Look, Refusal> {
    match door.store.check_migrated().await {
        Ok(()) => {}
        Err(error @ (StoreError::Unmigrated { .. } | StoreError::ForeignMigration { .. })) => {
            return Ok(Look::Unmigrated(Chain(&error).to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    let audit = match &door.audit {
        None => AuditSeen::NotTold,
        Some(audit) => ask(audit).await.map_or_else(AuditSeen::Away, AuditSeen::Says),
    };
    let audited = match &audit {
        AuditSeen::Says(AuditHealth { place: Some(place), .. }) => Some(event_place(*place)),
        AuditSeen::Says(_) | AuditSeen::NotTold | AuditSeen::Away(_) => None,
    };
    Ok(Look::Seen { facts: Box::new(door.store.plane_facts(audited).await?), audit })
}

/// The latest epoch that the audit log knows; nothing if it is empty or this door was not told of it.
///
/// # Errors
/// Why the audit service could not be asked.
pub(super) async fn audited_epoch(door: &Door) -> Result<Option<AuthorityEpoch>, String> {
    let Some(audit) = &door.audit else { return Ok(None) };
    Ok(ask(audit).await?.place.map(|place| AuthorityEpoch::from_raw(place.authority_epoch)))
}

fn event_place(place: Place) -> EventPlace {
    (AuthorityEpoch::from_raw(place.authority_epoch), EventSeq::from_raw(place.seq))
}

async fn ask(audit: &AuditDoor) -> Result<AuditHealth, String> {
    let request = https::Request::new(Method::GET, audit.url("status")).timeout(AUDIT_TIMEOUT);
    let response = audit.client().request(request).await.map_err(|error| Chain(&error).to_string())?;
    if response.status != StatusCode::OK {
        return Err(format!("the audit service answers {}", response.status));
    }
    serde_json::from_slice(&response.body).map_err(|_| "the audit service answers what is not understood".to_owned())
}
