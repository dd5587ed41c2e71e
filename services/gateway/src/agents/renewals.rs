//! Which hosts renewed at this door just now.
//!
//! - A host has one renewal per [`RENEWAL_PAUSE`]: who asks in a loop, by a wrong clock or on purpose, writes no more than that.
//! - What is remembered is bounded, and forgotten when its time is over. Another door, or a restart, knows nothing of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_model::ids::HostId;

use super::limits::{RENEWAL_PAUSE, RENEWALS_KEPT_MAX};

/// The renewals of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// Oldest first.
    begun: VecDeque<(Instant, HostId)>,
    hosts: HashMap<HostId, Turn>,
}

#[derive(Debug)]
struct Turn {
    begun: Instant,
    /// Whether the log names this host already.
    is_told: bool,
}

impl Renewals {
    /// Takes a host's turn, if it has one `now`.
    ///
    /// # Errors
    /// How long it has to wait, or those whom there is no room to remember.
    pub(super) fn begin(&self, host: HostId, now: Instant) -> Result<(), Duration> {
        // Nothing that can panic runs under this lock.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, past)) = recent.begun.front().copied().filter(|(begun, _)| wait(*begun, now).is_zero()) {
            recent.begun.pop_front();
            recent.hosts.remove(&past);
        }
        if let Some(turn) = recent.hosts.get_mut(&host) {
            // Once in a turn: a loop fills no log.
            if !turn.is_told {
                turn.is_told = true;
                tracing::warn!(%host, "a host that renewed just now asks again and is refused; is its clock right?");
            }
            return Err(wait(turn.begun, now));
        }
        if let Some((oldest, _)) = recent.begun.front().filter(|_| recent.begun.len() >= RENEWALS_KEPT_MAX) {
            return Err(wait(*oldest, now));
        }
        recent.begun.push_back((now, host));
        recent.hosts.insert(host, Turn { begun: now, is_told: false });
        Ok(())
    }
}

fn wait(begun: Instant, now: Instant) -> Duration {
    RENEWAL_PAUSE.saturating_sub(now.saturating_duration_since(begun))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn host(n: usize) -> HostId {
        HostId::new(Uuid::from_u128(u128::try_from(n).unwrap()))
    }

    #[test]
    fn a_host_renews_once_in_its_pause_and_what_is_remembered_is_bounded() {
        let (renewals, start, minute) = (Renewals::default(), Instant::now(), Duration::from_secs(60));
        assert_eq!(renewals.begin(host(0), start), Ok(()));
        assert_eq!(renewals.begin(host(0), start + minute), Err(RENEWAL_PAUSE - minute));
        for n in 1..RENEWALS_KEPT_MAX {
            assert_eq!(renewals.begin(host(n), start + minute), Ok(()), "{n}");
        }
        assert!(renewals.begin(host(RENEWALS_KEPT_MAX), start + minute).is_err(), "no room");
        assert_eq!(renewals.begin(host(0), start + RENEWAL_PAUSE), Ok(()));
        assert_eq!(renewals.begin(host(1), start + RENEWAL_PAUSE), Err(minute));
        assert_eq!(renewals.begin(host(1), start + 2 * RENEWAL_PAUSE), Ok(()));
        let recent = renewals.recent.lock().unwrap();
        assert_eq!((recent.begun.len(), recent.hosts.len()), (1, 1));
    }
}
