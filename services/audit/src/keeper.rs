//! Keeps the log: reads the event stream, appends what follows, signs checkpoints.
//!
//! - The log decides what is next, not the consumer: an event that follows is appended, an older one is passed over, and at a hole the stream is read
//!   again from its start, where the relay brings back what is missing. Nothing is ever logged past a hole.
//! - Events are appended in batches, each synced once before anybody can read it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_api::audit::{Checkpoint, Entry, Head, Place};
use holdfast_bus::{Bus, EventReader, Incoming, ReadFrom};
use holdfast_events::SignatureBytes;
use holdfast_identity::SigningKey;
use holdfast_runtime::fail_point;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::log::{Checkpoints, Log, LogError};
use crate::order::{Step, step};

/// A batch is closed when it has this many events, or when nothing came for [`BATCH_QUIET`].
const BATCH_EVENTS_MAX: usize = 256;
const BATCH_QUIET: Duration = Duration::from_millis(5);
/// A checkpoint is signed when the head moved and this long ago was the last one, and at the end.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// The wait before the stream is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What the service knows of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Health {
    /// The last entry.
    pub head: Head,
    /// Where its event stands in the order of the control plane.
    pub place: Option<Place>,
    /// What follows and is missing from the stream, while something later is there.
    pub missing: Option<Place>,
    /// Whether the stream is being read.
    pub reading: bool,
}

