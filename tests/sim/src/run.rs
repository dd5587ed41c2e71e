//! Running schedules: one, or many on every core.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_model::mutant::Mutant;
use holdfast_session::random::Random;

use crate::tally::Tally;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::World;

/// How many schedules a thread takes at once.
const PORTION: u64 = 64;
/// Failures that a report names; more are counted.
const FAILURES_MAX: usize = 20;

/// What came of one schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What did not hold, if anything.
    pub violation: Option<Violation>,
    /// A number of everything that happened.
    pub digest: u64,
    /// How many steps it had.
    pub steps: u64,
    /// What was seen.
    pub tally: Tally,
}

/// A schedule that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its own seed, by which it is replayed.
    pub seed: u64,
    /// What did not hold.
    pub violation: Violation,
}

/// What came of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// How many were run.
    pub schedules: u64,
    /// How many of them failed.
    pub violations: u64,
    /// The first of those, by their place in the run.
    pub failures: Vec<Failure>,
    /// A number of everything that happened in all of them, whatever thread ran which.
    pub digest: u64,
    /// How many steps they had.
    pub steps: u64,
    /// What was seen.
    pub tally: Tally,
}

/// Many schedules to run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How many.
    pub schedules: u64,
    /// From which each has its own.
    pub seed: u64,
    /// A fault that is seeded in all of them. Needs the feature `mutants`.
    pub mutant: Option<Mutant>,
    /// How many run at once.
    pub threads: usize,
    /// Whether the first failure ends the run: enough to know that a fault is found.
    pub stops_at_first: bool,
}

/// The seed of the nth schedule of a run.
#[must_use]
pub const fn seed_of(seed: u64, nth: u64) -> u64 {
    Random::new(seed ^ nth.wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}

/// Runs one schedule.
#[must_use]
pub fn run_schedule(seed: u64, mutant: Option<Mutant>) -> Outcome {
    finish(World::new(seed, mutant, Trace::default())).0
}

/// Runs one schedule and tells what happens, line by line.
#[must_use]
pub fn replay(seed: u64, mutant: Option<Mutant>) -> (Outcome, Vec<String>) {
    finish(World::new(seed, mutant, Trace::told()))
}

fn finish(mut world: World) -> (Outcome, Vec<String>) {
    while world.step() {}
    let (digest, steps, tally) = (world.trace.digest(), world.steps, world.tally);
    (Outcome { violation: world.violation, digest, steps, tally }, world.trace.into_lines())
}

impl Run {
    /// Runs them; `progress` is told how many are done, from time to time.
    ///
    /// # Panics
    /// If a schedule panics: a machine that does is a fault too.
    #[must_use]
    pub fn run(&self, progress: &(impl Fn(u64) + Sync)) -> Report {
        let next = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let whole = Mutex::new(Report::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let from = next.fetch_add(PORTION, Ordering::Relaxed);
                        if from >= self.schedules {
                            return;
                        }
                        let portion = self.run_portion(from, &stop);
                        progress(done.fetch_add(portion.schedules, Ordering::Relaxed) + portion.schedules);
                        whole.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(portion);
                    }
                });
            }
        });
        let mut report = whole.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        report.failures.sort_by_key(|failure| failure.seed);
        report
    }

    fn run_portion(&self, from: u64, stop: &AtomicBool) -> Report {
        let mut report = Report::default();
        for nth in from..self.schedules.min(from + PORTION) {
            let seed = seed_of(self.seed, nth);
            let outcome = run_schedule(seed, self.mutant);
            report.take(seed, outcome);
            if self.stops_at_first && report.violations > 0 {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        report
    }
}

impl Report {
    fn take(&mut self, seed: u64, outcome: Outcome) {
        self.schedules += 1;
        self.steps += outcome.steps;
        // A sum, so that the order of threads does not matter; mixed with the seed, so that two that change places do.
        self.digest = self.digest.wrapping_add(Random::new(outcome.digest ^ seed).next_u64());
        self.tally.add(&outcome.tally);
        if let Some(violation) = outcome.violation {
            self.violations += 1;
            self.failures.push(Failure { seed, violation });
        }
    }

    fn merge(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.violations += other.violations;
        self.digest = self.digest.wrapping_add(other.digest);
        self.tally.add(&other.tally);
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.seed);
        self.failures.truncate(FAILURES_MAX);
    }
}
