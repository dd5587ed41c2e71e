//! One host in words: what governs it first, then what it has proven, then who it is.

use holdfast_api::authority::WaitsFor;
use holdfast_api::policy::{HostPolicyView, RuleView};
use holdfast_api::status::{ComponentView, DriftView, HostView, ReportView};
use holdfast_model::policy::{Direction, Mode};
use time::OffsetDateTime;

use crate::output::{labels, or_dash};
use crate::text::{rule, versions};
use crate::words::{ago, last_seen, short_time, since};

/// How many rules of one direction are shown before it is said how many more there are.
const RULES_SHOWN: usize = 20;

/// Everything that is known of a host; digests, addresses of peers and empty components with `wide`.
pub(crate) fn host_text(host: &HostView, policy: &HostPolicyView, wide: bool, now: OffsetDateTime) -> String {
    let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    let ports: Vec<String> =
        host.ports.iter().map(|port| format!("{}={}/{}", port.name, port.port, port.protocol)).collect();
    let governed = if policy.policies.is_empty() { "no policy".to_owned() } else { policy.policies.join(", ") };
    let mut lines = vec![
        format!("Name:         {}/{}", host.namespace, host.name),
        format!("State:        {} ({})", host.state, host.sync.word()),
        format!("Mode:         {}", host.mode),
        format!("Policy:       {}", proven(host)),
        format!("Governed by:  {governed}"),
    ];
    if policy.is_too_large() {
        let (bytes, bytes_max) = (policy.body_bytes, policy.body_bytes_max);
        lines.insert(
            4,
            format!("              TOO LARGE: {bytes} bytes, and {bytes_max} may travel; the host keeps what it has until there is less"),
        );
    }
    lines.extend(
        host.unreadable
            .as_ref()
            .map(|column| format!("UNREADABLE:   {column} in the database holds what this gateway cannot read")),
    );
    lines.extend(host.components.iter().filter_map(held_back));
    lines.extend(
        host.held
            .as_ref()
            .map(|held| format!("Held:         at revision {} by {} ({})", held.revision, held.rollout, held.state)),
    );
    lines.extend(host.drift.as_ref().map(|drift| drift_line(drift, now)));
    lines.extend(direction(policy, Direction::Ingress, policy.ingress_isolated, wide));
    lines.extend(direction(policy, Direction::Egress, policy.egress_isolated, wide));
    // Its agent is set to it on the host, and does not tell.
    lines.push(
        "Kept open:    its gateways and resolvers, and its agent's failsafe ports: tcp 22 unless it was started with others"
            .to_owned(),
    );
    lines.extend([
        format!("Labels:       {}", labels(&host.labels)),
        format!("Addresses:    {}", list(&host.addresses)),
        format!("Ports:        {}", list(&ports)),
        format!("Id:           {}", host.id),
        format!("Enrolled:     {} ({})", since(&host.enrolled_at, now), short_time(&host.enrolled_at)),
        format!("Last seen:    {}", last_seen(host, now)),
        format!(
            "Whole state:  {}",
            host.last_snapshot_sent_at
                .as_ref()
                .map_or_else(|| "never sent".to_owned(), |at| format!("last sent {}", since(at, now)))
        ),
        format!("Outcomes:     {}", outcomes(host.last_acked_at.as_ref(), host.last_apply_failed_at.as_ref(), now)),
    ]);
    match &host.session {
        None => lines.push("Session:      none yet".to_owned()),
        Some(session) => {
            let open = if session.open { "open" } else { "not open" };
            let (epoch, gateway, opened) = (session.session_epoch, &session.gateway, since(&session.opened_at, now));
            lines.push(format!("Session:      {open}, number {epoch} at {gateway}, begun {opened}"));
            lines.push(format!("Agent:        {}", session.agent_version));
        }
    }
    lines.extend(host.report.as_ref().map(report_line));
    lines.extend(host.initialized.as_ref().map(|one| format!("Initialized:  {}: {}", one.outcome, one.text)));
    for component in host.components.iter().filter(|component| wide || is_worth_showing(component)) {
        lines.push(String::new());
        lines.extend(component_lines(component, wide, now));
    }
    lines.join("\n")
}

/// How old what a host last said of itself as a whole is, and whether it counts.
fn report_line(report: &ReportView) -> String {
    let counts = match (report.signature_valid, report.in_this_session) {
        (true, true) => "",
        (true, false) => "; of an earlier session, so it proves nothing",
        (false, _) => "; ITS SIGNATURE IS NOT THE HOST'S",
    };
    format!("Status:       said {}{counts}", ago(report.age_ms / 1_000))
}

/// What was found in the host's kernel, and by whom it had been put there.
fn drift_line(drift: &DriftView, now: OffsetDateTime) -> String {
    let process = by(drift);
    let repaired = if drift.repaired { "repaired" } else { "NOT REPAIRED" };
    let times = if drift.found == 1 { "once".to_owned() } else { format!("{} times", drift.found) };
    let last = since(&drift.last_found_at, now);
    let war = if drift.contended { "; CONTENDED: another tool undoes each repair" } else { "" };
    format!("Drift:        found {times}, last {last} {process}, {repaired}; {}{war}", drift.differed)
}

