//! What processes ask of the authority, and what they are told.

use std::sync::Arc;

use holdfast_model::desired::Desired;
use holdfast_model::ids::HostId;
use holdfast_model::intent::Intent;
use holdfast_model::name::Name;
use holdfast_model::numbers::{LeaseTerm, Revision, SessionEpoch};
use holdfast_render::Edit;
use holdfast_render::fleet::Plan as RenderPlan;
use holdfast_session::gateway::{Answer, Want};
use holdfast_session::scheduler::Ticket;
use holdfast_wire::message::SignatureBytes;

use super::facts::Fact;
use super::registry::Newest;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Open { conn: usize, host: HostId },
    Read { conn: usize, want: Want, ticket: Ticket },
    Record { batch: Arc<Vec<Fact>> },
    Compare { hosts: Vec<HostId> },
    Lease,
    Acquire,
    Renew { turn: u64, term: LeaseTerm, asked: u64 },
    Release { term: LeaseTerm },
    Load { turn: u64 },
    Changes { turn: u64, since: Revision },
    Store { turn: u64, term: LeaseTerm, plan: Arc<RenderPlan>, signatures: Arc<Vec<SignatureBytes>> },
    Number { turn: u64, term: LeaseTerm, horizon: u64 },
}

impl Ask {
    /// The turn of a leader that it belongs to.
    pub(super) const fn turn(&self) -> Option<u64> {
        match self {
            Self::Renew { turn, .. }
            | Self::Load { turn }
            | Self::Changes { turn, .. }
            | Self::Store { turn, .. }
            | Self::Number { turn, .. } => Some(*turn),
            Self::Open { .. }
            | Self::Read { .. }
            | Self::Record { .. }
            | Self::Compare { .. }
            | Self::Lease
            | Self::Acquire
            | Self::Release { .. } => None,
        }
    }
}

/// A session that may begin.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) session_epoch: SessionEpoch,
    pub(crate) namespace: Name,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Opened(Opened),
    Read(Answer),
    Recorded(Vec<(HostId, SessionEpoch)>),
    Newest(Vec<Newest>),
    Held(bool),
    Term(Option<LeaseTerm>),
    Loaded(Box<(Intent, Revision, Revision, Vec<Desired>)>),
    Changes(Revision, Vec<Edit>),
    Stored,
    /// Against a fence, or on a state that is older than the one that is stored.
    Refused,
    Numbered {
        horizon: u64,
        /// The last number that there is.
        last: usize,
        /// How many were given.
        count: u64,
    },
    /// Refused for a value in it, which can never be written.
    OfAValue,
    /// Not done, or not known to be done.
    Failed,
}
