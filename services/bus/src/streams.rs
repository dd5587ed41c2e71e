//! The two streams and what they must be.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, State, StorageType};

use crate::connect::{Bus, StreamReplicas};
use crate::error::{BusError, boxed};

/// The stream of hints: memory, five minutes.
pub const HINTS_STREAM: &str = "HOLDFAST_HINTS";
/// The stream of numbered events: files, kept.
pub const EVENTS_STREAM: &str = "HOLDFAST_EVENTS";

/// A server forgets a deleted stream first and removes its files then. One of the same name that is made meanwhile stands in the same folder and loses
/// its files with the other's: it refuses every message, or acknowledges what nobody can read (nats-server 2.9.10, every third time without this).
const DELETED_FILES_GO: Duration = Duration::from_secs(3);

/// A hint names at most 1,000 (host, component, version) of at most 64 bytes.
const HINT_BYTES_MAX: i32 = 128 << 10;
/// An event is at most 64 KiB of payload; its envelope and the escaping of JSON fit in as much again.
const EVENT_BYTES_MAX: i32 = 256 << 10;

fn hints(replicas: StreamReplicas) -> Config {
    Config {
        name: HINTS_STREAM.to_owned(),
        description: Some("Holdfast: look again (disposable)".to_owned()),
        subjects: vec!["holdfast.hint.>".to_owned()],
        storage: StorageType::Memory,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: Duration::from_secs(300),
        max_bytes: 64 << 20,
        max_message_size: HINT_BYTES_MAX,
        num_replicas: replicas.count(),
        ..Config::default()
    }
}

fn events(replicas: StreamReplicas) -> Config {
    Config {
        name: EVENTS_STREAM.to_owned(),
        description: Some("Holdfast: a copy of the numbered events".to_owned()),
        subjects: vec!["holdfast.event.>".to_owned()],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_message_size: EVENT_BYTES_MAX,
        duplicate_window: Duration::from_secs(120),
        deny_delete: true,
        deny_purge: true,
        num_replicas: replicas.count(),
        ..Config::default()
    }
}

impl Bus {
    /// Makes the stream of hints if it is missing and checks it if it is there. For the renderer alone.
    ///
    /// # Errors
    /// [`BusError::StreamDiffers`] names the first difference between the wanted and the echoed configuration; another server version or another
    /// hand made it.
    pub async fn ensure_hints(&self) -> Result<(), BusError> {
        self.ensure_stream(HINTS_STREAM, hints(self.replicas)).await
    }

    /// The same for the stream of events; one that was deleted is made again after [`DELETED_FILES_GO`].
    ///
    /// # Errors
    /// As [`Bus::ensure_hints`], and [`BusError::StreamCut`].
    pub async fn ensure_events(&self) -> Result<(), BusError> {
        match self.check_events().await {
            Err(BusError::NoStream { .. }) => {}
            known => return known,
        }
        if self.events_seen.load(Ordering::Relaxed) {
            tokio::time::sleep(DELETED_FILES_GO).await;
        }
        self.ensure_stream(EVENTS_STREAM, events(self.replicas)).await
    }

    async fn ensure_stream(&self, stream: &'static str, wanted: Config) -> Result<(), BusError> {
        let info = match self.jetstream.create_stream(wanted.clone()).await {
            Ok(made) => made.cached_info().clone(),
            Err(error) if exists(&error.kind()) => self.stream_info(stream).await?,
            Err(error) => return Err(BusError::request("make a stream")(boxed(error))),
        };
        compare(stream, &wanted, &info.config)
    }

    /// What the server says of a stream now.
    pub(crate) async fn stream_info(&self, stream: &'static str) -> Result<Info, BusError> {
        use async_nats::jetstream::context::GetStreamErrorKind as Kind;
        let found = self.jetstream.get_stream(stream).await.map_err(|error| match error.kind() {
            Kind::JetStream(code) if code.error_code() == ErrorCode::STREAM_NOT_FOUND => BusError::NoStream { stream },
            Kind::JetStream(_) | Kind::EmptyName | Kind::InvalidStreamName | Kind::Request => {
                BusError::request("describe a stream")(boxed(error))
            }
        })?;
        if stream == EVENTS_STREAM {
            self.events_seen.store(true, Ordering::Relaxed);
        }
        Ok(found.cached_info().clone())
    }

    /// Whether JetStream answers for the stream of hints, and it is still what it must be: what readiness means (the server's own health page is
    /// green without JetStream).
    ///
    /// # Errors
    /// [`BusError`] if the stream is not there, does not answer, or another hand has changed it.
    pub async fn check_hints(&self) -> Result<(), BusError> {
        compare(HINTS_STREAM, &hints(self.replicas), &self.stream_info(HINTS_STREAM).await?.config)
    }

    /// The same for the stream of events, which also must have lost nothing.
    ///
    /// # Errors
    /// As [`Bus::check_hints`], and [`BusError::StreamCut`].
    pub async fn check_events(&self) -> Result<(), BusError> {
        let info = self.stream_info(EVENTS_STREAM).await?;
        compare(EVENTS_STREAM, &events(self.replicas), &info.config)?;
        check_whole(EVENTS_STREAM, &info.state)
    }
}

/// Refuses a stream that lost anything of what was ever put into it: it keeps its numbers, so what is gone cannot be put back in its place.
pub(crate) fn check_whole(stream: &'static str, state: &State) -> Result<(), BusError> {
    if state.messages == state.last_sequence {
        return Ok(());
    }
    Err(BusError::StreamCut { stream, messages: state.messages, last: state.last_sequence })
}

fn exists(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

fn compare(stream: &'static str, wanted: &Config, found: &Config) -> Result<(), BusError> {
    fn same<T: PartialEq + Debug>(
        stream: &'static str,
        field: &'static str,
        wanted: &T,
        found: &T,
    ) -> Result<(), BusError> {
        if wanted == found {
            return Ok(());
        }
        Err(BusError::StreamDiffers { stream, field, found: format!("{found:?}"), wanted: format!("{wanted:?}") })
    }
    // Zero, minus one and absent all mean "no limit", depending on the server.
    let limit = |limit: i64| if limit <= 0 { -1 } else { limit };
    same(stream, "subjects", &wanted.subjects, &found.subjects)?;
    same(stream, "storage", &wanted.storage, &found.storage)?;
    same(stream, "retention", &wanted.retention, &found.retention)?;
    same(stream, "discard", &wanted.discard, &found.discard)?;
    same(stream, "max_age", &wanted.max_age, &found.max_age)?;
    same(stream, "max_bytes", &limit(wanted.max_bytes), &limit(found.max_bytes))?;
    same(stream, "max_msgs", &limit(wanted.max_messages), &limit(found.max_messages))?;
    let per_subject = |config: &Config| limit(config.max_messages_per_subject);
    same(stream, "max_msgs_per_subject", &per_subject(wanted), &per_subject(found))?;
    same(stream, "max_msg_size", &wanted.max_message_size, &found.max_message_size)?;
    same(stream, "num_replicas", &wanted.num_replicas, &found.num_replicas)?;
    same(stream, "deny_delete", &wanted.deny_delete, &found.deny_delete)?;
    same(stream, "deny_purge", &wanted.deny_purge, &found.deny_purge)?;
    same(stream, "sealed", &wanted.sealed, &found.sealed)
}
