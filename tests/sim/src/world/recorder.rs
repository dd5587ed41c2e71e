//! Facts on their way from a gateway to the authority, after `services/gateway/src/agents/recorder.rs`.
//!
//! - Real: what waits, what goes together, what is tried again, and what is left out ([`holdfast_session::replica::Facts`]). Modelled: the loop around
//!   it, which writes nothing without the lease.
//! - The reference knows every fact that was taken, until it is written or its process dies.

use std::sync::Arc;

use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_session::replica::{Kind as _, NoRoom, Sort};
use holdfast_wire::code::RefusalCode;

use super::World;
use super::ask::{Ask, Told};
use super::facts::{Fact, Seen, SimFacts};
use super::parts::{Action, Process};
use crate::violation::Invariant;

impl World {
    /// Takes a fact of a session; one that finds no room ends its session, since it would be lost.
    pub(crate) fn record_fact(&mut self, conn: usize, seen: Seen) {
        let gateway = self.conns[conn].gateway;
        let now = self.gateway_now(gateway);
        let Some(side) = self.gateway_side(conn) else { return };
        let (host, Some(session_epoch)) = (side.host, side.session_epoch) else { return };
        self.facts_taken += 1;
        let fact = Fact { nth: self.facts_taken, host, session_epoch, seen };
        let Some(machines) = &mut self.gateways[gateway].machines else { return };
        if machines.facts.put(fact.clone(), now) == Err(NoRoom) {
            self.tally.without_room += 1;
            if let Some(side) = self.gateway_side(conn) {
                side.machine.handle_close(RefusalCode::AuthorityAway, "");
            }
            return;
        }
        self.reference.note_taken(gateway, &fact);
        self.plan_record(gateway);
    }

    /// A host was heard just now.
    pub(crate) fn put_heard(&mut self, gateway: usize, host: HostId, session_epoch: SessionEpoch) {
        let now = self.gateway_now(gateway);
        self.reference.note_heard(host, session_epoch, self.now);
        if let Some(machines) = &mut self.gateways[gateway].machines {
            machines.facts.put_heard(host, session_epoch, now);
            self.plan_record(gateway);
        }
    }

    /// One look is planned, when the machine says.
    pub(super) fn plan_record(&mut self, gateway: usize) {
        let machines = self.gateways[gateway].machines.as_ref();
        let Some((due, _)) = machines.and_then(|machines| machines.facts.poll_timeout()) else { return };
        let when = self.when(gateway, due);
        let at = &mut self.gateways[gateway];
        if at.record_at.is_none_or(|known| known > when) {
            at.record_at = Some(when);
            let life = at.life;
            self.queue.put(when, Action::Record { gateway, life });
        }
    }

    /// Writes what waits, once the lease is held and nothing is being written.
    pub(crate) fn record(&mut self, gateway: usize, life: u32) {
        let now = self.now;
        if !self.is_gateway(gateway, life) || self.gateways[gateway].record_at.is_none_or(|planned| planned > now) {
            return;
        }
        self.gateways[gateway].record_at = None;
        // When it is held again, it is looked again.
        if !self.holds_lease(gateway) {
            return;
        }
        let now = self.gateway_now(gateway);
        let Some(machines) = &mut self.gateways[gateway].machines else { return };
        let Some(batch) = machines.facts.poll_batch(now) else { return self.plan_record(gateway) };
        self.check_lease(gateway);
        self.check_ages(&batch);
        let batch = Arc::new(batch);
        self.submit(Some(Process::Gateway(gateway)), Ask::Record { batch });
    }

    /// The reference looks at signs of life as they are sent: none may say that a host was heard later than it was.
    fn check_ages(&mut self, batch: &[Fact]) {
        for fact in batch {
            let Seen::Heard { age_ms } = fact.seen else { continue };
            let said = self.now.saturating_sub(age_ms);
            if self.reference.heard_at(fact.host, fact.session_epoch).is_none_or(|heard| heard < said) {
                let host = fact.host;
                self.violate(Invariant::FactsAreKept, || {
                    format!("{host} is said to be heard at {said} ms, and was not")
                });
            }
        }
    }

    /// A batch was written, or is to be written again.
    pub(crate) fn handle_recorded(&mut self, gateway: usize, told: &Told) {
        let now = self.gateway_now(gateway);
        let Some(machines) = &mut self.gateways[gateway].machines else { return };
        if let Told::Recorded(stale) = told {
            machines.facts.handle_written(now);
            self.supersede(gateway, stale);
            self.ring_relay();
        } else if matches!(told, Told::OfAValue) {
            let left_out = machines.facts.handle_refused(now);
            left_out.iter().for_each(|fact| self.leave_out(gateway, fact));
        } else {
            // Whether it was written is not known.
            machines.facts.handle_failed(now);
        }
        self.plan_record(gateway);
    }

    fn leave_out(&mut self, gateway: usize, fact: &Fact) {
        self.tally.left_out += 1;
        self.reference.note_left_out(gateway, fact.nth);
        if fact.is_writable() {
            let host = fact.host;
            self.violate(Invariant::FactsAreKept, || format!("a fact of {host} is left out that could be written"));
        }
    }

    /// The reference looks at a batch that is written: nothing of a session may follow its end, or overtake what was taken before it.
    pub(super) fn check_written(&mut self, gateway: usize, batch: &[Fact]) {
        for fact in batch {
            self.reference.note_written(gateway, fact.nth, fact.host, SimFacts::sort(fact) == Sort::Status);
        }
        for fact in batch {
            if let Some(nth) = self.reference.overtaken_by(gateway, fact) {
                let (host, session_epoch) = (fact.host, fact.session_epoch);
                let what = if SimFacts::sort(fact) == Sort::Goodbye { "its end" } else { "what followed" };
                self.violate(Invariant::FactsAreKept, || {
                    format!("fact {nth} of session {session_epoch} of {host} is not written before {what}")
                });
            }
        }
    }
}
