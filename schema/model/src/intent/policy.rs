//! Authored network policy: one shape for the Kubernetes dialect and ours.
//!
//! Meaning: a policy's subject is the hosts of its namespace that its selector matches. For a direction that it isolates, they deny what no rule
//! allows. Rules of all policies that match a host are one list, by order, denies before allows of the same order; the first that matches decides.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::label::Selector;
use crate::name::Name;
use crate::policy::{Action, IcmpKind, PortRange};

/// The order of rules that name none, among them all Kubernetes rules.
pub const DEFAULT_ORDER: i32 = 1000;

/// One authored policy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// Whose traffic it governs: hosts of its own namespace.
    pub subject: Selector,
    /// Whether the subject denies inbound traffic that nothing allows.
    pub isolate_ingress: bool,
    /// Whether the subject denies outbound traffic that nothing allows.
    pub isolate_egress: bool,
    /// Rules for connections toward the subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<PolicyRule>,
    /// Rules for connections from the subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<PolicyRule>,
}

/// One authored rule: what is listed within a part is "or", the parts together are "and".
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRule {
    /// Lower orders decide first.
    pub order: i32,
    /// What it does.
    pub action: Action,
    /// The other end.
    pub peers: PeerSpec,
    /// Protocols and destination ports.
    pub services: ServiceSpec,
    /// The subject's own address must be in one of these; any of its addresses if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Vec<IpNet>>,
    /// Whether a match is logged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

/// The other end of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PeerSpec {
    /// Anybody.
    Any,
    /// One of these; an empty list is nobody.
    Of(Vec<Peer>),
}

/// One peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Peer {
    /// Hosts and endpoints by labels.
    Select {
        /// In which namespaces.
        namespaces: NamespaceMatch,
        /// Which of them.
        labels: Selector,
    },
    /// Addresses of a prefix.
    Cidr {
        /// The prefix, host bits cleared.
        cidr: IpNet,
        /// Prefixes that this one peer leaves out; they deny nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        except: Vec<IpNet>,
    },
    /// Addresses of an address group of the policy's namespace.
    Group(Name),
}

/// The namespaces in which a peer is looked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NamespaceMatch {
    /// The policy's own.
    Own,
    /// Those whose labels match.
    Select(Selector),
}

/// Protocols and destination ports of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceSpec {
    /// Every packet.
    Any,
    /// One of these; an empty list is nothing.
    Of(Vec<Service>),
}

/// One service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Service {
    /// A whole IP protocol, by number. ICMP and ICMPv6 by number mean that one alone.
    Protocol(u8),
    /// TCP, UDP or SCTP, and which destination ports.
    Ports {
        /// IP protocol number.
        protocol: u8,
        /// Which ports.
        ports: PortSpec,
    },
    /// Kinds of ICMP, in each family's own numbers. Two empty lists mean all ICMP of both families.
    Icmp {
        /// Kinds of ICMP for IPv4.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        v4: Vec<IcmpKind>,
        /// Kinds of ICMP for IPv6.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        v6: Vec<IcmpKind>,
    },
}

/// Destination ports of a service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PortSpec {
    /// From a port to a port.
    Range(PortRange),
    /// The port that the destination declares under this name for this protocol.
    Named(String),
}
