//! What a gateway's process does beside its sessions: facts are written together, the lease is kept, sessions are compared.
//!
//! - Modelled after `services/gateway/src/agents` (recorder, lease, compare), with its times: facts wait while the database is away, and nothing is
//!   written without the lease.

use std::sync::Arc;

use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_wire::code::RefusalCode;

use super::World;
use super::ask::Ask;
use super::facts::{Fact, Seen};
use super::parts::{Action, End, Gateway, Process};
use super::registry::Newest;
use crate::store::LEASE_TTL_MS;

/// Facts in one transaction; the product takes a thousand.
const BATCH_MAX: usize = 32;
/// How far apart writes of facts begin, in milliseconds (`RECORD_GATHER`).
const GATHER_MS: u64 = 3;
/// How long signs of life are gathered (`PRESENCE_GATHER`).
const PRESENCE_MS: u64 = 250;
/// The wait before a failed write is tried again, and its cap (`RECORD_RETRY`, `RECORD_RETRY_MAX`).
const RETRY_MS: u64 = 100;
const RETRY_MS_MAX: u64 = 5_000;
/// How often the lease is renewed (`LEASE_RENEWAL`).
const RENEWAL_MS: u64 = 10_000;
/// How often sessions are compared, before jitter (`COMPARE_INTERVAL`).
const COMPARE_MS: u64 = 30_000;
/// How far apart compares are that doubts make (`HOLE_PAUSE`), and the longest wait after one that failed (`COMPARE_RETRY`).
const HOLE_PAUSE_MS: u64 = 1_000;
const COMPARE_RETRY_MS: u64 = 5_000;

