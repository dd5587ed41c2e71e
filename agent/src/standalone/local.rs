//! The policy of this host's own that goes before what was rendered for it: for the hour in which the control plane is wrong or away.
//!
//! - A file in the state folder, whole or not there; it stays over restarts until somebody takes it away.
//! - It is written by `holdfast-agent override`, which reads it first: what is no policy is not put there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_identity::files;
use holdfast_model::artifact;
use holdfast_model::policy::Body;

use super::{Error, load, load_policy};

const FILE: &str = "override.hfp";

/// Where it lies.
#[must_use]
pub fn local_file(state_folder: &Path) -> PathBuf {
    state_folder.join(FILE)
}

/// The local policy, if there is one.
///
/// # Errors
/// [`Error`] if there is a file and it is no policy.
pub fn load_local(state_folder: &Path) -> Result<Option<Body>, Error> {
    match load_policy(&local_file(state_folder)) {
        Ok(body) => Ok(Some(body)),
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What lies in its place, whatever it is: to be put back if what replaces it is refused.
///
/// # Errors
/// [`Error::Read`] or [`Error::TooLarge`] if something is there that cannot be read.
pub fn read_local(state_folder: &Path) -> Result<Option<Vec<u8>>, Error> {
    match load(&local_file(state_folder)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts a local policy in place, or takes it away; durable before it returns.
///
/// # Errors
/// [`Error::Keep`] if it is not there, [`Error::Write`] if it still is.
pub fn save_local(state_folder: &Path, body: Option<&Body>) -> Result<(), Error> {
    write_local(state_folder, body.map(artifact::encode).as_deref())
}

/// The same of bytes as they were read.
///
/// # Errors
/// Those of [`save_local`].
pub fn write_local(state_folder: &Path, bytes: Option<&[u8]>) -> Result<(), Error> {
    let path = local_file(state_folder);
    match bytes {
        Some(bytes) => files::write_secret(&path, bytes).map_err(|source| Error::Keep { path, source }),
        None => match fs::remove_file(&path).and_then(|()| fs::File::open(state_folder)?.sync_all()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(Error::Write { path, source }),
        },
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::policy::Mode;

    use super::*;

    #[test]
    fn a_local_policy_is_kept_whole_for_its_owner_until_it_is_taken_away_and_a_broken_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load_local(folder.path()).expect("none"), None);
        let body = Body { mode: Mode::Enforced, ..Body::default() };
        save_local(folder.path(), Some(&body)).expect("saves");
        assert_eq!(load_local(folder.path()).expect("one"), Some(body));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(local_file(folder.path())).expect("it is there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        fs::write(local_file(folder.path()), b"{").expect("writes");
        assert!(load_local(folder.path()).is_err(), "what is broken is not taken for none");
        let broken = read_local(folder.path()).expect("it can be read");
        assert_eq!(broken.as_deref(), Some(b"{".as_slice()), "and can be put back as it was");
        save_local(folder.path(), Some(&Body::default())).expect("saves");
        write_local(folder.path(), broken.as_deref()).expect("writes");
        assert_eq!(fs::read(local_file(folder.path())).expect("it is there"), b"{");
        save_local(folder.path(), None).expect("removes");
        save_local(folder.path(), None).expect("there is none");
        assert_eq!(load_local(folder.path()).expect("none"), None);
    }
}
