//! The words of a rule: what it matches, as nft text and as kernel expressions.
//!
//! - A match has one text and one lowering; the text loads with `nft -f` and makes the same expressions, which a kernel test shows.
//! - A match on an address carries the test for its family, a match on a port the test for its protocol.

use std::fmt;

use holdfast_model::address::Family;
use holdfast_model::policy::{PortRange, protocol};

use super::expr::{CtKey, Expr, Header, MetaKey};

/// The index of `lo`: the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;
/// `ct state` bits as the kernel counts them (`NF_CT_STATE_BIT`).
const STATE_RELATED: u32 = 4;
const STATE_NEW: u32 = 8;
/// FIN, SYN, RST and ACK in the flags byte of TCP, and SYN alone.
const TCP_OPENING_MASK: u8 = 0x17;
const TCP_SYN: u8 = 0x02;
/// Where the flags byte lies in a TCP header.
const TCP_FLAGS_OFFSET: u32 = 13;
/// `IP_CT_DIR_REPLY`.
const DIRECTION_REPLY: u8 = 1;
/// An interface name in the kernel, its padding of zeros included.
const INTERFACE_NAME_BYTES: usize = 16;

/// An end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Ports of a rule: one, a range, or a named set of ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ports {
    /// One range, of one port or more.
    Range(PortRange),
    /// The members of a set of the same ruleset.
    Set(String),
}

/// One thing that a rule asks of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    /// It came in by the loopback interface.
    InLoopback,
    /// It goes out by the loopback interface.
    OutLoopback,
    /// It came in by this interface.
    InInterface(String),
    /// It goes out by this interface.
    OutInterface(String),
    /// It is of this family.
    Family(Family),
    /// It carries this protocol.
    Protocol(u8),
    /// An end of it is a member of a set.
    Address {
        /// Of which family the set is.
        family: Family,
        /// Which end.
        end: End,
        /// The name of the set.
        set: String,
    },
    /// An end of the packet that opened its connection is a member of a set.
    OriginalAddress {
        /// Of which family the set is.
        family: Family,
        /// Which end.
        end: End,
        /// The name of the set.
        set: String,
    },
    /// A port of it is one of these.
    Port {
        /// TCP, UDP or SCTP.
        protocol: u8,
        /// Which end.
        end: End,
        /// Which ports.
        ports: Ports,
    },
    /// The destination port of the packet that opened its connection is one of these.
    OriginalPort {
        /// TCP, UDP or SCTP.
        protocol: u8,
        /// Which ports.
        ports: Ports,
    },
    /// It is ICMP with a type from `first` to `last`.
    IcmpType {
        /// Which ICMP.
        family: Family,
        /// The lowest type.
        first: u8,
        /// The highest type.
        last: u8,
    },
    /// It is ICMP with this code; only beside a match on its type.
    IcmpCode(u8),
    /// It opens a connection.
    StateNew,
    /// It belongs to a connection that another one brought about.
    StateRelated,
    /// It goes against the packet that opened its connection.
    Reply,
    /// It is TCP and no bare SYN.
    NoBareSyn,
}

impl Match {
    /// The kernel's expressions for it.
    #[must_use]
    pub fn lower(&self) -> Vec<Expr> {
        match self {
            Self::InLoopback => equal(Expr::Meta(MetaKey::InIndex), &LOOPBACK_INDEX.to_ne_bytes()),
            Self::OutLoopback => equal(Expr::Meta(MetaKey::OutIndex), &LOOPBACK_INDEX.to_ne_bytes()),
            Self::InInterface(name) => equal(Expr::Meta(MetaKey::InName), &padded(name)),
            Self::OutInterface(name) => equal(Expr::Meta(MetaKey::OutName), &padded(name)),
            Self::Family(family) => of_family(*family),
            Self::Protocol(protocol) => of_protocol(*protocol),
            Self::Address { family, end, set } => {
                let mut exprs = of_family(*family);
                exprs.extend([address(*family, *end), Expr::Lookup(set.clone())]);
                exprs
            }
            Self::OriginalAddress { family, end, set } => {
                let key = match (family, end) {
                    (Family::V4, End::Source) => CtKey::OriginalSource4,
                    (Family::V4, End::Destination) => CtKey::OriginalDestination4,
                    (Family::V6, End::Source) => CtKey::OriginalSource6,
                    (Family::V6, End::Destination) => CtKey::OriginalDestination6,
                };
                let mut exprs = of_family(*family);
                exprs.extend([Expr::Ct(key), Expr::Lookup(set.clone())]);
                exprs
            }
            Self::Port { protocol, end, ports } => {
                let offset = match end {
                    End::Source => 0,
                    End::Destination => 2,
                };
                let mut exprs = of_protocol(*protocol);
                exprs.push(Expr::Payload { header: Header::Transport, offset, len: 2 });
                exprs.push(among(ports));
                exprs
            }
            Self::OriginalPort { protocol, ports } => {
                let mut exprs = of_protocol(*protocol);
                exprs.extend([Expr::Ct(CtKey::OriginalPort), among(ports)]);
                exprs
            }
            Self::IcmpType { family, first, last } => {
                let mut exprs = of_icmp(*family);
                exprs.push(Expr::Payload { header: Header::Transport, offset: 0, len: 1 });
                exprs.push(if first == last {
                    Expr::Equal(vec![*first])
                } else {
                    Expr::Range(vec![*first], vec![*last])
                });
                exprs
            }
            Self::IcmpCode(code) => equal(Expr::Payload { header: Header::Transport, offset: 1, len: 1 }, &[*code]),
            Self::StateNew => of_state(STATE_NEW),
            Self::StateRelated => of_state(STATE_RELATED),
            Self::Reply => equal(Expr::Ct(CtKey::Direction), &[DIRECTION_REPLY]),
            Self::NoBareSyn => {
                let mut exprs = of_protocol(protocol::TCP);
                exprs.extend([
                    Expr::Payload { header: Header::Transport, offset: TCP_FLAGS_OFFSET, len: 1 },
                    Expr::Mask(vec![TCP_OPENING_MASK]),
                    Expr::Unequal(vec![TCP_SYN]),
                ]);
                exprs
            }
        }
    }
}

