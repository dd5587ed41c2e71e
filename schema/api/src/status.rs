//! The fleet, its hosts and their components, as the one derivation says.

use std::collections::BTreeMap;

use holdfast_model::desired::Component;
use holdfast_model::policy::Mode;
use holdfast_model::silence::Presence;
use holdfast_model::status::{Counts, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::authority::HeldBackView;
use crate::brake::Acknowledgement;
use crate::rollout::HeldView;

/// How far a revision is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RevisionState {
    /// Accepted; not yet rendered for every host.
    Published,
    /// On its way to some host.
    Progressing,
    /// Proven on every host.
    Converged,
    /// Applied on every host; on some a condition that does not block is false.
    Degraded,
    /// Some host did not take it.
    Failed,
    /// Some host cannot say, or there is none.
    Unknown,
}

impl RevisionState {
    /// The word in JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Progressing => "progressing",
            Self::Converged => "converged",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<State> for RevisionState {
    fn from(state: State) -> Self {
        match state {
            State::Converged => Self::Converged,
            State::Degraded => Self::Degraded,
            State::Progressing => Self::Progressing,
            State::Failed => Self::Failed,
            State::Unknown => Self::Unknown,
        }
    }
}

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    /// Applied on every host, proven or not.
    Applied,
    /// Proven on every host.
    #[default]
    Converged,
}

impl WaitFor {
    /// The word in JSON and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Converged => "converged",
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitEnd {
    /// What was waited for is so.
    Reached,
    /// Some host did not take it, and stayed so.
    Failed,
    /// The time is over; ask again.
    TimeOver,
}

/// How many hosts are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HostCounts {
    /// All of them.
    pub total: u64,
    /// Proven to hold the latest version.
    pub converged: u64,
    /// Hold it, but a condition that does not block is false.
    pub degraded: u64,
    /// On their way.
    pub progressing: u64,
    /// Did not take it; hold their last good one.
    pub failed: u64,
    /// Not known.
    pub unknown: u64,
}

impl From<Counts> for HostCounts {
    fn from(counts: Counts) -> Self {
        let Counts { total, converged, degraded, progressing, failed, unknown } = counts;
        Self { total, converged, degraded, progressing, failed, unknown }
    }
}

/// How many hosts are to be in each mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ModeCounts {
    /// What the rules do not allow is dropped.
    pub enforced: u64,
    /// What would be dropped is counted.
    pub simulation: u64,
    /// Nothing is dropped.
    pub visibility: u64,
}

impl ModeCounts {
    /// Takes in one host.
    pub fn add(&mut self, mode: Mode) {
        match mode {
            Mode::Enforced => self.enforced += 1,
            Mode::Simulation => self.simulation += 1,
            Mode::Visibility => self.visibility += 1,
        }
    }

    /// In words, if there are hosts that do not enforce.
    #[must_use]
    pub fn not_enforced(&self) -> Option<String> {
        let Self { enforced, simulation, visibility } = *self;
        let open = simulation + visibility;
        let modes = [(simulation, "simulation"), (visibility, "visibility")];
        let counts = modes.iter().filter(|(count, _)| *count > 0).map(|(count, mode)| format!("{count} in {mode}"));
        let counts: Vec<String> = counts.collect();
        let total = open + enforced;
        let (hosts, do_not) = (if total == 1 { "host" } else { "hosts" }, if open == 1 { "does" } else { "do" });
        (open > 0).then(|| format!("{open} of {total} {hosts} {do_not} not enforce: {}", counts.join(", ")))
    }
}

/// The fleet at its last revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// The revision that this is about: the one that was asked for, else the last.
    pub revision: u64,
    /// How far it is.
    pub state: RevisionState,
    /// The hosts that the token may see.
    pub hosts: HostCounts,
    /// The last revision that there is.
    pub latest_revision: u64,
    /// Up to which revision every host has what it is to have.
    pub rendered_revision: u64,
    /// What a rollout holds back, of the hosts that the token may see, while this revision is later than what they are held at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// In which modes those hosts are to be now; absent where that was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModeCounts>,
    /// How the wait ended, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitEnd>,
}

