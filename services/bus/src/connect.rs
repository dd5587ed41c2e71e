//! The connection of one process.
//!
//! - It is made in the background and kept for ever: NATS away at the start or later stops nobody.
//! - Reconnects wait `random(0, min(4 s, 50 ms × 2^n))`: the client's own delay has no jitter, so that a fleet of gateways would come in one wave.
//! - A silent connection is found within two pings of 10 s (the client's default takes minutes, measured).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{ConnectOptions, Event, jetstream};
use holdfast_events::Hint;
use holdfast_runtime::fail_point;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::{BusError, boxed};

/// How a process reaches NATS.
#[derive(Clone)]
pub struct BusConfig {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`, several with commas.
    pub url: String,
    /// The name that the server shows, e.g. `gateway gw_…`.
    pub name: String,
    /// The user whose certificate it shows; its inboxes begin with `_INBOX_<user>`, so that nobody listens to another's answers.
    pub user: String,
    /// Client certificate and trust; absent only for a server without TLS.
    pub tls: Option<rustls::ClientConfig>,
}

/// Whether there is a connection, and the how many-th it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// How often a connection was made; each one may have missed what was sent before it.
    pub connections: u64,
    /// Whether there is one now.
    pub up: bool,
}

/// The bus, as one process has it. Cloning shares the connection.
#[derive(Clone)]
pub struct Bus {
    pub(crate) client: async_nats::Client,
    pub(crate) jetstream: jetstream::Context,
    link: watch::Receiver<Link>,
    /// Whether the stream of events was there once: if it is not, somebody has deleted it.
    pub(crate) events_seen: Arc<AtomicBool>,
    /// On how many servers of a cluster each stream is kept.
    pub(crate) replicas: StreamReplicas,
}

/// On how many servers of a cluster a stream is kept: 1 to 5, which is what `JetStream` has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamReplicas(usize);

impl StreamReplicas {
    /// On one server alone.
    pub const ONE: Self = Self(1);

    /// So many, if there can be.
    #[must_use]
    pub const fn new(count: usize) -> Option<Self> {
        match count {
            1..=5 => Some(Self(count)),
            _ => None,
        }
    }

    pub(crate) const fn count(self) -> usize {
        self.0
    }
}

/// How long a request to JetStream may take. Longer than a busy disk, shorter than anybody waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

impl Bus {
    /// Starts connecting; the answer does not wait for the server.
    ///
    /// # Errors
    /// [`BusError::Connect`] if the address or the TLS files are of no use.
    pub async fn connect(config: BusConfig) -> Result<Self, BusError> {
        let (told, link) = watch::channel(Link::default());
        let seed = Arc::new(AtomicU64::new(Uuid::now_v7().as_u64_pair().1));
        let mut options = ConnectOptions::new()
            .name(config.name)
            .custom_inbox_prefix(format!("_INBOX_{}", config.user))
            .retry_on_initial_connect()
            .ping_interval(Duration::from_secs(10))
            .connection_timeout(Duration::from_secs(5))
            .request_timeout(Some(REQUEST_TIMEOUT))
            .reconnect_delay_callback(move |attempt| jittered(attempt, &seed))
            .event_callback(move |event| {
                let told = told.clone();
                async move { observe(&event, &told) }
            });
        if let Some(tls) = config.tls {
            options = options.require_tls(true).tls_client_config(tls);
        }
        let addresses: Vec<&str> = config.url.split(',').map(str::trim).collect();
        let client = options
            .connect(addresses)
            .await
            .map_err(|source| BusError::Connect { url: config.url.clone(), source: Box::new(source) })?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(REQUEST_TIMEOUT);
        Ok(Self { client, jetstream, link, events_seen: Arc::default(), replicas: StreamReplicas::ONE })
    }

    /// The same, whose streams are kept on so many servers of a cluster. For whoever makes them.
    #[must_use]
    pub fn with_replicas(self, replicas: StreamReplicas) -> Self {
        Self { replicas, ..self }
    }

    /// The state of the connection, and a way to wait for its change.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// The server's version, once connected.
    #[must_use]
    pub fn server_version(&self) -> Option<String> {
        Some(self.client.server_info().version).filter(|version| !version.is_empty())
    }

    /// Whether the server has the fixes that a shared installation needs: 2.12.6 or later (CVE-2026-33222, CVE-2026-33248). Absent before the first
    /// connection.
    #[must_use]
    pub fn server_is_current(&self) -> Option<bool> {
        self.server_version().map(|_| self.client.is_server_compatible(2, 12, 6))
    }

    /// Publishes one hint and waits until the stream has it.
    ///
    /// # Errors
    /// [`BusError`]; the hint is then lost or not, which costs time at most.
    pub async fn publish_hint(&self, hint: &Hint) -> Result<(), BusError> {
        let payload = hint.encode().map_err(|error| BusError::request("take a hint")(boxed(error)))?;
        fail_point("hint", "before it is published");
        let ack = self.jetstream.publish(hint.subject(), payload.into()).await.map_err(publish_error)?;
        ack.await.map_err(publish_error)?;
        fail_point("hint", "after it was published");
        Ok(())
    }

    /// Sends what is still buffered and closes.
    ///
    /// # Errors
    /// [`BusError::Request`] if the connection was gone before.
    pub async fn drain(&self) -> Result<(), BusError> {
        self.client.drain().await.map_err(|error| BusError::request("drain")(Box::new(error)))
    }
}

pub(crate) fn publish_error(error: jetstream::context::PublishError) -> BusError {
    use jetstream::context::PublishErrorKind as Kind;
    match error.kind() {
        Kind::StreamNotFound => BusError::NoStream { stream: crate::HINTS_STREAM },
        Kind::WrongLastMessageId
        | Kind::WrongLastSequence
        | Kind::TimedOut
        | Kind::BrokenPipe
        | Kind::MaxAckPending
        | Kind::MaxPayloadExceeded
        | Kind::Other => BusError::request("take a message")(Box::new(error)),
    }
}

fn observe(event: &Event, told: &watch::Sender<Link>) {
    match event {
        Event::Connected => {
            told.send_modify(|link| *link = Link { connections: link.connections + 1, up: true });
            tracing::info!("connected to NATS");
        }
        Event::Disconnected => {
            told.send_modify(|link| link.up = false);
            tracing::warn!("disconnected from NATS; sessions live on and events wait");
        }
        Event::Closed => told.send_modify(|link| link.up = false),
        Event::SlowConsumer(subscription) => tracing::warn!(subscription, "NATS drops messages: too slow"),
        Event::ServerError(error) => tracing::warn!(%error, "NATS reports an error"),
        // One a failed attempt: the state of the link says it once.
        Event::ClientError(error) => tracing::debug!(%error, "the NATS client reports an error"),
        Event::LameDuckMode | Event::Draining => tracing::info!(%event, "NATS is going away"),
    }
}

/// Full jitter from a small generator (splitmix64): spreading needs no better randomness.
fn jittered(attempt: usize, state: &AtomicU64) -> Duration {
    let cap_ms = (50_u64 << attempt.min(10)).min(4_000);
    let mut z = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_millis((z ^ (z >> 31)) % cap_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reconnect_delay_is_spread_below_its_cap() {
        let state = AtomicU64::new(7);
        for attempt in [0, 1, 5, 10, 200] {
            let cap = (50_u64 << attempt.min(10)).min(4_000);
            let waits: Vec<u64> =
                (0..200).map(|_| u64::try_from(jittered(attempt, &state).as_millis()).expect("small")).collect();
            assert!(waits.iter().all(|wait| *wait < cap), "attempt {attempt}");
            assert!(waits.iter().any(|wait| *wait > cap / 2) && waits.iter().any(|wait| *wait < cap / 2));
        }
    }
}
