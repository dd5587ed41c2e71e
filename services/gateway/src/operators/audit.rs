//! `/v1/audit/*`: the audit service's own answers, streamed through.
//!
//! - The audit door knows this process by its client certificate; who may read is decided here, by the caller's role.
//! - Bytes are passed on as they come: a reader proves the log himself, and this door cannot help him believe it.
//! - An answer lives no longer than the token that was shown for it: while it goes on, the token is looked up again.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_identity::https::{self, Client, Streaming};
use holdfast_runtime::Chain;
use tokio::time::Instant;

use super::auth::{Act, Caller};
use super::door::Shared;
use super::refuse::Refusal;

/// How long the audit service may take to begin its answer: a search by time reads the log's folder.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the token is looked up again while an answer goes on: that long may one that was revoked or is past its time read on.
const TOKEN_LOOK_EVERY: Duration = Duration::from_secs(3);
/// How long an answer goes on while the database says nothing of the token; without it no new event is made.
const TOKEN_UNKNOWN_MAX: Duration = Duration::from_secs(30);
/// The longest query that is passed on.
const QUERY_BYTES_MAX: usize = 512;

/// How the audit service is reached.
#[derive(Clone, Debug)]
pub struct AuditDoor {
    client: Client,
    base: String,
}

impl AuditDoor {
    /// The door at `base`, as `https://audit:7081`; the client shows the certificate of the operators' door.
    #[must_use]
    pub fn new(client: Client, base: &str) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned() }
    }

    /// One of its paths.
    pub(crate) fn url(&self, part: &str) -> String {
        format!("{}/v1/audit/{part}", self.base)
    }

    /// How it is asked.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }
}

