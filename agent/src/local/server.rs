//! Answering those who ask.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::client::short_path;
use super::{Answer, Error, QUESTION_BYTES_MAX, Question, SOCKET};

/// Whoever connects and says nothing is let go after this.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The listening socket; its file goes with it.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens in a folder; the caller holds the agent's lock, so a socket that is there is a dead one's.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot.
    pub fn listen(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(SOCKET);
        let failed = |doing| {
            let path = path.clone();
            move |source| Error::Io { doing, path, source }
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("take away the dead")(error)),
            Ok(()) | Err(_) => {}
        }
        let opened = File::open(folder).map_err(failed("listen on"))?;
        let listener = UnixListener::bind(short_path(&opened)).map_err(failed("listen on"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed("close to others"))?;
        Ok(Self { listener, path })
    }

    /// The next one who asks.
    ///
    /// # Errors
    /// The socket's.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// The question of one who connected; `None` for one who asks nothing that we know.
pub(crate) async fn read_question(stream: &mut UnixStream) -> Option<Question> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(QUESTION_BYTES_MAX));
    timeout(QUESTION_TIMEOUT, reader.read_line(&mut line)).await.ok()?.ok()?;
    serde_json::from_str(&line).ok()
}

/// Answers and hangs up.
pub(crate) async fn write_answer(mut stream: UnixStream, answer: &Answer) {
    let Ok(mut line) = serde_json::to_vec(answer) else { return };
    line.push(b'\n');
    // Whoever left before the answer does not need it.
    drop(timeout(QUESTION_TIMEOUT, stream.write_all(&line)).await);
}
