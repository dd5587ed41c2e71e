//! Kernel expressions as data: what a rule is made of below its words.
//!
//! - Every expression works on register 1; a rule is a straight line of loads and tests that ends in at most one verdict.
//! - Two rules are the same for the kernel exactly if their expressions are equal; counters compare without their values.
//!
//! It encodes nothing: `crate::nft` turns these into netlink and back.

use std::fmt;

/// A verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet passes this table.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Evaluation goes on in a chain and comes back.
    Jump(&'static str),
    /// Evaluation goes on in a chain and does not come back.
    Goto(&'static str),
    /// A verdict that this agent never writes, as its code.
    Foreign(i32),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Foreign(code) => write!(f, "verdict {code}"),
        }
    }
}

/// A value that the kernel knows of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaKey {
    /// Index of the interface that it came in by.
    InIndex,
    /// Index of the interface that it goes out by.
    OutIndex,
    /// Name of the interface that it came in by.
    InName,
    /// Name of the interface that it goes out by.
    OutName,
    /// IPv4 or IPv6.
    Family,
    /// The protocol above IP.
    Protocol,
}

/// A value that connection tracking knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CtKey {
    /// The state of the packet in its connection, as a bit.
    State,
    /// Whether the packet goes as the one that opened the connection (0) or against it (1).
    Direction,
    /// Source address of the opening packet.
    OriginalSource4,
    /// Destination address of the opening packet.
    OriginalDestination4,
    /// Source address of the opening packet.
    OriginalSource6,
    /// Destination address of the opening packet.
    OriginalDestination6,
    /// Destination port of the opening packet.
    OriginalPort,
}

/// Which header a load counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// IPv4 or IPv6.
    Network,
    /// TCP, UDP, ICMP and the like.
    Transport,
}

/// One expression of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// Loads what the kernel knows of the packet.
    Meta(MetaKey),
    /// Loads what connection tracking knows; a packet without a connection does not match.
    Ct(CtKey),
    /// Loads bytes of a header.
    Payload {
        /// Which header.
        header: Header,
        /// From which byte.
        offset: u32,
        /// How many bytes.
        len: u32,
    },
    /// Masks what was loaded.
    Mask(Vec<u8>),
    /// Goes on if what was loaded is these bytes.
    Equal(Vec<u8>),
    /// Goes on if what was loaded is not these bytes.
    Unequal(Vec<u8>),
    /// Goes on if what was loaded lies between these, both inside.
    Range(Vec<u8>, Vec<u8>),
    /// Goes on if what was loaded is a member of a set.
    Lookup(String),
    /// Counts.
    Counter,
    /// Goes on at most so many times a second.
    Limit {
        /// How many.
        per_second: u64,
        /// How many at once.
        burst: u32,
    },
    /// Writes a line to the kernel's log, level info.
    Log(String),
    /// Decides.
    Verdict(Verdict),
    /// One that this agent never writes, as the kernel names it.
    Foreign(String),
}
