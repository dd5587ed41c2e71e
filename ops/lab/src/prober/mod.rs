//! Real packets: one helper process per namespace sends probes and answers those of others.
//!
//! - TCP and UDP go through real sockets, SCTP, ICMP and other protocols through raw ones: all of them pass the kernel's output and input hooks,
//!   so what a ruleset drops is not seen and not answered.
//! - A helper answers every SCTP port and every protocol that it was asked to listen to, but TCP and UDP only on ports that it was asked for.
//! - Each probe has a source port or mark of its own, so a late answer is never taken for another probe's.
//!
//! It compares nothing with what should be: see [`crate::packets`].

mod client;
mod mesh;
mod packet;
mod pending;
mod ports;
mod raw;
mod serve;
mod socket;

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use client::{Error, Prober};
pub use mesh::{Mesh, Shot};
pub use serve::{ServeError, serve};

use crate::flow::Flow;

/// What a helper answers besides what the kernel answers by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listen {
    /// TCP ports.
    pub tcp: Vec<u16>,
    /// UDP ports.
    pub udp: Vec<u16>,
    /// Whether it answers on all SCTP ports.
    pub sctp: bool,
    /// Other IP protocols.
    pub protocols: Vec<u8>,
}

impl Listen {
    /// Adds what a flow needs at its destination.
    pub fn add(&mut self, flow: Flow) {
        match flow {
            Flow::Tcp(port) => self.tcp.push(port),
            Flow::Udp(port) => self.udp.push(port),
            Flow::Sctp(_) => self.sctp = true,
            Flow::Icmp => {}
            Flow::Protocol(number) => self.protocols.push(number),
        }
    }

    /// Each thing once.
    pub fn tidy(&mut self) {
        for ports in [&mut self.tcp, &mut self.udp] {
            ports.sort_unstable();
            ports.dedup();
        }
        self.protocols.sort_unstable();
        self.protocols.dedup();
    }
}

/// One probe, sent from the helper's namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Names it within its batch.
    pub id: u32,
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// What is tried.
    pub flow: Flow,
}

/// How long a probe waits and how often it tries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Patience {
    /// The deadline of each attempt, one after another.
    pub attempts_ms: Vec<u64>,
    /// The most probes of one helper that wait at the same time.
    pub in_flight: usize,
}

impl Patience {
    /// For probes that should get through: a loaded machine must not look like a drop, and only a drop takes all of it.
    #[must_use]
    pub fn for_allowed() -> Self {
        Self { attempts_ms: vec![300, 600, 1200, 2400, 4800], in_flight: 32 }
    }

    /// For probes that should be dropped: short, with one retry. TCP sends one packet in such an attempt: its own retry comes after a second.
    #[must_use]
    pub fn for_denied() -> Self {
        Self { attempts_ms: vec![300, 300], in_flight: 512 }
    }
}

/// How a probe ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was answered as it should be.
    Passed,
    /// Nobody answered in time.
    Dropped,
    /// Somebody answered that it may not or cannot be.
    Refused {
        /// Who.
        by: IpAddr,
    },
    /// It was not sent.
    Failed {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Dropped => f.write_str("dropped"),
            Self::Refused { by } => write!(f, "refused by {by}"),
            Self::Failed { why } => write!(f, "not sent: {why}"),
        }
    }
}

/// The end of one probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The probe.
    pub id: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Attempts without an answer.
    pub unanswered: u32,
}

/// What the parent asks of a helper; one JSON document a line.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Listen(Listen),
    Probe { patience: Patience, probes: Vec<Probe> },
}

/// What a helper says; one line for each request.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Listening,
    CannotListen { why: String },
    Answers(Vec<Answer>),
}
