//! Policies and hosts in words: what a table cannot hold.

use std::fmt::Write as _;

use holdfast_api::policy::{PolicyChanges, Ranges, RuleView};
use holdfast_api::status::{ComponentView, HostView};
use holdfast_model::policy::Action;

use crate::output::{labels, or_dash};

/// How many ranges of one set a line shows.
const RANGES_SHOWN: usize = 6;

/// What changes, one line each: `+` comes, `-` goes, `~` becomes another.
pub(crate) fn changes(changes: &PolicyChanges) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(mode) = changes.mode {
        lines.push(format!("~ mode {} -> {}", mode.from, mode.to));
    }
    for isolation in &changes.isolation {
        let now = if isolation.isolated { "denied" } else { "open" };
        lines.push(format!("~ {}: what no rule allows is {now}", isolation.direction));
    }
    lines.extend(changes.rules_removed.iter().map(|rule| format!("- {}", self::rule(rule))));
    lines.extend(changes.rules_added.iter().map(|rule| format!("+ {}", self::rule(rule))));
    for peers in &changes.peers {
        for name in &peers.rules {
            let mut line = format!("~ {name}: peers");
            if peers.added.count > 0 {
                // Writing into a string does not fail.
                let _written = write!(line, " +{}", ranges(&peers.added));
            }
            if peers.removed.count > 0 {
                let _written = write!(line, " -{}", ranges(&peers.removed));
            }
            lines.push(line);
        }
    }
    lines
}

fn rule(rule: &RuleView) -> String {
    let action = match rule.action {
        Action::Allow => "allow",
        Action::Deny => "deny",
    };
    let mut text = format!("{} {action} {}", rule.direction, rule.service);
    let _written = match &rule.peers {
        None => write!(text, " with anybody"),
        Some(peers) => write!(text, " with {}", ranges(peers)),
    };
    if let Some(local) = &rule.local {
        let _written = write!(text, " at {}", ranges(local));
    }
    if rule.order != holdfast_model::intent::DEFAULT_ORDER {
        let _written = write!(text, " (order {})", rule.order);
    }
    if rule.log {
        text.push_str(" (logged)");
    }
    text
}

fn ranges(ranges: &Ranges) -> String {
    if ranges.count == 0 {
        return "nobody".to_owned();
    }
    let shown: Vec<&str> = ranges.ranges.iter().take(RANGES_SHOWN).map(String::as_str).collect();
    let more = ranges.count.saturating_sub(shown.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(","))
}

/// The versions of a component, as `4/5` while the host is behind.
pub(crate) fn versions(component: &ComponentView) -> String {
    let version = |stamp: &Option<holdfast_api::status::StampView>| or_dash(stamp.as_ref().map(|stamp| stamp.version));
    format!("{}/{}", version(&component.applied), version(&component.latest))
}

/// Everything that is known of a host.
pub(crate) fn host(host: &HostView) -> String {
    let mut lines = vec![
        format!("Name:       {}/{}", host.namespace, host.name),
        format!("Id:         {}", host.id),
        format!("State:      {} ({})", host.state, host.sync.word()),
        format!("Mode:       {}", host.mode),
        format!("Labels:     {}", labels(&host.labels)),
        format!("Addresses:  {}", if host.addresses.is_empty() { "-".to_owned() } else { host.addresses.join(", ") }),
    ];
    let ports: Vec<String> =
        host.ports.iter().map(|port| format!("{}={}/{}", port.name, port.port, port.protocol)).collect();
    lines.push(format!("Ports:      {}", if ports.is_empty() { "-".to_owned() } else { ports.join(", ") }));
    lines.push(format!("Enrolled:   {}", host.enrolled_at));
    lines.push(format!("Last seen:  {}", or_dash(host.last_seen_at.as_ref())));
    match &host.session {
        None => lines.push("Session:    none yet".to_owned()),
        Some(session) => {
            let open = match session.heard_ms_ago {
                Some(ms) => format!("open, heard {ms} ms ago"),
                None => "not open".to_owned(),
            };
            let (epoch, gateway, opened) = (session.session_epoch, &session.gateway, &session.opened_at);
            lines.push(format!("Session:    {epoch} at {gateway} since {opened}, {open}"));
            lines.push(format!("Agent:      {}", session.agent_version));
        }
    }
    for component in &host.components {
        lines.push(String::new());
        lines.extend(component_lines(component));
    }
    lines.join("\n")
}

fn component_lines(component: &ComponentView) -> Vec<String> {
    let mut lines =
        vec![format!("{}: {}, applied/latest version {}", component.component, component.state, versions(component))];
    if let Some(latest) = &component.latest {
        lines.push(format!("  latest:    {} of revision {}", latest.digest, or_dash(component.latest_revision)));
    }
    if let Some(outcome) = &component.outcome {
        let forged = if outcome.signature_valid { "" } else { "; ITS SIGNATURE IS NOT THE HOST'S" };
        let (kind, version, reason, at) = (&outcome.kind, outcome.wanted.version, &outcome.reason, &outcome.at);
        lines.push(format!("  last said: {kind} version {version} ({reason}) at {at}{forged}"));
        if !outcome.detail.is_empty() {
            lines.push(format!("             {}", outcome.detail));
        }
    }
    for condition in &component.conditions {
        let (kind, status, reason) = (&condition.kind, &condition.status, &condition.reason);
        let message = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        lines.push(format!("  {kind:<17} {status:<8} {reason}{message}"));
    }
    lines.push(format!("  snapshot:  last sent at {}", or_dash(component.last_snapshot_sent_at.as_ref())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::policy::{ModeChange, PeersChange};
    use holdfast_model::policy::{Direction, Mode};

    #[test]
    fn changes_are_one_line_each() {
        let some = |count, first: &str| Ranges { count, ranges: vec![first.to_owned()] };
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
            changes(&wanted),
            [
                "~ mode visibility -> enforced",
                "- ingress allow udp 53 with anybody (order 5)",
                "+ ingress allow tcp 443 with 192.0.2.1",
                "~ ingress allow tcp 22: peers +192.0.2.7 and 8 more",
            ]
        );
    }
}
