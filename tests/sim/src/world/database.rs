//! Statements and transactions on their way to the authority and back.
//!
//! - A statement reads one snapshot. A transaction takes its locks, its number and the numbers of its events, and then commits, is rolled back, or
//!   commits without its answer coming back.
//! - Whoever asked may be dead when it commits: it commits or not all the same.

use holdfast_model::desired::{Component, Desired};
use holdfast_model::ids::HostId;
use holdfast_model::status::Words;
use holdfast_session::gateway::Answer;
use holdfast_wire::negotiate::Protocol;

use super::World;
use super::ask::{Ask, Opened, Told};
use super::facts::Fact;
use super::parts::{Action, Process};
use crate::estate::namespace;
use crate::store::{EventRow, LEASE_TTL_MS, RENDERER_LEASE, SessionRow};
use crate::violation::Invariant;

/// How many numbers a transaction takes for its events: more than any writes.
const LIDS: u64 = 256;

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Good,
    FailsFirst,
    RollsBack,
    AnswerLost,
}

/// One statement or transaction.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) by: Option<Process>,
    life: u32,
    pub(super) ask: Ask,
    fate: Fate,
    xid: u64,
    lid: u64,
    numbered: Vec<EventRow>,
    horizon: u64,
    told: Option<Told>,
    is_executed: bool,
    executed_at: u64,
}

impl World {
    pub(crate) const fn database_is_away(&self) -> bool {
        self.store.away_until > self.now
    }

    fn is_cut_off(&self, by: Option<Process>) -> bool {
        let cut = match by {
            Some(Process::Gateway(gateway)) => self.gateways[gateway].cut_off_until > self.now,
            Some(Process::Renderer(_) | Process::Agent(_)) | None => false,
        };
        cut || self.database_is_away()
    }

    pub(crate) fn submit(&mut self, by: Option<Process>, ask: Ask) {
        let life = self.life_of(by);
        let fate = self.draw_fate();
        let op = self.ops.len();
        self.ops.push(Op {
            by,
            life,
            ask,
            fate,
            xid: 0,
            lid: 0,
            numbered: Vec::new(),
            horizon: 0,
            told: None,
            is_executed: false,
            executed_at: 0,
        });
        let when = self.soon(1, 4);
        self.queue.put(when, Action::Execute { op });
    }

    fn draw_fate(&mut self) -> Fate {
        if self.database_is_flaky() {
            match self.between(0, 9) {
                0 | 1 => return Fate::FailsFirst,
                2 => return Fate::RollsBack,
                3 => return Fate::AnswerLost,
                _ => {}
            }
        }
        Fate::Good
    }

    fn life_of(&self, by: Option<Process>) -> u32 {
        match by {
            Some(Process::Gateway(gateway)) => self.gateways[gateway].life,
            Some(Process::Agent(agent)) => self.agents[agent].life,
            Some(Process::Renderer(renderer)) => self.renderers[renderer].life,
            None => 0,
        }
    }

    /// A process died: what it had under way ends one way or the other.
    pub(crate) fn orphan(&mut self, by: Process) {
        for op in 0..self.ops.len() {
            if self.ops[op].by == Some(by) && self.ops[op].told.is_none() && self.chance(50) {
                self.ops[op].fate = Fate::RollsBack;
            }
        }
    }

    pub(crate) fn execute(&mut self, op: usize) {
        if self.is_cut_off(self.ops[op].by) || self.ops[op].fate == Fate::FailsFirst {
            let wait = self.between(5, 2_000);
            return self.answer_op(op, Told::Failed, wait);
        }
        if let Ask::Record { batch } = &self.ops[op].ask
            && !batch.iter().all(Fact::is_writable)
        {
            return self.answer_op(op, Told::OfAValue, 1);
        }
        if let Some(told) = self.read_now(op) {
            // What was read is as old as its way back is long.
            let wait = self.between(1, self.plan.read_ms);
            return self.answer_op(op, told, wait);
        }
        if !self.lock(op) {
            let when = self.soon(1, 3);
            return self.queue.put(when, Action::Execute { op });
        }
        self.ops[op].is_executed = true;
        self.ops[op].executed_at = self.now;
        if self.is_fenced_out(op) {
            self.unlock(op);
            return self.answer_op(op, Told::Refused, 1);
        }
        if let Ask::Number { horizon, .. } = self.ops[op].ask {
            self.ops[op].numbered = self.store.unnumbered(horizon);
            self.ops[op].horizon = self.store.in_progress.first().copied().unwrap_or(self.store.next_xid);
        }
        let (xid, lid) = (self.store.next_xid, self.store.next_lid);
        (self.store.next_xid, self.store.next_lid) = (xid + 1, lid + LIDS);
        self.store.in_progress.insert(xid);
        (self.ops[op].xid, self.ops[op].lid) = (xid, lid);
        let slow = if self.database_is_flaky() { 400 } else { 4 };
        let when = self.soon(0, slow);
        self.queue.put(when, Action::Commit { op });
    }

