//! A certificate chain with its private key, and the roots that one side trusts.
//!
//! - A [`Credential`] always fits together: the key is the leaf's, checked when it is made.
//! - `Debug` shows names and dates, never a key.
//! - What somebody else hands over as a host's is checked by [`Credential::check_host`] before it is kept: that the key fits says nothing of its issuer.
//!
//! It does not renew anything: [`Validity::renew_at`] only says when.

use crate::files;
use crate::name::{self, host_id_of};
use crate::tls;
use holdfast_model::ids::{AuthorityId, HostId};
use rcgen::PublicKeyData as _;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// How far into the past a certificate begins, for clocks that are behind ours.
pub const BACKDATE: Duration = Duration::minutes(5);

/// Why a credential or a trust root could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file failed.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The text holds no certificate, or a broken one.
    #[error("the text holds no readable certificate")]
    Certificate,
    /// The private key cannot be read.
    #[error("the text holds no readable private key")]
    Key(#[source] rcgen::Error),
    /// The key belongs to another certificate.
    #[error("the private key is not that of the certificate")]
    Mismatch,
    /// No key or request could be made.
    #[error("cannot make a key or a request")]
    Generate(#[source] rcgen::Error),
    /// A root cannot be trusted: not a CA certificate that rustls takes.
    #[error("the certificate cannot be a trust root")]
    Root(#[source] rustls::Error),
    /// Its chain does not lead to a trusted CA, or it is none of a client.
    #[error("the certificate is none that a trusted CA gave to a client")]
    Chain(#[source] tls::Error),
    /// It names no host, or one of another authority.
    #[error("the certificate is none of this host's")]
    Name(#[from] name::Error),
    /// It is another host's.
    #[error("the certificate is that of {found}, not of {wanted}")]
    OtherHost {
        /// The host that it was to be for.
        wanted: HostId,
        /// The host that it names.
        found: HostId,
    },
    /// The named file holds something else.
    #[error("{} cannot be used", path.display())]
    In {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<Error>,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::File(error) => error.rule(),
            Self::Certificate => "certificate-malformed",
            Self::Key(_) => "key-malformed",
            Self::Mismatch => "key-mismatch",
            Self::Generate(_) => "key-generation",
            Self::Root(_) => "trust-root",
            Self::Chain(_) => "certificate-chain",
            Self::Name(error) => error.rule(),
            Self::OtherHost { .. } => "certificate-host",
            Self::In { source, .. } => source.rule(),
        }
    }

    fn in_file(self, path: &Path) -> Self {
        Self::In { path: path.to_owned(), source: Box::new(self) }
    }
}

/// From when to when a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: OffsetDateTime,
    /// The last second.
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// The moment of the renewal: two thirds of the life, pulled earlier by up to a twelfth of it, so that a fleet that
    /// enrolled together does not renew together (24 h: between 14 h and 16 h). `draw` is a random number.
    #[must_use]
    pub fn renew_at(&self, draw: u32) -> OffsetDateTime {
        let issued = self.not_before + BACKDATE;
        let life_ms = (self.not_after - issued).whole_milliseconds().max(0);
        let pull_ms = life_ms / 12 * i128::from(draw) / i128::from(u32::MAX);
        let after_ms = i64::try_from(life_ms * 2 / 3 - pull_ms).unwrap_or(i64::MAX);
        issued + Duration::milliseconds(after_ms)
    }
}

/// A certificate chain, leaf first, with the leaf's private key.
pub struct Credential {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    validity: Validity,
}

impl Credential {
    /// Joins a chain with its key.
    ///
    /// # Errors
    /// [`Error::Certificate`] for an empty or broken chain, [`Error::Key`] for a key of a foreign kind, [`Error::Mismatch`] when they do not fit.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let leaf = chain.first().ok_or(Error::Certificate)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| Error::Certificate)?;
        let pair = rcgen::KeyPair::try_from(&key).map_err(Error::Key)?;
        if pair.subject_public_key_info() != parsed.public_key().raw {
            return Err(Error::Mismatch);
        }
        let validity = Validity {
            not_before: parsed.validity().not_before.to_datetime(),
            not_after: parsed.validity().not_after.to_datetime(),
        };
        Ok(Self { chain, key, validity })
    }

    /// Reads a chain and a PKCS#8 key in PEM.
    ///
    /// # Errors
    /// As [`Credential::new`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Error::Key(rcgen::Error::CouldNotParseKeyPair))?;
        Self::new(certificates(chain)?, key)
    }

    /// Reads a chain file and a key file.
    ///
    /// # Errors
    /// Which file cannot be read, is open to others, or holds something else.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, Error> {
        let chain_pem = files::read(chain)?;
        let key_pem = files::read_secret(key)?;
        Self::from_pem(&chain_pem, &key_pem).map_err(|error| match error {
            Error::Key(_) | Error::Mismatch => error.in_file(key),
            Error::File(_)
            | Error::Certificate
            | Error::Generate(_)
            | Error::Root(_)
            | Error::Chain(_)
            | Error::Name(_)
            | Error::OtherHost { .. }
            | Error::In { .. } => error.in_file(chain),
        })
    }

    /// Reads `<name>.pem` and its key, as [`Credential::save`] wrote them or was about to when its process died.
    ///
    /// # Errors
    /// As [`Credential::load`].
    pub fn load_named(folder: &Path, name: &str) -> Result<Self, Error> {
        let (chain, key) = paths(folder, name);
        let next = next_key(folder, name);
        match Self::load(&chain, &key) {
            // The chain is the new one, and its key is not in its place yet.
            Err(error) if next.exists() => Self::load(&chain, &next).map_err(|_| error),
            loaded => loaded,
        }
    }

    /// Writes `<name>.pem` and `<name>.key.pem` (0600). Whoever reads them by [`Credential::load_named`] has the ones of before or these, at whatever
    /// moment this process dies.
    ///
    /// # Errors
    /// [`Error::File`] naming the file that could not be written.
    pub fn save(&self, folder: &Path, name: &str) -> Result<(), Error> {
        let ((chain, key), next) = (paths(folder, name), next_key(folder, name));
        if !chain.exists() {
            // A key without a chain is nobody's.
            files::write_secret(&key, self.key_pem().as_bytes())?;
            return Ok(files::write_public(&chain, self.chain_pem().as_bytes())?);
        }
        files::write_secret(&next, self.key_pem().as_bytes())?;
        files::write_public(&chain, self.chain_pem().as_bytes())?;
        files::write_secret(&key, self.key_pem().as_bytes())?;
        Ok(files::remove(&next)?)
    }

    /// Whether it is what a gateway lets in as this host: given by a trusted CA, to a client, under this name.
    ///
    /// Not whether it counts by this host's clock: gateways go by theirs, and one whose clock is hours off has no other certificate to get. The chain is
    /// judged at the moment within the leaf's dates that is nearest to `now`.
    ///
    /// # Errors
    /// [`Error::Chain`], [`Error::Name`] or [`Error::OtherHost`].
    pub fn check_host(
        &self,
        roots: &TrustRoots,
        authority: AuthorityId,
        host: HostId,
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        let Validity { not_before, not_after } = self.validity;
        tls::check_client(&self.chain, roots, now.min(not_after).max(not_before)).map_err(Error::Chain)?;
        let found = host_id_of(self.leaf(), authority)?;
        if found == host { Ok(()) } else { Err(Error::OtherHost { wanted: host, found }) }
    }

    /// The chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The leaf.
    #[must_use]
    pub fn leaf(&self) -> &CertificateDer<'static> {
        self.chain.first().expect("a credential is made with a leaf")
    }

    /// From when to when the leaf counts.
    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// The chain in PEM.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem_text("CERTIFICATE", certificate)).collect()
    }

    /// The key in PEM, wiped when dropped.
    #[must_use]
    pub fn key_pem(&self) -> Zeroizing<String> {
        let label = match &self.key {
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            // The type is open to new kinds; `new` refuses them, so what is left is PKCS#8.
            PrivateKeyDer::Pkcs8(_) | _ => "PRIVATE KEY",
        };
        Zeroizing::new(pem_text(label, self.key.secret_der()))
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &crate::name::CertificateName::of(self.leaf()))
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

