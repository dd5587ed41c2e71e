//! The next certificate, before the one in use ends.
//!
//! - Between 14 and 16 hours of a life of 24; the session goes on, the next dial uses the new one.
//! - The new key is made here; the old certificate stays in use until the new one is whole on disk.
//! - Whoever is known as a gateway when a try is made is asked, one after the other. One's word is nobody's: what it hands over is kept only if the pinned
//!   CA gave it to this host, and it ends no earlier than the one in use. Else the next one is asked.
//! - By dates nothing else is refused: the key was made for this try, so the certificate is of now, whatever this host's clock says.
//! - Between two tries lie [`RETRY`] at least, whatever came of the first; a clock by which a fresh certificate is due at once has one an hour.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{self, Client, Request};
use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::{Credential, LeafKey, credential, tls};
use holdfast_runtime::Chain;
use holdfast_wire::enrol::{RENEW_PATH, RenewRequest, RenewResponse};
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio::sync::watch;

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
    #[error("cannot make a request")]
    Request(#[source] serde_json::Error),
    #[error("{gateway} answers with status {status}")]
    Refused { gateway: String, status: u16 },
    #[error("what {gateway} answers cannot be read")]
    Answer {
        gateway: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("what {gateway} hands over is no certificate for this host")]
    Unfit {
        gateway: String,
        #[source]
        source: credential::Error,
    },
    #[error("what {gateway} hands over ends at {ends}, before the certificate in use ({in_use})")]
    Earlier { gateway: String, ends: OffsetDateTime, in_use: OffsetDateTime },
    #[error("there is no gateway to ask")]
    Nobody,
}

/// Renews for as long as it is polled; empties `tls` when the next dial is to use another certificate.
pub(super) async fn run(
    enrolment: Arc<Enrolment>,
    gateways: watch::Receiver<Vec<String>>,
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

async fn renew(enrolment: &Enrolment, gateways: &watch::Receiver<Vec<String>>) -> Result<(), Error> {
    let leaf = LeafKey::generate()?;
    let body = serde_json::to_vec(&RenewRequest { csr: STANDARD.encode(leaf.request()?) }).map_err(Error::Request)?;
    let in_use = enrolment.credential()?;
    let client = Client::new(agent(&in_use, &enrolment.roots, AgentProtocol::Http)?);
    // Those that are known now: a fleet's gateways come and go.
    let gateways = gateways.borrow().clone();
    let mut last = Error::Nobody;
    for gateway in gateways {
        let asked = ask(&client, &gateway, body.clone()).await;
        let checked = asked.and_then(|answer| check(enrolment, &in_use, &leaf, gateway, &answer));
        match checked {
            Ok(credential) => return Ok(enrolment.save_credential(&credential)?),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "a gateway gives this host no certificate");
                last = error;
            }
        }
    }
    Err(last)
}

/// Asks one gateway.
async fn ask(client: &Client, gateway: &str, body: Vec<u8>) -> Result<RenewResponse, Error> {
    let failed = |source| Error::Gateway { gateway: gateway.to_owned(), source };
    let request = Request::new(Method::POST, format!("https://{gateway}{RENEW_PATH}"))
        .header(CONTENT_TYPE, "application/json")
        .map_err(failed)?
        .body(body);
    let response = client.request(request).await.map_err(failed)?;
    if !response.status.is_success() {
        return Err(Error::Refused { gateway: gateway.to_owned(), status: response.status.as_u16() });
    }
    serde_json::from_slice(&response.body).map_err(|source| Error::Answer { gateway: gateway.to_owned(), source })
}

