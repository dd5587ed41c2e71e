//! Last good on disk: a checksummed log of a snapshot and the deltas after it.
//!
//! - Appended, synced, then believed, and cut off again where that failed; a new file is made beside the old one, synced, renamed, and its folder synced.
//! - A missing file, one that is damaged and one of another host are three things; only a whole one is loaded, and a file cut short by a crash loses
//!   the record that was being written and nothing else.
//! - However many updates fail, or stay on trial, it is made small once it is long.
//! - An unusable file is never written to: it is moved aside when something good is to be kept, and so is whatever took the place of a good one.
//! - What somebody else writes into it while it is open is found by its checksums.
//! - Folder 0700, files 0600.

mod fold;
mod record;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_model::artifact;
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_runtime::fail_point;

use crate::engine::{After, Cause, Entry, Loaded, Record, RecordContent, Store, Trial, shun};
use fold::Folded;
use record::{Checksum, HEADER_BYTES, Line};

pub use record::Fault;

/// The file of an enrolled host; one that runs from a file keeps another, so that neither takes the other's for damaged.
const ENROLLED_FILE: &str = "policy.ledger";
const STANDALONE_FILE: &str = "standalone.ledger";
const NEW: &str = ".new";
const UNUSABLE: &str = ".unusable";
/// The log is made small again when it is so many times its snapshot, and at least this large.
const COMPACT_FACTOR: u64 = 4;
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// Why the ledger did not take or give something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder fails.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record cannot be encoded.
    #[error("cannot encode a record")]
    Encode(#[source] postcard::Error),
    /// A record was to be settled and none is open.
    #[error("no candidate is open")]
    NoCandidate,
}

/// The file while it is written to.
struct Open {
    file: File,
    len: u64,
    sum: Checksum,
    snapshot_len: u64,
    /// The last write failed half way: what lies behind `len` is not ours to trust.
    dirty: bool,
    /// When the file was changed last, by whomever, as it was read and found whole: until that moves nobody wrote to it.
    whole_since: Option<Changed>,
}

impl Open {
    /// Cuts off what a write that failed left behind, if anything.
    fn cut_off(&mut self) -> io::Result<()> {
        if self.dirty {
            if self.file.metadata()?.len() > self.len {
                self.file.set_len(self.len)?;
            }
            self.sync()?;
            self.dirty = false;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        if tests::does_sync_fail() {
            return Err(io::Error::other("a disk that a test has fail"));
        }
        self.file.sync_data()
    }
}

/// When a file was changed last, in seconds and nanoseconds of its clock; nobody sets that by hand.
type Changed = (i64, i64);

fn changed(found: &Metadata) -> Changed {
    (found.ctime(), found.ctime_nsec())
}

/// Whether a file was changed so long ago that whoever writes to it now changes that time, however coarse the clock of files is.
fn is_settled(found: &Metadata) -> bool {
    const COARSE: Duration = Duration::from_secs(2);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = u64::try_from(found.ctime()).map(Duration::from_secs).unwrap_or(Duration::MAX);
    then.checked_add(COARSE).is_some_and(|then| then < now)
}

/// Last good of one host.
pub struct Ledger {
    folder: PathBuf,
    host: Option<HostId>,
    open: Option<Open>,
    candidate: bool,
    /// What is on trial was taken back, and the disk did not take that yet.
    owes_taken_back: bool,
    /// What was on trial when the file was opened; what is not tried any more, and whether nothing is to be enforced, as it is now.
    trial: Trial,
}

impl Ledger {
    /// Opens the ledger in a folder, which is made if it is not there, and loads it if `is_genuine` says so of every policy that it leads to.
    ///
    /// # Errors
    /// [`Error`] if folder or file cannot be read; a file that can be read and not be used is [`Loaded::Unusable`], with its fault.
    pub fn open(
        folder: &Path,
        host: Option<HostId>,
        is_genuine: &dyn Fn(&Entry) -> bool,
    ) -> Result<(Self, Loaded, Option<Fault>), Error> {
        ensure_folder(folder)?;
        let mut ledger = Self {
            folder: folder.to_owned(),
            host,
            open: None,
            candidate: false,
            owes_taken_back: false,
            trial: Trial::default(),
        };
        let path = ledger.file();
        let bytes = match read_all(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((ledger, Loaded::Missing, None)),
            Err(source) => return Err(Error::Io { doing: "read", path, source }),
        };
        let loaded = record::read(&bytes, host).and_then(|(lines, len, sum)| {
            let folded = fold::fold(lines).ok_or(Fault::Nonsense(len))?;
            let fallback = folded.trial.fallback.iter().flatten();
            let genuine = folded.good.iter().chain(&folded.candidate).chain(fallback).all(is_genuine);
            if genuine { Ok((folded, len, sum)) } else { Err(Fault::Forged) }
        });
        match loaded {
            Ok((Folded { good, candidate, trial }, len, sum)) => {
                ledger.candidate = candidate.is_some();
                ledger.trial = trial;
                ledger.continue_file(&path, len as u64, sum, bytes.len() > len)?;
                Ok((ledger, Loaded::Found { good, candidate }, None))
            }
            Err(fault) => Ok((ledger, Loaded::Unusable, Some(fault))),
        }
    }

