//! The named points at which tests kill services: the list and the code are the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_suite::fail_points::{COMMITS_LEFT_OUT, FAIL_POINTS};
use holdfast_suite::plane::root;

type Point = (String, String);

#[test]
fn every_named_point_of_the_services_is_one_at_which_a_service_is_killed() {
    let texts: Vec<String> = sources(&root().join("services")).iter().map(|file| read(file)).collect();
    let mut in_code: BTreeSet<Point> = texts.iter().flat_map(|text| calls(text)).collect();
    // The gateway names an update by its form.
    for update in ["a snapshot", "a delta"] {
        for moment in ["before it is written", "half written", "written, before its outcome"] {
            assert!(texts.iter().any(|text| text.contains(&format!("\"{moment}\""))), "{moment}");
            in_code.insert((update.to_owned(), moment.to_owned()));
        }
    }
    let left_out: BTreeSet<&str> = COMMITS_LEFT_OUT.iter().map(|(what, _)| *what).collect();
    let commits: BTreeSet<String> = texts.iter().flat_map(|text| commits(text)).collect();
    assert!(left_out.iter().all(|what| commits.contains(*what)), "{left_out:?} of {commits:?}");
    for what in commits.iter().filter(|what| !left_out.contains(what.as_str())) {
        in_code.extend(["before the commit", "after the commit"].map(|moment| (what.clone(), moment.to_owned())));
    }
    let listed: BTreeSet<Point> =
        FAIL_POINTS.iter().map(|point| (point.subject.to_owned(), point.moment.to_owned())).collect();
    assert_eq!(listed, in_code);
}

/// The two texts of each `fail_point("…", "…")`, on one line or several; the subject that is no text is the gateway's.
fn calls(text: &str) -> Vec<Point> {
    let point = |call: &str| {
        let (subject, rest) = literal(call)?;
        let (moment, _) = literal(rest.strip_prefix(',')?)?;
        Some((subject.to_owned(), moment.to_owned()))
    };
    text.split("fail_point(").skip(1).filter_map(point).collect()
}

/// What each transaction that writes is called. One whose name or mode is not written down in its place would be missed, and is refused.
fn commits(text: &str) -> Vec<String> {
    let name = |call: &str| {
        let (name, rest) = literal(call).unwrap_or_else(|| panic!("a transaction without a name: {call:.60}"));
        let mode = rest.strip_prefix(',').and_then(|rest| rest.trim_start().strip_prefix("Mode::"));
        let mode = mode.unwrap_or_else(|| panic!("a transaction whose mode cannot be seen: {call:.60}"));
        matches!(mode.split(',').next(), Some("Write" | "LongWrite")).then(|| name.to_owned())
    };
    let once = |call: &str| match literal(call) {
        Some((name, _)) => name.to_owned(),
        None => panic!("a transaction without a name: {call:.60}"),
    };
    // What is done once always writes.
    text.split("transact(").skip(1).filter_map(name).chain(text.split("transact_once(").skip(1).map(once)).collect()
}

/// The text that an argument is, and what is behind it.
fn literal(arguments: &str) -> Option<(&str, &str)> {
    arguments.trim_start().strip_prefix('"')?.split_once('"')
}

#[test]
fn a_call_is_found_however_it_is_broken_over_lines() {
    let text = "
        self.transact(\"one\", Mode::Write, move |tx| {
        self.transact(
            \"two\",
            Mode::LongWrite,
            move |tx| {
        self.transact(\"three\", Mode::Snapshot, move |tx| {
        fail_point(\"a\", \"b\");
        fail_point(
            \"c\",
            \"d\",
        );
        fail_point(update, \"half written\");";
    assert_eq!(commits(text), ["one", "two"]);
    assert_eq!(calls(text), [("a", "b"), ("c", "d")].map(|(what, when)| (what.to_owned(), when.to_owned())));
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is ours").flatten().map(|entry| entry.path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
