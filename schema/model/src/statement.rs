//! The statements that are signed: exact bytes, so that signer and verifier cannot disagree on what was said.
//!
//! - Fixed width throughout, lists only at the end, and a domain line first: no statement of one kind can be read as another.
//! - Holding bytes is not proof: `holdfast-identity` makes and checks the signatures.

use crate::condition::Condition;
use crate::desired::{Component, Desired, Stamp};
use crate::ids::{AuthorityId, HostId};
use crate::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq, Version};
use crate::report::{HostReport, Times};

const DESIRED: &[u8] = b"holdfast.dev desired state v1\n";
const OUTCOME: &[u8] = b"holdfast.dev outcome v1\n";
const STATUS: &[u8] = b"holdfast.dev host status v1\n";

/// Under whose authority a state was rendered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Authority {
    /// The lineage of the database.
    pub id: AuthorityId,
    /// Which of its lives.
    pub epoch: AuthorityEpoch,
}

/// What the renderer says of one desired state. A gateway carries this and cannot make it.
#[must_use]
pub fn desired_bytes(authority: Authority, desired: &Desired) -> Vec<u8> {
    let mut bytes = DESIRED.to_vec();
    bytes.extend_from_slice(authority.id.uuid().as_bytes());
    bytes.extend_from_slice(&authority.epoch.raw().to_be_bytes());
    bytes.extend_from_slice(desired.host.uuid().as_bytes());
    bytes.push(desired.component.number());
    bytes.extend_from_slice(&desired.stamp.version.raw().to_be_bytes());
    bytes.extend_from_slice(desired.stamp.digest.as_bytes());
    bytes
}

/// How an update ended on the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OutcomeKind {
    /// In force, read back and durable.
    Applied,
    /// Not in force; the last good state is.
    Failed,
    /// Not in force because an explicit local policy is.
    RetainedLocalOverride,
}

impl OutcomeKind {
    /// The number in frames, columns and signed statements; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Applied => 1,
            Self::Failed => 2,
            Self::RetainedLocalOverride => 3,
        }
    }

    /// The outcome with a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Applied),
            2 => Some(Self::Failed),
            3 => Some(Self::RetainedLocalOverride),
            _ => None,
        }
    }

    /// The word in events, conditions and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::RetainedLocalOverride => "retained-local-override",
        }
    }
}

/// What a host says of one update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// Which host says it.
    pub host: HostId,
    /// In which of its sessions.
    pub session_epoch: SessionEpoch,
    /// Of which update of that session.
    pub update_seq: UpdateSeq,
    /// Which part of its state.
    pub component: Component,
    /// How it ended.
    pub kind: OutcomeKind,
    /// What the update named.
    pub wanted: Stamp,
    /// The version that is in force now, if any is.
    pub applied: Option<Stamp>,
}

/// What a host says of one update and of what it saw on the way, as bytes. Messages are for people and are not covered.
#[must_use]
pub fn outcome_bytes(authority: Authority, outcome: &Outcome, conditions: &[Condition]) -> Vec<u8> {
    let mut bytes = OUTCOME.to_vec();
    bytes.extend_from_slice(authority.id.uuid().as_bytes());
    bytes.extend_from_slice(&authority.epoch.raw().to_be_bytes());
    bytes.extend_from_slice(outcome.host.uuid().as_bytes());
    bytes.extend_from_slice(&outcome.session_epoch.raw().to_be_bytes());
    bytes.extend_from_slice(&outcome.update_seq.raw().to_be_bytes());
    bytes.push(outcome.component.number());
    bytes.push(outcome.kind.number());
    bytes.extend_from_slice(&outcome.wanted.version.raw().to_be_bytes());
    bytes.extend_from_slice(outcome.wanted.digest.as_bytes());
    // "Nothing in force" is version 0, which no version is, with a digest of zeros.
    bytes.extend_from_slice(&outcome.applied.map_or(0, |stamp| Version::raw(stamp.version)).to_be_bytes());
    bytes.extend_from_slice(&outcome.applied.map_or([0; 32], |stamp| *stamp.digest.as_bytes()));
    for condition in conditions {
        bytes.extend_from_slice(&[condition.kind.number(), condition.status.number(), condition.reason.number()]);
        bytes.extend_from_slice(&condition.observed_version.map_or(0, Version::raw).to_be_bytes());
    }
    bytes
}

/// As what a host says how it is: each has its place in its session, and one of another session, or an older one, is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StatusPlace {
    /// Which host says it.
    pub host: HostId,
    /// In which of its sessions.
    pub session_epoch: SessionEpoch,
    /// As which of that session; rises by one from 1.
    pub seq: u64,
}

/// What a host says of itself, as bytes. Messages are for people and are not covered.
#[must_use]
pub fn status_bytes(authority: Authority, place: StatusPlace, report: &HostReport) -> Vec<u8> {
    let mut bytes = STATUS.to_vec();
    bytes.extend_from_slice(authority.id.uuid().as_bytes());
    bytes.extend_from_slice(&authority.epoch.raw().to_be_bytes());
    bytes.extend_from_slice(place.host.uuid().as_bytes());
    bytes.extend_from_slice(&place.session_epoch.raw().to_be_bytes());
    bytes.extend_from_slice(&place.seq.to_be_bytes());
    bytes.extend_from_slice(&report.answered.raw().to_be_bytes());
    report.put_bytes(&mut bytes, Times::With);
    bytes
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::condition::{ConditionType, Holds, Reason};
    use crate::digest::Digest;

    #[test]
    fn every_fact_of_an_outcome_changes_the_statement_and_a_message_does_not() {
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let stamp =
            |version| Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(b"body") };
        let outcome = Outcome {
            host: HostId::new(Uuid::from_u128(2)),
            session_epoch: SessionEpoch::from_raw(3),
            update_seq: UpdateSeq::from_raw(4),
            component: Component::Policy,
            kind: OutcomeKind::Applied,
            wanted: stamp(5),
            applied: Some(stamp(5)),
        };
        let condition = Condition {
            kind: ConditionType::Verified,
            status: Holds::True,
            reason: Reason::Done,
            message: String::new(),
            observed_version: Version::from_raw(5),
        };
        let base = outcome_bytes(authority, &outcome, std::slice::from_ref(&condition));
        let outcomes = [
            Outcome { host: HostId::new(Uuid::from_u128(9)), ..outcome },
            Outcome { session_epoch: SessionEpoch::from_raw(9), ..outcome },
            Outcome { update_seq: UpdateSeq::from_raw(9), ..outcome },
            Outcome { component: Component::Settings, ..outcome },
            Outcome { kind: OutcomeKind::Failed, ..outcome },
            Outcome { wanted: stamp(9), ..outcome },
            Outcome { applied: Some(stamp(9)), ..outcome },
            Outcome { applied: None, ..outcome },
        ];
        for other in outcomes {
            assert_ne!(outcome_bytes(authority, &other, std::slice::from_ref(&condition)), base, "{other:?}");
        }
        let conditions = [
            Condition { kind: ConditionType::Applied, ..condition.clone() },
            Condition { status: Holds::Unknown, ..condition.clone() },
            Condition { reason: Reason::ReadBackDiffers, ..condition.clone() },
            Condition { observed_version: None, ..condition.clone() },
        ];
        for other in conditions {
            assert_ne!(outcome_bytes(authority, &outcome, std::slice::from_ref(&other)), base, "{other:?}");
        }
        assert_ne!(outcome_bytes(authority, &outcome, &[]), base);
        let retold = Condition { message: "for people".to_owned(), ..condition };
        assert_eq!(outcome_bytes(authority, &outcome, &[retold]), base);
    }
}