/// Whose it was.
pub(crate) fn by(drift: &DriftView) -> String {
    match (&drift.process, drift.pid) {
        (Some(process), Some(pid)) => format!("by {process} (pid {pid})"),
        (Some(_) | None, _) => "by a process that nobody saw".to_owned(),
    }
}

/// When an update last came into force, and when one last failed.
fn outcomes(acked: Option<&String>, failed: Option<&String>, now: OffsetDateTime) -> String {
    match (acked, failed) {
        (None, None) => "none yet".to_owned(),
        (Some(acked), None) => format!("last in force {}, never failed", since(acked, now)),
        (None, Some(failed)) => format!("never in force, last failed {}", since(failed, now)),
        (Some(acked), Some(failed)) => {
            format!("last in force {}, last failed {}", since(acked, now), since(failed, now))
        }
    }
}

/// The policy always; the others once they hold something or are not well.
fn is_worth_showing(component: &ComponentView) -> bool {
    let is_policy = component.component.word() == "policy";
    let version = component.latest.as_ref().map_or(0, |stamp| stamp.version);
    is_policy || version > 1 || component.state != holdfast_model::status::State::Converged
}

/// Why what is desired of a component does not reach the host, where that is the authority's life.
pub(crate) fn held_back(component: &ComponentView) -> Option<String> {
    let held_back = component.held_back.as_ref()?;
    let held = held_back.held.as_ref().map_or_else(String::new, |held| format!("version {}", held.version));
    let name = component.component.word();
    let why = match held_back.waits_for {
        WaitsFor::Bump => format!(
            "it holds {held}, which this database never rendered, and refuses what is older: was the database restored? `holdfast authority show`"
        ),
        WaitsFor::Confirm => {
            format!("it holds {held} and would go back: `holdfast authority show`, then `holdfast authority confirm`")
        }
        WaitsFor::Session => "it was not heard since the database was restored or promoted".to_owned(),
    };
    Some(format!("              HELD BACK ({name}): {why}"))
}

/// What the host has proven of its policy, against what is desired.
fn proven(host: &HostView) -> String {
    let Some(policy) = host.components.iter().find(|one| one.component.word() == "policy") else {
        return "nothing rendered yet".to_owned();
    };
    let revision = policy.latest_revision.map(|revision| format!(" of revision {revision}")).unwrap_or_default();
    match (&policy.latest, &policy.applied) {
        (None, _) => "nothing rendered yet".to_owned(),
        (Some(latest), Some(applied)) if latest == applied => {
            format!(
                "version {}{revision}, {}",
                latest.version,
                if is_proven(policy) { "proven" } else { "not proven now" }
            )
        }
        (Some(latest), Some(applied)) => {
            format!("version {}{revision} is desired, {} is what it last said to hold", latest.version, applied.version)
        }
        (Some(latest), None) => {
            format!("version {}{revision} is desired, none is in force by its word", latest.version)
        }
    }
}

fn is_proven(component: &ComponentView) -> bool {
    component.state == holdfast_model::status::State::Converged
}

fn direction(policy: &HostPolicyView, wanted: Direction, isolated: bool, wide: bool) -> Vec<String> {
    let rules: Vec<&RuleView> = policy.rules.iter().filter(|rule| rule.direction == wanted).collect();
    let (heading, anybody) = match wanted {
        Direction::Ingress => ("Ingress:     ", "from"),
        Direction::Egress => ("Egress:      ", "to"),
    };
    let (denied, deny) = match policy.mode {
        Mode::Enforced => ("denied", "deny"),
        Mode::Simulation | Mode::Visibility => ("would be denied", "would deny"),
    };
    let is_so = match policy.mode {
        Mode::Enforced => "",
        Mode::Simulation => " (simulation: it is counted and let through)",
        Mode::Visibility => " (visibility: nothing is dropped)",
    };
    let rest = match (isolated, rules.is_empty()) {
        (true, true) => format!("{denied} {anybody} everybody{is_so}"),
        (true, false) => format!("{denied}, but for what these rules allow{is_so}"),
        (false, true) => "open: no policy isolates this direction".to_owned(),
        (false, false) => format!("open, but for what these rules {deny}{is_so}"),
    };
    let mut lines = vec![format!("{heading} {rest}")];
    let shown = if wide { usize::MAX } else { RULES_SHOWN };
    // The direction stands in the heading.
    let text = |one: &&RuleView| {
        let whole = rule(one, wide);
        let short = whole.split_once(' ').map_or(whole.as_str(), |(_, rest)| rest);
        format!("                {}", short.replacen(" with ", &format!(" {anybody} "), 1))
    };
    lines.extend(rules.iter().take(shown).map(text));
    if rules.len() > shown {
        lines.push(format!("                and {} more: -o wide", rules.len() - shown));
    }
    lines
}

