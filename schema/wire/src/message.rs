//! The messages, in the words of the model.
//!
//! - What is here is valid by type where a type can say so; caps of size are checked when a message is encoded and when it is decoded.
//! - The bytes are made in `v1` and what follows it; nothing here is put into a frame as it stands.

use std::fmt;
use std::net::IpAddr;

use holdfast_model::condition::Condition;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, OutcomeKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::code::{DirectiveCode, FaultCode, RefusalCode};
use crate::negotiate::ProtocolRange;

/// The bytes of a signature; `holdfast-identity` makes and checks them.
pub type SignatureBytes = [u8; 64];

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $number:literal $word:literal,)+) => {
        /// What a frame carries.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])* $name,)+
        }

        impl Kind {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The number in the envelope; never reused.
            #[must_use]
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)+ }
            }

            /// The kind with a number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// The word in errors and logs.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

kinds! {
    /// See [`Hello`].
    Hello 1 "hello",
    /// See [`HelloAck`].
    HelloAck 2 "hello-ack",
    /// See [`Update`].
    Update 3 "update",
    /// See [`Chunk`].
    Chunk 4 "chunk",
    /// See [`OutcomeReport`].
    Outcome 5 "outcome",
    /// See [`Inventory`].
    Inventory 6 "inventory",
    /// See [`Liveness`].
    Liveness 7 "liveness",
    /// See [`Drain`].
    Drain 8 "drain",
    /// See [`Directive`].
    Directive 9 "directive",
    /// See [`Refusal`].
    Refusal 10 "refusal",
    /// See [`Fault`].
    Fault 11 "fault",
    /// See [`DriftReport`].
    Drift 12 "drift",
    /// See [`StatusReport`].
    Status 13 "status",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Agent to gateway, first.
    Hello(Hello),
    /// Gateway to agent, first.
    HelloAck(HelloAck),
    /// Gateway to agent.
    Update(Update),
    /// Gateway to agent, after the update it belongs to.
    Chunk(Chunk),
    /// Agent to gateway.
    Outcome(OutcomeReport),
    /// Agent to gateway.
    Inventory(Inventory),
    /// Both ways.
    Liveness(Liveness),
    /// Gateway to agent.
    Drain(Drain),
    /// Gateway to agent.
    Directive(Directive),
    /// Both ways, last.
    Refusal(Refusal),
    /// Both ways.
    Fault(Fault),
    /// Agent to gateway, from protocol 3 on.
    Drift(DriftReport),
    /// Agent to gateway, from protocol 3 on.
    Status(StatusReport),
    /// A kind that this build does not know; skipped and reported.
    Unknown(
        /// Its number.
        u16,
    ),
}

/// Who dials and what it has. A claim about what is applied is recorded and decides nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The protocols that the agent speaks.
    pub protocols: ProtocolRange,
    /// Its version, for people.
    pub agent_version: String,
    /// Made once per start of the machine.
    pub boot_id: Uuid,
    /// What it holds in force, per component; at most one entry each.
    pub applied: Vec<(Component, Stamp)>,
    /// What it can do beside the least, by number.
    pub capabilities: Vec<u16>,
    /// What it is.
    pub inventory: Inventory,
}

/// What a host says about itself. Nothing of it decides labels, scope or region.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// Its name.
    pub hostname: String,
    /// Its kernel, as it names itself.
    pub kernel: String,
    /// Its own addresses, ascending and unique.
    pub addresses: Vec<IpAddr>,
}

/// The session is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloAck {
    /// Chosen from both ranges.
    pub protocol: u16,
    /// Issued by the authority; only rises per host.
    pub session_epoch: SessionEpoch,
    /// For which authority the gateway speaks.
    pub authority: Authority,
    /// How this gateway brings desired states to its hosts.
    pub delivery: Delivery,
    /// How often either side says that it is there.
    pub liveness_interval_ms: u32,
    /// What this session may carry.
    pub limits: SessionLimits,
    /// Where else to dial, as `host:port`.
    pub gateways: Vec<String>,
}

/// How a gateway brings desired states to its hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// By sessions, as soon as something changes.
    #[default]
    Push,
    /// By answers to `POST /agent/v1/sync`.
    Poll,
}

/// What a session may carry; never above `limits`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// The largest body.
    pub body_bytes_max: u32,
    /// The most updates without an outcome.
    pub updates_in_flight_max: u16,
    /// The most bytes of them.
    pub bytes_in_flight_max: u32,
}

