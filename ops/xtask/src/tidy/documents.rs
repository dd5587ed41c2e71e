//! T6 links of Markdown files, T7 the changelog, T8 a page for every error code, T11 tests that documents name.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::Tree;

const ERROR_PAGES: &str = "docs/errors/";
const FAILURE_MODES: &str = "docs/failure-modes.md";

/// Every breach by or about a document.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        tree.with_extension("md").flat_map(|(path, text)| broken_links(path, text, tree)).collect();
    match tree.text("CHANGELOG.md") {
        Some(text) if text.lines().any(|line| line == "## Unreleased") => {}
        Some(_) => findings.push(Finding::new("T7", "CHANGELOG.md", "has no heading `## Unreleased`")),
        None => findings.push(Finding::new("T7", "CHANGELOG.md", "is missing")),
    }
    findings.extend(error_pages(tree));
    findings.extend(named_tests(tree));
    findings
}

/// Rows of the failure modes whose test is not there, or that name none.
fn named_tests(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FAILURE_MODES) else { return Vec::new() };
    let functions: BTreeSet<&str> = tree
        .with_extension("rs")
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next())
        .collect();
    let mut findings = Vec::new();
    for (index, line) in prose_lines(text) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [_, _, tests] = cells.as_slice() else { continue };
        if *tests == "test" || tests.starts_with("---") {
            continue;
        }
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(Finding::at("T11", FAILURE_MODES, index + 1, "promises what no test shows"));
        }
        let missing = names.into_iter().filter(|name| !functions.contains(name));
        findings.extend(missing.map(|name| {
            Finding::at("T11", FAILURE_MODES, index + 1, format!("names the test {name}, which does not exist"))
        }));
    }
    findings
}

/// Links of one file whose file or heading does not exist.
fn broken_links(path: &str, text: &str, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in prose_lines(text) {
        for target in link_targets(line) {
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let file = if file.is_empty() { path.to_owned() } else { join(path, file) };
            if !tree.exists(&file) {
                findings.push(Finding::at("T6", path, index + 1, format!("links to {file}, which does not exist")));
            } else if let (Some(heading), Some(text)) = (heading, tree.text(&file))
                && file.ends_with(".md")
                && !headings(text).contains(heading)
            {
                findings.push(Finding::at(
                    "T6",
                    path,
                    index + 1,
                    format!("links to a heading #{heading} that {file} does not have"),
                ));
            }
        }
    }
    findings
}

/// Lines outside fenced code, by index.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[text](target)` in a line, outside inline code.
fn link_targets(line: &str) -> Vec<&str> {
    let prose: Vec<&str> = line.split('`').step_by(2).collect();
    let mut targets = Vec::new();
    for part in prose {
        targets.extend(part.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target));
    }
    // A link whose text is inline code: the text before it has been split away.
    if line.contains("`](") {
        targets.extend(line.split("`](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target));
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The path that a link in `from` means.
fn join(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors of a Markdown file's headings.
fn headings(text: &str) -> BTreeSet<String> {
    prose_lines(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// Codes without a page, and pages without a code.
fn error_pages(tree: &Tree) -> Vec<Finding> {
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        for (index, line) in text.lines().enumerate() {
            for code in error_codes(line) {
                if used.insert(code.clone()) && !tree.exists(&format!("{ERROR_PAGES}{code}.md")) {
                    findings.push(Finding::at(
                        "T8",
                        path,
                        index + 1,
                        format!("names {code}, which has no page {ERROR_PAGES}{code}.md"),
                    ));
                }
            }
        }
    }
    for (path, _) in tree.with_extension("md") {
        let code = path.strip_prefix(ERROR_PAGES).and_then(|name| name.strip_suffix(".md"));
        if let Some(code) = code
            && error_codes(code).first().is_some_and(|found| found == code)
            && !used.contains(code)
        {
            findings.push(Finding::new("T8", path, format!("explains {code}, which no code names")));
        }
    }
    findings
}

/// The error codes in a line: `HF` and exactly four digits.
fn error_codes(line: &str) -> Vec<String> {
    line.match_indices("HF")
        .filter_map(|(at, _)| {
            let before = line.get(..at)?.chars().next_back();
            let digits: String = line.get(at + 2..)?.chars().take_while(char::is_ascii_digit).collect();
            let alone = !before.is_some_and(|c| c.is_alphanumeric());
            (alone && digits.len() == 4).then(|| format!("HF{digits}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: (&str, &str) = ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n");

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().copied().chain([CHANGELOG]).collect();
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_link_to_a_file_or_heading_that_is_not_there_is_found() {
        let good = (
            "docs/b.md",
            "# The way\n[up](../README.md) [`a`](../README.md#what-it-is) [here](#the-way) [out](https://example.org/x)\n",
        );
        assert_eq!(found(&[("README.md", "## What it is\n[b](docs/b.md) [d](docs/)\n"), good]), [""; 0]);

        let bad = found(&[("README.md", "[a](docs/c.md)\n[`b`](docs/b.md#nowhere)\n"), ("docs/b.md", "# The way\n")]);
        assert_eq!(
            bad,
            [
                "T6 README.md:1: links to docs/c.md, which does not exist",
                "T6 README.md:2: links to a heading #nowhere that docs/b.md does not have"
            ]
        );
    }

    #[test]
    fn a_link_in_code_is_no_link() {
        assert_eq!(found(&[("README.md", "`[a](b.md)`\n```\n[a](b.md)\n```\n")]), [""; 0]);
    }

    #[test]
    fn a_promise_without_its_test_is_found() {
        let rows = "| what happens | what it does | test |\n|---|---|---|\n| a | b | `there`, `gone` |\n| c | d | |\n";
        let files = [(FAILURE_MODES, rows), ("a.rs", "async fn there() {}\n"), ("CHANGELOG.md", "## Unreleased\n")];
        assert_eq!(
            found(&files),
            [
                "T11 docs/failure-modes.md:3: names the test gone, which does not exist",
                "T11 docs/failure-modes.md:4: promises what no test shows"
            ]
        );
    }

    #[test]
    fn a_missing_changelog_is_found() {
        assert_eq!(check(&Tree::of(&[("a.md", "")])).first().map(|finding| finding.rule), Some("T7"));
        assert_eq!(
            check(&Tree::of(&[("CHANGELOG.md", "# Changelog\n")])).first().map(|finding| finding.rule),
            Some("T7")
        );
    }

    #[test]
    fn an_error_code_without_a_page_and_a_page_without_a_code_are_found() {
        let code = format!("HF{}", 1001);
        let source = format!("//! A.\nconst CODE: &str = \"{code}\";\n");
        let page = format!("docs/errors/{code}.md");
        assert_eq!(found(&[("a.rs", &source), (&page, "")]), [""; 0]);
        assert_eq!(
            found(&[("a.rs", &source)]),
            [format!("T8 a.rs:2: names {code}, which has no page docs/errors/{code}.md")]
        );
        assert_eq!(found(&[(&page, "")]), [format!("T8 {page}: explains {code}, which no code names")]);
    }
}