    /// Where the ledger lies.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.beside("")
    }

    /// The ledger's path with something behind its name.
    fn beside(&self, ending: &str) -> PathBuf {
        let name = if self.host.is_some() { ENROLLED_FILE } else { STANDALONE_FILE };
        self.folder.join(format!("{name}{ending}"))
    }

    /// Goes on behind so many bytes; what a snapshot takes of a file that was only read is not known, so that a long one is soon made small.
    fn continue_file(&mut self, path: &Path, len: u64, sum: Checksum, dirty: bool) -> Result<(), Error> {
        let opened = OpenOptions::new().append(true).open(path);
        let file = opened.map_err(|source| Error::Io { doing: "open", path: path.to_owned(), source })?;
        self.open = Some(Open { file, len, sum, snapshot_len: 0, dirty, whole_since: None });
        Ok(())
    }

    /// A new file with these lines takes the place of whatever is there.
    fn begin(&mut self, lines: &[Line]) -> Result<(), Error> {
        let (mut bytes, mut sum) = record::header(self.host);
        for line in lines {
            sum = record::put(&mut bytes, &sum, line).map_err(Error::Encode)?;
        }
        let (new, path) = (self.beside(NEW), self.file());
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { doing, path, source }
        };
        let is_open = matches!(lines.last(), Some(Line::Candidate(_)));
        let mut file = create_private(&new).map_err(failed("make", &new))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
        if self.in_place().is_none() && path.exists() {
            let aside = self.beside(UNUSABLE);
            fs::rename(&path, &aside).map_err(failed("move aside", &path))?;
        }
        fail_point("the ledger", "written anew, before it is put in place");
        fs::rename(&new, &path).map_err(failed("put in place", &path))?;
        // From here on this is the ledger, whatever becomes of the folder: what is appended to the old file nobody would ever read.
        self.continue_file(&path, bytes.len() as u64, sum, false)?;
        // A candidate that was open in the file before is in this one only if these lines say so.
        self.candidate = is_open;
        if let Some(open) = &mut self.open {
            open.snapshot_len = open.len;
        }
        fail_point("the ledger", "put in place, before its folder is synced");
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(failed("sync", &self.folder))
    }

    fn write(&mut self, line: &Line) -> Result<(), Error> {
        let path = self.file();
        let Some(open) = &mut self.open else { return self.begin(std::slice::from_ref(line)) };
        let mut bytes = Vec::new();
        let sum = record::put(&mut bytes, &open.sum, line).map_err(Error::Encode)?;
        let failed = |source| Error::Io { doing: "append to", path, source };
        open.cut_off().map_err(failed.clone())?;
        open.dirty = true;
        let written = open.file.write_all(&bytes).and_then(|()| {
            fail_point("the ledger", "record written, before it is synced");
            open.sync()
        });
        if let Err(source) = written {
            // At once: it is told as failed, and a start would believe what is whole of it.
            if let Err(error) = open.cut_off() {
                tracing::warn!(%error, "what a write that failed left in the ledger cannot be cut off yet");
            }
            return Err(failed(source));
        }
        open.dirty = false;
        open.len += bytes.len() as u64;
        open.sum = sum;
        Ok(())
    }

    fn is_large(&self) -> bool {
        #[cfg(test)]
        if tests::IS_ALWAYS_LARGE.get() {
            return self.open.is_some();
        }
        let due = |open: &Open| open.len > COMPACT_BYTES_MIN.max(open.snapshot_len.saturating_mul(COMPACT_FACTOR));
        self.open.as_ref().is_some_and(due)
    }

    /// Begins the log anew with what it leads to, once it is long.
    fn make_small(&mut self, after: &After<'_>) {
        if !self.is_large() {
            return;
        }
        if let Err(error) = self.begin(&self.lines(after)) {
            // The long file is whole and good; the next change tries again.
            tracing::warn!(error = &error as &dyn std::error::Error, "ledger could not be made small");
        }
    }

    /// The fewest lines that lead to this.
    fn lines(&self, after: &After<'_>) -> Vec<Line> {
        let candidate = |entry: &Entry| {
            let content = RecordContent::Whole(artifact::encode(&entry.body));
            Line::Candidate(Record { origin: entry.origin, stamp: entry.stamp, content })
        };
        let mut lines: Vec<Line> = self.trial.shunned.iter().map(|digest| Line::Shunned(*digest)).collect();
        let confirmed = after.fallback.unwrap_or(after.good);
        lines.extend(confirmed.into_iter().flat_map(|entry| [candidate(entry), Line::Good]));
        if self.trial.is_opened {
            lines.push(Line::Opened);
        }
        if after.fallback.is_some() {
            lines.extend(after.good.into_iter().flat_map(|entry| [candidate(entry), Line::Trial]));
        }
        lines
    }

    /// The file in its place, if that is the one that is written to.
    fn in_place(&self) -> Option<(Metadata, &Open)> {
        let open = self.open.as_ref()?;
        let (found, own) = (fs::metadata(self.file()).ok()?, open.file.metadata().ok()?);
        ((found.dev(), found.ino()) == (own.dev(), own.ino())).then_some((found, open))
    }

    /// Whether it is there as it was written: its length, and where anybody wrote to it since it was looked at, every byte. What a write that failed left
    /// behind is cut off before.
    fn is_whole(&mut self) -> bool {
        let Some(_) = &self.open else { return true };
        let Some((found, open)) = self.in_place() else { return false };
        let is_as_long = found.len() == open.len;
        let (is_known, len, sum) = (open.whole_since == Some(changed(&found)), open.len, open.sum);
        if is_known || !is_as_long {
            return is_as_long;
        }
        let read = File::open(self.file()).and_then(|file| record::sum_of(&mut BufReader::new(file), self.host, len));
        match read {
            Ok(read) if read == Some(sum) => {
                if let Some(open) = &mut self.open {
                    open.whole_since = is_settled(&found).then(|| changed(&found));
                }
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(%error, "the ledger cannot be read back");
                false
            }
        }
    }

    /// Writes down what was taken back and is not on disk yet.
    fn pay(&mut self) -> Result<(), Error> {
        if !self.owes_taken_back {
            return Ok(());
        }
        if self.candidate {
            self.settle(&Line::Failed)?;
        }
        self.write(&Line::TakenBack)?;
        self.owes_taken_back = false;
        Ok(())
    }

    /// Whether a candidate is open, and whether what was taken back is not on disk yet.
    #[cfg(test)]
    pub(crate) fn owes(&self) -> (bool, bool) {
        (self.candidate, self.owes_taken_back)
    }

    fn settle(&mut self, line: &Line) -> Result<(), Error> {
        if !self.candidate {
            return Err(Error::NoCandidate);
        }
        self.write(line)?;
        self.candidate = false;
        Ok(())
    }
}

