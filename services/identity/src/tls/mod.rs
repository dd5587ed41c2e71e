//! The rustls configurations of every door and every client.
//!
//! - TLS 1.3 and `ring`, named in each configuration and never taken from the process's default.
//! - No session tickets, no session storage, no early data, on either side.
//! - A host's agent trusts a *role*, not only a CA: another service's certificate is no gateway.
//!
//! Revocation is not checked here: leaves live 24 h and the database is asked at Hello.

pub mod client;
mod files;
pub mod server;
mod verify;

#[cfg(test)]
mod tests;

pub use client::{agent, enrolment, https, mutual, mutual_of};
pub(crate) use server::check_client;
pub use server::{Admission, HostPeer, ServerTls, agents_door, https_door, mutual_door};
pub use verify::RoleError;

use rustls::crypto::CryptoProvider;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The application protocol of sessions.
pub const ALPN_SESSION: &[u8] = b"holdfast/1";
/// The application protocol of enrolment, poll and the operators' API.
pub const ALPN_HTTP: &[u8] = b"http/1.1";
/// How long a peer may take for its half of a handshake; rustls itself has no limit.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a configuration could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// rustls does not take the certificate and key.
    #[error("the TLS configuration cannot be made")]
    Config(#[source] rustls::Error),
    /// rustls does not take the trust roots.
    #[error("the trust roots cannot be used")]
    Roots(#[source] rustls::server::VerifierBuilderError),
    /// A chain is no client's under these roots.
    #[error("a door would not let the certificate in")]
    Client(#[source] rustls::Error),
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Config(_) => "tls-setup",
            Self::Roots(_) => "trust-root",
            Self::Client(_) => "certificate-chain",
        }
    }
}

/// Makes `ring` the provider of every library that asks for the process's default; the first thing of every `main`.
/// A second call changes nothing.
pub fn install_crypto_provider() {
    // An error means that one is installed already, which is `ring` too: the tree has no other.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
}

/// Whether a peer simply went away: killed, rebooted, or cut off without TLS's good-bye. It is a disconnect and no fault.
#[must_use]
pub fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
