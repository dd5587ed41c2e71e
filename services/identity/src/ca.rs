//! Our own CA: one P-256 root per authority, which signs every leaf itself.
//!
//! - The root's certificate names its authority, so whoever has the CA file knows whose it is.
//! - Every field of a leaf is set here; a host's request adds its public key and nothing else.
//! - A serial is 16 random bytes: the same key signed twice gives two certificates that can be told apart.
//! - No leaf outlives the root, and none is issued by a root that is over.
//!
//! It keeps no list of what it issued and revokes nothing: the database does.

use crate::credential::{self, BACKDATE, Credential, TrustRoots, Validity};
use crate::files;
use crate::name::{self, CertificateName, ServerRole};
use crate::pin::{self, CaPin};
use crate::request::{KeyRequest, LeafKey};
use crate::signing::VerifyingKey;
use holdfast_model::ids::{AuthorityId, HostId};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo, string::Ia5String,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use std::fmt;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The life of the root.
pub const ROOT_LIFE: Duration = Duration::days(3_650);
/// The life of a host's leaf; it is renewed after 14 to 16 h.
pub const HOST_LIFE: Duration = Duration::hours(24);
/// The life of the certificates of services, NATS users and Postgres roles. They are issued by an operator's act
/// (`holdfast-renderer init`), which is why they live a year and not a day.
pub const SERVICE_LIFE: Duration = Duration::days(365);

/// The name of the CA's files: `ca.pem` and `ca.key.pem`.
pub const FILE_NAME: &str = "ca";

/// Why the CA could not be made, loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file failed.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The CA's key or certificate is unusable.
    #[error("the CA cannot be used")]
    Credential(#[from] credential::Error),
    /// The certificate is no CA's own, or is broken.
    #[error("the certificate is not that of a CA")]
    NotCa(#[source] pin::Error),
    /// The certificate names no authority.
    #[error("the CA's certificate names no authority of Holdfast")]
    Name(#[source] name::Error),
    /// There is a CA already; another one would leave every enrolled host without trust.
    #[error("{} exists already", path.display())]
    Exists {
        /// Its certificate.
        path: PathBuf,
    },
    /// A name is not one that a certificate can carry.
    #[error("`{name}` cannot stand in a certificate: 1 to 63 characters of a-z, 0-9, `-` and `_`")]
    Subject {
        /// The offending name.
        name: String,
    },
    /// A server certificate without a single DNS name or address can be verified by nobody.
    #[error("the certificate of {role} has no DNS name and no address")]
    Nameless {
        /// The role.
        role: ServerRole,
    },
    /// The root is over, or has not begun.
    #[error("the CA does not count at {now}: it runs from {} to {}", validity.not_before, validity.not_after)]
    Lapsed {
        /// The moment of the request.
        now: OffsetDateTime,
        /// The CA's dates.
        validity: Validity,
    },
    /// Signing failed.
    #[error("cannot sign the certificate")]
    Sign(#[source] rcgen::Error),
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    Randomness,
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::File(error) => error.rule(),
            Self::Credential(error) => error.rule(),
            Self::NotCa(_) => "not-a-ca",
            Self::Name(error) => error.rule(),
            Self::Exists { .. } => "ca-exists",
            Self::Subject { .. } | Self::Nameless { .. } => "server-name",
            Self::Lapsed { .. } => "ca-lapsed",
            Self::Sign(_) => "signing-failed",
            Self::Randomness => "randomness",
        }
    }
}

/// A host's certificate, as it goes into the database and to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLeaf {
    /// The leaf and the CA, in PEM.
    pub chain_pem: String,
    /// The leaf alone.
    pub certificate: CertificateDer<'static>,
    /// Its serial, big-endian.
    pub serial: Vec<u8>,
    /// Its dates.
    pub validity: Validity,
}

/// The CA of one authority, able to sign.
pub struct Ca {
    authority: AuthorityId,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    validity: Validity,
    pin: CaPin,
}

impl Ca {
    /// Makes the root of a new authority.
    ///
    /// # Errors
    /// [`Error::Credential`], [`Error::Randomness`] or [`Error::Sign`] when the system refuses.
    pub fn create(authority: AuthorityId, now: OffsetDateTime) -> Result<Self, Error> {
        let pair = LeafKey::generate()?.into_pair();
        let validity = Validity { not_before: now - BACKDATE, not_after: now + ROOT_LIFE };
        let common_name = format!("Holdfast CA {}", authority.uuid().hyphenated());
        let mut params = params(&common_name, vec![uri(CertificateName::Ca(authority))?], validity)?;
        // Path length 0: it signs leaves, and no CA below it.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&pair).map_err(Error::Sign)?.der().clone();
        Self::new(certificate, pair)
    }

