//! The next certificate, before the one in use ends.
//!
//! - Between 14 and 16 hours of a life of 24; the session goes on, the next dial uses the new one.
//! - The new key is made here; the old certificate stays in use until the new one is whole on disk.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{self, Client, Request};
use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::{LeafKey, credential, tls};
use holdfast_runtime::Chain;
use holdfast_wire::enrol::{RENEW_PATH, RenewRequest, RenewResponse};
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use rustls::ClientConfig;
use time::OffsetDateTime;

use super::random;
use crate::enrolment::{self, Enrolment};

/// After a failed try; eight hours of life are left when the first one is made.
const RETRY: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Enrolment(#[from] enrolment::Error),
    #[error(transparent)]
    Credential(#[from] credential::Error),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error("cannot ask {gateway}")]
    Gateway {
        gateway: String,
        #[source]
        source: https::Error,
    },
    #[error("{gateway} answers with status {status}")]
    Refused { gateway: String, status: u16 },
    #[error("the answer cannot be read")]
    Answer(#[from] serde_json::Error),
    #[error("there is no gateway to ask")]
    Nobody,
}

/// Renews for as long as it is polled; empties `tls` when the next dial is to use another certificate.
pub(super) async fn run(
    enrolment: Arc<Enrolment>,
    gateways: Vec<String>,
    tls: Arc<Mutex<Option<Arc<ClientConfig>>>>,
) -> Infallible {
    loop {
        match due_in(&enrolment) {
            Ok(wait) if !wait.is_zero() => {
                tokio::time::sleep(wait).await;
                continue;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(error = %Chain(&error), "host's certificate cannot be read"),
        }
        match renew(&enrolment, &gateways).await {
            Ok(()) => {
                tls.lock().unwrap_or_else(PoisonError::into_inner).take();
                tracing::info!("host's certificate is renewed");
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "host's certificate is not renewed");
                tokio::time::sleep(RETRY + Duration::from_millis(random() % 60_000)).await;
            }
        }
    }
}

/// How long until the certificate in use is to be renewed.
fn due_in(enrolment: &Enrolment) -> Result<Duration, enrolment::Error> {
    let draw = u32::try_from(random() & u64::from(u32::MAX)).unwrap_or(0);
    let at = enrolment.credential()?.validity().renew_at(draw);
    let wait = at - OffsetDateTime::now_utc();
    // A clock that is set forward meanwhile is noticed within the hour.
    Ok(Duration::try_from(wait).unwrap_or(Duration::ZERO).min(Duration::from_secs(3_600)))
}

async fn renew(enrolment: &Enrolment, gateways: &[String]) -> Result<(), Error> {
    let leaf = LeafKey::generate()?;
    let body = serde_json::to_vec(&RenewRequest { csr: STANDARD.encode(leaf.request()?) })?;
    let config = agent(&enrolment.credential()?, &enrolment.roots, AgentProtocol::Http)?;
    let client = Client::new(config);
    let mut last = Error::Nobody;
    for gateway in gateways {
        let failed = |source| Error::Gateway { gateway: gateway.clone(), source };
        let request = Request::new(Method::POST, format!("https://{gateway}{RENEW_PATH}"))
            .header(CONTENT_TYPE, "application/json")
            .map_err(failed)?
            .body(body.clone());
        match client.request(request).await {
            Ok(response) if response.status.is_success() => {
                let answer: RenewResponse = serde_json::from_slice(&response.body)?;
                let credential = leaf.credential(answer.certificate_chain.as_bytes())?;
                return Ok(enrolment.save_credential(&credential)?);
            }
            Ok(response) => {
                last = Error::Refused { gateway: gateway.clone(), status: response.status.as_u16() };
            }
            Err(source) => last = failed(source),
        }
    }
    Err(last)
}
