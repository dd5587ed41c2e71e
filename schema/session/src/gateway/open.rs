//! What an open session of a gateway holds, and what it writes next.
//!
//! - Control before updates; a snapshot's chunks follow it before another update begins, with control between them where there is any.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_model::desired::Component;
use holdfast_model::mutant::Faults;
use holdfast_model::numbers::UpdateSeq;
use holdfast_wire::error::EncodeError;
use holdfast_wire::limits::CHUNK_BYTES_MAX;
use holdfast_wire::message::{
    Directive, Drain, Fault, HelloAck, Inventory, Kind, Liveness as LivenessMessage, Message, Update, UpdateContent,
};
use holdfast_wire::negotiate::Protocol;
use holdfast_wire::{encode, encode_chunk};

use super::drift::DriftBudget;
use super::event::{Config, Event, Form, Supply};
use super::flight::{Flight, InFlight};
use super::inventory::InventoryTurns;
use super::slot::Slot;
use super::status::Statuses;
use crate::liveness::Liveness;
use crate::time::Instant;

/// All that a session knows; nothing of it is anywhere else, so it ends with the session.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) protocol: Protocol,
    pub(super) liveness: Liveness,
    pub(super) liveness_due: Option<u64>,
    pub(super) ack: Option<HelloAck>,
    pub(super) faults: VecDeque<Fault>,
    pub(super) faults_seen: usize,
    pub(super) drift_budget: DriftBudget,
    pub(super) inventory_turns: InventoryTurns,
    /// The newest list that waits for its turn.
    pub(super) inventory: Option<Box<Inventory>>,
    pub(super) statuses: Statuses,
    pub(super) directives: VecDeque<Directive>,
    pub(super) drain: Option<Drain>,
    pub(super) drain_until: Option<Instant>,
    pub(super) slots: [Slot; Component::ALL.len()],
    pub(super) tick: u64,
    pub(super) flight: Flight,
    pub(super) last_seq: UpdateSeq,
    pub(super) chunking: Option<Chunking>,
    pub(super) body_bytes_max: usize,
}

/// A snapshot on its way into the socket.
#[derive(Debug)]
pub(super) struct Chunking {
    pub(super) update_seq: UpdateSeq,
    pub(super) body: Arc<[u8]>,
    pub(super) offset: usize,
}

pub(super) const fn index(component: Component) -> usize {
    match component {
        Component::Policy => 0,
        Component::Settings => 1,
        Component::Credentials => 2,
        Component::Workloads => 3,
    }
}

impl Open {
    /// A session that begins: it owes the answer to Hello and a snapshot of every component.
    pub(super) fn new(
        config: &Config,
        protocol: Protocol,
        ack: HelloAck,
        seed: u64,
        faults: Faults,
        now: Instant,
    ) -> Self {
        let mut tick = 0;
        let slots = Component::ALL.map(|component| {
            tick += 1;
            Slot::new(component, tick, faults, now)
        });
        Self {
            protocol,
            liveness: Liveness::new(config.liveness_interval, seed, now),
            liveness_due: None,
            ack: Some(ack),
            faults: VecDeque::new(),
            faults_seen: 0,
            drift_budget: DriftBudget::new(now),
            inventory_turns: InventoryTurns::new(now),
            inventory: None,
            statuses: Statuses::new(now),
            directives: VecDeque::new(),
            drain: None,
            drain_until: None,
            slots,
            tick,
            flight: Flight::new(config.limits, faults),
            last_seq: UpdateSeq::ZERO,
            chunking: None,
            body_bytes_max: usize::try_from(config.limits.body_bytes_max).unwrap_or(usize::MAX),
        }
    }

    /// The bytes of the staged answers and of the body that is being written, which is held as a whole until its last chunk.
    pub(super) fn held_bytes(&self) -> usize {
        let staged: usize = self.slots.iter().map(Slot::staged_bytes).sum();
        staged + self.chunking.as_ref().map_or(0, |chunking| chunking.body.len())
    }