/// The certificate that a gateway handed over, if it is one for this host and better than the one in use.
fn check(
    enrolment: &Enrolment,
    in_use: &Credential,
    leaf: &LeafKey,
    gateway: String,
    answer: &RenewResponse,
) -> Result<Credential, Error> {
    let joined = leaf.credential(answer.certificate_chain.as_bytes());
    let checked = joined.and_then(|credential| {
        credential.check_host(&enrolment.roots, enrolment.authority.id, enrolment.host, OffsetDateTime::now_utc())?;
        Ok(credential)
    });
    let credential = match checked {
        Ok(credential) => credential,
        Err(source) => return Err(Error::Unfit { gateway, source }),
    };
    let (ends, in_use) = (credential.validity().not_after, in_use.validity().not_after);
    if ends < in_use { Err(Error::Earlier { gateway, ends, in_use }) } else { Ok(credential) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use holdfast_identity::tls::{ServerTls, agents_door};
    use holdfast_identity::{Ca, KeyRequest, ServerRole};
    use holdfast_model::ids::{AuthorityId, HostId};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::gateways::Gateways;
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

    /// Answers the next who asks with a certificate of a CA for a host, issued that long ago; the port is one for all of them.
    async fn answer(listener: TcpListener, door: &Ca, issuer: &Ca, host: HostId, age: time::Duration) {
        let name = ServerName::IpAddress(listener.local_addr().expect("bound").ip().into());
        let credential =
            door.issue_server(ServerRole::GatewayAgents, &[name], OffsetDateTime::now_utc()).expect("issued");
        let tls = ServerTls::new(agents_door(&credential, &door.roots().expect("roots")).expect("a door"));
        let (stream, _) = listener.accept().await.expect("somebody asks");
        let mut stream = tls.accept(stream).await.expect("a host");
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        let csr = loop {
            let len = stream.read(&mut part).await.expect("a request");
            bytes.extend_from_slice(&part[..len]);
            let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &bytes[at + 4..]);
            if let Some(Ok(request)) = body.map(serde_json::from_slice::<RenewRequest>) {
                break STANDARD.decode(request.csr).expect("base64");
            }
        };
        let csr = KeyRequest::from_der(&csr).expect("a request");
        let leaf = issuer.issue_host(host, &csr, OffsetDateTime::now_utc() - age).expect("issued");
        let body = serde_json::to_string(&RenewResponse { certificate_chain: leaf.chain_pem }).expect("JSON");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.expect("written");
        stream.shutdown().await.expect("written");
    }

    /// Two addresses with one port, so that one may be named by the other.
    async fn two_doors() -> [TcpListener; 2] {
        loop {
            let first = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = first.local_addr().expect("bound").port();
            if let Ok(second) = TcpListener::bind(("127.0.0.2", port)).await {
                return [first, second];
            }
        }
    }

    fn mk_ca() -> Ca {
        let authority = AuthorityId::new(uuid::Uuid::from_u128(1));
        Ca::create(authority, OffsetDateTime::now_utc() - time::Duration::days(2)).expect("a CA")
    }

    #[tokio::test]
    async fn whoever_is_a_gateway_when_a_try_is_made_is_asked_and_nobody_who_was_one_at_the_start() {
        holdfast_identity::tls::install_crypto_provider();
        let (folder, ca) = (tempfile::tempdir().expect("a folder"), mk_ca());
        let enrolment = Enrolment::under(&ca, folder.path(), time::Duration::hours(20));
        let [first, second] = two_doors().await;
        let name = |door: &TcpListener| door.local_addr().expect("bound").to_string();
        let mut gateways = Gateways::load(folder.path(), &[name(&first)]);
        let asked = gateways.asked();
        assert!(gateways.rename(&[name(&second)]));
        drop(first);
        let answered = answer(second, &ca, &ca, enrolment.host, time::Duration::ZERO);
        let before = enrolment.credential().expect("there").validity();
        let (renewed, ()) = tokio::join!(renew(&enrolment, &asked), answered);
        renewed.expect("renewed");
        assert!(enrolment.credential().expect("there").validity().not_after > before.not_after);
    }

    #[tokio::test]
    async fn a_certificate_that_is_anothers_or_ends_before_the_one_in_use_is_not_kept_and_the_next_gateway_is_asked() {
        holdfast_identity::tls::install_crypto_provider();
        let (ca, other) = (mk_ca(), mk_ca());
        let neighbour = HostId::new(uuid::Uuid::from_u128(43));
        let (now, day) = (time::Duration::ZERO, time::Duration::hours(23));
        for (issuer, host, age, expected) in [
            (&other, None, now, "a door would not let the certificate in"),
            (&ca, Some(neighbour), now, "the certificate is that of"),
            (&ca, None, day, "before the certificate in use"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let enrolment = Enrolment::under(&ca, folder.path(), time::Duration::hours(20));
            let pem = || std::fs::read(folder.path().join("identity/host.pem")).expect("there");
            let old = pem();
            let [first, second] = two_doors().await;
            let names = [&first, &second].map(|door| door.local_addr().expect("bound").to_string());
            let lie = answer(first, &ca, issuer, host.unwrap_or(enrolment.host), age);
            let alone = watch::channel(vec![names[0].clone()]).1;
            let (refused, ()) = tokio::join!(renew(&enrolment, &alone), lie);
            let text = Chain(&refused.expect_err("refused")).to_string();
            assert!(text.contains(expected) && text.contains(&names[0]), "{text}");
            assert_eq!(pem(), old, "{expected}");
            // The liar is gone: nothing of it is left, and the next one's word is taken.
            let both = watch::channel(names.to_vec()).1;
            let (renewed, ()) = tokio::join!(renew(&enrolment, &both), answer(second, &ca, &ca, enrolment.host, now));
            renewed.expect("renewed");
            assert_ne!(pem(), old, "{expected}");
        }
    }
}
