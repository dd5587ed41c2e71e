//! Refusals: every answer that is no success is a typed problem with the request's id.
//!
//! - A handler returns a [`Refusal`]; [`finish`] writes the body, because only it knows the id.
//! - What is a defect of ours is logged here, once, and told to the client as such without its text.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_api::brake::BrakeView;
use holdfast_api::problem::{Finding, PROBLEM_JSON, Problem, ProblemType};
use holdfast_documents::Faults;
use holdfast_model::ids::RolloutId;
use holdfast_model::numbers::Revision;
use holdfast_model::secret::{redacted, secret_at};
use holdfast_runtime::Chain;
use holdfast_store::rollout::Obstacle;
use tracing::Instrument as _;
use uuid::Uuid;

/// Says which request it was, both ways.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that a client may choose.
const REQUEST_ID_BYTES_MAX: usize = 64;
/// When to come back while the database is away, in seconds.
const RETRY_AFTER_S: &str = "2";

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(Box<Problem>);

impl Refusal {
    pub(crate) fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(kind, detail)))
    }

    /// Whether it is of this kind.
    pub(crate) fn is(&self, kind: ProblemType) -> bool {
        self.0.kind == kind.urn()
    }

    /// There is no such thing.
    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(ProblemType::NotFound, format!("there is no {what}"))
    }

    /// Some of what was named is not there, and nothing was changed.
    pub(crate) fn none_of(missing: &[impl std::fmt::Display]) -> Self {
        let words: Vec<String> = missing.iter().map(ToString::to_string).collect();
        Self::new(ProblemType::NotFound, format!("there is no {}; nothing was changed", words.join(", no ")))
    }

    /// A part of the request is wrong, and a rule says so.
    pub(crate) fn invalid(path: &str, rule: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let mut refusal = Self::new(ProblemType::InvalidRequest, message.clone());
        refusal.0.findings.push(finding(path, rule, message));
        refusal
    }

    /// Several parts of the request are wrong.
    pub(crate) fn invalid_all(findings: Vec<Finding>) -> Self {
        let mut refusal = Self::new(
            ProblemType::InvalidRequest,
            match findings.len() {
                1 => "1 fault was found".to_owned(),
                several => format!("{several} faults were found"),
            },
        );
        refusal.0.findings = findings;
        refusal
    }

    /// The documents have faults.
    pub(crate) fn documents(faults: &Faults) -> Self {
        let mut refusal = Self::new(ProblemType::DocumentsRefused, format!("{faults}; nothing was changed"));
        refusal.0.findings = findings(faults);
        refusal
    }

    /// The host has no open session.
    pub(crate) fn offline(name: &str, last_seen_at: Option<String>) -> Self {
        let heard = last_seen_at.as_ref().map_or_else(|| "never heard".to_owned(), |at| format!("last heard {at}"));
        let mut refusal = Self::new(ProblemType::AgentOffline, format!("{name} has no open session: it was {heard}"));
        refusal.0.last_seen_at = Some(last_seen_at);
        refusal
    }

    /// There is a later revision than was expected.
    pub(crate) fn stale(latest: Revision, expected: u64) -> Self {
        let text = format!("revision {expected} was expected and {latest} is the last; nothing was changed");
        let mut refusal = Self::new(ProblemType::StaleRevision, text);
        refusal.0.revision = Some(latest.raw());
        refusal
    }

    /// An object is not the one that was read.
    pub(crate) fn stale_object(key: impl std::fmt::Display, there: Option<Revision>, shown: u64) -> Self {
        let now =
            there.map_or_else(|| "it is not in force".to_owned(), |there| format!("it is as it is since {there}"));
        let text = format!("{key} was read as it is since revision {shown}, and {now}; nothing was changed");
        let mut refusal = Self::new(ProblemType::StaleObject, text);
        refusal.0.revision = there.map(Revision::raw);
        refusal
    }

    /// The change takes much away, and nobody said that it is meant; or they said it of another one.
    pub(crate) fn braked(brake: BrakeView, is_of_another: bool) -> Self {
        let other =
            if is_of_another { "what was acknowledged is another change, or one of another revision; " } else { "" };
        let text =
            format!("{}; {other}nothing was changed; if it is meant, acknowledge {}", brake.text, brake.acknowledge);
        let mut refusal = Self::new(ProblemType::BlastRadius, text);
        refusal.0.brake = Some(brake);
        refusal
    }

    /// Others change the fleet too fast.
    pub(crate) fn overtaken() -> Self {
        let text = "others change the fleet faster than this can be judged; nothing was changed";
        Self::new(ProblemType::Busy, text)
    }

    /// Something else was asked for under the name that the request gives itself.
    pub(crate) fn other_request() -> Self {
        let text = "another request of this token has this Idempotency-Key; nothing was changed";
        Self::new(ProblemType::IdempotencyKeyReused, text)
    }

    /// Another change goes through the fleet in stages.
    fn rollout_open(rollout: RolloutId) -> Self {
        let text =
            format!("rollout {rollout} is open: finish or abort it first, or apply without one; nothing was changed");
        Self::new(ProblemType::RolloutOpen, text)
    }

    /// No rollout can begin now.
    pub(crate) fn no_rollout(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Open(rollout) => Self::rollout_open(rollout),
            Obstacle::Renderer => Self::renderer_outdated(),
        }
    }

    /// Something became of a rollout since it was read.
    pub(crate) fn stale_rollout(rollout: RolloutId, version: u64) -> Self {
        let text =
            format!("rollout {rollout} is not as it was read: its etag is \"{version}\" now; nothing was changed");
        Self::new(ProblemType::StaleRollout, text)
    }

    /// The renderer that leads would hold nobody back.
    fn renderer_outdated() -> Self {
        let text = "the renderer that leads knows no rollouts, or none ever led: update every renderer, or apply without one; nothing was changed";
        Self::new(ProblemType::RendererOutdated, text)
    }

    /// A token was made before by the same request.
    pub(crate) fn secret_not_kept(token: impl std::fmt::Display) -> Self {
        let text = format!(
            "this request made {token} before; its secret was in that answer alone: revoke it, and make another"
        );
        Self::new(ProblemType::SecretNotKept, text)
    }

    /// The same where the change is made, and only what came of it could not be read: that nothing was changed would be wrong.
    pub(crate) fn once_made(self) -> Self {
        if self.0.known_type() != Some(ProblemType::DatabaseUnavailable) {
            return self;
        }
        let text = "it is done, and the database did not answer when that was read again: \
                    read it, or ask again under the same Idempotency-Key, which answers and does nothing twice";
        Self::new(ProblemType::OutcomeUnknown, text)
    }

    /// A defect: the client is told that there is one, the log what it is.
    pub(crate) fn defect(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %Chain(error), "a request met a defect");
        Self::new(ProblemType::Internal, "the log of the gateway has the cause under this request's id")
    }

    /// Whether it is a defect of the service or its data: to ask again changes nothing.
    pub(crate) fn is_defect(&self) -> bool {
        self.0.known_type() == Some(ProblemType::Internal)
    }

    #[cfg(test)]
    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }
}