/// The convergence read of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Sync {
    /// Something of it did not take the latest version.
    Degraded,
    /// No open session.
    Offline,
    /// On its way.
    Pending,
    /// Has the latest version.
    Synced,
}

impl Sync {
    /// The word in JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Degraded => "DEGRADED",
            Self::Offline => "OFFLINE",
            Self::Pending => "PENDING",
            Self::Synced => "SYNCED",
        }
    }
}

/// Which content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StampView {
    /// The version of the component on this host.
    pub version: u64,
    /// The digest of its content.
    pub digest: String,
}

/// One condition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConditionView {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, as a fixed code.
    pub reason: String,
    /// Why, in the agent's words.
    pub message: String,
    /// At which version it was seen.
    pub observed_version: Option<u64>,
    /// `observed`, or `inferred` from something else that was: of a condition that may end by itself only what was observed counts.
    #[serde(default = "observed")]
    pub basis: String,
    /// When it was seen, in RFC 3339 and UTC by the host's own clock; absent where the host has no word for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<String>,
}

fn observed() -> String {
    "observed".to_owned()
}

/// What a host last said, and signed, of itself as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// When it was recorded, in RFC 3339 and UTC.
    pub at: String,
    /// How long ago that was.
    pub age_ms: u64,
    /// The name of what was said.
    pub digest: String,
    /// Whether it is of the host's newest session; one of an earlier one proves nothing.
    pub in_this_session: bool,
    /// Whether its signature is the host's; what is not counts as nothing.
    pub signature_valid: bool,
}

/// Whether a host had its bootstrap: every component whole and in force in its newest session, within a minute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InitializedView {
    /// `complete`, `pending`, `missing`, `failed`, `oversized`, `timed_out` or `mismatched`.
    #[schema(example = "complete")]
    pub outcome: String,
    /// The first component that is not in force; absent if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The same in words.
    pub text: String,
}

/// What a host last said of a component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutcomeView {
    /// `applied`, `failed` or `retained-local-override`.
    pub kind: String,
    /// What the update named.
    pub wanted: StampView,
    /// Why, as a fixed code.
    pub reason: String,
    /// Why, in the agent's words.
    pub detail: String,
    /// When it was recorded, in RFC 3339 and UTC.
    pub at: String,
    /// Whether its signature is the host's; what is not counts as nothing.
    pub signature_valid: bool,
}

/// The first fact that a proof of convergence lacks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MissingView {
    /// Which, as a fixed code.
    #[schema(example = "fresh_session")]
    pub fact: String,
    /// Which condition, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// What is missing, in words.
    pub text: String,
    /// What would satisfy it.
    pub satisfied_by: String,
}

/// One component of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ComponentView {
    /// Which.
    #[schema(value_type = String, example = "policy")]
    pub component: Component,
    /// Its state.
    #[schema(value_type = String, example = "converged")]
    pub state: State,
    /// The first fact that a proof lacks; absent if, and only if, the state is converged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingView>,
    /// What is desired; absent before the first render.
    pub latest: Option<StampView>,
    /// The revision at which that got its content.
    pub latest_revision: Option<u64>,
    /// What the host last said that it holds.
    pub applied: Option<StampView>,
    /// What the host last said.
    pub outcome: Option<OutcomeView>,
    /// Every condition of the last attempt.
    pub conditions: Vec<ConditionView>,
    /// When a whole state was last sent, in RFC 3339 and UTC.
    pub last_snapshot_sent_at: Option<String>,
    /// When the host last said, in any session, that an update of it is in force, in RFC 3339 and UTC; what it claims as a session begins is none.
    #[serde(default)]
    pub last_acked_at: Option<String>,
    /// When it last said that one failed, in RFC 3339 and UTC; a later success does not move it.
    #[serde(default)]
    pub last_apply_failed_at: Option<String>,
    /// Why what is desired does not reach the host: the database was restored or promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBackView>,
}

