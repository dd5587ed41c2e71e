//! The machine of one session on an agent.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_model::condition::{Condition, Reason, bounded};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::mutant::Faults;
#[cfg(feature = "mutants")]
use holdfast_model::mutant::Mutant;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{
    Authority, Outcome, OutcomeKind, StatusPlace, desired_bytes, outcome_bytes, status_bytes,
};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::encode;
use holdfast_wire::error::EncodeError;
use holdfast_wire::limits::{CONDITIONS_MAX, FRAME_BYTES_MAX, TEXT_BYTES_MAX};
use holdfast_wire::message::{
    Chunk, Delivery, Drain, DriftReport, Fault, HelloAck, Inventory, Kind, Liveness as LivenessMessage, Message,
    OutcomeReport, Refusal, StatusReport, Update, UpdateContent,
};
use holdfast_wire::negotiate::{Protocol, ProtocolRange};

use super::assembly::Assembly;
use super::drift::Drifts;
use super::event::{Apply, ApplyResult, CloseCause, Config, Content, Event, Keys};
use super::status::{Reports, Settling};
use super::updates::{Pending, Updates, refused_conditions};
use crate::limits::{
    EVENTS_MAX, FAULTS_MAX, FAULTS_QUEUED_MAX, HELLO_TIMEOUT, LIVENESS_INTERVAL_MAX, LIVENESS_INTERVAL_MIN,
    RETRY_AFTER_MAX,
};
use crate::liveness::Liveness;
use crate::time::{Instant, sooner};

/// The last reason that a gateway of protocol 2 knows, by number.
const REASON_OF_PROTOCOL_2_MAX: u8 = 15;

/// One session, from the first byte to the last.
#[derive(Debug)]
pub struct Session<K> {
    config: Config,
    keys: K,
    seed: u64,
    /// Components that were taken in an earlier life of the authority than the pinned one.
    earlier: Vec<Component>,
    phase: Phase,
    events: VecDeque<Event>,
    faults: Faults,
}

#[derive(Debug)]
enum Phase {
    AwaitAck { until: Instant, is_hello_due: bool },
    Open(Box<Open>),
    Closed { refusal: Option<Refusal> },
}

/// All that a session knows; nothing of it is anywhere else, so it ends with the session.
#[derive(Debug)]
struct Open {
    protocol: Protocol,
    liveness: Liveness,
    liveness_due: Option<u64>,
    session_epoch: SessionEpoch,
    authority: Authority,
    body_bytes_max: usize,
    last_seq: UpdateSeq,
    assembly: Option<Assembly>,
    updates: Updates,
    /// Outcomes that wait for the socket, with the bytes that their updates count.
    outcomes: VecDeque<(OutcomeReport, usize)>,
    inventory_said: Inventory,
    inventory_due: Option<Inventory>,
    drifts: Drifts,
    reports: Reports,
    /// The last update whose outcome was written, or is about to be.
    answered: UpdateSeq,
    faults: VecDeque<Fault>,
    faults_seen: usize,
    leave_at: Option<Instant>,
}

impl<K: Keys> Session<K> {
    /// A session whose connection was just authenticated.
    #[must_use]
    pub fn new(mut config: Config, keys: K, seed: u64, now: Instant) -> Self {
        // A shell may have them as they were put into force, the wire wants one order.
        config.hello.applied.sort_unstable_by_key(|(component, _)| *component);
        let until = now.plus(HELLO_TIMEOUT);
        let phase = Phase::AwaitAck { until, is_hello_due: true };
        Self { config, keys, seed, earlier: Vec::new(), phase, events: VecDeque::new(), faults: Faults::default() }
    }

    /// The same on an agent with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// Compares no versions of these: they were taken in an earlier life of the authority than the pinned one, in which versions may start lower.
    #[must_use]
    pub fn with_earlier(mut self, earlier: Vec<Component>) -> Self {
        self.earlier = earlier;
        self
    }

    /// The largest frame that the gateway may send.
    #[must_use]
    pub const fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    /// The protocols whose frames are read now: all that the Hello offered until its answer chose one.
    #[must_use]
    pub const fn spoken(&self) -> ProtocolRange {
        match &self.phase {
            Phase::AwaitAck { .. } => self.config.hello.protocols,
            Phase::Open(open) => ProtocolRange::only(open.protocol),
            Phase::Closed { .. } => ProtocolRange::only(Protocol::FIRST),
        }
    }

