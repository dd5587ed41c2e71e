//! Every kind of event, with its payload.
//!
//! - A payload's fields are all [`SecretFree`](crate::SecretFree): a payload that has another does not compile.
//! - A kind's word and the names of a payload's fields are the public surface of the audit log: they are added to, never changed.
//! - Numbers of the fold (revision, epochs, versions) are in the payload; the time, the actor and the cause are in the record around it.

mod drift;
mod host;
mod intent;
mod render;
mod rollout;
mod session;
mod token;

use std::fmt;
use std::str::FromStr;

pub use drift::{DriftContended, DriftFound, DriftRepaired, DriftSettled};
pub use host::{
    CertificateIssued, CertificateRequested, EnrolmentRefused, EnrolmentRequested, HostAddressesChanged,
    HostDecommissioned, HostDirected, HostEnrolled,
};
pub use intent::{ObjectDeleted, ObjectPut, OperationAccepted, OperationFinished};
pub use render::{
    AuthorityCreated, AuthorityEpochRaised, AuthorityRollbackConfirmed, CONFIRMED_HOSTS_MAX, DesiredState,
    LeaseAcquired, RENDERED_STATES_MAX, RenderCommitted, RenderDesired, RenderSignedAgain, RenderedLetGo,
};
pub use rollout::{
    HALTED_HOSTS_MAX, RolloutAborted, RolloutFinished, RolloutHalted, RolloutPaused, RolloutResumed, RolloutStage,
    RolloutStageOpened, RolloutStaged, RolloutStarted, STAGED_HOSTS_MAX,
};
pub use session::{
    ClaimedState, OutcomeRecorded, ProtocolFault, SessionClosed, SessionContested, SessionOpened, SnapshotSent,
    StatusRecorded,
};
pub use token::{ApiTokenCreated, ApiTokenRevoked, EnrolTokenCreated, EnrolTokenRevoked};

use crate::codes::CodeError;
use crate::secret_free::secret_free;

/// Why a stored or received event cannot be read, or one that was made cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The kind is not known to this build.
    #[error("the kind of an event cannot be read")]
    Kind(#[from] CodeError),
    /// The payload is not that of its kind.
    #[error("the payload of a `{kind}` event cannot be read")]
    Payload {
        /// The kind.
        kind: Kind,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The payload cannot be written as JSON.
    #[error("the payload of a `{kind}` event cannot be written")]
    Unwritable {
        /// The kind.
        kind: Kind,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The payload is larger than an event may be.
    #[error("the payload of a `{kind}` event has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        /// The kind.
        kind: Kind,
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
}

/// Declares payloads: each field's type must be secret-free.
macro_rules! payloads {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        const _: () = { $(crate::secret_free::require_secret_free::<$type>();)* };
        crate::secret_free::secret_free!($name);
    )+};
}
pub(crate) use payloads;

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($payload:ident) $word:literal,)+) => {
        /// The kinds of events.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])* $name,)+
        }

        /// One fact, with what is known of it.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Event {
            $($(#[$doc])* $name($payload),)+
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word in columns, subjects and commands.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }

        impl Event {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)+ }
            }

            /// Its payload as JSON, within the limit of an event.
            ///
            /// # Errors
            /// [`EventError::TooLarge`]: the content belongs into an artifact, or the list into several events.
            pub fn data(&self) -> Result<serde_json::Value, EventError> {
                let kind = self.kind();
                let data = match self { $(Self::$name(payload) => serde_json::to_value(payload),)+ };
                let data = data.map_err(|source| EventError::Unwritable { kind, source })?;
                crate::record::check_data(kind, &data)?;
                Ok(data)
            }

            /// Reads an event back from its kind and payload.
            ///
            /// # Errors
            /// [`EventError::Payload`] if the payload is not of this kind.
            pub fn read(kind: Kind, data: serde_json::Value) -> Result<Self, EventError> {
                let payload = |source| EventError::Payload { kind, source };
                match kind { $(Kind::$name => serde_json::from_value(data).map(Self::$name).map_err(payload),)+ }
            }
        }

        $(impl From<$payload> for Event {
            fn from(payload: $payload) -> Self {
                Self::$name(payload)
            }
        })+

        const _: () = { $(crate::secret_free::require_secret_free::<$payload>();)+ };
        secret_free!(Event, Kind);
    };
}

