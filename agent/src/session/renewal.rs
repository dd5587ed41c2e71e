//! The next certificate, before the one in use ends.
//!
//! - Between 14 and 16 hours of a life of 24; the session goes on, the next dial uses the new one.
//! - The new key is made here; the old certificate stays in use until the new one is whole on disk.
//! - Between two tries lie [`RETRY`] at least, whatever came of the first; a clock by which a fresh certificate is due at once has one an hour.

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

/// Between two tries; eight hours of life are left when the first one is made. Gateways refuse a host that comes back much earlier.
const RETRY: Duration = Duration::from_secs(5 * 60);
/// After a renewal whose certificate is due at once: this host's clock is wrong, and the next one would be no better.
const MISFIT_RETRY: Duration = Duration::from_secs(3_600);

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
    let attempt = async || {
        renew(&enrolment, &gateways).await?;
        tls.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    };
    keep(|| due_in(&enrolment), attempt, tokio::time::sleep).await
}

/// Tries whenever a certificate is due, with a pause behind each try.
async fn keep(
    due_in: impl Fn() -> Result<Duration, enrolment::Error>,
    attempt: impl AsyncFn() -> Result<(), Error>,
    sleep: impl AsyncFn(Duration),
) -> Infallible {
    loop {
        match due_in() {
            Ok(wait) if !wait.is_zero() => {
                sleep(wait).await;
                continue;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(error = %Chain(&error), "host's certificate cannot be read"),
        }
        let pause = match attempt().await {
            Ok(()) if due_in().is_ok_and(|wait| wait.is_zero()) => {
                tracing::error!(
                    "host's certificate is renewed, and by this host's clock it is due again at once: the clock is hours ahead of the \
                     authority's; set it (`holdfast-agent doctor` says by how much)"
                );
                MISFIT_RETRY
            }
            Ok(()) => {
                tracing::info!("host's certificate is renewed");
                RETRY
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "host's certificate is not renewed");
                RETRY
            }
        };
        sleep(pause + Duration::from_millis(random() % 60_000)).await;
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3_600);
    /// More than any day may have; a loop without a pause ends here.
    const TRIES_MAX: u32 = 1_000;

    /// How often a host tries in a day whose certificates are due after `life` by its clock, while each try ends as `ends`.
    fn tries_in_a_day(life: Duration, ends: fn() -> Result<(), Error>) -> u32 {
        let (now, due, tries) = (Cell::new(Duration::ZERO), Cell::new(Duration::ZERO), Cell::new(0));
        let attempt = async || {
            tries.set(tries.get() + 1);
            if tries.get() == TRIES_MAX {
                std::future::pending::<()>().await;
            }
            ends()?;
            due.set(now.get() + life);
            Ok(())
        };
        let sleep = async |wait| {
            now.set(now.get() + wait);
            if now.get() >= DAY {
                std::future::pending::<()>().await;
            }
        };
        let due_in = || Ok(due.get().saturating_sub(now.get()));
        // All else is done at once: it stands still when the day is over.
        let polled = pin!(keep(due_in, attempt, sleep)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        tries.get()
    }

    #[test]
    fn a_clock_by_which_every_certificate_is_due_at_once_renews_once_an_hour() {
        let tries = tries_in_a_day(Duration::ZERO, || Ok(()));
        assert!((20..=24).contains(&tries), "{tries}");
        assert_eq!(tries_in_a_day(DAY * 2 / 3, || Ok(())), 2, "an ordinary day");
    }

    #[test]
    fn a_renewal_that_fails_is_tried_again_after_minutes() {
        let tries = tries_in_a_day(DAY, || Err(Error::Nobody));
        assert!((240..=288).contains(&tries), "{tries}");
    }
}
