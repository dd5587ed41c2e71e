//! The mark of types that cannot hold a secret.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::DriftCounts;
use holdfast_model::ids::{
    ApiTokenId, AuthorityId, EnrolTokenId, EventId, GatewayId, HostId, ObjectId, OperationId, RolloutId,
};
use holdfast_model::intent::{DeclaredPort, Kind, Spec};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm, Revision, SessionEpoch, UpdateSeq, Version};
use holdfast_model::rollout::stage::StageSpec;
use ipnet::IpNet;
use time::OffsetDateTime;
use uuid::Uuid;

/// A type that has no room for a secret: ids, numbers, codes, digests, public keys, authored intent, bounded text for people.
///
/// `String`, byte vectors and slices are not, so no payload can carry what a token, key or credential is made of.
///
/// ```
/// holdfast_events::require_secret_free::<holdfast_events::Event>();
/// holdfast_events::require_secret_free::<holdfast_events::Hint>();
/// holdfast_events::require_secret_free::<holdfast_events::Directive>();
/// ```
///
/// ```compile_fail,E0277
/// holdfast_events::require_secret_free::<String>();
/// ```
///
/// ```compile_fail,E0277
/// holdfast_events::require_secret_free::<Vec<u8>>();
/// ```
///
/// A payload with such a field does not implement it, and nothing outside this crate can claim it for a type of its own:
///
/// ```compile_fail,E0277
/// struct Token([u8; 32]);
/// impl holdfast_events::SecretFree for Token {}
/// ```
pub trait SecretFree: sealed::Sealed {}

pub(crate) mod sealed {
    /// Keeps the list in this crate.
    pub trait Sealed {}
}

/// Compiles only for a type that cannot hold a secret.
pub const fn require_secret_free<T: SecretFree + ?Sized>() {}

macro_rules! secret_free {
    ($($name:ty),+ $(,)?) => {$(
        impl $crate::secret_free::sealed::Sealed for $name {}
        impl $crate::secret_free::SecretFree for $name {}
    )+};
}
pub(crate) use secret_free;

secret_free!(
    bool, u8, u16, u32, u64, i64, Uuid, OffsetDateTime, IpAddr, IpNet, Name, Digest, Stamp, Component, Condition, DriftCounts, Reason,
    Kind, Spec, DeclaredPort, ApiTokenId, AuthorityId, EnrolTokenId, EventId, GatewayId, HostId, ObjectId, OperationId, RolloutId,
    // Shares and selectors, which are made of keys and values as below.
    StageSpec,
    AuthorityEpoch, EventSeq, LeaseTerm, Revision, SessionEpoch, UpdateSeq, Version,
    // Labels: keys and values of at most 63 characters of a closed alphabet, which operators author for everybody to see.
    BTreeMap<String, String>,
);

impl<T: SecretFree> sealed::Sealed for Option<T> {}
impl<T: SecretFree> SecretFree for Option<T> {}
// A list of numbers could be a key; a list of anything else that is secret-free is secret-free.
impl<T: SecretFree + Entry> sealed::Sealed for Vec<T> {}
impl<T: SecretFree + Entry> SecretFree for Vec<T> {}

/// What may be listed: not bytes.
pub trait Entry {}

macro_rules! entry {
    ($($name:ty),+ $(,)?) => {$( impl $crate::secret_free::Entry for $name {} )+};
}
pub(crate) use entry;

entry!(IpAddr, IpNet, Name, Condition, DeclaredPort, HostId);
