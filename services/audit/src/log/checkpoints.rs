//! Signed heads, kept beside the log.
//!
//! They prove the log against a change by somebody without the signing key. One that can forge them too is caught by a copy kept elsewhere.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use holdfast_api::audit::Checkpoint;

use super::{LogError, io, private, sync_folder};

/// The checkpoints of one log.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    path: PathBuf,
}

impl Checkpoints {
    /// Those of a log's folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self { path: folder.join("checkpoints.jsonl") }
    }

    /// All of them, ascending; lines that do not read are left out and counted.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be read.
    pub fn load(&self) -> Result<(Vec<Checkpoint>, usize), LogError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(source) => return Err(io("read", &self.path)(source)),
        };
        let read: Vec<_> = text.lines().map(serde_json::from_str).collect();
        let bad = read.iter().filter(|line| line.is_err()).count();
        Ok((read.into_iter().flatten().collect(), bad))
    }

    /// Appends one and syncs.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be written.
    pub fn append(&self, checkpoint: &Checkpoint) -> Result<(), LogError> {
        let line = serde_json::to_string(checkpoint).map_err(|error| io("write", &self.path)(error.into()))?;
        let mut file = private().create(true).append(true).open(&self.path).map_err(io("open", &self.path))?;
        writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(io("append to", &self.path))?;
        sync_folder(&self.path)
    }
}
