//! Which hosts began sessions by polls just now.
//!
//! - A host may begin [`OPENINGS_BURST`] of them at once, and one more each [`OPENING_PAUSE`]: who asks in a loop writes no more than that.
//! - What is remembered is bounded, and forgotten when its time is over. Another door, or a restart, knows nothing of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_model::ids::HostId;

use super::limits::{OPENING_PAUSE, OPENINGS_BURST, OPENINGS_KEPT_MAX};

/// The openings of the last minute.
#[derive(Debug, Default)]
pub(super) struct Openings {
    hosts: Mutex<HashMap<HostId, Turn>>,
}

#[derive(Debug)]
struct Turn {
    /// When this host has all of its openings again.
    whole_at: Instant,
    /// Whether the log names this host already.
    is_told: bool,
}

impl Openings {
    /// Takes a host's turn, if it has one `now`.
    ///
    /// # Errors
    /// How long it has to wait, or those whom there is no room to remember.
    pub(super) fn begin(&self, host: HostId, now: Instant) -> Result<(), Duration> {
        // Nothing that can panic runs under this lock.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= OPENINGS_KEPT_MAX && !hosts.contains_key(&host) {
            hosts.retain(|_, turn| turn.whole_at > now);
            if hosts.len() >= OPENINGS_KEPT_MAX {
                return Err(OPENING_PAUSE);
            }
        }
        let turn = hosts.entry(host).or_insert(Turn { whole_at: now, is_told: false });
        let whole_at = turn.whole_at.max(now);
        let wait = whole_at.saturating_duration_since(now).saturating_sub(OPENING_PAUSE * (OPENINGS_BURST - 1));
        if wait.is_zero() {
            *turn = Turn { whole_at: whole_at + OPENING_PAUSE, is_told: false };
            return Ok(());
        }
        // Once in a turn: a loop fills no log.
        if !turn.is_told {
            turn.is_told = true;
            tracing::warn!(%host, "a host begins one session of polls after the other and is told to wait");
        }
        Err(wait)
    }
}

impl Openings {
    /// A turn that led to no session, for no fault of the host's, is had again.
    pub(super) fn give_back(&self, host: HostId) {
        // Nothing that can panic runs under this lock.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = hosts.get_mut(&host) {
            turn.whole_at = turn.whole_at.checked_sub(OPENING_PAUSE).unwrap_or(turn.whole_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn host(n: usize) -> HostId {
        HostId::new(Uuid::from_u128(u128::try_from(n).unwrap()))
    }

    #[test]
    fn a_host_begins_some_sessions_at_once_then_one_in_each_pause_and_what_is_remembered_is_bounded() {
        let (openings, start) = (Openings::default(), Instant::now());
        for nth in 0..OPENINGS_BURST {
            assert_eq!(openings.begin(host(0), start), Ok(()), "{nth}");
        }
        assert_eq!(openings.begin(host(0), start), Err(OPENING_PAUSE));
        assert_eq!(openings.begin(host(1), start), Ok(()), "another one");
        openings.give_back(host(0));
        assert_eq!((openings.begin(host(0), start), openings.begin(host(0), start)), (Ok(()), Err(OPENING_PAUSE)));
        let later = start + OPENING_PAUSE;
        assert_eq!((openings.begin(host(0), later), openings.begin(host(0), later)), (Ok(()), Err(OPENING_PAUSE)));
        let rested = later + OPENING_PAUSE * OPENINGS_BURST;
        assert_eq!((0..=OPENINGS_BURST).filter(|_| openings.begin(host(0), rested).is_ok()).count(), 5);
        for n in 1..OPENINGS_KEPT_MAX {
            assert_eq!(openings.begin(host(n), rested), Ok(()), "{n}");
        }
        assert_eq!(openings.begin(host(OPENINGS_KEPT_MAX), rested), Err(OPENING_PAUSE), "no room");
        assert_eq!(openings.begin(host(OPENINGS_KEPT_MAX), rested + OPENING_PAUSE), Ok(()), "theirs is over");
    }
}
