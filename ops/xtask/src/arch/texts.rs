//! Checks rules about words in Rust code.
//!
//! - Comments and strings do not count; tests count only where the rule says so.
//! - A place that a rule excepts and that does not exist yet is no fault: the room may not be built.

use crate::arch::rules::{Tests, TextRule};
use crate::finding::Finding;
use crate::rust_text::{code_only, is_test_file, lines_with, without_tests};
use crate::tree::Tree;

/// Every line that breaks one of the rules.
pub(crate) fn check(rules: &[TextRule], tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let code = code_only(text);
        for rule in rules {
            if !path.starts_with(rule.within) || rule.except.iter().any(|place| path.starts_with(place)) {
                continue;
            }
            let held = match rule.tests {
                Tests::Held => code.as_str(),
                Tests::Free if is_test_file(path) => continue,
                Tests::Free => without_tests(&code),
            };
            for word in rule.words {
                findings.extend(
                    lines_with(held, word)
                        .map(|line| Finding::at(rule.number, path, line, format!("names {word}: {}", rule.instead))),
                );
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::rules::TEXTS;

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        check(TEXTS, &Tree::of(&[(path, text)])).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn sql_outside_the_store_is_found_and_words_about_it_are_not() {
        assert_eq!(found("services/gateway/src/a.rs", "use sqlx::Row;\n"), ["A2"]);
        assert_eq!(found("services/gateway/src/a.rs", "// sqlx::Row\nlet a = \"sqlx::Row\";\n"), [""; 0]);
        assert_eq!(found("services/store/src/a.rs", "use sqlx::Row;\n"), [""; 0]);
    }

    #[test]
    fn nats_outside_the_bus_is_found() {
        assert_eq!(found("services/renderer/src/a.rs", "let c: async_nats::Client;\n"), ["A2"]);
        assert_eq!(found("services/bus/src/a.rs", "let c: async_nats::Client;\n"), [""; 0]);
    }

    #[test]
    fn netlink_and_unsafe_code_outside_the_nft_module_are_found() {
        assert_eq!(found("agent/src/ledger/mod.rs", "use nftnl::Table;\nunsafe { f() }\n"), ["A2", "A13"]);
        assert_eq!(found("agent/src/nft/batch.rs", "use nftnl::Table;\nunsafe { f() }\n"), [""; 0]);
    }

    #[test]
    fn a_clock_or_a_file_in_the_schema_is_found_and_its_tests_are_free() {
        assert_eq!(found("schema/session/src/a.rs", "let t = Instant::now();\nuse std::fs;\n"), ["A1", "A1"]);
        assert_eq!(found("schema/session/src/a.rs", "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n"), [""; 0]);
        assert_eq!(found("schema/session/tests/a.rs", "use std::fs;\n"), [""; 0]);
        assert_eq!(found("services/runtime/src/a.rs", "let t = Instant::now();\n"), [""; 0]);
    }
}
