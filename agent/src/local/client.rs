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
/// [`Error::NotRunning`] if nobody listens, else what failed.
pub fn ask(folder: &Path, question: Question) -> Result<Answer, Error> {
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
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(failed("set a limit on"))?;
    let mut line = serde_json::to_vec(&question).map_err(Error::Answer)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed("write to"))?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer).map_err(failed("read from"))?;
    serde_json::from_str(&answer).map_err(Error::Answer)
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let folder = File::open(folder)?;
    UnixStream::connect(short_path(&folder))
}

/// The socket's path through an open folder.
pub(super) fn short_path(folder: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET)
}