/// Entries of the log, one a line.
#[utoipa::path(get, path = "/v1/audit/entries", operation_id = "list_audit_entries", tag = "audit", params(
    ("from" = Option<u64>, Query, description = "From this entry on"),
    ("since" = Option<String>, Query, description = "Only events of this time and later, in RFC 3339"),
    ("follow" = Option<bool>, Query, description = "Whether to wait for more"),
), responses(
    (status = 200, description = "One entry a line", body = String, content_type = "application/x-ndjson"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn entries(
    State(door): State<Shared>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    passed(&door, &caller, "entries", query).await
}

/// A signed statement of the head of the log, made now.
#[utoipa::path(get, path = "/v1/audit/checkpoint", operation_id = "make_audit_checkpoint", tag = "audit", responses(
    (status = 200, description = "A checkpoint", body = Object),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn checkpoint(State(door): State<Shared>, caller: Caller) -> Result<Response, Refusal> {
    passed(&door, &caller, "checkpoint", None).await
}

/// Every checkpoint that the audit service kept.
#[utoipa::path(get, path = "/v1/audit/checkpoints", operation_id = "list_audit_checkpoints", tag = "audit", responses(
    (status = 200, description = "Checkpoints", body = Vec<Object>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn checkpoints(State(door): State<Shared>, caller: Caller) -> Result<Response, Refusal> {
    passed(&door, &caller, "checkpoints", None).await
}

/// How far the log is, and whether events are missing.
#[utoipa::path(get, path = "/v1/audit/status", operation_id = "get_audit_status", tag = "audit", responses(
    (status = 200, description = "The state of the log", body = Object),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn status(State(door): State<Shared>, caller: Caller) -> Result<Response, Refusal> {
    passed(&door, &caller, "status", None).await
}

async fn passed(door: &Shared, caller: &Caller, part: &str, query: Option<String>) -> Result<Response, Refusal> {
    caller.may_everywhere(Act::Audit)?;
    let unavailable = |detail: &str| Refusal::new(ProblemType::AuditUnavailable, detail);
    let audit =
        door.audit.as_ref().ok_or_else(|| unavailable("this gateway was not told where the audit service is"))?;
    let query = query.unwrap_or_default();
    if query.len() > QUERY_BYTES_MAX {
        return Err(Refusal::invalid("", "query", format!("a query has at most {QUERY_BYTES_MAX} bytes")));
    }
    let mark = if query.is_empty() { "" } else { "?" };
    let url = format!("{}{mark}{query}", audit.url(part));
    let request = https::Request::new(Method::GET, url).timeout(HEAD_TIMEOUT);
    let streaming = audit.client.open(request).await.map_err(|error| {
        tracing::warn!(error = %Chain(&error), "the audit service does not answer");
        unavailable("the audit service does not answer; events wait and are not lost")
    })?;
    match streaming.status {
        StatusCode::OK => Ok(stream_through(streaming, Shared::clone(door), caller.clone())),
        StatusCode::BAD_REQUEST => {
            Err(Refusal::invalid("", "query", "the audit service does not understand the query"))
        }
        status => {
            tracing::warn!(%status, part, "the audit service refuses");
            Err(unavailable("the audit service refuses: its log has the reason"))
        }
    }
}

/// The answer with the other's body, piece by piece; a broken one breaks here too, so that nobody takes a part for the whole.
fn stream_through(streaming: Streaming, door: Shared, caller: Caller) -> Response {
    let kind = streaming.headers.get(header::CONTENT_TYPE).cloned();
    let good_at = Instant::now();
    let passing = Passing { streaming, door, caller, good_at, look_at: good_at + TOKEN_LOOK_EVERY };
    let body = Body::from_stream(stream::unfold(Some(passing), next_piece));
    let mut response = body.into_response();
    if let Some(kind) = kind {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// Why an answer was cut off.
#[derive(Debug, thiserror::Error)]
enum CutOff {
    /// The audit service's part broke.
    #[error("the audit service's answer broke off")]
    Audit(#[from] https::Error),
    /// This process ends. An answer that just ended would look whole.
    #[error("the gateway ends")]
    Ending,
    /// The token was revoked, or its time is over. Whoever asks again is told so.
    #[error("the token is good no longer")]
    Token,
    /// Whether the token is still good could not be known.
    #[error("the token could not be looked up")]
    TokenUnknown(#[source] holdfast_store::Error),
}

/// An answer under way.
struct Passing {
    streaming: Streaming,
    door: Shared,
    caller: Caller,
    /// When the token was known to be good.
    good_at: Instant,
    /// When it is looked up next.
    look_at: Instant,
}

impl Passing {
    /// Cuts the answer off if the token is good no longer.
    async fn look_at_token(&mut self) -> Result<(), CutOff> {
        self.look_at = Instant::now() + TOKEN_LOOK_EVERY;
        match self.caller.is_still_good(&self.door.store).await {
            Ok(true) => {
                self.good_at = Instant::now();
                Ok(())
            }
            Ok(false) => Err(CutOff::Token),
            Err(error) if self.good_at.elapsed() < TOKEN_UNKNOWN_MAX => {
                tracing::debug!(error = %Chain(&error), "a token cannot be looked up now");
                Ok(())
            }
            Err(error) => Err(CutOff::TokenUnknown(error)),
        }
    }

    /// The next piece; none at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, CutOff> {
        loop {
            tokio::select! {
                biased;
                // A reader who follows must not hold up the end of this process.
                () = self.door.shutdown.asked() => return Err(CutOff::Ending),
                () = tokio::time::sleep_until(self.look_at) => {}
                piece = self.streaming.next_chunk() => return Ok(piece?),
            }
            let shutdown = self.door.shutdown.clone();
            shutdown.unless_asked(self.look_at_token()).await.ok_or(CutOff::Ending)??;
        }
    }
}

async fn next_piece(state: Option<Passing>) -> Option<(Result<Bytes, CutOff>, Option<Passing>)> {
    let mut passing = state?;
    match passing.next().await {
        Ok(Some(bytes)) => Some((Ok(bytes), Some(passing))),
        Ok(None) => None,
        Err(cut_off) => {
            let token = passing.caller.grant().token;
            match &cut_off {
                CutOff::Token => tracing::info!(%token, "a token is good no longer, and what it read ends"),
                CutOff::Ending => {}
                CutOff::Audit(_) | CutOff::TokenUnknown(_) => {
                    tracing::warn!(%token, error = %Chain(&cut_off), "an answer of the audit log was cut off");
                }
            }
            Some((Err(cut_off), None))
        }
    }
}
