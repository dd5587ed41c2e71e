//! One connection, and what either side of it has and the reference remembers of it.

use std::collections::BTreeMap;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_session::scheduler::{Start, Turns};
use holdfast_session::{agent, gateway};
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::Drain;
use holdfast_wire::negotiate::Protocol;

use crate::keys::HostKeys;
use crate::pipe::Pipe;

/// One connection, from the dial to the end of both sides.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) agent: usize,
    pub(crate) gateway: usize,
    pub(crate) to_agent: Pipe,
    pub(crate) to_gateway: Pipe,
    /// How many updates the gateway wrote.
    pub(crate) updates: u64,
    pub(crate) gateway_side: Option<Box<GatewaySide>>,
    pub(crate) agent_side: Option<Box<AgentSide>>,
}

/// What a gateway has of a connection, and what the reference remembers of it.
#[derive(Debug)]
pub(crate) struct GatewaySide {
    pub(crate) machine: gateway::Session,
    pub(crate) host: HostId,
    pub(crate) session_epoch: Option<SessionEpoch>,
    pub(crate) turns: Turns,
    pub(crate) mail: Mail,
    pub(crate) timer_at: Option<u64>,
    pub(crate) reading: usize,
    pub(crate) sent: BTreeMap<UpdateSeq, Sent>,
    pub(crate) tips: [Option<Stamp>; Component::ALL.len()],
    pub(crate) recoveries: BTreeMap<(Component, Version), u64>,
    pub(crate) resends: u64,
}

/// An update that was written and not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) component: Component,
    pub(crate) stamp: Stamp,
    pub(crate) bytes: usize,
}

/// What others put into a session's mailbox.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) is_planned: bool,
    pub(crate) starts: [Option<Start>; Component::ALL.len()],
    pub(crate) resend: bool,
    pub(crate) drain: Option<Drain>,
    pub(crate) close: Option<RefusalCode>,
}

/// What an agent has of a connection, and what the reference remembers of it.
#[derive(Debug)]
pub(crate) struct AgentSide {
    pub(crate) machine: agent::Session<HostKeys>,
    pub(crate) session_epoch: Option<SessionEpoch>,
    /// What both halves agreed to speak.
    pub(crate) protocol: Protocol,
    pub(crate) timer_at: Option<u64>,
    /// What the gateway wrote last, by what arrived.
    pub(crate) written: [Option<Stamp>; Component::ALL.len()],
    /// What this session took last.
    pub(crate) taken: [Option<Stamp>; Component::ALL.len()],
    pub(crate) unanswered: usize,
}
