//! The gateway's shell of one session, after `services/gateway/src/agents/session.rs`: what the machine says and asks, and what it is answered.
//!
//! - Real: the machine, and the turns between it and the scheduler. Modelled: the socket, and what is read for a question.

use holdfast_model::desired::Component;
use holdfast_model::statement::{Outcome, StatusPlace, outcome_bytes, status_bytes};
use holdfast_session::gateway::{Admission, Answer, DeltaOffer, Event, Form, Supply, Want};
use holdfast_session::limits::EVENTS_MAX;
use holdfast_session::scheduler::{Asked, Ended, News, Start, Ticket};
use holdfast_wire::code::{FaultCode, RefusalCode};
use holdfast_wire::message::{Message, OutcomeReport};

use super::World;
use super::ask::{Ask, Opened};
use super::conn::GatewaySide;
use super::facts::Seen;
use super::parts::{Action, End, Process};
use crate::estate::authority;
use crate::keys::{host_key, sign};
use crate::violation::Invariant;

/// How long a refused agent stays away while the authority cannot be asked (`AUTHORITY_AWAY_RETRY_MS`).
const AUTHORITY_AWAY_RETRY_MS: u32 = 5_000;

impl World {
    pub(crate) fn gateway_side(&mut self, conn: usize) -> Option<&mut GatewaySide> {
        self.conns[conn].gateway_side.as_deref_mut()
    }

    /// Lets the machine say what it has to, as far as the socket has room, and takes what it tells.
    pub(crate) fn advance_gateway(&mut self, conn: usize) {
        let gateway = self.conns[conn].gateway;
        let now = self.gateway_now(gateway);
        let room = self.plan.socket_bytes;
        let mut frame = Vec::new();
        loop {
            let at = &mut self.conns[conn];
            let Some(side) = &mut at.gateway_side else { return };
            let is_closed = side.machine.is_closed();
            let mut wrote = false;
            while is_closed || at.to_agent.bytes.len() < room {
                match side.machine.poll_transmit(now, &mut frame) {
                    Ok(Some(_)) => at.to_agent.write(&frame),
                    Ok(None) | Err(_) => break,
                }
                frame.clear();
                wrote = true;
            }
            if wrote {
                self.carry(conn, End::Agent);
            }
            if !self.handle_gateway_events(conn) {
                self.give_turns_back(conn);
                break;
            }
        }
        let Some(side) = self.gateway_side(conn) else { return };
        if side.machine.is_closed() {
            return self.leave(conn);
        }
        let due = side.machine.poll_timeout(now).map(|(at, _)| at);
        let known = side.timer_at;
        if let Some(due) = due {
            let when = self.now + u64::try_from(due.since(now).as_millis()).unwrap_or(0).max(1);
            if known.is_none_or(|known| known > when) {
                if let Some(side) = self.gateway_side(conn) {
                    side.timer_at = Some(when);
                }
                self.queue.put(when, Action::GatewayTimer { conn });
            }
        }
    }

    pub(crate) fn gateway_timer(&mut self, conn: usize) {
        let now = self.gateway_now(self.conns[conn].gateway);
        let at = self.now;
        let Some(side) = self.gateway_side(conn) else { return };
        if side.timer_at.is_some_and(|planned| planned <= at) {
            side.timer_at = None;
            side.machine.handle_timeout(now);
            self.advance_gateway(conn);
        }
    }

    /// A turn that led to no question: the session has what it is about, or has no room and keeps the mark.
    fn give_turns_back(&mut self, conn: usize) {
        let gateway = self.conns[conn].gateway;
        let Some(side) = self.gateway_side(conn) else { return };
        let unused: Vec<(Ticket, bool)> =
            side.turns.take_unused().map(|ticket| (ticket, side.machine.is_marked(ticket.component))).collect();
        for (ticket, is_marked) in unused {
            self.build_ended(gateway, ticket, if is_marked { Ended::Parked } else { Ended::Declined });
        }
    }

    /// A message of the agent arrives.
    pub(crate) fn handle_at_gateway(&mut self, conn: usize, message: Message) {
        let gateway = self.conns[conn].gateway;
        let now = self.gateway_now(gateway);
        let key = host_key(self.agents[self.conns[conn].agent].host);
        let Some(side) = self.gateway_side(conn) else { return };
        if let (Message::Outcome(report), Some(session_epoch)) = (&message, side.session_epoch) {
            let outcome = statement_of(side.host, session_epoch, report);
            if sign(key, &outcome_bytes(authority(), &outcome, &report.conditions)) != report.signature {
                return side.machine.handle_forged_outcome(report.update_seq);
            }
        }
        if let (Message::Status(status), Some(session_epoch)) = (&message, side.session_epoch) {
            let place = StatusPlace { host: side.host, session_epoch, seq: status.seq };
            if sign(key, &status_bytes(authority(), place, &status.report)) != status.signature {
                return side.machine.handle_refused_status(FaultCode::BadSignature, now);
            }
        }
        let is_heard = matches!(message, Message::Liveness(_) | Message::Outcome(_) | Message::Status(_));
        let heard = side.session_epoch.filter(|_| is_heard).map(|epoch| (side.host, epoch));
        side.machine.handle_message(message, now);
        if let Some((host, epoch)) = heard {
            self.put_heard(gateway, host, epoch);
        }
        self.handle_gateway_events(conn);
    }

