//! The arrows between the rooms of the house, as a command that fails.
//!
//! - The rules are data ([`rules`]); each carries the number that it has in `ARCHITECTURE.md`.
//! - A rule that names a crate which does not exist fails: a misspelt name would pass for ever.

mod rules;
mod texts;
mod trees;

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Everything that breaks a rule of the architecture.
pub(crate) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = trees::check(rules::TREES, workspace);
    findings.extend(texts::check(rules::TEXTS, tree));
    findings.extend(undocumented(tree));
    findings
}

/// The numbers of rules that `ARCHITECTURE.md` does not explain.
fn undocumented(tree: &Tree) -> Vec<Finding> {
    let text = tree.text("ARCHITECTURE.md").unwrap_or_default();
    let mut numbers: Vec<&'static str> =
        rules::TREES.iter().map(|rule| rule.number).chain(rules::TEXTS.iter().map(|rule| rule.number)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
        .into_iter()
        .filter(|number| !text.lines().any(|line| line.starts_with(&format!("| {number} |"))))
        .map(|number| Finding::new(number, "ARCHITECTURE.md", format!("has no line for invariant {number}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_without_a_line_in_the_architecture_is_found() {
        let all = "| A1 | a\n| A2 | b\n| A3 | c\n| A11 | d\n| A12 | e\n| A13 | f\n| A16 | g\n";
        assert_eq!(undocumented(&Tree::of(&[("ARCHITECTURE.md", all)])), []);
        let missing = undocumented(&Tree::of(&[("ARCHITECTURE.md", &all.replace("| A12 |", "| B12 |"))]));
        assert_eq!(missing.iter().map(|finding| finding.rule).collect::<Vec<_>>(), ["A12"]);
    }
}
