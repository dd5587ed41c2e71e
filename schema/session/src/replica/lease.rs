//! The lease of a process that holds sessions, by its own clock.
//!
//! - Counted from before it was asked for, never from when the answer came: the authority's clock began no later, so that it never lasts longer here
//!   than there. A process that was held still does not take it for held when it goes on.
//! - One that lapsed ends nothing and is claimed again: sessions stay, nothing is written and none is opened meanwhile. In that it is another thing than
//!   a renderer's tenure (`schema/render/src/tenure.rs`), which is one term that ends before its lease could, and never comes back.
//! - Asked for three times in its span, however late answers come, and ten times as often while it is not held.

use std::time::Duration;

use holdfast_model::mutant::{Faults, Mutant};

use crate::time::Instant;

/// How many times it is asked for within its span.
const RENEWALS: u32 = 3;
/// How much sooner it is asked for while it is not held.
const RETRY_PART: u32 = 10;

/// Whether it is held, and when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    ttl: Duration,
    asking: Option<Instant>,
    was_held: bool,
    held_until: Option<Instant>,
    next: Instant,
    faults: Faults,
}

impl Lease {
    /// One that lasts so long and is not held yet; it is to be asked for at once.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        let (asking, held_until, faults) = (None, None, Faults::default());
        Self { ttl, asking, was_held: false, held_until, next: Instant::default(), faults }
    }

    /// The same with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// It is being asked for from now on.
    pub const fn handle_asked(&mut self, now: Instant) {
        self.asking = Some(now);
    }

    /// The authority said whether it is held; not to know is not to hold it. Whether it lapsed: it was held, and is no more, or had ended before it was
    /// given again.
    pub fn handle_answer(&mut self, holds: bool, now: Instant) -> bool {
        let asked = self.asking.take().unwrap_or(now);
        let from = if self.faults.has(Mutant::LeaseFromAnswer) { now } else { asked };
        let renewal = self.ttl / RENEWALS;
        let has_lapsed = self.was_held && !(holds && self.is_held(now));
        self.held_until = holds.then(|| from.plus(self.ttl));
        self.was_held = holds;
        let soon = now.plus(renewal / RETRY_PART);
        // An answer that came after the end of what it gave is none.
        self.next = if self.is_held(now) { asked.plus(renewal).max(soon) } else { soon };
        has_lapsed
    }

    /// Whether it is held by now.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// When it is to be asked for; nothing while that is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let why = if self.was_held { "renew the lease" } else { "claim the lease" };
        self.asking.is_none().then_some((self.next, why))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Asks at one moment and is answered at another; whether it lapsed.
    fn answered(lease: &mut Lease, asked: u64, holds: bool, now: u64) -> bool {
        lease.handle_asked(at(asked));
        assert_eq!(lease.poll_timeout(), None, "once at a time");
        lease.handle_answer(holds, at(now))
    }

    fn next(lease: &Lease) -> u64 {
        lease.poll_timeout().expect("nobody is asked").0.as_millis()
    }

    #[test]
    fn a_lease_ends_by_the_holders_own_clock_counted_from_before_it_was_asked() {
        let mut lease = Lease::new(TTL);
        assert_eq!((lease.is_held(at(0)), next(&lease)), (false, 0));
        assert!(!answered(&mut lease, 1_000, true, 3_000));
        assert_eq!([30_999, 31_000].map(|now| lease.is_held(at(now))), [true, false]);
        assert_eq!(next(&lease), 11_000, "three times in its span, however late the answer");
        assert!(!answered(&mut lease, 11_000, true, 30_000));
        assert_eq!(next(&lease), 31_000, "at once, but not without a pause");
        assert!(answered(&mut lease, 31_000, true, 42_000), "it had ended before it was given again");
        assert_eq!((lease.is_held(at(42_000)), next(&lease)), (true, 43_000));
    }

    #[test]
    fn a_process_that_was_held_still_between_question_and_answer_holds_nothing_and_asks_again_soon() {
        let mut lease = Lease::new(TTL);
        assert!(!answered(&mut lease, 0, true, 70_000), "it never was");
        assert_eq!((lease.is_held(at(70_000)), next(&lease)), (false, 71_000));
    }

    #[test]
    fn a_lapse_is_told_once_until_it_is_held_again() {
        let mut lease = Lease::new(TTL);
        let mut lapses = |holds| answered(&mut lease, 0, holds, 10);
        assert_eq!([false, true, true, false, false, true].map(&mut lapses), [false, false, false, true, false, false]);
        assert!(answered(&mut lease, 20, false, 30));
        assert_eq!(next(&lease), 1_030);
    }

    proptest! {
        /// The authority gives it after it was asked and before it is heard: whatever lies between, its end there is no sooner than here.
        #[test]
        fn it_is_never_held_here_once_it_could_have_ended_there(
            turns in prop::collection::vec((0..40_000_u64, 0..80_000_u64, 0..80_000_u64, any::<bool>()), 1..20),
            looks in prop::collection::vec(0..200_000_u64, 1..20),
        ) {
            let (mut lease, mut now, mut there) = (Lease::new(TTL), 0, 0);
            for (pause, way_there, way_back, holds) in turns {
                let asked = now + pause;
                if holds {
                    there = asked + way_there + 30_000;
                }
                now = asked + way_there + way_back;
                answered(&mut lease, asked, holds, now);
                for look in &looks {
                    let look = now + look;
                    prop_assert!(!lease.is_held(at(look)) || (holds && look < there));
                }
                prop_assert!(next(&lease) > now && next(&lease) <= now + 10_000);
            }
        }
    }
}
