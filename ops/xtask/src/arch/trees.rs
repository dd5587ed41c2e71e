//! Checks rules about dependency trees.
//!
//! - Before a rule is checked, every name in it is looked for in the lock file and every crate that it is about among ours.

use std::collections::BTreeSet;

use crate::arch::rules::{Demand, TreeRule, Who};
use crate::finding::Finding;
use crate::workspace::Workspace;

/// Everything that breaks one of the rules, or makes a rule say nothing.
pub(crate) fn check(rules: &[TreeRule], workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in rules {
        findings.extend(unknown_names(rule, workspace));
        match &rule.demand {
            Demand::NeverReaches { who, forbidden } => {
                for name in members(who, workspace) {
                    findings.extend(never_reaches(rule.number, name, forbidden, workspace));
                }
            }
            Demand::OnlyDirectly { crates, by, by_tests_of } => {
                findings.extend(only_directly(rule.number, crates, by, by_tests_of, workspace));
            }
            Demand::OursReachedOnly { who, allowed } => {
                for name in members(who, workspace) {
                    findings.extend(ours_reached_only(rule.number, name, allowed, workspace));
                }
            }
        }
    }
    findings
}

fn members<'a>(who: &'a Who, workspace: &'a Workspace) -> Vec<&'a str> {
    let all = workspace.members.iter();
    match who {
        Who::Under(folder) => {
            all.filter(|(_, member)| member.folder.starts_with(folder)).map(|(name, _)| name.as_str()).collect()
        }
        Who::Crate(wanted) => all.filter(|(name, _)| name == wanted).map(|(name, _)| name.as_str()).collect(),
    }
}

/// Names that the lock file does not know, and subjects that are no crate of ours.
fn unknown_names(rule: &TreeRule, workspace: &Workspace) -> Vec<Finding> {
    let (who, names): (Option<&Who>, Vec<&str>) = match &rule.demand {
        Demand::NeverReaches { who, forbidden } => (Some(who), forbidden.to_vec()),
        Demand::OnlyDirectly { crates, by, by_tests_of } => (None, [*crates, *by, *by_tests_of].concat()),
        Demand::OursReachedOnly { who, allowed } => (Some(who), allowed.to_vec()),
    };
    let mut findings: Vec<Finding> = names
        .into_iter()
        .filter(|name| !workspace.locked.contains(*name))
        .map(|name| {
            Finding::new(
                rule.number,
                "Cargo.lock",
                format!("no crate is called {name}, so the rule about it proves nothing"),
            )
        })
        .collect();
    if who.is_some_and(|who| members(who, workspace).is_empty()) {
        findings.push(Finding::new(
            rule.number,
            "Cargo.toml",
            format!("{who:?} is no crate of ours, so the rule about it proves nothing"),
        ));
    }
    findings
}

fn never_reaches(number: &'static str, name: &str, forbidden: &[&str], workspace: &Workspace) -> Vec<Finding> {
    let reached = workspace.reached_by(name);
    forbidden
        .iter()
        .filter_map(|crate_| reached.get(*crate_).map(|path| (crate_, path)))
        .map(|(crate_, path)| Finding::new(number, name, format!("must not reach {crate_}: {}", path.join(" > "))))
        .collect()
}

fn only_directly(
    number: &'static str,
    crates: &[&str],
    by: &[&str],
    by_tests_of: &[&str],
    workspace: &Workspace,
) -> Vec<Finding> {
    let nothing = BTreeSet::new();
    let mut findings = Vec::new();
    for (name, member) in &workspace.members {
        let direct = workspace.edges.get(name).unwrap_or(&nothing);
        for crate_ in crates {
            if direct.contains(*crate_) && !by.contains(&name.as_str()) {
                findings.push(Finding::new(
                    number,
                    name,
                    format!("must not depend on {crate_}; only {} may", by.join(", ")),
                ));
            }
            let may_test = by.contains(&name.as_str()) || by_tests_of.contains(&name.as_str());
            if member.dev.contains(*crate_) && !may_test {
                findings.push(Finding::new(number, name, format!("must not depend on {crate_} in its tests")));
            }
        }
    }
    findings
}

