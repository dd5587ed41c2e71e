//! The shell of one session: bytes in, bytes out, time, and what the machine asks.
//!
//! - One task per session. What waits for the socket is bounded; nothing further is made until it went out, so that what is written is fresh.
//! - Order of attention: what the machine has to say, then answers, mail, the socket both ways, the clock; none can starve another, since each
//!   turn takes one thing and goes round.
//! - An outcome is handed to the machine only with the host's own signature on it.
//!
//! It decides nothing about updates: `holdfast_session::gateway` does.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use holdfast_events::{AgentVersion, CloseReason, Fault as FaultWord};
use holdfast_identity::VerifyingKey;
use holdfast_identity::tls::HostPeer;
use holdfast_model::desired::Component;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq};
use holdfast_model::statement::Authority;
use holdfast_session::gateway::{Admission, Answer, Event, FaultOrigin, Form, Session, Want};
use holdfast_session::scheduler::{Asked, Ended, Lane, News, Start, Ticket, Turns};
use holdfast_store::session::{self as store, Fact, Seen};
use holdfast_wire::code::{DirectiveCode, FaultCode, RefusalCode};
use holdfast_wire::decode_as;
use holdfast_wire::error::FrameError;
use holdfast_wire::frame::Deframer;
use holdfast_wire::message::{Delivery, Hello, Message};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::admission::Crowded;
use super::context::Context;
use super::gauges;
use super::hooks::Midway;
use super::limits::{AUTHORITY_AWAY_RETRY_MS, READ_BYTES, SHORT_TIMEOUT};
use super::mailbox::Mailbox;
use super::outgoing::{Outgoing, Pushed, push};
use super::reader::Read;
use super::store::Admitted;
use super::words::{cause_word, drift_of, form_word, reason_of};

mod status;

use status::{LongHead, code_of};

/// What an agent is told while another one with its identity has the session.
const CONTESTED: &str = "another agent with this identity has the session: was its state folder copied?";

/// What came of a question.
enum Told {
    Opening(Option<Admitted>),
    Answer(Ticket, Option<Read>),
}

/// What is known of the other side once its session is open.
struct Opened {
    session_epoch: SessionEpoch,
    authority: Authority,
    outcome_key: VerifyingKey,
}

struct Shell {
    context: Arc<Context>,
    peer: HostPeer,
    from: IpAddr,
    machine: Session,
    mailbox: Arc<Mailbox>,
    deframer: Deframer,
    outgoing: Outgoing,
    /// What it was told to hold for the agent to read.
    held_bytes: usize,
    midway: Midway,
    turns: Turns,
    asked: FuturesUnordered<BoxFuture<'static, Told>>,
    opened: Option<Opened>,
    addresses: Option<Vec<std::net::IpAddr>>,
    ended: Option<CloseReason>,
    drained: bool,
    has_left: bool,
}

impl Drop for Shell {
    /// A session whose task ended before its last word, by a panic, is held by nobody: whoever drains waits for it no more, and its host begins anew.
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.let_go();
        }
    }
}

/// Serves one session until it is over.
pub(super) async fn serve<IO>(context: Arc<Context>, stream: IO, peer: HostPeer, from: IpAddr)
where
    IO: AsyncRead + AsyncWrite + Send,
{
    let machine = Session::new(context.session.clone(), context.seed(), context.now());
    let deframer = Deframer::new(machine.frame_bytes_max());
    let mut shell = Shell {
        context,
        peer,
        from,
        machine,
        mailbox: Arc::default(),
        deframer,
        outgoing: Outgoing::new(),
        held_bytes: 0,
        midway: Midway::default(),
        turns: Turns::default(),
        asked: FuturesUnordered::new(),
        opened: None,
        addresses: None,
        ended: None,
        drained: false,
        has_left: false,
    };
    shell.run(stream).await;
    shell.leave();
}

