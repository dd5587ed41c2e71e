//! The HTTPS doors: accept, handshake, serve, drain.
//!
//! - A stranger costs little: handshakes and connections are counted and capped, each handshake and each request head has a time limit.
//! - Shutdown stops accepting, lets requests under way finish, and ends what is left after a grace.
//! - A handler learns who connected from the [`Peer`] extension; what a role may do is its business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use holdfast_identity::tls::ServerTls;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use crate::accept::DoorLimits;
use crate::accept::{Entrance, Permits, serve_http};

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

/// Serves `router` until `shutdown`, then drains.
pub async fn serve_https(
    listener: TcpListener,
    tls: Arc<ServerTls>,
    router: Router,
    limits: DoorLimits,
    shutdown: CancellationToken,
) {
    let entrance = Entrance::new(listener, limits);
    let mut open = JoinSet::new();
    loop {
        // Reaps what ended, so that the set does not grow with every connection ever made.
        while let Some(ended) = open.try_join_next() {
            note_panic(ended);
        }
        let (stream, address, permits) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            admitted = entrance.next() => admitted,
        };
        open.spawn(connection(stream, address, permits, Arc::clone(&tls), router.clone(), shutdown.clone()));
    }
    drop(entrance);
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

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    permits: Permits,
    tls: Arc<ServerTls>,
    router: Router,
    shutdown: CancellationToken,
) {
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%address, %error, "a handshake failed"),
    };
    let Permits { connection: _open, handshake } = permits;
    drop(handshake);
    let certificate =
        stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|leaf| leaf.clone().into_owned());
    let peer = Peer { address, certificate };
    serve_http(stream, address, router, peer, HEAD_TIMEOUT, shutdown.cancelled()).await;
}

#[cfg(test)]
mod tests;
