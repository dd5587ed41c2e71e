//! Ed25519 signatures: the renderer's on every desired state, a host's on every outcome.
//!
//! - What is signed are whole statements whose bytes begin with their purpose (`holdfast_model::statement`), so that no
//!   signature can be taken for another; nothing is signed here by any other caller.
//! - A signing key is a PKCS#8 file of mode 0600 or zeroized memory; its `Debug` shows the public half.
//!
//! It says nothing about who a key belongs to: renderer keys are pinned by agents, host keys are registered at enrolment.

use crate::credential;
use crate::files;
use crate::name::{CertificateName, ServerRole};
use holdfast_model::digest::Digest;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

const PREFIX: &str = "ed25519:";

/// Why a key could not be had or a signature does not count.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file failed.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The bytes are no Ed25519 key in PKCS#8 with its public half.
    #[error("the bytes are no Ed25519 key in PKCS#8")]
    Key,
    /// The named file holds no such key.
    #[error("{} holds no Ed25519 key in PKCS#8", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
    },
    /// The text or bytes are no public key.
    #[error("a public key is `ed25519:` and 64 lower-case hexadecimal characters")]
    PublicKey,
    /// The signature was not made by that key over those bytes.
    #[error("the signature is not one of {key} over this statement")]
    Forged {
        /// The key that was expected to have signed.
        key: VerifyingKey,
    },
    /// A certificate does not prove a signing key.
    #[error(
        "the certificate of the key that signs desired states is not of the pinned CA, not for its renderer, or out of date"
    )]
    Uncertified,
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    Randomness,
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::File(error) => error.rule(),
            Self::Key | Self::KeyFile { .. } => "signing-key-malformed",
            Self::PublicKey => "public-key-malformed",
            Self::Forged { .. } => "signature-forged",
            Self::Uncertified => "signing-key-uncertified",
            Self::Randomness => "randomness",
        }
    }
}

/// What stands before the 32 bytes of an Ed25519 key in its public key info.
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

fn certified(pem: &str, ca: &CertificateDer<'_>, now: OffsetDateTime) -> Option<VerifyingKey> {
    let [leaf] = <[_; 1]>::try_from(credential::certificates(pem.as_bytes()).ok()?).ok()?;
    let CertificateName::Ca(authority) = CertificateName::of(ca).ok()? else { return None };
    if CertificateName::of(&leaf).ok()? != CertificateName::Service(authority, ServerRole::Renderer) {
        return None;
    }
    let (_, ca) = X509Certificate::from_der(ca).ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    let is_current = leaf.validity().not_before.to_datetime() <= now && now < leaf.validity().not_after.to_datetime();
    if leaf.is_ca() || !is_current || leaf.verify_signature(Some(ca.public_key())).is_err() {
        return None;
    }
    let (head, key) = leaf.public_key().raw.split_first_chunk()?;
    (*head == SPKI_HEAD).then(|| key.try_into().ok().map(VerifyingKey)).flatten()
}

/// The private half.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
}

impl SigningKey {
    /// Makes a key from the system's randomness.
    ///
    /// # Errors
    /// [`Error::Randomness`] when there is none.
    pub fn generate() -> Result<Self, Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::Randomness)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// Reads a PKCS#8 document (version 2, with the public half, which is checked).
    ///
    /// # Errors
    /// [`Error::Key`] for anything else.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Self, Error> {
        let pair = Ed25519KeyPair::from_pkcs8(bytes).map_err(|_| Error::Key)?;
        Ok(Self { pair, pkcs8: Zeroizing::new(bytes.to_vec()) })
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or is open to others, [`Error::KeyFile`] when it holds something else.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::from_pkcs8(&files::read_secret(path)?).map_err(|_| Error::KeyFile { path: path.to_owned() })
    }

    /// Writes the key file, mode 0600.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        Ok(files::write_secret(path, &self.pkcs8)?)
    }

    /// The public half.
    #[must_use]
    pub fn verifying_key(&self) -> VerifyingKey {
        let bytes = self.pair.public_key().as_ref().try_into();
        VerifyingKey(bytes.expect("an Ed25519 public key has 32 bytes"))
    }

    /// Signs one statement.
    #[must_use]
    pub fn sign(&self, statement: &[u8]) -> Signature {
        let bytes = self.pair.sign(statement).as_ref().try_into();
        Signature(bytes.expect("an Ed25519 signature has 64 bytes"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying_key())
    }
}

/// The public half of a [`SigningKey`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerifyingKey([u8; 32]);