/// A host's newest session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its number.
    pub session_epoch: u64,
    /// The gateway process that holds or held it.
    pub gateway: String,
    /// What the agent says of its build.
    pub agent_version: String,
    /// When it began, in RFC 3339 and UTC.
    pub opened_at: String,
    /// Whether it is open.
    pub open: bool,
    /// How long ago the host was heard in it; absent if it is not open.
    pub heard_ms_ago: Option<u64>,
}

/// A port under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortView {
    /// The name that policies may use.
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// The port.
    pub port: u16,
}

fn tcp() -> String {
    "tcp".to_owned()
}

/// A kernel that was found to hold something else than it should, by the word of its host's agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DriftView {
    /// How often, since that agent started.
    pub found: u64,
    /// When the last time, in RFC 3339 and UTC.
    pub last_found_at: String,
    /// The process that had written, where the kernel told.
    pub process: Option<String>,
    /// Its number.
    pub pid: Option<u32>,
    /// What differed, in counts.
    pub differed: String,
    /// Whether it was put right since.
    pub repaired: bool,
    /// Whether another tool undoes each repair now: only the slow tick repairs then.
    pub contended: bool,
}

/// One enrolled host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its identity.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels: those of its token, overridden by its Host document.
    pub labels: BTreeMap<String, String>,
    /// Its addresses within its token's scope.
    pub addresses: Vec<String>,
    /// Its declared ports.
    pub ports: Vec<PortView>,
    /// How far its policy is enforced.
    #[schema(value_type = String, example = "enforced")]
    pub mode: Mode,
    /// The state of all its components together.
    #[schema(value_type = String, example = "converged")]
    pub state: State,
    /// The convergence read.
    pub sync: Sync,
    /// When it was enrolled, in RFC 3339 and UTC.
    pub enrolled_at: String,
    /// When it was last heard, in RFC 3339 and UTC.
    pub last_seen_at: Option<String>,
    /// What its silence makes of it: `present`, `silent` after 45 s, `lost` after 10 minutes unless most of the fleet is silent, or `never` heard. A
    /// time in which the control plane itself was away is no silence.
    #[schema(value_type = String, example = "present")]
    pub presence: Presence,
    /// When a whole state of any component was last sent to it, whatever for, in RFC 3339 and UTC; null if none ever was.
    #[serde(default)]
    pub last_snapshot_sent_at: Option<String>,
    /// When it last said that an update of any component is in force, in RFC 3339 and UTC; null if it never did.
    #[serde(default)]
    pub last_acked_at: Option<String>,
    /// When it last said that one of any component failed, in RFC 3339 and UTC; null if it never did. A later success does not move it.
    #[serde(default)]
    pub last_apply_failed_at: Option<String>,
    /// Its newest session.
    pub session: Option<SessionView>,
    /// Every component.
    pub components: Vec<ComponentView>,
    /// What its agent found in its kernel; absent if that was always what it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftView>,
    /// What holds it at an earlier revision than the last, if a rollout does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// What it last said of itself as a whole; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    /// The first column of the database that holds something of it that cannot be read: nothing of it is believed then. Absent if all can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Whether it had its bootstrap; absent from gateways of an earlier build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialized: Option<InitializedView>,
}

/// A host is to be taken out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecommissionHost {
    /// Why, for the audit log; at most 1,024 bytes.
    #[serde(default)]
    pub because: String,
    /// That it is meant to take as much away from its peers as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledgement>,
}

/// A host was taken out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecommissionedHost {
    /// Which host.
    pub host: String,
    /// What it was called, as `namespace/name`; the name is free again.
    pub name: String,
    /// The revision that this is.
    pub revision: u64,
    /// The operation that made it: it ends when every peer of the host is rid of it.
    pub operation: String,
    /// What does not happen at once, such as peers that a rollout holds at an earlier revision and that go on letting it in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
