//! Numbering events and carrying them to the stream, after `services/renderer/src/leader/relay.rs` and `services/store/src/order.rs`.
//!
//! - Modelled: the one statement that numbers what it sees, the cursor, and a stream that takes a batch only behind the message that it names.
//! - The stream itself says where it ends; a stream that was lost is written again from the first event on.

use super::World;
use super::ask::Ask;
use super::parts::{Action, Process};
use crate::store::EventRow;
use crate::violation::Invariant;

/// How many events are published at once; the product takes a thousand.
const BATCH: usize = 16;
/// The wait after the bus refused (`BUS_RETRY`).
const RETRY_MS: u64 = 1_000;
/// Behind every hint (`BACKSTOP`).
const BACKSTOP_MS: u64 = 30_000;

/// A batch on its way to the stream.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// How many events the stream must hold for this to be taken.
    behind: usize,
    lids: Vec<u64>,
    /// How many of them the server stores before it fails.
    stored: usize,
    is_answered: bool,
}

impl World {
    /// Events may wait for their numbers.
    pub(crate) fn ring_relay(&mut self) {
        for renderer in 0..self.renderers.len() {
            self.plan_relay(renderer, self.now + 1);
        }
    }

    /// One look is planned, the earliest that anybody wants.
    pub(crate) fn plan_relay(&mut self, renderer: usize, when: u64) {
        let at = &mut self.renderers[renderer];
        if at.relay_at.is_none_or(|known| known > when) {
            at.relay_at = Some(when);
            let turn = at.turn;
            self.queue.put(when, Action::Relay { renderer, turn });
        }
    }

    pub(crate) fn relay_wake(&mut self, renderer: usize, turn: u64) {
        let now = self.now;
        let at = &mut self.renderers[renderer];
        let Some(term) = at.term.filter(|_| at.is_up && at.turn == turn) else { return };
        if at.relay_at.is_none_or(|planned| planned > now) {
            return;
        }
        at.relay_at = None;
        if at.is_relaying {
            at.relay_is_woken = true;
            return;
        }
        at.is_relaying = true;
        let horizon = at.horizon;
        self.submit(Some(Process::Renderer(renderer)), Ask::Number { turn, term, horizon });
    }

    /// Everything that was committed has its number now.
    pub(super) fn handle_numbered(&mut self, renderer: usize, horizon: u64) {
        self.renderers[renderer].horizon = horizon;
        self.catch_up(renderer);
    }

    pub(super) fn relay_again(&mut self, renderer: usize, wait_ms: u64) {
        let at = &mut self.renderers[renderer];
        at.is_relaying = false;
        at.relay_is_woken = false;
        self.plan_relay(renderer, self.now + wait_ms);
    }

    /// Publishes one batch behind what the stream holds.
    fn catch_up(&mut self, renderer: usize) {
        let end = self.stream.len();
        let at = &mut self.renderers[renderer];
        let cursor = *at.cursor.get_or_insert(end);
        if cursor >= self.store.order.len() {
            if cursor != end {
                // The stream was lost meanwhile.
                at.cursor = None;
                return self.relay_again(renderer, 1);
            }
            let wait = if at.relay_is_woken { 0 } else { BACKSTOP_MS };
            return self.relay_again(renderer, wait);
        }
        let until = (cursor + BATCH).min(self.store.order.len());
        let lids: Vec<u64> = self.store.order[cursor..until].iter().map(|event| event.lid).collect();
        let faulty = self.bus.faulty_until > self.now;
        let stored = if faulty && self.chance(30) { self.below(lids.len() + 1) } else { lids.len() };
        let is_answered = !(faulty && self.chance(20));
        let publication = Publication { behind: cursor, lids, stored, is_answered };
        let turn = self.renderers[renderer].turn;
        let when = self.soon(1, if faulty { 2_000 } else { 10 });
        self.queue.put(when, Action::Published { renderer, turn, publication });
    }

    /// A batch reaches the stream, whoever is still there to hear of it.
    pub(crate) fn published(&mut self, renderer: usize, turn: u64, publication: Publication) {
        let fits = self.stream.len() == publication.behind;
        let stored = if fits { publication.stored.min(publication.lids.len()) } else { 0 };
        self.stream.extend_from_slice(&publication.lids[..stored]);
        self.tally.published += stored as u64;
        self.check_stream();
        let at = &mut self.renderers[renderer];
        if !at.is_up || at.turn != turn {
            return;
        }
        let complete = stored == publication.lids.len() && publication.is_answered;
        // What was stored and what not is the stream's to say.
        at.cursor = complete.then_some(publication.behind + stored);
        if complete {
            self.catch_up(renderer);
        } else {
            self.relay_again(renderer, RETRY_MS);
        }
    }

    /// A numbering commits.
    pub(crate) fn number_events(&mut self, events: &[EventRow]) {
        let twice = events.iter().any(|event| self.store.is_numbered(event.lid));
        self.store.number(events);
        let (mut torn, mut late) = (false, false);
        for event in events {
            torn |= event.xid != self.reference.last_xid && !self.reference.numbered.insert(event.xid);
            self.reference.last_xid = event.xid;
            // Whoever had its locks after another had committed may depend on it, and comes later.
            late |= event.committed_at < self.reference.executed_max;
            self.reference.executed_max = self.reference.executed_max.max(event.executed_at);
        }
        if twice || torn || late {
            self.violate(Invariant::EventsAreOrdered, || {
                format!("events are numbered twice ({twice}), torn ({torn}) or before their cause ({late})")
            });
        }
    }

    fn check_stream(&mut self) {
        let differs = self.stream.iter().zip(&self.store.order).position(|(lid, event)| *lid != event.lid);
        if self.stream.len() > self.store.order.len() || differs.is_some() {
            self.violate(Invariant::EventsAreOrdered, || "the stream is no beginning of the order".to_owned());
        }
    }
}
