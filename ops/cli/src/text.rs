//! Policies in words: what a table cannot hold.

use std::fmt::Write as _;

use holdfast_api::policy::{PolicyChanges, Ranges, RuleView};
use holdfast_api::status::ComponentView;
use holdfast_model::policy::Action;

use crate::output::or_dash;
use crate::words;

/// How many names of one set a line shows.
const NAMES_SHOWN: usize = 8;
/// How many ranges of one set a line shows.
const RANGES_SHOWN: usize = 6;

/// What changes, one line each: `+` comes, `-` goes, `~` becomes another.
pub(crate) fn changes(changes: &PolicyChanges, wide: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(mode) = changes.mode {
        lines.push(format!("~ mode {} -> {}", mode.from, mode.to));
    }
    for isolation in &changes.isolation {
        let now = if isolation.isolated { "denied" } else { "open" };
        lines.push(format!("~ {}: what no rule allows is {now}", isolation.direction));
    }
    lines.extend(changes.rules_removed.iter().map(|rule| format!("- {}", self::rule(rule, wide))));
    lines.extend(changes.rules_added.iter().map(|rule| format!("+ {}", self::rule(rule, wide))));
    for peers in &changes.peers {
        for name in &peers.rules {
            let mut line = format!("~ {name}: peers");
            if peers.added.count > 0 {
                // Writing into a string does not fail.
                let _written = write!(line, " +{}", ranges(&peers.added, wide));
            }
            if peers.removed.count > 0 {
                let _written = write!(line, " -{}", ranges(&peers.removed, wide));
            }
            lines.push(line);
        }
    }
    lines
}

/// One rule, as `ingress allow tcp 443 with booking/web-1`.
pub(crate) fn rule(rule: &RuleView, wide: bool) -> String {
    let action = match rule.action {
        Action::Allow => "allow",
        Action::Deny => "deny",
    };
    let mut text = format!("{} {action} {}", rule.direction, rule.service);
    let _written = match &rule.peers {
        None => write!(text, " with anybody"),
        Some(peers) => write!(text, " with {}", ranges(peers, wide)),
    };
    if let Some(local) = &rule.local {
        let _written = write!(text, " at {}", ranges(local, true));
    }
    if rule.order != holdfast_model::intent::DEFAULT_ORDER {
        let _written = write!(text, " (order {})", rule.order);
    }
    if rule.log {
        text.push_str(" (logged)");
    }
    text
}

/// The other end: names where they are known, and addresses for the rest, or for all of it.
fn ranges(ranges: &Ranges, wide: bool) -> String {
    if ranges.count == 0 {
        return "nobody".to_owned();
    }
    if ranges.names.is_empty() {
        return listed(&ranges.ranges, ranges.count);
    }
    let names = words::some_of(&ranges.names, NAMES_SHOWN);
    if wide {
        return format!("{names} ({})", listed(&ranges.ranges, ranges.count));
    }
    // What is not listed is named by nobody.
    let unlisted = ranges.count.saturating_sub(ranges.ranges.len() as u64);
    let others = unlisted + ranges.unnamed.len() as u64;
    if others == 0 { names } else { format!("{names}, {}", listed(&ranges.unnamed, others)) }
}

fn listed(ranges: &[String], count: u64) -> String {
    let shown: Vec<&str> = ranges.iter().take(RANGES_SHOWN).map(String::as_str).collect();
    let more = count.saturating_sub(shown.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(","))
}

/// The versions of a component, as `4/5` while the host is behind.
pub(crate) fn versions(component: &ComponentView) -> String {
    let version = |stamp: &Option<holdfast_api::status::StampView>| or_dash(stamp.as_ref().map(|stamp| stamp.version));
    format!("{}/{}", version(&component.applied), version(&component.latest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::policy::{ModeChange, PeersChange};
    use holdfast_model::policy::{Direction, Mode};

    #[test]
    fn changes_are_one_line_each() {
        let some = |count, first: &str| Ranges { count, ranges: vec![first.to_owned()], ..Ranges::default() };
        let rule = |service: &str| RuleView {
            key: String::new(),
            direction: Direction::Ingress,
            order: 1000,
            action: Action::Allow,
            service: service.to_owned(),
            peers: Some(some(1, "192.0.2.1")),
            local: None,
            log: false,
        };
        let wanted = PolicyChanges {
            mode: Some(ModeChange { from: Mode::Visibility, to: Mode::Enforced }),
            rules_added: vec![rule("tcp 443")],
            rules_removed: vec![RuleView { peers: None, order: 5, ..rule("udp 53") }],
            peers: vec![PeersChange {
                rules: vec!["ingress allow tcp 22".to_owned()],
                added: some(9, "192.0.2.7"),
                removed: Ranges::default(),
            }],
            ..PolicyChanges::default()
        };
        assert_eq!(
            changes(&wanted, false),
            [
                "~ mode visibility -> enforced",
                "- ingress allow udp 53 with anybody (order 5)",
                "+ ingress allow tcp 443 with 192.0.2.1",
                "~ ingress allow tcp 22: peers +192.0.2.7 and 8 more",
            ]
        );
    }

    #[test]
    fn peers_are_names_where_they_are_known_and_addresses_when_asked_for() {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let named = Ranges {
            count: 3,
            ranges: texts(&["10.0.0.1-10.0.0.2", "192.0.2.0-192.0.2.255", "fd00::1"]),
            names: texts(&["a/x", "a/y"]),
            unnamed: texts(&["192.0.2.0-192.0.2.255"]),
        };
        assert_eq!(ranges(&named, false), "a/x, a/y, 192.0.2.0-192.0.2.255");
        assert_eq!(ranges(&named, true), "a/x, a/y (10.0.0.1-10.0.0.2,192.0.2.0-192.0.2.255,fd00::1)");
        assert_eq!(ranges(&Ranges { count: 9, ..named.clone() }, false), "a/x, a/y, 192.0.2.0-192.0.2.255 and 6 more");
        assert_eq!(ranges(&Ranges::default(), false), "nobody");
    }
}