    /// The next control frame: the answer to Hello, then liveness, then the rest.
    pub(super) fn control(&mut self, out: &mut Vec<u8>) -> Result<Option<Kind>, EncodeError> {
        let (kind, message) = if let Some(ack) = self.ack.take() {
            (Kind::HelloAck, Message::HelloAck(ack))
        } else if let Some(counter) = self.liveness_due.take() {
            (Kind::Liveness, Message::Liveness(LivenessMessage { counter, status: None }))
        } else if let Some(drain) = self.drain.take() {
            (Kind::Drain, Message::Drain(drain))
        } else if let Some(directive) = self.directives.pop_front() {
            (Kind::Directive, Message::Directive(directive))
        } else if let Some(fault) = self.faults.pop_front() {
            (Kind::Fault, Message::Fault(fault))
        } else {
            return Ok(None);
        };
        encode(self.protocol, &message, out).map(|()| Some(kind))
    }

    /// The next frame of updates, or the question for one.
    pub(super) fn update(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<Kind>, EncodeError> {
        if let Some(chunking) = &mut self.chunking {
            let end = (chunking.offset + CHUNK_BYTES_MAX).min(chunking.body.len());
            let piece = chunking.body.get(chunking.offset..end).unwrap_or_default();
            let offset = u32::try_from(chunking.offset).unwrap_or(u32::MAX);
            encode_chunk(self.protocol, chunking.update_seq, offset, piece, out)?;
            chunking.offset = end;
            if end == chunking.body.len() {
                self.chunking = None;
            }
            return Ok(Some(Kind::Chunk));
        }
        for component in Component::ALL {
            if self.write_staged(component, out, events)? {
                return Ok(Some(Kind::Update));
            }
        }
        // Oldest mark first; no question whose answer could not be written.
        while self.flight.has_room(0) {
            let oldest = self.slots.iter_mut().filter_map(|slot| Some((slot.wants_since(now)?, slot)));
            let Some((_, slot)) = oldest.min_by_key(|(since, _)| *since) else { break };
            events.push_back(Event::Want(slot.ask()));
        }
        Ok(None)
    }

    /// Writes the staged answer of a component if there is one and the window has room.
    fn write_staged(
        &mut self,
        component: Component,
        out: &mut Vec<u8>,
        events: &mut VecDeque<Event>,
    ) -> Result<bool, EncodeError> {
        let Some(slot) = self.slots.get_mut(index(component)) else { return Ok(false) };
        let Some((form, bytes)) = slot.staged_form().filter(|(_, bytes)| self.flight.has_room(*bytes)) else {
            return Ok(false);
        };
        // 2^64 updates of one session: not in any life of a process.
        let Some(update_seq) = self.last_seq.next() else { return Ok(false) };
        let Some((staged, base, cause)) = slot.write(update_seq, form) else { return Ok(false) };
        let (content, chunking) = match (form, staged.supply, base) {
            (Form::Delta, Supply::Whole { delta: Some(delta), .. }, Some(base)) => {
                (UpdateContent::Delta { base, changes: delta.changes.to_vec() }, None)
            }
            (Form::VersionOnly, _, _) => (UpdateContent::VersionOnly, None),
            (Form::Snapshot | Form::Delta, Supply::Whole { body, .. }, _) => {
                let bytes_total = u32::try_from(body.len()).unwrap_or(u32::MAX);
                (UpdateContent::Snapshot { bytes_total }, Some(Chunking { update_seq, body, offset: 0 }))
            }
            (Form::Snapshot | Form::Delta, Supply::SameDigest, _) => return Ok(false),
        };
        let (stamp, signature) = (staged.stamp, staged.signature);
        let update = Update { update_seq, component, stamp, signature, content };
        encode(self.protocol, &Message::Update(update), out)?;
        self.last_seq = update_seq;
        self.chunking = chunking;
        self.flight.put(InFlight { update_seq, component, stamp, bytes });
        events.push_back(Event::Sent { update_seq, component, stamp, form, cause });
        Ok(true)
    }
}