/// A desired state for this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Rises by one with each update of a session; comes back in the outcome.
    pub update_seq: UpdateSeq,
    /// Which part.
    pub component: Component,
    /// Which content comes out.
    pub stamp: Stamp,
    /// The renderer's, over `holdfast_model::statement::desired_bytes`.
    pub signature: SignatureBytes,
    /// How the content travels.
    pub content: UpdateContent,
}

/// How the content of an update travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpdateContent {
    /// Whole, in the chunks that follow.
    Snapshot {
        /// How many bytes they have together.
        bytes_total: u32,
    },
    /// As changes of what this session wrote before.
    Delta {
        /// What they apply to.
        base: Stamp,
        /// As `encode_changes` makes them: shared by all hosts that make this step, so they name none.
        changes: Vec<u8>,
    },
    /// Not at all: the digest is the one held, only the version rises.
    VersionOnly,
}

/// Bytes of a snapshot, in order and without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Of which update.
    pub update_seq: UpdateSeq,
    /// Where the bytes lie in the body.
    pub offset: u32,
    /// Never empty.
    pub bytes: Vec<u8>,
}

/// How an update ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeReport {
    /// Of which update.
    pub update_seq: UpdateSeq,
    /// Which part.
    pub component: Component,
    /// How it ended.
    pub kind: OutcomeKind,
    /// What the update named.
    pub wanted: Stamp,
    /// What is in force now, if anything is.
    pub applied: Option<Stamp>,
    /// What was seen on the way.
    pub conditions: Vec<Condition>,
    /// The host's, over `holdfast_model::statement::outcome_bytes`.
    pub signature: SignatureBytes,
}

/// The sender is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// Rises by one with each from this sender in a session.
    pub counter: u64,
    /// What an agent said last of its host as a whole, by its digest; none before it said anything, from a gateway, and before protocol 3.
    pub status: Option<Digest>,
}

/// The gateway is going away; dial again after a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drain {
    /// Spread over the fleet, so that agents do not come all at once.
    pub reconnect_after_ms: u32,
    /// Where to dial, as `host:port`; empty for the list that the agent has.
    pub gateways: Vec<String>,
}

/// A request beside updates. One that an agent does not know is logged and ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    /// Which.
    pub code: DirectiveCode,
    /// Its argument; its form depends on the code.
    pub argument: Vec<u8>,
}

/// The sender ends the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// Do not dial before; zero where the sender does not mind.
    pub retry_after_ms: u32,
    /// For people; bounded.
    pub detail: String,
}

/// The receiver did something wrong and the session goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What.
    pub code: FaultCode,
    /// About which message kind, by number.
    pub message_kind: u16,
    /// About which update, where it is about one.
    pub update_seq: Option<UpdateSeq>,
}

/// The kernel of this host was found to hold something else than it should, or what became of that.
///
/// Each one has the total of its kind: what is lost, or passed over, is counted by the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriftReport {
    /// What happened.
    pub kind: DriftKind,
    /// Made anew with each start of the agent: totals are counted within one.
    pub instance: Uuid,
    /// How often it happened, with this one; never zero.
    pub total: u64,
    /// How long ago the last one was.
    pub age_ms: u64,
    /// Who wrote, where the kernel told.
    pub writer: Option<Writer>,
    /// What differed.
    pub counts: DriftCounts,
}

/// A process that wrote to the kernel's rulesets, as the kernel told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// Its number.
    pub pid: u32,
    /// Its name, without control characters.
    pub name: String,
}

/// How a host is as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusReport {
    /// Rises by one with each of a session, from 1.
    pub seq: u64,
    /// What is said: complete.
    pub report: HostReport,
    /// The host's, over `holdfast_model::statement::status_bytes`.
    pub signature: SignatureBytes,
}

impl Message {
    /// The number of its kind.
    #[must_use]
    pub const fn kind_number(&self) -> u16 {
        match self {
            Self::Hello(_) => Kind::Hello.number(),
            Self::HelloAck(_) => Kind::HelloAck.number(),
            Self::Update(_) => Kind::Update.number(),
            Self::Chunk(_) => Kind::Chunk.number(),
            Self::Outcome(_) => Kind::Outcome.number(),
            Self::Inventory(_) => Kind::Inventory.number(),
            Self::Liveness(_) => Kind::Liveness.number(),
            Self::Drain(_) => Kind::Drain.number(),
            Self::Directive(_) => Kind::Directive.number(),
            Self::Refusal(_) => Kind::Refusal.number(),
            Self::Fault(_) => Kind::Fault.number(),
            Self::Drift(_) => Kind::Drift.number(),
            Self::Status(_) => Kind::Status.number(),
            Self::Unknown(number) => *number,
        }
    }
}
