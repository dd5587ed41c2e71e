//! A policy from a local file, for a host without a gateway and for trying things out.
//!
//! - Two forms: the flat bytes of an artifact (`*.hfp`, as `holdfast lab verify --render-only` and the renderer make them), told by their first byte,
//!   and JSON, concrete like a body: addresses and numbers, no selectors.
//! - A rule keeps its key while its direction, order, action, statement and place among equals stay, so that editing its peers edits elements in place.
//! - An unknown word is refused with its place; nothing is guessed.

mod json;
mod local;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use holdfast_model::artifact;
use holdfast_model::policy::Body;

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
            Self::Write { .. } | Self::Keep { .. } => "state-unusable",
            Self::Artifact { .. } => "policy-artifact",
            Self::Policy { .. } => "policy-malformed",
        }
    }
}

/// How long a pipe that is given as a file may take to be written, whoever writes it.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a file holds. A pipe has no end before somebody wrote into it and closed it: it is not waited for longer than this.
fn read_within(path: &Path, limit: Duration) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.file_type().is_fifo() {
        return fs::read(path);
    }
    let (done, read) = sync_channel(1);
    let pipe = path.to_owned();
    // One that nobody ever writes into keeps this thread until the process ends.
    thread::spawn(move || drop(done.send(fs::read(pipe))));
    read.recv_timeout(limit).unwrap_or_else(|_| {
        let words = format!("it is a pipe that nobody wrote to its end within {} s", limit.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, words))
    })
}

/// Reads the policy of a file.
///
/// # Errors
/// [`Error`] if the file cannot be read or says something that is no policy.
pub fn load_policy(path: &Path) -> Result<Body, Error> {
    let owned = || path.to_owned();
    let bytes = read_within(path, PIPE_TIMEOUT).map_err(|source| Error::Read { path: owned(), source })?;
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
