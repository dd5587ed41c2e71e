//! Tokens of both kinds. What proves a token is in one answer only: the one that made it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::PortView;

/// The most hosts that one enrolment token may enrol: more than the largest fleet this version is meant for.
pub const USES_MAX: u32 = 100_000;
/// The longest life of an enrolment token, in seconds: 30 days.
pub const ENROL_TTL_S_MAX: u64 = 30 * 24 * 3600;
/// The life of an enrolment token that says nothing else, in seconds: one hour.
pub const ENROL_TTL_S_DEFAULT: u64 = 3600;

/// What a new enrolment token is to allow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEnrolToken {
    /// The namespace of its hosts; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The labels of its hosts.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The declared ports of its hosts.
    #[serde(default)]
    pub ports: Vec<PortView>,
    /// Where its hosts are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whose its hosts are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Prefixes in which the addresses of its hosts must be; empty is any.
    #[serde(default)]
    pub address_scope: Vec<String>,
    /// How many hosts it may enrol; one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// How long it is good, in seconds; an hour if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// An enrolment token, without what proves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnrolTokenView {
    /// Its identity.
    pub id: String,
    /// The namespace of its hosts.
    pub namespace: String,
    /// The labels of its hosts.
    pub labels: BTreeMap<String, String>,
    /// The declared ports of its hosts.
    pub ports: Vec<PortView>,
    /// Where its hosts are.
    pub region: Option<String>,
    /// Whose its hosts are.
    pub owner: Option<String>,
    /// Prefixes in which the addresses of its hosts must be; empty is any.
    pub address_scope: Vec<String>,
    /// How many hosts it may enrol.
    pub uses_max: u32,
    /// How many it enrolled.
    pub uses: u32,
    /// When it was made, in RFC 3339 and UTC; absent in the answer that made it.
    pub created_at: Option<String>,
    /// Until when it is good, in RFC 3339 and UTC.
    pub expires_at: String,
    /// When it was revoked, in RFC 3339 and UTC.
    pub revoked_at: Option<String>,
}

/// A new enrolment token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedEnrolToken {
    /// The token.
    pub token: EnrolTokenView,
    /// What proves it; shown this once.
    pub secret: String,
}

/// What a new API token is to allow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// What people call it.
    pub name: String,
    /// `viewer`, `editor`, `operator`, `auditor` or `admin`.
    pub role: String,
    /// In which namespaces; absent is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// How long it is good, in seconds; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// An API token, without what proves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApiTokenView {
    /// Its identity.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: String,
    /// In which namespaces; absent is all of them.
    pub namespaces: Option<Vec<String>>,
    /// When it was made, in RFC 3339 and UTC; absent in the answer that made it.
    pub created_at: Option<String>,
    /// Until when it is good, in RFC 3339 and UTC; for ever if absent.
    pub expires_at: Option<String>,
    /// When it was revoked, in RFC 3339 and UTC.
    pub revoked_at: Option<String>,
}

/// A new API token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedApiToken {
    /// The token.
    pub token: ApiTokenView,
    /// What proves it; shown this once.
    pub secret: String,
}

macro_rules! secrets_hidden {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).field("token", &self.token).finish_non_exhaustive()
            }
        }
    )+};
}

secrets_hidden!(CreatedEnrolToken, CreatedApiToken);
