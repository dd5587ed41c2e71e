//! What a session does with what a host signed: how updates ended, and how it is as a whole.
//!
//! - What is not the host's own word never reaches the machine as such.
//! - A status that cannot be read, is forged, stale, too often or longer than an agent may send is refused and counted; it is a sign of life, and
//!   ends no session.

use holdfast_events::{Fault as FaultWord, SignatureBytes};
use holdfast_model::statement::{StatusPlace, outcome_bytes, status_bytes};
use holdfast_runtime::fail_point;
use holdfast_session::gateway::FaultOrigin;
use holdfast_store::session::{Seen, StatusSaid};
use holdfast_wire::code::FaultCode;
use holdfast_wire::error::DecodeError;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Delivery, Kind, OutcomeReport, StatusReport};
use holdfast_wire::negotiate::Protocol;

use super::super::words::{outcome_of, statement_of};
use super::{Shell, gauges};

/// What the head of a frame above the cap says.
pub(super) enum LongHead {
    /// Not enough of it is there.
    OnItsWay,
    /// A status, which the rest of the stream goes on without.
    Status,
    /// Anything else, or longer than any frame.
    Other,
}

/// What is wrong with a status that cannot be read.
pub(super) const fn code_of(error: &DecodeError) -> FaultCode {
    match error {
        DecodeError::Protocol { .. }
        | DecodeError::Payload { .. }
        | DecodeError::Trailing { .. }
        | DecodeError::Value { .. }
        | DecodeError::TooLarge { .. } => FaultCode::BadValue,
    }
}

impl Shell {
    pub(super) fn is_genuine(&self, report: &OutcomeReport) -> bool {
        // Before the session is open the machine refuses any outcome by itself.
        let Some(opened) = &self.opened else { return true };
        let outcome = statement_of(self.peer.host, opened.session_epoch, report);
        let signature = holdfast_identity::Signature(report.signature);
        opened.outcome_key.verify(&outcome_bytes(opened.authority, &outcome, &report.conditions), &signature).is_ok()
    }

    pub(super) fn record_outcome(&mut self, report: OutcomeReport) {
        if let Some(opened) = &self.opened {
            tracing::debug!(host = %self.peer.host, component = %report.component, version = %report.wanted.version, "outcome taken");
            fail_point("an outcome", "before it is recorded");
            let outcome = outcome_of(self.peer.host, opened.session_epoch, report);
            self.record(Seen::Outcome(Box::new(outcome)));
        }
    }

    /// Whether a frame is a status, in a session that has a word for it.
    pub(super) fn is_status(&self, protocol: u16, kind: u16) -> bool {
        self.speaks_of_statuses() && self.machine.spoken().has(protocol) && kind == Kind::Status.number()
    }

    fn speaks_of_statuses(&self) -> bool {
        self.machine.is_open() && self.machine.protocol().is_some_and(|one| one >= Protocol::V3)
    }

    /// What to do with a frame above the cap, of which nothing but its length was read so far.
    pub(super) fn head_of_long(&self, bytes: usize) -> LongHead {
        if bytes > FRAME_BYTES_MAX || !self.speaks_of_statuses() {
            return LongHead::Other;
        }
        match self.deframer.peek_envelope() {
            None => LongHead::OnItsWay,
            Some((protocol, kind)) if self.is_status(protocol, kind) => LongHead::Status,
            Some(_) => LongHead::Other,
        }
    }

    /// Passes over a status, which is a sign of life.
    pub(super) fn refuse_status(&mut self, code: FaultCode) {
        self.record_heard();
        self.machine.handle_refused_status(code, self.context.now());
    }

    pub(super) fn is_genuine_status(&self, status: &StatusReport) -> bool {
        // Before the session is open the machine refuses any status by itself.
        let Some(opened) = &self.opened else { return true };
        let place = StatusPlace { host: self.peer.host, session_epoch: opened.session_epoch, seq: status.seq };
        let signature = holdfast_identity::Signature(status.signature);
        opened.outcome_key.verify(&status_bytes(opened.authority, place, &status.report), &signature).is_ok()
    }

    pub(super) fn record_status(&mut self, status: StatusReport) {
        let StatusReport { seq, report, signature } = status;
        tracing::debug!(host = %self.peer.host, seq, "status taken");
        metrics::counter!("holdfast_gateway_statuses_total", "outcome" => "taken").increment(1);
        let signature = SignatureBytes::from_bytes(signature);
        self.record(Seen::Status(Box::new(StatusSaid { seq, report, signature })));
    }

    /// Counts each; a few are told.
    pub(super) fn handle_status_refused(&mut self, code: FaultCode, is_told: bool) {
        gauges::record_fault(FaultOrigin::Seen, code);
        metrics::counter!("holdfast_gateway_statuses_total", "outcome" => code.word()).increment(1);
        if is_told {
            tracing::warn!(host = %self.peer.host, %code, "what a host says of itself as a whole is refused");
            self.record_fault(FaultWord::StatusRefused, None);
        }
    }

    /// The protocol that says what the host can say: none of polls, whose form has no word for reports.
    pub(super) fn reported_protocol(&self) -> Option<u16> {
        let is_push = self.context.session.delivery == Delivery::Push;
        self.machine.protocol().filter(|_| is_push).map(Protocol::number)
    }
}
