//! When a replica compares what it holds with the authority.
//!
//! - At an interval within a fifth either way, so that replicas do not ask in step; on a doubt about hints, but a pause after the last one; at once where
//!   the way of hints itself broke.
//! - One that failed is tried again soon: what raised the doubt is not forgotten. Neither is a doubt that comes while one is under way, which may have
//!   read before what was missed.

use std::time::Duration;

use holdfast_model::mutant::{Faults, Mutant};

use crate::random::Random;
use crate::time::Instant;

/// How far apart compares are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Without any doubt, before jitter of a fifth either way.
    pub interval: Duration,
    /// The least time between the end of one and the next that a doubt makes: strangers may number hints as they like.
    pub doubt_pause: Duration,
    /// The longest wait after one that failed.
    pub retry: Duration,
}

/// What hints make of the next compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wish {
    /// Some may be missing.
    Doubt,
    /// Some were lost for certain.
    Lapse,
}

/// When to compare.
#[derive(Debug)]
pub struct Compares {
    pace: Pace,
    random: Random,
    next: Instant,
    ended: Option<Instant>,
    is_under_way: bool,
    /// What came while one is under way.
    wish: Option<Wish>,
    faults: Faults,
}

impl Compares {
    /// The first is an interval from now; the seed chooses the jitter.
    #[must_use]
    pub fn new(pace: Pace, seed: u64, now: Instant) -> Self {
        let (random, faults) = (Random::new(seed), Faults::default());
        let mut compares = Self { pace, random, next: now, ended: None, is_under_way: false, wish: None, faults };
        compares.next = now.plus(compares.jittered());
        compares
    }

    /// The same with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// Hints may be missing.
    pub fn handle_doubt(&mut self, now: Instant) {
        self.handle_wish(Wish::Doubt, now);
    }

    /// Hints were lost.
    pub fn handle_lapse(&mut self, now: Instant) {
        self.handle_wish(Wish::Lapse, now);
    }

    fn handle_wish(&mut self, wish: Wish, now: Instant) {
        if self.is_under_way {
            if !self.faults.has(Mutant::DoubtForgotten) {
                self.wish = self.wish.max(Some(wish));
            }
            return;
        }
        let when = match wish {
            Wish::Doubt => self.ended.map_or(now, |ended| ended.plus(self.pace.doubt_pause)),
            Wish::Lapse => now,
        };
        self.next = self.next.min(when);
    }

    /// Whether one begins now; its end is to be told before there is another.
    pub fn poll_begin(&mut self, now: Instant) -> bool {
        let begins = !self.is_under_way && self.next <= now;
        self.is_under_way |= begins;
        begins
    }

    /// One ended: whether everything was compared.
    pub fn handle_ended(&mut self, is_compared: bool, now: Instant) {
        let pause = self.jittered();
        self.is_under_way = false;
        self.ended = Some(now);
        self.next = now.plus(if is_compared { pause } else { pause.min(self.pace.retry) });
        if let Some(wish) = self.wish.take() {
            self.handle_wish(wish, now);
        }
    }

    /// When the next begins; nothing while one is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        (!self.is_under_way).then_some((self.next, "compare"))
    }

    fn jittered(&mut self) -> Duration {
        let whole = u64::try_from(self.pace.interval.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis((whole / 5 * 4).saturating_add(self.random.up_to(whole / 5 * 2)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACE: Pace =
        Pace { interval: Duration::from_secs(30), doubt_pause: Duration::from_secs(1), retry: Duration::from_secs(5) };

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn next(compares: &Compares) -> u64 {
        compares.poll_timeout().expect("none is under way").0.as_millis()
    }

    /// One begins and ends at a moment.
    fn compare(compares: &mut Compares, now: u64, is_compared: bool) {
        assert!(compares.poll_begin(at(now)));
        assert!(!compares.poll_begin(at(now)) && compares.poll_timeout().is_none(), "one at a time");
        compares.handle_ended(is_compared, at(now));
    }

    #[test]
    fn the_interval_is_within_a_fifth_either_way_and_differs_between_seeds() {
        let nexts: Vec<u64> = (0..200).map(|seed| next(&Compares::new(PACE, seed, at(0)))).collect();
        assert!(nexts.iter().all(|next| (24_000..=36_000).contains(next)), "{nexts:?}");
        assert!(nexts.iter().min().is_some_and(|first| *first < 25_000), "{nexts:?}");
        assert!(nexts.iter().max().is_some_and(|last| *last > 35_000), "{nexts:?}");
    }

    #[test]
    fn the_first_doubt_is_looked_into_at_once_and_the_next_a_pause_after_that() {
        let mut compares = Compares::new(PACE, 1, at(0));
        compares.handle_doubt(at(100));
        compare(&mut compares, 100, true);
        assert!(next(&compares) >= 24_100);
        compares.handle_doubt(at(200));
        compares.handle_doubt(at(300));
        assert_eq!(next(&compares), 1_100);
        compare(&mut compares, 1_100, true);
        compares.handle_lapse(at(1_101));
        assert_eq!(next(&compares), 1_101, "what is known to be lost waits for nothing");
    }

    #[test]
    fn one_that_failed_is_tried_again_soon_and_never_later_than_the_interval() {
        let mut compares = Compares::new(PACE, 1, at(0));
        compares.handle_doubt(at(0));
        compare(&mut compares, 0, false);
        assert_eq!(next(&compares), 5_000);
        let short = Pace { interval: Duration::from_secs(1), ..PACE };
        let mut compares = Compares::new(short, 1, at(0));
        compares.handle_lapse(at(0));
        compare(&mut compares, 0, false);
        assert!((800..=1_200).contains(&next(&compares)));
    }

    #[test]
    fn what_is_doubted_while_one_is_under_way_is_looked_into_after_it() {
        for (lapse, then) in [(false, 2_500), (true, 1_500)] {
            let mut compares = Compares::new(PACE, 1, at(0));
            compares.handle_doubt(at(1_000));
            assert!(compares.poll_begin(at(1_000)));
            compares.handle_doubt(at(1_200));
            if lapse {
                compares.handle_lapse(at(1_300));
            }
            compares.handle_ended(true, at(1_500));
            assert_eq!(next(&compares), then);
        }
    }

    proptest! {
        /// However hints and answers come, the next compare after a doubt begins within the pause of the last one's end.
        #[test]
        fn no_doubt_waits_for_longer_than_a_pause_once_nothing_is_under_way(
            seed in any::<u64>(),
            steps in prop::collection::vec((0..3_000_u64, 0..4_u8), 1..60),
        ) {
            let (mut compares, mut now, mut doubted, mut ended) = (Compares::new(PACE, seed, at(0)), 0, None, None);
            for (pause, what) in steps {
                now += pause;
                match what {
                    0 => {
                        compares.handle_doubt(at(now));
                        doubted = doubted.or(Some(now));
                    }
                    1 if compares.poll_begin(at(now)) => doubted = None,
                    1 => {}
                    _ if compares.poll_timeout().is_none() => {
                        compares.handle_ended(what == 2, at(now));
                        ended = Some(now);
                    }
                    _ => {}
                }
                if let (Some(doubted), Some((due, _))) = (doubted, compares.poll_timeout()) {
                    let bound = ended.map_or(doubted, |ended| doubted.max(ended + 1_000));
                    prop_assert!(due <= at(bound), "{due:?} for a doubt of {doubted}, ended {ended:?}");
                }
            }
        }
    }
}
