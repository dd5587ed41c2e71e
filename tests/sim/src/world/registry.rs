//! The sessions that a gateway holds and its scheduler, after `services/gateway/src/agents/registry.rs`.
//!
//! - Real: the scheduler. Modelled: the map beside it, whose rules are the product's: the higher number stays, a session leaves only for itself.

use std::sync::Arc;

use holdfast_events::HostHint;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_session::scheduler::{Capacity, Ended, Reach, Scheduler, Ticket};
use holdfast_wire::code::RefusalCode;

use super::World;
use super::conn::Mail;
use super::parts::{Action, place};
use crate::violation::Invariant;

impl World {
    pub(crate) fn new_scheduler(&mut self) -> Option<Scheduler> {
        let seed = self.random.next_u64();
        let capacity = Capacity::of(self.plan.builds_max).ok()?;
        Some(self.seeded_scheduler(Scheduler::new(capacity, seed)))
    }

    /// Tells the scheduler something, sessions what may begin by that, and the clock when to come back.
    pub(crate) fn schedule<T>(&mut self, gateway: usize, tell: impl FnOnce(&mut Scheduler) -> T) -> Option<T> {
        let now = self.gateway_now(gateway);
        let at = &mut self.gateways[gateway];
        let scheduler = at.scheduler.as_mut()?;
        let told = tell(scheduler);
        let mut starts = Vec::new();
        while let Some(start) = scheduler.poll_start(now) {
            starts.push(start);
        }
        let (building, waiting) = (scheduler.building(), scheduler.waiting());
        let next = scheduler.poll_timeout().map(|(at, _)| at);
        let held = at.held.len();
        for start in starts {
            if let Some((_, conn)) = self.gateways[gateway].held.get(&start.ticket.host).copied() {
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
            let when = self.now + u64::try_from(next.since(now).as_millis()).unwrap_or(0).max(1);
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
            let now = self.gateway_now(gateway);
            self.gateways[gateway].scheduler_at = None;
            self.schedule(gateway, |scheduler| scheduler.handle_timeout(now));
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

    /// Takes a session in and ends an older one of its host; false if a newer one is here already.
    pub(crate) fn hold(
        &mut self,
        gateway: usize,
        host: HostId,
        namespace: Name,
        session_epoch: SessionEpoch,
        conn: usize,
    ) -> bool {
        let held = self.schedule(gateway, |scheduler| scheduler.handle_held(host, namespace, session_epoch));
        if held != Some(true) {
            return false;
        }
        if let Some((_, older)) = self.gateways[gateway].held.insert(host, (session_epoch, conn)) {
            self.mail(older, |mail| mail.close = Some(RefusalCode::Superseded));
        }
        true
    }

    /// A session is over.
    pub(crate) fn release(&mut self, gateway: usize, host: HostId, session_epoch: SessionEpoch) {
        self.schedule(gateway, |scheduler| scheduler.handle_released(host, session_epoch));
        let held = &mut self.gateways[gateway].held;
        if held.get(&host).is_some_and(|(epoch, _)| *epoch == session_epoch) {
            held.remove(&host);
        }
    }

    pub(crate) fn build_ended(&mut self, gateway: usize, ticket: Ticket, ended: Ended) {
        let now = self.gateway_now(gateway);
        self.schedule(gateway, |scheduler| scheduler.handle_ended(ticket, ended, now));
    }

    /// A hint arrives.
    pub(crate) fn hear(&mut self, gateway: usize, life: u32, hint: &Arc<HostHint>) {
        if self.is_gateway(gateway, life) {
            if self.gateways[gateway].numbers.are_in_doubt_before(hint) {
                self.doubt_hints(gateway);
            }
            let of = hint.of.and_then(|of| usize::try_from(of).ok()).unwrap_or(hint.states.len());
            self.hear_states(gateway, &hint.states, of);
        }
    }

    fn hear_states(&mut self, gateway: usize, states: &[(HostId, Component, Version)], of: usize) {
        let now = self.gateway_now(gateway);
        // As many as can begin at once in the reserve, as the product has it.
        let reach = if of <= self.plan.builds_max / 4 { Reach::Narrow } else { Reach::Wide };
        self.schedule(gateway, |scheduler| scheduler.handle_states(states, reach, now));
    }

    /// What the authority holds of hosts: newer versions are to be built, a newer session ends the one that is here.
    pub(super) fn handle_newest(&mut self, gateway: usize, newest: &[Newest]) {
        let mut states = Vec::new();
        for host in newest {
            let Some((epoch, conn)) = self.gateways[gateway].held.get(&host.host).copied() else { continue };
            if epoch < host.session_epoch {
                self.mail(conn, |mail| mail.close = Some(RefusalCode::Superseded));
                continue;
            }
            let Some(scheduler) = &self.gateways[gateway].scheduler else { continue };
            let news = host.versions.iter().filter(|(part, version)| scheduler.is_news(host.host, *part, *version));
            states.extend(news.map(|(part, version)| (host.host, *part, *version)));
        }
        if !states.is_empty() {
            self.hear_states(gateway, &states, states.len());
        }
    }

    /// Ends the sessions that are no longer their hosts', and no newer one.
    pub(crate) fn supersede(&mut self, gateway: usize, stale: &[(HostId, SessionEpoch)]) {
        for (host, session_epoch) in stale {
            if let Some((epoch, conn)) = self.gateways[gateway].held.get(host).copied()
                && epoch == *session_epoch
            {
                self.mail(conn, |mail| mail.close = Some(RefusalCode::Superseded));
            }
        }
    }
}

/// What is newest of a host.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub(crate) host: HostId,
    pub(crate) session_epoch: SessionEpoch,
    pub(crate) versions: Vec<(Component, Version)>,
}
