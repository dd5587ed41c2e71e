//! A client certificate that is read for each handshake anew, so that it can be replaced while the process runs.
//!
//! - Chain and key are two files: between the writing of the one and the other they do not fit, and the last pair that did is shown.
//! - The trust roots are not read again: whoever replaces the CA starts processes anew.

use super::{Error, provider};
use crate::credential::{self, Credential};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Why the files of a folder do not make a client.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// They cannot be read, or do not fit together.
    #[error(transparent)]
    Credential(#[from] credential::Error),
    /// rustls does not take them.
    #[error(transparent)]
    Tls(#[from] Error),
}

/// Where the certificate is, and what was there last.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    name: String,
    last: Mutex<Arc<CertifiedKey>>,
}

impl Files {
    /// With what is shown until the files can be read.
    pub(super) fn new(first: &Credential, folder: &Path, name: &str) -> Result<Self, Error> {
        Ok(Self { folder: folder.to_owned(), name: name.to_owned(), last: Mutex::new(certified(first)?) })
    }
}

impl ResolvesClientCert for Files {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // No code that can panic runs under this lock.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&self.folder, &self.name) {
            Ok(now) => *last = now,
            Err(error) => tracing::warn!(
                folder = %self.folder.display(), name = %self.name, %error,
                "the certificate cannot be read again; the last one is shown"
            ),
        }
        Some(Arc::clone(&last))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn read(folder: &Path, name: &str) -> Result<Arc<CertifiedKey>, ReadError> {
    Ok(certified(&Credential::load_named(folder, name)?)?)
}

fn certified(credential: &Credential) -> Result<Arc<CertifiedKey>, Error> {
    let key = CertifiedKey::from_der(credential.chain().to_vec(), credential.key(), &provider());
    Ok(Arc::new(key.map_err(Error::Config)?))
}