    fn handle_gateway_events(&mut self, conn: usize) -> bool {
        let mut count = 0;
        while let Some(event) = self.gateway_side(conn).and_then(|side| side.machine.poll_event()) {
            count += 1;
            self.handle_gateway_event(conn, event);
        }
        if count > EVENTS_MAX {
            self.violate(Invariant::MemoryIsBounded, || format!("{count} events of one session waited"));
        }
        count > 0
    }

    fn handle_gateway_event(&mut self, conn: usize, event: Event) {
        let gateway = self.conns[conn].gateway;
        match event {
            Event::Hello(_) => {
                let Some(side) = self.gateway_side(conn) else { return };
                let host = side.host;
                if self.holds_lease(gateway) {
                    self.check_lease(gateway);
                    return self.submit(Some(Process::Gateway(gateway)), Ask::Open { conn, host });
                }
                // A session of a gateway without a lease would take the host from one that has.
                self.tally.refused_without_lease += 1;
                if let Some(side) = self.gateway_side(conn) {
                    side.machine.handle_refused(RefusalCode::AuthorityAway, AUTHORITY_AWAY_RETRY_MS, "");
                }
            }
            Event::Want(want) => self.ask_desired(conn, want),
            Event::Sent { update_seq, component, stamp, form, cause } => {
                self.note_sent(conn, update_seq, component, stamp, (form, cause));
                if form == Form::Snapshot {
                    self.record_fact(conn, Seen::SnapshotSent);
                }
            }
            Event::Outcome(report) => {
                self.note_counted(conn, &report);
                self.record_fact(conn, Seen::Outcome(report));
            }
            Event::Status(status) => self.record_fact(conn, Seen::Status(status)),
            // An agent that keeps its own pauses is never refused.
            Event::StatusRefused { code, .. } => {
                self.violate(Invariant::SyncedIsProven, || format!("an honest status is refused: {code}"));
            }
            Event::Fault { .. } => {
                // What a stranger says may be what no database takes.
                let is_writable = !self.chance(30);
                self.record_fact(conn, Seen::Fault { is_writable });
            }
            Event::Undeliverable { component, bytes, .. } => {
                self.violate(Invariant::DeliveredOrSuperseded, || format!("{component} of {bytes} bytes is too large"));
            }
            // Machines without kernels have no drift, and nothing of a state follows from it.
            Event::Drift(_) | Event::Inventory(_) | Event::Closed(_) => {}
        }
    }

    fn ask_desired(&mut self, conn: usize, want: Want) {
        let gateway = self.conns[conn].gateway;
        let Some(side) = self.gateway_side(conn) else { return };
        match side.turns.ask(want) {
            Asked::Read(ticket) => self.read_desired(conn, want, ticket),
            Asked::Waits(asker) => {
                let (host, Some(epoch)) = (side.host, side.session_epoch) else { return };
                self.schedule(gateway, |sessions, now| {
                    sessions.scheduler_mut().handle_want(host, epoch, want.component, asker, now);
                });
            }
        }
    }

    fn read_desired(&mut self, conn: usize, want: Want, ticket: Ticket) {
        let gateway = self.conns[conn].gateway;
        let Some(side) = self.gateway_side(conn) else { return };
        side.reading += 1;
        if side.reading > Component::ALL.len() {
            self.violate(Invariant::MemoryIsBounded, || "a session reads more than its components at once".to_owned());
        }
        self.submit(Some(Process::Gateway(gateway)), Ask::Read { conn, want, ticket });
    }

