//! The request for a certificate: a host's half (its key) and the issuer's half (what is taken from it).
//!
//! - A request contributes a public key and the proof that its sender holds the private one. Subject, names, usages, CA
//!   flags and attributes in it are not read at all.
//! - Only P-256 and Ed25519 keys are taken.
//!
//! Whether the sender may have a certificate is not asked here.

use crate::credential::{self, Credential};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SubjectPublicKeyInfo};
use rustls_pki_types::PrivatePkcs8KeyDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo as ParsedKey;
use zeroize::Zeroizing;

/// The largest request that is looked at; one of ours has about 250 bytes, a real one with many names about 2,000.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Over [`REQUEST_BYTES_MAX`].
    #[error("the request has {bytes} bytes, at most {REQUEST_BYTES_MAX} are taken")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not one DER-encoded PKCS#10 request.
    #[error("the bytes are no PKCS#10 request")]
    Malformed,
    /// A key of a kind that is not on the list.
    #[error("the key is neither P-256 nor Ed25519")]
    KeyKind,
    /// Its sender does not hold the private key.
    #[error("the request is not signed by its own key")]
    Unproven,
}

/// The key of a request that was checked: all that a request can contribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    key: SubjectPublicKeyInfo,
}

impl KeyRequest {
    /// Checks a DER-encoded PKCS#10 request and keeps its key.
    ///
    /// # Errors
    /// Each [`Error`] in the order of its variants.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        if der.len() > REQUEST_BYTES_MAX {
            return Err(Error::TooLarge { bytes: der.len() });
        }
        let Ok(([], request)) = X509CertificationRequest::from_der(der) else { return Err(Error::Malformed) };
        let key = &request.certification_request_info.subject_pki;
        if !is_allowed(key) {
            return Err(Error::KeyKind);
        }
        request.verify_signature().map_err(|_| Error::Unproven)?;
        SubjectPublicKeyInfo::from_der(key.raw).map(|key| Self { key }).map_err(|_| Error::KeyKind)
    }

    /// The public key info, as it will stand in the certificate.
    #[must_use]
    pub fn public_key_info(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    pub(crate) fn key(&self) -> &SubjectPublicKeyInfo {
        &self.key
    }
}

fn is_allowed(key: &ParsedKey<'_>) -> bool {
    let bytes: &[u8] = &key.subject_public_key.data;
    let curve = key.algorithm.parameters.as_ref();
    if key.algorithm.algorithm == OID_SIG_ED25519 {
        // RFC 8410: no parameters, 32 bytes.
        curve.is_none() && bytes.len() == 32
    } else if key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        // An uncompressed point of P-256; ring checks that it is on the curve when it verifies the request.
        curve.and_then(|any| any.as_oid().ok()).is_some_and(|oid| oid == OID_EC_P256)
            && bytes.len() == 65
            && bytes.first() == Some(&4)
    } else {
        false
    }
}

/// The private key of a leaf, made where it is used and never sent.
pub struct LeafKey {
    pair: KeyPair,
}

impl LeafKey {
    /// Makes a P-256 key from the system's randomness.
    ///
    /// # Errors
    /// [`credential::Error::Generate`] when the system gives no randomness.
    pub fn generate() -> Result<Self, credential::Error> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(credential::Error::Generate)?;
        Ok(Self { pair })
    }

    /// Reads a PKCS#8 key that [`LeafKey::to_pem`] wrote.
    ///
    /// # Errors
    /// [`credential::Error::Key`] for anything else.
    pub fn from_pem(pem: &str) -> Result<Self, credential::Error> {
        KeyPair::from_pem(pem).map(|pair| Self { pair }).map_err(credential::Error::Key)
    }

    /// The PKCS#8 text, for a file of mode 0600.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.pair.serialize_pem())
    }

    /// The DER-encoded request for a certificate on this key; it asks for nothing and names nobody.
    ///
    /// # Errors
    /// [`credential::Error::Generate`] when signing fails.
    pub fn request(&self) -> Result<Vec<u8>, credential::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let request = params.serialize_request(&self.pair).map_err(credential::Error::Generate)?;
        Ok(request.der().to_vec())
    }

    /// Joins the key with the chain that was issued for it.
    ///
    /// # Errors
    /// [`credential::Error::Certificate`] when the text holds no certificate, [`credential::Error::Mismatch`] when it is for another key.
    pub fn credential(&self, chain_pem: &[u8]) -> Result<Credential, credential::Error> {
        let chain = credential::certificates(chain_pem)?;
        Credential::new(chain, PrivatePkcs8KeyDer::from(self.pair.serialize_der()).into())
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        &self.pair
    }

    pub(crate) fn into_pair(self) -> KeyPair {
        self.pair
    }
}

impl std::fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeafKey(…)")
    }
}