/// One finding about the request itself.
pub(crate) fn finding(path: &str, rule: &str, message: impl Into<String>) -> Finding {
    Finding {
        file: String::new(),
        document: 0,
        line: 0,
        path: path.to_owned(),
        rule: rule.to_owned(),
        message: message.into(),
    }
}

/// Faults of documents as the API tells them.
pub(crate) fn findings(faults: &Faults) -> Vec<Finding> {
    let one = |fault: &holdfast_documents::Fault| Finding {
        file: fault.file.clone(),
        document: fault.document as u64,
        line: fault.line,
        path: fault.path.clone(),
        rule: fault.rule.word().to_owned(),
        message: fault.message.clone(),
    };
    faults.list().iter().map(one).collect()
}

impl From<holdfast_store::Error> for Refusal {
    fn from(error: holdfast_store::Error) -> Self {
        use holdfast_events::EventError;
        use holdfast_store::Error;
        match &error {
            Error::Unavailable { .. }
            | Error::WrongServer(_)
            | Error::Contended { .. }
            | Error::Exhausted { .. }
            | Error::TimedOut { .. } => {
                tracing::warn!(error = %Chain(&error), "the database did not serve a request");
                Self::new(ProblemType::DatabaseUnavailable, "the database does not answer")
            }
            Error::OutcomeUnknown { .. } => {
                tracing::warn!(error = %Chain(&error), "a commit has no known end");
                let text = "the connection to the database was lost while committing: read the status, then ask again";
                Self::new(ProblemType::OutcomeUnknown, text)
            }
            Error::Event(EventError::TooLarge { bytes, bytes_max, .. }) => {
                let text = format!(
                    "what is asked for takes {bytes} bytes in the audit log, and {bytes_max} at most are kept of one thing; nothing was changed"
                );
                Self::invalid("", "event-bytes", text)
            }
            Error::Fenced { .. }
            | Error::VersionGap(_)
            | Error::NamedTwice(_)
            | Error::Value { .. }
            | Error::NoAuthority
            | Error::ForeignAuthority { .. }
            | Error::ForeignMigration { .. }
            | Error::Unmigrated { .. }
            | Error::Event(_)
            | Error::Content(_)
            | Error::Sql { .. }
            | Error::Task { .. } => Self::defect(&error),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(*self.0);
        response
    }
}

/// The outermost layer: names the request, counts it, and writes what was refused.
pub(crate) async fn finish(request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    // A token that was put into a path shall not be in the log.
    let (method, path) = (request.method().clone(), redacted(request.uri().path()).into_owned());
    let is_read = method.is_safe();
    let begun = std::time::Instant::now();
    let span = tracing::info_span!("request", id = %id, %method, path);
    let response = next.run(request).instrument(span.clone()).await;
    let mut response = span.in_scope(|| written(response, &id, is_read));
    let status = response.status();
    ::metrics::counter!("holdfast_api_requests_total", "method" => method_word(&method), "status" => status.as_str().to_owned())
        .increment(1);
    ::metrics::histogram!("holdfast_api_request_seconds").record(begun.elapsed().as_secs_f64());
    tracing::debug!(parent: &span, status = status.as_u16(), "answered");
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The method as a label: what anybody may call a method is no name of a series.
fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// The client's own id if it is plain and short, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |text: &&str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(inner)
    };
    given
        .filter(plain)
        .filter(|text| secret_at(text).is_none())
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

fn written(mut response: Response, id: &str, is_read: bool) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    // What a library refused has a status only; it gets the type that goes with it.
    let of_status = || Problem::new(kind_of(status), detail_of(status));
    let mut problem = response.extensions_mut().remove::<Problem>().unwrap_or_else(of_status);
    problem.request_id = Some(id.to_owned());
    if !is_read && problem.known_type() == Some(ProblemType::DatabaseUnavailable) {
        problem.detail.push_str("; nothing was changed");
    }
    let texts =
        problem.findings.iter_mut().flat_map(|finding| [&mut finding.file, &mut finding.message, &mut finding.path]);
    for text in texts.chain([&mut problem.detail]) {
        // What was refused is told, but no token in it.
        *text = redacted(text).into_owned();
    }
    let Ok(body) = serde_json::to_vec(&problem) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut written = (status, Body::from(body)).into_response();
    let headers = written.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    }
    written
}

