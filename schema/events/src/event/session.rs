//! Payloads about sessions and what hosts say in them.

use std::net::IpAddr;

use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::ComponentReport;
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
        /// The protocol of the session; absent where it is of polls, and in events of earlier builds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u16>,
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

    /// A host said, and signed, how it is as a whole, and that is something else than before.
    StatusRecorded {
        /// Who says it.
        host: HostId,
        /// In which session.
        session_epoch: SessionEpoch,
        /// As which of that session.
        seq: u64,
        /// The last update of the session that it had answered before.
        answered: UpdateSeq,
        /// The name of what is said, without when it was seen.
        digest: Digest,
        /// Every component with every condition.
        components: Vec<ComponentReport>,
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

// Messages of conditions are bounded text for people, as those of outcomes are.
secret_free!(OutcomeKind, ComponentReport);
entry!(ClaimedState, ComponentReport);

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
