//! Letting connections in, as many as there is room for, and serving HTTP on one.
//!
//! - A connection that has no room waits in the kernel's queue: nothing is read from it and nothing is allocated for it.
//! - A client that reads nothing of its answer is cut off after [`WRITE_PAUSE_MAX`]; one that reads slowly is not.
//! - Handshakes are capped apart from open connections, in all and per address: they cost CPU, and strangers can ask for them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::unstalled::Unstalled;

/// How long to wait when a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a client may take nothing of what is written to it: a piece of 64 KiB on a link of 9 kbit/s.
pub const WRITE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How many strangers a door lets in at once.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Handshakes under way. Beyond it a connection waits in the kernel's queue.
    pub handshakes_max: usize,
    /// Those of one address. Beyond it a connection is closed at once.
    pub handshakes_per_source_max: usize,
    /// Open connections.
    pub connections_max: usize,
}

impl Default for DoorLimits {
    /// A handshake costs about a millisecond of CPU and 64 KiB at most; a connection some tens of KiB.
    fn default() -> Self {
        Self { handshakes_max: 128, handshakes_per_source_max: 32, connections_max: 2_048 }
    }
}

/// The room that a connection takes while it lives.
#[derive(Debug)]
pub struct Permits {
    /// Held as long as the connection is open.
    pub connection: OwnedSemaphorePermit,
    /// Held until its handshake has ended.
    pub handshake: Handshake,
}

/// One handshake under way.
#[derive(Debug)]
pub struct Handshake {
    _permit: OwnedSemaphorePermit,
    _source: Source,
}

/// A listener with a bounded room behind it.
#[derive(Debug)]
pub struct Entrance {
    listener: TcpListener,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    sources: Sources,
}

impl Entrance {
    /// Nobody is inside yet.
    #[must_use]
    pub fn new(listener: TcpListener, limits: DoorLimits) -> Self {
        Self {
            listener,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            handshakes: Arc::new(Semaphore::new(limits.handshakes_max)),
            sources: Sources { per_source_max: limits.handshakes_per_source_max, counts: Arc::default() },
        }
    }

    /// The next connection, once there is room for it. Cancelling it loses none.
    pub async fn next(&self) -> (TcpStream, SocketAddr, Permits) {
        loop {
            let connection = permit(&self.connections).await;
            let handshake = permit(&self.handshakes).await;
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(source) = self.sources.enter(address.ip()) else {
                        tracing::debug!(%address, "too many handshakes from one address");
                        metrics::counter!("holdfast_refused_connections_total", "reason" => "source").increment(1);
                        continue;
                    };
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    let handshake = Handshake { _permit: handshake, _source: source };
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

/// Handshakes under way, by address.
#[derive(Clone, Debug)]
struct Sources {
    per_source_max: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One of them.
#[derive(Debug)]
struct Source {
    sources: Sources,
    address: IpAddr,
}

impl Sources {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing that can panic runs under this lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, unless there are too many.
    fn enter(&self, address: IpAddr) -> Option<Source> {
        let mut counts = self.counts();
        let count = counts.entry(address).or_default();
        if *count >= self.per_source_max {
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
    let stream = Unstalled::new(stream, WRITE_PAUSE_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_own_cap_and_leaves_no_trace() {
        let sources = Sources { per_source_max: 64, counts: Arc::default() };
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let held: Vec<_> = std::iter::from_fn(|| sources.enter(one)).take(10_000).collect();
        assert_eq!(held.len(), 64);
        assert!(sources.enter(other).is_some());
        drop(held);
        assert!(sources.counts().is_empty());
    }

    #[tokio::test]
    async fn a_connection_beyond_the_cap_of_its_address_is_closed_and_the_next_one_has_room_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let at = listener.local_addr().expect("is bound");
        let limits = DoorLimits { handshakes_max: 8, handshakes_per_source_max: 2, connections_max: 8 };
        let entrance = Entrance::new(listener, limits);
        let dial = || async move { TcpStream::connect(at).await.expect("connects") };
        let (_first, _second, third) = (dial().await, dial().await, dial().await);
        let (one, two) = (entrance.next().await, entrance.next().await);
        let mut closed = [0];
        let refused = async {
            let mut third = third;
            tokio::io::AsyncReadExt::read(&mut third, &mut closed).await
        };
        tokio::select! {
            _ = entrance.next() => panic!("the third has no room"),
            read = refused => assert!(matches!(read, Ok(0) | Err(_)), "{read:?}"),
        }
        drop((one, two));
        let _fourth = dial().await;
        entrance.next().await;
    }
}
