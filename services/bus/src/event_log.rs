//! The writing end of the event stream, for the relay alone.
//!
//! - Each publish names the stream's last sequence, so a second writer or a lost answer shows as a refusal, never as a gap or a double.
//! - A window of publishes is under way at once. The first refusal or silence ends it. Each but the first also names the id of the one before it, so
//!   that a message of another hand, which takes a place, has nothing of ours behind it. Where the stream then ends, only [`EventLog::load_tail`] says.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use holdfast_runtime::fail_point;
use time::OffsetDateTime;

use crate::connect::Bus;
use crate::error::{BusError, boxed};
use crate::streams::{EVENTS_STREAM, check_whole};

/// How many publishes are under way at once: where the gain of a larger window ends (46–67 thousand a second, measured).
const WINDOW: usize = 256;

/// How many messages are asked for at once.
const READS_AT_ONCE: usize = 32;

/// An event to publish.
#[derive(Clone, Debug)]
pub struct OutgoingEvent {
    /// `holdfast.event.…`.
    pub subject: String,
    /// Its id: the stream keeps one message a id.
    pub id: String,
    /// CloudEvents, structured JSON.
    pub payload: Bytes,
}

/// How many messages [`EventLog::load_tail`] reads: all that can have come since the stream was last known to be whole, and as many before them.
pub const TAIL_MAX: usize = 2 * WINDOW;

/// How far a batch went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// How many of its events the stream has for certain, from the first on.
    pub count: usize,
    /// Whether that is all of them; if not, the writer must read the stream's end before it goes on.
    pub complete: bool,
}

/// How many windows one after the other may be met with silence by a server that answers everything else: one may be a lost answer.
const SILENT_MAX: u32 = 2;

/// A server that has the stream and takes nothing for it, without a word: what one does whose disk failed it in the middle of a write.
#[derive(Debug, thiserror::Error)]
#[error("the server answers for the stream, and to nothing that it is to store")]
struct Silent;

/// The writing end of the event stream.
pub struct EventLog {
    bus: Bus,
    /// How many windows in a row had no answer at all.
    silent: u32,
    last_sequence: Option<u64>,
    /// When the stream was made whose end is known: one that was made anew is another, wherever it ends.
    created: Option<OffsetDateTime>,
}

impl EventLog {
    /// A writer that does not know yet where the stream ends.
    #[must_use]
    pub fn new(bus: Bus) -> Self {
        Self { bus, silent: 0, last_sequence: None, created: None }
    }

    /// Whether the stream is the one that was read and ends where this writer left it.
    ///
    /// # Errors
    /// As [`EventLog::load_tail`].
    pub async fn is_where_it_was(&self) -> Result<bool, BusError> {
        let info = self.bus.stream_info(EVENTS_STREAM).await?;
        Ok(self.last_sequence == Some(info.state.last_sequence) && self.created == Some(info.created))
    }

    /// Reads how the stream ends: the bytes of its last [`TAIL_MAX`] messages, in their order, or of fewer where one is gone. The writer goes on behind
    /// them.
    ///
    /// # Errors
    /// [`BusError::NoStream`] if it is not there, [`BusError::StreamCut`] if it had messages and the last of them is gone, so that nobody can say how
    /// it ended, [`BusError::Request`] if the server does not say.
    pub async fn load_tail(&mut self) -> Result<Vec<Bytes>, BusError> {
        let info = self.bus.stream_info(EVENTS_STREAM).await?;
        let (last, messages) = (info.state.last_sequence, info.state.messages);
        if messages == 0 {
            check_whole(EVENTS_STREAM, &info.state)?;
        }
        let first = (last + 1).saturating_sub(TAIL_MAX as u64).max(1);
        let stream = self.bus.jetstream.get_stream_no_info(EVENTS_STREAM).await;
        let stream = &stream.map_err(|error| BusError::request("open a stream")(boxed(error)))?;
        let reads = (first..=last).rev().map(|sequence| async move {
            match stream.get_raw_message(sequence).await {
                Ok(message) => Ok(Some(message.payload)),
                // What is gone is the end of what can be read.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(BusError::request("read a message")(boxed(error))),
            }
        });
        let mut reads = futures_util::stream::iter(reads).buffered(READS_AT_ONCE);
        let mut tail = Vec::new();
        while let Some(Some(payload)) = reads.try_next().await? {
            tail.push(payload);
        }
        if tail.is_empty() && last > 0 {
            return Err(BusError::StreamCut { stream: EVENTS_STREAM, messages, last });
        }
        tail.reverse();
        (self.last_sequence, self.created) = (Some(last), Some(info.created));
        Ok(tail)
    }

