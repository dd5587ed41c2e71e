//! How an agent verifies a gateway: by chain, name, dates and role, with the CA known or only pinned.
//!
//! - Chain, dates, name and usage are always webpki's verdict; what is added only refuses more.
//! - With a pin, the CA is taken from what the server presents, if its key is the pinned one; nothing is remembered between handshakes.

use crate::name::{self, CertificateName, ServerRole};
use crate::pin::CaPin;
use holdfast_model::ids::AuthorityId;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

/// Why a certificate of the right CA is still the wrong one.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// It names nobody.
    #[error("the server's certificate names no service")]
    Name(#[source] name::Error),
    /// It names somebody else.
    #[error("the server is {found}, not a {wanted}")]
    Other {
        /// The role that was wanted.
        wanted: ServerRole,
        /// The name that was presented.
        found: CertificateName,
    },
    /// It was given under another authority than its CA's.
    #[error("the server belongs to authority {found}, its CA to {wanted}")]
    Authority {
        /// The CA's authority.
        wanted: AuthorityId,
        /// The server's.
        found: AuthorityId,
    },
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

fn check_role(leaf: &CertificateDer<'_>, wanted: ServerRole) -> Result<AuthorityId, rustls::Error> {
    match CertificateName::of(leaf).map_err(|error| other(RoleError::Name(error)))? {
        CertificateName::Service(authority, role) if role == wanted => Ok(authority),
        found @ (CertificateName::Ca(_) | CertificateName::Host(..) | CertificateName::Service(..)) => {
            Err(other(RoleError::Other { wanted, found }))
        }
    }
}

/// Where the trust in a CA comes from.
#[derive(Debug)]
pub(super) enum Trust {
    /// The CA's certificate is here.
    Roots(Arc<WebPkiServerVerifier>),
    /// Only the hash of its key is here.
    Pin(CaPin),
}

/// Verifies that the server is a service of one role.
#[derive(Debug)]
pub(super) struct RoleVerifier {
    pub(super) trust: Trust,
    pub(super) role: ServerRole,
    pub(super) provider: Arc<CryptoProvider>,
}

impl RoleVerifier {
    fn verify_by_pin(
        &self,
        pin: &CaPin,
        leaf: &CertificateDer<'_>,
        presented: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = pin.find_ca(presented).map_err(other)?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(other)?;
        let verified = chain.verify_server_cert(leaf, presented, server_name, &[], now)?;
        let wanted = CertificateName::of(ca).map_err(|error| other(RoleError::Name(error)))?.authority();
        let found = check_role(leaf, self.role)?;
        if found == wanted { Ok(verified) } else { Err(other(RoleError::Authority { wanted, found })) }
    }
}

impl ServerCertVerifier for RoleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Pin(pin) => self.verify_by_pin(pin, end_entity, intermediates, server_name, now),
            Trust::Roots(roots) => {
                let verified = roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
                check_role(end_entity, self.role).map(|_| verified)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
