//! `explain` and `diff`.

use holdfast_api::explain::{DecisionView, EndView, ExplainView, FlowView};
use holdfast_api::policy::DiffView;
use holdfast_api::status::{ComponentView, DriftView, HostView, MissingView, OutcomeView};

use crate::api::{Api, escape};
use crate::args::Explain;
use crate::describe::{by, held_back};
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash};
use crate::text;
use crate::words::{short_time, since};
use time::OffsetDateTime;

/// Shows why.
pub(super) async fn explain(api: &Api, what: Explain, format: Format) -> Result<End, Error> {
    match what {
        Explain::Host { host } => explain_host(api, &host, format).await,
        Explain::Flow { from, to, service, at, exit_code } => {
            let view = explain_flow(api, [&from, &to, &service], at.as_deref(), format).await?;
            Ok(if exit_code && view.verdict != "allowed" { End::Denied } else { End::Done })
        }
    }
}

async fn explain_host(api: &Api, host: &str, format: Format) -> Result<End, Error> {
    let view: HostView = api.get(&format!("/v1/hosts/{}", escape(host))).await?;
    let names = vec![view.state.word().to_owned()];
    Answer { value: &view, names, text: host_words(&view) }.show(format)?;
    Ok(End::Done)
}

/// The first fact that is missing, then every component that lacks one, with what would satisfy it said once.
fn host_words(host: &HostView) -> String {
    let name = format!("{}/{}", host.namespace, host.name);
    let lacks = |component: &ComponentView| component.missing.clone().map(|missing| (component.state, missing));
    let worst = host.components.iter().filter_map(lacks).find(|(state, _)| *state == host.state);
    let Some((_, first)) = worst.or_else(|| host.components.iter().find_map(lacks)) else {
        return format!("{name} is {}: nothing is missing", host.state);
    };
    let mut lines = vec![format!("{name} is {}: {}", host.state, first.text)];
    lines.extend(host.held.as_ref().map(|held| format!("  {}", held.text())));
    lines.extend(uninitialized(host, &first));
    lines.extend(host.drift.as_ref().filter(|drift| drift.contended).map(|drift| format!("  {}", war(drift))));
    let mut told: Vec<MissingView> = Vec::new();
    for component in &host.components {
        let (part, state) = (component.component.word(), component.state.word());
        let Some(missing) = &component.missing else {
            lines.push(format!("  {part:<12} {state}"));
            continue;
        };
        lines.push(format!("  {part:<12} {state:<12} {}", missing.text));
        lines.extend(held_back(component));
        lines.extend(component.outcome.as_ref().filter(|said| said.kind != "applied").map(said_words));
        if !told.contains(missing) {
            lines.push(format!("{:14} needs: {}", "", missing.satisfied_by));
            told.push(missing.clone());
        }
    }
    lines.join("\n")
}

/// That the host had no complete bootstrap yet, where that is what its first missing fact comes of.
fn uninitialized(host: &HostView, first: &MissingView) -> Option<String> {
    let comes_of_it = ["rendered", "session", "answer", "answer_in_session", "success", "latest", "same_content"];
    let initialized = host.initialized.as_ref().filter(|initialized| initialized.outcome != "complete")?;
    let is_told = comes_of_it.contains(&first.fact.as_str());
    is_told.then(|| format!("  not initialized ({}): {}", initialized.outcome, initialized.text))
}

/// Who undoes each repair of the host's table, and how long ago that was last found.
fn war(drift: &DriftView) -> String {
    let last = since(&drift.last_found_at, OffsetDateTime::now_utc());
    format!(
        "CONTENDED: another tool undoes each repair, last {last} {}; keep it from the table inet holdfast",
        by(drift)
    )
}

/// What a host said of an update that it did not take.
fn said_words(said: &OutcomeView) -> String {
    let OutcomeView { kind, wanted, reason, detail, .. } = said;
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{:14} it said: {kind} version {} ({reason}){detail}", "", wanted.version)
}

async fn explain_flow(
    api: &Api,
    [from, to, service]: [&str; 3],
    at: Option<&str>,
    format: Format,
) -> Result<ExplainView, Error> {
    let mut query = format!("from={}&to={}&service={}", escape(from), escape(to), escape(service));
    query.extend(at.map(|at| format!("&at={}", escape(at))));
    let view: ExplainView = api.get(&format!("/v1/explain/flow?{query}")).await?;
    let mut text = words(&view);
    if at.is_some() {
        text = format!("at revision {}\n{text}", view.revision);
    }
    Answer { value: &view, names: vec![view.verdict.clone()], text }.show(format)?;
    Ok(view)
}