impl VerifyingKey {
    /// Wraps bytes that a column or a frame carried; a key that is no point fails at every verification.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for columns and frames.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the key from the certificate that the CA gave it ([`Ca::certify_signing_key`](crate::Ca::certify_signing_key)).
    ///
    /// # Errors
    /// [`Error::Uncertified`] unless the certificate is of this CA, for its authority's renderer, and good at `now`.
    pub fn certified(pem: &str, ca: &CertificateDer<'_>, now: OffsetDateTime) -> Result<Self, Error> {
        certified(pem, ca, now).ok_or(Error::Uncertified)
    }

    /// RFC 8410: the fixed head of an Ed25519 public key, and the key.
    pub(crate) fn public_key_info(&self) -> Vec<u8> {
        [SPKI_HEAD.as_slice(), &self.0].concat()
    }

    /// Checks that this key signed exactly these bytes.
    ///
    /// # Errors
    /// [`Error::Forged`] when it did not.
    pub fn verify(&self, statement: &[u8], signature: &Signature) -> Result<(), Error> {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(statement, &signature.0)
            .map_err(|_| Error::Forged { key: *self })
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for VerifyingKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hex: Digest = text.strip_prefix(PREFIX).ok_or(Error::PublicKey)?.parse().map_err(|_| Error::PublicKey)?;
        Ok(Self(*hex.as_bytes()))
    }
}

/// One Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(")?;
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_counts_for_its_key_and_its_bytes_only() {
        let (one, two) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let signature = one.sign(b"statement");
        assert!(one.verifying_key().verify(b"statement", &signature).is_ok());
        assert!(matches!(one.verifying_key().verify(b"statemenT", &signature), Err(Error::Forged { .. })));
        assert!(matches!(two.verifying_key().verify(b"statement", &signature), Err(Error::Forged { .. })));
        for bit in 0..512 {
            let mut altered = signature;
            altered.0[bit / 8] ^= 1 << (bit % 8);
            assert!(one.verifying_key().verify(b"statement", &altered).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn key_file_reads_back_as_the_same_key_and_other_content_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("signing.key");
        let key = SigningKey::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(SigningKey::load(&path).unwrap().verifying_key(), key.verifying_key());
        files::write_secret(&path, b"not a key").unwrap();
        assert!(matches!(SigningKey::load(&path), Err(Error::KeyFile { .. })));
    }

    #[test]
    fn public_key_text_round_trips_and_debug_shows_no_private_half() {
        let key = SigningKey::generate().unwrap();
        let public = key.verifying_key();
        assert_eq!(public.to_string().parse::<VerifyingKey>().unwrap(), public);
        assert!("ed25519:00".parse::<VerifyingKey>().is_err());
        assert_eq!(format!("{key:?}"), format!("SigningKey(of {public})"));
    }

    #[test]
    fn known_signature_of_rfc_8032_verifies() {
        // RFC 8032 §7.1, test 1: the empty message.
        let key: VerifyingKey =
            "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".parse().unwrap();
        let hex = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
        let bytes: Vec<u8> = (0..64).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        assert!(key.verify(b"", &Signature(bytes.try_into().unwrap())).is_ok());
    }

    #[test]
    fn a_key_counts_only_with_a_certificate_of_the_pinned_ca_for_its_renderer() {
        let now = OffsetDateTime::from_unix_timestamp(1_790_000_000).expect("a time");
        let authority = |n| holdfast_model::ids::AuthorityId::new(uuid::Uuid::from_u128(n));
        let ca = crate::Ca::create(authority(1), now).expect("a CA");
        let key = SigningKey::generate().expect("a key").verifying_key();
        let pem = ca.certify_signing_key(&key, now).expect("it signs");
        let read = |pem: &str, ca: &crate::Ca, now| VerifyingKey::certified(pem, ca.certificate(), now).ok();
        assert_eq!(read(&pem, &ca, now), Some(key));
        assert_eq!(read(&pem, &ca, now + time::Duration::days(4_000)), None, "out of date");

        // A foreign CA of the same authority's name, the CA's own certificate, a service's and a host's: none proves a signing key.
        let impostor = crate::Ca::create(authority(1), now).expect("a CA");
        let forged = impostor.certify_signing_key(&key, now).expect("it signs");
        assert_eq!(read(&forged, &ca, now), None);
        assert_eq!(read(&ca.certificate_pem(), &ca, now), None);
        let name = rustls_pki_types::ServerName::try_from("localhost").expect("a name");
        let service = ca.issue_server(ServerRole::Renderer, &[name], now).expect("it signs");
        let leaf = service.chain_pem();
        let leaf = leaf.split_inclusive("-----END CERTIFICATE-----\n").next().expect("a leaf");
        assert_eq!(read(leaf, &ca, now), None, "a P-256 key of the renderer signs no desired state");
        assert_eq!(read("", &ca, now), None);
    }
}
