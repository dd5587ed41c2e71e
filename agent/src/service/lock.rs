//! One agent per state folder.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::ledger::create_private;

const FILE: &str = "agent.lock";

/// Held while the process lives; the kernel lets go of it with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent holds it.
    #[error("another agent runs on {}", .0.display())]
    Held(PathBuf),
    /// The file fails.
    #[error("cannot lock {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl LockError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Held(_) => "state-locked",
            Self::Io { .. } => "state-unusable",
        }
    }
}

impl Lock {
    /// Takes the lock of a state folder.
    ///
    /// # Errors
    /// [`LockError`] if it cannot be had now.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(FILE);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let mut file = create_private(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // For people; nothing reads it.
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}
