//! T1 headers, T2 sizes, T4 unfinished work, T5 paths of one machine.

use crate::finding::Finding;
use crate::rust_text::{has_word, is_test_file, without_tests};
use crate::tree::Tree;

/// The cap of a file without its tests, in lines.
const LINES_MAX: usize = 600;

/// Words of work left for later; in two parts, so that this file passes its own check.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Paths that exist on the machine of whoever wrote them; in two parts for the same reason.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Every breach by one file alone.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if !text.starts_with("//! ") {
            findings.push(Finding::new("T1", path, "does not begin with `//! ` and what the file is"));
        }
        let lines = if is_test_file(path) { 0 } else { without_tests(text).lines().count() };
        if lines > LINES_MAX {
            findings.push(Finding::new(
                "T2",
                path,
                format!("has {lines} lines without its tests; the cap is {LINES_MAX}"),
            ));
        }
    }
    for (path, text) in tree.all() {
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
                findings.push(Finding::at("T4", path, index + 1, format!("{word}: finish it or open an issue")));
            }
            if let Some(prefix) = MACHINE_PATHS.iter().find(|prefix| names_path(line, prefix)) {
                findings.push(Finding::at("T5", path, index + 1, format!("{prefix} is a path of one machine")));
            }
        }
    }
    findings
}

/// Whether a line has an absolute path that begins so: the same letters after a name or a `.` are a folder of the project.
fn names_path(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*' | '/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(found("a/src/lib.rs", "pub mod b;\n"), ["T1"]);
        assert_eq!(found("a/src/lib.rs", "//! What it is.\npub mod b;\n"), [""; 0]);
    }

    #[test]
    fn a_file_over_the_cap_is_found_and_its_tests_do_not_count() {
        let body = "//! What it is.\n".to_owned() + &"let a = 1;\n".repeat(LINES_MAX - 1);
        assert_eq!(found("a/src/b.rs", &body), [""; 0]);
        assert_eq!(found("a/src/b.rs", &format!("{body}let a = 1;\n")), ["T2"]);
        assert_eq!(found("a/src/b.rs", &format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}\n")), [""; 0]);
        assert_eq!(found("a/tests/b.rs", &format!("{body}{body}")), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_found_in_any_kind_of_file() {
        for word in UNFINISHED {
            assert_eq!(found("ops/run.sh", &format!("# {word} later\n")), ["T4"], "{word}");
        }
        assert_eq!(found("ops/run.sh", "# METHODOLOGY, mastodon\n"), [""; 0]);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_folder_of_the_project_is_not() {
        for prefix in MACHINE_PATHS {
            assert_eq!(found("ops/run.sh", &format!("cd {prefix}holdfast\n")), ["T5"], "{prefix}");
            assert_eq!(found("ops/run.sh", &format!("cd .{prefix}holdfast\n")), [""; 0], "{prefix}");
        }
    }
}