/// Why keeping the log ended.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The disk or the log.
    #[error("the audit log cannot be kept")]
    Log(#[from] LogError),
    /// A blocking task did not come back.
    #[error("a task that writes the log did not come back")]
    Task(#[from] tokio::task::JoinError),
    /// Time has no text form.
    #[error("the time of a checkpoint cannot be written")]
    Time(#[from] time::error::Format),
}

/// Where reading went on last time: of use only if the stream is still the same, which reading shows.
#[derive(Serialize, Deserialize)]
struct Resume {
    stream_sequence: u64,
}

/// Keeps one log.
pub struct Keeper {
    bus: Bus,
    name: String,
    folder: PathBuf,
    authority: String,
    key: Arc<SigningKey>,
    log: Option<Log>,
    health: watch::Sender<Health>,
    stream_sequence: Option<u64>,
    signed: Head,
    signed_at: Instant,
}

impl Keeper {
    /// Opens the log of a folder. `authority` goes into checkpoints, `name` names the consumer.
    ///
    /// # Errors
    /// [`LogError`] if the log cannot be opened.
    pub fn open(
        bus: Bus,
        name: String,
        folder: &Path,
        authority: String,
        key: Arc<SigningKey>,
    ) -> Result<(Self, watch::Receiver<Health>), LogError> {
        let log = Log::open(folder)?;
        let (health, seen) =
            watch::channel(Health { head: log.head(), place: log.place(), missing: None, reading: false });
        let stream_sequence = load_resume(folder);
        let folder = folder.to_owned();
        let signed = Checkpoints::of(&folder).load()?.0.last().map_or(Head::ORIGIN, |checkpoint| checkpoint.head);
        let keeper = Self {
            bus,
            name,
            folder,
            authority,
            key,
            log: Some(log),
            health,
            stream_sequence,
            signed,
            signed_at: Instant::now(),
        };
        Ok((keeper, seen))
    }

    /// Runs until `shutdown`; what was appended is then signed.
    ///
    /// # Errors
    /// [`KeeperError`] when the log itself cannot go on. NATS away is no error: the stream is tried again.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), KeeperError> {
        while !shutdown.is_cancelled() {
            let from = self.stream_sequence.map_or(ReadFrom::Start, |last| ReadFrom::Sequence(last + 1));
            match EventReader::start(&self.bus, &self.name, from).await {
                Ok(mut reader) => {
                    self.health.send_modify(|health| health.reading = true);
                    self.read(&mut reader, &shutdown).await?;
                    self.health.send_modify(|health| health.reading = false);
                }
                Err(error) => tracing::debug!(%error, "the event stream cannot be read yet"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
            self.checkpoint_if_due().await?;
        }
        self.checkpoint().await
    }

    /// Reads until the consumer can no longer be trusted.
    async fn read(&mut self, reader: &mut EventReader, shutdown: &CancellationToken) -> Result<(), KeeperError> {
        loop {
            let due = self.signed_at + CHECKPOINT_EVERY;
            let first = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                first = reader.next() => first,
                () = tokio::time::sleep_until(due) => {
                    self.checkpoint_if_due().await?;
                    continue;
                }
            };
            let (batch, broken) = match first {
                Ok(first) => gather(first, reader).await,
                Err(error) => {
                    tracing::debug!(%error, "the event stream is read anew");
                    return Ok(());
                }
            };
            if !self.take(batch).await? || broken {
                return Ok(());
            }
            self.checkpoint_if_due().await?;
        }
    }

    /// Appends what follows; false if something is missing and the stream must be read from its start.
    async fn take(&mut self, batch: Vec<Incoming>) -> Result<bool, KeeperError> {
        let mut place = self.health.borrow().place;
        let mut events = Vec::with_capacity(batch.len());
        let mut missing = None;
        let mut last = None;
        for incoming in batch {
            let Some((event, found)) = read_event(&incoming) else { continue };
            match step(place, found) {
                Step::Append => {
                    place = Some(found);
                    events.push(event);
                    last = Some(incoming.stream_sequence);
                }
                Step::Skip => last = Some(incoming.stream_sequence),
                Step::Gap { expected } => {
                    missing = Some((expected, found));
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.append(events).await?;
        }
        self.stream_sequence = last.or(self.stream_sequence);
        if let Some((expected, found)) = missing {
            if self.health.borrow().missing != Some(expected) {
                tracing::error!(%expected, %found, "events are missing from the stream; nothing is logged past the hole");
            }
            self.stream_sequence = None;
            self.health.send_modify(|health| health.missing = Some(expected));
        }
        Ok(missing.is_none())
    }

    async fn append(&mut self, events: Vec<String>) -> Result<(), KeeperError> {
        // The log moves into the blocking task and back, so that a dropped future cannot leave it half used.
        let Some(mut log) = self.log.take() else { return Ok(()) };
        let (log, written) = tokio::task::spawn_blocking(move || {
            let written = log.append(events.iter().map(String::as_str));
            (log, written)
        })
        .await?;
        let (head, place) = (written?, log.place());
        self.log = Some(log);
        self.health.send_modify(|health| {
            health.head = head;
            health.place = place;
            health.missing = None;
        });
        Ok(())
    }

    async fn checkpoint_if_due(&mut self) -> Result<(), KeeperError> {
        if self.signed_at.elapsed() >= CHECKPOINT_EVERY { self.checkpoint().await } else { Ok(()) }
    }

    /// Signs the head if it moved.
    async fn checkpoint(&mut self) -> Result<(), KeeperError> {
        self.signed_at = Instant::now();
        let head = self.health.borrow().head;
        if head == self.signed {
            return Ok(());
        }
        let checkpoint = sign(&self.key, &self.authority, head)?;
        let (folder, resume) = (self.folder.clone(), self.stream_sequence);
        tokio::task::spawn_blocking(move || {
            fail_point("a checkpoint", "before it is written");
            save_resume(&folder, resume);
            fail_point("a checkpoint", "place saved, before it is written");
            let appended = Checkpoints::of(&folder).append(&checkpoint);
            fail_point("a checkpoint", "after it was written");
            appended
        })
        .await??;
        self.signed = head;
        Ok(())
    }
}

/// Signs a head as of now.
///
/// # Errors
/// [`KeeperError::Time`] for a clock outside the years that RFC 3339 can write.
pub fn sign(key: &SigningKey, authority: &str, head: Head) -> Result<Checkpoint, KeeperError> {
    let at = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH).format(&Rfc3339)?;
    let mut checkpoint = Checkpoint { log: authority.to_owned(), head, at, signature: String::new() };
    checkpoint.signature = SignatureBytes::from_bytes(key.sign(&checkpoint.statement()).0).to_string();
    Ok(checkpoint)
}

/// Waits a moment for more to write at once; also says whether the consumer broke meanwhile.
async fn gather(first: Incoming, reader: &mut EventReader) -> (Vec<Incoming>, bool) {
    let mut batch = vec![first];
    while batch.len() < BATCH_EVENTS_MAX {
        match timeout_at(Instant::now() + BATCH_QUIET, reader.next()).await {
            Ok(Ok(next)) => batch.push(next),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the event stream is read anew");
                return (batch, true);
            }
            Err(_quiet) => break,
        }
    }
    (batch, false)
}

/// The event as one line, and its place; none for what is no event, which is passed over and named.
fn read_event(incoming: &Incoming) -> Option<(String, Place)> {
    let sequence = incoming.stream_sequence;
    let text = match std::str::from_utf8(&incoming.payload) {
        Ok(text) => text.to_owned(),
        Err(error) => {
            tracing::warn!(sequence, %error, "a message in the event stream is no event");
            return None;
        }
    };
    let mut trial = holdfast_api::audit::Chain::after(Head::ORIGIN);
    match trial.append(&text).and_then(|entry: Entry| entry.place()) {
        Ok(place) => Some((text, place)),
        Err(error) => {
            tracing::warn!(sequence, %error, "a message in the event stream is no event");
            None
        }
    }
}

fn resume_path(folder: &Path) -> PathBuf {
    folder.join("resume.json")
}

fn load_resume(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(resume_path(folder)).ok()?;
    serde_json::from_str::<Resume>(&text).ok().map(|resume| resume.stream_sequence)
}

/// Losing this costs one reading of the stream from its start, so it is neither synced nor an error.
fn save_resume(folder: &Path, stream_sequence: Option<u64>) {
    let Some(stream_sequence) = stream_sequence else { return };
    let saved = serde_json::to_string(&Resume { stream_sequence })
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(resume_path(folder), text));
    if let Err(error) = saved {
        tracing::debug!(%error, "where reading goes on was not saved");
    }
}
