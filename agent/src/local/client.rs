//! Asking a running agent.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ANSWER_BYTES_MAX, Answer, Error, Question, SOCKET};

/// A restart's repair of a large table fits this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the agent whose state is in `folder`.
///
/// # Errors
/// [`Error::NotRunning`] if nobody listens, [`Error::Silent`] if it says nothing, else what failed.
pub fn ask(folder: &Path, question: Question) -> Result<Answer, Error> {
    ask_within(folder, question, ANSWER_TIMEOUT)
}

/// The same with another bound on its silence.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_within(folder: &Path, question: Question, limit: Duration) -> Result<Answer, Error> {
    let path = folder.join(SOCKET);
    let failed = |doing| {
        let path = path.clone();
        move |source| Error::Io { doing, path, source }
    };
    let stream = said(folder, question)?;
    stream.set_read_timeout(Some(limit)).map_err(failed("set a limit on"))?;
    let mut answer = String::new();
    let read = BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer);
    read.map_err(|source| {
        let is_silent = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&source.kind());
        if is_silent { Error::Silent { path: path.clone(), limit } } else { failed("read from")(source) }
    })?;
    serde_json::from_str(&answer).map_err(Error::Answer)
}

/// Leaves a question that nobody waits for; an agent takes questions in their order.
///
/// # Errors
/// Those of [`ask`].
pub fn tell(folder: &Path, question: Question) -> Result<(), Error> {
    said(folder, question).map(drop)
}

/// A connection on which the question was asked.
fn said(folder: &Path, question: Question) -> Result<UnixStream, Error> {
    let path = folder.join(SOCKET);
    let failed = |doing| {
        let path = path.clone();
        move |source| Error::Io { doing, path, source }
    };
    let mut stream = connect(folder).map_err(|source| {
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&source.kind());
        if nobody {
            Error::NotRunning(path.clone())
        } else {
            Error::Io { doing: "connect to", path: path.clone(), source }
        }
    })?;
    let mut line = serde_json::to_vec(&question).map_err(Error::Answer)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed("write to"))?;
    Ok(stream)
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let folder = File::open(folder)?;
    UnixStream::connect(short_path(&folder))
}

/// The socket's path through an open folder.
pub(super) fn short_path(folder: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET)
}
