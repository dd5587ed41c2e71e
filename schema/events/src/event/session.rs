//! Payloads about sessions and what hosts say in them.

use std::net::IpAddr;

use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::statement::OutcomeKind;
use uuid::Uuid;

use super::payloads;
use crate::codes::{CloseReason, Fault};
use crate::keys::SignatureBytes;
use crate::secret_free::{entry, secret_free};
use crate::text::{AgentVersion, Detail};

payloads! {
    /// A session began; an older one of the same host has ended.
    SessionOpened {
        /// Whose.
        host: HostId,
        /// Its number, which rises per host.
        session_epoch: SessionEpoch,
        /// The gateway process that holds it.
        gateway: GatewayId,
        /// What the agent says of its build.
        agent_version: AgentVersion,
        /// The host's boot, as its kernel names it.
        boot_id: Uuid,
        /// What the agent says that it holds, each part once: its word, and no proof. Events of earlier builds do not have it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        applied: Vec<ClaimedState>,
    }

    /// What an agent says that it holds of one part.
    ClaimedState {
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
    }

    /// Two agents that live have the identity of one host: they took its session from each other in turn.
    SessionContested {
        /// Which host.
        host: HostId,
        /// The session that one of them took just now.
        session_epoch: SessionEpoch,
        /// The boot that this one names.
        boot_id: Uuid,
        /// From where it comes, as its gateway sees it.
        address: IpAddr,
        /// The boot that the other one names.
        other_boot_id: Uuid,
        /// From where that one came.
        other_address: IpAddr,
    }

    /// A session ended.
    SessionClosed {
        /// Whose.
        host: HostId,
        /// Its number.
        session_epoch: SessionEpoch,
        /// Why.
        reason: CloseReason,
    }

    /// A whole state was written to a session.
    SnapshotSent {
        /// To whom.
        host: HostId,
        /// In which session.
        session_epoch: SessionEpoch,
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
        /// As which update.
        update_seq: UpdateSeq,
    }

    /// A host said how an update ended, and signed it.
    OutcomeRecorded {
        /// Who says it.
        host: HostId,
        /// In which session.
        session_epoch: SessionEpoch,
        /// Of which update.
        update_seq: UpdateSeq,
        /// Of which part.
        component: Component,
        /// How it ended.
        #[serde(with = "outcome_kind")]
        kind: OutcomeKind,
        /// What the update named.
        wanted: Stamp,
        /// What is in force now, if anything is.
        applied: Option<Stamp>,
        /// Why, as a code.
        reason: Reason,
        /// Why, in the agent's words.
        detail: Detail,
        /// Every condition of the attempt.
        conditions: Vec<Condition>,
        /// The host's word for it.
        signature: SignatureBytes,
    }

    /// A peer broke the protocol; what it said has changed nothing.
    ProtocolFault {
        /// Who.
        host: HostId,
        /// In which session.
        session_epoch: SessionEpoch,
        /// How.
        fault: Fault,
        /// About which part, if about one.
        component: Option<Component>,
        /// About which update, if about one.
        update_seq: Option<UpdateSeq>,
    }
}

secret_free!(OutcomeKind);
entry!(ClaimedState);

/// The serialized form of an [`OutcomeKind`] is its word.
mod outcome_kind {
    use holdfast_model::statement::OutcomeKind;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(kind: &OutcomeKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.word())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutcomeKind, D::Error> {
        let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let mut all = (0..=u8::MAX).filter_map(OutcomeKind::from_number);
        all.find(|kind| kind.word() == word).ok_or_else(|| de::Error::custom("no outcome"))
    }
}