fn kind_of(status: StatusCode) -> ProblemType {
    match status {
        StatusCode::NOT_FOUND => ProblemType::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => ProblemType::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => ProblemType::BodyTooLarge,
        status if status.is_client_error() => ProblemType::InvalidRequest,
        _ => ProblemType::Internal,
    }
}

const fn detail_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "the API has no such path: see /openapi.json",
        StatusCode::METHOD_NOT_ALLOWED => "the path has other methods: see /openapi.json",
        _ => "the request cannot be served",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_anybody_calls_a_method_names_no_series() {
        for (method, word) in [("GET", "GET"), ("DELETE", "DELETE"), ("get", "other"), ("XAAAAAA1", "other")] {
            assert_eq!(method_word(&Method::from_bytes(method.as_bytes()).expect("a token")), word);
        }
    }

    #[test]
    fn a_database_that_is_away_after_a_change_was_made_does_not_make_it_one_that_was_not() {
        let away = Refusal::new(ProblemType::DatabaseUnavailable, "the database does not answer");
        let made = away.once_made();
        assert_eq!(made.problem().known_type(), Some(ProblemType::OutcomeUnknown));
        let other = Refusal::not_found("host x").once_made();
        assert_eq!(other.problem().known_type(), Some(ProblemType::NotFound));
    }

    fn mk_headers(id: &str) -> HeaderMap {
        HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(id).expect("a value"))])
    }

    #[test]
    fn a_clients_request_id_is_kept_if_it_is_plain_and_short() {
        assert_eq!(request_id(&mk_headers("ci-42.a_b")), "ci-42.a_b");
        for bad in ["a b", "\"x\"", &"x".repeat(65)] {
            assert_ne!(request_id(&mk_headers(bad)), bad);
        }
    }

    #[test]
    fn what_a_library_refused_becomes_a_problem_too() {
        let written = written(StatusCode::METHOD_NOT_ALLOWED.into_response(), "r1", false);
        assert_eq!(written.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(written.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
