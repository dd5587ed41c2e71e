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
        let intent = door.effective_in(&fleet).await?;
        status.modes = Some(intent.modes(|namespace| caller.sees(namespace)));
        return Ok(Json(status));
    };
    Ok(Json(waited(&door, &caller, &query, wait).await?))
}

async fn waited(door: &Shared, caller: &Caller, query: &StatusQuery, wait: Duration) -> Result<StatusView, Refusal> {
    let mut looks = Looks::new(door, wait);
    let latest = door.store.latest_revision().await?;
    let revision = known(query.revision, latest)?;
    loop {
        let since = looks.next().await;
        let fleet = door.fleet.read_since(since).await?;
        let mut status = fleet.status(revision, |host| caller.sees(&host.status.namespace));
        let end = super::fleet::wait_end(&status, query.wait_for);
        // One that began a moment ago may be over by its recovery snapshot: it ends no wait yet, whichever request sees it.
        let lasts = || fleet.has_failed_long(OffsetDateTime::now_utc(), |host| caller.sees(&host.status.namespace));
        let end = end.filter(|end| *end != WaitEnd::Failed || lasts());
        let end = end.or_else(|| looks.is_over().then_some(WaitEnd::TimeOver));
        if end.is_some() {
            status.wait = end;
            return Ok(status);
        }
    }
}

/// The looks of one who waits: whoever waits reads between two of [`Looks::next`] and in no other place, so that what happens while it reads ends
/// the wait after that.
pub(crate) struct Looks {
    wakes: watch::Receiver<u64>,
    shutdown: Shutdown,
    since: Instant,
    deadline: Instant,
    is_first: bool,
}

impl Looks {
    /// The first is at once, the last about as long after it as somebody waits.
    pub(crate) fn new(door: &Shared, wait: Duration) -> Self {
        Self::of(door.wakes.clone(), door.shutdown.clone(), wait)
    }

    fn of(wakes: watch::Receiver<u64>, shutdown: Shutdown, wait: Duration) -> Self {
        let since = Instant::now();
        Self { wakes, shutdown, since, deadline: since + wait, is_first: true }
    }

    /// Waits until there may be something new: the bus says so, or a second went by; then a moment, which those who were woken with it share. Gives
    /// since when a read tells what is new.
    pub(crate) async fn next(&mut self) -> Instant {
        if !std::mem::take(&mut self.is_first) {
            self.since = self.wake().await;
        }
        // From here on, and not from the end of the read: what comes between is news.
        self.wakes.mark_unchanged();
        self.since
    }

    /// Whether nobody waits any more, whatever the last look saw: one that began before the deadline is not the last, however long it took.
    pub(crate) fn is_over(&self) -> bool {
        self.since >= self.deadline || self.shutdown.is_asked()
    }

    async fn wake(&mut self) -> Instant {
        let now = Instant::now();
        let woken = async {
            if self.wakes.changed().await.is_err() {
                // No bus: the second alone wakes.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until(self.deadline.min(now + LOOK_EVERY)) => {}
            () = self.shutdown.asked() => {}
        }
        let woken = Instant::now();
        tokio::time::sleep_until(self.deadline.min(now + SHARED_AGE_MAX)).await;
        woken
    }
}

fn known(asked: Option<u64>, latest: Revision) -> Result<Revision, Refusal> {
    match asked.map(Revision::from_raw) {
        None => Ok(latest),
        Some(revision) if revision <= latest && revision > Revision::ZERO => Ok(revision),
        Some(revision) => Err(Refusal::not_found(format!("revision {revision}: the last is {latest}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read takes its time, and something happens within it.
    #[tokio::test(start_paused = true)]
    async fn c47_what_wakes_between_a_look_and_the_wait_for_the_next_ends_that_wait_at_once() {
        const READ: Duration = Duration::from_millis(30);
        let (waking, wakes) = watch::channel(0);
        // Of before the wait, which the first look sees.
        waking.send_modify(|count| *count += 1);
        let mut looks = Looks::of(wakes, Shutdown::new(), Duration::from_secs(60));
        let began = Instant::now();
        assert_eq!(looks.next().await, began, "the first look is at once");
        tokio::time::sleep(READ).await;
        waking.send_modify(|count| *count += 1);
        tokio::time::sleep(READ).await;
        let read = Instant::now();
        let since = looks.next().await;
        assert_eq!((since, read.elapsed()), (read, SHARED_AGE_MAX), "within the first read");
        tokio::time::sleep(READ).await;
        waking.send_modify(|count| *count += 1);
        let read = Instant::now();
        let since = looks.next().await;
        assert_eq!((since, read.elapsed()), (read, SHARED_AGE_MAX), "and within the next");
        // Nothing happens: the clock alone has it look again, as freshness ends without a word.
        let read = Instant::now();
        let since = looks.next().await;
        assert_eq!((since - read, read.elapsed()), (LOOK_EVERY, LOOK_EVERY));
        assert!(!looks.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_look_is_at_the_deadline_or_as_the_process_ends() {
        let (_waking, wakes) = watch::channel(0);
        let (wait, shutdown) = (Duration::from_millis(1_400), Shutdown::new());
        let began = Instant::now();
        let mut looks = Looks::of(wakes.clone(), shutdown.clone(), wait);
        for (at, is_over) in [(0, false), (1_000, false), (1_400, true)] {
            looks.next().await;
            assert_eq!((began.elapsed(), looks.is_over()), (Duration::from_millis(at), is_over));
        }
        // What came while a look took its time, past the deadline too, is looked at: who waits is told of it.
        let (waking, woken) = watch::channel(0);
        let began = Instant::now();
        let mut looks = Looks::of(woken, shutdown.clone(), wait);
        looks.next().await;
        tokio::time::sleep(wait - Duration::from_millis(1)).await;
        waking.send_modify(|count| *count += 1);
        let since = looks.next().await;
        assert!(since < began + wait && !looks.is_over(), "this one began before the deadline");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!looks.is_over(), "and its read took two seconds");
        let since = looks.next().await;
        assert_eq!((since - began, looks.is_over()), (wait + Duration::from_secs(2), true));
        let mut looks = Looks::of(wakes, shutdown.clone(), Duration::from_secs(60));
        looks.next().await;
        shutdown.ask();
        let asked = Instant::now();
        looks.next().await;
        assert_eq!((looks.is_over(), asked.elapsed()), (true, SHARED_AGE_MAX));
    }
}
