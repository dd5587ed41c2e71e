//! What the alerts tell people to type.

use std::collections::BTreeSet;
use std::process::Command;

const ALERTS: &str = include_str!("../../../alerts/holdfast.yml");

/// Commands as they stand in prose: `holdfast`, and the lower-case words after it.
fn commands() -> BTreeSet<Vec<&'static str>> {
    let lines = ALERTS.lines().filter(|line| line.contains(" check: '") || line.contains(" fix: '"));
    let told = lines.flat_map(|line| line.split("holdfast ").skip(1));
    let words = told.map(|rest| {
        let is_of_command =
            |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        rest.split([' ', ';', '\'', '(', ',']).take_while(is_of_command).take(2).collect()
    });
    words.collect()
}

/// Whether the command line knows it: the second word may be an argument or prose.
fn is_known(words: &[&str]) -> bool {
    let helps = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let ran = command.args(words).arg("--help").env_clear().output().expect("it runs");
        ran.status.success()
    };
    let has_groups = ["rollout", "host", "operation", "audit", "get", "describe", "explain", "plan"];
    match words {
        [] => false,
        [group, _, ..] if has_groups.contains(group) => helps(words),
        [first, ..] => helps(&[first]),
    }
}

#[test]
fn every_command_that_an_alert_names_is_one() {
    let commands = commands();
    assert!(commands.len() >= 8, "{commands:?}");
    let unknown: Vec<_> = commands.iter().filter(|words| !is_known(words)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // Where a command wants a name, one stands there.
    let moves = |line: &str| {
        line.split("holdfast rollout ").skip(1).all(|rest| rest.starts_with("list") || rest.contains(" ID"))
    };
    let nameless: Vec<_> = ALERTS.lines().filter(|line| !moves(line)).collect();
    assert!(nameless.is_empty(), "{nameless:?}");
    assert!(!is_known(&["host", "reconect"]) && !is_known(&["opration"]), "what is no command is seen");
}

#[test]
fn every_alert_says_where_to_look_and_what_to_do_and_how_urgent_it_is() {
    let alerts: Vec<&str> = ALERTS.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 25, "{}", alerts.len());
    for alert in alerts {
        let has = |what: &str| alert.contains(what);
        let urgent = ["page", "ticket", "note"].iter().any(|word| has(&format!("labels: {{severity: {word}}}")));
        assert!(has("summary: '") && has("check: '") && has("fix: '") && urgent, "{alert}");
    }
}