    /// Whether updates may flow.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Whether the session is over; what `poll_transmit` still gives is to be written.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. })
    }

    /// A message of the gateway.
    pub fn handle_message(&mut self, message: Message, now: Instant) {
        if self.events.len() >= EVENTS_MAX {
            return self.handle_close(RefusalCode::Overloaded, "events are not taken");
        }
        if let Message::Refusal(refusal) = &message {
            let (code, retry_after_ms) = (refusal.code, refusal.retry_after_ms);
            return self.end(CloseCause::Theirs { code, retry_after_ms }, None);
        }
        match (&mut self.phase, message) {
            (Phase::Closed { .. }, _) => {}
            (Phase::AwaitAck { .. }, Message::HelloAck(ack)) => self.handle_ack(ack, now),
            (Phase::AwaitAck { .. }, _) => self.handle_close(RefusalCode::WrongFirstMessage, ""),
            (Phase::Open(open), message) => {
                open.liveness.handle_heard(now);
                self.handle_open(message, now);
            }
        }
    }

    fn handle_ack(&mut self, ack: HelloAck, now: Instant) {
        let (pinned, protocols) = (self.config.pinned, self.config.hello.protocols);
        let chosen = Protocol::from_number(ack.protocol).filter(|_| protocols.has(ack.protocol));
        let Some(protocol) = chosen else {
            return self.handle_close(RefusalCode::NoCommonProtocol, "");
        };
        if ack.authority.id != pinned.id || ack.authority.epoch < pinned.epoch {
            return self.handle_close(RefusalCode::WrongAuthority, "");
        }
        if ack.delivery == Delivery::Poll {
            self.events.push_back(Event::Opened(Box::new(ack)));
            return self.end(CloseCause::Polls, None);
        }
        // Versions are compared within one life of the authority only; in a new one they may start lower.
        let same_life = ack.authority.epoch == pinned.epoch;
        let is_compared = |(component, _): &&(Component, Stamp)| same_life && !self.earlier.contains(component);
        let applied: Vec<_> = self.config.hello.applied.iter().filter(is_compared).copied().collect();
        let interval = Duration::from_millis(u64::from(ack.liveness_interval_ms));
        let interval = interval.clamp(LIVENESS_INTERVAL_MIN, LIVENESS_INTERVAL_MAX);
        self.phase = Phase::Open(Box::new(Open {
            protocol,
            liveness: Liveness::new(interval, self.seed, now),
            liveness_due: None,
            session_epoch: ack.session_epoch,
            authority: ack.authority,
            body_bytes_max: usize::try_from(ack.limits.body_bytes_max).unwrap_or(usize::MAX),
            last_seq: UpdateSeq::ZERO,
            assembly: None,
            updates: Updates::new(ack.limits, &applied, self.faults),
            outcomes: VecDeque::new(),
            inventory_said: self.config.hello.inventory.clone(),
            inventory_due: None,
            drifts: Drifts::default(),
            reports: Reports::new(now),
            answered: UpdateSeq::ZERO,
            faults: VecDeque::new(),
            faults_seen: 0,
            leave_at: None,
        }));
        self.events.push_back(Event::Opened(Box::new(ack)));
    }

    fn handle_open(&mut self, message: Message, now: Instant) {
        match message {
            Message::Update(update) => self.handle_update(update),
            Message::Chunk(chunk) => self.handle_chunk(&chunk),
            Message::Liveness(_) => {}
            Message::Drain(drain) => self.handle_drain(drain, now),
            Message::Directive(directive) => {
                self.events.push_back(Event::Directive(directive.code));
                match directive.code {
                    DirectiveCode::Reconnect => self.end(CloseCause::Directed, None),
                    DirectiveCode::Reenrol => self.end(CloseCause::Reenrol, None),
                    DirectiveCode::ReportStatus => self.handle_status_wanted(now),
                    DirectiveCode::Unknown(_) => {
                        self.report_fault(FaultCode::UnknownDirective, Kind::Directive.number());
                    }
                }
            }
            // What a gateway does not take of a status costs that status, and no session.
            Message::Fault(fault) if fault.message_kind == Kind::Status.number() => {
                self.handle_status_refused(now);
                self.events.push_back(Event::Fault { code: fault.code, update_seq: None });
            }
            Message::Fault(fault) => self.count_fault(fault.code, fault.update_seq),
            Message::Unknown(message_kind) => {
                self.report_fault(FaultCode::UnknownKind, message_kind);
            }
            Message::HelloAck(_) => self.handle_close(RefusalCode::DuplicateHello, ""),
            Message::Hello(_)
            | Message::Outcome(_)
            | Message::Inventory(_)
            | Message::Drift(_)
            | Message::Status(_) => {
                self.handle_close(RefusalCode::WrongDirection, "");
            }
            // Taken care of before: it does not reach an open session.
            Message::Refusal(_) => {}
        }
    }

    /// Tells the gateway what was passed over.
    fn report_fault(&mut self, code: FaultCode, message_kind: u16) {
        if let Phase::Open(open) = &mut self.phase
            && open.faults.len() < FAULTS_QUEUED_MAX
        {
            open.faults.push_back(Fault { code, message_kind, update_seq: None });
        }
        self.count_fault(code, None);
    }

    fn count_fault(&mut self, code: FaultCode, update_seq: Option<UpdateSeq>) {
        let Phase::Open(open) = &mut self.phase else { return };
        open.faults_seen += 1;
        let too_many = open.faults_seen > FAULTS_MAX;
        self.events.push_back(Event::Fault { code, update_seq });
        if too_many {
            self.handle_close(RefusalCode::TooManyFaults, "");
        }
    }

    fn handle_drain(&mut self, drain: Drain, now: Instant) {
        let Phase::Open(open) = &mut self.phase else { return };
        let wait = Duration::from_millis(u64::from(drain.reconnect_after_ms)).min(RETRY_AFTER_MAX);
        open.leave_at = Some(now.plus(wait));
        self.events.push_back(Event::Drain(drain));
    }

    fn handle_update(&mut self, update: Update) {
        let Phase::Open(open) = &mut self.phase else { return };
        if open.assembly.is_some() {
            return self.handle_close(RefusalCode::WrongChunk, "an update between the chunks of another");
        }
        if open.last_seq.next() != Some(update.update_seq) {
            return self.handle_close(RefusalCode::WrongSequence, "");
        }
        open.last_seq = update.update_seq;
        let bytes = match &update.content {
            UpdateContent::Snapshot { bytes_total } => usize::try_from(*bytes_total).unwrap_or(usize::MAX),
            UpdateContent::Delta { changes, .. } => changes.len(),
            UpdateContent::VersionOnly => 0,
        };
        if bytes > open.body_bytes_max || !open.updates.has_room(bytes) {
            return self.handle_close(RefusalCode::TooLarge, "more than agreed");
        }
        open.updates.count(bytes);
        let desired = Desired { host: self.config.host, component: update.component, stamp: update.stamp };
        let genuine = self.keys.is_genuine(&desired_bytes(open.authority, &desired), &update.signature);
        let refused = (!genuine).then_some(Reason::BadSignature);
        let content = match &update.content {
            UpdateContent::Snapshot { .. } => {
                open.assembly = Some(Assembly::new(update, bytes, genuine));
                return;
            }
            UpdateContent::Delta { base, changes } => Content::Delta { base: *base, changes: changes.clone() },
            UpdateContent::VersionOnly => Content::VersionOnly,
        };
        open.updates.put(Pending { update, content, refused, bytes });
        self.advance();
    }

    fn handle_chunk(&mut self, chunk: &Chunk) {
        let Phase::Open(open) = &mut self.phase else { return };
        let Some(mut assembly) = open.assembly.take() else {
            return self.handle_close(RefusalCode::WrongChunk, "no snapshot was announced");
        };
        if assembly.put(chunk).is_err() {
            return self.handle_close(RefusalCode::WrongChunk, "a chunk out of place");
        }
        if !assembly.is_whole() {
            open.assembly = Some(assembly);
            return;
        }
        let bytes_total = assembly.bytes_total();
        let refused = (!assembly.is_kept()).then_some(Reason::BadSignature);
        let (update, body) = assembly.take();
        open.updates.put(Pending { update, content: Content::Snapshot(body), refused, bytes: bytes_total });
        self.advance();
    }

    /// Hands the next update to the shell, or answers it where it is refused.
    fn advance(&mut self) {
        loop {
            let Phase::Open(open) = &mut self.phase else { return };
            let Some((pending, refused)) = open.updates.next() else { return };
            let Update { update_seq, component, stamp, signature, .. } = pending.update;
            let Some(reason) = refused else {
                let (authority, content) = (open.authority, pending.content);
                let apply = Apply { update_seq, authority, component, stamp, signature, content };
                return self.events.push_back(Event::Apply(Box::new(apply)));
            };
            let applied = open.updates.held(component);
            let conditions = refused_conditions(reason, stamp);
            self.events.push_back(Event::Refused { component, stamp, reason });
            self.answer(update_seq, component, OutcomeKind::Failed, stamp, applied, conditions, pending.bytes);
            self.report_after_answers();
        }
    }

    /// Whatever was answered, the host is told of as a whole after it.
    fn report_after_answers(&mut self) {
        if let Phase::Open(open) = &mut self.phase {
            open.reports.handle_answered(open.updates.is_working());
        }
    }

    /// How an [`Event::Apply`] went. A result of an earlier session finds no update here and is dropped: that session's gateway will never
    /// hear of it, and the snapshot of this one settles it.
    pub fn handle_result(&mut self, update_seq: UpdateSeq, result: ApplyResult) {
        let Phase::Open(open) = &mut self.phase else { return };
        let ApplyResult { kind, in_force, conditions } = result;
        let Some((component, wanted, bytes)) = open.updates.finish(update_seq, kind, in_force) else { return };
        let applied = match kind {
            OutcomeKind::Applied => Some(wanted),
            OutcomeKind::Failed | OutcomeKind::RetainedLocalOverride => in_force,
        };
        self.answer(update_seq, component, kind, wanted, applied, conditions, bytes);
        self.advance();
        self.report_after_answers();
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one outcome, each of its own type")]
    fn answer(
        &mut self,
        update_seq: UpdateSeq,
        component: Component,
        kind: OutcomeKind,
        wanted: Stamp,
        applied: Option<Stamp>,
        conditions: Vec<Condition>,
        bytes: usize,
    ) {
        let Phase::Open(open) = &mut self.phase else { return };
        let (host, session_epoch) = (self.config.host, open.session_epoch);
        let outcome = Outcome { host, session_epoch, update_seq, component, kind, wanted, applied };
        let protocol = open.protocol;
        let cut = |condition: Condition| Condition {
            message: bounded(&condition.message, TEXT_BYTES_MAX),
            reason: known_to(protocol, condition.reason),
            ..condition
        };
        let conditions: Vec<Condition> = conditions.into_iter().take(CONDITIONS_MAX).map(cut).collect();
        let signature = self.keys.sign(&outcome_bytes(open.authority, &outcome, &conditions));
        let report = OutcomeReport { update_seq, component, kind, wanted, applied, conditions, signature };
        open.answered = update_seq;
        open.outcomes.push_back((report, bytes));
    }

    /// What the host is now. The same as said before is not said again.
    pub fn handle_inventory(&mut self, inventory: Inventory) {
        if let Phase::Open(open) = &mut self.phase {
            open.inventory_due = (inventory != open.inventory_said).then_some(inventory);
        }
    }

    /// What the kernel was found to hold, the newest of its kind. A gateway of an earlier protocol has no word for it and is not told.
    pub fn handle_drift(&mut self, report: DriftReport, now: Instant) {
        if let Phase::Open(open) = &mut self.phase
            && open.protocol >= Protocol::V3
        {
            open.drifts.put(report, now);
        }
    }

    /// How the host is as a whole: to be handed over before the result of an attempt that it tells of. A gateway of an earlier protocol has no word
    /// for it and is not told.
    pub fn handle_status(&mut self, report: HostReport, settling: Settling, now: Instant) {
        if let Phase::Open(open) = &mut self.phase
            && open.protocol >= Protocol::V3
        {
            open.reports.put(report, settling, now);
        }
    }

    fn handle_status_wanted(&mut self, now: Instant) {
        if let Phase::Open(open) = &mut self.phase {
            open.reports.handle_asked(now);
        }
    }

    fn handle_status_refused(&mut self, now: Instant) {
        if let Phase::Open(open) = &mut self.phase {
            open.reports.handle_refused(now);
        }
    }

    fn last_message(&mut self) -> Option<(Kind, Message)> {
        let Phase::Open(open) = &mut self.phase else { return None };
        open.last_message()
    }

    /// Signs what is to be said of the host as a whole: what was written before is what it is newer than.
    fn status_message(&mut self) -> Option<(Kind, Message)> {
        let Phase::Open(open) = &mut self.phase else { return None };
        let (seq, report) = open.reports.next()?;
        let report = HostReport { answered: open.answered, ..report };
        let place = StatusPlace { host: self.config.host, session_epoch: open.session_epoch, seq };
        let signature = self.keys.sign(&status_bytes(open.authority, place, &report));
        Some((Kind::Status, Message::Status(StatusReport { seq, report, signature })))
    }

    /// Ends the session with a word to the gateway.
    pub fn handle_close(&mut self, code: RefusalCode, detail: &str) {
        let refusal = Refusal { code, retry_after_ms: 0, detail: bounded(detail, TEXT_BYTES_MAX) };
        self.end(CloseCause::Ours(code), Some(refusal));
    }

    /// The connection is gone.
    pub fn handle_lost(&mut self) {
        self.end(CloseCause::Lost, None);
    }

    fn end(&mut self, cause: CloseCause, refusal: Option<Refusal>) {
        if !self.is_closed() {
            self.phase = Phase::Closed { refusal };
            self.events.push_back(Event::Closed(cause));
        }
    }

    /// Time went on.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::AwaitAck { until, .. } if now >= *until => self.handle_close(RefusalCode::HelloTimeout, ""),
            Phase::Open(open) => {
                if open.liveness.is_dead(now) {
                    return self.handle_close(RefusalCode::LivenessLost, "");
                }
                if open.leave_at.is_some_and(|at| now >= at) {
                    return self.end(CloseCause::Drained, None);
                }
                if let Some(counter) = open.liveness.poll_send(now) {
                    open.liveness_due = Some(counter);
                }
                open.drifts.handle_timeout(now);
                open.reports.handle_timeout(now);
            }
            Phase::AwaitAck { .. } | Phase::Closed { .. } => {}
        }
    }

    /// When to call [`Self::handle_timeout`] next, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match &self.phase {
            Phase::AwaitAck { until, .. } => Some((*until, "no answer to hello")),
            Phase::Open(open) => {
                let leave = open.leave_at.map(|at| (at, "drained"));
                let said = sooner(open.drifts.poll_timeout(), open.reports.poll_timeout());
                sooner(sooner(open.liveness.poll_timeout(), leave), said)
            }
            Phase::Closed { .. } => None,
        }
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the next frame and says what it is: liveness first, then outcomes, then how the host is after them, then the rest.
    ///
    /// # Errors
    /// [`EncodeError`] if the configuration holds what no frame may carry; the session is over then.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Result<Option<Kind>, EncodeError> {
        let (protocol, message) = match &mut self.phase {
            Phase::AwaitAck { is_hello_due, .. } => {
                let hello = std::mem::take(is_hello_due).then(|| Message::Hello(self.config.hello.clone()));
                (Protocol::FIRST, hello.map(|hello| (Kind::Hello, hello)))
            }
            Phase::Open(open) => {
                let (protocol, first) = (open.protocol, open.first_message());
                let said = first.or_else(|| self.status_message());
                (protocol, said.or_else(|| self.last_message()))
            }
            Phase::Closed { refusal } => {
                (Protocol::FIRST, refusal.take().map(|refusal| (Kind::Refusal, Message::Refusal(refusal))))
            }
        };
        let Some((kind, message)) = message else { return Ok(None) };
        let sent = encode(protocol, &message, out).map(|()| Some(kind));
        if sent.is_err() {
            self.end(CloseCause::Ours(RefusalCode::TooLarge), None);
        }
        sent
    }
}

