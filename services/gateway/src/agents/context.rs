//! What all sessions of one door share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_model::ids::HostId;
use holdfast_runtime::Shutdown;
use holdfast_session::gateway::{Config, Want};
use holdfast_session::random::Random;
use holdfast_session::time::Instant;
use holdfast_store::session::Opening;
use time::OffsetDateTime;

use super::admission::AdmissionRoom;
use super::batch::Asker;
use super::clock::Clock;
use super::openings::Openings;
use super::reader::Read;
use super::recorder::Recorder;
use super::registry::Registry;
use super::session::FAR;
use super::store::Admitted;

/// What all sessions share; cheap to pass around behind an `Arc`.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) session: Config,
    pub(super) registry: Registry,
    pub(super) recorder: Recorder,
    /// `None` in an answer: the authority could not be asked.
    pub(super) opens: Asker<Opening, Option<Admitted>>,
    /// The room before it.
    pub(super) admission: AdmissionRoom,
    /// Which hosts began sessions by polls just now.
    pub(super) openings: Openings,
    /// Over how long agents leave at the end.
    pub(super) drain_spread: Duration,
    /// Reads what concerns few hosts.
    pub(super) narrow: Asker<(HostId, Want), Read>,
    /// Reads the rest, so that a statement for hundreds does not stand before one for a few.
    pub(super) wide: Asker<(HostId, Want), Read>,
    pub(super) shutdown: Shutdown,
    pub(super) clock: Clock,
    pub(super) seeds: AtomicU64,
}

impl Context {
    /// Now, as machines count.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A machine's moment, as the runtime counts.
    pub(super) fn instant_of(&self, at: Instant) -> tokio::time::Instant {
        self.clock.instant_of(at)
    }

    /// When a moment of the wall clock comes, a day ahead at most: the clock may be set meanwhile, so it is looked at again.
    pub(super) fn until(&self, at: OffsetDateTime) -> tokio::time::Instant {
        let left = Duration::try_from(at - OffsetDateTime::now_utc()).unwrap_or(Duration::ZERO);
        tokio::time::Instant::now() + left.min(FAR)
    }

    /// Whether a moment of the wall clock is over.
    pub(super) fn is_past(&self, at: OffsetDateTime) -> bool {
        at <= OffsetDateTime::now_utc()
    }

    /// The seed of the next session's jitter.
    pub(super) fn seed(&self) -> u64 {
        self.seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    /// When one that comes while this process goes away may look for another gateway: each another moment.
    pub(super) fn leave_after(&self) -> Duration {
        let spread_ms = u64::try_from(self.drain_spread.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(Random::new(self.seed()).up_to(spread_ms))
    }
}