    /// Publishes events in their order, after the last that the stream was seen to hold.
    ///
    /// # Errors
    /// [`BusError::NoStream`] if the stream is gone, [`BusError::StreamRefuses`] if the server stores nothing there and says so, or is silent again and
    /// again though it tells how the stream ends. A refusal of a place, and silence, are an incomplete [`Published`].
    pub async fn publish(&mut self, events: &[OutgoingEvent]) -> Result<Published, BusError> {
        let mut count = 0;
        for window in events.chunks(WINDOW) {
            let Some(last) = self.last_sequence else {
                return Ok(Published { count, complete: false });
            };
            match self.publish_window(window, last).await? {
                done if done == window.len() => {
                    count += done;
                    self.last_sequence = Some(last + done as u64);
                }
                done => {
                    self.last_sequence = None;
                    return Ok(Published { count: count + done, complete: false });
                }
            }
        }
        Ok(Published { count, complete: true })
    }

    async fn publish_window(&mut self, window: &[OutgoingEvent], last: u64) -> Result<usize, BusError> {
        let mut acks = Vec::with_capacity(window.len());
        // The server knows the id of the last message as long as it runs, and after that within the duplicate window: longer than a window is under way.
        // That the first stands behind what is ours was seen when the one before it was acknowledged or read.
        let before = std::iter::once(None).chain(window.iter().map(Some));
        for ((sequence, event), before) in (last..).zip(window).zip(before) {
            let mut message = PublishMessage::build()
                .payload(event.payload.clone())
                .message_id(&event.id)
                .expected_stream(EVENTS_STREAM)
                .expected_last_sequence(sequence);
            if let Some(before) = before {
                message = message.expected_last_message_id(&before.id);
            }
            match self.bus.jetstream.send_publish(event.subject.clone(), message).await {
                Ok(ack) => {
                    acks.push(ack);
                    fail_point("events", "while they are published");
                }
                Err(error) => {
                    tracing::debug!(%error, "the event stream took no message");
                    break;
                }
            }
        }
        let mut done = 0;
        for (sequence, ack) in (last + 1..).zip(acks) {
            match tokio::time::timeout(Duration::from_secs(10), ack).await {
                // A duplicate is acknowledged at the place of the first: a writer that lost its place must look where it is.
                Ok(Ok(ack)) if ack.sequence == sequence => {
                    done += 1;
                    self.silent = 0;
                }
                Ok(Ok(_)) => {
                    self.silent = 0;
                    return Ok(done);
                }
                Err(_) if done == 0 => return self.handle_silence(),
                Ok(Err(error)) if error.kind() == PublishErrorKind::TimedOut && done == 0 => {
                    return self.handle_silence();
                }
                Err(_) => return Ok(done),
                Ok(Err(error)) if error.kind() == PublishErrorKind::StreamNotFound => {
                    return Err(BusError::NoStream { stream: EVENTS_STREAM });
                }
                // After some that it took, the next try says so again.
                Ok(Err(error)) if error.kind() == PublishErrorKind::Other && done == 0 => {
                    return Err(BusError::StreamRefuses { stream: EVENTS_STREAM, source: Box::new(error) });
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the event stream refused a message");
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }

    /// Nothing of a window was answered. The end of the stream was read since the window before: the server is there.
    fn handle_silence(&mut self) -> Result<usize, BusError> {
        tracing::debug!("the event stream answers to no message");
        self.silent = self.silent.saturating_add(1);
        if self.silent < SILENT_MAX {
            return Ok(0);
        }
        Err(BusError::StreamRefuses { stream: EVENTS_STREAM, source: boxed(Silent) })
    }
}