fn words(view: &ExplainView) -> String {
    let end = |end: &EndView| match (end.mode, end.held_revision) {
        (Some(mode), Some(revision)) => format!("{} {} ({mode}, held at revision {revision})", end.kind, end.name),
        (Some(mode), None) => format!("{} {} ({mode})", end.kind, end.name),
        (None, _) => format!("{} {}", end.kind, end.name),
    };
    let mut lines = vec![format!("{}: {} -> {}, {}", view.verdict, end(&view.from), end(&view.to), view.service)];
    let unproven = [&view.from, &view.to].into_iter().filter_map(|end| Some((&end.name, end.unproven.as_ref()?)));
    lines.extend(unproven.map(|(name, why)| format!("  {name} may hold something else: it is {why}")));
    if view.pairs > view.flows.len() as u64 {
        let (pairs, allowed, listed) = (view.pairs, view.pairs_allowed, view.flows.len());
        lines.push(format!("  {allowed} of {pairs} pairs of addresses are allowed; {listed} of them:"));
    }
    let mut flows: Vec<(String, &FlowView)> = Vec::new();
    for flow in &view.flows {
        let pair = format!("{} -> {}", flow.from, flow.to);
        // Both families usually get one answer.
        match flows.iter_mut().find(|(_, other)| same_answer(other, flow)) {
            Some((pairs, _)) => *pairs = format!("{pairs}, {pair}"),
            None => flows.push((pair, flow)),
        }
    }
    for (pairs, flow) in &flows {
        let verdict = match (flow.allowed, flow.allowed_if_enforced) {
            (true, true) => "allowed",
            (true, false) => "allowed, but would be denied if both ends enforced",
            (false, true | false) => "denied",
        };
        lines.push(format!("  {pairs}: {verdict}"));
        lines.push(format!("    egress:  {}", decision(&flow.egress)));
        lines.push(format!("    ingress: {}", decision(&flow.ingress)));
        if !flow.allowed_if_enforced {
            lines.push("    to allow it:".to_owned());
            let rule = |direction| format!("{direction} rule {} {}", toward(direction), other(view, direction));
            lines.extend(remedy(&flow.egress, &rule("egress"), &view.from.name, &view.service));
            lines.extend(remedy(&flow.ingress, &rule("ingress"), &view.to.name, &view.service));
        }
    }
    lines.join("\n")
}

fn same_answer(one: &FlowView, two: &FlowView) -> bool {
    (one.allowed, one.allowed_if_enforced, &one.egress, &one.ingress)
        == (two.allowed, two.allowed_if_enforced, &two.egress, &two.ingress)
}

fn toward(direction: &str) -> &'static str {
    if direction == "egress" { "to" } else { "from" }
}

fn other<'a>(view: &'a ExplainView, direction: &str) -> &'a str {
    if direction == "egress" { &view.to.name } else { &view.from.name }
}

/// What would have to change at one end, if that end denies.
fn remedy(decision: &DecisionView, rule: &str, subject: &str, service: &str) -> Option<String> {
    if decision.allows {
        return None;
    }
    Some(match (&decision.policy, &decision.rule) {
        (Some(policy), Some(index)) => {
            format!("      - {policy} {index} denies it: change it, or allow it in a rule with a lower order")
        }
        (Some(_) | None, _) => {
            let policies = decision.isolated_by.join(" or ");
            format!("      - an {rule} with {service} in {policies}, or in a policy of its own that selects {subject}")
        }
    })
}

fn decision(decision: &DecisionView) -> String {
    match decision.mode {
        Some(mode) => format!("{} [{mode}]", decision.text),
        None => decision.text.clone(),
    }
}

/// Shows what a host holds against what it is to hold.
pub(super) async fn diff(api: &Api, host: &str, format: Format) -> Result<End, Error> {
    let view: DiffView = api.get(&format!("/v1/hosts/{}/diff", escape(host))).await?;
    let (applied, latest) = (or_dash(view.applied_version), view.latest_version);
    let mut lines = vec![format!("host {}: applied version {applied}, latest {latest}", view.name)];
    let said = view.as_of.as_ref().map_or_else(
        || "it never said what it holds".to_owned(),
        |at| format!("as it said {} ({})", since(at, OffsetDateTime::now_utc()), short_time(at)),
    );
    lines.push(match view.online {
        true => said,
        false => format!("{said}; it is offline now, and may hold something else"),
    });
    lines.extend(text::changes(&view.changes, format.is_wide()));
    if view.changes.is_empty() {
        lines.push("no difference".to_owned());
    }
    let names = vec![format!("host/{}", view.name)];
    Answer { value: &view, names, text: lines.join("\n") }.show(format)?;
    Ok(End::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_war_for_the_table_is_explained_with_the_tool_that_wages_it() {
        let host = |contended: bool| {
            let view = json!({
                "id": "ho_00000000-0000-0000-0000-000000000001", "namespace": "booking", "name": "db-1", "labels": {}, "addresses": [],
                "ports": [], "mode": "enforced", "state": "unknown", "sync": "SYNCED", "enrolled_at": "2026-01-01T00:00:00Z",
                "last_seen_at": null, "presence": "present", "session": null,
                "drift": {
                    "found": 9, "last_found_at": "2026-01-01T00:00:00Z", "process": "firewalld", "pid": 71, "differed": "rules missing: 1",
                    "repaired": false, "contended": contended,
                },
                "components": [{
                    "component": "policy", "state": "unknown", "conditions": [], "latest": null, "applied": null, "outcome": null,
                    "latest_revision": null, "last_snapshot_sent_at": null,
                    "missing": {"fact": "condition_true", "condition": "Verified", "text": "Verified is unknown", "satisfied_by": "a read back"},
                }],
            });
            host_words(&serde_json::from_value(view).expect("a host"))
        };
        let war = host(true);
        assert!(war.contains("CONTENDED") && war.contains("by firewalld (pid 71)"), "{war}");
        assert!(!host(false).contains("firewalld"));
    }
}