/// A reason as a gateway of this protocol reads it: what is signed is what it reads, or the signature would not be good.
fn known_to(protocol: Protocol, reason: Reason) -> Reason {
    if protocol < Protocol::V3 && reason.number() > REASON_OF_PROTOCOL_2_MAX { Reason::UnknownCode } else { reason }
}

impl Open {
    fn first_message(&mut self) -> Option<(Kind, Message)> {
        if let Some(counter) = self.liveness_due.take() {
            let status = self.reports.said().filter(|_| self.protocol >= Protocol::V3);
            return Some((Kind::Liveness, Message::Liveness(LivenessMessage { counter, status })));
        }
        if let Some((report, bytes)) = self.outcomes.pop_front() {
            self.updates.uncount(bytes);
            return Some((Kind::Outcome, Message::Outcome(report)));
        }
        None
    }

    fn last_message(&mut self) -> Option<(Kind, Message)> {
        if let Some(inventory) = self.inventory_due.take() {
            self.inventory_said = inventory.clone();
            return Some((Kind::Inventory, Message::Inventory(inventory)));
        }
        if let Some(report) = self.drifts.next() {
            return Some((Kind::Drift, Message::Drift(report)));
        }
        self.faults.pop_front().map(|fault| (Kind::Fault, Message::Fault(fault)))
    }
}
