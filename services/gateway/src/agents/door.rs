//! The door itself: accept, tell echo from TLS, handshake, tell sessions from HTTP, drain.
//!
//! - A stranger costs little: handshakes are counted and capped, in all and per address, and each has a time limit.
//! - An echo is answered before any TLS, byte for byte and once: an agent proves by it that its policy lets packets through.
//! - On shutdown nobody is let in any more and every agent is told its own moment to leave.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::{Extension, Router};
use holdfast_identity::tls::{Admission, ServerTls};
use holdfast_model::ids::AuthorityId;
use holdfast_runtime::accept::{DoorLimits, Entrance, Permits, serve_http};
use holdfast_runtime::{Chain, Tasks};
use holdfast_wire::echo::{ECHO_BYTES, MAGIC, TLS_HANDSHAKE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use super::connections::Connections;
use super::context::Context;
use super::gauges::{Stranger, record_stranger};
use super::limits::{CONNECTIONS_MAX, HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE_MAX, SHORT_TIMEOUT};
use super::session;
use super::sync::CameFrom;

/// What the door opens to.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) context: Arc<Context>,
    pub(super) authority: AuthorityId,
    pub(super) tls: Arc<ServerTls>,
    pub(super) http: Router,
    pub(super) connections: Connections,
    pub(super) tasks: Tasks,
}

impl Door {
    /// Lets connections in until the end is asked for, then asks every agent to leave.
    pub(super) async fn run(self: Arc<Self>, listener: TcpListener) {
        let limits = DoorLimits {
            handshakes_max: HANDSHAKES_MAX,
            handshakes_per_source_max: HANDSHAKES_PER_SOURCE_MAX,
            connections_max: CONNECTIONS_MAX,
        };
        let entrance = Entrance::new(listener, limits);
        loop {
            let Some(admitted) = self.tasks.shutdown().unless_asked(entrance.next()).await else { break };
            let (stream, address, permits) = admitted;
            let door = Arc::clone(&self);
            self.tasks.spawn("agent connection", async move {
                door.connection(stream, address, permits).await;
                Ok::<_, Infallible>(())
            });
        }
        drop(entrance);
        self.context.registry.drain(self.context.drain_spread);
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr, permits: Permits) {
        let first = match first_byte(&stream).await {
            Some(first) => first,
            None => {
                record_stranger(Stranger::Silent);
                return tracing::debug!(%address, "a connection said nothing");
            }
        };
        if first != TLS_HANDSHAKE {
            return echo(stream, address, first).await;
        }
        let stream = match self.tls.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                record_stranger(Stranger::Handshake);
                return tracing::debug!(%address, error = %Chain(&error), "a handshake failed");
            }
        };
        let Permits { connection: _open, handshake } = permits;
        drop(handshake);
        match Admission::of(stream.get_ref().1, self.authority) {
            Ok(Admission::Session(peer)) => {
                let from = address.ip().to_canonical();
                session::serve(Arc::clone(&self.context), stream, peer, from).await;
            }
            Ok(admission @ (Admission::HttpHost(_) | Admission::HttpAnonymous)) => {
                self.http(stream, address, admission).await;
            }
            Err(error) => {
                record_stranger(Stranger::Identity);
                tracing::debug!(%address, %error, "a connection is turned away");
            }
        }
    }

    async fn http(&self, stream: TlsStream<TcpStream>, address: SocketAddr, admission: Admission) {
        let draining = self.tasks.shutdown().asked();
        let http = self.http.clone().layer(Extension(CameFrom(address.ip())));
        let place = match &admission {
            Admission::HttpHost(peer) => Some(self.connections.enter(peer.host)),
            Admission::HttpAnonymous | Admission::Session(_) => None,
        };
        let serving = serve_http(stream, address, http, admission, SHORT_TIMEOUT, draining);
        let Some(mut place) = place else { return serving.await };
        tokio::select! {
            () = serving => {}
            () = place.lost() => tracing::debug!(%address, "a newer connection of the same host takes the place of its oldest"),
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
        record_stranger(Stranger::NoTls);
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
