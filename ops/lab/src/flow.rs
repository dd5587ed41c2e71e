//! What a probe tries: a port of a protocol, or a protocol.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// IP protocol numbers that have a form of their own.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// A new connection, or the first packet of what has none. Written `443/tcp`, `icmp` or `proto/47`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Flow {
    /// A TCP handshake to a port.
    Tcp(u16),
    /// A UDP datagram to a port, and its echo.
    Udp(u16),
    /// An SCTP INIT to a port, and its INIT ACK.
    Sctp(u16),
    /// An ICMP echo request, of the family's ICMP.
    Icmp,
    /// A packet of another IP protocol, and its echo.
    Protocol(u8),
}

/// The text names no flow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// It has another form.
    #[error("`{text}` is no flow; write PORT/tcp, PORT/udp, PORT/sctp, icmp or protocol/NUMBER")]
    Form {
        /// The text.
        text: String,
    },
    /// The protocol has ports, and the port is missing.
    #[error("protocol {number} has ports; write PORT/{name}")]
    Port {
        /// The protocol.
        number: u8,
        /// Its name.
        name: &'static str,
    },
}

impl Flow {
    /// The IP protocol number, where the family decides for ICMP.
    #[must_use]
    pub const fn protocol(self, v6: bool) -> u8 {
        match self {
            Self::Tcp(_) => TCP,
            Self::Udp(_) => UDP,
            Self::Sctp(_) => SCTP,
            Self::Icmp if v6 => ICMPV6,
            Self::Icmp => ICMP,
            Self::Protocol(number) => number,
        }
    }

    /// The destination's port, 0 where there is none.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Tcp(port) | Self::Udp(port) | Self::Sctp(port) => port,
            Self::Icmp | Self::Protocol(_) => 0,
        }
    }

    /// The flow of a protocol number; the port counts only where the protocol has ports.
    #[must_use]
    pub const fn of_protocol(number: u8, port: u16) -> Self {
        match number {
            TCP => Self::Tcp(port),
            UDP => Self::Udp(port),
            SCTP => Self::Sctp(port),
            ICMP | ICMPV6 => Self::Icmp,
            other => Self::Protocol(other),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "{port}/tcp"),
            Self::Udp(port) => write!(f, "{port}/udp"),
            Self::Sctp(port) => write!(f, "{port}/sctp"),
            Self::Icmp => f.write_str("icmp"),
            Self::Protocol(number) => write!(f, "proto/{number}"),
        }
    }
}

impl FromStr for Flow {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let form = || FlowError::Form { text: text.to_owned() };
        if text == "icmp" {
            return Ok(Self::Icmp);
        }
        let (left, right) = text.split_once('/').ok_or_else(form)?;
        // The operators' command line and documents say `protocol`.
        if matches!(left, "proto" | "protocol") {
            return match right.parse().map_err(|_| form())? {
                number @ TCP => Err(FlowError::Port { number, name: "tcp" }),
                number @ UDP => Err(FlowError::Port { number, name: "udp" }),
                number @ SCTP => Err(FlowError::Port { number, name: "sctp" }),
                number => Ok(Self::of_protocol(number, 0)),
            };
        }
        let port = left.parse().map_err(|_| form())?;
        match right {
            "tcp" => Ok(Self::Tcp(port)),
            "udp" => Ok(Self::Udp(port)),
            "sctp" => Ok(Self::Sctp(port)),
            _ => Err(form()),
        }
    }
}

impl TryFrom<String> for Flow {
    type Error = FlowError;

    fn try_from(text: String) -> Result<Self, FlowError> {
        text.parse()
    }
}

impl From<Flow> for String {
    fn from(flow: Flow) -> Self {
        flow.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_reads_back_from_its_text() {
        for flow in [Flow::Tcp(443), Flow::Udp(0), Flow::Sctp(65535), Flow::Icmp, Flow::Protocol(47)] {
            assert_eq!(flow.to_string().parse(), Ok(flow));
        }
    }

    #[test]
    fn a_protocol_with_ports_wants_one_and_icmp_has_one_form() {
        assert_eq!("proto/6".parse::<Flow>(), Err(FlowError::Port { number: 6, name: "tcp" }));
        assert_eq!("proto/58".parse(), Ok(Flow::Icmp));
        assert_eq!("protocol/47".parse(), "proto/47".parse::<Flow>());
        for wrong in ["tcp/443", "443", "65536/tcp", "443/gre", "proto/256"] {
            assert_eq!(wrong.parse::<Flow>(), Err(FlowError::Form { text: wrong.to_owned() }));
        }
    }
}
