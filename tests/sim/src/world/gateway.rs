//! What a gateway's process does beside its sessions: it keeps its lease, and compares what it holds.
//!
//! - Real: when the lease is held and asked for, when sessions are compared, and what a compare finds ([`holdfast_session::replica`]). Modelled: the
//!   process, and what wakes it.

use holdfast_model::ids::HostId;
use holdfast_session::replica::{Compares, Facts, HeldNow, Lease, Pace, Sessions, ahead};
use holdfast_session::scheduler::{Capacity, Scheduler};

use super::World;
use super::ask::Ask;
use super::facts::SimFacts;
use super::parts::{Action, End, Gateway, Process};
use super::registry::Newest;
use crate::store::LEASE_TTL_MS;
use crate::violation::Invariant;

/// What a gateway's process decides by.
#[derive(Debug)]
pub(crate) struct Machines {
    pub(crate) sessions: Sessions<usize>,
    pub(crate) facts: Facts<SimFacts>,
    pub(crate) lease: Lease,
    pub(crate) compares: Compares,
    /// What the compare that is under way asks about.
    asked: Vec<HeldNow>,
}

impl World {
    fn new_machines(&mut self) -> Option<Machines> {
        let scheduler = Scheduler::new(Capacity::of(self.plan.builds_max).ok()?, self.random.next_u64());
        // As many as can begin at once in the reserve, as the product has it.
        let sessions = self.seeded(Sessions::new(scheduler, self.plan.builds_max / 4));
        let facts = self.seeded(Facts::new(self.plan.facts));
        let lease = self.seeded(Lease::new(std::time::Duration::from_millis(LEASE_TTL_MS)));
        let pace = self.plan.pace;
        // Where hints alone tell of what is new, only a doubt about them leads to a compare.
        let pace = if self.compares() { pace } else { Pace { interval: pace.interval * 1_000, ..pace } };
        let compares =
            Compares::new(pace, self.random.next_u64(), holdfast_session::time::Instant::from_millis(self.now));
        let compares = self.seeded(compares);
        Some(Machines { sessions, facts, lease, compares, asked: Vec::new() })
    }

    pub(crate) fn start_gateway(&mut self, gateway: usize) {
        if self.gateways[gateway].is_up {
            return;
        }
        let machines = self.new_machines();
        let at = &mut self.gateways[gateway];
        let (life, cut_off_until) = (at.life + 1, at.cut_off_until);
        *at = Gateway { life, is_up: true, cut_off_until, machines, ..Gateway::down() };
        self.queue.put(self.now, Action::Lease { gateway, life });
        self.plan_compare(gateway);
    }

    /// A gateway's process dies: its connections end, or say nothing any more.
    pub(crate) fn kill_gateway(&mut self, gateway: usize) {
        if !self.gateways[gateway].is_up {
            return;
        }
        let silent = self.chance(20);
        self.gateways[gateway].is_up = false;
        self.gateways[gateway].paused_until = 0;
        self.gateways[gateway].machines = None;
        self.reference.forget_gateway(gateway);
        for conn in 0..self.conns.len() {
            if self.conns[conn].gateway != gateway || self.conns[conn].gateway_side.take().is_none() {
                continue;
            }
            if silent {
                self.swallow(conn);
            } else {
                self.finish(conn, End::Agent);
            }
        }
        self.orphan(Process::Gateway(gateway));
        let when = self.soon(50, 8_000);
        self.queue.put(when, Action::Start(Process::Gateway(gateway)));
    }

    /// A moment of a gateway's clock, in the world's time.
    pub(super) fn when(&self, gateway: usize, due: holdfast_session::time::Instant) -> u64 {
        let wait = due.since(self.gateway_now(gateway)).as_millis();
        self.now + u64::try_from(wait).unwrap_or(u64::MAX / 2)
    }

    pub(crate) fn hold_lease(&mut self, gateway: usize, life: u32) {
        let now = self.gateway_now(gateway);
        if self.is_gateway(gateway, life)
            && let Some(machines) = &mut self.gateways[gateway].machines
        {
            machines.lease.handle_asked(now);
            self.submit(Some(Process::Gateway(gateway)), Ask::Lease);
            if std::mem::take(&mut self.gateways[gateway].stops_as_it_asks) && !self.is_healing {
                let until = self.soon(10_000, 70_000);
                let at = &mut self.gateways[gateway];
                at.paused_until = at.paused_until.max(until);
            }
        }
    }

    /// Whether the lease is held, by this process's own clock.
    pub(crate) fn holds_lease(&self, gateway: usize) -> bool {
        let now = self.gateway_now(gateway);
        self.gateways[gateway].machines.as_ref().is_some_and(|machines| machines.lease.is_held(now))
    }

