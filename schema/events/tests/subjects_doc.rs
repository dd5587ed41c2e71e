//! `docs/subjects.md` names every kind of event, every hint and every directive, and no other.

use std::collections::BTreeSet;

use holdfast_events::{DirectiveKind, Hint, Kind};

#[test]
fn the_page_lists_every_kind_every_hint_and_every_directive() {
    let page = include_str!("../../../docs/subjects.md");
    let first = |line: &'static str| line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
    let section = |from: &str, to: &str| {
        let start = page.find(from).expect("the section");
        let end = page[start..].find(to).map_or(page.len(), |end| start + end);
        page[start..end].lines().filter_map(first).collect::<BTreeSet<_>>()
    };
    assert_eq!(section("| kind |", "The bytes are"), Kind::ALL.iter().map(|kind| kind.word()).collect());
    assert_eq!(section("## Hints", "## Directives"), Hint::SUBJECTS.into());
    assert_eq!(section("## Directives", "## Who may"), DirectiveKind::ALL.map(DirectiveKind::subject).into());
}