    fn new(certificate: CertificateDer<'static>, pair: KeyPair) -> Result<Self, Error> {
        let pin = CaPin::of(&certificate).map_err(Error::NotCa)?;
        pin.find_ca(std::slice::from_ref(&certificate)).map_err(Error::NotCa)?;
        let authority = match CertificateName::of(&certificate).map_err(Error::Name)? {
            CertificateName::Ca(authority) => authority,
            found @ (CertificateName::Host(..) | CertificateName::Service(..)) => {
                return Err(Error::Name(name::Error::OtherKind { wanted: "a CA", found }));
            }
        };
        let own = Credential::new(vec![certificate.clone()], PrivatePkcs8KeyDer::from(pair.serialize_der()).into())?;
        let validity = own.validity();
        let issuer = Issuer::from_ca_cert_der(&certificate, pair).map_err(Error::Sign)?;
        Ok(Self { authority, issuer, certificate, validity, pin })
    }

    /// Reads the CA's certificate and key in PEM.
    ///
    /// # Errors
    /// When either is broken, they do not fit, or the certificate is no CA of an authority.
    pub fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, Error> {
        let mut list = credential::certificates(certificate_pem)?;
        let certificate = list.swap_remove(0);
        let text =
            std::str::from_utf8(key_pem).map_err(|_| credential::Error::Key(rcgen::Error::CouldNotParseKeyPair))?;
        Self::new(certificate, LeafKey::from_pem(text)?.into_pair())
    }

