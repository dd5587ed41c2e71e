//! An event with what surrounds it: when, who, why, and its place in the order.

use holdfast_model::ids::{AuthorityId, EventId, OperationId};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use time::OffsetDateTime;

use crate::actor::Actor;
use crate::event::{Event, EventError, Kind};

/// The most bytes of an event as it is published.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;

/// The most bytes of a payload: what surrounds it is ids, numbers, a time and an actor, together below 1 KiB of the 4 that are left.
pub const DATA_BYTES_MAX: usize = EVENT_BYTES_MAX - 4 * 1024;

/// One event as it was committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its identity.
    pub id: EventId,
    /// The number that the database gave its row: unique, not dense, no order across transactions.
    pub lid: i64,
    /// When its transaction began.
    pub time: OffsetDateTime,
    /// Who caused it.
    pub actor: Actor,
    /// The event that led to it, if one did.
    pub causation: Option<EventId>,
    /// The operation that it is part of, if it is part of one.
    pub correlation: Option<OperationId>,
    /// What happened.
    pub event: Event,
}

/// One event with its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberedRecord {
    /// The lineage of the database.
    pub authority: AuthorityId,
    /// Its life in which the place was given.
    pub authority_epoch: AuthorityEpoch,
    /// The place, dense within the epoch.
    pub seq: EventSeq,
    /// The event.
    pub record: Record,
}

/// Counts the bytes of a payload without writing them anywhere.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn check_data(kind: Kind, data: &serde_json::Value) -> Result<(), EventError> {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, data).map_err(|source| EventError::Unwritable { kind, source })?;
    if counter.0 <= DATA_BYTES_MAX {
        Ok(())
    } else {
        Err(EventError::TooLarge { kind, bytes: counter.0, bytes_max: DATA_BYTES_MAX })
    }
}
