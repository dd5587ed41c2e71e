//! The log on disk: segments of lines, appended and synced, never rewritten.
//!
//! - An entry is in the log when [`Log::append`] returned: its bytes and its folder are synced before that.
//! - One writer: a lock on the folder. Readers need none, for only whole lines count.
//! - A torn last line, from a crash in the middle of a write, was never acknowledged and is cut off at the next start; anything else that does not
//!   read is left as it is, refused, and named.
//!
//! It does not prove the log: that is `holdfast_api::audit::Verifier`, which reads these files without this code's help.

mod checkpoints;
mod read;
mod segment;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub use checkpoints::Checkpoints;
use holdfast_api::audit::{Chain, Entry, EntryError, Head, Place};
use holdfast_runtime::fail_point;
pub use read::{Reader, lines};
use segment::{Segment, segments};

/// A segment is closed at this size: large enough that a year of a busy fleet is some hundred files, small enough to copy and to scan in a second.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Another process writes this log.
    #[error("{path} is locked: another audit service writes this log")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The last entry on disk does not read, although its line is whole.
    #[error("the log ends in {path} with a line that is no entry; run `holdfast audit verify` and restore the file")]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// What the reader said.
        #[source]
        source: EntryError,
    },
    /// Somebody else moved, replaced or wrote the file that entries are appended to.
    #[error(
        "{path} is no longer the file that this service wrote; start the service again, and it goes on behind what is there"
    )]
    Replaced {
        /// The segment.
        path: PathBuf,
    },
    /// An event that does not fit the log.
    #[error("an event cannot be logged")]
    Event(#[source] EntryError),
}

impl LogError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Io { .. } => "log-io",
            Self::Locked { .. } => "log-locked",
            Self::Damaged { .. } => "log-damaged",
            Self::Replaced { .. } => "log-replaced",
            Self::Event(_) => "log-event",
        }
    }
}

pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LogError {
    move |source| LogError::Io { doing, path: path.to_owned(), source }
}

/// The writing end of a log.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    file: File,
    path: PathBuf,
    bytes: u64,
    chain: Chain,
    place: Option<Place>,
    segment_bytes_max: u64,
    _lock: File,
}

impl Log {
    /// Opens the log of a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`LogError`]; nothing on disk is changed then.
    pub fn open(folder: &Path) -> Result<Self, LogError> {
        Self::open_with(folder, SEGMENT_BYTES_MAX)
    }

    fn open_with(folder: &Path, segment_bytes_max: u64) -> Result<Self, LogError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("make", folder))?;
        let lock = lock(folder)?;
        let mut last = None;
        for Segment { path, .. } in segments(folder)?.into_iter().rev() {
            last = segment::cut_torn_line(&path)?;
            if last.is_some() {
                break;
            }
        }
        let (head, place) = match &last {
            Some(entry) => (Head { n: entry.n, hash: entry.hash }, Some(entry.place().map_err(LogError::Event)?)),
            None => (Head::ORIGIN, None),
        };
        let path = match segments(folder)?.pop() {
            Some(segment) => segment.path,
            None => folder.join(segment::file_name(1)),
        };
        let (file, bytes) = open_segment(&path)?;
        let chain = Chain::after(head);
        Ok(Self { folder: folder.to_owned(), file, path, bytes, chain, place, segment_bytes_max, _lock: lock })
    }

    /// The last entry.
    #[must_use]
    pub fn head(&self) -> Head {
        self.chain.head()
    }

    /// Where the event of the last entry stands in the order of the control plane; absent in an empty log.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// Appends events in their order, all of them or none, and syncs.
    ///
    /// # Errors
    /// [`LogError`]; the log is then as it was before.
    pub fn append<'a>(&mut self, events: impl IntoIterator<Item = &'a str>) -> Result<Head, LogError> {
        let mut chain = self.chain;
        let mut place = self.place;
        let mut lines = String::new();
        for event in events {
            let entry = chain.append(event).map_err(LogError::Event)?;
            place = Some(entry.place().map_err(LogError::Event)?);
            lines.push_str(&entry.to_line());
            lines.push('\n');
        }
        if self.bytes >= self.segment_bytes_max {
            let path = self.folder.join(segment::file_name(self.chain.head().n + 1));
            (self.file, self.bytes) = open_segment(&path)?;
            self.path = path;
        }
        self.check_untouched()?;
        fail_point("the log", "before entries are written");
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| {
            fail_point("the log", "entries written, before they are synced");
            self.file.sync_data()
        });
        if let Err(source) = written {
            // What a failed write left behind is cut off at once, so that a later append does not follow half a line.
            self.file.set_len(self.bytes).map_err(io("cut", &self.path))?;
            return Err(LogError::Io { doing: "append to", path: self.path.clone(), source });
        }
        fail_point("the log", "entries synced, before anybody is told");
        self.bytes += lines.len() as u64;
        self.chain = chain;
        self.place = place;
        Ok(chain.head())
    }
}

impl Log {
    /// An open file takes writes also when its name is gone: nobody would ever read those.
    fn check_untouched(&self) -> Result<(), LogError> {
        let open = self.file.metadata().map_err(io("look at", &self.path))?;
        let named = match fs::metadata(&self.path) {
            Ok(named) => Some(named),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("look at", &self.path)(error)),
        };
        let is_same =
            |named: fs::Metadata| (named.dev(), named.ino(), named.len()) == (open.dev(), open.ino(), self.bytes);
        if named.is_some_and(is_same) { Ok(()) } else { Err(LogError::Replaced { path: self.path.clone() }) }
    }
}

fn lock(folder: &Path) -> Result<File, LogError> {
    let path = folder.join("lock");
    let file = private().create(true).write(true).truncate(false).open(&path).map_err(io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(LogError::Locked { path }),
        Err(fs::TryLockError::Error(source)) => Err(LogError::Io { doing: "lock", path, source }),
    }
}

fn open_segment(path: &Path) -> Result<(File, u64), LogError> {
    let file = private().create(true).append(true).open(path).map_err(io("open", path))?;
    sync_folder(path)?;
    let bytes = file.metadata().map_err(io("read", path))?.len();
    Ok((file, bytes))
}

pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes the name of a new file as durable as its bytes.
pub(crate) fn sync_folder(path: &Path) -> Result<(), LogError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("sync", folder))
}

/// Reads one whole line as an entry.
pub(crate) fn entry_of(path: &Path, line: &str) -> Result<Entry, LogError> {
    Entry::parse(line).map_err(|source| LogError::Damaged { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
