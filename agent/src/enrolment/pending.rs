//! An enrolment that was begun: on disk before anybody is asked, so that whoever dies before the answer asks the very same again.
//!
//! - A gateway answers the same request once more, for no further use of its token: same keys, same name, same addresses, same token.
//! - The keys lie where an enrolled host has them, the request beside them, written last and removed first: whoever finds it finds its keys.
//! - One enrolment at a time: the folder is locked while one is under way.
//! - Every file of it is a secret: mode 0600, the request too, for the token in it.
//!
//! Whether and when it is asked for is not decided here.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::credential::paths;
use holdfast_identity::{CaPin, LeafKey, SigningKey, Token, files};
use holdfast_model::name::Name;
use holdfast_wire::enrol::{EnrolRequest, TokenText};
use serde::{Deserialize, Serialize};

use super::{CREDENTIAL, Error, FOLDER, OUTCOME_KEY};
use crate::session::inventory;

const REQUEST: &str = "pending.json";

/// The folder of an identity, while it is ours alone.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    /// Another enrolment is under way.
    #[error("it is in use")]
    Held,
    /// It cannot be made or opened.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// What is asked for, and the keys that it is asked for with.
pub(super) struct Pending {
    ca_pin: String,
    pub(super) request: EnrolRequest,
    pub(super) leaf: LeafKey,
    pub(super) outcome_key: SigningKey,
}

/// The file of the request.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    ca_pin: String,
    request: EnrolRequest,
}

impl Folder {
    /// Makes the folder if it is not there, and takes it.
    pub(super) fn take(state_folder: &Path) -> Result<Self, FolderError> {
        let path = state_folder.join(FOLDER);
        let failed = |source| files::Error::Write { path: path.clone(), source };
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
            // What is kept in it lasts as long as its name does.
            for above in path.ancestors().skip(1).take(2).filter(|above| !above.as_os_str().is_empty()) {
                sync(above)?;
            }
        }
        let lock = File::open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FolderError::Held),
            Err(TryLockError::Error(source)) => Err(failed(source).into()),
        }
    }

    /// What was begun here before.
    pub(super) fn load(&self) -> Result<Option<Pending>, Error> {
        let path = self.path.join(REQUEST);
        let text = match files::read_secret(&path) {
            Ok(text) => text,
            Err(files::Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Kept { ca_pin, request } =
            serde_json::from_slice(&text).map_err(|source| Error::Record { path, source })?;
        let key = files::read_secret(&self.leaf_key())?;
        let leaf = LeafKey::from_pem(&String::from_utf8_lossy(&key))?;
        let outcome_key = SigningKey::load(&self.path.join(OUTCOME_KEY))?;
        Ok(Some(Pending { ca_pin, request, leaf, outcome_key }))
    }

    /// Begins one in the place of what was begun before: new keys, and what this host is now. All of it is on disk before it is returned.
    pub(super) fn begin(&self, token: &Token, name: &Name, ca_pin: CaPin) -> Result<Pending, Error> {
        let (leaf, outcome_key) = (LeafKey::generate()?, SigningKey::generate()?);
        let says = inventory::observe();
        let request = EnrolRequest {
            token: TokenText(token.reveal().to_owned()),
            name: name.clone(),
            csr: STANDARD.encode(leaf.request()?),
            outcome_key: outcome_key.verifying_key().to_string(),
            hostname: says.hostname,
            kernel: says.kernel,
            addresses: says.addresses,
        };
        let path = self.path.join(REQUEST);
        // No request ever lies beside another one's keys.
        remove(&path)?;
        files::write_secret(&self.leaf_key(), leaf.to_pem().as_bytes())?;
        outcome_key.save(&self.path.join(OUTCOME_KEY))?;
        let kept = Kept { ca_pin: ca_pin.to_string(), request };
        let text = serde_json::to_vec(&kept).map_err(|source| Error::Record { path: path.clone(), source })?;
        files::write_secret(&path, &text)?;
        let Kept { ca_pin, request } = kept;
        Ok(Pending { ca_pin, request, leaf, outcome_key })
    }

    /// Removes what was begun, the request first.
    pub(super) fn clear(&self) -> Result<(), files::Error> {
        for file in [self.path.join(REQUEST), self.leaf_key(), self.path.join(OUTCOME_KEY)] {
            remove(&file)?;
        }
        Ok(())
    }

    fn leaf_key(&self) -> PathBuf {
        paths(&self.path, CREDENTIAL).1
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An enrolment that came to nothing leaves no folder; one with anything in it stays.
        drop(fs::remove_dir(&self.path));
    }
}

impl Pending {
    /// Whether it asks for this name under this CA.
    pub(super) fn is_for(&self, name: &Name, ca_pin: CaPin) -> bool {
        self.request.name == *name && self.ca_pin == ca_pin.to_string()
    }

    /// The CA that it was begun under.
    pub(super) fn ca_pin(&self) -> &str {
        &self.ca_pin
    }

    /// Whether it shows this token.
    pub(super) fn shows(&self, token: &Token) -> bool {
        self.request.token.0 == token.reveal()
    }
}

/// Removes a request whose identity is in place.
pub(super) fn forget(state_folder: &Path) -> Result<(), files::Error> {
    remove(&state_folder.join(FOLDER).join(REQUEST))
}

/// Removes a file for good, if it is there.
fn remove(file: &Path) -> Result<(), files::Error> {
    // A file system that takes nothing refuses also to remove what is not there.
    if !file.exists() {
        return Ok(());
    }
    match fs::remove_file(file) {
        Ok(()) => file.parent().map_or(Ok(()), sync),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(files::Error::Write { path: file.to_owned(), source }),
    }
}

fn sync(folder: &Path) -> Result<(), files::Error> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| files::Error::Write { path: folder.to_owned(), source })
}
