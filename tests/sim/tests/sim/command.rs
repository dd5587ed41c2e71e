//! `./ops/sim` as scripts see it: its exit codes and its JSON.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast-sim")).args(arguments).output().expect("it runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one object on stdout")
}

#[test]
fn schedules_that_hold_end_with_zero_and_are_counted_in_json() {
    let ran = run(&["--schedules", "40", "--seed", "7", "-o", "json"]);
    let said = json(&ran);
    assert_eq!((ran.status.code(), &said["schedules"], &said["seed"]), (Some(0), &40.into(), &7.into()), "{said}");
    assert_eq!(said["violations"], 0, "{said}");
}

#[test]
fn mistakes_that_can_be_seeded_are_listed_and_what_is_none_is_wrong_usage() {
    let ran = run(&["--list-mutants"]);
    let listed = String::from_utf8(ran.stdout).expect("text");
    for name in ["wrong-base-accepted", "unsent-ack-accepted", "late-cleanup-unfenced"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name}: {listed}");
    }
    for wrong in [["--mutant", "nobody"], ["--schedules", "0"], ["--seed", "x"], ["--schedule", "3"]] {
        assert_eq!(run(&wrong).status.code(), Some(64), "{wrong:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_seeded_mistake_that_is_caught_ends_with_zero_and_has_violations() {
    for mutant in ["wrong-base-accepted", "unsent-ack-accepted", "late-cleanup-unfenced"] {
        let ran = run(&["--mutant", mutant, "-o", "json"]);
        let said = json(&ran);
        assert!(said["violations"].as_u64().is_some_and(|violations| violations > 0), "{mutant}: {said}");
        assert_eq!(ran.status.code(), Some(0), "{mutant}");
    }
}
