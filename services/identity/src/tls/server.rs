//! Server configurations, the accepting of a connection within a time limit, and who came in by the agents' door.
//!
//! - On the agents' door a client certificate is optional in TLS, because enrolment has none; [`Admission::of`] then demands
//!   one for every session. A caller that skips it has nobody's identity.
//! - A renewed certificate is a new configuration, swapped in for the next handshake; live connections stay.

use super::{ALPN_HTTP, ALPN_SESSION, Error, HANDSHAKE_TIMEOUT, provider};
use crate::credential::{Credential, TrustRoots, Validity};
use crate::name::{self, host_id_of};
use arc_swap::ArcSwap;
use holdfast_model::ids::{AuthorityId, HostId};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ConfigBuilder, HandshakeKind, ServerConfig, ServerConnection};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The agents' door: sessions and HTTP on one port, client certificates of `roots` or none.
///
/// # Errors
/// [`Error`] when rustls does not take roots or credential.
pub fn agents_door(credential: &Credential, roots: &TrustRoots) -> Result<ServerConfig, Error> {
    let verifier = agents_verifier(roots)?;
    let config = builder()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credential.chain().to_vec(), credential.key())
        .map_err(Error::Config)?;
    Ok(finish(config, &[ALPN_SESSION, ALPN_HTTP]))
}

fn agents_verifier(roots: &TrustRoots) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    WebPkiClientVerifier::builder_with_provider(roots.store(), provider())
        .allow_unauthenticated()
        .build()
        .map_err(Error::Roots)
}

/// Whether [`agents_door`] takes this chain at that moment, as far as TLS goes.
pub(crate) fn check_client(chain: &[CertificateDer<'_>], roots: &TrustRoots, at: OffsetDateTime) -> Result<(), Error> {
    let none = || Error::Client(rustls::Error::NoCertificatesPresented);
    let (leaf, rest) = chain.split_first().ok_or_else(none)?;
    let since_1970 = Duration::from_secs(u64::try_from(at.unix_timestamp()).unwrap_or(0));
    let verified = agents_verifier(roots)?.verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(since_1970));
    verified.map(|_| ()).map_err(Error::Client)
}

/// A door of HTTPS alone: operators and audit. Callers show a token, so no certificate is asked for.
///
/// # Errors
/// [`Error::Config`] when rustls does not take the credential.
pub fn https_door(credential: &Credential) -> Result<ServerConfig, Error> {
    let config = builder()?
        .with_no_client_auth()
        .with_single_cert(credential.chain().to_vec(), credential.key())
        .map_err(Error::Config)?;
    Ok(finish(config, &[ALPN_HTTP]))
}

/// A door of HTTPS for our own processes and people with certificates: one of `roots` is demanded. What its name may do is the caller's to decide.
///
/// # Errors
/// [`Error`] when rustls does not take roots or credential.
pub fn mutual_door(credential: &Credential, roots: &TrustRoots) -> Result<ServerConfig, Error> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.store(), provider()).build().map_err(Error::Roots)?;
    let config = builder()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credential.chain().to_vec(), credential.key())
        .map_err(Error::Config)?;
    Ok(finish(config, &[ALPN_HTTP]))
}

fn builder() -> Result<ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(Error::Config)
}

fn finish(mut config: ServerConfig, protocols: &[&[u8]]) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// Why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The peer did not finish its handshake in time.
    #[error("the TLS handshake took longer than {} s", limit.as_secs())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The handshake failed: the peer's fault, or it went away.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
}

/// A door's configuration, exchangeable while the door is open.
#[derive(Debug)]
pub struct ServerTls {
    config: ArcSwap<ServerConfig>,
    limit: Duration,
}

impl ServerTls {
    /// Opens with one configuration and the usual time limit.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config: ArcSwap::from_pointee(config), limit: HANDSHAKE_TIMEOUT }
    }

    /// Gives a peer another time for its handshake.
    #[must_use]
    pub const fn with_handshake_timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Every handshake from now on uses `config`.
    pub fn replace(&self, config: ServerConfig) {
        self.config.store(Arc::new(config));
    }

    /// The configuration of the next handshake.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// [`AcceptError`] when the peer is too slow, is refused, or goes away.
    pub async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match tokio::time::timeout(self.limit, TlsAcceptor::from(self.current()).accept(stream)).await {
            Ok(accepted) => accepted.map_err(AcceptError::Handshake),
            Err(_elapsed) => Err(AcceptError::Timeout { limit: self.limit }),
        }
    }
}

/// Why a connection that TLS accepted is still turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The peer did not say what it speaks.
    #[error("the peer chose no application protocol")]
    NoProtocol,
    /// A session needs a certificate.
    #[error("a session needs a client certificate")]
    NoCertificate,
    /// The handshake skipped the certificate.
    #[error("the handshake was a resumption")]
    Resumed,
    /// The certificate belongs to no host of this authority.
    #[error("the client certificate belongs to no host")]
    Name(#[from] name::Error),
}

/// A host, as its certificate proved it in this handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPeer {
    /// The host.
    pub host: HostId,
    /// From when to when its leaf counts: the session ends at `not_after`.
    pub validity: Validity,
    /// The serial of its leaf, big-endian, for the revocation list.
    pub serial: Vec<u8>,
    /// The leaf itself.
    pub certificate: CertificateDer<'static>,
}

/// What came in by the agents' door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// A host that opens a session.
    Session(HostPeer),
    /// An HTTP client that proved to be a host (poll).
    HttpHost(HostPeer),
    /// An HTTP client without a certificate: it may enrol and nothing else.
    HttpAnonymous,
}

impl Admission {
    /// Decides by what the handshake proved.
    ///
    /// # Errors
    /// [`AdmissionError`] when it proved too little for what the peer wants to speak.
    pub fn of(connection: &ServerConnection, authority: AuthorityId) -> Result<Self, AdmissionError> {
        // Resumption is off on this side, so this cannot happen; if it ever does, nobody's identity was checked.
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            return Err(AdmissionError::Resumed);
        }
        let protocol = connection.alpn_protocol().ok_or(AdmissionError::NoProtocol)?;
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        match (protocol == ALPN_SESSION, leaf) {
            (true, Some(leaf)) => Ok(Self::Session(host_peer(leaf, authority)?)),
            (true, None) => Err(AdmissionError::NoCertificate),
            (false, Some(leaf)) => Ok(Self::HttpHost(host_peer(leaf, authority)?)),
            (false, None) => Ok(Self::HttpAnonymous),
        }
    }
}

fn host_peer(leaf: &CertificateDer<'_>, authority: AuthorityId) -> Result<HostPeer, AdmissionError> {
    let host = host_id_of(leaf, authority)?;
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| name::Error::Malformed)?;
    let validity = Validity {
        not_before: parsed.validity().not_before.to_datetime(),
        not_after: parsed.validity().not_after.to_datetime(),
    };
    Ok(HostPeer { host, validity, serial: parsed.raw_serial().to_vec(), certificate: leaf.clone().into_owned() })
}