    /// Reads `ca.pem` and `ca.key.pem`.
    ///
    /// # Errors
    /// As [`Ca::from_pem`], and when a file cannot be read or the key is open to others.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let (certificate, key) = credential::paths(folder, FILE_NAME);
        Self::from_pem(&files::read(&certificate)?, &files::read_secret(&key)?)
    }

    /// Writes `ca.key.pem` (0600) and then `ca.pem`; a key without a certificate signed nothing, so it is replaced.
    ///
    /// # Errors
    /// [`Error::Exists`] when there is a CA already, [`Error::File`] when a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        let (certificate, key) = credential::paths(folder, FILE_NAME);
        if certificate.exists() {
            return Err(Error::Exists { path: certificate });
        }
        let key_pem = zeroize::Zeroizing::new(self.issuer.key().serialize_pem());
        files::write_secret(&key, key_pem.as_bytes())?;
        files::write_public(&certificate, self.certificate_pem().as_bytes())?;
        Ok(())
    }

    /// The authority that the CA speaks for.
    #[must_use]
    pub const fn authority(&self) -> AuthorityId {
        self.authority
    }

    /// What a host is given out of band to know this CA.
    #[must_use]
    pub const fn pin(&self) -> CaPin {
        self.pin
    }

    /// The dates of the root.
    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// The root's certificate.
    #[must_use]
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The root's certificate in PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        credential::pem_text("CERTIFICATE", &self.certificate)
    }

    /// The trust in this CA and no other.
    ///
    /// # Errors
    /// [`Error::Credential`] when rustls takes the certificate for no root.
    pub fn roots(&self) -> Result<TrustRoots, Error> {
        Ok(TrustRoots::new(vec![self.certificate.clone()])?)
    }

    /// Issues the certificate of a service or door, with the DNS names and addresses under which it is reached.
    ///
    /// # Errors
    /// [`Error::Nameless`] without any, [`Error::Lapsed`] outside the root's dates, else when signing fails.
    pub fn issue_server(
        &self,
        role: ServerRole,
        names: &[ServerName<'static>],
        now: OffsetDateTime,
    ) -> Result<Credential, Error> {
        if names.is_empty() {
            return Err(Error::Nameless { role });
        }
        let mut alternative_names = vec![uri(CertificateName::Service(self.authority, role))?];
        for name in names {
            alternative_names.push(alternative_name(name)?);
        }
        let leaf = Leaf {
            common_name: role.as_str(),
            alternative_names,
            usage: ExtendedKeyUsagePurpose::ServerAuth,
            life: SERVICE_LIFE,
        };
        self.issue_with_key(leaf, now)
    }

    /// Issues the client certificate of a NATS user or a Postgres role: common name (Postgres) and DNS name (NATS) are the role.
    ///
    /// # Errors
    /// [`Error::Subject`] for a name that cannot be one, [`Error::Lapsed`] outside the root's dates, else when signing fails.
    pub fn issue_client(&self, role: &str, now: OffsetDateTime) -> Result<Credential, Error> {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if role.is_empty() || role.len() > 63 || !role.bytes().all(fits) {
            return Err(Error::Subject { name: role.chars().take(64).collect() });
        }
        let leaf = Leaf {
            common_name: role,
            alternative_names: vec![SanType::DnsName(ia5(role)?)],
            usage: ExtendedKeyUsagePurpose::ClientAuth,
            life: SERVICE_LIFE,
        };
        self.issue_with_key(leaf, now)
    }

    /// Issues a host's leaf: 24 h, client only, one URI, the key of the request.
    ///
    /// # Errors
    /// [`Error::Lapsed`] outside the root's dates, else when signing fails.
    pub fn issue_host(&self, host: HostId, request: &KeyRequest, now: OffsetDateTime) -> Result<HostLeaf, Error> {
        let leaf = Leaf {
            common_name: &host.to_string(),
            alternative_names: vec![uri(CertificateName::Host(self.authority, host))?],
            usage: ExtendedKeyUsagePurpose::ClientAuth,
            life: HOST_LIFE,
        };
        let certificate = self.sign(leaf, request.key(), now)?;
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(|_| Error::Sign(rcgen::Error::CouldNotParseCertificate))?;
        let serial = parsed.raw_serial().to_vec();
        let validity = Validity {
            not_before: parsed.validity().not_before.to_datetime(),
            not_after: parsed.validity().not_after.to_datetime(),
        };
        let chain_pem = credential::pem_text("CERTIFICATE", &certificate) + &self.certificate_pem();
        Ok(HostLeaf { chain_pem, certificate, serial, validity })
    }

    /// Certifies the key that signs desired states, as long as the CA itself: a host that knows the CA needs nobody's word for the key.
    ///
    /// # Errors
    /// [`Error::Lapsed`] outside the root's dates, else when signing fails.
    pub fn certify_signing_key(&self, key: &VerifyingKey, now: OffsetDateTime) -> Result<String, Error> {
        let leaf = Leaf {
            common_name: ServerRole::Renderer.as_str(),
            alternative_names: vec![uri(CertificateName::Service(self.authority, ServerRole::Renderer))?],
            // Not a TLS usage: it proves a key and opens no connection.
            usage: ExtendedKeyUsagePurpose::CodeSigning,
            life: ROOT_LIFE,
        };
        let info = SubjectPublicKeyInfo::from_der(&key.public_key_info()).map_err(Error::Sign)?;
        Ok(credential::pem_text("CERTIFICATE", &self.sign(leaf, &info, now)?))
    }

    fn issue_with_key(&self, leaf: Leaf<'_>, now: OffsetDateTime) -> Result<Credential, Error> {
        let key = LeafKey::generate()?;
        let certificate = self.sign(leaf, key.pair(), now)?;
        let chain = vec![certificate, self.certificate.clone()];
        Ok(Credential::new(chain, PrivatePkcs8KeyDer::from(key.pair().serialize_der()).into())?)
    }

    fn sign(
        &self,
        leaf: Leaf<'_>,
        key: &impl PublicKeyData,
        now: OffsetDateTime,
    ) -> Result<CertificateDer<'static>, Error> {
        if now < self.validity.not_before || now >= self.validity.not_after {
            return Err(Error::Lapsed { now, validity: self.validity });
        }
        let validity =
            Validity { not_before: now - BACKDATE, not_after: (now + leaf.life).min(self.validity.not_after) };
        let mut params = params(leaf.common_name, leaf.alternative_names, validity)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![leaf.usage];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer).map_err(Error::Sign)?.der().clone())
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("authority", &self.authority).field("pin", &self.pin).finish_non_exhaustive()
    }
}

struct Leaf<'a> {
    common_name: &'a str,
    alternative_names: Vec<SanType>,
    usage: ExtendedKeyUsagePurpose,
    life: Duration,
}

fn params(common_name: &str, alternative_names: Vec<SanType>, validity: Validity) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = alternative_names;
    params.not_before = validity.not_before;
    params.not_after = validity.not_after;
    params.serial_number = Some(serial()?);
    Ok(params)
}

fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Randomness)?;
    // Positive and never shortened: the first byte is between 0x40 and 0x7f.
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn uri(name: CertificateName) -> Result<SanType, Error> {
    Ok(SanType::URI(ia5(&name.to_string())?))
}

fn ia5(text: &str) -> Result<Ia5String, Error> {
    Ia5String::try_from(text).map_err(Error::Sign)
}

fn alternative_name(name: &ServerName<'_>) -> Result<SanType, Error> {
    match name {
        ServerName::DnsName(dns) => Ok(SanType::DnsName(ia5(dns.as_ref())?)),
        ServerName::IpAddress(address) => Ok(SanType::IpAddress((*address).into())),
        // The type is open to new kinds; none of them can stand in our certificates.
        other => Err(Error::Subject { name: other.to_str().into_owned() }),
    }
}

#[cfg(test)]
mod tests;