    /// What a statement reads; `None` for a transaction that writes.
    fn read_now(&mut self, op: usize) -> Option<Told> {
        match self.ops[op].ask.clone() {
            Ask::Read { conn, want, .. } => Some(Told::Read(self.answer_of(conn, want))),
            Ask::Compare { hosts } => Some(Told::Newest(self.newest_of(&hosts))),
            Ask::Load { .. } => {
                let desired = |((host, component), row): (&(HostId, Component), &crate::store::DesiredRow)| Desired {
                    host: *host,
                    component: *component,
                    stamp: row.stamp,
                };
                let latest = self.store.latest.iter().map(desired).collect();
                Some(Told::Loaded(Box::new((self.estate.intent(), self.store.revision, self.store.rendered, latest))))
            }
            Ask::Changes { since, .. } => {
                let from = usize::try_from(since.raw()).unwrap_or(usize::MAX);
                let edits = self.store.edits.get(from..).unwrap_or_default().to_vec();
                Some(Told::Changes(self.store.revision, edits))
            }
            Ask::Open { .. }
            | Ask::Record { .. }
            | Ask::Lease
            | Ask::Acquire
            | Ask::Renew { .. }
            | Ask::Release { .. }
            | Ask::Store { .. }
            | Ask::Number { .. } => None,
        }
    }

    /// A transaction ends.
    pub(crate) fn commit(&mut self, op: usize) {
        self.store.in_progress.remove(&self.ops[op].xid);
        let rolls_back = self.ops[op].fate == Fate::RollsBack || self.database_is_away();
        let told = if rolls_back {
            Told::Failed
        } else {
            self.locks.writing = Some((self.ops[op].xid, self.ops[op].lid, self.ops[op].executed_at));
            let told = self.write_now(op);
            self.locks.writing = None;
            told
        };
        self.unlock(op);
        let is_told = self.ops[op].fate != Fate::AnswerLost && !self.is_cut_off(self.ops[op].by);
        let wait = match is_told {
            true if self.database_is_flaky() => self.between(1, 3_000),
            true => 1,
            false => self.between(100, 5_000),
        };
        self.answer_op(op, if is_told { told } else { Told::Failed }, wait);
    }

    fn write_now(&mut self, op: usize) -> Told {
        let clock = self.clock();
        let by = self.ops[op].by;
        match self.ops[op].ask.clone() {
            Ask::Open { conn, host } => self.open_session(by, conn, host),
            Ask::Record { batch } => {
                let stale = self.record_facts(&batch);
                if let Some(Process::Gateway(gateway)) = by.filter(|_| self.is_asker_there(op)) {
                    self.check_written(gateway, &batch);
                }
                Told::Recorded(stale)
            }
            Ask::Lease => {
                let Some(Process::Gateway(gateway)) = by else { return Told::Failed };
                Told::Held(self.hold_gateway_lease(gateway, self.ops[op].life, clock))
            }
            Ask::Acquire => {
                let term = self.store.acquire(RENDERER_LEASE, clock);
                if let Some(term) = term {
                    self.reference.term = term;
                    self.insert_events(1);
                }
                Told::Term(term)
            }
            Ask::Renew { term, .. } => Told::Held(self.store.renew(RENDERER_LEASE, term, clock)),
            Ask::Release { term } => {
                self.store.release(RENDERER_LEASE, term, clock);
                Told::Stored
            }
            Ask::Store { term, plan, signatures, .. } => self.store_render(term, &plan, &signatures),
            Ask::Number { .. } => {
                let events = std::mem::take(&mut self.ops[op].numbered);
                self.number_events(&events);
                let (last, count) = (self.store.order.len(), events.len() as u64);
                Told::Numbered { horizon: self.ops[op].horizon, last, count }
            }
            Ask::Read { .. } | Ask::Compare { .. } | Ask::Load { .. } | Ask::Changes { .. } => Told::Failed,
        }
    }

    /// Whether the process that asked for something is the one that is there now.
    fn is_asker_there(&self, op: usize) -> bool {
        matches!(self.ops[op].by, Some(Process::Gateway(gateway)) if self.is_gateway(gateway, self.ops[op].life))
    }

