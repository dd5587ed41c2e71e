//! The door itself: accept, tell echo from TLS, handshake, tell sessions from HTTP, drain.
//!
//! - A stranger costs little: handshakes are counted and capped, in all and per address, and each has a time limit.
//! - An echo is answered before any TLS, byte for byte and once: an agent proves by it that its policy lets packets through.
//! - On shutdown nobody is let in any more and every agent is told its own moment to leave.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use holdfast_identity::tls::{Admission, ServerTls};
use holdfast_model::ids::AuthorityId;
use holdfast_runtime::{Chain, Tasks};
use holdfast_wire::echo::{ECHO_BYTES, MAGIC, TLS_HANDSHAKE};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;

use super::context::Context;
use super::limits::{CONNECTIONS_MAX, DRAIN_SPREAD_MS, HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE_MAX, SHORT_TIMEOUT};
use super::session;

/// What the door opens to.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) context: Arc<Context>,
    pub(super) authority: AuthorityId,
    pub(super) tls: Arc<ServerTls>,
    pub(super) http: Router,
    pub(super) tasks: Tasks,
    pub(super) sources: Sources,
}

impl Door {
    /// Lets connections in until the end is asked for, then asks every agent to leave.
    pub(super) async fn run(self: Arc<Self>, listener: TcpListener) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let admitted = self.tasks.shutdown().unless_asked(admit(&listener, &connections, &handshakes)).await;
            let Some(admitted) = admitted else { break };
            let Some((stream, address, permits)) = admitted else { continue };
            let Some(source) = self.sources.enter(address.ip()) else {
                tracing::debug!(%address, "too many handshakes from one address");
                metrics::counter!("holdfast_gateway_refused_connections_total", "reason" => "source").increment(1);
                continue;
            };
            let door = Arc::clone(&self);
            self.tasks.spawn("agent connection", async move {
                door.connection(stream, address, permits, source).await;
                Ok::<_, Infallible>(())
            });
        }
        drop(listener);
        self.context.registry.drain(DRAIN_SPREAD_MS);
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr, permits: Permits, source: Source) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let first = match first_byte(&stream).await {
            Some(first) => first,
            None => return tracing::debug!(%address, "a connection said nothing"),
        };
        if first != TLS_HANDSHAKE {
            return echo(stream, address, first).await;
        }
        let stream = match self.tls.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%address, error = %Chain(&error), "a handshake failed"),
        };
        let Permits { connection: _open, handshake } = permits;
        drop(handshake);
        drop(source);
        match Admission::of(stream.get_ref().1, self.authority) {
            Ok(Admission::Session(peer)) => session::serve(Arc::clone(&self.context), stream, peer).await,
            Ok(admission @ (Admission::HttpHost(_) | Admission::HttpAnonymous)) => {
                self.http(stream, address, admission).await;
            }
            Err(error) => tracing::debug!(%address, %error, "a connection is turned away"),
        }
    }

    async fn http(&self, stream: TlsStream<TcpStream>, address: SocketAddr, admission: Admission) {
        let service = TowerToHyperService::new(self.http.clone());
        let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(admission.clone());
            hyper::service::Service::call(&service, request)
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(SHORT_TIMEOUT);
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = self.tasks.shutdown().asked() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, error = %Chain(&error), "a connection broke");
        }
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

/// The first byte of a connection, left where it is.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut first = [0];
    match tokio::time::timeout(SHORT_TIMEOUT, stream.peek(&mut first)).await {
        Ok(Ok(1..)) => first.first().copied(),
        Ok(Ok(0) | Err(_)) | Err(_) => None,
    }
}

/// Gives an echo back, or closes on anything else.
async fn echo(mut stream: TcpStream, address: SocketAddr, first: u8) {
    if MAGIC.first() != Some(&first) {
        return tracing::debug!(%address, "neither TLS nor an echo");
    }
    let answer = async {
        let mut bytes = [0; ECHO_BYTES];
        stream.read_exact(&mut bytes).await?;
        if bytes.starts_with(&MAGIC) {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
        }
        Ok::<_, std::io::Error>(())
    };
    match tokio::time::timeout(SHORT_TIMEOUT, answer).await {
        Ok(Ok(())) => metrics::counter!("holdfast_gateway_echoes_total").increment(1),
        Ok(Err(error)) => tracing::debug!(%address, %error, "an echo broke"),
        Err(_elapsed) => tracing::debug!(%address, "an echo took too long"),
    }
}

/// Handshakes under way, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One handshake under way.
#[derive(Debug)]
pub(super) struct Source {
    sources: Sources,
    address: IpAddr,
}

impl Sources {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing that can panic runs under this lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, unless there are too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Source> {
        let mut counts = self.counts();
        let count = counts.entry(address).or_default();
        if *count >= HANDSHAKES_PER_SOURCE_MAX {
            return None;
        }
        *count += 1;
        Some(Source { sources: self.clone(), address })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let mut counts = self.sources.counts();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_own_cap_and_leaves_no_trace() {
        let sources = Sources::default();
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let held: Vec<_> = std::iter::from_fn(|| sources.enter(one)).take(10_000).collect();
        assert_eq!(held.len(), HANDSHAKES_PER_SOURCE_MAX);
        assert!(sources.enter(other).is_some());
        drop(held);
        assert!(sources.counts().is_empty());
    }
}
