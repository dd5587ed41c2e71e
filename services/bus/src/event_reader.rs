//! The reading end of the event stream, for the audit service.
//!
//! What is durable is the reader's own log, not the consumer: each start and each doubt makes a new consumer from a place that the reader chooses, and
//! the reader checks the control plane's own order. JetStream's sequence is never trusted for that.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::{Config, Stream as Messages};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::connect::Bus;
use crate::error::{BusError, boxed};
use crate::streams::EVENTS_STREAM;

const INACTIVE_THRESHOLD: Duration = Duration::from_secs(120);
const PULL_EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many messages may be under way to the reader.
const BATCH: usize = 500;

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFrom {
    /// With the first message that the stream has.
    Start,
    /// With the message of this stream sequence.
    Sequence(u64),
}

/// One event as it came.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its place in this stream, of use only as a [`ReadFrom::Sequence`].
    pub stream_sequence: u64,
    /// CloudEvents, structured JSON.
    pub payload: Bytes,
}

/// A consumer of the event stream.
pub struct EventReader {
    messages: Messages,
}

impl EventReader {
    /// Starts a consumer of this name; one that was there under the name ends.
    ///
    /// # Errors
    /// [`BusError`] if the stream is not there or the server does not answer.
    pub async fn start(bus: &Bus, name: &str, from: ReadFrom) -> Result<Self, BusError> {
        let deliver_policy = match from {
            ReadFrom::Start => DeliverPolicy::All,
            ReadFrom::Sequence(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
        };
        let config = Config {
            name: Some(name.to_owned()),
            deliver_policy,
            ack_policy: AckPolicy::None,
            inactive_threshold: INACTIVE_THRESHOLD,
            ..Config::default()
        };
        if let Err(error) = bus.jetstream.delete_consumer_from_stream(name, EVENTS_STREAM).await {
            tracing::trace!(%error, "no old consumer of events");
        }
        let consumer = bus
            .jetstream
            .create_consumer_on_stream(config, EVENTS_STREAM)
            .await
            .map_err(|error| BusError::request("make a consumer")(boxed(error)))?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .expires(PULL_EXPIRES)
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| BusError::request("start a pull")(boxed(error)))?;
        Ok(Self { messages })
    }

    /// The next event. Safe to drop while waiting.
    ///
    /// # Errors
    /// [`BusError`] when the consumer can no longer be trusted: start another.
    pub async fn next(&mut self) -> Result<Incoming, BusError> {
        let doing = "go on with a consumer of events";
        match self.messages.next().await {
            Some(Ok(message)) => {
                let stream_sequence = message.info().map_err(BusError::request(doing))?.stream_sequence;
                Ok(Incoming { stream_sequence, payload: message.message.payload })
            }
            Some(Err(error)) => Err(BusError::request(doing)(boxed(error))),
            None => Err(BusError::request(doing)("the consumer ended".into())),
        }
    }
}
