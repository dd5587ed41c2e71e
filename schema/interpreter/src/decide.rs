//! What the bytes let pass.
//!
//! - The first rule whose direction, own address, peer, protocol and ports or kinds fit decides; when none does, an isolated direction denies and an
//!   open one allows.
//! - [`Artifact::verdict`] is what the rules say; [`Artifact::passes`] is what happens under the body's mode.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::body::{Action, Artifact, Key, Line, Lines, Match, Mode};
use crate::spans::Spans;

/// Who opens the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// The peer.
    Ingress,
    /// The host.
    Egress,
}

/// A packet that opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The host's address.
    pub local: IpAddr,
    /// The other end's address, of the same family.
    pub peer: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Destination port; `None` for a protocol without ports. A rule for ports needs it.
    pub port: Option<u16>,
    /// ICMP type and code; a rule for kinds needs them.
    pub icmp: Option<(u8, u8)>,
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// Yes.
    Allowed,
    /// No.
    Denied,
}

/// A verdict and where it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Yes or no.
    pub verdict: Verdict,
    /// The rule that said so; `None` if none matched and the direction's isolation decided.
    pub rule: Option<Key>,
}

/// The exact set of services between two addresses.
///
/// Numbers of a protocol are destination ports for TCP, UDP and SCTP, and `type * 256 + code` for ICMP of either family. A protocol without such
/// numbers has all or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Services {
    /// What passes of each protocol that some rule tells apart, and always of TCP, UDP and SCTP.
    pub protocols: BTreeMap<u8, Spans>,
    /// Whether every other protocol passes.
    pub others: bool,
}

impl Services {
    /// What passes of one protocol.
    #[must_use]
    pub fn of(&self, protocol: u8) -> Spans {
        let other = || if self.others { Spans::all() } else { Spans::none() };
        self.protocols.get(&protocol).cloned().unwrap_or_else(other)
    }
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl Match {
    /// The protocol that is told apart from others.
    const fn protocol(&self) -> Option<u8> {
        match self {
            Self::Everything => None,
            Self::Protocol(protocol) | Self::Ports { protocol, .. } => Some(*protocol),
            Self::Icmp { v6: false, .. } => Some(ICMP),
            Self::Icmp { v6: true, .. } => Some(ICMPV6),
        }
    }

    fn takes(&self, packet: &Packet) -> bool {
        match self {
            Self::Everything => true,
            Self::Protocol(protocol) => *protocol == packet.protocol,
            Self::Ports { protocol, ports } => {
                *protocol == packet.protocol && packet.port.is_some_and(|port| ports.contains(port))
            }
            Self::Icmp { v6, kinds } => {
                let family = packet.peer.to_canonical().is_ipv6() == *v6;
                let number = packet.icmp.map(|(kind, code)| u16::from_be_bytes([kind, code]));
                family
                    && self.protocol() == Some(packet.protocol)
                    && number.is_some_and(|number| kinds.contains(number))
            }
        }
    }

    /// The numbers of a protocol that it takes between addresses of one family.
    fn numbers(&self, protocol: Option<u8>, is_v6: bool) -> Spans {
        let told = protocol.is_some() && self.protocol() == protocol;
        match self {
            Self::Everything => Spans::all(),
            Self::Protocol(_) if told => Spans::all(),
            Self::Ports { ports, .. } if told => ports.clone(),
            Self::Icmp { v6, kinds } if told && *v6 == is_v6 => kinds.clone(),
            Self::Protocol(_) | Self::Ports { .. } | Self::Icmp { .. } => Spans::none(),
        }
    }
}

impl Artifact {
    fn lines(&self, direction: Direction) -> &Lines {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    fn is_between(&self, line: &Line, local: IpAddr, peer: IpAddr) -> bool {
        let fits = |set: Option<usize>, address| {
            set.is_none_or(|index| self.sets.get(index).is_some_and(|set| set.has(address)))
        };
        fits(line.peers, peer) && fits(line.local, local)
    }

    /// What the rules say of a packet, whatever the mode.
    #[must_use]
    pub fn verdict(&self, direction: Direction, packet: &Packet) -> Decision {
        let lines = self.lines(direction);
        let fits = |line: &&Line| line.wants.takes(packet) && self.is_between(line, packet.local, packet.peer);
        match lines.lines.iter().find(fits) {
            Some(line) => Decision { verdict: verdict_of(line.action), rule: Some(line.key) },
            None if lines.isolated => Decision { verdict: Verdict::Denied, rule: None },
            None => Decision { verdict: Verdict::Allowed, rule: None },
        }
    }

    /// Whether a packet passes under the body's mode.
    #[must_use]
    pub fn passes(&self, direction: Direction, packet: &Packet) -> bool {
        match self.mode() {
            Mode::Visibility | Mode::Simulation => true,
            Mode::Enforced => self.verdict(direction, packet).verdict == Verdict::Allowed,
        }
    }

    /// Everything that the rules allow between two addresses of one family, whatever the mode.
    #[must_use]
    pub fn services(&self, direction: Direction, local: IpAddr, peer: IpAddr) -> Services {
        let lines = self.lines(direction);
        let between: Vec<&Line> = lines.lines.iter().filter(|line| self.is_between(line, local, peer)).collect();
        let is_v6 = peer.to_canonical().is_ipv6();
        let allowed = |protocol: Option<u8>| {
            let (mut allowed, mut open) = (Spans::none(), Spans::all());
            for line in &between {
                let taken = line.wants.numbers(protocol, is_v6).intersection(&open);
                open = open.intersection(&taken.complement());
                match line.action {
                    Action::Allow => allowed = allowed.union(&taken),
                    Action::Deny => {}
                }
            }
            if lines.isolated { allowed } else { allowed.union(&open) }
        };
        let told = between.iter().filter_map(|line| line.wants.protocol()).chain(WITH_PORTS);
        Services {
            protocols: told.map(|protocol| (protocol, allowed(Some(protocol)))).collect(),
            others: !allowed(None).is_empty(),
        }
    }
}

const fn verdict_of(action: Action) -> Verdict {
    match action {
        Action::Allow => Verdict::Allowed,
        Action::Deny => Verdict::Denied,
    }
}
