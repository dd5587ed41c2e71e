//! What the agent half is given, tells and asks.

use std::fmt;

use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::message::{Drain, Hello, HelloAck, SignatureBytes};

/// The keys that a session needs: the renderer's public one, the host's own secret one. Pure: the same bytes, the same answer.
pub trait Keys {
    /// Whether the renderer signed this statement of a desired state.
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool;
    /// The host's signature over the statement of an outcome.
    fn sign(&self, statement: &[u8]) -> SignatureBytes;
}

/// What a session begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Who this host is.
    pub host: HostId,
    /// The first message; what it says is applied also guards against going back.
    pub hello: Hello,
    /// The authority that the host was enrolled with, in the life that it saw last.
    pub pinned: Authority,
}

/// How the content of an update came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// The flat bytes; their digest is not checked yet (see [`super::body_of_snapshot`]).
    Snapshot(Vec<u8>),
    /// Changes of the body that was taken before, as they came (see [`super::body_of_delta`]).
    Delta {
        /// What they apply to.
        base: Stamp,
        /// As `holdfast_wire::decode_changes` reads them.
        changes: Vec<u8>,
    },
    /// The body that was taken before, under a new version.
    VersionOnly,
}

/// One update to put into force. The next comes after its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Apply {
    /// Comes back in the result.
    pub update_seq: UpdateSeq,
    /// Under whose authority; to be pinned and stored with the state once it is applied.
    pub authority: Authority,
    /// Which part.
    pub component: Component,
    /// What is to come out.
    pub stamp: Stamp,
    /// The renderer's signature, checked; to be stored with the state.
    pub signature: SignatureBytes,
    /// How it came.
    pub content: Content,
}

/// How an [`Apply`] went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApplyResult {
    /// How it ended.
    pub kind: OutcomeKind,
    /// What is in force now, if anything is. Of an applied update it is the update itself, whatever stands here.
    pub in_force: Option<Stamp>,
    /// What was seen on the way.
    pub conditions: Vec<Condition>,
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCause {
    /// This side ended it.
    Ours(RefusalCode),
    /// The gateway ended it.
    Theirs {
        /// Why.
        code: RefusalCode,
        /// Do not dial before.
        retry_after_ms: u32,
    },
    /// The connection went away.
    Lost,
    /// The moment came at which a draining gateway asked to be left.
    Drained,
    /// The gateway asked for one reconnect.
    Directed,
    /// The gateway delivers by poll: the session goes on by requests, under the number of its answer.
    Polls,
    /// The gateway asked that the host be enrolled anew: there is no session with this identity until a person acts.
    Reenrol,
}

impl CloseCause {
    /// The code by which a side refused to go on, if one did.
    #[must_use]
    pub const fn refusal(self) -> Option<RefusalCode> {
        match self {
            Self::Ours(code) | Self::Theirs { code, .. } => Some(code),
            Self::Lost | Self::Drained | Self::Directed | Self::Polls | Self::Reenrol => None,
        }
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(code) => write!(f, "this host ended it: {code}"),
            Self::Theirs { code, retry_after_ms: 0 } => write!(f, "the gateway ended it: {code}"),
            Self::Theirs { code, retry_after_ms } => {
                write!(f, "the gateway ended it: {code}, not again before {retry_after_ms} ms")
            }
            Self::Lost => f.write_str("the connection went away"),
            Self::Drained => f.write_str("the gateway went away"),
            Self::Directed => f.write_str("the gateway asked for a new one"),
            Self::Polls => f.write_str("the gateway delivers by poll"),
            Self::Reenrol => f.write_str("an operator asked that this host be enrolled anew"),
        }
    }
}

/// What the shell is to know or do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The session is open.
    Opened(Box<HelloAck>),
    /// Put this into force and report.
    Apply(Box<Apply>),
    /// The gateway will go away; the session ends by itself when it is this host's turn.
    Drain(Drain),
    /// The gateway asks for something; an unknown one is to be logged, no more.
    Directive(DirectiveCode),
    /// The gateway saw something out of the protocol, or this side did.
    Fault {
        /// What.
        code: FaultCode,
        /// About which update.
        update_seq: Option<UpdateSeq>,
    },
    /// An update was refused before it reached the shell, and the gateway is told so by its outcome. The host should know it as well: a gateway that
    /// lies keeps it to itself.
    Refused {
        /// Which part.
        component: Component,
        /// What it named.
        stamp: Stamp,
        /// Why.
        reason: Reason,
    },
    /// Nothing more comes; write what `poll_transmit` still gives and close.
    Closed(CloseCause),
}
