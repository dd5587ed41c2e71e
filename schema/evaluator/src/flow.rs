//! What is asked: two ends and the packet that opens a connection between them.

use std::net::IpAddr;

use holdfast_model::address::Family;
use holdfast_model::ids::HostId;
use holdfast_model::intent::ObjectKey;

/// Who is at one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// An enrolled host.
    Host(HostId),
    /// An endpoint, by the key of its object.
    Endpoint(ObjectKey),
    /// Somebody whom no selector can match.
    Outside,
}

/// One end of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Who it is.
    pub who: Who,
    /// The address that it uses in this flow.
    pub address: IpAddr,
}

impl End {
    /// A host at one of its addresses.
    #[must_use]
    pub const fn host(id: HostId, address: IpAddr) -> Self {
        Self { who: Who::Host(id), address }
    }

    /// An endpoint at one of its addresses.
    #[must_use]
    pub const fn endpoint(key: ObjectKey, address: IpAddr) -> Self {
        Self { who: Who::Endpoint(key), address }
    }

    /// An address that belongs to nobody known.
    #[must_use]
    pub const fn outside(address: IpAddr) -> Self {
        Self { who: Who::Outside, address }
    }

    /// The family of its address.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }
}

/// The packet that opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Packet {
    /// TCP, UDP or SCTP to a port.
    Port {
        /// IP protocol number.
        protocol: u8,
        /// The destination port.
        port: u16,
    },
    /// ICMP of the flow's family.
    Icmp {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
    },
    /// A protocol without ports, by number.
    Other(u8),
}

/// One question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who opens the connection.
    pub from: End,
    /// Toward whom.
    pub to: End,
    /// With what.
    pub packet: Packet,
}

/// Why a flow cannot be judged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// No such host.
    #[error("there is no host {0}")]
    Host(HostId),
    /// No such endpoint.
    #[error("there is no {0}")]
    Endpoint(ObjectKey),
    /// One IPv4 and one IPv6 address.
    #[error("{0} and {1} are of different families")]
    Families(IpAddr, IpAddr),
}
