//! Who this host is: what it was given when it enrolled, and how it gets it.
//!
//! - No trust on first use: the CA is known by its pin before the first byte is sent, and the token goes only to a gateway under that CA.
//! - Keys are made here and never leave; files of secrets are 0600 in a 0700 folder.
//! - The record is written last: a host is enrolled with all of its files or not at all.
//! - Keys and request are on disk before they are shown to anybody: an enrolment that was granted while its agent died is finished by the next one.

mod enrol;
mod error;
mod pending;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_identity::{Credential, SigningKey, TrustRoots, VerifyingKey, credential, files, signing};
use holdfast_model::desired::{Component, Desired};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::statement::{Authority, desired_bytes};
use serde::{Deserialize, Serialize};

pub use enrol::{Begun, Enrol, Enrolled, Grant, enrol};
pub use error::EnrolError;

use crate::engine::Entry;

const FOLDER: &str = "identity";
const RECORD: &str = "enrolment.json";
const CA: &str = "ca.pem";
const OUTCOME_KEY: &str = "outcome.key";
/// Where [`Credential::save`] puts the certificate and its key.
const CREDENTIAL: &str = "host";

/// Why the files of an enrolment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host is not enrolled.
    #[error("this host is not enrolled: run `holdfast-agent enrol`")]
    Absent,
    /// A file fails.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The record is there and cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The record.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The record makes no sense.
    #[error("{} is no enrolment", .path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The certificate or the CA cannot be used.
    #[error("the host's certificate cannot be used")]
    Credential(#[from] credential::Error),
    /// A signing key cannot be used.
    #[error("a signing key cannot be used")]
    Key(#[from] signing::Error),
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Absent => "not-enrolled",
            Self::File(error) => error.rule(),
            Self::Read { .. } => "file-unreadable",
            Self::Record { .. } => "enrolment-malformed",
            Self::Credential(error) => error.rule(),
            Self::Key(error) => error.rule(),
        }
    }
}

/// What the host was told when it enrolled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(crate) host_id: HostId,
    pub(crate) authority_id: AuthorityId,
    pub(crate) authority_epoch: AuthorityEpoch,
    pub(crate) renderer_key: String,
    pub(crate) ca_pin: String,
    pub(crate) gateways: Vec<String>,
}

/// An enrolled host.
#[derive(Debug)]
pub struct Enrolment {
    folder: PathBuf,
    pub(crate) host: HostId,
    pub(crate) authority: Authority,
    pub(crate) renderer_key: VerifyingKey,
    pub(crate) gateways: Vec<String>,
    pub(crate) roots: TrustRoots,
    pub(crate) outcome_key: SigningKey,
}

impl Enrolment {
    /// Reads the enrolment below a state folder.
    ///
    /// # Errors
    /// [`Error::Absent`] if there is none, else which file cannot be used.
    pub fn load(state_folder: &Path) -> Result<Self, Error> {
        let folder = state_folder.join(FOLDER);
        let path = folder.join(RECORD);
        let text = fs::read(&path).map_err(|source| {
            let absent = source.kind() == io::ErrorKind::NotFound;
            if absent { Error::Absent } else { Error::Read { path: path.clone(), source } }
        })?;
        let told: Told = serde_json::from_slice(&text).map_err(|source| Error::Record { path, source })?;
        Ok(Self {
            host: told.host_id,
            authority: Authority { id: told.authority_id, epoch: told.authority_epoch },
            renderer_key: told.renderer_key.parse()?,
            gateways: told.gateways,
            roots: TrustRoots::load(&folder.join(CA))?,
            outcome_key: SigningKey::load(&folder.join(OUTCOME_KEY))?,
            folder,
        })
    }

    /// Removes what an `enrol` that died at its very end left behind.
    ///
    /// # Errors
    /// Which file cannot be removed.
    pub fn tidy(state_folder: &Path) -> Result<(), Error> {
        Ok(pending::forget(state_folder)?)
    }

    /// The certificate in use, as it is on disk now.
    ///
    /// # Errors
    /// Which file cannot be used.
    pub fn credential(&self) -> Result<Credential, Error> {
        Ok(Credential::load_named(&self.folder, CREDENTIAL)?)
    }

    /// Puts the next certificate in the place of the one in use.
    ///
    /// # Errors
    /// Which file cannot be written.
    pub fn save_credential(&self, credential: &Credential) -> Result<(), Error> {
        Ok(credential.save(&self.folder, CREDENTIAL)?)
    }

    /// One under a CA of a test's own, whose certificate is so old.
    #[cfg(test)]
    pub(crate) fn under(ca: &holdfast_identity::Ca, state_folder: &Path, leaf_age: time::Duration) -> Self {
        let (authority_id, host_id) = (ca.authority(), HostId::new(uuid::Uuid::from_u128(42)));
        let leaf = holdfast_identity::LeafKey::generate().expect("a key");
        let request = holdfast_identity::KeyRequest::from_der(&leaf.request().expect("a request")).expect("ours");
        let issued = ca.issue_host(host_id, &request, time::OffsetDateTime::now_utc() - leaf_age).expect("issued");
        let credential = leaf.credential(issued.chain_pem.as_bytes()).expect("it fits");
        let outcome_key = SigningKey::generate().expect("a key");
        let told = Told {
            host_id,
            authority_id,
            authority_epoch: AuthorityEpoch::from_raw(1),
            renderer_key: outcome_key.verifying_key().to_string(),
            ca_pin: ca.pin().to_string(),
            gateways: Vec::new(),
        };
        save(state_folder, &told, &ca.certificate_pem(), &credential, &outcome_key).expect("saved");
        Self::load(state_folder).expect("it is there")
    }

    /// Whether the renderer that this host was enrolled with signed a policy for it.
    #[must_use]
    pub fn is_genuine(&self, entry: &Entry) -> bool {
        let Some(origin) = entry.origin else { return false };
        let desired = Desired { host: self.host, component: Component::Policy, stamp: entry.stamp };
        let statement = desired_bytes(origin.authority, &desired);
        let signature = holdfast_identity::Signature(origin.signature);
        origin.authority.id == self.authority.id && self.renderer_key.verify(&statement, &signature).is_ok()
    }
}

/// Writes everything that an enrolment is, the record last.
fn save(
    state_folder: &Path,
    told: &Told,
    ca_pem: &str,
    credential: &Credential,
    outcome_key: &SigningKey,
) -> Result<(), Error> {
    let folder = state_folder.join(FOLDER);
    outcome_key.save(&folder.join(OUTCOME_KEY))?;
    files::write_public(&folder.join(CA), ca_pem.as_bytes())?;
    credential.save(&folder, CREDENTIAL)?;
    let path = folder.join(RECORD);
    let text = serde_json::to_vec_pretty(told).map_err(|source| Error::Record { path: path.clone(), source })?;
    Ok(files::write_secret(&path, &text)?)
}

/// Whether a host is enrolled below a state folder.
fn is_enrolled(state_folder: &Path) -> bool {
    state_folder.join(FOLDER).join(RECORD).exists()
}
