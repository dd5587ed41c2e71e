//! How often a gateway passes on what a host says that it has.

use crate::budget::Budget;
use crate::limits::{INVENTORIES_AT_ONCE, INVENTORY_PAUSE};
use crate::time::Instant;

/// The turns of one session: so many at once, and then one after each while. Whoever has none passes the newest list on at the next.
#[derive(Clone, Copy, Debug)]
pub struct InventoryTurns(Budget);

impl InventoryTurns {
    /// All of them are there.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self(Budget::new(INVENTORIES_AT_ONCE, INVENTORY_PAUSE, now))
    }

    /// Takes one; false if there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        self.0.take(now)
    }

    /// From when on there is one.
    #[must_use]
    pub fn next_at(&self) -> Instant {
        self.0.next_at()
    }
}
