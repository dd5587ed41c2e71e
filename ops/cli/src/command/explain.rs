//! `explain` and `diff`.

use holdfast_api::explain::{DecisionView, EndView, ExplainView};
use holdfast_api::policy::DiffView;

use crate::api::{Api, escape};
use crate::args::Explain;
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash};
use crate::text;

/// Shows why.
pub(super) async fn explain(api: &Api, what: Explain, format: Format) -> Result<End, Error> {
    let Explain::Flow { from, to, service } = what;
    let query = format!("from={}&to={}&service={}", escape(&from), escape(&to), escape(&service));
    let view: ExplainView = api.get(&format!("/v1/explain/flow?{query}")).await?;
    Answer { value: &view, names: vec![view.verdict.clone()], text: words(&view) }.show(format)?;
    Ok(End::Done)
}

fn words(view: &ExplainView) -> String {
    let end = |end: &EndView| match end.mode {
        Some(mode) => format!("{} {} ({mode})", end.kind, end.name),
        None => format!("{} {}", end.kind, end.name),
    };
    let mut lines = vec![format!("{}: {} -> {}, {}", view.verdict, end(&view.from), end(&view.to), view.service)];
    for flow in &view.flows {
        let verdict = match (flow.allowed, flow.allowed_if_enforced) {
            (true, true) => "allowed",
            (true, false) => "allowed, but would be denied if both ends enforced",
            (false, true | false) => "denied",
        };
        lines.push(format!("  {} -> {}: {verdict}", flow.from, flow.to));
        lines.push(format!("    egress:  {}", decision(&flow.egress)));
        lines.push(format!("    ingress: {}", decision(&flow.ingress)));
    }
    lines.join("\n")
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
    lines.extend(text::changes(&view.changes));
    if view.changes.is_empty() {
        lines.push("no difference".to_owned());
    }
    let names = vec![format!("host/{}", view.name)];
    Answer { value: &view, names, text: lines.join("\n") }.show(format)?;
    Ok(End::Done)
}
