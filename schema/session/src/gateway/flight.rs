//! The updates that were written and not answered yet.

use std::collections::VecDeque;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::UpdateSeq;
use holdfast_wire::message::SessionLimits;

/// One update on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) update_seq: UpdateSeq,
    pub(super) component: Component,
    pub(super) stamp: Stamp,
    pub(super) bytes: usize,
}

/// All of them, by ascending sequence; never more than the limits of the session.
#[derive(Debug)]
pub(super) struct Flight {
    updates: VecDeque<InFlight>,
    bytes: usize,
    updates_max: usize,
    bytes_max: usize,
    faults: Faults,
}

impl Flight {
    pub(super) fn new(limits: SessionLimits, faults: Faults) -> Self {
        Self {
            updates: VecDeque::new(),
            bytes: 0,
            updates_max: usize::from(limits.updates_in_flight_max),
            bytes_max: usize::try_from(limits.bytes_in_flight_max).unwrap_or(usize::MAX),
            faults,
        }
    }

    /// Whether an update of so many bytes may be written now. One alone always may: its size has a cap of its own.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.bytes_max);
        (self.updates.len() < self.updates_max && (fits || self.updates.is_empty()))
            || self.faults.has(Mutant::WindowIgnored)
    }

    pub(super) fn put(&mut self, update: InFlight) {
        self.bytes += update.bytes;
        self.updates.push_back(update);
    }

    pub(super) fn find(&self, update_seq: UpdateSeq) -> Option<InFlight> {
        let at = self.updates.binary_search_by_key(&update_seq, |update| update.update_seq).ok()?;
        self.updates.get(at).copied()
    }

    pub(super) fn remove(&mut self, update_seq: UpdateSeq) {
        if let Ok(at) = self.updates.binary_search_by_key(&update_seq, |update| update.update_seq)
            && let Some(update) = self.updates.remove(at)
        {
            self.bytes -= update.bytes;
        }
    }
}
