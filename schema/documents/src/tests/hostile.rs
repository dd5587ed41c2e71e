//! Inputs that nobody wrote on purpose: whatever comes in, an answer comes out.

use proptest::prelude::*;

use super::{objects, source};
use crate::{RuleName, read};

const DOCUMENT: &str = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p, namespace: edge}\nspec:\n  hostSelector: {matchLabels: {role: web}}\n  isolate: [ingress]\n  order: 10\n  ingress:\n  - action: deny\n    from: [{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}, {addressGroup: g}]\n    services: [{tcp: [80, 8000-8100, http]}, {icmp: {v4: [{type: 3, code: 4}]}}, {protocol: 47}]\n    log: true\n";

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}") {
        let _ = read(&[source(&text)]);
    }

    #[test]
    fn a_document_with_a_hole_or_a_stray_character_is_answered(at in 0..DOCUMENT.len(), length in 0_usize..12, stray in "[\\PC\n\t]{0,3}") {
        let end = (at + length).min(DOCUMENT.len());
        let text = format!("{}{stray}{}", &DOCUMENT[..at], &DOCUMENT[end..]);
        if let Err(faults) = read(&[source(&text)]) {
            prop_assert!(!faults.list().is_empty());
            prop_assert!(faults.list().iter().all(|fault| !fault.message.is_empty() && !fault.message.contains('\n')));
        }
    }

    #[test]
    fn a_port_is_taken_exactly_from_1_to_65535(port in -10_i64..70_000) {
        let text = DOCUMENT.replacen("[80,", &format!("[{port},"), 1);
        let outcome = read(&[source(&text)]);
        if (1..=65_535).contains(&port) {
            prop_assert!(outcome.is_ok());
        } else {
            prop_assert_eq!(outcome.expect_err("no port").list()[0].rule, RuleName::Port);
        }
    }
}

#[test]
fn json_may_be_indented_by_tabs() {
    let text = "{\n\t\"apiVersion\": \"holdfast.dev/v1\",\n\t\"kind\": \"Host\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\n\t\t\"mode\": \"enforced\"\n\t}\n}\n";
    assert_eq!(objects(text).len(), 1);
}

#[test]
fn a_group_of_fifty_thousand_entries_may_be_a_list() {
    let entries: String = (0..50_000).map(|n| format!("  - 10.{}.{}.0/24\n", n >> 8, n & 255)).collect();
    let text =
        format!("apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {{name: g}}\nspec:\n  cidrs:\n{entries}");
    assert_eq!(objects(&text).len(), 1);
}

#[test]
fn a_quoted_text_cannot_break_a_message_into_lines() {
    let text = DOCUMENT.replacen("deny", "\"de\\nny\\u001b[31m\"", 1);
    let faults = read(&[source(&text)]).expect_err("no action");
    assert!(faults.list()[0].message.contains("`de\\nny\\u{1b}[31m`"), "{:?}", faults.list());
}