    /// What the authority has for a question (`services/gateway/src/agents/reader.rs`).
    pub(crate) fn answer_of(&mut self, conn: usize, want: Want) -> Answer {
        let Some(host) = self.gateway_side(conn).map(|side| side.host) else { return Answer::Unchanged };
        let Some(row) = self.store.latest.get(&(host, want.component)).copied() else { return Answer::Unchanged };
        let whole = |world: &Self| match want.component {
            Component::Policy => world.store.body(row.stamp.digest).map(|body| body.flat.clone()),
            Component::Settings | Component::Credentials | Component::Workloads => {
                Some(want.component.empty_bytes().into())
            }
        };
        let (stamp, signature) = (row.stamp, row.signature);
        let supply = match want.tip.filter(|_| !want.snapshot) {
            None if want.snapshot => whole(self).map(|body| Supply::Whole { body, delta: None }),
            None => return Answer::Unchanged,
            Some(tip) if tip == row.stamp => return Answer::Unchanged,
            Some(tip) if tip.digest == row.stamp.digest => Some(Supply::SameDigest),
            Some(tip) => {
                let delta = self.store.delta(tip.digest, row.stamp.digest);
                let delta = delta.map(|changes| DeltaOffer { base: tip.digest, changes });
                whole(self).map(|body| Supply::Whole { body, delta })
            }
        };
        supply.map_or(Answer::Unavailable, |supply| Answer::Current { stamp, signature, supply })
    }

    /// What was read comes back.
    pub(crate) fn handle_read(&mut self, conn: usize, ticket: Ticket, answer: Answer) {
        let gateway = self.conns[conn].gateway;
        let now = self.gateway_now(gateway);
        let Some(side) = self.gateway_side(conn) else { return };
        side.reading -= 1;
        if side.session_epoch != Some(ticket.session_epoch) {
            return self.violate(Invariant::NothingCrossesSessions, || {
                format!("what was built for session {} reaches another", ticket.session_epoch)
            });
        }
        let mut ended = match &answer {
            Answer::Unchanged => Ended::Unchanged,
            Answer::Unavailable => Ended::Failed,
            Answer::Current { stamp, .. } => Ended::Built { version: stamp.version },
        };
        if side.machine.handle_answer(ticket.component, answer, now).is_err() {
            ended = Ended::Refused;
        }
        self.build_ended(gateway, ticket, ended);
        self.advance_gateway(conn);
    }

    /// The authority's word on a Hello comes back.
    pub(crate) fn handle_opened(&mut self, conn: usize, opened: Option<Opened>) {
        let gateway = self.conns[conn].gateway;
        let now = self.gateway_now(gateway);
        let Some(host) = self.gateway_side(conn).map(|side| side.host) else { return };
        match opened {
            Some(Opened { session_epoch, namespace }) => {
                if !self.hold(gateway, host, namespace, session_epoch, conn) {
                    if let Some(side) = self.gateway_side(conn) {
                        side.machine.handle_close(RefusalCode::Superseded, "");
                    }
                } else if let Some(side) = self.gateway_side(conn) {
                    side.session_epoch = Some(session_epoch);
                    let admission = Admission { session_epoch, authority: authority() };
                    side.machine.handle_admitted(admission, now);
                    self.put_heard(gateway, host, session_epoch);
                }
            }
            None => {
                if let Some(side) = self.gateway_side(conn) {
                    side.machine.handle_refused(RefusalCode::AuthorityAway, AUTHORITY_AWAY_RETRY_MS, "");
                }
            }
        }
        self.advance_gateway(conn);
    }

    /// What others put into the mailbox.
    pub(crate) fn handle_mail(&mut self, conn: usize) {
        let now = self.gateway_now(self.conns[conn].gateway);
        let Some(side) = self.gateway_side(conn) else { return };
        let mail = std::mem::take(&mut side.mail);
        if mail.resend {
            side.resends += 1;
            for component in Component::ALL {
                side.turns.wish(component);
                side.machine.handle_resend(component);
            }
        }
        for start in mail.starts.into_iter().flatten() {
            self.handle_start(conn, start);
        }
        let Some(side) = self.gateway_side(conn) else { return };
        if let Some(drain) = mail.drain {
            side.machine.handle_drain(drain, now);
        }
        if let Some(code) = mail.close {
            side.machine.handle_close(code, "");
        }
        self.advance_gateway(conn);
    }

    fn handle_start(&mut self, conn: usize, start: Start) {
        let component = start.ticket.component;
        let Some(side) = self.gateway_side(conn) else { return };
        if let Some(want) = side.turns.give(start.ticket) {
            return self.read_desired(conn, want, start.ticket);
        }
        match start.news {
            News::Asked => {}
            News::Newer(version) => side.machine.handle_compare(component, version),
            News::Unnamed => side.machine.handle_hint(component),
        }
    }

    /// The last word of a session, however it ended.
    fn leave(&mut self, conn: usize) {
        self.record_fact(conn, Seen::Closed);
        let gateway = self.conns[conn].gateway;
        let Some(side) = self.conns[conn].gateway_side.take() else { return };
        self.finish(conn, End::Agent);
        if let Some(session_epoch) = side.session_epoch {
            self.release(gateway, side.host, session_epoch);
        }
    }
}

/// What a host signed.
pub(crate) const fn statement_of(
    host: holdfast_model::ids::HostId,
    session_epoch: holdfast_model::numbers::SessionEpoch,
    report: &OutcomeReport,
) -> Outcome {
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
