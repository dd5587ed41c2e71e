//! Enrolment and renewal: a request row for the renderer, and a bounded wait for its answer.
//!
//! - Enrolment is the one call without a client certificate; a certificate's host may renew its own and nobody else's.
//! - A bad form costs no use of a token. Whether a good form is enough, the renderer decides.
//! - A host has one renewal in some minutes at this door (`renewals.rs`).
//! - Every refusal is a typed problem (RFC 9457) with a stable code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_events::{Hint, VerifyingKeyBytes};
use holdfast_identity::tls::Admission;
use holdfast_identity::{KeyRequest, Token, TokenKind, VerifyingKey};
use holdfast_model::ids::EventId;
use holdfast_runtime::body::{BodyError, PacedBody};
use holdfast_runtime::{Chain, fail_point};
use holdfast_session::limits::FAULTS_MAX;
use holdfast_store::request::{RequestAnswer, TokenRefusal};
use holdfast_store::token::TokenHash;
use holdfast_wire::enrol::{
    ENROL_BYTES_MAX, ENROL_PATH, EnrolRequest, EnrolResponse, Problem, RENEW_PATH, RenewRequest, RenewResponse,
};
use holdfast_wire::limits::{ADDRESSES_MAX, HOSTNAME_BYTES_MAX, KERNEL_BYTES_MAX};
use holdfast_wire::sync::SYNC_PATH;
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc};

use super::answers::{Answers, WaitingPlace};
use super::gauges::record_call_refused;
use super::limits::{ENROLMENT_TURN_WAIT, ENROLMENTS_AT_ONCE, SYNC_WASTE_BYTES_MAX};
use super::recorder::ring;
use super::renewals::Renewals;
use super::store::AgentsStore;

/// What the calls need.
#[derive(Debug)]
pub(super) struct Enrolment<S> {
    store: S,
    answers: Answers,
    /// Turns of those who have no certificate yet.
    turns: Semaphore,
    renewals: Renewals,
    bell: mpsc::Sender<Hint>,
    renderer_certificate: String,
    gateways: Vec<String>,
}

impl<S> Enrolment<S> {
    pub(super) fn new(
        store: S,
        answers: Answers,
        bell: mpsc::Sender<Hint>,
        renderer_certificate: String,
        gateways: Vec<String>,
    ) -> Self {
        let (turns, renewals) = (Semaphore::new(ENROLMENTS_AT_ONCE), Renewals::default());
        Self { store, answers, turns, renewals, bell, renderer_certificate, gateways }
    }
}

/// Why a call is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this door has no such path; it has {ENROL_PATH}, {RENEW_PATH} and {SYNC_PATH}")]
    NoPath,
    #[error("this path takes POST only")]
    Method,
    #[error("the body is not what this call takes: {0}")]
    Body(String),
    #[error("the body of this call has at most {0} bytes")]
    BodyTooLarge(usize),
    #[error("the body comes too slowly")]
    BodySlow,
    #[error("`{field}` is not what this call takes: {reason}")]
    Field { field: &'static str, reason: String },
    #[error("the token is malformed")]
    TokenMalformed,
    #[error("the token is not known")]
    TokenUnknown,
    #[error("the token's time is over: an operator makes a new one")]
    TokenExpired,
    #[error("the token was taken back")]
    TokenRevoked,
    #[error("the token was used as often as it may be")]
    TokenSpent,
    #[error("this call needs the host's client certificate")]
    NoCertificate,
    #[error("the renderer refuses: {0}")]
    Refused(String),
    #[error("the renderer did not answer in time; the request is kept, try again later")]
    NoAnswer,
    #[error("too many requests wait for the renderer; try again later")]
    Busy,
    #[error("this host asked for its next certificate just now; it may ask again in {} s (is its clock right?)", .0.as_secs() + 1)]
    RenewedJustNow(Duration),
    #[error("the authority cannot be asked now; try again later")]
    AuthorityAway,
    #[error("the certificate's time is over: ask on a new connection, with the next one")]
    CertificateExpired,
    #[error("the certificate is none of this host's, or was revoked")]
    CertificateUnknown,
    #[error("no such host is enrolled")]
    HostUnknown,
    #[error("the session of this number is over, or not of this gateway: poll without a number to begin a new one")]
    SessionOver,
    #[error(
        "the authority has another life, or does not know the session of this number: poll without a number to begin a new one"
    )]
    BeginAnew,
    #[error("two agents with this identity take its session from each other, and the other one has it now")]
    Contested(Duration),
    #[error("too many sessions are on their way in; try again later")]
    Crowded(Duration),
    #[error("this host began sessions one after the other; go on with the last one's number, or begin another in {} s", .0.as_secs() + 1)]
    OpenedJustNow(Duration),
    #[error("more than {FAULTS_MAX} faults in one session: it is over")]
    TooManyFaults,
    #[error("this gateway goes away; poll another one")]
    Draining(Duration),
}

