//! The machine of one session on a gateway.

use std::collections::VecDeque;

use holdfast_model::desired::Component;
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::{UpdateSeq, Version};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::encode;
use holdfast_wire::error::EncodeError;
use holdfast_wire::limits::{HELLO_FRAME_BYTES_MAX, STATUS_FRAME_BYTES_MAX};
use holdfast_wire::message::{
    Delivery, Directive, Drain, DriftReport, Fault, Hello, HelloAck, Kind, Liveness, Message, OutcomeReport, Refusal,
    StatusReport,
};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN, choose};

use super::event::{Admission, Answer, AnswerError, CloseCause, Config, Event, FaultOrigin};
use super::open::{Open, index};
use super::slot::{Answered, Slot};
use crate::limits::{DIRECTIVES_QUEUED_MAX, DRAIN_GRACE, EVENTS_MAX, FAULTS_MAX, FAULTS_QUEUED_MAX};
use crate::time::{Instant, sooner};

/// One session, from the first byte to the last.
#[derive(Debug)]
pub struct Session {
    config: Config,
    seed: u64,
    phase: Phase,
    events: VecDeque<Event>,
    faults: Faults,
}

#[derive(Debug)]
enum Phase {
    AwaitHello { until: Instant },
    Admitting { until: Instant, protocol: Protocol },
    Open(Box<Open>),
    Closed { last: Option<(Protocol, Message)> },
}