impl Shell {
    async fn run<IO: AsyncRead + AsyncWrite + Send>(&mut self, stream: IO) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; READ_BYTES];
        let mut goodbye_until = None;
        loop {
            self.advance();
            let waits = self.midway.portion(self.outgoing.waits());
            if self.machine.is_closed() && waits.is_empty() && self.outgoing.is_flushed() {
                break;
            }
            let wake_at = self.wake_at(&mut goodbye_until);
            tokio::select! {
                told = self.asked.next(), if !self.asked.is_empty() => {
                    if let Some(told) = told {
                        self.handle_told(told);
                    }
                }
                () = self.mailbox.arrived() => self.handle_mail(),
                pushed = push(&mut writer, waits), if !(waits.is_empty() && self.outgoing.is_flushed()) => match pushed {
                    Ok(Pushed::Bytes(count)) => self.wrote(count),
                    Ok(Pushed::Flushed) => self.outgoing.handle_flushed(),
                    Err(_) => return self.machine.handle_lost(),
                },
                read = reader.read(&mut buffer), if !self.machine.is_closed() => match read {
                    Ok(0) => {
                        self.ended = Some(CloseReason::AgentLeft);
                        return self.machine.handle_lost();
                    }
                    Ok(count) => self.handle_bytes(buffer.get(..count).unwrap_or_default()),
                    Err(_) => return self.machine.handle_lost(),
                },
                () = tokio::time::sleep_until(wake_at) => {
                    if goodbye_until.is_some_and(|until| until <= tokio::time::Instant::now()) {
                        return;
                    }
                    self.handle_timeout();
                }
            }
        }
        // A peer that does not take its goodbye is not waited for.
        drop(tokio::time::timeout(SHORT_TIMEOUT, writer.shutdown()).await);
    }

    /// When to wake if nothing happens before.
    fn wake_at(&self, goodbye_until: &mut Option<tokio::time::Instant>) -> tokio::time::Instant {
        if self.machine.is_closed() {
            return *goodbye_until.get_or_insert_with(|| tokio::time::Instant::now() + SHORT_TIMEOUT);
        }
        let machine = self.machine.poll_timeout(self.context.now()).map(|(at, _)| self.context.instant_of(at));
        let expiry = self.context.until(self.peer.validity.not_after);
        machine.map_or(expiry, |at| at.min(expiry))
    }

    fn handle_timeout(&mut self) {
        if self.context.is_past(self.peer.validity.not_after) {
            self.machine.handle_close(RefusalCode::CertificateExpired, "dial again with the renewed certificate");
        }
        self.machine.handle_timeout(self.context.now());
    }

    /// Lets the machine say what it has to, as far as the socket has room.
    fn advance(&mut self) {
        loop {
            while let Some(out) = self.outgoing.room() {
                match self.machine.poll_transmit(self.context.now(), out) {
                    Ok(Some(_)) => self.outgoing.handle_put(),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::error!(host = %self.peer.host, %error, "a frame cannot be made; the session ends");
                        break;
                    }
                }
            }
            if !self.handle_events() {
                self.tell_held();
                return self.give_turns_back();
            }
        }
    }

    /// A turn that led to no question: the session has what it is about, or has no room and keeps the mark.
    fn give_turns_back(&mut self) {
        for ticket in self.turns.take_unused() {
            let ended = if self.machine.is_marked(ticket.component) { Ended::Parked } else { Ended::Declined };
            self.context.registry.ended(ticket, ended);
        }
    }

    fn wrote(&mut self, count: usize) {
        let is_all = self.outgoing.handle_written(count);
        self.midway.handle_written(is_all);
    }

    /// Tells how much memory waits here for the agent to read.
    fn tell_held(&mut self) {
        let now = self.machine.held_bytes() + self.outgoing.held_bytes();
        self.context.registry.held_bytes().moved(self.held_bytes, now);
        self.held_bytes = now;
    }

    fn handle_bytes(&mut self, bytes: &[u8]) {
        self.deframer.push(bytes);
        while !self.machine.is_closed() {
            self.deframer.set_frame_bytes_max(self.machine.frame_bytes_max());
            let frame = match self.deframer.poll_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error @ FrameError::TooLong { bytes, .. }) => match self.head_of_long(bytes) {
                    LongHead::OnItsWay => return,
                    LongHead::Status => {
                        tracing::debug!(host = %self.peer.host, %error, "a status is passed over by its length");
                        self.deframer.pass_over();
                        self.refuse_status(FaultCode::BadValue);
                        self.handle_events();
                        continue;
                    }
                    LongHead::Other => return self.refuse(RefusalCode::TooLarge, error.rule(), &error),
                },
                Err(error @ FrameError::TooShort { .. }) => {
                    return self.refuse(RefusalCode::Malformed, error.rule(), &error);
                }
            };
            match decode_as(self.machine.spoken(), &frame) {
                Ok(message) => self.handle_message(message),
                // What a host says of itself as a whole is no part of the stream's order: without it, the rest goes on.
                Err(error) if self.is_status(frame.protocol, frame.kind) => {
                    tracing::debug!(host = %self.peer.host, %error, "a status cannot be read");
                    self.refuse_status(code_of(&error));
                }
                Err(error) => {
                    tracing::debug!(host = %self.peer.host, %error, "a message cannot be read");
                    return self.refuse(RefusalCode::Malformed, error.rule(), &error);
                }
            }
            // After each message, so that the machine's queue of events never grows.
            self.handle_events();
        }
    }

    /// Ends the session over what cannot be read; the other side is told the rule, and what is wrong.
    fn refuse(&mut self, code: RefusalCode, rule: &str, error: &dyn std::error::Error) {
        gauges::record_other_fault(FaultWord::Malformed);
        self.record_fault(FaultWord::Malformed, None);
        self.machine.handle_close(code, &format!("{rule}: {error}"));
    }

    fn handle_message(&mut self, message: Message) {
        if let Message::Outcome(report) = &message
            && !self.is_genuine(report)
        {
            return self.machine.handle_forged_outcome(report.update_seq);
        }
        if let Message::Status(status) = &message
            && !self.is_genuine_status(status)
        {
            return self.refuse_status(FaultCode::BadSignature);
        }
        if matches!(message, Message::Liveness(_) | Message::Outcome(_) | Message::Status(_)) {
            self.record_heard();
        }
        self.machine.handle_message(message, self.context.now());
    }

    /// Takes what the machine tells; false if there was nothing.
    fn handle_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.handle_event(event);
        }
        any
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Hello(hello) => self.ask_open(*hello),
            Event::Want(want) => self.ask_desired(want),
            Event::Sent { update_seq, component, stamp, form, cause } => {
                tracing::debug!(host = %self.peer.host, %component, version = %stamp.version, ?form, ?cause, "update written");
                self.midway.handle_sent(form);
                metrics::counter!("holdfast_gateway_updates_total", "form" => form_word(form), "cause" => cause_word(cause))
                    .increment(1);
                if form == Form::Snapshot {
                    self.record(Seen::SnapshotSent { component, stamp, update_seq });
                }
            }
            Event::Outcome(report) => self.record_outcome(*report),
            Event::Inventory(inventory) => self.record(Seen::Addresses(inventory.addresses)),
            Event::Drift(report) => {
                let said = drift_of(*report);
                self.record(Seen::Drift(Box::new(said)));
            }
            Event::Status(status) => self.record_status(*status),
            Event::StatusRefused { code, is_told } => self.handle_status_refused(code, is_told),
            Event::Fault { code, update_seq, origin, .. } => self.handle_fault(code, update_seq, origin),
            Event::Undeliverable { component, stamp, bytes } => {
                gauges::record_too_large(component);
                tracing::error!(host = %self.peer.host, %component, version = %stamp.version, bytes, "a body is too large to be sent");
            }
            Event::Closed(cause) => {
                gauges::record_closed(cause);
                let reason = reason_of(cause, self.drained);
                self.ended.get_or_insert(reason);
            }
        }
    }

    fn handle_fault(&mut self, code: FaultCode, update_seq: Option<UpdateSeq>, origin: FaultOrigin) {
        gauges::record_fault(origin, code);
        if origin == FaultOrigin::Reported && code == FaultCode::UnknownDirective {
            return tracing::warn!(host = %self.peer.host, "the agent is older than a directive that it was sent, and ignored it");
        }
        if origin == FaultOrigin::Reported {
            return tracing::warn!(host = %self.peer.host, %code, "the agent says that this gateway broke the protocol");
        }
        let fault = match code {
            // A newer agent may say what this build does not know: no fault of anybody.
            FaultCode::UnknownKind => {
                return tracing::debug!(host = %self.peer.host, "an unknown message is passed over");
            }
            FaultCode::OutcomeUnmatched => FaultWord::UnknownUpdate,
            FaultCode::BadSignature => FaultWord::BadSignature,
            FaultCode::OutcomeMismatch => FaultWord::OutcomeMismatch,
            FaultCode::OutcomeContradiction => FaultWord::OutcomeContradiction,
            FaultCode::BadValue
            | FaultCode::UnknownDirective
            | FaultCode::TooOften
            | FaultCode::StaleStatus
            | FaultCode::Unknown(_) => FaultWord::Malformed,
        };
        tracing::warn!(host = %self.peer.host, %code, "the agent broke the protocol");
        self.record_fault(fault, update_seq);
    }

    fn record(&mut self, seen: Seen) {
        let Some(opened) = &self.opened else { return };
        let fact = Fact { host: self.peer.host, session_epoch: opened.session_epoch, seen };
        if self.context.recorder.put(fact).is_err() {
            self.machine.handle_close(RefusalCode::AuthorityAway, "");
        }
    }

    fn record_heard(&self) {
        if let Some(opened) = &self.opened {
            self.context.recorder.put_heard(self.peer.host, opened.session_epoch);
        }
    }

    fn record_fault(&mut self, fault: FaultWord, update_seq: Option<UpdateSeq>) {
        self.record(Seen::Fault { fault, component: None, update_seq });
    }

    fn ask_open(&mut self, hello: Hello) {
        self.addresses = Some(hello.inventory.addresses);
        let opening = store::Opening {
            host: self.peer.host,
            certificate_serial: self.peer.serial.clone(),
            agent_version: AgentVersion::new(&hello.agent_version),
            instance: store::Instance { boot_id: hello.boot_id, address: self.from },
            applied: hello.applied,
            protocol: self.reported_protocol(),
        };
        let place = match self.context.admission.enter() {
            Ok(place) => place,
            Err(Crowded { retry_after_ms }) => {
                return self.machine.handle_refused(RefusalCode::Overloaded, retry_after_ms, "too many at once");
            }
        };
        let opens = self.context.opens.clone();
        self.asked.push(Box::pin(async move {
            let admitted = opens.ask(opening).await.flatten();
            drop(place);
            Told::Opening(admitted)
        }));
    }

    fn ask_desired(&mut self, want: Want) {
        let (host, component) = (self.peer.host, want.component);
        match self.turns.ask(want) {
            Asked::Read(ticket) => self.read_desired(want, ticket),
            Asked::Waits(asker) => {
                let Some(opened) = &self.opened else { return };
                if !self.context.registry.want(host, opened.session_epoch, component, asker) {
                    tracing::debug!(%host, %component, "a session asks that is held no more");
                }
            }
        }
    }

    fn read_desired(&mut self, want: Want, ticket: Ticket) {
        let reader = match ticket.lane {
            Lane::Host => self.context.narrow.clone(),
            Lane::First | Lane::Bulk => self.context.wide.clone(),
        };
        let host = self.peer.host;
        self.asked.push(Box::pin(async move { Told::Answer(ticket, reader.ask((host, want)).await) }));
    }

    /// A build may begin: for the question that waits, or for what comes of looking.
    fn handle_start(&mut self, start: Start) {
        let component = start.ticket.component;
        if let Some(want) = self.turns.give(start.ticket) {
            return self.read_desired(want, start.ticket);
        }
        match start.news {
            News::Asked => {}
            News::Newer(version) => {
                tracing::debug!(host = %self.peer.host, %component, %version, "version heard of");
                self.machine.handle_compare(component, version);
            }
            News::Unnamed => self.machine.handle_hint(component),
        }
    }

    fn handle_told(&mut self, told: Told) {
        match told {
            Told::Opening(admitted) => self.handle_admitted(admitted),
            Told::Answer(ticket, read) => {
                let read = read.unwrap_or_else(|| Answer::Unavailable.into());
                if self.has_moved(read.newest_session) {
                    return self.context.registry.ended(ticket, Ended::Declined);
                }
                let answer = self.of_this_life(read.answer, read.authority_epoch);
                let mut ended = match &answer {
                    Answer::Unchanged => Ended::Unchanged,
                    Answer::Unavailable => Ended::Failed,
                    Answer::Current { stamp, .. } => Ended::Built { version: stamp.version },
                };
                if let Err(error) = self.machine.handle_answer(ticket.component, answer, self.context.now()) {
                    tracing::error!(host = %self.peer.host, %error, "what the authority answered cannot be sent");
                    ended = Ended::Refused;
                }
                self.context.registry.ended(ticket, ended);
            }
        }
    }

    /// Whether the host has a newer session elsewhere, of which this gateway was not told yet: then nothing more is written in this one.
    fn has_moved(&mut self, newest: Option<SessionEpoch>) -> bool {
        let own = self.opened.as_ref().map(|opened| opened.session_epoch);
        let moved = newest > own;
        if moved {
            self.machine.handle_close(RefusalCode::Superseded, "");
            metrics::counter!("holdfast_gateway_moved_builds_total").increment(1);
        }
        moved
    }

    /// What was signed in another life of the authority proves nothing in this session: an older one is waited for to be signed again, a newer
    /// one needs a session that begins in it.
    fn of_this_life(&mut self, answer: Answer, signed: Option<AuthorityEpoch>) -> Answer {
        let (Some(signed), Some(opened)) = (signed, &self.opened) else { return answer };
        match signed.cmp(&opened.authority.epoch) {
            Ordering::Equal => answer,
            Ordering::Less => Answer::Unavailable,
            Ordering::Greater => {
                self.machine.handle_close(RefusalCode::WrongAuthority, "the authority has a new life: dial again");
                Answer::Unavailable
            }
        }
    }

    fn handle_admitted(&mut self, admitted: Option<Admitted>) {
        let host = self.peer.host;
        match admitted {
            Some(Admitted::Session { session_epoch, authority, outcome_key, .. })
                if self.context.session.delivery == Delivery::Poll =>
            {
                self.hand_over(session_epoch, authority, outcome_key);
            }
            Some(Admitted::Session { namespace, session_epoch, authority, outcome_key, is_between_lives: _ }) => {
                // Before the machine asks for anything: a hint from now on finds this session.
                if !self.context.registry.insert(host, namespace, session_epoch, Arc::clone(&self.mailbox)) {
                    return self.machine.handle_close(RefusalCode::Superseded, "");
                }
                self.opened = Some(Opened { session_epoch, authority, outcome_key });
                self.machine.handle_admitted(Admission { session_epoch, authority }, self.context.now());
                self.record_heard();
                if let Some(addresses) = self.addresses.take() {
                    self.record(Seen::Addresses(addresses));
                }
                metrics::gauge!("holdfast_gateway_sessions").increment(1);
                tracing::info!(%host, %session_epoch, "session opened");
                if self.context.shutdown.is_asked() {
                    self.machine.handle_close(RefusalCode::Draining, "");
                }
            }
            Some(Admitted::Contested { retry_after_ms }) => {
                metrics::counter!("holdfast_gateway_openings_refused_total", "reason" => "contested").increment(1);
                tracing::warn!(%host, from = %self.from, "two agents with the identity of one host: this one has to wait");
                self.machine.handle_refused(RefusalCode::Superseded, retry_after_ms, CONTESTED);
            }
            Some(Admitted::CertificateUnknown) => self.machine.handle_close(RefusalCode::CertificateRevoked, ""),
            Some(Admitted::HostUnknown) => self.machine.handle_close(RefusalCode::HostUnknown, ""),
            None => self.machine.handle_refused(RefusalCode::AuthorityAway, AUTHORITY_AWAY_RETRY_MS, ""),
        }
    }

    /// The session goes on by polls: nothing is pushed, and the connection ends with the answer.
    fn hand_over(&mut self, session_epoch: SessionEpoch, authority: Authority, outcome_key: VerifyingKey) {
        let host = self.peer.host;
        let Some(poll) = self.context.registry.insert_poll(host, session_epoch, authority, outcome_key) else {
            return self.machine.handle_close(RefusalCode::Superseded, "");
        };
        self.machine.handle_admitted(Admission { session_epoch, authority }, self.context.now());
        self.context.recorder.put_heard(host, session_epoch);
        if let Some(addresses) = self.addresses.take()
            && poll.record(&self.context.recorder, Seen::Addresses(addresses)).is_err()
        {
            tracing::debug!(%host, "the addresses of a host find no room; its first poll has them too");
        }
        tracing::info!(%host, %session_epoch, "session of polls opened");
        // One that came in beside the drain was told no moment to leave: its agent dials elsewhere.
        if self.context.shutdown.is_asked() {
            self.context.registry.polls().end(&poll, Some(CloseReason::GatewayStopped));
            self.machine.handle_close(RefusalCode::Draining, "");
        }
    }

    fn handle_mail(&mut self) {
        let mail = self.mailbox.take();
        for (component, resend) in Component::ALL.into_iter().zip(mail.resend) {
            if resend {
                self.turns.wish(component);
                self.machine.handle_resend(component);
            }
        }
        mail.starts.into_iter().flatten().for_each(|start| self.handle_start(start));
        for (asked, code) in [(mail.reconnect, DirectiveCode::Reconnect), (mail.reenrol, DirectiveCode::Reenrol)] {
            if asked {
                self.machine.handle_directive(code);
            }
        }
        if let Some((authority, drain)) = mail.life
            && self.opened.as_ref().is_some_and(|opened| opened.authority != authority)
        {
            // What is signed now names another life than this session speaks for: the host begins anew, and says what it holds.
            self.drained = true;
            self.machine.handle_drain(drain, self.context.now());
        }
        if let Some(drain) = mail.drain {
            self.drained = true;
            self.machine.handle_drain(drain, self.context.now());
        }
        if let Some(code) = mail.close {
            self.machine.handle_close(code, "");
        }
    }

    /// The last word of a session, however it ended.
    fn leave(&mut self) {
        self.handle_events();
        self.has_left = true;
        let Some(opened) = &self.opened else { return self.let_go() };
        let (host, session_epoch) = (self.peer.host, opened.session_epoch);
        let reason = if self.drained && self.ended == Some(CloseReason::AgentLeft) {
            CloseReason::Drained
        } else {
            self.ended.unwrap_or(CloseReason::Lost)
        };
        self.record(Seen::Closed(reason));
        // After the goodbye was handed over: a recorder that stops with the last session still has it.
        self.let_go();
        tracing::info!(%host, %session_epoch, %reason, "session closed");
    }

    fn let_go(&self) {
        self.context.registry.held_bytes().moved(self.held_bytes, 0);
        if let Some(opened) = &self.opened {
            self.context.registry.remove(self.peer.host, opened.session_epoch);
            metrics::gauge!("holdfast_gateway_sessions").decrement(1);
        }
    }
}

/// A wake-up that never comes before anything else does.
pub(super) const FAR: Duration = Duration::from_secs(24 * 3600);
