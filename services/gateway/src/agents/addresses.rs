//! What a host that polls says of its addresses, until it is recorded.
//!
//! - An agent says them when they are others, and once: what finds no turn waits, the newest in the place of what was before.

use std::net::IpAddr;

use holdfast_session::gateway::InventoryTurns;
use holdfast_session::time::Instant;

/// Of one session.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    recorded: Option<Vec<IpAddr>>,
    waiting: Option<Vec<IpAddr>>,
    turns: Option<InventoryTurns>,
}

impl Addresses {
    /// The host has these now.
    pub(super) fn handle_said(&mut self, addresses: Vec<IpAddr>) {
        self.waiting = (self.recorded.as_ref() != Some(&addresses)).then_some(addresses);
    }

    /// Those that are to be recorded now, if there are some.
    pub(super) fn poll_record(&mut self, now: Instant) -> Option<Vec<IpAddr>> {
        let waiting = self.waiting.clone()?;
        self.turns.get_or_insert_with(|| InventoryTurns::new(now)).take(now).then_some(waiting)
    }

    /// These are recorded.
    pub(super) fn handle_recorded(&mut self, addresses: Vec<IpAddr>) {
        self.waiting.take_if(|waiting| *waiting == addresses);
        self.recorded = Some(addresses);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_session::limits::{INVENTORIES_AT_ONCE, INVENTORY_PAUSE};

    use super::*;

    #[test]
    fn the_last_that_a_host_says_is_recorded_when_its_turn_comes_and_what_it_has_again_is_not() {
        let mut addresses = Addresses::default();
        let mut now = Instant::default();
        let of = |last: u32| vec![IpAddr::from([10, 0, 0, u8::try_from(last).expect("small")])];
        let mut say = |last: Option<u32>, now| {
            last.into_iter().for_each(|last| addresses.handle_said(of(last)));
            let due = addresses.poll_record(now);
            due.iter().for_each(|due| addresses.handle_recorded(due.clone()));
            due
        };
        for last in 1..=INVENTORIES_AT_ONCE {
            assert_eq!(say(Some(last), now), Some(of(last)));
            assert_eq!(say(Some(last), now), None, "the same again");
        }
        assert_eq!(say(Some(100), now), None);
        assert_eq!(say(Some(101), now), None);
        now = now.plus(INVENTORY_PAUSE);
        assert_eq!(say(None, now), Some(of(101)), "by a poll that says nothing of it");
        assert_eq!(say(Some(102), now), None);
        assert_eq!(say(Some(101), now), None, "as it is recorded");
        assert_eq!(say(None, now.plus(INVENTORY_PAUSE)), None);
    }
}