events! {
    /// An API token was made.
    ApiTokenCreated(ApiTokenCreated) "token.api.created",
    /// An API token is no longer good.
    ApiTokenRevoked(ApiTokenRevoked) "token.api.revoked",
    /// A database began its life.
    AuthorityCreated(AuthorityCreated) "authority.created",
    /// A database was restored or promoted.
    AuthorityEpochRaised(AuthorityEpochRaised) "authority.epoch.raised",
    /// An operator confirmed that hosts go back.
    AuthorityRollbackConfirmed(AuthorityRollbackConfirmed) "authority.rollback.confirmed",
    /// A host got a certificate.
    CertificateIssued(CertificateIssued) "certificate.issued",
    /// A host asked for a certificate.
    CertificateRequested(CertificateRequested) "certificate.requested",
    /// Another process undoes each repair of a kernel.
    DriftContended(DriftContended) "drift.contended",
    /// A kernel holds something else than it should.
    DriftFound(DriftFound) "drift.found",
    /// A kernel was put right.
    DriftRepaired(DriftRepaired) "drift.repaired",
    /// Nobody undoes repairs of a kernel any more.
    DriftSettled(DriftSettled) "drift.settled",
    /// An enrolment token was made.
    EnrolTokenCreated(EnrolTokenCreated) "token.enrol.created",
    /// An enrolment token is no longer good.
    EnrolTokenRevoked(EnrolTokenRevoked) "token.enrol.revoked",
    /// A machine used an enrolment token and was not taken.
    EnrolmentRefused(EnrolmentRefused) "enrolment.refused",
    /// A machine used an enrolment token.
    EnrolmentRequested(EnrolmentRequested) "enrolment.requested",
    /// A host is elsewhere.
    HostAddressesChanged(HostAddressesChanged) "host.addresses.changed",
    /// A host was taken out.
    HostDecommissioned(HostDecommissioned) "host.decommissioned",
    /// An operator asked something of a host's session.
    HostDirected(HostDirected) "host.directed",
    /// A machine became a host.
    HostEnrolled(HostEnrolled) "host.enrolled",
    /// A lease has a new holder.
    LeaseAcquired(LeaseAcquired) "lease.acquired",
    /// An authored object went out of force.
    ObjectDeleted(ObjectDeleted) "intent.object.deleted",
    /// An authored object came into force, in place of the one of its name.
    ObjectPut(ObjectPut) "intent.object.put",
    /// A change was accepted.
    OperationAccepted(OperationAccepted) "operation.accepted",
    /// An operation came to its end.
    OperationFinished(OperationFinished) "operation.finished",
    /// A host said how an update ended.
    OutcomeRecorded(OutcomeRecorded) "outcome.recorded",
    /// A peer broke the protocol.
    ProtocolFault(ProtocolFault) "protocol.fault",
    /// A render was committed, whether it changed anything or not.
    RenderCommitted(RenderCommitted) "render.committed",
    /// Desired states have new content.
    RenderDesired(RenderDesired) "render.desired",
    /// Desired states are signed in a new life of the authority, unchanged.
    RenderSignedAgain(RenderSignedAgain) "render.signed_again",
    /// What a rollout changed is as it was before.
    RolloutAborted(RolloutAborted) "rollout.aborted",
    /// Every host has what a rollout changed.
    RolloutFinished(RolloutFinished) "rollout.finished",
    /// A rollout opens no further stage, because of what is seen of its hosts.
    RolloutHalted(RolloutHalted) "rollout.halted",
    /// An operator wants no further stage to open.
    RolloutPaused(RolloutPaused) "rollout.paused",
    /// An operator wants a rollout to go on.
    RolloutResumed(RolloutResumed) "rollout.resumed",
    /// A stage of a rollout opened.
    RolloutStageOpened(RolloutStageOpened) "rollout.stage_opened",
    /// Who is in a stage of a rollout.
    RolloutStaged(RolloutStaged) "rollout.staged",
    /// A change began to go through the fleet in stages.
    RolloutStarted(RolloutStarted) "rollout.started",
    /// A session ended.
    SessionClosed(SessionClosed) "session.closed",
    /// Two agents have one identity.
    SessionContested(SessionContested) "session.contested",
    /// A session began.
    SessionOpened(SessionOpened) "session.opened",
    /// A whole state was written to a session.
    SnapshotSent(SnapshotSent) "session.snapshot_sent",
    /// A host is otherwise than before, by its own word.
    StatusRecorded(StatusRecorded) "status.recorded",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = CodeError;

    fn from_str(word: &str) -> Result<Self, CodeError> {
        let unknown = || CodeError { what: "kind of event", word: word.chars().take(64).collect() };
        Self::ALL.iter().copied().find(|kind| kind.word() == word).ok_or_else(unknown)
    }
}

