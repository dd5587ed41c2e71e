//! The sessions that a gateway holds, and what is built for them, after `services/gateway/src/agents/registry.rs`.
//!
//! - Real: who stays, who leaves, what a compare ends and what is built when ([`holdfast_session::replica::Sessions`]). Modelled: the mailboxes.

use std::sync::Arc;

use holdfast_events::HostHint;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_session::replica::{self, Sessions};
use holdfast_session::scheduler::{Ended, Ticket};
use holdfast_session::time::Instant;
use holdfast_wire::code::RefusalCode;

use super::World;
use super::conn::Mail;
use super::parts::{Action, place};
use crate::violation::Invariant;

impl World {
    /// Tells the machine something, sessions what may begin by that, and the clock when to come back.
    pub(crate) fn schedule<T>(
        &mut self,
        gateway: usize,
        tell: impl FnOnce(&mut Sessions<usize>, Instant) -> T,
    ) -> Option<T> {
        let now = self.gateway_now(gateway);
        let sessions = &mut self.gateways[gateway].machines.as_mut()?.sessions;
        let told = tell(sessions, now);
        let mut starts = Vec::new();
        while let Some((start, conn)) = sessions.poll_start(now) {
            starts.push((start, conn.copied()));
        }
        let scheduler = sessions.scheduler();
        let (building, waiting) = (scheduler.building(), scheduler.waiting());
        let next = scheduler.poll_timeout().map(|(at, _)| at);
        let held = sessions.len();
        for (start, conn) in starts {
            if let Some(conn) = conn {
                self.mail(conn, |mail| mail.starts[place(start.ticket.component)] = Some(start));
            }
        }
        let under_way = building.host + building.first + building.bulk;
        let waits = waiting.host + waiting.first + waiting.bulk;
        if under_way > self.plan.builds_max || waits > held * Component::ALL.len() {
            self.violate(Invariant::MemoryIsBounded, || {
                format!("a scheduler of {held} sessions has {under_way} builds and {waits} marks")
            });
        }
        if let Some(next) = next {
            let when = self.when(gateway, next).max(self.now + 1);
            let at = &mut self.gateways[gateway];
            if at.scheduler_at.is_none_or(|known| known > when) {
                at.scheduler_at = Some(when);
                let life = at.life;
                self.queue.put(when, Action::Scheduler { gateway, life });
            }
        }
        Some(told)
    }

    pub(crate) fn scheduler_timer(&mut self, gateway: usize, life: u32) {
        if self.is_gateway(gateway, life) {
            self.gateways[gateway].scheduler_at = None;
            self.schedule(gateway, |sessions, now| sessions.scheduler_mut().handle_timeout(now));
        }
    }

    /// Puts something into a session's mailbox and wakes it.
    pub(crate) fn mail(&mut self, conn: usize, put: impl FnOnce(&mut Mail)) {
        let when = self.soon(0, 2);
        let Some(side) = self.gateway_side(conn) else { return };
        put(&mut side.mail);
        if !side.mail.is_planned {
            side.mail.is_planned = true;
            self.queue.put(when, Action::Mail { conn });
        }
    }

    fn mail_superseded(&mut self, conn: usize) {
        self.mail(conn, |mail| mail.close = Some(RefusalCode::Superseded));
    }

    /// Takes a session in and ends an older one of its host; false if a newer one is here already.
    pub(crate) fn hold(
        &mut self,
        gateway: usize,
        host: HostId,
        namespace: Name,
        session_epoch: SessionEpoch,
        conn: usize,
    ) -> bool {
        let held = self.schedule(gateway, |sessions, _| sessions.handle_held(host, namespace, session_epoch, conn));
        let Some(Ok(older)) = held else { return false };
        older.into_iter().for_each(|older| self.mail_superseded(older));
        true
    }

    /// A session is over.
    pub(crate) fn release(&mut self, gateway: usize, host: HostId, session_epoch: SessionEpoch) {
        let Some(machines) = &mut self.gateways[gateway].machines else { return };
        let held = machines.sessions.of(host).map(|(held, _)| held);
        machines.sessions.handle_released(host, session_epoch);
        let taken = held.filter(|held| *held != session_epoch && machines.sessions.of(host).is_none());
        if let Some(taken) = taken {
            self.violate(Invariant::NothingCrossesSessions, || {
                format!("the end of session {session_epoch} of {host} takes session {taken} off its gateway")
            });
        }
        self.schedule(gateway, |_, _| ());
    }

    pub(crate) fn build_ended(&mut self, gateway: usize, ticket: Ticket, ended: Ended) {
        self.schedule(gateway, |sessions, now| sessions.scheduler_mut().handle_ended(ticket, ended, now));
    }

    /// A hint arrives.
    pub(crate) fn hear(&mut self, gateway: usize, life: u32, hint: &Arc<HostHint>) {
        if self.is_gateway(gateway, life) {
            if self.gateways[gateway].numbers.are_in_doubt_before(hint) {
                self.doubt_hints(gateway);
            }
            let of = hint.of.and_then(|of| usize::try_from(of).ok()).unwrap_or(hint.states.len());
            self.schedule(gateway, |sessions, now| sessions.handle_published(&hint.states, of, now));
        }
    }

    /// What the authority holds of hosts: newer versions are to be built, a newer session ends the one that is here.
    pub(super) fn handle_newest(&mut self, gateway: usize, newest: &[Newest]) {
        let over = self.schedule(gateway, |sessions, now| {
            let over = sessions.handle_newest(newest.iter().map(Newest::of), now);
            over.into_iter().copied().collect::<Vec<_>>()
        });
        over.into_iter().flatten().for_each(|conn| self.mail_superseded(conn));
    }

    /// Ends the sessions that are no longer their hosts', and no newer one.
    pub(crate) fn supersede(&mut self, gateway: usize, stale: &[(HostId, SessionEpoch)]) {
        let Some(machines) = &self.gateways[gateway].machines else { return };
        let held = stale.iter().filter_map(|(host, epoch)| machines.sessions.session(*host, *epoch)).copied();
        let held: Vec<usize> = held.collect();
        held.into_iter().for_each(|conn| self.mail_superseded(conn));
    }

    /// The connections of the sessions that a gateway holds.
    pub(crate) fn held_by(&self, gateway: usize) -> Vec<usize> {
        self.gateways[gateway].machines.iter().flat_map(|machines| machines.sessions.iter().copied()).collect()
    }

    /// The connections of a host's sessions, on whatever gateway.
    pub(crate) fn sessions_of(&self, host: HostId) -> Vec<usize> {
        let machines = self.gateways.iter().filter_map(|gateway| gateway.machines.as_ref());
        machines.filter_map(|machines| machines.sessions.of(host)).map(|(_, conn)| *conn).collect()
    }
}

/// What is newest of a host.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub(crate) host: HostId,
    pub(crate) session_epoch: SessionEpoch,
    pub(crate) versions: Vec<(Component, Version)>,
}

impl Newest {
    /// As machines take it.
    pub(crate) fn of(&self) -> replica::Newest<'_> {
        replica::Newest { host: self.host, session_epoch: self.session_epoch, versions: &self.versions }
    }
}
