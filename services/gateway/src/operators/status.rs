//! `GET /v1/status`, and waiting for it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use holdfast_api::problem::Problem;
use holdfast_api::status::{StatusView, WaitEnd, WaitFor};
use holdfast_model::numbers::Revision;
use holdfast_runtime::Shutdown;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::door::Shared;
use super::refuse::Refusal;
use super::request::{Params, wait_of};

/// How old a read may be that several who wait share, after the first look of each.
const SHARED_AGE_MAX: Duration = Duration::from_millis(100);
/// How often somebody who waits looks even if nothing was said: freshness runs out without an event.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatusQuery {
    /// About which revision; the last one if absent.
    revision: Option<u64>,
    /// Wait up to this long, as `30s`; one request waits for a minute at most.
    wait: Option<String>,
    /// What to wait for.
    #[serde(default, rename = "for")]
    wait_for: WaitFor,
}

/// How far the fleet is with a revision.
#[utoipa::path(get, path = "/v1/status", operation_id = "get_status", tag = "status", params(StatusQuery), responses(
    (status = 200, body = StatusView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn status(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<StatusQuery>,
) -> Result<Json<StatusView>, Refusal> {
    caller.may(Act::Read)?;
    let Some(wait) = wait_of(query.wait.as_deref())? else {
        let fleet = door.fleet.read(None).await?;
        let revision = known(query.revision, fleet.revision)?;
        let mut status = fleet.status(revision, |host| caller.sees(&host.status.namespace));
        let intent = door.intent.current().await?;
        status.modes = Some(intent.modes(|namespace| caller.sees(namespace)));
        return Ok(Json(status));
    };
    Ok(Json(waited(&door, &caller, &query, wait).await?))
}

async fn waited(door: &Shared, caller: &Caller, query: &StatusQuery, wait: Duration) -> Result<StatusView, Refusal> {
    let mut since = Instant::now();
    let deadline = since + wait;
    let mut wakes = door.wakes.clone();
    let latest = door.store.latest_revision().await?;
    let revision = known(query.revision, latest)?;
    loop {
        wakes.mark_unchanged();
        let fleet = door.fleet.read_since(since).await?;
        let mut status = fleet.status(revision, |host| caller.sees(&host.status.namespace));
        let now = Instant::now();
        let end = super::fleet::wait_end(&status, query.wait_for);
        // One that began a moment ago may be over by its recovery snapshot: it ends no wait yet, whichever request sees it.
        let lasts = || fleet.has_failed_long(OffsetDateTime::now_utc(), |host| caller.sees(&host.status.namespace));
        let end = end.filter(|end| *end != WaitEnd::Failed || lasts());
        let end = end.or_else(|| (now >= deadline || door.shutdown.is_asked()).then_some(WaitEnd::TimeOver));
        if end.is_some() {
            status.wait = end;
            return Ok(status);
        }
        since = look_again(&door.shutdown, &mut wakes, deadline).await;
    }
}

/// Waits until there may be something new: the bus says so, or a second went by; then a moment, which those who were woken
/// with it share. Gives since when a read tells what is new.
pub(crate) async fn look_again(shutdown: &Shutdown, wakes: &mut watch::Receiver<u64>, deadline: Instant) -> Instant {
    let now = Instant::now();
    let woken = async {
        if wakes.changed().await.is_err() {
            // No bus: the second alone wakes.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = woken => {}
        () = tokio::time::sleep_until(deadline.min(now + LOOK_EVERY)) => {}
        () = shutdown.asked() => {}
    }
    let woken = Instant::now();
    tokio::time::sleep_until(deadline.min(now + SHARED_AGE_MAX)).await;
    woken
}

fn known(asked: Option<u64>, latest: Revision) -> Result<Revision, Refusal> {
    match asked.map(Revision::from_raw) {
        None => Ok(latest),
        Some(revision) if revision <= latest => Ok(revision),
        Some(revision) => Err(Refusal::not_found(format!("revision {revision}: the last is {latest}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c47_what_wakes_between_a_look_and_the_wait_for_the_next_ends_that_wait_at_once() {
        let (waking, mut wakes) = watch::channel(0);
        let shutdown = Shutdown::new();
        let (began, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        // A look begins, and while it reads something happens.
        wakes.mark_unchanged();
        waking.send_modify(|count| *count += 1);
        let since = look_again(&shutdown, &mut wakes, deadline).await;
        assert_eq!((since - began, began.elapsed()), (Duration::ZERO, SHARED_AGE_MAX));
        // Nothing happens: the clock alone has it look again, as freshness ends without a word.
        wakes.mark_unchanged();
        let began = Instant::now();
        let since = look_again(&shutdown, &mut wakes, deadline).await;
        assert_eq!((since - began, began.elapsed()), (LOOK_EVERY, LOOK_EVERY));
    }
}
