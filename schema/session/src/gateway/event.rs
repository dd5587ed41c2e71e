//! What the gateway half asks, tells and is told.

use std::sync::Arc;
use std::time::Duration;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::statement::Authority;
use holdfast_wire::code::{FaultCode, RefusalCode};
use holdfast_wire::message::{
    Delivery, DriftReport, Hello, Inventory, OutcomeReport, SessionLimits, SignatureBytes, StatusReport,
};

use crate::limits::{HELLO_TIMEOUT, LIVENESS_INTERVAL};

/// What a gateway gives every session.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a Hello, and its admission by the shell, may take.
    pub hello_timeout: Duration,
    /// How often either side says that it is there.
    pub liveness_interval: Duration,
    /// What a session may carry.
    pub limits: SessionLimits,
    /// Where agents may dial, as `host:port`.
    pub gateways: Vec<String>,
    /// How desired states are brought: by poll, a session ends with its first answer.
    pub delivery: Delivery,
}

impl Config {
    /// The values of the design, with a list of gateways.
    #[must_use]
    pub fn standard(gateways: Vec<String>) -> Self {
        use holdfast_wire::limits::{BODY_BYTES_MAX, BYTES_IN_FLIGHT_MAX, UPDATES_IN_FLIGHT_MAX};
        let limits = SessionLimits {
            body_bytes_max: u32::try_from(BODY_BYTES_MAX).unwrap_or(u32::MAX),
            updates_in_flight_max: u16::try_from(UPDATES_IN_FLIGHT_MAX).unwrap_or(u16::MAX),
            bytes_in_flight_max: u32::try_from(BYTES_IN_FLIGHT_MAX).unwrap_or(u32::MAX),
        };
        Self {
            hello_timeout: HELLO_TIMEOUT,
            liveness_interval: LIVENESS_INTERVAL,
            limits,
            gateways,
            delivery: Delivery::Push,
        }
    }
}

/// The shell's yes to a Hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Issued by the authority for this session.
    pub session_epoch: SessionEpoch,
    /// For whom the gateway speaks.
    pub authority: Authority,
}

/// The question for one component, asked when the socket has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Which part.
    pub component: Component,
    /// What this session wrote last; nothing older may come back. The only base of a delta.
    pub tip: Option<Stamp>,
    /// Whether the whole body is needed even if nothing is newer than the tip.
    pub snapshot: bool,
}

/// The answer to a [`Want`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// There is nothing above the tip, or nothing at all yet.
    Unchanged,
    /// It could not be read; the machine asks again after a while.
    Unavailable,
    /// The current desired state, all of it from one row.
    Current {
        /// Which content.
        stamp: Stamp,
        /// The renderer's signature over it.
        signature: SignatureBytes,
        /// The content.
        supply: Supply,
    },
}

/// The content of an answer.
#[derive(Clone, Debug)]
pub enum Supply {
    /// The digest is that of the tip, so no body was read.
    SameDigest,
    /// The body, shared with every session that has the same, and a way to it from the tip if one was computed.
    Whole {
        /// The flat bytes.
        body: Arc<[u8]>,
        /// Changes that lead there.
        delta: Option<DeltaOffer>,
    },
}

/// Changes between two bodies.
#[derive(Clone, Debug)]
pub struct DeltaOffer {
    /// The digest of the body that they apply to.
    pub base: Digest,
    /// As `holdfast_wire::encode_changes` makes them; shared too.
    pub changes: Arc<[u8]>,
}

/// An answer that contradicts what was asked. Nothing is written and the slot stays as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// Nothing was asked.
    #[error("an answer for {component}, which was not asked for")]
    NotAsked {
        /// Which part.
        component: Component,
    },
    /// The answer is older than what was written.
    #[error("an answer for {component} goes back from version {tip} to {answered}")]
    Backward {
        /// Which part.
        component: Component,
        /// What was written.
        tip: holdfast_model::numbers::Version,
        /// What was answered.
        answered: holdfast_model::numbers::Version,
    },
    /// The version written before came back with another digest.
    #[error("version {version} of {component} has two digests")]
    OtherContent {
        /// Which part.
        component: Component,
        /// Which version.
        version: holdfast_model::numbers::Version,
    },
    /// A body is needed and was not given, or is empty.
    #[error("an answer for {component} without the body that is needed")]
    NoBody {
        /// Which part.
        component: Component,
    },
}

/// How an update travelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Whole.
    Snapshot,
    /// As changes from the tip.
    Delta,
    /// Only the version.
    VersionOnly,
}

/// Why an update was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The session began.
    Connect,
    /// Something newer was rendered.
    Newer,
    /// The update before it failed.
    Recovery,
    /// An operator asked.
    Resend,
}

/// Who saw a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOrigin {
    /// This side, in what the other sent.
    Seen,
    /// The other side, in what this one sent.
    Reported,
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCause {
    /// This side ended it.
    Ours(RefusalCode),
    /// The other side ended it.
    Theirs(RefusalCode),
    /// The connection went away.
    Lost,
    /// It was answered, and goes on by polls.
    Polls,
}

/// What the shell is to know or do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Check identity and revocation, get a session_epoch, then admit or refuse.
    Hello(Box<Hello>),
    /// Read the current desired state and answer.
    Want(Want),
    /// An update was written, down to its last chunk or up to its first.
    Sent {
        /// Its number.
        update_seq: UpdateSeq,
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
        /// How.
        form: Form,
        /// Why.
        cause: Cause,
    },
    /// An outcome that counts.
    Outcome(Box<OutcomeReport>),
    /// The host says what it found in its kernel.
    Drift(Box<DriftReport>),
    /// The host says how it is as a whole.
    Status(Box<StatusReport>),
    /// What it said of itself as a whole is refused: it changes nothing.
    StatusRefused {
        /// Why.
        code: FaultCode,
        /// Whether that is to be told, beside being counted.
        is_told: bool,
    },
    /// The host says what it is.
    Inventory(Box<Inventory>),
    /// Something out of the protocol that the session survives.
    Fault {
        /// What.
        code: FaultCode,
        /// About which message kind.
        message_kind: u16,
        /// About which update.
        update_seq: Option<UpdateSeq>,
        /// Who saw it.
        origin: FaultOrigin,
    },
    /// A body is above the limit of this session and is not sent; a newer version may be.
    Undeliverable {
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
        /// How large it is.
        bytes: usize,
    },
    /// Nothing more comes; write what `poll_transmit` still gives and close.
    Closed(CloseCause),
}
