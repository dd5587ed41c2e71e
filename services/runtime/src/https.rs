//! The HTTPS doors: accept, handshake, serve, drain.
//!
//! - A stranger costs little: handshakes and connections are counted and capped, each handshake and each request head has a time limit.
//! - Shutdown stops accepting, lets requests under way finish, and ends what is left after a grace.
//! - A handler learns who connected from the [`Peer`] extension; what a role may do is its business.

use std::future::Future as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use holdfast_identity::tls::ServerTls;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may go on after the shutdown began.
const GRACE: Duration = Duration::from_secs(10);

/// Who is at the other end of a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    /// The client certificate that the handshake verified, if one was shown.
    pub certificate: Option<CertificateDer<'static>>,
}

/// How many strangers a door lets in at once.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Handshakes under way. Beyond it a connection waits in the kernel's queue.
    pub handshakes_max: usize,
    /// Open connections.
    pub connections_max: usize,
}

impl Default for DoorLimits {
    /// A handshake costs about a millisecond of CPU and 64 KiB at most; a connection some tens of KiB.
    fn default() -> Self {
        Self { handshakes_max: 128, connections_max: 2_048 }
    }
}

/// Serves `router` until `shutdown`, then drains.
pub async fn serve_https(
    listener: TcpListener,
    tls: Arc<ServerTls>,
    router: Router,
    limits: DoorLimits,
    shutdown: CancellationToken,
) {
    let handshakes = Arc::new(Semaphore::new(limits.handshakes_max));
    let connections = Arc::new(Semaphore::new(limits.connections_max));
    let mut open = JoinSet::new();
    loop {
        // Reaps what ended, so that the set does not grow with every connection ever made.
        while let Some(ended) = open.try_join_next() {
            note_panic(ended);
        }
        let admitted = tokio::select! {
            () = shutdown.cancelled() => break,
            admitted = admit(&listener, &connections, &handshakes) => admitted,
        };
        if let Some((stream, address, permits)) = admitted {
            open.spawn(connection(stream, address, permits, Arc::clone(&tls), router.clone(), shutdown.clone()));
        }
    }
    drop(listener);
    let drained = async {
        while let Some(ended) = open.join_next().await {
            note_panic(ended);
        }
    };
    if tokio::time::timeout(GRACE, drained).await.is_err() {
        tracing::warn!("requests still under way are cut off");
    }
}

/// A panic of one connection ends that connection alone; it is counted beside those of the supervised tasks.
fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        metrics::counter!("holdfast_task_panics_total", "task" => "https connection").increment(1);
        tracing::error!(%error, "the task of an HTTPS connection panicked");
    }
}

struct Permits {
    connection: OwnedSemaphorePermit,
    handshake: OwnedSemaphorePermit,
}

/// The next connection, once there is room for it.
async fn admit(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
    handshakes: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, Permits)> {
    let connection = Arc::clone(connections).acquire_owned().await.ok()?;
    let handshake = Arc::clone(handshakes).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address, Permits { connection, handshake })),
        Err(error) => {
            // Out of descriptors, most likely: accepting at once again would only spin.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    permits: Permits,
    tls: Arc<ServerTls>,
    router: Router,
    shutdown: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%address, %error, "a handshake failed"),
    };
    let Permits { connection: _open, handshake } = permits;
    drop(handshake);
    let certificate =
        stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|leaf| leaf.clone().into_owned());
    let peer = Peer { address, certificate };
    let service = with_peer(router, peer);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut draining = pin!(shutdown.cancelled());
    let mut told = false;
    let ended = std::future::poll_fn(|context| {
        if !told && draining.as_mut().poll(context).is_ready() {
            told = true;
            serving.as_mut().graceful_shutdown();
        }
        serving.as_mut().poll(context)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "a connection broke");
    }
}

/// The router as a service of one connection, with its peer as an extension of each request.
fn with_peer(
    router: Router,
    peer: Peer,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> {
    let service = TowerToHyperService::new(router);
    hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        hyper::service::Service::call(&service, request)
    })
}

#[cfg(test)]
mod tests;
