//! Every estate that is there, judged by evaluator and artifact.
//!
//! The estates of the project always; the public catalogue where `HOLDFAST_ESTATES` names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_documents::estate::NEEDS_MET;
use holdfast_lab::verify::{Case, Report, find, load, verify_churn, verify_estate};
use holdfast_model::intent::Intent;
use holdfast_render::{Index, Mutant};

/// What the full catalogue has: 165 estates and two churning lists.
const CATALOGUE_ESTATES: usize = 165;
const CATALOGUE_CELLS: usize = 18_197;

#[test]
fn the_estates_of_the_project_are_rendered_as_they_expect() {
    let reports = judge(&own(), &Index::new);
    assert!(reports.iter().any(|report| report.id == "harbour" && report.cells > 150));
    all_right(&reports);
}

#[test]
fn the_catalogue_is_rendered_as_it_expects() {
    let Some(folder) = catalogue() else { return };
    let reports = judge(&folder, &Index::new);
    all_right(&reports);
    let estates: Vec<&Report> = reports.iter().filter(|report| !report.id.starts_with("churn-")).collect();
    assert_eq!(estates.len(), CATALOGUE_ESTATES);
    assert_eq!(estates.iter().map(|report| report.cells).sum::<usize>(), CATALOGUE_CELLS);
}

#[test]
fn every_seeded_fault_of_the_renderer_is_caught_by_the_estates_of_the_project() {
    for mutant in Mutant::ALL {
        let wrong: usize = judge(&own(), &|intent| Index::with_mutant(intent, mutant)).iter().map(|it| it.wrong).sum();
        assert!(wrong > 0, "{mutant:?} goes unseen");
    }
}

#[test]
fn the_words_that_no_public_estate_uses_have_an_estate_here() {
    let used: BTreeSet<String> = cases(&own())
        .iter()
        .filter_map(|case| match case {
            Case::Estate(estate) => Some(estate.needs.clone()),
            Case::Churn(_) => None,
        })
        .flatten()
        .collect();
    for word in ["ipv6", "expr_exists", "expr_absent"] {
        assert!(used.contains(word) && NEEDS_MET.contains(&word), "{word}");
    }
}

#[test]
fn a_wrong_expectation_is_found_by_both_judges_and_fails_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(own().join("words/words-ipv6.json")).expect("an estate");
    let file = folder.path().join("x.json");
    std::fs::write(&file, text.replacen("\"allow\": true", "\"allow\": false", 1)).expect("a file");
    let out = lab(&["verify", "--render-only", "-o", "json", "--estate", &file.display().to_string()]);
    assert_eq!(out.status.code(), Some(1));
    let reports: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(reports[0]["wrong"], 1);
    assert_eq!(reports[0]["agree"], reports[0]["cells"].as_u64().expect("a count") - 1);
    let words = String::from_utf8(out.stderr).expect("text");
    assert!(words.contains("wanted denied, evaluator allowed, artifact allowed"), "{words}");
}

#[test]
fn a_need_that_is_not_known_and_a_file_that_cannot_be_read_fail_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(own().join("words/words-ipv6.json")).expect("an estate");
    let (unmet, broken) = (folder.path().join("a.json"), folder.path().join("b.json"));
    std::fs::write(&unmet, text.replacen("\"ipv6\"", "\"time_travel\"", 1)).expect("a file");
    std::fs::write(&broken, text.replacen("\"peers\"", "\"piers\"", 1)).expect("a file");
    let out = lab(&["verify", "--render-only", "-o", "json", "--estate", &folder.path().display().to_string()]);
    assert_eq!(out.status.code(), Some(1));
    let reports: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(reports.as_array().map(Vec::len), Some(1));
    assert_eq!(reports[0]["unmet"], serde_json::json!(["time_travel"]));
    assert!(String::from_utf8_lossy(&out.stderr).contains("b.json"));
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for args in [vec!["verify", "--render-onyl"], vec!["verify", "--render-only", "-o", "xml"]] {
        assert_eq!(lab(&args).status.code(), Some(64), "{args:?}");
    }
    assert_eq!(lab(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_refused_version_of_a_list_keeps_the_one_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("churn.json");
    let text = r#"{"format":"ipset-churn/1","id":"churn-x","first":["10.0.0.0/8","10.1.0.0/16","2001:db8::/33"],"steps":[
        {"add":["11.0.0.0/8","2001:db8:8000::/33"],"remove":[]},
        {"add":["12.0.0.0/8"],"remove":["10.0.0.0/8"],"invalid_lines":["<!doctype html>"]},
        {"add":["13.0.0.0/8"],"remove":["2001:db8::/33"]}]}"#;
    std::fs::write(&file, text).expect("a file");
    let reports = judge(&file, &Index::new);
    all_right(&reports);
    assert_eq!(reports[0].cells, 1 + 3 + 2 + 3);
}

fn all_right(reports: &[Report]) {
    let wrong: Vec<_> = reports.iter().flat_map(|report| &report.details).take(20).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(reports.iter().all(Report::is_right));
}

fn judge(path: &Path, index: &dyn Fn(&Intent) -> Index) -> Vec<Report> {
    cases(path)
        .into_iter()
        .map(|case| match case {
            Case::Estate(estate) => verify_estate(&estate, index).expect("artifacts that can be read"),
            Case::Churn(churn) => verify_churn(&churn, index),
        })
        .collect()
}

fn cases(path: &Path) -> Vec<Case> {
    let files = find(path).expect("estates");
    files.iter().map(|file| load(file).unwrap_or_else(|error| panic!("{error}: {error:?}"))).collect()
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("estates")
}

fn catalogue() -> Option<PathBuf> {
    std::env::var_os("HOLDFAST_ESTATES").map(PathBuf::from)
}

fn lab(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast-lab"))
        .args(args)
        .env_remove("HOLDFAST_ESTATES")
        .output()
        .expect("the program runs")
}