fn component_lines(component: &ComponentView, wide: bool, now: OffsetDateTime) -> Vec<String> {
    let mut lines =
        vec![format!("{}: {}, applied/latest version {}", component.component, component.state, versions(component))];
    if let Some(latest) = component.latest.as_ref().filter(|_| wide) {
        lines.push(format!("  latest:    {} of revision {}", latest.digest, or_dash(component.latest_revision)));
    }
    if let Some(outcome) = &component.outcome {
        let forged = if outcome.signature_valid { "" } else { "; ITS SIGNATURE IS NOT THE HOST'S" };
        let (kind, version, reason, at) = (&outcome.kind, outcome.wanted.version, &outcome.reason, &outcome.at);
        lines.push(format!("  last said: {kind} version {version} ({reason}) {}{forged}", since(at, now)));
        if !outcome.detail.is_empty() {
            lines.push(format!("             {}", outcome.detail));
        }
    }
    for condition in component.conditions.iter().filter(|condition| wide || condition.status != "True") {
        let (kind, status, reason) = (&condition.kind, &condition.status, &condition.reason);
        let basis = if condition.basis == "observed" { "" } else { " (inferred)" };
        let message = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        lines.push(format!("  {kind:<17} {status:<8} {reason}{basis}{message}"));
    }
    if wide {
        lines.push(format!("  snapshot:  last sent at {}", or_dash(component.last_snapshot_sent_at.as_ref())));
        let (acked, failed) = (component.last_acked_at.as_ref(), component.last_apply_failed_at.as_ref());
        lines.push(format!("  outcomes:  last in force at {}, last failed at {}", or_dash(acked), or_dash(failed)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_component_that_is_held_back_says_what_the_host_holds_and_what_it_waits_for() {
        let told = |waits_for: &str, version: Option<u64>| {
            let held = version.map(|version| json!({ "version": version, "digest": "x" }));
            let mut held_back = json!({ "waits_for": waits_for });
            if let Some(held) = held {
                held_back["held"] = held;
            }
            let component: ComponentView = serde_json::from_value(json!({
                "component": "policy", "state": "unknown", "latest": null, "latest_revision": null, "applied": null,
                "outcome": null, "conditions": [], "last_snapshot_sent_at": null, "held_back": held_back,
            }))
            .unwrap();
            held_back_text(&component)
        };
        assert!(told("bump", Some(13)).contains("holds version 13, which this database never rendered"));
        assert!(told("confirm", Some(13)).contains("`holdfast authority confirm`"));
        assert!(told("session", None).contains("not heard since"));
    }

    fn held_back_text(component: &ComponentView) -> String {
        held_back(component).unwrap()
    }

    #[test]
    fn drift_is_told_with_the_process_and_what_differed_and_a_war_as_one() {
        let drift = |process: Option<&str>, repaired, contended| DriftView {
            found: 2,
            last_found_at: "2026-01-01T00:00:00Z".to_owned(),
            process: process.map(str::to_owned),
            pid: process.map(|_| 4_321),
            differed: "rules missing: 1".to_owned(),
            repaired,
            contended,
        };
        let now = OffsetDateTime::from_unix_timestamp(1_767_225_660).unwrap();
        let told = |process, repaired, contended| drift_line(&drift(process, repaired, contended), now);
        let quiet = told(Some("nft"), true, false);
        assert!(
            quiet.starts_with("Drift:        found 2 times, last ") && quiet.contains(" by nft (pid 4321), repaired; "),
            "{quiet}"
        );
        assert!(quiet.ends_with("; rules missing: 1"), "{quiet}");
        let loud = told(None, false, true);
        assert!(loud.contains("a process that nobody saw, NOT REPAIRED") && loud.contains("CONTENDED"), "{loud}");
    }

    #[test]
    fn a_policy_of_ten_times_what_may_travel_is_told_with_both_numbers() {
        let host: HostView = serde_json::from_value(json!({
            "id": "ho_00000000-0000-0000-0000-000000000001", "namespace": "booking", "name": "db-1", "labels": {}, "addresses": [],
            "ports": [], "mode": "enforced", "state": "progressing", "sync": "PENDING", "enrolled_at": "2026-01-01T00:00:00Z",
            "last_seen_at": null, "presence": "never", "session": null, "components": [],
        }))
        .unwrap();
        let told = |bytes: u64| {
            let policy = HostPolicyView {
                host: host.id.clone(),
                name: "booking/db-1".to_owned(),
                revision: 1,
                policies: Vec::new(),
                mode: holdfast_model::policy::Mode::Enforced,
                ingress_isolated: false,
                egress_isolated: false,
                rules: Vec::new(),
                body_bytes: bytes,
                body_bytes_max: 33_554_432,
            };
            host_text(&host, &policy, false, OffsetDateTime::UNIX_EPOCH)
        };
        let text = told(335_544_320);
        let line = text.lines().nth(4).unwrap();
        assert!(line.contains("TOO LARGE: 335544320 bytes, and 33554432 may travel"), "{text}");
        assert!(!told(33_554_432).contains("TOO LARGE"));
    }
}