impl Store for Ledger {
    fn append(&mut self, record: &Record) -> Result<(), Cause> {
        self.pay()?;
        if self.candidate {
            // The last one was never settled; it is not in the kernel, or it would be good.
            self.settle(&Line::Failed)?;
        }
        self.write(&Line::Candidate(record.clone()))?;
        self.candidate = true;
        Ok(())
    }

    fn settle_good(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.settle(&Line::Good)?;
        self.trial.is_opened = false;
        self.make_small(after);
        Ok(())
    }

    fn settle_trial(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.settle(&Line::Trial)?;
        self.trial.is_opened = false;
        self.make_small(after);
        Ok(())
    }

    fn settle_confirmed(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.write(&Line::Confirmed)?;
        self.make_small(after);
        Ok(())
    }

    fn settle_taken_back(&mut self, digest: Digest, after: &After<'_>) -> Result<(), Cause> {
        shun(&mut self.trial.shunned, digest);
        (self.owes_taken_back, self.trial.is_opened) = (true, after.good.is_none());
        self.pay()?;
        self.make_small(after);
        Ok(())
    }

    fn trial(&self) -> Trial {
        self.trial.clone()
    }

    fn ensure_kept(&mut self, after: &After<'_>) -> Result<bool, Cause> {
        self.pay()?;
        let file = self.file();
        if let Some(open) = &mut self.open {
            open.cut_off().map_err(|source| Error::Io { doing: "cut", path: file, source })?;
        }
        if self.is_whole() {
            return Ok(false);
        }
        self.begin(&self.lines(after))?;
        Ok(true)
    }

    fn settle_failed(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.settle(&Line::Failed)?;
        self.make_small(after);
        Ok(())
    }
}

/// Makes a folder that only its owner enters, or sees that it is one.
///
/// # Errors
/// [`Error`] if it cannot be made or closed to others.
pub fn ensure_folder(folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io { doing: "make", path: folder.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(failed)
}

/// Makes a file that only its owner reads, empty.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests;