fn equal(load: Expr, bytes: &[u8]) -> Vec<Expr> {
    vec![load, Expr::Equal(bytes.to_vec())]
}

fn padded(name: &str) -> [u8; INTERFACE_NAME_BYTES] {
    let mut bytes = [0; INTERFACE_NAME_BYTES];
    bytes.iter_mut().zip(name.bytes().take(INTERFACE_NAME_BYTES - 1)).for_each(|(to, from)| *to = from);
    bytes
}

fn of_family(family: Family) -> Vec<Expr> {
    // NFPROTO_IPV4 and NFPROTO_IPV6.
    let number = match family {
        Family::V4 => 2,
        Family::V6 => 10,
    };
    equal(Expr::Meta(MetaKey::Family), &[number])
}

fn of_protocol(protocol: u8) -> Vec<Expr> {
    equal(Expr::Meta(MetaKey::Protocol), &[protocol])
}

fn of_icmp(family: Family) -> Vec<Expr> {
    // The family too: ICMP's number over IPv6, or ICMPv6's over IPv4, is another protocol's packet.
    let mut exprs = of_family(family);
    exprs.extend(of_protocol(icmp(family)));
    exprs
}

const fn icmp_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "icmp",
        Family::V6 => "icmpv6",
    }
}

const fn icmp(family: Family) -> u8 {
    match family {
        Family::V4 => protocol::ICMP,
        Family::V6 => protocol::ICMPV6,
    }
}

fn of_state(bit: u32) -> Vec<Expr> {
    vec![Expr::Ct(CtKey::State), Expr::Mask(bit.to_ne_bytes().to_vec()), Expr::Unequal(0_u32.to_ne_bytes().to_vec())]
}

fn address(family: Family, end: End) -> Expr {
    let (offset, len) = match (family, end) {
        (Family::V4, End::Source) => (12, 4),
        (Family::V4, End::Destination) => (16, 4),
        (Family::V6, End::Source) => (8, 16),
        (Family::V6, End::Destination) => (24, 16),
    };
    Expr::Payload { header: Header::Network, offset, len }
}

fn among(ports: &Ports) -> Expr {
    match ports {
        Ports::Range(range) if range.first == range.last => Expr::Equal(range.first.to_be_bytes().to_vec()),
        Ports::Range(range) => Expr::Range(range.first.to_be_bytes().to_vec(), range.last.to_be_bytes().to_vec()),
        Ports::Set(name) => Expr::Lookup(name.clone()),
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) if range.first == range.last => write!(f, "{}", range.first),
            Self::Range(range) => write!(f, "{}-{}", range.first, range.last),
            Self::Set(name) => write!(f, "@{name}"),
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = |family: &Family| match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        let side = |end: &End| match end {
            End::Source => 's',
            End::Destination => 'd',
        };
        match self {
            Self::InLoopback => f.write_str("iif \"lo\""),
            Self::OutLoopback => f.write_str("oif \"lo\""),
            Self::InInterface(name) => write!(f, "iifname \"{name}\""),
            Self::OutInterface(name) => write!(f, "oifname \"{name}\""),
            Self::Family(Family::V4) => f.write_str("meta nfproto ipv4"),
            Self::Family(Family::V6) => f.write_str("meta nfproto ipv6"),
            Self::Protocol(protocol) => write!(f, "meta l4proto {protocol}"),
            Self::Address { family, end, set } => write!(f, "{} {}addr @{set}", ip(family), side(end)),
            Self::OriginalAddress { family, end, set } => {
                write!(f, "meta nfproto ip{} ct original {} {}addr @{set}", family, ip(family), side(end))
            }
            Self::Port { protocol, end, ports } => {
                let word = match *protocol {
                    protocol::TCP => "tcp",
                    protocol::UDP => "udp",
                    protocol::SCTP => "sctp",
                    other => return write!(f, "meta l4proto {other} th {}port {ports}", side(end)),
                };
                write!(f, "{word} {}port {ports}", side(end))
            }
            Self::OriginalPort { protocol, ports } => {
                write!(f, "meta l4proto {protocol} ct original proto-dst {ports}")
            }
            Self::IcmpType { family, first, last } => {
                write!(f, "{} type {first}", icmp_word(*family))?;
                if first == last { Ok(()) } else { write!(f, "-{last}") }
            }
            // Told as raw bytes: the word for it depends on the family, which the match on the type has.
            Self::IcmpCode(code) => write!(f, "@th,8,8 {code}"),
            Self::StateNew => f.write_str("ct state new"),
            Self::StateRelated => f.write_str("ct state related"),
            Self::Reply => f.write_str("ct direction reply"),
            Self::NoBareSyn => f.write_str("tcp flags & (fin | syn | rst | ack) != syn"),
        }
    }
}
