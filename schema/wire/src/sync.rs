//! Poll: JSON over HTTPS on the agents' door, for gateways that deliver by it, odd networks and `curl`.
//!
//! - `POST` [`SYNC_PATH`] with the host's certificate. What is said is what a session says: the same signatures over the same statements, the same
//!   numbers of updates, outcomes that count for the session_epoch that the authority issued.
//! - A field that a side does not know is passed over, so that builds of different age speak with each other.
//! - Bounds stand here, with their arithmetic.

use std::net::IpAddr;

use holdfast_model::condition::Condition;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::drift::{DriftCounts, DriftKind, WRITER_BYTES_MAX};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::{
    ADDRESSES_MAX, AGENT_VERSION_BYTES_MAX, BODY_BYTES_MAX, CONDITIONS_MAX, GATEWAY_BYTES_MAX, GATEWAYS_MAX,
    HOSTNAME_BYTES_MAX, KERNEL_BYTES_MAX, NUMBER_MAX, TEXT_BYTES_MAX,
};
use crate::message::Delivery;

/// Where a host polls.
pub const SYNC_PATH: &str = "/agent/v1/sync";
/// The longest wait, and the one where none is named: a host that polls on is heard within the time after which silence counts as absence.
pub const SYNC_WAIT_MS_MAX: u32 = 30_000;
/// Outcomes in one request: two for each component.
pub const SYNC_OUTCOMES_MAX: usize = 2 * Component::ALL.len();
/// Reports of drift in one request: one of each kind.
pub const SYNC_DRIFTS_MAX: usize = DriftKind::ALL.len();
/// The largest number of an update that a request may say came last: each component of the answer has one after it.
pub const SYNC_LAST_UPDATE_SEQ_MAX: u64 = NUMBER_MAX - Component::ALL.len() as u64;
/// The largest request. A byte of text may take six in JSON; an outcome has two stamps, a signature and its conditions, each field with its name; a
/// report of drift has eleven numbers.
pub const SYNC_REQUEST_BYTES_MAX: usize = 4 * 1024
    + SYNC_OUTCOMES_MAX * (1024 + CONDITIONS_MAX * (6 * TEXT_BYTES_MAX + 200))
    + SYNC_DRIFTS_MAX * (640 + 6 * WRITER_BYTES_MAX)
    + 6 * (AGENT_VERSION_BYTES_MAX + HOSTNAME_BYTES_MAX + KERNEL_BYTES_MAX)
    + ADDRESSES_MAX * 48;
/// The largest answer: bodies of one largest body together, four bytes for three, and the rest.
pub const SYNC_ANSWER_BYTES_MAX: usize =
    BODY_BYTES_MAX.div_ceil(3) * 4 + 8 * 1024 + Component::ALL.len() * 1024 + GATEWAYS_MAX * (GATEWAY_BYTES_MAX + 3);

/// What a host says when it polls.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncRequest {
    /// The session that this goes on, from the answer before; without it a new one begins, which ends the host's older ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_epoch: Option<SessionEpoch>,
    /// What the agent says of its build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_version: String,
    /// Made once per start of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<Uuid>,
    /// The number of the last update that came in this session; the next ones follow it.
    pub last_update_seq: UpdateSeq,
    /// What came last in this session, per component: nothing is answered until something else is desired.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenState>,
    /// How updates ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<SyncOutcome>,
    /// What the host found in its kernel, the newest of each kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<SyncDrift>,
    /// What the host is now; said once a session, and when it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<SyncInventory>,
    /// How long to wait while nothing changes, at most [`SYNC_WAIT_MS_MAX`], which is meant where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// What came last of a component in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeenState {
    /// Which part.
    pub component: Component,
    /// Which content.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Whether it is in force: its body is then not sent again for a version with the same digest.
    #[serde(default)]
    pub applied: bool,
}

/// How an update ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncOutcome {
    /// Of which update.
    pub update_seq: UpdateSeq,
    /// Which part.
    pub component: Component,
    /// `applied`, `failed` or `retained-local-override`.
    pub kind: String,
    /// What the update named.
    pub wanted: Stamp,
    /// What is in force now, if anything is.
    #[serde(default)]
    pub applied: Option<Stamp>,
    /// What was seen on the way.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The host's, over `holdfast_model::statement::outcome_bytes`, in standard base64.
    pub signature: String,
}

/// What a host found in its kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncDrift {
    /// `found`, `repaired`, `contended` or `settled`.
    pub kind: DriftKind,
    /// Made anew with each start of the agent: totals are counted within one.
    pub instance: Uuid,
    /// How often it happened, with this one; never zero.
    pub total: u64,
    /// How long ago the last one was.
    #[serde(default)]
    pub age_ms: u64,
    /// Who wrote, where the kernel told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What differed.
    #[serde(default)]
    pub counts: DriftCounts,
}

/// What a host says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncInventory {
    /// Its name.
    pub hostname: String,
    /// Its kernel, as it names itself.
    pub kernel: String,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
}

/// What a gateway answers: the whole desired state of the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncAnswer {
    /// Who asked, by its certificate.
    pub host_id: HostId,
    /// For which authority the gateway speaks.
    pub authority_id: AuthorityId,
    /// In which of its lives.
    pub authority_epoch: AuthorityEpoch,
    /// The session that this is of.
    pub session_epoch: SessionEpoch,
    /// How this gateway delivers: an agent that reads `push` dials a session.
    pub delivery: Delivery,
    /// The largest body that travels.
    pub body_bytes_max: u32,
    /// Where else to ask, as `host:port`.
    #[serde(default)]
    pub gateways: Vec<String>,
    /// Every component that was rendered, also those that did not change.
    pub states: Vec<SyncState>,
    /// What is asked of the agent beside: `reconnect`, `re-enrol`; one that it does not know is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<String>,
    /// What was wrong with the request and is passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SyncFault>,
    /// What is desired could not be read: that there are no states says nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

/// The desired state of one component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncState {
    /// Which part.
    pub component: Component,
    /// Which content.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The renderer's, over `holdfast_model::statement::desired_bytes`, in standard base64.
    pub signature: String,
    /// The number of this update, which its outcome names; absent where it was seen already, or where its body has no room in this answer and
    /// comes with the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_seq: Option<UpdateSeq>,
    /// The content in standard base64; absent where the request says that the same digest is in force, or where `update_seq` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// How large a body is that is larger than what travels: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_large_bytes: Option<u64>,
}

/// Something in a request that the gateway passed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncFault {
    /// What, in the words of `FaultCode`.
    pub code: String,
    /// About which update.
    pub update_seq: UpdateSeq,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_request_is_one_and_what_a_later_build_adds_is_passed_over() {
        let empty: SyncRequest = serde_json::from_str("{}").expect("a request");
        assert_eq!(empty, SyncRequest::default());
        assert_eq!(serde_json::from_str::<SyncRequest>(r#"{"of_tomorrow": [1]}"#).expect("a request"), empty);
    }
}
