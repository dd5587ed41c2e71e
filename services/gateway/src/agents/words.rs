//! What a session saw, in the words of events and metrics.

use holdfast_events::{CloseReason, Detail, ProcessName, SignatureBytes};
use holdfast_model::condition::{Holds, Reason};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::statement::Outcome;
use holdfast_session::gateway::{Cause, CloseCause, Form};
use holdfast_store::session as store;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::{DriftReport, OutcomeReport};

use super::gauges;

/// Why a session ended, for those who read events.
///
/// An agent that refuses what its gateway says goes on running and dials again: it did not leave, so nobody may take its host for a stopped one.
pub(super) const fn reason_of(cause: CloseCause, drained: bool) -> CloseReason {
    match cause {
        CloseCause::Lost if drained => CloseReason::Drained,
        // A session that goes on by polls has its end there.
        CloseCause::Lost | CloseCause::Polls => CloseReason::Lost,
        CloseCause::Ours(code) | CloseCause::Theirs(code) => match code {
            RefusalCode::Superseded => CloseReason::Superseded,
            RefusalCode::Draining => CloseReason::GatewayStopped,
            RefusalCode::LivenessLost
            | RefusalCode::AuthorityAway
            | RefusalCode::WrongAuthority
            | RefusalCode::Overloaded => CloseReason::Lost,
            RefusalCode::CertificateRevoked | RefusalCode::CertificateExpired | RefusalCode::HostUnknown => {
                CloseReason::Revoked
            }
            RefusalCode::WrongFirstMessage
            | RefusalCode::DuplicateHello
            | RefusalCode::HelloTimeout
            | RefusalCode::NoCommonProtocol
            | RefusalCode::Malformed
            | RefusalCode::TooLarge
            | RefusalCode::WrongDirection
            | RefusalCode::WrongChunk
            | RefusalCode::WrongSequence
            | RefusalCode::TooManyFaults
            | RefusalCode::Unknown(_) => CloseReason::ProtocolFault,
        },
    }
}

/// What a host signed.
pub(super) const fn statement_of(host: HostId, session_epoch: SessionEpoch, report: &OutcomeReport) -> Outcome {
    Outcome {
        host,
        session_epoch,
        update_seq: report.update_seq,
        component: report.component,
        kind: report.kind,
        wanted: report.wanted,
        applied: report.applied,
    }
}

/// What a host found in its kernel, as it is recorded; counted here, wherever it came from.
pub(super) fn drift_of(report: DriftReport) -> store::DriftSaid {
    let DriftReport { kind, instance, total, age_ms, writer, counts } = report;
    gauges::record_drift(kind);
    let process = writer.map(|writer| (ProcessName::new(&writer.name), writer.pid));
    store::DriftSaid { kind, instance, total, age_ms, process, counts }
}

/// An outcome as it is recorded: the first condition that does not hold says why.
pub(super) fn outcome_of(host: HostId, session_epoch: SessionEpoch, report: OutcomeReport) -> store::OutcomeReport {
    let first = report.conditions.iter().find(|condition| condition.status != Holds::True);
    store::OutcomeReport {
        outcome: statement_of(host, session_epoch, &report),
        reason: first.map_or(Reason::Done, |condition| condition.reason),
        detail: Detail::new(first.map_or("", |condition| &condition.message)),
        signature: SignatureBytes::from_bytes(report.signature),
        conditions: report.conditions,
    }
}

/// How an update is written.
pub(super) const fn form_word(form: Form) -> &'static str {
    match form {
        Form::Snapshot => "snapshot",
        Form::Delta => "delta",
        Form::VersionOnly => "version_only",
    }
}

/// Why an update is written.
pub(super) const fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Connect => "connect",
        Cause::Newer => "newer",
        Cause::Recovery => "recovery",
        Cause::Resend => "resend",
    }
}

/// What a fact is about.
pub(super) const fn seen_word(seen: &store::Seen) -> &'static str {
    match seen {
        store::Seen::Addresses(_) => "addresses",
        store::Seen::Closed(_) => "closed",
        store::Seen::Drift(_) => "drift",
        store::Seen::Fault { .. } => "fault",
        store::Seen::Heard { .. } => "heard",
        store::Seen::Outcome(_) => "outcome",
        store::Seen::SnapshotSent { .. } => "snapshot_sent",
        store::Seen::Status(_) => "status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_an_agent_ends_a_session_over_it_did_not_leave_for_good() {
        for code in RefusalCode::KNOWN {
            assert_ne!(reason_of(CloseCause::Theirs(*code), false), CloseReason::AgentLeft, "{code}");
        }
        assert_eq!(reason_of(CloseCause::Theirs(RefusalCode::WrongAuthority), false), CloseReason::Lost);
        assert_eq!(reason_of(CloseCause::Theirs(RefusalCode::TooManyFaults), false), CloseReason::ProtocolFault);
    }
}