/// The roots that one side trusts: one CA, or two while a CA is being changed.
#[derive(Clone)]
pub struct TrustRoots {
    certificates: Vec<CertificateDer<'static>>,
    store: Arc<RootCertStore>,
}

impl TrustRoots {
    /// Trusts exactly these certificates.
    ///
    /// # Errors
    /// [`Error::Certificate`] for none, [`Error::Root`] for one that cannot be a root.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        if certificates.is_empty() {
            return Err(Error::Certificate);
        }
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            store.add(certificate.clone()).map_err(Error::Root)?;
        }
        Ok(Self { certificates, store: Arc::new(store) })
    }

    /// Reads the certificates of a PEM text.
    ///
    /// # Errors
    /// As [`TrustRoots::new`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Self::new(certificates(pem)?)
    }

    /// Reads a CA file.
    ///
    /// # Errors
    /// As [`TrustRoots::new`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::from_pem(&files::read(path)?).map_err(|error| error.in_file(path))
    }

    /// The trusted certificates.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.store)
    }
}

impl fmt::Debug for TrustRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustRoots({})", self.certificates.len())
    }
}

/// Where a named credential lies: the chain's file and the key's file.
#[must_use]
pub fn paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key.pem")))
}

/// Where the key lies for which a chain is about to be written.
fn next_key(folder: &Path, name: &str) -> PathBuf {
    paths(folder, &format!("{name}.next")).1
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| Error::Certificate)?;
    if list.is_empty() { Err(Error::Certificate) } else { Ok(list) }
}

/// RFC 7468: base64 in lines of 64 between two markers.
pub(crate) fn pem_text(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let body = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(der));
    let mut text = format!("-----BEGIN {label}-----\n");
    text.reserve(body.len() + body.len() / 64 + label.len() + 32);
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn day_long_leaf_is_renewed_between_14_and_16_hours_after_its_issue() {
        let issued = datetime!(2026-11-29 12:00 UTC);
        let validity = Validity { not_before: issued - BACKDATE, not_after: issued + Duration::hours(24) };
        assert_eq!(validity.renew_at(0), issued + Duration::hours(16));
        assert_eq!(validity.renew_at(u32::MAX), issued + Duration::hours(14));
        let middle = validity.renew_at(u32::MAX / 2) - issued;
        assert!(middle > Duration::hours(14) && middle < Duration::hours(16));
    }

    #[test]
    fn text_without_a_certificate_is_no_root_and_no_chain() {
        assert!(matches!(TrustRoots::from_pem(b""), Err(Error::Certificate)));
        assert!(matches!(
            TrustRoots::from_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            Err(Error::Root(_))
        ));
    }
}
