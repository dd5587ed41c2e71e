//! Reading requests: bodies bounded in bytes, queries and paths with every fault as a typed problem.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use holdfast_api::object::{APPLY_BODY_BYTES_MAX, BODY_BYTES_MAX};
use holdfast_api::problem::ProblemType;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

use super::door::Shared;
use super::refuse::Refusal;

/// The longest that one request waits; clients that wait longer ask again.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// A JSON body of ordinary size.
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body that may hold documents. A bounded number of them is in memory at once, for as long as this lives.
pub(crate) struct LargeBody<T> {
    pub(crate) value: T,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _door: &Shared) -> Result<Self, Refusal> {
        Ok(Self(read(request, BODY_BYTES_MAX).await?))
    }
}

impl<T: DeserializeOwned> FromRequest<Shared> for LargeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, door: &Shared) -> Result<Self, Refusal> {
        let permit = std::sync::Arc::clone(&door.large_bodies).try_acquire_owned();
        let busy = |_| Refusal::new(ProblemType::Busy, "too many large requests are under way: try again in a moment");
        let permit = permit.map_err(busy)?;
        Ok(Self { value: read(request, APPLY_BODY_BYTES_MAX).await?, permit })
    }
}

async fn read<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<T, Refusal> {
    let too_large = || {
        let text = format!("the body of this call has at most {bytes_max} bytes");
        Refusal::new(ProblemType::BodyTooLarge, text)
    };
    let told = request.headers().get(axum::http::header::CONTENT_LENGTH);
    let told = told.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<usize>().ok());
    if told.is_some_and(|len| len > bytes_max) {
        return Err(too_large());
    }
    // Beyond the limit it fails; a connection that broke fails too, and then nobody reads the answer.
    let bytes = axum::body::to_bytes(request.into_body(), bytes_max).await.map_err(|_| too_large())?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::invalid("", "json", format!("the body is not understood: {error}")))
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
                Err(Refusal::invalid("", "query", format!("the query is not understood: {source}")))
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