    /// The reference looks at a gateway that is about to write or to open a session.
    pub(super) fn check_lease(&mut self, gateway: usize) {
        if self.reference.lease_is_over(gateway, self.now) {
            let now = self.now;
            self.violate(Invariant::OneWriter, || {
                format!("gateway {gateway} writes at {now} ms under a lease that may have ended")
            });
        }
    }

    /// The lease is held, or is not.
    pub(crate) fn handle_lease(&mut self, gateway: usize, holds: bool) {
        let now = self.gateway_now(gateway);
        let at = &mut self.gateways[gateway];
        let (life, Some(machines)) = (at.life, &mut at.machines) else { return };
        let has_lapsed = machines.lease.handle_answer(holds, now);
        let next = machines.lease.poll_timeout().map(|(due, _)| due);
        self.tally.lapses += u64::from(has_lapsed);
        if let Some(next) = next {
            let when = self.when(gateway, next);
            self.queue.put(when, Action::Lease { gateway, life });
        }
        self.plan_record(gateway);
    }

    /// One compare is planned, when the machine says.
    fn plan_compare(&mut self, gateway: usize) {
        let machines = self.gateways[gateway].machines.as_ref();
        let Some((due, _)) = machines.and_then(|machines| machines.compares.poll_timeout()) else { return };
        let when = self.when(gateway, due);
        let at = &mut self.gateways[gateway];
        if at.compare_at.is_none_or(|known| known > when) {
            at.compare_at = Some(when);
            let life = at.life;
            self.queue.put(when, Action::Compare { gateway, life });
        }
    }

    /// Hints may be missing.
    pub(super) fn doubt_hints(&mut self, gateway: usize) {
        let (at, now) = (self.now, self.gateway_now(gateway));
        if let Some(machines) = &mut self.gateways[gateway].machines {
            self.tally.doubts += 1;
            self.reference.note_doubt(gateway, at);
            machines.compares.handle_doubt(now);
            self.plan_compare(gateway);
        }
    }

    pub(crate) fn compare(&mut self, gateway: usize, life: u32) {
        let (at, now) = (self.now, self.gateway_now(gateway));
        if !self.is_gateway(gateway, life) || self.gateways[gateway].compare_at.is_none_or(|planned| planned > at) {
            return;
        }
        self.gateways[gateway].compare_at = None;
        let Some(machines) = &mut self.gateways[gateway].machines else { return };
        if !machines.compares.poll_begin(now) {
            return self.plan_compare(gateway);
        }
        self.reference.note_compare_begun(gateway);
        machines.asked = machines.sessions.held_now().collect();
        let hosts: Vec<HostId> = machines.asked.iter().map(|held| held.host).collect();
        if hosts.is_empty() {
            return self.end_compare(gateway, true);
        }
        self.tally.compares += 1;
        self.submit(Some(Process::Gateway(gateway)), Ask::Compare { hosts });
    }

    /// A compare was answered, or failed.
    pub(crate) fn handle_compared(&mut self, gateway: usize, newest: Option<&[Newest]>) {
        if let Some(newest) = newest {
            self.handle_newest(gateway, newest);
            let asked = self.gateways[gateway].machines.as_ref().map_or(&[][..], |machines| &machines.asked);
            // No database here ever goes back.
            if let Some((host, session_epoch)) = ahead(asked, newest.iter().map(Newest::of)).first().copied() {
                self.violate(Invariant::DeliveredOrSuperseded, || {
                    format!("session {session_epoch} of {host} is taken for one that the database does not know")
                });
            }
        }
        self.end_compare(gateway, newest.is_some());
    }

    fn end_compare(&mut self, gateway: usize, is_compared: bool) {
        let (at, now) = (self.now, self.gateway_now(gateway));
        self.reference.note_compare_ended(gateway, is_compared, at);
        if let Some(machines) = &mut self.gateways[gateway].machines {
            machines.compares.handle_ended(is_compared, now);
        }
        self.plan_compare(gateway);
    }

    /// The newest session and versions of hosts, as one query finds them.
    pub(crate) fn newest_of(&self, hosts: &[HostId]) -> Vec<Newest> {
        let newest = |host: &HostId| {
            let session_epoch = self.store.sessions.get(host)?.session.session_epoch();
            let of_host = self.store.latest.iter().filter(|((of, _), _)| of == host);
            let versions = of_host.map(|((_, part), row)| (*part, row.stamp.version)).collect();
            Some(Newest { host: *host, session_epoch, versions })
        };
        hosts.iter().filter_map(newest).collect()
    }
}
