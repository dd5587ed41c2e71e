//! The same seed does the same; seeds that failed once hold; schedules meet everything that they are to meet.

use holdfast_sim::{Report, Run, replay, run_schedule, seed_of};

const KEPT: &str = include_str!("../../seeds.txt");

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    for nth in 0..20 {
        let seed = seed_of(7, nth);
        let (first, again) = (run_schedule(seed, None), run_schedule(seed, None));
        assert_eq!(first, again, "{seed:#018x}");
        let (told, lines) = replay(seed, None);
        assert_eq!(told, first, "telling it changes nothing");
        assert!(lines.len() > 10);
        assert_ne!(first.digest, run_schedule(seed_of(7, nth + 1), None).digest);
    }
}

#[test]
fn the_result_of_many_does_not_depend_on_how_many_threads_run_them() {
    let run = |threads| run_of(300, threads);
    assert_eq!(run(1), run(3));
}

#[test]
fn every_seed_that_failed_once_holds() {
    let seeds = KEPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    for line in seeds {
        let hex = line.strip_prefix("0x").expect("a seed begins with 0x");
        let seed = u64::from_str_radix(hex, 16).expect("a seed is hexadecimal");
        let outcome = run_schedule(seed, None);
        assert_eq!(outcome.violation, None, "seed {seed:#018x}");
        count += 1;
    }
    assert!(count >= 7, "the list was read");
}

#[test]
fn some_hundred_schedules_hold_and_meet_every_form_of_update_and_every_outcome() {
    let report = run_of(400, 2);
    assert_eq!(report.failures, []);
    for (name, count) in report.tally.named() {
        assert!(count > 0, "no schedule met `{name}`");
    }
    let tally = report.tally;
    assert!(tally.snapshots > 1_000 && tally.deltas > 100 && tally.failed > 100 && tally.faults > 1_000, "{tally:?}");
}

fn run_of(schedules: u64, threads: usize) -> Report {
    Run { schedules, seed: 5, mutant: None, threads, stops_at_first: false }.run(&|_| {})
}
