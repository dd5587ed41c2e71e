//! Pauses between tries: full jitter from 10 ms to 2 s.

use std::thread;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// How often a request is tried again that the kernel may grant a moment later.
pub(super) const RETRIES: u32 = 5;
const SHORTEST_MS: u64 = 10;
const LONGEST_MS: u64 = 2_000;

/// Waits before try `attempt`, counted from 1.
pub(super) fn pause(attempt: u32) {
    thread::sleep(Duration::from_millis(duration_ms(attempt, random())));
}

fn duration_ms(attempt: u32, random: u64) -> u64 {
    let ceiling = SHORTEST_MS.saturating_mul(4_u64.saturating_pow(attempt)).min(LONGEST_MS);
    SHORTEST_MS + random % (ceiling - SHORTEST_MS + 1)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness every pause is the shortest, which is still right.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return 0;
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_between_the_shortest_and_the_longest() {
        for attempt in 1..=RETRIES {
            for random in [0, 1, u64::MAX] {
                assert!((SHORTEST_MS..=LONGEST_MS).contains(&duration_ms(attempt, random)));
            }
        }
    }
}