impl Event {
    /// The id of the one thing that it is about, or the word `fleet`.
    #[must_use]
    pub fn aggregate(&self) -> String {
        match self {
            Self::ApiTokenCreated(e) => e.token.to_string(),
            Self::ApiTokenRevoked(e) => e.token.to_string(),
            Self::AuthorityCreated(e) => e.authority.to_string(),
            Self::CertificateIssued(e) => e.host.to_string(),
            Self::CertificateRequested(e) => e.host.to_string(),
            Self::DriftContended(e) => e.host.to_string(),
            Self::DriftFound(e) => e.host.to_string(),
            Self::DriftRepaired(e) => e.host.to_string(),
            Self::DriftSettled(e) => e.host.to_string(),
            Self::EnrolTokenCreated(e) => e.token.to_string(),
            Self::EnrolTokenRevoked(e) => e.token.to_string(),
            Self::EnrolmentRefused(e) => e.host.to_string(),
            Self::EnrolmentRequested(e) => e.host.to_string(),
            Self::HostAddressesChanged(e) => e.host.to_string(),
            Self::HostDecommissioned(e) => e.host.to_string(),
            Self::HostDirected(e) => e.host.to_string(),
            Self::HostEnrolled(e) => e.host.to_string(),
            Self::ObjectDeleted(e) => e.object.to_string(),
            Self::ObjectPut(e) => e.object.to_string(),
            Self::OperationAccepted(e) => e.operation.to_string(),
            Self::OperationFinished(e) => e.operation.to_string(),
            Self::OutcomeRecorded(e) => e.host.to_string(),
            Self::ProtocolFault(e) => e.host.to_string(),
            Self::RolloutAborted(e) => e.rollout.to_string(),
            Self::RolloutFinished(e) => e.rollout.to_string(),
            Self::RolloutHalted(e) => e.rollout.to_string(),
            Self::RolloutPaused(e) => e.rollout.to_string(),
            Self::RolloutResumed(e) => e.rollout.to_string(),
            Self::RolloutStageOpened(e) => e.rollout.to_string(),
            Self::RolloutStaged(e) => e.rollout.to_string(),
            Self::RolloutStarted(e) => e.rollout.to_string(),
            Self::SessionClosed(e) => e.host.to_string(),
            Self::SessionContested(e) => e.host.to_string(),
            Self::SessionOpened(e) => e.host.to_string(),
            Self::SnapshotSent(e) => e.host.to_string(),
            Self::StatusRecorded(e) => e.host.to_string(),
            Self::AuthorityEpochRaised(_)
            | Self::AuthorityRollbackConfirmed(_)
            | Self::LeaseAcquired(_)
            | Self::RenderCommitted(_)
            | Self::RenderDesired(_)
            | Self::RenderSignedAgain(_) => "fleet".to_owned(),
        }
    }

    /// The ids of everything that it is about, for the column that is searched; sorted and unique.
    #[must_use]
    pub fn subjects(&self) -> Vec<String> {
        let mut ids = match self {
            Self::RenderDesired(e) => e.states.iter().map(|state| state.host.to_string()).collect(),
            Self::RenderSignedAgain(e) => e.states.iter().map(|state| state.host.to_string()).collect(),
            Self::AuthorityRollbackConfirmed(e) => e.hosts.iter().map(ToString::to_string).collect(),
            Self::RolloutHalted(e) => e.hosts.iter().map(ToString::to_string).chain([e.rollout.to_string()]).collect(),
            Self::RolloutStaged(e) => e.hosts.iter().map(ToString::to_string).chain([e.rollout.to_string()]).collect(),
            Self::RolloutStarted(e) => vec![e.rollout.to_string(), e.operation.to_string()],
            Self::EnrolmentRequested(e) => vec![e.host.to_string(), e.token.to_string()],
            Self::HostEnrolled(e) => vec![e.host.to_string(), e.token.to_string()],
            Self::SessionOpened(e) => vec![e.host.to_string(), e.gateway.to_string()],
            Self::AuthorityEpochRaised(_) | Self::LeaseAcquired(_) | Self::RenderCommitted(_) => Vec::new(),
            Self::ApiTokenCreated(_)
            | Self::ApiTokenRevoked(_)
            | Self::AuthorityCreated(_)
            | Self::CertificateIssued(_)
            | Self::CertificateRequested(_)
            | Self::DriftContended(_)
            | Self::DriftFound(_)
            | Self::DriftRepaired(_)
            | Self::DriftSettled(_)
            | Self::EnrolTokenCreated(_)
            | Self::EnrolTokenRevoked(_)
            | Self::EnrolmentRefused(_)
            | Self::HostAddressesChanged(_)
            | Self::HostDecommissioned(_)
            | Self::HostDirected(_)
            | Self::ObjectDeleted(_)
            | Self::ObjectPut(_)
            | Self::OperationAccepted(_)
            | Self::OperationFinished(_)
            | Self::OutcomeRecorded(_)
            | Self::ProtocolFault(_)
            | Self::RolloutAborted(_)
            | Self::RolloutFinished(_)
            | Self::RolloutPaused(_)
            | Self::RolloutResumed(_)
            | Self::RolloutStageOpened(_)
            | Self::SessionClosed(_)
            | Self::SessionContested(_)
            | Self::SnapshotSent(_)
            | Self::StatusRecorded(_) => vec![self.aggregate()],
        };
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

#[cfg(test)]
pub(crate) mod tests;
