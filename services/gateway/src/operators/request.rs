//! Reading requests: bodies bounded in bytes, queries and paths with every fault as a typed problem.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use holdfast_api::object::{APPLY_BODY_BYTES_MAX, BODY_BYTES_MAX};
use holdfast_api::problem::ProblemType;
use holdfast_runtime::body::{BodyError, PacedBody};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

use super::door::Shared;
use super::refuse::Refusal;

/// The longest that one request waits; clients that wait longer ask again.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// A JSON body of ordinary size.
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body that may hold documents. A bounded number of large ones is in memory at once, for as long as this lives.
pub(crate) struct LargeBody<T> {
    pub(crate) value: T,
    /// Absent for one of ordinary size.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _door: &Shared) -> Result<Self, Refusal> {
        let mut body = opened(request, BODY_BYTES_MAX)?;
        if !body.read_to(BODY_BYTES_MAX).await? {
            return Err(too_large(BODY_BYTES_MAX));
        }
        Ok(Self(parsed(body)?))
    }
}

impl<T: DeserializeOwned> FromRequest<Shared> for LargeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, door: &Shared) -> Result<Self, Refusal> {
        let mut body = opened(request, APPLY_BODY_BYTES_MAX)?;
        if body.read_to(BODY_BYTES_MAX).await? {
            return Ok(Self { value: parsed(body)?, permit: None });
        }
        let permit = Arc::clone(&door.large_bodies).try_acquire_owned();
        let busy = |_| Refusal::new(ProblemType::Busy, "too many large requests are under way: try again in a moment");
        let permit = permit.map_err(busy)?;
        if !body.read_to(APPLY_BODY_BYTES_MAX).await? {
            return Err(too_large(APPLY_BODY_BYTES_MAX));
        }
        Ok(Self { value: parsed(body)?, permit: Some(permit) })
    }
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

fn parsed<T: DeserializeOwned>(body: PacedBody) -> Result<T, Refusal> {
    let bytes = body.into_bytes();
    let text = std::str::from_utf8(&bytes).map_err(|error| {
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
