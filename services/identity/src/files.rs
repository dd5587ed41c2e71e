//! Files that hold keys and certificates.
//!
//! - A file appears whole or not at all: written beside its place, synced, renamed, its folder synced.
//! - A secret file has mode 0600 from its first byte; a folder made for it has 0700.
//! - A private key that its world can read, or its group can write, is refused and named.
//!
//! The calls block for as long as the disk does; none of them belongs into a connection's path.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be put in place.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Others than its owner and its group's readers reach the secret.
    #[error("{} holds a secret and is open to others (mode {mode:04o}), where 0600 is wanted", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Read { .. } => "file-unreadable",
            Self::Write { .. } => "file-unwritable",
            Self::Exposed { .. } => "file-exposed",
        }
    }
}

/// Reads a file that holds no secret.
///
/// # Errors
/// [`Error::Read`] when it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Reads a secret into memory that is wiped when it is dropped.
///
/// # Errors
/// [`Error::Exposed`] when others can read it or its group can write it; [`Error::Read`] when it cannot be read.
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(fail)?.permissions().mode() & 0o7777;
    if mode & 0o027 != 0 {
        return Err(Error::Exposed { path: path.to_owned(), mode });
    }
    fs::read(path).map(Zeroizing::new).map_err(fail)
}

/// Puts a secret in place: mode 0600, in a folder that is made 0700 when it is missing.
///
/// # Errors
/// [`Error::Write`] when any step fails; the old file, if there was one, then still stands.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write(path, bytes, 0o600)
}

/// Puts a certificate or another public file in place: mode 0644.
///
/// # Errors
/// [`Error::Write`] when any step fails; the old file, if there was one, then still stands.
pub fn write_public(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write(path, bytes, 0o644)
}

/// Removes a file for good.
///
/// # Errors
/// [`Error::Write`] when it stays.
pub fn remove(path: &Path) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.to_owned(), source };
    fs::remove_file(path).map_err(fail)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    // Set by name, not by the creating call: that one is cut by the umask.
    file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist(path).map_err(|error| fail(error.error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn secret_is_0600_in_a_0700_folder_and_replaced_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("pki/deep/x.key.pem");
        write_secret(&path, b"one").unwrap();
        write_secret(&path, b"two").unwrap();
        assert_eq!(read_secret(&path).unwrap().as_slice(), b"two");
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(mode_of(path.parent().unwrap()), 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no left-over beside it");
    }

    #[test]
    fn exposed_secret_is_refused_and_a_group_that_reads_is_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.key.pem");
        write_public(&path, b"one").unwrap();
        assert!(matches!(read_secret(&path), Err(Error::Exposed { mode: 0o644, .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(read_secret(&path).is_ok());
    }

    #[test]
    fn failed_write_names_the_file_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(matches!(write_secret(&path, b"x"), Err(Error::Write { .. })));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
