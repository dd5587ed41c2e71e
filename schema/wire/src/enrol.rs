//! Enrolment and renewal: JSON over HTTPS on the agents' door.
//!
//! - `POST` [`ENROL_PATH`] is the only call without a client certificate; `POST` [`RENEW_PATH`] needs the one in use.
//! - A request contributes a public key, a name and what the host says of itself; labels, region, owner and scope come from the token.
//! - A refusal is a [`Problem`] (RFC 9457) with a stable `code`.

use std::fmt;
use std::net::IpAddr;

use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::AuthorityEpoch;
use serde::{Deserialize, Serialize};

/// Where a host enrols.
pub const ENROL_PATH: &str = "/agent/v1/enrol";
/// Where an enrolled host gets its next certificate.
pub const RENEW_PATH: &str = "/agent/v1/renew";
/// The largest body of either call: a request of 16 KiB in base64, 1,024 addresses and some texts.
pub const ENROL_BYTES_MAX: usize = 96 * 1024;

/// The text of an enrolment token, on its way.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenText(pub String);

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(…)")
    }
}

/// A host asks to be enrolled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolRequest {
    /// What allows it.
    pub token: TokenText,
    /// The name that it wants in its token's namespace.
    pub name: Name,
    /// A PKCS#10 request, DER in standard base64: only its key counts.
    pub csr: String,
    /// The key that its outcomes will be signed with, as `ed25519:` and 64 hexadecimal characters.
    pub outcome_key: String,
    /// What it calls itself.
    pub hostname: String,
    /// Its kernel, as it names itself.
    pub kernel: String,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
}

/// A host is enrolled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EnrolResponse {
    /// Who it is from now on.
    pub host_id: HostId,
    /// The authority to pin.
    pub authority_id: AuthorityId,
    /// The life of it to begin with.
    pub authority_epoch: AuthorityEpoch,
    /// Its certificate and those above it, PEM.
    pub certificate_chain: String,
    /// The CA's certificate of the key that signs desired states, PEM: the host verifies it under the CA that it pins.
    pub renderer_certificate: String,
    /// Where to dial, as `host:port`.
    pub gateways: Vec<String>,
}

/// An enrolled host asks for its next certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// A PKCS#10 request, DER in standard base64: only its key counts.
    pub csr: String,
}

/// The next certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RenewResponse {
    /// The certificate and those above it, PEM.
    pub certificate_chain: String,
}

/// Why a call was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem, as a URN.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// A stable word for programs.
    pub code: String,
    /// What to do about it.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_token_is_not_shown() {
        assert!(!format!("{:?}", TokenText("hfe_secret".to_owned())).contains("secret"));
    }
}
