//! Numbering events and carrying them to the stream, after `services/renderer/src/leader/relay.rs` and `services/store/src/order.rs`.
//!
//! - Real: where the stream ends, what is published next and what an answer means ([`holdfast_events::relay`]). Modelled: the one statement that numbers
//!   what it sees, and the writing end of a stream that takes a batch only behind the message that it names.
//! - A batch that was given up may still arrive.

use holdfast_events::relay::{EventPlace, Next, Tail};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};

use super::World;
use super::ask::Ask;
use super::parts::{Action, Process};
use crate::store::EventRow;
use crate::violation::Invariant;

/// How many events are published at once; the product takes a thousand.
const BATCH: usize = 16;
/// How many messages of the stream's end are compared; the product takes five hundred.
const TAIL: usize = 4;
/// The wait after the bus refused (`BUS_RETRY`).
const RETRY_MS: u64 = 1_000;
/// Behind every hint (`BACKSTOP`).
const BACKSTOP_MS: u64 = 30_000;

/// A message of the stream: which event it says that it is, and which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    seq: u64,
    pub(crate) lid: u64,
}

/// The stream of events.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) messages: Vec<Message>,
    /// Rises with each time that it is lost and made anew.
    made: u64,
}

impl Stream {
    pub(crate) fn lose(&mut self) {
        self.messages.clear();
        self.made += 1;
    }
}

/// Where a relay's writing end left the stream, if it knows: behind how many messages of which stream (`services/bus/src/event_log.rs`).
pub(crate) type Left = Option<(usize, u64)>;

/// A batch on its way to the stream.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// How many messages the stream must hold for this to be taken.
    behind: usize,
    messages: Vec<Message>,
    /// How many of them the server stores before it fails.
    stored: usize,
    /// How many of those it says so of.
    told: usize,
    /// Where the numbering ended.
    last: EventPlace,
    /// Whether anybody still waits for its answer.
    is_awaited: bool,
}

/// A place in the one life that the authority has here.
fn place(seq: usize) -> EventPlace {
    EventPlace { epoch: AuthorityEpoch::from_raw(1), seq: EventSeq::from_raw(seq as u64) }
}

