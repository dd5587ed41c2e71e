//! Letting connections in, as many as there is room for, and serving HTTP on one.
//!
//! - A connection that has no room waits in the kernel's queue: nothing is read from it and nothing is allocated for it.
//! - Handshakes are capped apart from open connections: they cost CPU, and strangers can ask for them.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::chain::Chain;

/// How long to wait when a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);

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

/// The room that a connection takes while it lives.
#[derive(Debug)]
pub struct Permits {
    /// Held as long as the connection is open.
    pub connection: OwnedSemaphorePermit,
    /// Held until its handshake has ended.
    pub handshake: OwnedSemaphorePermit,
}

/// A listener with a bounded room behind it.
#[derive(Debug)]
pub struct Entrance {
    listener: TcpListener,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
}

impl Entrance {
    /// Nobody is inside yet.
    #[must_use]
    pub fn new(listener: TcpListener, limits: DoorLimits) -> Self {
        Self {
            listener,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            handshakes: Arc::new(Semaphore::new(limits.handshakes_max)),
        }
    }

    /// The next connection, once there is room for it. Cancelling it loses none.
    pub async fn next(&self) -> (TcpStream, SocketAddr, Permits) {
        loop {
            let connection = permit(&self.connections).await;
            let handshake = permit(&self.handshakes).await;
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    return (stream, address, Permits { connection, handshake });
                }
                Err(error) => {
                    // Out of descriptors, most likely: accepting at once again would only spin.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("an entrance never closes its semaphores")
}

/// Serves `router` on one connection until either side ends it, or `draining` ends and the request under way is answered.
///
/// Every request gets a copy of `extension`: what the connection knows of who asks.
pub async fn serve_http<S, E>(
    stream: S,
    address: SocketAddr,
    router: Router,
    extension: E,
    head_timeout: Duration,
    draining: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Clone + Send + Sync + 'static,
{
    let service = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(extension.clone());
        hyper::service::Service::call(&service, request)
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_timeout);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = draining => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, error = %Chain(&error), "a connection broke");
    }
}
