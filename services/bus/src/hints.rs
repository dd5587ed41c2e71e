//! Listening to hints, by a pull consumer of this start's own.
//!
//! Not an ordered consumer: one that saw nothing before a reconnect replays the whole stream or falls silent, and one over a recreated stream skips
//! (both measured). Here every doubt has one end: a new consumer, then [`Wake::Lapsed`].

use std::time::Duration;

use async_nats::jetstream::consumer::pull::{Config, Stream as Messages};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use futures_util::StreamExt as _;
use holdfast_events::Hint;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::connect::Bus;
use crate::error::{BusError, boxed};
use crate::streams::HINTS_STREAM;

/// The server forgets a consumer that nobody asked for this long.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(120);
/// How long a pull stands, and how often the server says in it that it is alive.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The wait before a consumer is made again.
const RETRY: Duration = Duration::from_millis(500);

/// Why a listener should look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Hints may have been lost: compare everything that is held. Also said once at the start.
    Lapsed,
    /// A hint.
    Hint(Hint),
}

/// Listens to one subject of the hints.
pub struct HintListener {
    bus: Bus,
    name: String,
    subject: &'static str,
    wakes: mpsc::Sender<Wake>,
    lapsed: bool,
    /// How many messages came that are no hints.
    strange: u64,
}

impl HintListener {
    /// Listens to one of [`Hint::SUBJECTS`] under a name that is unique to this start: the oldest server that we promise knows one filter a consumer.
    /// Nothing is buffered beyond the channel: what does not fit becomes one [`Wake::Lapsed`].
    #[must_use]
    pub fn new(bus: Bus, name: String, subject: &'static str, wakes: mpsc::Sender<Wake>) -> Self {
        Self { bus, name, subject, wakes, lapsed: true, strange: 0 }
    }

    /// Runs until the receiver is gone.
    pub async fn run(mut self) {
        metrics::counter!("holdfast_strange_hints_total", "subject" => self.subject).increment(0);
        let mut link = self.bus.link();
        while !self.wakes.is_closed() {
            let mut messages = match self.consume().await {
                Ok(messages) => messages,
                Err(error) => {
                    tracing::debug!(%error, "no consumer of hints yet");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let connections = link.borrow_and_update().connections;
            self.lapsed = true;
            self.listen(&mut messages, &mut link, connections).await;
        }
    }

    /// Hands hints on until something says that some may be missing.
    async fn listen(
        &mut self,
        messages: &mut Messages,
        link: &mut tokio::sync::watch::Receiver<crate::Link>,
        connections: u64,
    ) {
        loop {
            if !self.tell_lapse().await {
                return;
            }
            let message = tokio::select! {
                message = messages.next() => message,
                () = self.wakes.closed() => return,
                changed = link.changed() => {
                    if changed.is_err() || link.borrow().connections != connections {
                        return;
                    }
                    continue;
                }
            };
            match message {
                Some(Ok(message)) => {
                    let hint = match Hint::decode(&message.subject, &message.payload) {
                        Ok(hint) => hint,
                        Err(error) => {
                            self.strange += 1;
                            metrics::counter!("holdfast_strange_hints_total", "subject" => self.subject).increment(1);
                            // A crowd of them fills no log.
                            if self.strange.is_power_of_two() {
                                tracing::warn!(count = self.strange, %error, "a message that is no hint is passed over");
                            }
                            continue;
                        }
                    };
                    match self.wakes.try_send(Wake::Hint(hint)) {
                        Ok(()) => {}
                        Err(TrySendError::Full(_)) => self.lapsed = true,
                        Err(TrySendError::Closed(_)) => return,
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "hints may be missing");
                    return;
                }
                None => return,
            }
        }
    }

    /// Says that hints may be missing, if so; false when nobody listens any more.
    async fn tell_lapse(&mut self) -> bool {
        if self.lapsed {
            self.lapsed = false;
            return self.wakes.send(Wake::Lapsed).await.is_ok();
        }
        true
    }

    async fn consume(&self) -> Result<Messages, BusError> {
        let config = Config {
            name: Some(self.name.clone()),
            filter_subject: self.subject.to_owned(),
            deliver_policy: DeliverPolicy::New,
            ack_policy: AckPolicy::None,
            inactive_threshold: INACTIVE_THRESHOLD,
            memory_storage: true,
            ..Config::default()
        };
        let jetstream = &self.bus.jetstream;
        // The old one, if there is one, may point past the end of a stream that was made anew.
        if let Err(error) = jetstream.delete_consumer_from_stream(&self.name, HINTS_STREAM).await {
            tracing::trace!(%error, "no old consumer of hints");
        }
        let consumer = jetstream
            .create_consumer_on_stream(config, HINTS_STREAM)
            .await
            .map_err(|error| BusError::request("make a consumer")(boxed(error)))?;
        consumer
            .stream()
            .expires(PULL_EXPIRES)
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| BusError::request("start a pull")(boxed(error)))
    }
}
