//! Reading requests: bodies bounded in bytes, queries and paths with every fault as a typed problem.
//!
//! A request that names itself (`Idempotency-Key`) is known by the digest of all that it asks for: method, path, query, `If-Match` and body, byte by
//! byte.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use bytes::Bytes;
use holdfast_api::object::{APPLY_BODY_BYTES_MAX, BODY_BYTES_MAX};
use holdfast_api::problem::ProblemType;
use holdfast_model::digest::Digest;
use holdfast_model::secret::secret_at;
use holdfast_runtime::body::{BodyError, PacedBody};
use holdfast_store::once::RequestKey;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

use super::auth::Caller;
use super::door::Shared;
use super::refuse::Refusal;

/// The name that a request gives itself, so that the same again is answered and not done.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest of those: three UUIDs.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// The longest that one request waits; clients that wait longer ask again.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// A JSON body of ordinary size, of a request that may name itself.
pub(crate) struct Body<T> {
    pub(crate) value: T,
    pub(crate) key: Option<NamedRequest>,
}

/// The name that a request without a body gives itself, if it does.
pub(crate) struct Key(pub(crate) Option<NamedRequest>);

/// A JSON body that may hold documents. A bounded number of large ones is in memory at once, for as long as this lives.
pub(crate) struct LargeBody<T> {
    pub(crate) value: T,
    /// Absent for one of ordinary size.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The name that the request gives itself.
    pub(crate) key: Option<NamedRequest>,
}

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _door: &Shared) -> Result<Self, Refusal> {
        let head = Head::of(&request)?;
        let bytes = ordinary(request).await?;
        Ok(Self { value: parsed(&bytes)?, key: head.map(|head| head.named(&bytes)) })
    }
}

impl<T: DeserializeOwned> FromRequest<Shared> for LargeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, door: &Shared) -> Result<Self, Refusal> {
        let head = Head::of(&request)?;
        let mut body = opened(request, APPLY_BODY_BYTES_MAX)?;
        let mut permit = None;
        if !body.read_to(BODY_BYTES_MAX).await? {
            let busy =
                |_| Refusal::new(ProblemType::Busy, "too many large requests are under way: try again in a moment");
            permit = Some(Arc::clone(&door.large_bodies).try_acquire_owned().map_err(busy)?);
            if !body.read_to(APPLY_BODY_BYTES_MAX).await? {
                return Err(too_large(APPLY_BODY_BYTES_MAX));
            }
        }
        let bytes = body.into_bytes();
        Ok(Self { value: parsed(&bytes)?, permit, key: head.map(|head| head.named(&bytes)) })
    }
}

impl FromRequestParts<Shared> for Key {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _door: &Shared) -> Result<Self, Refusal> {
        let head = Head::read(&parts.headers, &parts.method, &parts.uri)?;
        Ok(Self(head.map(|head| head.named(&[]))))
    }
}

/// A request that names itself.
#[derive(Clone, Debug)]
pub(crate) struct NamedRequest {
    name: String,
    digest: Digest,
}

impl NamedRequest {
    /// The same as the store knows it: the name is the caller's own.
    pub(crate) fn of(self, caller: &Caller) -> RequestKey {
        RequestKey { token: caller.grant().token, key: self.name, request: self.digest }
    }
}

/// What a request that names itself says before its body.
struct Head {
    name: String,
    said: Vec<u8>,
}

impl Head {
    fn of(request: &Request) -> Result<Option<Self>, Refusal> {
        Self::read(request.headers(), request.method(), request.uri())
    }

    fn read(headers: &HeaderMap, method: &Method, uri: &Uri) -> Result<Option<Self>, Refusal> {
        let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let wrong = |text: &str| Refusal::invalid(IDEMPOTENCY_KEY.as_str(), "idempotency-key", text);
        if values.next().is_some() {
            return Err(wrong("a request has one name"));
        }
        let form = || wrong("a request's name is 1 to 128 visible characters of ASCII, as a UUID");
        let name = value.to_str().map_err(|_| form())?;
        if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&name.len()) || !name.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(form());
        }
        if secret_at(name).is_some() {
            return Err(wrong("this is a token, and would be stored"));
        }
        // No part of these has a line break.
        let mut said = format!("{method}\n{}\n{}\n", uri.path(), uri.query().unwrap_or_default()).into_bytes();
        for tag in headers.get_all(axum::http::header::IF_MATCH) {
            said.extend_from_slice(b"if-match ");
            said.extend_from_slice(Digest::of(tag.as_bytes()).as_bytes());
        }
        Ok(Some(Self { name: name.to_owned(), said }))
    }

    fn named(mut self, body: &[u8]) -> NamedRequest {
        self.said.extend_from_slice(Digest::of(body).as_bytes());
        NamedRequest { name: self.name, digest: Digest::of(&self.said) }
    }
}

