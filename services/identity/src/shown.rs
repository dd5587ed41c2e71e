//! What people want to know of a certificate: for which names it is, and from when to when.
//!
//! Nothing here is trusted or refused by it: that was decided by the handshake.

use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::credential::{Error, Validity};

/// A certificate, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCertificate {
    /// The names and addresses that it is for.
    pub names: Vec<String>,
    /// From when to when it counts.
    pub validity: Validity,
}

impl ShownCertificate {
    /// Reads one.
    ///
    /// # Errors
    /// [`Error::Certificate`] if the bytes are none.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Error::Certificate)?;
        let names = parsed.subject_alternative_name().map_err(|_| Error::Certificate)?;
        let name = |name: &GeneralName<'_>| {
            if let GeneralName::DNSName(name) = name {
                Some((*name).to_owned())
            } else if let GeneralName::IPAddress(bytes) = name {
                address(bytes)
            } else {
                None
            }
        };
        Ok(Self {
            names: names.iter().flat_map(|extension| &extension.value.general_names).filter_map(name).collect(),
            validity: Validity {
                not_before: parsed.validity().not_before.to_datetime(),
                not_after: parsed.validity().not_after.to_datetime(),
            },
        })
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ca, ServerRole};
    use holdfast_model::ids::AuthorityId;
    use rustls_pki_types::ServerName;
    use time::OffsetDateTime;
    use uuid::Uuid;

    #[test]
    fn a_certificate_is_shown_with_its_names_and_dates() {
        let now = OffsetDateTime::now_utc();
        let ca = Ca::create(AuthorityId::new(Uuid::from_u128(1)), now).expect("a CA");
        let names = ["localhost", "127.0.0.1", "fd00::1"].map(|name| ServerName::try_from(name).expect("a name"));
        let server = ca.issue_server(ServerRole::GatewayOperators, &names, now).expect("issues");
        let shown = ShownCertificate::of(server.leaf()).expect("reads");
        for name in ["localhost", "127.0.0.1", "fd00::1"] {
            assert!(shown.names.iter().any(|one| one == name), "{shown:?}");
        }
        assert!(shown.validity.not_before <= now && shown.validity.not_after > now);
        assert!(matches!(ShownCertificate::of(&CertificateDer::from(vec![1, 2])), Err(Error::Certificate)));
    }
}
