//! How many sessions may be on their way in at once.
//!
//! - A session waits for the authority from its Hello until it is opened. So many may at once; who comes beyond is refused as `overloaded` and told when
//!   to come back, each another moment, so that a storm comes back spread. The agent adds its own jitter.
//! - Handshakes have a cap of their own before this (`Entrance`): who waits for one waits in the kernel's queue and costs nothing here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use holdfast_session::random::Random;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{OVERLOADED_RETRY_MS, OVERLOADED_RETRY_SPREAD_MS};

/// The room before the door's authority.
#[derive(Debug)]
pub(super) struct AdmissionRoom {
    room: Arc<Semaphore>,
    random: std::sync::Mutex<Random>,
    refused: AtomicU64,
}

/// Room for one that waits.
pub(super) type Place = OwnedSemaphorePermit;

/// There is none; so many milliseconds later there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Crowded {
    pub(super) retry_after_ms: u32,
}

impl AdmissionRoom {
    /// Room for so many; the seed chooses the jitter.
    pub(super) fn new(waiting_max: usize, seed: u64) -> Self {
        let room = Arc::new(Semaphore::new(waiting_max));
        Self { room, random: std::sync::Mutex::new(Random::new(seed)), refused: AtomicU64::new(0) }
    }

    /// Room for one more, or when to come back.
    pub(super) fn enter(&self) -> Result<Place, Crowded> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_power_of_two() {
                tracing::warn!(count, "too many sessions wait to be opened; agents are told to come back");
            }
            metrics::counter!("holdfast_gateway_openings_refused_total", "reason" => "overloaded").increment(1);
            // Nothing that can panic runs under this lock.
            let jitter = self.random.lock().unwrap_or_else(PoisonError::into_inner).up_to(OVERLOADED_RETRY_SPREAD_MS);
            let retry_after_ms = u32::try_from(OVERLOADED_RETRY_MS + jitter).unwrap_or(u32::MAX);
            Crowded { retry_after_ms }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_beyond_the_room_is_told_when_to_come_back_each_another_moment() {
        let room = AdmissionRoom::new(3, 7);
        let mut places: Vec<Place> = (0..3).map(|_| room.enter().expect("there is room")).collect();
        let told: Vec<u64> =
            (0..100).map(|_| u64::from(room.enter().expect_err("there is none").retry_after_ms)).collect();
        let span = OVERLOADED_RETRY_MS..=OVERLOADED_RETRY_MS + OVERLOADED_RETRY_SPREAD_MS;
        assert!(told.iter().all(|after| span.contains(after)), "{told:?}");
        let early = told.iter().filter(|after| **after < OVERLOADED_RETRY_MS + OVERLOADED_RETRY_SPREAD_MS / 2).count();
        assert!((25..75).contains(&early), "{early} of 100 in the first half");
        places.pop();
        assert!(room.enter().is_ok(), "one left");
    }
}