/// The bytes of a body of ordinary size.
async fn ordinary(request: Request) -> Result<Bytes, Refusal> {
    let mut body = opened(request, BODY_BYTES_MAX)?;
    if body.read_to(BODY_BYTES_MAX).await? { Ok(body.into_bytes()) } else { Err(too_large(BODY_BYTES_MAX)) }
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(ProblemType::BodyTooLarge, format!("the body of this call has at most {bytes_max} bytes"))
}

/// The body, unless its head says that it is no JSON or too large.
fn opened(request: Request, bytes_max: usize) -> Result<PacedBody, Refusal> {
    let kind = request.headers().get(axum::http::header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    if kind.is_some_and(|kind| !is_json(kind)) {
        return Err(Refusal::new(
            ProblemType::MediaType,
            "`content-type` says that the body is no JSON; send application/json",
        ));
    }
    let told = request.headers().get(axum::http::header::CONTENT_LENGTH);
    let told = told.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<usize>().ok());
    if told.is_some_and(|len| len > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(PacedBody::new(request.into_body()))
}

fn is_json(kind: &str) -> bool {
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Refusal::invalid("body", "json-utf8", format!("the body is no UTF-8 from byte {}", error.valid_up_to()))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let rule = match error.classify() {
            Category::Eof => "json-cut",
            Category::Data => "json-shape",
            Category::Syntax | Category::Io => "json",
        };
        Refusal::invalid("body", rule, format!("the body is not understood: {error}"))
    })
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Slow => Self::new(ProblemType::RequestTimeout, error.to_string()),
            BodyError::Broken => Self::invalid("body", "body", error.to_string()),
        }
    }
}

/// A query, in which an unknown field is a fault.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                Err(Refusal::invalid("query", "query", format!("the query is not understood: {source}")))
            }
        }
    }
}

/// Reads `30s`, `500ms`, `2m` or bare seconds, at most [`WAIT_MAX`].
pub(crate) fn wait_of(text: Option<&str>) -> Result<Option<Duration>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || Refusal::invalid("wait", "duration", "a wait is written as 30s, 500ms or 1m");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let wait = match unit {
        "ms" => Duration::from_millis(number),
        "" | "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(wrong()),
    };
    Ok(Some(wait.min(WAIT_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const EMPTY: HeaderValue = HeaderValue::from_static("");

    fn mk_head(names: &[&str], path: &'static str) -> Result<Option<Head>, Refusal> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(name.as_bytes()).unwrap_or(EMPTY));
        }
        Head::read(&headers, &Method::POST, &Uri::from_static(path))
    }

    #[test]
    fn i15_a_request_that_names_itself_is_known_by_all_that_it_asks_for() {
        let of = |path: &'static str, body: &[u8]| {
            mk_head(&["k"], path).expect("a name").expect("it is there").named(body).digest
        };
        assert_eq!(of("/v1/apply", b"{}"), of("/v1/apply", b"{}"));
        for (path, body) in [("/v1/delete", &b"{}"[..]), ("/v1/apply?a=b", b"{}"), ("/v1/apply", b"{ }")] {
            assert_ne!(of("/v1/apply", b"{}"), of(path, body), "{path}");
        }
        assert!(mk_head(&[], "/v1/apply").expect("none is fine").is_none());
    }

    #[test]
    fn a_name_that_is_long_empty_twofold_or_a_token_is_refused() {
        assert!(mk_head(&[&"x".repeat(IDEMPOTENCY_KEY_BYTES_MAX)], "/").is_ok());
        let long = "x".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1);
        for wrong in [&["a", "a"][..], &[""], &["a b"], &[&long]] {
            let refusal = mk_head(wrong, "/").err().expect("refused");
            assert_eq!(refusal.problem().findings.first().map(|found| found.rule.as_str()), Some("idempotency-key"));
        }
    }

    #[test]
    fn waits_have_units_and_a_bound() {
        assert_eq!(wait_of(Some("30s")).expect("reads"), Some(Duration::from_secs(30)));
        assert_eq!(wait_of(Some("250ms")).expect("reads"), Some(Duration::from_millis(250)));
        assert_eq!(wait_of(Some("5")).expect("reads"), Some(Duration::from_secs(5)));
        assert_eq!(wait_of(Some("9m")).expect("reads"), Some(WAIT_MAX));
        assert_eq!(wait_of(None).expect("reads"), None);
        for wrong in ["", "s", "-1s", "1h", "1.5s"] {
            assert!(wait_of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
