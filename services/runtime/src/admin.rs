//! The admin listener: `/livez`, `/readyz`, `/metrics`, `/version`; and the client of the `healthcheck` sub-command.
//!
//! - It is plain HTTP for one machine (loopback by default), answers reads only, and shows no secret and no host.
//! - It lives through the drain, so that `/readyz` says 503 until the process is gone.
//! - Its connections are few and short: a slow or idle one is closed.

use crate::Build;
use crate::chain::Chain;
use crate::exit::{Exit, Fatal};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::tasks::Tasks;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A scraper, an orchestrator and a few people: more is an accident.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may take for a request's head, and an idle connection may stay.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer the health check reads; a report of 100 checks has about 20 KiB.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Why the listener or a health check failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody answers.
    #[error("cannot connect to {address}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What answers is no admin listener.
    #[error("{address} does not speak HTTP")]
    Exchange {
        /// The address.
        address: SocketAddr,
        /// What hyper said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer did not come in time.
    #[error("{address} did not answer within {} ms", limit.as_millis())]
    Timeout {
        /// The address.
        address: SocketAddr,
        /// The limit.
        limit: Duration,
    },
    /// The process is up and not ready.
    #[error("not ready ({status}): {report}")]
    NotReady {
        /// What was answered.
        status: StatusCode,
        /// The report, as it came, without control characters.
        report: String,
    },
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Listen { .. } => Exit::Config,
            Self::Connect { .. } | Self::Exchange { .. } | Self::Timeout { .. } | Self::NotReady { .. } => {
                Exit::Unavailable
            }
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "admin-listen",
            Self::Connect { .. } | Self::Exchange { .. } | Self::Timeout { .. } => "admin-unreachable",
            Self::NotReady { .. } => "not-ready",
        }
    }
}

/// What the listener shows.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Who this is.
    pub build: Build,
    /// Readiness.
    pub health: Health,
    /// Metrics.
    pub metrics: Metrics,
}

/// A bound admin listener.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    shown: Arc<Shown>,
}

impl Admin {
    /// Binds, so that a taken port stops the start.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub async fn bind(address: SocketAddr, shown: Shown) -> Result<Self, Error> {
        let fail = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address, shown: Arc::new(shown) })
    }

    /// Where it listens (port 0 is resolved).
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process has drained.
    pub fn serve(self, tasks: &Tasks) {
        let spawner = tasks.clone();
        tasks.background("admin listener", async move {
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            loop {
                // Never closed, so a place always comes; it is given back when the connection ends.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok::<_, Infallible>(()) };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let shown = Arc::clone(&self.shown);
                        spawner.detached("admin connection", async move {
                            let _place = place;
                            serve_connection(stream, shown).await
                        });
                    }
                    Err(error) => {
                        // Out of descriptors: they come back when connections end.
                        tracing::warn!(error = %Chain(&error), "cannot accept an admin connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection(stream: TcpStream, shown: Arc<Shown>) -> Result<(), hyper::Error> {
    let service = service_fn(|request| {
        let shown = Arc::clone(&shown);
        async move { Ok::<_, Infallible>(answer(&request, &shown).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(request: &Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "read only\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/livez" | "/healthz" => respond(StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => {
            let report = shown.health.report();
            let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            respond_json(status, &report)
        }
        "/metrics" => respond(StatusCode::OK, "text/plain; version=0.0.4", shown.metrics.scrape().await),
        "/version" => respond_json(StatusCode::OK, &shown.build),
        _ => respond(StatusCode::NOT_FOUND, "text/plain", "/livez /readyz /metrics /version\n".to_owned()),
    }
}

fn respond_json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_string(value).expect("the types served here have text keys and serialize whole");
    respond(status, "application/json", text)
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Asks a process on this machine whether it is ready: the `healthcheck` sub-command of every binary.
///
/// # Errors
/// [`Error`]: not reached, not answered in time, or not ready, with its report.
pub async fn healthcheck(listen: SocketAddr, limit: Duration) -> Result<(), Error> {
    let address = reachable(listen);
    match tokio::time::timeout(limit, ask(address)).await {
        Ok(answered) => answered,
        Err(_elapsed) => Err(Error::Timeout { address, limit }),
    }
}

/// Who listens on every address is asked on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(address: SocketAddr) -> Result<(), Error> {
    let broke = |source: hyper::Error| Error::Exchange { address, source: Box::new(source) };
    let stream = TcpStream::connect(address).await.map_err(|source| Error::Connect { address, source })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let request = Request::get("/readyz")
        .header(HOST, address.to_string())
        .body(Full::<Bytes>::default())
        .expect("a fixed path and an address make a request");
    let answered = async {
        let response = sender.send_request(request).await.map_err(broke)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|source| Error::Exchange { address, source })?.to_bytes();
        // Ends the connection, and with it the other half of the join.
        drop(sender);
        Ok((status, body))
    };
    let (answered, connected) = tokio::join!(answered, connection);
    let (status, body) = answered?;
    if let Err(error) = connected {
        tracing::debug!(error = %Chain(&error), "the connection ended after its answer");
    }
    if status == StatusCode::OK {
        return Ok(());
    }
    let report = String::from_utf8_lossy(&body).chars().filter(|char| !char.is_control()).take(4_096).collect();
    Err(Error::NotReady { status, report })
}

#[cfg(test)]
mod tests;
