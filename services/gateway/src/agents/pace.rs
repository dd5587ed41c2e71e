//! The spans and numbers of the agents' door that its settings choose.

use std::time::Duration;

use super::limits::{COMPARE_INTERVAL, DRAIN_SPREAD, OPENINGS_WAITING_MAX};

/// How fast a door goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long the process's lease holds without renewal.
    pub lease: Duration,
    /// How often what is held is compared with the authority, before jitter of a fifth either way.
    pub compare_interval: Duration,
    /// Over how long a stopping gateway spreads its agents.
    pub drain_spread: Duration,
    /// How many sessions may wait for the authority to open them; who comes beyond is told when to come back.
    pub openings_waiting_max: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lease: holdfast_store::lease::LEASE_TTL,
            compare_interval: COMPARE_INTERVAL,
            drain_spread: DRAIN_SPREAD,
            openings_waiting_max: OPENINGS_WAITING_MAX,
        }
    }
}