    /// Claims or renews the lease of a gateway's process, whoever is still there to hear of it.
    fn hold_gateway_lease(&mut self, gateway: usize, life: u32, clock: u64) -> bool {
        let name = 1 + gateway as u64 + 1_000 * u64::from(life);
        let is_there = self.is_gateway(gateway, life);
        let term = self.gateways[gateway].term.filter(|_| is_there);
        let is_renewed = term.is_some_and(|term| self.store.renew(name, term, clock));
        let claimed = if is_renewed { None } else { self.store.acquire(name, clock) };
        let holds = is_renewed || claimed.is_some();
        if is_there && !is_renewed {
            self.gateways[gateway].term = claimed;
        }
        if is_there && holds {
            self.reference.note_lease(gateway, self.now + LEASE_TTL_MS);
        }
        holds
    }

    fn open_session(&mut self, by: Option<Process>, conn: usize, host: HostId) -> Told {
        let Some(Process::Gateway(gateway)) = by else { return Told::Failed };
        let lease = self.gateways[gateway].lease(gateway);
        let clock = self.clock();
        let protocol = self.gateway_side(conn).and_then(|side| side.machine.protocol());
        let words = Words::of_protocol(protocol.map(Protocol::number));
        let Some(row) = self.store.sessions.get_mut(&host) else { return Told::Failed };
        let Some(begun) = row.session.begin() else { return Told::Failed };
        *row = SessionRow { session: row.session, gateway: lease, words };
        self.store.presence.insert(host, (begun.session_epoch, clock));
        self.insert_events(1 + u64::from(begun.superseded.is_some()));
        if !self.reference.note_begun(host, begun.session_epoch) {
            self.violate(Invariant::NothingCrossesSessions, || {
                format!("session {} of {host} is no newer than one before", begun.session_epoch)
            });
        }
        let host = self.host_number(host);
        Told::Opened(Opened { session_epoch: begun.session_epoch, namespace: namespace(host) })
    }

    fn host_number(&self, host: HostId) -> usize {
        (0..self.plan.hosts).find(|number| crate::estate::host_id(*number) == host).unwrap_or(0)
    }

    /// Events of the transaction that is committing, or of one that an operator's edit is.
    pub(crate) fn insert_events(&mut self, count: u64) {
        let (xid, lid, executed_at) = self.locks.writing.unwrap_or_else(|| {
            let (xid, lid) = (self.store.next_xid, self.store.next_lid);
            (self.store.next_xid, self.store.next_lid) = (xid + 1, lid + LIDS);
            (xid, lid, self.now)
        });
        for n in 0..count {
            self.store.events.push(EventRow { xid, lid: lid + n, executed_at, committed_at: self.now });
        }
        if self.locks.writing.is_some() {
            self.locks.writing = Some((xid, lid + count, executed_at));
        }
    }

    fn answer_op(&mut self, op: usize, told: Told, wait_ms: u64) {
        self.ops[op].told = Some(told);
        let when = self.soon(0, 2) + wait_ms;
        self.queue.put(when, Action::Reply { op });
    }

    /// An answer reaches who asked, if that one is still there.
    pub(crate) fn reply(&mut self, op: usize) {
        let (by, life) = (self.ops[op].by, self.ops[op].life);
        let Some(told) = self.ops[op].told.take() else { return };
        let ask = self.ops[op].ask.clone();
        match by {
            Some(Process::Gateway(gateway)) if self.is_gateway(gateway, life) => self.tell_gateway(gateway, ask, told),
            Some(Process::Renderer(renderer)) if self.is_renderer(renderer, life) => {
                self.tell_renderer(renderer, ask, told);
            }
            Some(Process::Gateway(_) | Process::Renderer(_) | Process::Agent(_)) | None => {}
        }
        // Nobody asks for it again.
        self.ops[op].told = Some(Told::Failed);
    }

    fn tell_gateway(&mut self, gateway: usize, ask: Ask, told: Told) {
        match (ask, told) {
            (Ask::Open { conn, .. }, Told::Opened(opened)) => self.handle_opened(conn, Some(opened)),
            (Ask::Open { conn, .. }, _) => self.handle_opened(conn, None),
            (Ask::Read { conn, ticket, .. }, Told::Read(answer)) => self.handle_read(conn, ticket, answer),
            (Ask::Read { conn, ticket, .. }, _) => self.handle_read(conn, ticket, Answer::Unavailable),
            (Ask::Record { .. }, told) => self.handle_recorded(gateway, &told),
            (Ask::Compare { .. }, Told::Newest(newest)) => self.handle_compared(gateway, Some(&newest)),
            (Ask::Compare { .. }, _) => self.handle_compared(gateway, None),
            (Ask::Lease, told) => self.handle_lease(gateway, matches!(told, Told::Held(true))),
            (_, _) => {}
        }
    }
}