impl Session {
    /// A session whose connection was just authenticated.
    #[must_use]
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        let until = now.plus(config.hello_timeout);
        let phase = Phase::AwaitHello { until };
        Self { config, seed, phase, events: VecDeque::new(), faults: Faults::default() }
    }

    /// The same on a gateway with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// The largest frame that the agent may send now.
    #[must_use]
    pub const fn frame_bytes_max(&self) -> usize {
        match self.phase {
            Phase::AwaitHello { .. } | Phase::Admitting { .. } => HELLO_FRAME_BYTES_MAX,
            Phase::Open(_) | Phase::Closed { .. } => STATUS_FRAME_BYTES_MAX,
        }
    }

    /// The protocols whose frames are read now: a Hello is of the first one, and what follows its answer of the one that was chosen.
    #[must_use]
    pub const fn spoken(&self) -> ProtocolRange {
        match &self.phase {
            Phase::AwaitHello { .. } | Phase::Admitting { .. } | Phase::Closed { .. } => {
                ProtocolRange::only(Protocol::FIRST)
            }
            Phase::Open(open) => ProtocolRange::only(open.protocol),
        }
    }

    /// The protocol that was chosen, from the Hello on.
    #[must_use]
    pub const fn protocol(&self) -> Option<Protocol> {
        match &self.phase {
            Phase::Admitting { protocol, .. } => Some(*protocol),
            Phase::Open(open) => Some(open.protocol),
            Phase::AwaitHello { .. } | Phase::Closed { .. } => None,
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

    /// The version that this session wrote last for a component.
    #[must_use]
    pub fn tip_version(&self, component: Component) -> Option<Version> {
        match &self.phase {
            Phase::Open(open) => open.slots.get(index(component))?.tip().map(|tip| tip.version),
            Phase::AwaitHello { .. } | Phase::Admitting { .. } | Phase::Closed { .. } => None,
        }
    }

    /// The bytes of everything that waits here to be written: the answers that are staged, and the body of which some was written.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.phase {
            Phase::Open(open) => open.held_bytes(),
            Phase::AwaitHello { .. } | Phase::Admitting { .. } | Phase::Closed { .. } => 0,
        }
    }

    /// A message of the agent.
    pub fn handle_message(&mut self, message: Message, now: Instant) {
        if self.events.len() >= EVENTS_MAX {
            return self.handle_close(RefusalCode::Overloaded, "events are not taken");
        }
        if let Message::Refusal(refusal) = &message {
            return self.end(CloseCause::Theirs(refusal.code), None);
        }
        match (&mut self.phase, message) {
            (Phase::Closed { .. }, _) => {}
            (Phase::AwaitHello { .. }, Message::Hello(hello)) => self.handle_hello(hello, now),
            (Phase::AwaitHello { .. }, _) => {
                self.handle_close(RefusalCode::WrongFirstMessage, "a session begins with a hello");
            }
            (Phase::Admitting { .. } | Phase::Open(_), Message::Hello(_)) => {
                self.handle_close(RefusalCode::DuplicateHello, "a session has one hello");
            }
            (Phase::Admitting { .. }, _) => self.handle_close(RefusalCode::WrongFirstMessage, "before the answer"),
            (Phase::Open(open), message) => {
                open.liveness.handle_heard(now);
                self.handle_open(message, now);
            }
        }
    }

    /// What is spoken here: protocol 1 has no word for polls.
    const fn offered(&self) -> ProtocolRange {
        match self.config.delivery {
            Delivery::Push => SPOKEN,
            Delivery::Poll => ProtocolRange { min: Protocol::V2.number(), max: SPOKEN.max },
        }
    }

    fn handle_hello(&mut self, hello: Hello, now: Instant) {
        let ours = self.offered();
        match choose(ours, hello.protocols) {
            Some(protocol) => {
                self.phase = Phase::Admitting { until: now.plus(self.config.hello_timeout), protocol };
                self.events.push_back(Event::Hello(Box::new(hello)));
            }
            None => {
                let theirs = hello.protocols;
                let why = match self.config.delivery {
                    Delivery::Push => "",
                    Delivery::Poll => ", since this gateway delivers by poll",
                };
                let text = format!(
                    "here {} to {}{why}, there {} to {}: update one side",
                    ours.min, ours.max, theirs.min, theirs.max
                );
                self.handle_close(RefusalCode::NoCommonProtocol, &text);
            }
        }
    }

    fn handle_open(&mut self, message: Message, now: Instant) {
        match message {
            Message::Outcome(report) => self.handle_outcome(report),
            Message::Inventory(inventory) => {
                if let Phase::Open(open) = &mut self.phase {
                    open.inventory = Some(Box::new(inventory));
                }
                self.pass_inventory_on(now);
            }
            Message::Liveness(liveness) => self.handle_liveness(liveness, now),
            Message::Status(status) => self.handle_status(status, now),
            Message::Drift(report) => self.handle_drift(report, now),
            Message::Fault(fault) => {
                let (code, message_kind, update_seq) = (fault.code, fault.message_kind, fault.update_seq);
                self.count_fault(code, message_kind, update_seq, FaultOrigin::Reported);
            }
            Message::Unknown(kind) => self.report_fault(FaultCode::UnknownKind, kind, None),
            Message::HelloAck(_)
            | Message::Update(_)
            | Message::Chunk(_)
            | Message::Drain(_)
            | Message::Directive(_) => {
                self.handle_close(RefusalCode::WrongDirection, "only a gateway says this");
            }
            // Taken care of before: neither reaches an open session.
            Message::Hello(_) | Message::Refusal(_) => {}
        }
    }

    /// Passes on what a host has now, once its turn is there: a host that changes its mind again and again is heard as it is then.
    fn pass_inventory_on(&mut self, now: Instant) {
        if let Phase::Open(open) = &mut self.phase
            && open.inventory.is_some()
            && open.inventory_turns.take(now)
        {
            self.events.extend(open.inventory.take().map(Event::Inventory));
        }
    }

    /// One that comes too soon is passed over: the next one of its kind counts it.
    fn handle_drift(&mut self, report: DriftReport, now: Instant) {
        let Phase::Open(open) = &mut self.phase else { return };
        if open.drift_budget.take(now) {
            self.events.push_back(Event::Drift(Box::new(report)));
        } else {
            self.report_fault(FaultCode::TooOften, Kind::Drift.number(), None);
        }
    }

    /// An agent that names another status than the last one that was taken is asked for it.
    fn handle_liveness(&mut self, liveness: Liveness, now: Instant) {
        if let Phase::Open(open) = &mut self.phase
            && open.statuses.is_asked(liveness.status, now)
        {
            self.handle_directive(DirectiveCode::ReportStatus);
        }
    }

    fn handle_status(&mut self, status: StatusReport, now: Instant) {
        let Phase::Open(open) = &mut self.phase else { return };
        match open.statuses.take(&status, now) {
            Ok(()) => self.events.push_back(Event::Status(Box::new(status))),
            Err(code) => self.handle_refused_status(code, now),
        }
    }

    /// A status that is none: forged, or not to be read. It is a sign of life all the same, and the session goes on.
    pub fn handle_refused_status(&mut self, code: FaultCode, now: Instant) {
        let Phase::Open(open) = &mut self.phase else { return };
        open.liveness.handle_heard(now);
        let is_told = open.statuses.is_told(now);
        if is_told && open.faults.len() < FAULTS_QUEUED_MAX {
            open.faults.push_back(Fault { code, message_kind: Kind::Status.number(), update_seq: None });
        }
        self.events.push_back(Event::StatusRefused { code, is_told });
    }

    fn handle_outcome(&mut self, report: OutcomeReport) {
        let Phase::Open(open) = &mut self.phase else { return };
        let kind = Kind::Outcome.number();
        let update_seq = report.update_seq;
        let Some(update) = open.flight.find(update_seq) else {
            if self.faults.has(Mutant::UnsentAckAccepted) {
                return self.events.push_back(Event::Outcome(Box::new(report)));
            }
            return self.report_fault(FaultCode::OutcomeUnmatched, kind, Some(update_seq));
        };
        if (report.component, report.wanted) != (update.component, update.stamp) {
            return self.report_fault(FaultCode::OutcomeMismatch, kind, Some(update_seq));
        }
        if report.kind == OutcomeKind::Applied && report.applied != Some(update.stamp) {
            return self.report_fault(FaultCode::OutcomeContradiction, kind, Some(update_seq));
        }
        open.flight.remove(update_seq);
        open.tick += 1;
        let tick = open.tick;
        if let Some(slot) = open.slots.get_mut(index(update.component)) {
            slot.handle_outcome(&update, report.kind, tick);
        }
        self.events.push_back(Event::Outcome(Box::new(report)));
    }

    /// An outcome whose signature is not the host's: the shell checks before it hands a message over, and hands over this instead.
    pub fn handle_forged_outcome(&mut self, update_seq: UpdateSeq) {
        self.report_fault(FaultCode::BadSignature, Kind::Outcome.number(), Some(update_seq));
    }

    /// Records a fault and tells the agent.
    fn report_fault(&mut self, code: FaultCode, message_kind: u16, update_seq: Option<UpdateSeq>) {
        if let Phase::Open(open) = &mut self.phase
            && open.faults.len() < FAULTS_QUEUED_MAX
        {
            open.faults.push_back(Fault { code, message_kind, update_seq });
        }
        self.count_fault(code, message_kind, update_seq, FaultOrigin::Seen);
    }

    fn count_fault(&mut self, code: FaultCode, message_kind: u16, update_seq: Option<UpdateSeq>, origin: FaultOrigin) {
        let Phase::Open(open) = &mut self.phase else { return };
        open.faults_seen += 1;
        let too_many = open.faults_seen > FAULTS_MAX;
        self.events.push_back(Event::Fault { code, message_kind, update_seq, origin });
        if too_many {
            self.handle_close(RefusalCode::TooManyFaults, &format!("more than {FAULTS_MAX} faults in one session"));
        }
    }

    /// The Hello is good.
    pub fn handle_admitted(&mut self, admission: Admission, now: Instant) {
        let Phase::Admitting { protocol, .. } = self.phase else { return };
        let ack = HelloAck {
            protocol: protocol.number(),
            session_epoch: admission.session_epoch,
            authority: admission.authority,
            delivery: self.config.delivery,
            liveness_interval_ms: u32::try_from(self.config.liveness_interval.as_millis()).unwrap_or(u32::MAX),
            limits: self.config.limits,
            gateways: self.config.gateways.clone(),
        };
        match self.config.delivery {
            Delivery::Push => {
                let open = Open::new(&self.config, protocol, ack, self.seed, self.faults, now);
                self.phase = Phase::Open(Box::new(open));
            }
            Delivery::Poll => self.end(CloseCause::Polls, Some((protocol, Message::HelloAck(ack)))),
        }
    }

    /// Ends the session with a word to the agent: a bad Hello, a newer session, a frame that cannot be read, an overload.
    pub fn handle_close(&mut self, code: RefusalCode, detail: &str) {
        self.handle_refused(code, 0, detail);
    }

    /// As [`Self::handle_close`], and the agent is to stay away for a while.
    pub fn handle_refused(&mut self, code: RefusalCode, retry_after_ms: u32, detail: &str) {
        let detail = holdfast_model::condition::bounded(detail, holdfast_wire::limits::TEXT_BYTES_MAX);
        let refusal = Message::Refusal(Refusal { code, retry_after_ms, detail });
        self.end(CloseCause::Ours(code), Some((Protocol::FIRST, refusal)));
    }

    /// The connection is gone.
    pub fn handle_lost(&mut self) {
        self.end(CloseCause::Lost, None);
    }

    fn end(&mut self, cause: CloseCause, last: Option<(Protocol, Message)>) {
        if !self.is_closed() {
            self.phase = Phase::Closed { last };
            self.events.push_back(Event::Closed(cause));
        }
    }

    /// Something may be newer than what this session wrote.
    pub fn handle_hint(&mut self, component: Component) {
        self.mark(component, Slot::mark);
    }

    /// A version that the authority holds: marks the component if it is above what is written or about to be.
    pub fn handle_compare(&mut self, component: Component, version: Version) {
        let Phase::Open(open) = &self.phase else { return };
        let latest = open.slots.get(index(component)).and_then(Slot::latest);
        if latest.is_none_or(|latest| latest < version) {
            self.handle_hint(component);
        }
    }

    /// Whether a component holds a mark: it will be asked for once there is room.
    #[must_use]
    pub fn is_marked(&self, component: Component) -> bool {
        match &self.phase {
            Phase::Open(open) => open.slots.get(index(component)).is_some_and(Slot::is_marked),
            Phase::AwaitHello { .. } | Phase::Admitting { .. } | Phase::Closed { .. } => false,
        }
    }

    /// An operator wants the current state of a component sent whole, once more.
    pub fn handle_resend(&mut self, component: Component) {
        self.mark(component, Slot::resend);
    }

    fn mark(&mut self, component: Component, how: impl FnOnce(&mut Slot, u64)) {
        let Phase::Open(open) = &mut self.phase else { return };
        open.tick += 1;
        let tick = open.tick;
        if let Some(slot) = open.slots.get_mut(index(component)) {
            how(slot, tick);
        }
    }

    /// The answer to an [`Event::Want`].
    ///
    /// # Errors
    /// [`AnswerError`] if it contradicts the question; nothing is written.
    pub fn handle_answer(&mut self, component: Component, answer: Answer, now: Instant) -> Result<(), AnswerError> {
        // An answer may come after the end of its session: it is of no use then.
        let Phase::Open(open) = &mut self.phase else { return Ok(()) };
        open.tick += 1;
        let (tick, body_bytes_max) = (open.tick, open.body_bytes_max);
        let Some(slot) = open.slots.get_mut(index(component)) else { return Ok(()) };
        match slot.handle_answer(answer, body_bytes_max, tick, now)? {
            Answered::Taken => {}
            Answered::TooLarge { stamp, bytes } => {
                self.events.push_back(Event::Undeliverable { component, stamp, bytes });
            }
        }
        Ok(())
    }

    /// Asks the agent for something beside updates. Beyond the cap it is dropped: directives are best effort.
    pub fn handle_directive(&mut self, code: DirectiveCode) {
        if let Phase::Open(open) = &mut self.phase
            && open.directives.len() < DIRECTIVES_QUEUED_MAX
        {
            open.directives.push_back(Directive { code, argument: Vec::new() });
        }
    }

    /// The gateway goes away: the agent is told when to leave, and updates go on until then.
    pub fn handle_drain(&mut self, drain: Drain, now: Instant) {
        match &mut self.phase {
            Phase::Open(open) => {
                let leave = std::time::Duration::from_millis(u64::from(drain.reconnect_after_ms));
                open.drain_until = Some(now.plus(leave).plus(DRAIN_GRACE));
                open.drain = Some(drain);
            }
            Phase::AwaitHello { .. } | Phase::Admitting { .. } => {
                self.handle_refused(RefusalCode::Draining, drain.reconnect_after_ms, "");
            }
            Phase::Closed { .. } => {}
        }
    }

    /// Time went on.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::AwaitHello { until } if now >= *until => self.handle_close(RefusalCode::HelloTimeout, ""),
            Phase::Admitting { until, .. } if now >= *until => self.handle_close(RefusalCode::AuthorityAway, ""),
            Phase::Open(open) => {
                if open.liveness.is_dead(now) {
                    return self.handle_close(RefusalCode::LivenessLost, "");
                }
                if open.drain_until.is_some_and(|until| now >= until) {
                    return self.handle_close(RefusalCode::Draining, "");
                }
                if let Some(counter) = open.liveness.poll_send(now) {
                    open.liveness_due = Some(counter);
                }
                self.pass_inventory_on(now);
            }
            Phase::AwaitHello { .. } | Phase::Admitting { .. } | Phase::Closed { .. } => {}
        }
    }

    /// When to call [`Self::handle_timeout`] next, and why. After it, ask for transmits and events again.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<(Instant, &'static str)> {
        match &self.phase {
            Phase::AwaitHello { until } => Some((*until, "no hello")),
            Phase::Admitting { until, .. } => Some((*until, "no admission")),
            Phase::Open(open) => {
                let drain = open.drain_until.map(|until| (until, "drained"));
                let again = open.slots.iter().filter_map(|slot| slot.wants_at(now)).min();
                let again = again.map(|at| (at, "ask again"));
                let inventory = open.inventory.as_ref().map(|_| (open.inventory_turns.next_at(), "what a host has"));
                sooner(sooner(open.liveness.poll_timeout(), drain), sooner(again, inventory))
            }
            Phase::Closed { .. } => None,
        }
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the next frame and says what it is. To be called only while the socket has room for a frame: what is written is chosen now.
    ///
    /// # Errors
    /// [`EncodeError`] if the configuration or an answer holds what no frame may carry; the session is over then.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Result<Option<Kind>, EncodeError> {
        let sent = match &mut self.phase {
            Phase::AwaitHello { .. } | Phase::Admitting { .. } => return Ok(None),
            Phase::Closed { last } => {
                return match last.take() {
                    Some((protocol, message)) => {
                        encode(protocol, &message, out).map(|()| Kind::from_number(message.kind_number()))
                    }
                    None => Ok(None),
                };
            }
            Phase::Open(open) => match open.control(out) {
                Ok(None) => open.update(now, out, &mut self.events),
                other => other,
            },
        };
        if sent.is_err() {
            self.end(CloseCause::Ours(RefusalCode::TooLarge), None);
        }
        sent
    }
}
