//! Client configurations: agents, services, and those who only verify.
//!
//! - None of them resumes a session, so a server sees the whole certificate exchange every time.
//! - Who verifies a gateway's door for agents also demands that role.

use super::files::Files;
use super::verify::{RoleVerifier, Trust};
use super::{ALPN_HTTP, ALPN_SESSION, Error, provider};
use crate::credential::{Credential, TrustRoots};
use crate::name::ServerRole;
use crate::pin::CaPin;
use rustls::ClientConfig;
use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::{ConfigBuilder, version::TLS13};
use std::path::Path;
use std::sync::Arc;

/// What an enrolled agent speaks at the agents' door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentProtocol {
    /// A session, `holdfast/1`.
    Session,
    /// Poll, `http/1.1`.
    Http,
}

/// An enrolled agent: its certificate, its stored CA, and only gateways' doors for agents on the other side.
///
/// # Errors
/// [`Error`] when rustls does not take roots or credential.
pub fn agent(credential: &Credential, roots: &TrustRoots, protocol: AgentProtocol) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.store(), Arc::clone(&provider))
        .build()
        .map_err(Error::Roots)?;
    let config = by_role(Trust::Roots(verifier))?
        .with_client_auth_cert(credential.chain().to_vec(), credential.key())
        .map_err(Error::Config)?;
    Ok(finish(
        config,
        match protocol {
            AgentProtocol::Session => Some(ALPN_SESSION),
            AgentProtocol::Http => Some(ALPN_HTTP),
        },
    ))
}

/// A host that is about to enrol: no certificate yet, and of the CA only its pin. The CA's certificate is then found by
/// [`CaPin::find_ca`] among those that the server presented.
///
/// # Errors
/// [`Error::Config`] when rustls lacks TLS 1.3, which it does not.
pub fn enrolment(pin: CaPin) -> Result<ClientConfig, Error> {
    Ok(finish(by_role(Trust::Pin(pin))?.with_no_client_auth(), Some(ALPN_HTTP)))
}

/// A service towards NATS or Postgres: its certificate, the CA, the server's name; no application protocol.
///
/// # Errors
/// [`Error::Config`] when rustls does not take the credential.
pub fn mutual(credential: &Credential, roots: &TrustRoots) -> Result<ClientConfig, Error> {
    let config = builder()?
        .with_root_certificates(roots.store())
        .with_client_auth_cert(credential.chain().to_vec(), credential.key())
        .map_err(Error::Config)?;
    Ok(finish(config, None))
}

/// The same, its certificate read from `<name>.pem` and `<name>.key.pem` of a folder for each handshake anew: one that was put in their place counts from
/// the next connection on. While the files cannot be used, the last that could be is shown, the given one at first.
///
/// # Errors
/// [`Error::Config`] when rustls does not take the credential.
pub fn mutual_of(
    credential: &Credential,
    folder: &Path,
    name: &str,
    roots: &TrustRoots,
) -> Result<ClientConfig, Error> {
    let files = Files::new(credential, folder, name)?;
    let config = builder()?.with_root_certificates(roots.store()).with_client_cert_resolver(Arc::new(files));
    Ok(finish(config, None))
}

/// An operator's client: verifies the server by name under one CA file and shows a token, not a certificate.
///
/// # Errors
/// [`Error::Config`] when rustls lacks TLS 1.3, which it does not.
pub fn https(roots: &TrustRoots) -> Result<ClientConfig, Error> {
    Ok(finish(builder()?.with_root_certificates(roots.store()).with_no_client_auth(), Some(ALPN_HTTP)))
}

fn builder() -> Result<ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(Error::Config)
}

fn by_role(trust: Trust) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let verifier = RoleVerifier { trust, role: ServerRole::GatewayAgents, provider: provider() };
    Ok(builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

fn finish(mut config: ClientConfig, protocol: Option<&[u8]>) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    config
}
