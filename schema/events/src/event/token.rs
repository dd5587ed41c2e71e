//! Payloads about tokens: what they allow, never what proves them.

use holdfast_model::ids::{ApiTokenId, EnrolTokenId};
use holdfast_model::intent::DeclaredPort;
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use ipnet::IpNet;
use time::OffsetDateTime;

use super::payloads;
use crate::codes::{NamespaceScope, Role};
use crate::text::Label128;

payloads! {
    /// An enrolment token was made.
    EnrolTokenCreated {
        /// Its identity, which proves nothing.
        token: EnrolTokenId,
        /// The namespace of its hosts.
        namespace: Name,
        /// The labels of its hosts.
        labels: Labels,
        /// The declared ports of its hosts.
        ports: Vec<DeclaredPort>,
        /// Where its hosts are.
        region: Option<Name>,
        /// Whose its hosts are.
        owner: Option<Label128>,
        /// The range that addresses of its hosts must be in; empty is any.
        address_scope: Vec<IpNet>,
        /// How often it may be used.
        uses_max: u32,
        /// Until when it may be used.
        #[serde(with = "time::serde::rfc3339")]
        expires_at: OffsetDateTime,
    }

    /// An enrolment token is no longer good.
    EnrolTokenRevoked {
        /// Which.
        token: EnrolTokenId,
    }

    /// An API token was made.
    ApiTokenCreated {
        /// Its identity, which proves nothing.
        token: ApiTokenId,
        /// What people call it.
        name: Label128,
        /// What its holder may do.
        role: Role,
        /// Where its holder may do it.
        namespaces: NamespaceScope,
        /// Until when it is good; for ever if absent.
        #[serde(with = "time::serde::rfc3339::option")]
        expires_at: Option<OffsetDateTime>,
    }

    /// An API token is no longer good.
    ApiTokenRevoked {
        /// Which.
        token: ApiTokenId,
    }
}
