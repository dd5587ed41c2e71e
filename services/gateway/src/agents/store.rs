//! What the agents' door needs of the authority, and nothing more.
//!
//! - Every call of the session path takes arrays: what many sessions need at once is one statement.
//! - What is written is fenced by the session_epoch: a session that is no longer its host's newest changes nothing.
//! - Gateways write requests and observations only; the renderer decides.

use std::error::Error as StdError;
use std::net::IpAddr;

use holdfast_events::{CloseReason, Fault};
use holdfast_identity::{TokenHash, VerifyingKey};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{EventId, GatewayId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::policy::Body;
use holdfast_model::statement::Authority;
use holdfast_wire::message::{OutcomeReport, SignatureBytes};
use uuid::Uuid;

/// The authority, as the agents' door sees it.
pub trait AgentsStore: Clone + Send + Sync + 'static {
    /// Why it did not do what it was asked. The door retries and serves on; it does not tell kinds apart.
    type Error: StdError + Send + Sync + 'static;

    /// Issues a session_epoch to each host that may have a session, in the order of `opens`.
    fn open_sessions(&self, opens: Vec<SessionOpen>) -> impl Future<Output = Result<Vec<Opening>, Self::Error>> + Send;

    /// The current desired states of these, each from one row; what was never rendered is left out.
    fn load_desired(
        &self,
        wanted: Vec<(HostId, Component)>,
    ) -> impl Future<Output = Result<Vec<DesiredRow>, Self::Error>> + Send;

    /// The bodies with these digests; what is not there is left out.
    fn load_bodies(
        &self,
        digests: Vec<(Component, Digest)>,
    ) -> impl Future<Output = Result<Vec<(Digest, StoredBody)>, Self::Error>> + Send;

    /// The newest session_epoch and versions of each of these hosts, by one query.
    fn compare(&self, hosts: Vec<HostId>) -> impl Future<Output = Result<Vec<HostLatest>, Self::Error>> + Send;

    /// Records facts in order, in one transaction with the events that they are. Says which hosts have a newer session than the facts name:
    /// what those said was left out. Recording the same facts again changes nothing.
    fn record(&self, facts: Vec<Fact>) -> impl Future<Output = Result<Vec<HostId>, Self::Error>> + Send;

    /// Uses a token once and leaves a request for the renderer.
    fn request_enrolment(
        &self,
        demand: EnrolDemand,
    ) -> impl Future<Output = Result<Result<EventId, TokenRefusal>, Self::Error>> + Send;

    /// Leaves a request for another certificate of an enrolled host.
    fn request_certificate(
        &self,
        host: HostId,
        csr: Vec<u8>,
    ) -> impl Future<Output = Result<EventId, Self::Error>> + Send;

    /// How these requests were answered; those that still wait are left out.
    fn load_answers(
        &self,
        requests: Vec<EventId>,
    ) -> impl Future<Output = Result<Vec<(EventId, RequestAnswer)>, Self::Error>> + Send;

    /// Claims or keeps this process's lease; false while it cannot be had.
    fn hold_lease(&self) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Gives the lease back.
    fn release_lease(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A session that wants to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOpen {
    /// Whose, as its certificate proved.
    pub host: HostId,
    /// The serial of that certificate, big-endian.
    pub certificate_serial: Vec<u8>,
    /// Who will hold it.
    pub gateway: GatewayId,
    /// What the agent says of its build.
    pub agent_version: String,
    /// The host's boot.
    pub boot_id: Uuid,
}

/// Whether a session may begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// It may.
    Opened {
        /// Its number.
        session_epoch: SessionEpoch,
        /// For whom the gateway speaks.
        authority: Authority,
        /// The key of the host's outcomes.
        outcome_key: VerifyingKey,
    },
    /// No such host is enrolled.
    HostUnknown,
    /// The certificate is no longer good.
    Revoked,
}

/// One current desired state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesiredRow {
    /// Whose.
    pub host: HostId,
    /// Which part.
    pub component: Component,
    /// Which content.
    pub stamp: Stamp,
    /// The renderer's signature.
    pub signature: SignatureBytes,
}

/// A body as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredBody {
    /// A policy, put together from its tree, every digest checked.
    Policy(Body),
    /// Any other component, whole.
    Whole(Vec<u8>),
}

/// What the authority holds of a host, for a compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLatest {
    /// Whose.
    pub host: HostId,
    /// The newest session that was ever opened.
    pub session_epoch: SessionEpoch,
    /// The newest version of each component that was rendered.
    pub versions: Vec<(Component, Version)>,
}

/// Something that was seen in a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Whose.
    pub host: HostId,
    /// In which session.
    pub session_epoch: SessionEpoch,
    /// What.
    pub seen: Seen,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The host was heard.
    Heard,
    /// An outcome that counts, its signature verified.
    Outcome(Box<OutcomeReport>),
    /// A whole state was written.
    SnapshotSent {
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
        /// As which update.
        update_seq: UpdateSeq,
    },
    /// The peer broke the protocol.
    Fault {
        /// How.
        fault: Fault,
        /// About which update, if about one.
        update_seq: Option<UpdateSeq>,
    },
    /// The host says that it has these addresses: a request, if they are others than before.
    Addresses(Vec<IpAddr>),
    /// The session is over.
    Closed(CloseReason),
}

/// A machine that wants to be a host.
#[derive(Clone, Debug)]
pub struct EnrolDemand {
    /// What it showed.
    pub token: TokenHash,
    /// Who carries it.
    pub gateway: GatewayId,
    /// The name that it asks for.
    pub name: Name,
    /// The addresses that it says it has.
    pub addresses: Vec<IpAddr>,
    /// The key of its outcomes.
    pub outcome_key: VerifyingKey,
    /// Its certificate request, DER.
    pub csr: Vec<u8>,
}

/// Why a token was not taken. One answer for all would be safer against guessing, but 256 bits need no such help and operators need the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenRefusal {
    /// No such token.
    Unknown,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// It was used as often as it may be.
    Spent,
}

/// How the renderer answered a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestAnswer {
    /// A certificate.
    Granted {
        /// For whom.
        host: HostId,
        /// Under which authority.
        authority: Authority,
        /// The certificate and those above it, PEM.
        certificate_chain: String,
    },
    /// No certificate.
    Refused {
        /// Why, as a stable word.
        reason: String,
    },
}