impl Refusal {
    fn code(&self) -> (StatusCode, &str, &'static str) {
        match self {
            Self::NoPath => (StatusCode::NOT_FOUND, "not-found", "There is no such path"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The path has no such method"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large"),
            Self::BodySlow => (StatusCode::REQUEST_TIMEOUT, "request-timeout", "The request came too slowly"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "malformed", "The request cannot be read"),
            Self::Field { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "bad-field", "A field is not usable"),
            Self::TokenMalformed => (StatusCode::UNAUTHORIZED, "token-malformed", "The token is no token"),
            Self::TokenUnknown => (StatusCode::UNAUTHORIZED, "token-unknown", "The token is not known"),
            Self::TokenExpired => (StatusCode::UNAUTHORIZED, "token-expired", "The token has expired"),
            Self::TokenRevoked => (StatusCode::UNAUTHORIZED, "token-revoked", "The token was revoked"),
            Self::TokenSpent => (StatusCode::UNAUTHORIZED, "token-spent", "The token has no uses left"),
            Self::NoCertificate => (StatusCode::UNAUTHORIZED, "no-certificate", "A client certificate is needed"),
            Self::Refused(reason) => (StatusCode::CONFLICT, reason, "The request was refused"),
            Self::NoAnswer => (StatusCode::GATEWAY_TIMEOUT, "no-answer", "No answer in time"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", "Too many requests wait"),
            Self::RenewedJustNow(_) => (StatusCode::TOO_MANY_REQUESTS, "busy", "Too many renewals"),
            Self::AuthorityAway => (StatusCode::SERVICE_UNAVAILABLE, "authority-away", "The authority is away"),
            Self::CertificateExpired => {
                (StatusCode::UNAUTHORIZED, "certificate-expired", "The certificate has expired")
            }
            Self::CertificateUnknown => {
                (StatusCode::UNAUTHORIZED, "certificate-unknown", "The certificate is not good for this host")
            }
            Self::HostUnknown => (StatusCode::UNAUTHORIZED, "host-unknown", "There is no such host"),
            Self::SessionOver => (StatusCode::CONFLICT, "session-over", "The session is over"),
            Self::BeginAnew => (StatusCode::CONFLICT, "begin-anew", "A session is to begin anew"),
            Self::Contested(_) => (StatusCode::CONFLICT, "contested", "The identity is contested"),
            Self::Crowded(_) => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many at once"),
            Self::OpenedJustNow(_) => (StatusCode::TOO_MANY_REQUESTS, "overloaded", "Too many sessions of one host"),
            Self::TooManyFaults => (StatusCode::CONFLICT, "too-many-faults", "The session is over for its faults"),
            Self::Draining(_) => (StatusCode::SERVICE_UNAVAILABLE, "draining", "The gateway goes away"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code, title) = self.code();
        record_call_refused(code);
        let problem = Problem {
            kind: format!("urn:holdfast:problem:{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: self.to_string(),
        };
        let mut response = json(status, "application/problem+json", &problem);
        if let Self::RenewedJustNow(wait)
        | Self::Contested(wait)
        | Self::Crowded(wait)
        | Self::OpenedJustNow(wait)
        | Self::Draining(wait) = self
            && !wait.is_zero()
        {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        response
    }
}

fn json<T: Serialize>(status: StatusCode, kind: &'static str, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer has no JSON form");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The calls of this door.
pub(super) fn router<S: AgentsStore>(enrolment: Arc<Enrolment<S>>) -> Router {
    Router::new()
        .route(ENROL_PATH, post(enrol::<S>))
        .route(RENEW_PATH, post(renew::<S>))
        .method_not_allowed_fallback(async || Refusal::Method)
        .fallback(async || Refusal::NoPath)
        .with_state(enrolment)
}

async fn enrol<S: AgentsStore>(State(at): State<Arc<Enrolment<S>>>, body: Body) -> Result<Response, Refusal> {
    let request: EnrolRequest = read(body).await?;
    let token = Token::parse(TokenKind::Enrol, &request.token.0).map_err(|_| Refusal::TokenMalformed)?;
    let field = |field, reason: &dyn std::fmt::Display| Refusal::Field { field, reason: reason.to_string() };
    if request.hostname.len() > HOSTNAME_BYTES_MAX || request.kernel.len() > KERNEL_BYTES_MAX {
        return Err(field("inventory", &"its texts are too long"));
    }
    if request.addresses.len() > ADDRESSES_MAX {
        return Err(field("addresses", &format_args!("more than {ADDRESSES_MAX}")));
    }
    let outcome_key: VerifyingKey = request.outcome_key.parse().map_err(|error| field("outcome_key", &error))?;
    let csr = checked_csr(&request.csr)?;
    let mut addresses: Vec<_> = request.addresses.iter().map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let enrolment = holdfast_store::request::Enrolment {
        hash: TokenHash(*token.hash().as_bytes()),
        name: request.name,
        addresses,
        outcome_key: VerifyingKeyBytes::from_bytes(*outcome_key.as_bytes()),
        csr,
    };
    let turn = tokio::time::timeout(ENROLMENT_TURN_WAIT, at.turns.acquire()).await;
    let Ok(Ok(turn)) = turn else { return Err(Refusal::Busy) };
    let place = at.answers.enter().ok_or(Refusal::Busy)?;
    let authority = at.store.load_authority().await.map_err(|error| away(&error))?;
    let taken = at.store.request_enrolment(enrolment).await.map_err(|error| away(&error))?;
    let (id, host_id) = taken.map_err(|refusal| match refusal {
        TokenRefusal::Expired => Refusal::TokenExpired,
        TokenRefusal::Revoked => Refusal::TokenRevoked,
        TokenRefusal::Spent => Refusal::TokenSpent,
        TokenRefusal::Unknown => Refusal::TokenUnknown,
    })?;
    drop(turn);
    let certificate_chain = at.answer(id, place).await?;
    tracing::info!(host = %host_id, "enrolled");
    fail_point("an enrolment", "granted, before the host is told");
    let response = EnrolResponse {
        host_id,
        authority_id: authority.id,
        authority_epoch: authority.epoch,
        certificate_chain,
        renderer_certificate: at.renderer_certificate.clone(),
        gateways: at.gateways.clone(),
    };
    Ok(json(StatusCode::OK, "application/json", &response))
}

async fn renew<S: AgentsStore>(
    State(at): State<Arc<Enrolment<S>>>,
    Extension(admission): Extension<Admission>,
    body: Body,
) -> Result<Response, Refusal> {
    let peer = match admission {
        Admission::HttpHost(peer) => peer,
        Admission::HttpAnonymous | Admission::Session(_) => return Err(Refusal::NoCertificate),
    };
    let request: RenewRequest = read(body).await?;
    // A connection is authenticated once, and lives on.
    if peer.validity.not_after <= OffsetDateTime::now_utc() {
        return Err(Refusal::CertificateExpired);
    }
    let csr = checked_csr(&request.csr)?;
    let place = at.answers.enter().ok_or(Refusal::Busy)?;
    at.renewals.begin(peer.host, Instant::now()).map_err(Refusal::RenewedJustNow)?;
    let id = at.store.request_certificate(peer.host, csr).await.map_err(|error| away(&error))?;
    let certificate_chain = at.answer(id, place).await?;
    tracing::info!(host = %peer.host, "certificate renewed");
    Ok(json(StatusCode::OK, "application/json", &RenewResponse { certificate_chain }))
}

impl<S: AgentsStore> Enrolment<S> {
    async fn answer(&self, request: EventId, place: WaitingPlace) -> Result<String, Refusal> {
        ring(&self.bell, Hint::Request);
        ring(&self.bell, Hint::Event);
        match self.answers.wait(request, place).await {
            Some(RequestAnswer::Granted { certificate_chain: Some(chain) }) => {
                String::from_utf8(chain).map_err(|_| Refusal::NoAnswer)
            }
            Some(RequestAnswer::Refused(reason)) => Err(Refusal::Refused(reason.word().replace('_', "-"))),
            Some(RequestAnswer::Granted { certificate_chain: None } | RequestAnswer::Waiting) | None => {
                Err(Refusal::NoAnswer)
            }
        }
    }
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    read_to(body, ENROL_BYTES_MAX).await
}

/// The body of a call, of so many bytes at most.
pub(super) async fn read_to<T: DeserializeOwned>(body: Body, bytes_max: usize) -> Result<T, Refusal> {
    let mut body = PacedBody::new(body);
    if !body.read_to(bytes_max).await? {
        // A connection that is closed with bytes unread takes the answer along.
        body.waste_to(SYNC_WASTE_BYTES_MAX).await;
        return Err(Refusal::BodyTooLarge(bytes_max));
    }
    let bytes = body.into_bytes();
    // A list would be taken for the fields in their order.
    let blank = bytes.len() - bytes.trim_ascii_start().len();
    if bytes.get(blank).is_some_and(|first| *first != b'{') {
        let line = 1 + bytes[..blank].iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + bytes[..blank].iter().rev().take_while(|byte| **byte != b'\n').count();
        return Err(Refusal::Body(format!("line {line}, column {column}: no JSON object")));
    }
    // The position and the expectation, never the text: it may hold a token.
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::Body(format!("line {}, column {}", error.line(), error.column())))
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Slow => Self::BodySlow,
            BodyError::Broken => Self::Body(error.to_string()),
        }
    }
}

fn checked_csr(text: &str) -> Result<Vec<u8>, Refusal> {
    let bad = |reason: &dyn std::fmt::Display| Refusal::Field { field: "csr", reason: reason.to_string() };
    let csr = STANDARD.decode(text).map_err(|error| bad(&error))?;
    KeyRequest::from_der(&csr).map_err(|error| bad(&error))?;
    Ok(csr)
}

fn away(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::warn!(error = %Chain(error), "a request cannot be stored");
    Refusal::AuthorityAway
}
