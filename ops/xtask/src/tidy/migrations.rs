//! T9: a migration that has landed is never changed; a mistake is mended by the next one.
//!
//! - The list has one line per migration, in the format of `sha256sum`, so that `sha256sum --check` reads it too.
//! - Recording adds lines for new files and leaves every line that is there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::finding::Finding;
use crate::tree::Tree;

/// The list of hashes.
pub(crate) const SUMS: &str = "schema/sql/migrations.sha256";
const FOLDER: &str = "schema/sql/migrations/";

/// Every migration that is not as it was recorded.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let recorded = recorded(tree);
    let mut findings = Vec::new();
    for (path, text) in migrations(tree) {
        match recorded.get(path) {
            Some(sum) if *sum == sum_of(text) => {}
            Some(_) => {
                findings.push(Finding::new("T9", path, "was changed after it had landed: add a new migration instead (before the first release: delete its line in the list and record it again)"))
            }
            None => {
                findings.push(Finding::new("T9", path, "is not recorded: run `cargo xtask tidy --record-migrations`"))
            }
        }
    }
    for path in recorded.keys().filter(|path| tree.text(path).is_none()) {
        findings.push(Finding::new("T9", *path, "was recorded and is gone: a migration that has landed stays"));
    }
    findings
}

/// The list with a line for every migration that has none.
pub(crate) fn record(tree: &Tree) -> String {
    let recorded = recorded(tree);
    let mut sums: BTreeMap<String, String> =
        recorded.iter().map(|(path, sum)| ((*path).to_owned(), (*sum).to_owned())).collect();
    for (path, text) in migrations(tree) {
        sums.entry(path.to_owned()).or_insert_with(|| sum_of(text));
    }
    sums.iter().fold(String::new(), |list, (path, sum)| list + sum + "  " + path + "\n")
}

fn migrations(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_extension("sql").filter(|(path, _)| path.starts_with(FOLDER))
}

fn recorded(tree: &Tree) -> BTreeMap<&str, &str> {
    let list = tree.text(SUMS).unwrap_or_default();
    list.lines().filter_map(|line| line.split_once("  ")).map(|(sum, path)| (path, sum)).collect()
}

fn sum_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut sum, byte| {
        // Writing into a String cannot fail.
        write!(sum, "{byte:02x}").expect("a String takes everything");
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "schema/sql/migrations/0001-first.sql";

    fn texts(tree: &Tree) -> Vec<String> {
        check(tree).iter().map(|finding| finding.text.clone()).collect()
    }

    #[test]
    fn a_changed_an_unrecorded_and_a_removed_migration_are_found() {
        let list = record(&Tree::of(&[(FIRST, "create table a ();\n")]));
        assert_eq!(texts(&Tree::of(&[(FIRST, "create table a ();\n"), (SUMS, &list)])), [""; 0]);
        assert!(texts(&Tree::of(&[(FIRST, "create table b ();\n"), (SUMS, &list)]))[0].starts_with("was changed"));
        assert!(texts(&Tree::of(&[(FIRST, "create table a ();\n")]))[0].starts_with("is not recorded"));
        assert!(texts(&Tree::of(&[(SUMS, &list)]))[0].starts_with("was recorded and is gone"));
    }

    #[test]
    fn recording_again_keeps_the_hash_of_what_was_changed() {
        let list = record(&Tree::of(&[(FIRST, "create table a ();\n")]));
        assert_eq!(record(&Tree::of(&[(FIRST, "create table b ();\n"), (SUMS, &list)])), list);
    }

    #[test]
    fn the_sum_is_the_one_of_sha256sum() {
        assert_eq!(sum_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
