//! A file for a secret that is shown once.
//!
//! - It is made, for its owner alone and with room for the secret, before the secret is asked for: where it cannot be written nothing is asked.
//! - A file that is there already is never written over; one that got no secret is taken away again.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Room for the longest secret.
const ROOM: [u8; 256] = [b'\n'; 256];

/// A file that waits for its secret.
pub(crate) struct SecretFile {
    file: File,
    path: PathBuf,
    is_kept: bool,
}

impl SecretFile {
    /// Makes it, with mode 0600.
    ///
    /// # Errors
    /// [`Error::Write`] where it cannot be made, or is there.
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(|source| Error::Write { path: path.clone(), source })?;
        // From here on it is taken away unless it is kept.
        Self { file, path, is_kept: false }.with_room()
    }

    fn with_room(mut self) -> Result<Self, Error> {
        let room = self.file.write_all(&ROOM).and_then(|()| self.file.sync_all());
        room.map_err(|source| Error::Write { path: self.path.clone(), source })?;
        Ok(self)
    }

    /// Writes the secret on a line and gives the file's path.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(crate) fn keep(mut self, secret: &str) -> Result<PathBuf, Error> {
        let line = format!("{secret}\n");
        let mut write = || {
            self.file.rewind()?;
            self.file.write_all(line.as_bytes())?;
            self.file.set_len(line.len() as u64)?;
            self.file.sync_all()
        };
        write().map_err(|source| Error::Write { path: self.path.clone(), source })?;
        self.is_kept = true;
        Ok(self.path.clone())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.path);
        }
    }
}

/// What stays is a file without a secret, which the next try will name.
fn remove(path: &Path) {
    let _removed = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone_and_nothing_that_is_there_is_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ci.token");
        let kept = SecretFile::create(path.clone()).and_then(|file| file.keep("one")).expect("is written");
        assert_eq!(std::fs::read_to_string(&kept).expect("is there"), "one\n");
        assert_eq!(std::fs::metadata(&kept).expect("is there").permissions().mode() & 0o777, 0o600);
        assert!(matches!(SecretFile::create(path.clone()), Err(Error::Write { .. })));
        assert_eq!(std::fs::read_to_string(&path).expect("is there"), "one\n", "as it was");
    }

    #[test]
    fn a_file_without_room_for_the_secret_is_refused_before_anything_is_asked() {
        // Every write to it fails as one to a full disk does.
        let full = File::options().write(true).open("/dev/full").expect("the kernel has it");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ci.token");
        std::fs::write(&path, "").expect("writes");
        let refused = SecretFile { file: full, path: path.clone(), is_kept: false }.with_room();
        assert!(matches!(refused, Err(Error::Write { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn a_secret_that_was_refused_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ci.token");
        drop(SecretFile::create(path.clone()).expect("is made"));
        assert!(!path.exists());
    }
}
