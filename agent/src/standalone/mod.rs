//! A policy from a local file, for a host without a gateway and for trying things out.
//!
//! - Two forms: the flat bytes of an artifact (`*.hfp`, as `holdfast lab verify --render-only` and the renderer make them), told by their first byte,
//!   and JSON, concrete like a body: addresses and numbers, no selectors.
//! - A rule keeps its key while its direction, order, action, statement and place among equals stay, so that editing its peers edits elements in place.
//! - An unknown word is refused with its place; nothing is guessed.
//! - What is no plain file has a bounded time to come to its end, and everything a bounded size: a device may have no end.

mod json;
mod local;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use holdfast_model::artifact;
use holdfast_model::policy::Body;
use holdfast_wire::limits::BODY_BYTES_MAX;

pub use json::PolicyError;
pub(crate) use json::parse_range;
pub use local::{load_local, local_file, read_local, save_local, write_local};

/// Why a file gives no policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is larger than any policy.
    #[error("{} is larger than {FILE_BYTES_MAX} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Its bytes are no artifact.
    #[error("{} is no artifact", .path.display())]
    Artifact {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: artifact::DecodeError,
    },
    /// It cannot be taken away.
    #[error("cannot remove {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be put in place.
    #[error("cannot write {}", .path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: holdfast_identity::files::Error,
    },
    /// Its text is no policy.
    #[error("{} is no policy", .path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: PolicyError,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Read { .. } => "policy-unreadable",
            Self::TooLarge { .. } => "policy-too-large",
            Self::Write { .. } | Self::Keep { .. } => "state-unusable",
            Self::Artifact { .. } => "policy-artifact",
            Self::Policy { .. } => "policy-malformed",
        }
    }
}

/// The largest file: four times the largest body that is sent, for JSON writes a prefix of 5 to 8 bytes as about 20.
const FILE_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// How long a pipe that is given as a file may take to be written, whoever writes it.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a file holds, if it is not too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The same. A pipe has no end before somebody wrote into it and closed it: what is no plain file is not waited for longer than this.
fn read_within(path: &Path, limit: Duration) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() {
        return read(path);
    }
    let (done, is_read) = sync_channel(1);
    let pipe = path.to_owned();
    // One that nobody ever writes into keeps this thread until the process ends.
    thread::spawn(move || drop(done.send(read(&pipe))));
    is_read.recv_timeout(limit).unwrap_or_else(|_| {
        let words = format!("it is a pipe or a device that nobody wrote to its end within {} s", limit.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, words))
    })
}

/// What lies there, whatever it says.
fn load(path: &Path) -> Result<Vec<u8>, Error> {
    read_within(path, PIPE_TIMEOUT).map_err(|source| {
        let (path, is_too_large) = (path.to_owned(), source.kind() == io::ErrorKind::FileTooLarge);
        if is_too_large { Error::TooLarge { path } } else { Error::Read { path, source } }
    })
}

/// Reads the policy of a file.
///
/// # Errors
/// [`Error`] if the file cannot be read or says something that is no policy.
pub fn load_policy(path: &Path) -> Result<Body, Error> {
    let owned = || path.to_owned();
    let bytes = load(path)?;
    if bytes.first() == Some(&artifact::FORMAT) {
        return artifact::decode(&bytes).map_err(|source| Error::Artifact { path: owned(), source });
    }
    json::parse(&bytes).map_err(|source| Error::Policy { path: owned(), source })
}

/// Reads a policy from JSON text.
///
/// # Errors
/// [`PolicyError`] if it is none.
pub fn parse_policy(text: &[u8]) -> Result<Body, PolicyError> {
    json::parse(text)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_file_or_a_device_without_end_is_refused_by_its_size_and_the_largest_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let large = folder.path().join("large");
        let size = |bytes: usize| {
            let file = fs::File::create(&large).expect("the folder is ours");
            file.set_len(bytes as u64).expect("a file without blocks");
        };
        size(FILE_BYTES_MAX + 1);
        for path in [Path::new("/dev/zero"), &large] {
            let error = load_policy(path).expect_err("it is larger than any policy");
            assert!(matches!(&error, Error::TooLarge { path: named } if named == path), "{error}");
            assert_eq!(error.rule(), "policy-too-large");
        }
        size(FILE_BYTES_MAX);
        let error = load_policy(&large).expect_err("it says nothing");
        assert_eq!(error.rule(), "policy-malformed", "it is read, and looked at: {error}");
    }

    #[test]
    fn a_pipe_that_nobody_writes_is_not_waited_for_without_end_and_one_that_somebody_writes_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).expect("the folder is ours");
        let error = read_within(&pipe, Duration::from_millis(50)).expect_err("nobody writes");
        assert!(error.kind() == io::ErrorKind::TimedOut && error.to_string().contains("nobody wrote"), "{error}");
        // The thread that waits still has the first word; the next reader has what is written for it alone.
        fs::write(&pipe, b"").expect("somebody reads");
        let other = folder.path().join("other");
        mkfifo(&other, Mode::S_IRWXU).expect("the folder is ours");
        let written = other.clone();
        let writer = thread::spawn(move || fs::write(written, br#"{"mode": "enforced"}"#));
        assert_eq!(load_policy(&other).expect("a policy").mode, holdfast_model::policy::Mode::Enforced);
        writer.join().expect("it does not panic").expect("somebody reads");
    }
}
