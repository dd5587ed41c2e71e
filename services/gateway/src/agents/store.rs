//! What the agents' door needs of the authority, and nothing more.
//!
//! - Every call of the session path takes arrays: what many sessions need at once is one statement.
//! - What is written is fenced by the session_epoch: a session that is no longer its host's newest changes nothing.
//! - Gateways write requests and observations only; the renderer decides.

use std::error::Error as StdError;
use std::time::Duration;

use holdfast_identity::VerifyingKey;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{EventId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch};
use holdfast_model::policy::Body;
use holdfast_model::statement::Authority;
use holdfast_store::request::{Enrolment, RequestAnswer, TokenRefusal};
use holdfast_store::session::{Fact, FactsRecorded, Newest, Opening};
use holdfast_wire::message::SignatureBytes;

/// The authority, as the agents' door sees it.
pub trait AgentsStore: Clone + Send + Sync + 'static {
    /// Why it did not do what it was asked. The door retries and serves on, but for what [`OfAValue`] says.
    type Error: OfAValue + Send + Sync + 'static;

    /// Issues a session_epoch to each host that may have a session, in the order of `openings`.
    fn open_sessions(&self, openings: Vec<Opening>) -> impl Future<Output = Result<Vec<Admitted>, Self::Error>> + Send;

    /// The current desired states of these, each from one row; what was never rendered is left out.
    fn load_desired(
        &self,
        wanted: Vec<(HostId, Component)>,
    ) -> impl Future<Output = Result<Vec<DesiredRow>, Self::Error>> + Send;

    /// The number of the newest session of each of these hosts, zero before the first; one that is not enrolled is left out.
    fn load_newest_sessions(
        &self,
        hosts: Vec<HostId>,
    ) -> impl Future<Output = Result<Vec<(HostId, SessionEpoch)>, Self::Error>> + Send;

    /// The bodies with these digests; what is not there is left out.
    fn load_bodies(
        &self,
        digests: Vec<(Component, Digest)>,
    ) -> impl Future<Output = Result<Vec<(Digest, StoredBody)>, Self::Error>> + Send;

    /// The newest session and versions of each of these hosts, and the authority that this door speaks for, by one query.
    fn compare(&self, hosts: Vec<HostId>) -> impl Future<Output = Result<Newest, Self::Error>> + Send;

    /// Records facts in one transaction with the events that they are, and says whose session is no longer theirs: what those said was left
    /// out. Recording the same facts again changes nothing.
    fn record(&self, facts: Vec<Fact>) -> impl Future<Output = Result<FactsRecorded, Self::Error>> + Send;

    /// The authority that this door speaks for.
    fn load_authority(&self) -> impl Future<Output = Result<Authority, Self::Error>> + Send;

    /// Uses a token once and leaves a request for the renderer.
    fn request_enrolment(
        &self,
        enrolment: Enrolment,
    ) -> impl Future<Output = Result<Result<(EventId, HostId), TokenRefusal>, Self::Error>> + Send;

    /// Leaves a request for another certificate of an enrolled host.
    fn request_certificate(
        &self,
        host: HostId,
        csr: Vec<u8>,
    ) -> impl Future<Output = Result<EventId, Self::Error>> + Send;

    /// How far requests are.
    fn load_answers(
        &self,
        requests: Vec<EventId>,
    ) -> impl Future<Output = Result<Vec<(EventId, RequestAnswer)>, Self::Error>> + Send;

    /// Claims or keeps this process's lease for this long; false while it cannot be had.
    fn hold_lease(&self, ttl: Duration) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Gives the lease back.
    fn release_lease(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What it says of an array that was refused whole.
pub trait OfAValue: StdError {
    /// Whether something in it is what can never be written: without it, the rest can.
    fn is_of_a_value(&self) -> bool;
}

/// Whether a session may begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// It may.
    Session {
        /// The namespace of its host.
        namespace: Name,
        /// Its number.
        session_epoch: SessionEpoch,
        /// For whom the gateway speaks.
        authority: Authority,
        /// The key of the host's outcomes.
        outcome_key: VerifyingKey,
        /// Whether the renderer may have to look at the host before it gets anything: it is between two lives of the authority.
        is_between_lives: bool,
    },
    /// Two agents have its identity, and the other one has the session for so many milliseconds more.
    Contested {
        /// When to come back.
        retry_after_ms: u32,
    },
    /// No such host is enrolled.
    HostUnknown,
    /// The certificate is none of this host's.
    CertificateUnknown,
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
    /// The life of the authority that the signature names.
    pub authority_epoch: AuthorityEpoch,
    /// The host's newest session: an older one gets nothing.
    pub newest_session: SessionEpoch,
}

/// A body as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredBody {
    /// A policy, put together from its tree, every digest checked.
    Policy(Body),
    /// Any other component, whole.
    Whole(Vec<u8>),
}