fn index(seq: EventSeq) -> usize {
    usize::try_from(seq.raw()).unwrap_or(usize::MAX)
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
    pub(super) fn handle_numbered(&mut self, renderer: usize, horizon: u64, last: usize, count: u64) {
        self.renderers[renderer].horizon = horizon;
        let last = place(last);
        let next = self.renderers[renderer].relay.poll_next(last, count);
        self.follow(renderer, next, last, count);
    }

    pub(super) fn relay_again(&mut self, renderer: usize, wait_ms: u64) {
        let at = &mut self.renderers[renderer];
        at.is_relaying = false;
        at.relay_is_woken = false;
        self.plan_relay(renderer, self.now + wait_ms);
    }

    /// Does what the machine says, until that takes time.
    fn follow(&mut self, renderer: usize, mut next: Next, last: EventPlace, count: u64) {
        loop {
            next = match next {
                Next::FindEnd => {
                    let Some(end) = self.find_end(renderer) else { return };
                    let relay = &mut self.renderers[renderer].relay;
                    relay.handle_end(end);
                    relay.poll_next(last, count)
                }
                Next::Look => {
                    let is_where_it_was = self.renderers[renderer].left == self.left_at_end();
                    self.renderers[renderer].relay.handle_looked(is_where_it_was)
                }
                Next::Read(from) => {
                    let are_some = index(from.seq) <= self.store.order.len();
                    self.renderers[renderer].reading_from = index(from.seq);
                    self.renderers[renderer].relay.handle_read(are_some, last)
                }
                Next::Publish => return self.publish(renderer, last),
                Next::Rest => {
                    let wait = if self.renderers[renderer].relay_is_woken { 0 } else { BACKSTOP_MS };
                    return self.relay_again(renderer, wait);
                }
                Next::Again => return self.relay_again(renderer, 1),
                Next::Later => return self.relay_again(renderer, RETRY_MS),
            };
        }
    }

    fn left_at_end(&self) -> Left {
        Some((self.stream.messages.len(), self.stream.made))
    }

    /// How the stream ends; nothing if that is not what the database wrote, which here it always is.
    fn find_end(&mut self, renderer: usize) -> Option<EventPlace> {
        let mut tail = Tail::default();
        let first = self.stream.messages.len().saturating_sub(TAIL);
        for message in &self.stream.messages[first..] {
            let written = usize::try_from(message.seq).ok().and_then(|seq| self.store.order.get(seq.checked_sub(1)?));
            let is_written = written.is_some_and(|event| event.lid == message.lid);
            let at = EventPlace { seq: EventSeq::from_raw(message.seq), ..tail.end() };
            if tail.handle_message(at, is_written).is_err() {
                self.violate(Invariant::EventsAreOrdered, || "the stream ends with what was not written so".to_owned());
                return None;
            }
        }
        self.renderers[renderer].left = self.left_at_end();
        Some(tail.end())
    }

    /// Publishes one batch behind what the stream holds.
    fn publish(&mut self, renderer: usize, last: EventPlace) {
        let from = self.renderers[renderer].reading_from.max(1);
        let until = (from + BATCH - 1).min(self.store.order.len());
        let messages = (from..=until).zip(&self.store.order[from - 1..until]);
        let messages: Vec<Message> = messages.map(|(seq, event)| Message { seq: seq as u64, lid: event.lid }).collect();
        let Some((behind, _)) = self.renderers[renderer].left else {
            // Who does not know where the stream ends publishes nothing.
            return self.handle_published(renderer, place(until), (0, messages.len()), last);
        };
        let faulty = self.bus.faulty_until > self.now;
        let stored = if faulty && self.chance(30) { self.below(messages.len() + 1) } else { messages.len() };
        let told = if faulty && self.chance(20) { self.below(stored + 1) } else { stored };
        let is_awaited = !(faulty && self.chance(10));
        let wanted = messages.len();
        let publication = Publication { behind, messages, stored, told, last, is_awaited };
        let turn = self.renderers[renderer].turn;
        let when = self.soon(1, if faulty { 2_000 } else { 10 });
        self.queue.put(when, Action::Published { renderer, turn, publication });
        if !is_awaited {
            self.tally.given_up += 1;
            self.handle_published(renderer, place(until), (0, wanted), last);
        }
    }

    /// A batch reaches the stream, whoever is still there to hear of it.
    pub(crate) fn published(&mut self, renderer: usize, turn: u64, publication: Publication) {
        let fits = self.stream.messages.len() == publication.behind;
        let stored = if fits { publication.stored.min(publication.messages.len()) } else { 0 };
        self.stream.messages.extend_from_slice(&publication.messages[..stored]);
        self.tally.published += stored as u64;
        self.check_stream();
        let at = &mut self.renderers[renderer];
        if !at.is_up || at.turn != turn || !publication.is_awaited {
            return;
        }
        let (told, wanted) = (publication.told.min(stored), publication.messages.len());
        at.left = (told == wanted).then_some((publication.behind + wanted, self.stream.made));
        let end = publication.messages.last().map_or(0, |message| message.seq);
        let end = EventPlace { seq: EventSeq::from_raw(end), ..publication.last };
        self.handle_published(renderer, end, (told, wanted), publication.last);
    }

    /// A batch up to `end` was answered: so many of those that were wanted are in the stream for certain.
    fn handle_published(&mut self, renderer: usize, end: EventPlace, (told, wanted): (usize, usize), last: EventPlace) {
        let is_complete = told == wanted;
        if !is_complete {
            self.tally.unclear += 1;
            self.renderers[renderer].left = None;
        }
        let relay = &mut self.renderers[renderer].relay;
        let next = relay.handle_published(end, told, is_complete, last);
        // What is told of it is what the plane says that the stream holds.
        let (cursor, held) = (relay.cursor().map_or(0, |at| index(at.seq)), self.stream.messages.len());
        if cursor > held {
            self.violate(Invariant::EventsAreOrdered, || {
                format!("the relay takes the stream to hold {cursor} events, and it holds {held}")
            });
        }
        self.follow(renderer, next, last, 0);
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
        let messages = &self.stream.messages;
        let differs = messages.iter().zip(&self.store.order).position(|(message, event)| message.lid != event.lid);
        if messages.len() > self.store.order.len() || differs.is_some() {
            self.violate(Invariant::EventsAreOrdered, || "the stream is no beginning of the order".to_owned());
        }
    }
}
