//! T12 the page of metrics, the code that counts them and the alerts that read them name the same ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::tree::Tree;

const PAGE: &str = "docs/metrics.md";
const ALERTS: [&str; 2] = ["ops/alerts/holdfast.yml", "ops/alerts/holdfast.test.yml"];
/// What stands before the name of a metric where the code counts it. The gauges of the fleet and the plane are keys of a map.
const COUNTED: [&str; 5] = ["counter!(", "gauge!(", "gauge(", "histogram!(", "Part::new("];
const KEYED: [&str; 2] = ["\"holdfast_fleet_", "\"holdfast_plane_"];
/// What an exporter appends to the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Every metric that one of them has and another has not.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else { return Vec::new() };
    let rows = page.lines().enumerate().filter_map(|(index, line)| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        name.starts_with("holdfast_").then_some((index, name))
    });
    let told: BTreeSet<&str> = rows.clone().map(|(_, name)| name).collect();
    let counted: BTreeSet<(&str, &str)> =
        sources(tree).flat_map(|(path, text)| names_in_code(text).into_iter().map(move |name| (name, path))).collect();
    let names: BTreeSet<&str> = counted.iter().map(|(name, _)| *name).collect();
    let mut findings: Vec<Finding> = rows
        .filter(|(_, name)| !names.contains(name))
        .map(|(index, name)| Finding::at("T12", PAGE, index + 1, format!("lists {name}, which nothing counts")))
        .collect();
    let untold = counted.iter().filter(|(name, _)| !told.contains(name));
    findings.extend(
        untold.map(|(name, path)| Finding::new("T12", *path, format!("counts {name}, which {PAGE} does not list"))),
    );
    for path in ALERTS {
        let lines = tree.text(path).unwrap_or_default().lines().enumerate();
        let asked =
            lines.flat_map(|(index, line)| names_in_expression(line).into_iter().map(move |name| (name, index)));
        // Each is said once.
        let unknown: BTreeMap<&str, usize> = asked.filter(|(name, _)| !told.contains(base(name))).collect();
        findings.extend(unknown.into_iter().map(|(name, index)| {
            Finding::at("T12", path, index + 1, format!("asks for {name}, which {PAGE} does not list"))
        }));
    }
    findings
}

/// Sources of the processes that are scraped, without their tests.
fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let is_shipped =
        |path: &str| (path.starts_with("services/") || path.starts_with("agent/")) && !path.contains("/tests");
    tree.with_extension("rs")
        .filter(move |(path, _)| is_shipped(path))
        .map(|(path, text)| (path, text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)))
}

fn names_in_code(text: &str) -> BTreeSet<&str> {
    let named = |rest: &str, start: usize| {
        let quoted = rest.trim_start().strip_prefix('"')?;
        let from = start + (rest.len() - rest.trim_start().len()) + 1;
        let name = text.get(from..from + quoted.find('"')?)?;
        name.starts_with("holdfast_").then_some(name)
    };
    let after = |before: &str| {
        let found: Vec<&str> = text
            .match_indices(before)
            .filter_map(|(at, _)| named(text.get(at + before.len()..)?, at + before.len()))
            .collect();
        found
    };
    let keyed = |before: &str| {
        let found: Vec<&str> = text.match_indices(before).filter_map(|(at, _)| named(text.get(at..)?, at)).collect();
        found
    };
    COUNTED.into_iter().flat_map(after).chain(KEYED.into_iter().flat_map(keyed)).collect()
}

/// The metrics of a line of PromQL.
fn names_in_expression(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    if line.starts_with('#') || !(line.starts_with("expr:") || line.contains("series:")) {
        return Vec::new();
    }
    line.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| word.starts_with("holdfast_"))
        .collect()
}

/// The name that a metric has in the code.
fn base(name: &str) -> &str {
    SUFFIXES.into_iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "metrics::counter!(\"holdfast_a_total\", \"of\" => x);\n    metrics::histogram!(\n        \"holdfast_b_seconds\"\n    );\nlet key = (\"holdfast_fleet_c\", vec![]);\n#[cfg(test)]\nmod tests { gauge!(\"holdfast_of_a_test\") }";
    const TOLD: &str = "| `holdfast_a_total` | | x |\n| `holdfast_b_seconds` | | y |\n| `holdfast_fleet_c` | | z |\n";

    fn texts(page: &str, code: &str, alerts: &str) -> Vec<String> {
        let tree = Tree::of(&[(PAGE, page), ("services/gateway/src/a.rs", code), (ALERTS[0], alerts)]);
        check(&tree).iter().map(|finding| finding.text.clone()).collect()
    }

    #[test]
    fn a_metric_that_the_page_the_code_or_an_alert_alone_has_is_found() {
        let alerts = "        expr: rate(holdfast_b_seconds_bucket{x=\"1\"}[5m]) > holdfast_a_total\n";
        assert_eq!(texts(TOLD, CODE, alerts), [""; 0]);
        let more = format!("{TOLD}| `holdfast_d` | | w |\n");
        assert_eq!(texts(&more, CODE, ""), ["lists holdfast_d, which nothing counts"]);
        let less = TOLD.replace("| `holdfast_fleet_c` | | z |\n", "");
        assert_eq!(texts(&less, CODE, ""), ["counts holdfast_fleet_c, which docs/metrics.md does not list"]);
        let other = texts(TOLD, CODE, "expr: holdfast_e > 0");
        assert_eq!(other, ["asks for holdfast_e, which docs/metrics.md does not list"]);
    }
}
