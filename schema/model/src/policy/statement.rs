//! What a rule matches beside addresses: protocol, destination ports, ICMP kinds.

use serde::{Deserialize, Serialize};

use crate::address::Family;

/// IP protocol numbers that have words of their own here (IANA protocol-numbers).
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// Ports from `first` to `last`, both inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

impl PortRange {
    /// One port.
    #[must_use]
    pub const fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Whether `port` lies inside.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// An ICMP type, with its code or any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct IcmpKind {
    /// The type.
    pub kind: u8,
    /// The code; any if absent.
    pub code: Option<u8>,
}

/// What a rule matches beside addresses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Statement {
    /// Every packet.
    Any,
    /// Every packet of one IP protocol.
    Protocol(u8),
    /// TCP, UDP or SCTP to one of these ports.
    Ports {
        /// One of [`protocol::TCP`], [`protocol::UDP`], [`protocol::SCTP`].
        protocol: u8,
        /// Ascending, never meeting, not empty.
        ranges: Vec<PortRange>,
    },
    /// ICMP of one family, of one of these kinds.
    Icmp {
        /// Which ICMP.
        family: Family,
        /// Ascending, unique, not empty.
        kinds: Vec<IcmpKind>,
    },
}

impl Statement {
    /// Ports of a protocol with ports, joined where they meet; all 65,536 of them become [`Statement::Protocol`].
    #[must_use]
    pub fn ports(protocol: u8, mut ranges: Vec<PortRange>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<PortRange> = Vec::with_capacity(ranges.len());
        for next in ranges {
            match joined.last_mut() {
                Some(open) if u32::from(next.first) <= u32::from(open.last) + 1 => open.last = open.last.max(next.last),
                _ => joined.push(next),
            }
        }
        match joined.as_slice() {
            [PortRange { first: 0, last: u16::MAX }] => Self::Protocol(protocol),
            _ => Self::Ports { protocol, ranges: joined },
        }
    }

    /// Whether lists are in their canonical form.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        match self {
            Self::Any | Self::Protocol(_) => true,
            Self::Ports { protocol, ranges } => {
                matches!(*protocol, protocol::TCP | protocol::UDP | protocol::SCTP)
                    && !ranges.is_empty()
                    && ranges.iter().all(|range| range.first <= range.last)
                    && ranges.is_sorted_by(|a, b| u32::from(a.last) + 1 < u32::from(b.first))
                    && ranges.as_slice() != [PortRange { first: 0, last: u16::MAX }]
            }
            Self::Icmp { kinds, .. } => !kinds.is_empty() && kinds.is_sorted_by(|a, b| a < b),
        }
    }
}