fn ours_reached_only(number: &'static str, name: &str, allowed: &[&str], workspace: &Workspace) -> Vec<Finding> {
    workspace
        .reached_by(name)
        .into_iter()
        .filter(|(reached, _)| workspace.members.contains_key(reached) && !allowed.contains(&reached.as_str()))
        .map(|(reached, path)| Finding::new(number, name, format!("must not reach {reached}: {}", path.join(" > "))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA_HAS_NO_RUNTIME: TreeRule =
        TreeRule { number: "A1", demand: Demand::NeverReaches { who: Who::Under("schema/"), forbidden: &["tokio"] } };

    fn texts(rule: TreeRule, workspace: &Workspace) -> Vec<String> {
        check(&[rule], workspace).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_forbidden_crate_is_found_through_others_and_the_way_is_told() {
        let workspace = Workspace::of(&[("wire", "schema/wire")], &[("wire", "codec"), ("codec", "tokio")]);
        assert_eq!(texts(SCHEMA_HAS_NO_RUNTIME, &workspace), ["A1 wire: must not reach tokio: wire > codec > tokio"]);
    }

    #[test]
    fn a_crate_outside_the_folder_may_reach_it() {
        let workspace =
            Workspace::of(&[("wire", "schema/wire"), ("bus", "services/bus")], &[("bus", "tokio"), ("wire", "serde")]);
        assert_eq!(texts(SCHEMA_HAS_NO_RUNTIME, &workspace), [""; 0]);
    }

    #[test]
    fn a_misspelt_name_fails() {
        let workspace = Workspace::of(&[("wire", "schema/wire")], &[("wire", "serde")]);
        let found = texts(SCHEMA_HAS_NO_RUNTIME, &workspace);
        assert_eq!(found, ["A1 Cargo.lock: no crate is called tokio, so the rule about it proves nothing"]);
    }

    #[test]
    fn a_rule_about_no_crate_of_ours_fails() {
        let workspace = Workspace::of(&[("bus", "services/bus")], &[("bus", "tokio")]);
        assert!(texts(SCHEMA_HAS_NO_RUNTIME, &workspace)[0].contains("is no crate of ours"));
    }

    #[test]
    fn a_second_crate_that_speaks_sql_is_found_in_code_and_in_tests() {
        let rule = || TreeRule {
            number: "A2",
            demand: Demand::OnlyDirectly { crates: &["sqlx"], by: &["store"], by_tests_of: &["suite"] },
        };
        let mut workspace = Workspace::of(
            &[("store", "services/store"), ("gateway", "services/gateway"), ("suite", "tests/suite")],
            &[("store", "sqlx"), ("gateway", "store")],
        );
        workspace.members.get_mut("suite").unwrap().dev.insert("sqlx".to_owned());
        assert_eq!(texts(rule(), &workspace), [""; 0]);

        workspace.members.get_mut("gateway").unwrap().dev.insert("sqlx".to_owned());
        assert_eq!(texts(rule(), &workspace), ["A2 gateway: must not depend on sqlx in its tests"]);

        workspace.edges.entry("suite".to_owned()).or_default().insert("sqlx".to_owned());
        assert!(texts(rule(), &workspace).contains(&"A2 suite: must not depend on sqlx; only store may".to_owned()));
    }

    #[test]
    fn a_judge_that_shares_code_with_the_judged_is_found() {
        let rule = TreeRule {
            number: "A11",
            demand: Demand::OursReachedOnly { who: Who::Crate("interpreter"), allowed: &[] },
        };
        let workspace = Workspace::of(
            &[("interpreter", "schema/interpreter"), ("model", "schema/model")],
            &[("interpreter", "model"), ("interpreter", "thiserror")],
        );
        assert_eq!(texts(rule, &workspace), ["A11 interpreter: must not reach model: interpreter > model"]);
    }
}
