//! Events, hints and subjects: what one process of Holdfast tells another, and what every change leaves behind.
//!
//! - An event is a fact, committed with the state that it explains; every column of every projection can be folded from events and artifacts alone.
//! - A hint says "look again" and carries ids and versions only; losing one costs time, never correctness.
//! - A directive asks something of one host's session, now or not at all; nothing of it is kept.
//! - No type here can hold a secret (A5): see [`SecretFree`].
//!
//! It does not store (`holdfast-store`) and does not publish (`holdfast-bus`).

mod actor;
mod cloud_event;
mod codes;
mod directive;
mod event;
mod hint;
mod hint_numbers;
mod keys;
mod place;
mod record;
pub mod relay;
mod secret_free;
mod subject;
mod text;

pub use actor::{Actor, ActorError};
pub use cloud_event::{CloudEvent, CloudEventError, DATA_CONTENT_TYPE, EVENT_CONTENT_TYPE, SPEC_VERSION, TYPE_PREFIX};
pub use codes::{
    CloseReason, CodeError, EnrolmentRefusal, Fault, HaltReason, NamespaceScope, OperationState, OperationVerb, Role,
};
pub use directive::{Directive, DirectiveError, DirectiveKind};
pub use event::{
    ApiTokenCreated, ApiTokenRevoked, AuthorityCreated, AuthorityEpochRaised, AuthorityRollbackConfirmed,
    CONFIRMED_HOSTS_MAX, CertificateIssued, CertificateRequested, ClaimedState, DesiredState, DriftContended,
    DriftFound, DriftRepaired, DriftSettled, EnrolTokenCreated, EnrolTokenRevoked, EnrolmentRefused,
    EnrolmentRequested, Event, EventError, HALTED_HOSTS_MAX, HostAddressesChanged, HostDecommissioned, HostDirected,
    HostEnrolled, Kind, LeaseAcquired, ObjectDeleted, ObjectPut, OperationAccepted, OperationFinished, OutcomeRecorded,
    ProtocolFault, RENDERED_STATES_MAX, RenderCommitted, RenderDesired, RenderSignedAgain, RenderedLetGo,
    RolloutAborted, RolloutFinished, RolloutHalted, RolloutPaused, RolloutResumed, RolloutStage, RolloutStageOpened,
    RolloutStaged, RolloutStarted, STAGED_HOSTS_MAX, SessionClosed, SessionContested, SessionOpened, SnapshotSent,
    StatusRecorded,
};
pub use hint::{HOST_HINT_ENTRIES_MAX, Hint, HintError, HostHint};
pub use hint_numbers::HintNumbers;
pub use keys::{KeyTextError, SignatureBytes, VerifyingKeyBytes};
pub use place::{Content, ContentError, INLINE_BYTES_MAX};
pub use record::{DATA_BYTES_MAX, EVENT_BYTES_MAX, NumberedRecord, Record};
pub use secret_free::{SecretFree, require_secret_free};
pub use subject::{
    DIRECTIVE_PREFIX, EVENT_PREFIX, HINT_PREFIX, SubjectError, aggregate_of, event_filter, event_subject, kind_of,
};
pub use text::{AgentVersion, Detail, Label128, ProcessName, TextError};