impl World {
    pub(crate) fn start_gateway(&mut self, gateway: usize) {
        if self.gateways[gateway].is_up {
            return;
        }
        let scheduler = self.new_scheduler();
        let at = &mut self.gateways[gateway];
        let (life, cut_off_until) = (at.life + 1, at.cut_off_until);
        *at = Gateway { life, is_up: true, cut_off_until, scheduler, ..Gateway::down() };
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
        self.gateways[gateway].held.clear();
        self.gateways[gateway].scheduler = None;
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

    /// Takes a fact of a session; one that finds no room ends its session, since it would be lost.
    pub(crate) fn record_fact(&mut self, conn: usize, seen: Seen) {
        let gateway = self.conns[conn].gateway;
        let facts_max = self.plan.facts_max;
        let waiting = self.gateways[gateway].facts.len();
        let Some(side) = self.gateway_side(conn) else { return };
        let Some(session_epoch) = side.session_epoch else { return };
        if waiting >= facts_max && !matches!(seen, Seen::Closed) {
            side.machine.handle_close(RefusalCode::AuthorityAway, "");
            return;
        }
        let fact = Fact { host: side.host, session_epoch, seen };
        self.gateways[gateway].facts.push_back(fact);
        self.plan_record(gateway, GATHER_MS);
    }

    /// A host was heard just now.
    pub(crate) fn put_heard(&mut self, gateway: usize, host: HostId, session_epoch: SessionEpoch) {
        let at = self.gateway_now(gateway).as_millis();
        self.gateways[gateway].heard.insert(host, (session_epoch, at));
        self.plan_record(gateway, PRESENCE_MS);
    }

    fn plan_record(&mut self, gateway: usize, wait_ms: u64) {
        let at = &mut self.gateways[gateway];
        // A fact does not wait for the signs of life that are being gathered.
        if at.writing.is_none() && (!at.is_record_planned || wait_ms == GATHER_MS) {
            at.is_record_planned = true;
            let life = at.life;
            self.queue.put(self.now + wait_ms, Action::Record { gateway, life });
        }
    }

    /// Writes what waits, once the lease is held and nothing is being written.
    pub(crate) fn record(&mut self, gateway: usize, life: u32) {
        if !self.is_gateway(gateway, life) {
            return;
        }
        let now = self.gateway_now(gateway).as_millis();
        let at = &mut self.gateways[gateway];
        at.is_record_planned = false;
        if at.writing.is_some() || at.held_until <= now || (at.facts.is_empty() && at.heard.is_empty()) {
            return;
        }
        let count = at.facts.len().min(BATCH_MAX);
        let mut batch: Vec<Fact> = at.facts.drain(..count).collect();
        while batch.len() < BATCH_MAX
            && let Some((host, (session_epoch, heard_at))) = at.heard.pop_first()
        {
            let seen = Seen::Heard { age_ms: now.saturating_sub(heard_at) };
            batch.push(Fact { host, session_epoch, seen });
        }
        let batch = Arc::new(batch);
        at.writing = Some(Arc::clone(&batch));
        at.retry_ms = RETRY_MS;
        self.submit(Some(Process::Gateway(gateway)), Ask::Record { batch });
    }

    /// A batch was written, or is to be written again.
    pub(crate) fn handle_recorded(&mut self, gateway: usize, stale: Option<&[(HostId, SessionEpoch)]>) {
        let Some(stale) = stale else {
            let at = &mut self.gateways[gateway];
            let (life, wait) = (at.life, at.retry_ms);
            at.retry_ms = (2 * wait).min(RETRY_MS_MAX);
            // Again, the same: whether it was written is not known.
            if let Some(batch) = at.writing.clone() {
                self.submit_later(Process::Gateway(gateway), life, wait, Ask::Record { batch });
            }
            return;
        };
        self.gateways[gateway].writing = None;
        self.supersede(gateway, stale);
        self.ring_relay();
        let at = &self.gateways[gateway];
        if !at.facts.is_empty() {
            self.plan_record(gateway, GATHER_MS);
        } else if !at.heard.is_empty() {
            self.plan_record(gateway, PRESENCE_MS);
        }
    }

    pub(crate) fn hold_lease(&mut self, gateway: usize, life: u32) {
        if self.is_gateway(gateway, life) {
            self.gateways[gateway].lease_asked = self.gateway_now(gateway).as_millis();
            self.submit(Some(Process::Gateway(gateway)), Ask::Lease);
        }
    }

    /// Whether the lease is held, by this process's own clock: one that was held still does not take it for held when it goes on.
    pub(crate) fn holds_lease(&self, gateway: usize) -> bool {
        self.gateway_now(gateway).as_millis() < self.gateways[gateway].held_until
    }

    /// The lease is held, or is not.
    pub(crate) fn handle_lease(&mut self, gateway: usize, holds: bool) {
        let life = self.gateways[gateway].life;
        let at = &mut self.gateways[gateway];
        at.held_until = if holds { at.lease_asked + LEASE_TTL_MS } else { 0 };
        let wait = if holds { RENEWAL_MS } else { RENEWAL_MS / 10 };
        self.queue.put(self.now + wait, Action::Lease { gateway, life });
        if holds {
            self.plan_record(gateway, GATHER_MS);
        }
    }

    /// Where hints alone tell of what is new, only a doubt about them leads to a compare.
    fn plan_compare(&mut self, gateway: usize) {
        if self.compares() {
            let when = self.soon(COMPARE_MS / 5 * 4, COMPARE_MS / 5 * 6);
            self.plan_compare_at(gateway, when);
        }
    }

    /// One compare is planned, the earliest that anybody wants.
    fn plan_compare_at(&mut self, gateway: usize, when: u64) {
        let at = &mut self.gateways[gateway];
        if at.compare_at.is_none_or(|known| known > when) {
            at.compare_at = Some(when);
            let life = at.life;
            self.queue.put(when, Action::Compare { gateway, life });
        }
    }

    /// Hints may be missing.
    pub(super) fn doubt_hints(&mut self, gateway: usize) {
        let now = self.now;
        let at = &mut self.gateways[gateway];
        if at.is_comparing {
            at.is_in_doubt = true;
            return;
        }
        let when = at.compared_at.map_or(now, |compared| now.max(compared + HOLE_PAUSE_MS));
        self.plan_compare_at(gateway, when);
    }

    pub(crate) fn compare(&mut self, gateway: usize, life: u32) {
        let now = self.now;
        if !self.is_gateway(gateway, life) || self.gateways[gateway].compare_at.is_none_or(|planned| planned > now) {
            return;
        }
        self.gateways[gateway].compare_at = None;
        let hosts: Vec<HostId> = self.gateways[gateway].held.keys().copied().collect();
        if hosts.is_empty() {
            return self.end_compare(gateway);
        }
        self.gateways[gateway].is_comparing = true;
        self.submit(Some(Process::Gateway(gateway)), Ask::Compare { hosts });
    }

    /// A compare was answered, or failed.
    pub(crate) fn handle_compared(&mut self, gateway: usize, newest: Option<&[Newest]>) {
        self.gateways[gateway].is_comparing = false;
        self.end_compare(gateway);
        match newest {
            Some(newest) => self.handle_newest(gateway, newest),
            None => self.plan_compare_at(gateway, self.now + COMPARE_RETRY_MS),
        }
    }

    fn end_compare(&mut self, gateway: usize) {
        self.gateways[gateway].compared_at = Some(self.now);
        self.plan_compare(gateway);
        if std::mem::take(&mut self.gateways[gateway].is_in_doubt) {
            self.doubt_hints(gateway);
        }
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
