//! `plan`.

use holdfast_api::object::Change;
use holdfast_api::policy::PlanView;

use super::apply::request;
use crate::api::{Api, LONG_TIMEOUT};
use crate::args::Documents;
use crate::error::{End, Error};
use crate::output::{Answer, Format, word};
use crate::text;

/// Shows what documents would change.
pub(super) async fn plan(api: &Api, documents: Documents, detailed: bool, format: Format) -> Result<End, Error> {
    let plan: PlanView = api.post("/v1/plan", &request(documents)?, Some(LONG_TIMEOUT)).await?;
    let names = plan.hosts.iter().map(|host| format!("host/{}/{}", host.namespace, host.name)).collect();
    let text = words(&plan);
    Answer { value: &plan, names, text }.show(format)?;
    if matches!(format, Format::Table | Format::Wide) {
        word(&format!("plan {} on revision {}; nothing was written", plan.digest, plan.base_revision));
    }
    Ok(if detailed && !plan.unchanged { End::Differences } else { End::Done })
}

fn words(plan: &PlanView) -> String {
    let mut lines: Vec<String> = Vec::new();
    for object in plan.objects.iter().filter(|object| object.change != Change::Unchanged) {
        lines.push(format!("{} {}", object.object, object.change.word()));
    }
    for host in &plan.hosts {
        lines.push(String::new());
        lines.push(format!("host {}/{}", host.namespace, host.name));
        lines.extend(text::changes(&host.changes).into_iter().map(|line| format!("  {line}")));
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    let hidden =
        if plan.hosts_hidden > 0 { format!(" ({} that you may not see)", plan.hosts_hidden) } else { String::new() };
    let changed = plan.hosts.len() as u64 + plan.hosts_hidden;
    lines.push(format!("{changed} host(s) would change{hidden}, {} would not", plan.hosts_unchanged));
    lines.join("\n")
}
