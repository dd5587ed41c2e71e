//! Keys, certificates and rustls configurations: who a process or a host is, and how the other side proves it.
//!
//! - One CA of our own per authority; what it issues says in ONE URI what it names (see [`name`]), and nothing else of a request decides that.
//! - No trust on first use: the first connection of a host pins the CA's public key, given out of band ([`pin`]).
//! - TLS 1.3 only, `ring` only, and no resumption anywhere: a resumed handshake skips the client's certificate.
//! - Private keys and tokens are files of mode 0600 or zeroized memory, and never show in `Debug`.
//!
//! It holds no listener and starts no task; revocation, enrolment and renewal are decided by those who call it. Sealing keys for credentials are not here yet.

pub mod ca;
pub mod credential;
pub mod files;
pub mod https;
pub mod name;
pub mod pin;
pub mod request;
pub mod shown;
pub mod signing;
pub mod tls;
pub mod token;

pub use ca::Ca;
pub use credential::{Credential, TrustRoots, Validity};
pub use name::{CertificateName, ServerRole, client_role_of, host_id_of};
pub use pin::CaPin;
pub use request::{KeyRequest, LeafKey};
pub use shown::ShownCertificate;
pub use signing::{Signature, SigningKey, VerifyingKey};
pub use token::{Token, TokenHash, TokenKind};
