//! What a certificate says that its holder is.
//!
//! - The name is the ONE URI among the certificate's alternative names; none, or two, is no identity.
//! - A name has one spelling: what does not print back to the same bytes is refused.
//! - Nothing else of a certificate (subject, DNS names, addresses) ever decides who a host is.
//!
//! It does not verify signatures or dates: that is done by the TLS configurations before a name is asked for.

use holdfast_model::ids::{AuthorityId, HostId};
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

const SCHEME: &str = "holdfast://";

/// Why a certificate names nobody, or somebody else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no certificate.
    #[error("the bytes are no X.509 certificate")]
    Malformed,
    /// An identity is exactly one URI.
    #[error("a certificate names its holder by exactly one URI, this one has {found}")]
    UriCount {
        /// How many there are.
        found: usize,
    },
    /// The URI is none of ours, or is spelled differently.
    #[error("`{uri}` is no name that this CA gives, in its one spelling")]
    Foreign {
        /// The URI, cut to 128 characters.
        uri: String,
    },
    /// A name of ours, of another kind than the one wanted.
    #[error("the certificate belongs to {found}, not to {wanted}")]
    OtherKind {
        /// What was wanted.
        wanted: &'static str,
        /// What it names.
        found: CertificateName,
    },
    /// A name under another authority.
    #[error("the certificate was given under authority {found}, not {wanted}")]
    OtherAuthority {
        /// The authority that was wanted.
        wanted: AuthorityId,
        /// The authority in the name.
        found: AuthorityId,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Malformed => "certificate-malformed",
            Self::UriCount { .. } | Self::Foreign { .. } => "certificate-name",
            Self::OtherKind { .. } => "certificate-kind",
            Self::OtherAuthority { .. } => "authority-foreign",
        }
    }
}

/// A service or door with a server certificate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerRole {
    /// The audit service's HTTPS door.
    Audit,
    /// A gateway's door for agents.
    GatewayAgents,
    /// A gateway's door for operators.
    GatewayOperators,
    /// The NATS server.
    Nats,
    /// The Postgres server.
    Postgres,
    /// The renderer, for what it will serve.
    Renderer,
}

impl ServerRole {
    /// Every role, in order.
    pub const ALL: [Self; 6] =
        [Self::Audit, Self::GatewayAgents, Self::GatewayOperators, Self::Nats, Self::Postgres, Self::Renderer];

    /// The word in names and of files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::GatewayAgents => "gateway-agents",
            Self::GatewayOperators => "gateway-operators",
            Self::Nats => "nats",
            Self::Postgres => "postgres",
            Self::Renderer => "renderer",
        }
    }
}

impl fmt::Display for ServerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The holder of a certificate, as its URI says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// The CA of an authority.
    Ca(AuthorityId),
    /// An enrolled host.
    Host(AuthorityId, HostId),
    /// A service or door.
    Service(AuthorityId, ServerRole),
}

impl CertificateName {
    /// Reads the name of a certificate.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::UriCount`] or [`Error::Foreign`].
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| Error::Malformed)?;
        if !rest.is_empty() {
            return Err(Error::Malformed);
        }
        let names = parsed.subject_alternative_name().map_err(|_| Error::Malformed)?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
            .collect();
        match uris.as_slice() {
            [uri] => uri.parse(),
            others => Err(Error::UriCount { found: others.len() }),
        }
    }

    /// The authority under which the name was given.
    #[must_use]
    pub const fn authority(self) -> AuthorityId {
        match self {
            Self::Ca(authority) | Self::Host(authority, _) | Self::Service(authority, _) => authority,
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.authority().uuid().hyphenated())?;
        match self {
            Self::Ca(_) => f.write_str("/ca"),
            Self::Host(_, host) => write!(f, "/host/{}", host.uuid().hyphenated()),
            Self::Service(_, role) => write!(f, "/service/{role}"),
        }
    }
}

impl FromStr for CertificateName {
    type Err = Error;

    fn from_str(uri: &str) -> Result<Self, Error> {
        parse(uri)
            .filter(|name| name.to_string() == uri)
            .ok_or_else(|| Error::Foreign { uri: uri.chars().take(128).collect() })
    }
}

/// Reads every spelling that `Uuid` reads; the caller keeps the canonical one.
fn parse(uri: &str) -> Option<CertificateName> {
    let (authority, path) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let authority = AuthorityId::new(Uuid::try_parse(authority).ok()?);
    match path.split_once('/') {
        None if path == "ca" => Some(CertificateName::Ca(authority)),
        Some(("host", host)) => Some(CertificateName::Host(authority, HostId::new(Uuid::try_parse(host).ok()?))),
        Some(("service", word)) => {
            let role = ServerRole::ALL.into_iter().find(|role| role.as_str() == word)?;
            Some(CertificateName::Service(authority, role))
        }
        None | Some(_) => None,
    }
}

/// The role of a verified client certificate that [`crate::Ca::issue_client`] made: its common name and its one DNS name, which are equal.
///
/// # Errors
/// [`Error::Malformed`] if the certificate is none of that kind.
pub fn client_role_of(certificate: &CertificateDer<'_>) -> Result<String, Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Error::Malformed)?;
    let common = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let names = parsed.subject_alternative_name().map_err(|_| Error::Malformed)?.ok_or(Error::Malformed)?;
    match (common, names.value.general_names.as_slice()) {
        (Some(common), [GeneralName::DNSName(name)]) if common == *name => Ok(common.to_owned()),
        _ => Err(Error::Malformed),
    }
}

/// The host that a verified client certificate belongs to.
///
/// # Errors
/// Any [`Error`]: the certificate names nobody, no host, or a host of another authority.
pub fn host_id_of(certificate: &CertificateDer<'_>, authority: AuthorityId) -> Result<HostId, Error> {
    match CertificateName::of(certificate)? {
        CertificateName::Host(found, host) if found == authority => Ok(host),
        CertificateName::Host(found, _) => Err(Error::OtherAuthority { wanted: authority, found }),
        found @ (CertificateName::Ca(_) | CertificateName::Service(..)) => {
            Err(Error::OtherKind { wanted: "a host", found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "01930000-0000-7000-8000-00000000000a";
    const H: &str = "01930000-0000-7000-8000-0000000000bb";

    #[test]
    fn names_print_and_read_back() {
        let authority = AuthorityId::new(A.parse().unwrap());
        let mut names =
            vec![CertificateName::Ca(authority), CertificateName::Host(authority, HostId::new(H.parse().unwrap()))];
        names.extend(ServerRole::ALL.map(|role| CertificateName::Service(authority, role)));
        for name in names {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn only_the_canonical_spelling_is_a_name() {
        let upper = H.to_uppercase();
        let bare = H.replace('-', "");
        for uri in [
            format!("holdfast://{A}/host/{upper}"),
            format!("holdfast://{A}/host/{bare}"),
            format!("holdfast://{A}/host/{{{H}}}"),
            format!("holdfast://{A}/host/urn:uuid:{H}"),
            format!("holdfast://{A}/host/{H}/"),
            format!("holdfast://{A}/host/{H}?x"),
            format!("holdfast://{A}//host/{H}"),
            format!("HOLDFAST://{A}/host/{H}"),
            format!("holdfast://{A}/service/root"),
            format!("holdfast://{A}/ca/x"),
            format!("holdfast:///host/{H}"),
            format!("spiffe://{A}/host/{H}"),
            String::new(),
        ] {
            assert!(matches!(uri.parse::<CertificateName>(), Err(Error::Foreign { .. })), "{uri}");
        }
    }
}
