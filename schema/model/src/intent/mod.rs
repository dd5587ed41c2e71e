//! What operators authored, in one typed form whatever the document's dialect.
//!
//! - An authored object is named by ([`Kind`], namespace, name); [`Intent`] is everything that is in force at one revision.
//! - Nothing here is resolved: selectors are selectors, named ports are names, groups are references.
//! - Labels, ports and the mode of a host come from its enrolment token and its `Host` document, never from what its agent says.

mod policy;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
pub use policy::{DEFAULT_ORDER, NamespaceMatch, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec};
use serde::{Deserialize, Serialize};

use crate::ids::HostId;
use crate::label::Labels;
use crate::name::Name;
use crate::policy::Mode;

/// The kinds of authored objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A list of addresses under one name.
    AddressGroup,
    /// An address with labels and no agent.
    Endpoint,
    /// What an operator says about an enrolled machine.
    Host,
    /// The tenancy of other objects; itself in none.
    Namespace,
    /// A `networking.k8s.io/v1` document.
    NetworkPolicy,
    /// A `holdfast.dev/v1` document.
    Policy,
}

impl Kind {
    /// All of them, in canonical order.
    pub const ALL: [Self; 6] =
        [Self::AddressGroup, Self::Endpoint, Self::Host, Self::Namespace, Self::NetworkPolicy, Self::Policy];

    /// The word in documents and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AddressGroup => "AddressGroup",
            Self::Endpoint => "Endpoint",
            Self::Host => "Host",
            Self::Namespace => "Namespace",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Policy => "Policy",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Names one authored object. The namespace of a [`Kind::Namespace`] is its own name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectKey {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub namespace: Name,
    /// What it is called there.
    pub name: Name,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::Namespace {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// A declared port of a host or endpoint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DeclaredPort {
    /// The name that policies may use.
    pub name: String,
    /// IP protocol number: TCP, UDP or SCTP.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// What an operator says about an enrolled machine; what is absent keeps what the enrolment token says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSpec {
    /// Labels over those of the token: each key replaces, none is taken away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Declared ports; these replace the token's as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<DeclaredPort>>,
    /// How far its policy is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// An address with labels and no agent: a peer in policies, never a target.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSpec {
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Its addresses, sorted.
    pub addresses: Vec<IpAddr>,
    /// Its declared ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<DeclaredPort>,
}

/// A list of addresses under one name; overlaps and repetitions are fine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressGroupSpec {
    /// The prefixes, host bits cleared.
    pub cidrs: Vec<IpNet>,
}

/// The tenancy of other objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Its labels; `kubernetes.io/metadata.name` is always its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
}

/// The content of one authored object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "spec")]
pub enum Spec {
    /// See [`AddressGroupSpec`].
    AddressGroup(AddressGroupSpec),
    /// See [`EndpointSpec`].
    Endpoint(EndpointSpec),
    /// See [`HostSpec`].
    Host(HostSpec),
    /// See [`NamespaceSpec`].
    Namespace(NamespaceSpec),
    /// See [`Policy`]; from a `networking.k8s.io/v1` document.
    NetworkPolicy(Policy),
    /// See [`Policy`]; from a `holdfast.dev/v1` document.
    Policy(Policy),
}

impl Spec {
    /// The kind of object that has this content.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::AddressGroup(_) => Kind::AddressGroup,
            Self::Endpoint(_) => Kind::Endpoint,
            Self::Host(_) => Kind::Host,
            Self::Namespace(_) => Kind::Namespace,
            Self::NetworkPolicy(_) => Kind::NetworkPolicy,
            Self::Policy(_) => Kind::Policy,
        }
    }
}

/// One authored object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Object {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its content.
    #[serde(flatten)]
    pub spec: Spec,
}

impl Object {
    /// What names it.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey { kind: self.spec.kind(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// An enrolled machine: what its token gave it and where it is. A `Host` object of the same namespace and name says more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EnrolledHost {
    /// Its identity.
    pub id: HostId,
    /// Its namespace, from the token.
    pub namespace: Name,
    /// Its name, given at enrolment within the token's scope.
    pub name: Name,
    /// Labels of the token.
    pub labels: Labels,
    /// Declared ports of the token.
    pub ports: Vec<DeclaredPort>,
    /// Its addresses within the token's scope, sorted.
    pub addresses: Vec<IpAddr>,
}

/// Everything that is in force at one revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// Enrolled machines, by identity.
    pub hosts: BTreeMap<HostId, EnrolledHost>,
    /// Authored objects, by what names them.
    pub objects: BTreeMap<ObjectKey, Spec>,
}

impl Intent {
    /// Puts an object in force, in place of the one of its name.
    pub fn put(&mut self, object: Object) {
        self.objects.insert(object.key(), object.spec);
    }
}
