//! The read-only HTTPS door.
//!
//! - A client certificate of this authority with one of the named roles is demanded: auditors and the operators' door.
//! - Entries leave as they stand in the files, line by line, so that a reader proves them for himself.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream;
use holdfast_api::audit::Entry;
use holdfast_identity::{SigningKey, client_role_of};
use holdfast_runtime::https::Peer;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;

use crate::keeper::{Health, sign};
use crate::log::{Checkpoints, LogError, Reader};

/// Events are numbered a moment after they happened, and two writers' clocks differ: a search by time starts this much earlier.
const CLOCK_SLACK: time::Duration = time::Duration::minutes(10);

/// What the door reads from.
#[derive(Clone)]
pub struct Door {
    /// The log's folder.
    pub folder: PathBuf,
    /// Whose log it is.
    pub authority: String,
    /// Signs checkpoints on demand.
    pub key: Arc<SigningKey>,
    /// The head, and when it moves.
    pub health: watch::Receiver<Health>,
    /// The roles that may read.
    pub readers: Arc<[String]>,
}

/// What of the log is wanted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// From this entry on.
    #[serde(default)]
    from: u64,
    /// Only events of this time and later.
    #[serde(default, with = "time::serde::rfc3339::option")]
    since: Option<OffsetDateTime>,
    /// Whether to wait for more.
    #[serde(default)]
    follow: bool,
}

/// The door's routes.
pub fn router(door: Door) -> Router {
    Router::new()
        .route("/v1/audit/entries", get(entries))
        .route("/v1/audit/checkpoint", get(checkpoint))
        .route("/v1/audit/checkpoints", get(checkpoints))
        .route("/v1/audit/status", get(status))
        .layer(middleware::from_fn_with_state(door.clone(), readers_only))
        .with_state(door)
}

async fn readers_only(State(door): State<Door>, request: Request, next: Next) -> Response {
    let certificate = request.extensions().get::<Peer>().and_then(|peer| peer.certificate.as_ref());
    match certificate.map(client_role_of) {
        Some(Ok(role)) if door.readers.contains(&role) => next.run(request).await,
        Some(Ok(_) | Err(_)) | None => {
            problem(StatusCode::FORBIDDEN, "not-a-reader", "this certificate does not name a reader of the audit log")
        }
    }
}

fn problem(status: StatusCode, name: &str, detail: &str) -> Response {
    let body = json!({
        "type": format!("urn:holdfast:problem:{name}"),
        "title": name,
        "status": status.as_u16(),
        "detail": detail,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

/// The question has a part that cannot be read, or that there is not.
fn malformed(error: &QueryRejection) -> Response {
    const FORMS: &str =
        "`from` is the number of an entry, `since` a time in RFC 3339 as 2026-01-02T03:04:05Z, `follow` true or false";
    let cause = std::error::Error::source(error).map_or_else(|| error.body_text(), ToString::to_string);
    problem(StatusCode::BAD_REQUEST, "invalid", &format!("{cause}: {FORMS}"))
}

fn unreadable(error: &LogError) -> Response {
    tracing::error!(%error, "the audit log cannot be read");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "log-unreadable", "the audit log cannot be read")
}

async fn status(State(door): State<Door>) -> Response {
    let health = door.health.borrow().clone();
    Json(health).into_response()
}

async fn checkpoint(State(door): State<Door>) -> Response {
    let head = door.health.borrow().head;
    match sign(&door.key, &door.authority, head) {
        Ok(checkpoint) => Json(checkpoint).into_response(),
        Err(error) => {
            tracing::error!(%error, "a checkpoint cannot be signed");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "checkpoint-unsigned", "a checkpoint cannot be signed")
        }
    }
}

async fn checkpoints(State(door): State<Door>) -> Response {
    let read = tokio::task::spawn_blocking(move || Checkpoints::of(&door.folder).load()).await;
    match read {
        Ok(Ok((checkpoints, 0))) => Json(checkpoints).into_response(),
        Ok(Ok((_, bad))) => {
            tracing::error!(bad, "lines of the checkpoints do not read");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "checkpoints-unreadable", "some checkpoints cannot be read")
        }
        Ok(Err(error)) => unreadable(&error),
        Err(error) => {
            tracing::error!(%error, "reading the checkpoints did not end");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "log-unreadable", "the audit log cannot be read")
        }
    }
}

async fn entries(State(door): State<Door>, wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let wanted = match wanted {
        Ok(Query(wanted)) => wanted,
        Err(error) => return malformed(&error),
    };
    let folder = door.folder.clone();
    let started = tokio::task::spawn_blocking(move || start(&folder, wanted)).await;
    let reader = match started {
        Ok(Ok(reader)) => reader,
        Ok(Err(error)) => return unreadable(&error),
        Err(error) => {
            tracing::error!(%error, "opening the log did not end");
            return problem(StatusCode::INTERNAL_SERVER_ERROR, "log-unreadable", "the audit log cannot be read");
        }
    };
    let body = Body::from_stream(stream::unfold(Some((reader, door.health)), move |state| next_chunk(state, wanted)));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

fn start(folder: &std::path::Path, wanted: Wanted) -> Result<Reader, LogError> {
    let earliest = wanted.since.map(|since| since - CLOCK_SLACK);
    Reader::near(folder, |line| {
        Entry::parse(line).is_ok_and(|entry| {
            entry.n <= wanted.from.max(1)
                || earliest.is_some_and(|earliest| event_time(&entry).is_some_and(|time| time < earliest))
        })
    })
}

fn event_time(entry: &Entry) -> Option<OffsetDateTime> {
    #[derive(Deserialize)]
    struct Time {
        time: String,
    }
    let time: Time = serde_json::from_str(entry.event.get()).ok()?;
    OffsetDateTime::parse(&time.time, &Rfc3339).ok()
}

type Reading = Option<(Reader, watch::Receiver<Health>)>;

/// Why an answer was cut off.
#[derive(Debug, thiserror::Error)]
enum CutOff {
    /// The log cannot be read.
    #[error("the audit log cannot be read")]
    Log(#[from] LogError),
    /// Whoever follows was told of no end, and must not take this one for it.
    #[error("the log is written no longer")]
    Ending,
}

/// The next lines for the client; none ends the answer. What cuts it off is an error for the client too.
async fn next_chunk(state: Reading, wanted: Wanted) -> Option<(Result<Bytes, CutOff>, Reading)> {
    let (mut reader, mut health) = state?;
    loop {
        health.borrow_and_update();
        let (back, read) = tokio::task::spawn_blocking(move || {
            let read = reader.poll_lines();
            (reader, read)
        })
        .await
        .ok()?;
        reader = back;
        let lines = match read {
            Ok(lines) => lines,
            Err(error) => return Some((Err(error.into()), None)),
        };
        if lines.is_empty() {
            // The end for now: the answer ends too, or waits until the head moves.
            if !wanted.follow {
                return None;
            }
            if health.changed().await.is_err() {
                return Some((Err(CutOff::Ending), None));
            }
            continue;
        }
        let chunk: String = lines.iter().filter(|line| is_wanted(line, wanted)).flat_map(|line| [line, "\n"]).collect();
        if !chunk.is_empty() {
            return Some((Ok(Bytes::from(chunk)), Some((reader, health))));
        }
    }
}

/// A line that does not read is handed out too: it is the reader's to see and to name.
fn is_wanted(line: &str, wanted: Wanted) -> bool {
    let Ok(entry) = Entry::parse(line) else { return true };
    entry.n >= wanted.from && wanted.since.is_none_or(|since| event_time(&entry).is_none_or(|time| time >= since))
}
