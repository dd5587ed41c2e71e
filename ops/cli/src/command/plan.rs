//! `plan`.

use holdfast_api::object::{ApplyRequest, Change};
use holdfast_api::policy::PlanView;

use super::apply::warn;
use super::rollout;
use crate::api::{Api, LONG_TIMEOUT};
use crate::args::{Documents, Stages};
use crate::documents::{flags, request};
use crate::error::{End, Error};
use crate::output::{Answer, Format, word};
use crate::progress::Progress;
use crate::{text, words};

/// How many hosts of a stage are named, unless all are wanted.
const STAGE_HOSTS_SHOWN: usize = 5;

/// Shows what documents would change.
pub(super) async fn plan(
    api: &Api,
    documents: Documents,
    stages: &Stages,
    detailed: bool,
    format: Format,
) -> Result<End, Error> {
    let request = ApplyRequest { rollout: rollout::request(stages), ..request(&documents)? };
    let planning = api.post("/v1/plan", &request, Some(LONG_TIMEOUT));
    let plan: PlanView = Progress::new(format).during("planning", Box::pin(planning)).await?;
    if plan.objects.is_empty() {
        return Err(Error::NoDocument);
    }
    show(&plan, format)?;
    if matches!(format, Format::Table | Format::Wide) {
        word(&format!(
            "nothing was written; to do exactly this and nothing else: holdfast apply {}{} --plan {}",
            flags(&documents),
            rollout::flags(stages),
            plan.digest
        ));
    }
    Ok(if detailed && !plan.unchanged { End::Differences } else { End::Done })
}

/// Shows a plan, with what is odd about it and whether an apply would be held.
pub(super) fn show(plan: &PlanView, format: Format) -> Result<(), Error> {
    warn(&plan.warnings);
    let names = plan.hosts.iter().map(|host| format!("host/{}/{}", host.namespace, host.name)).collect();
    let text = text_of(plan, format.is_wide());
    Answer { value: plan, names, text }.show(format)?;
    if let Some(brake) = &plan.brake {
        word(&format!(
            "warning: an apply will be refused, for {}; if it is meant, add to it: --acknowledge '{}|why it is meant'",
            brake.text, brake.acknowledge
        ));
    }
    Ok(())
}

fn text_of(plan: &PlanView, wide: bool) -> String {
    let mut lines: Vec<String> = Vec::new();
    for object in plan.objects.iter().filter(|object| object.change != Change::Unchanged) {
        lines.push(format!("{} {}", object.object, object.change.word()));
    }
    for host in &plan.hosts {
        lines.push(String::new());
        lines.push(format!("host {}/{}", host.namespace, host.name));
        lines.extend(text::changes(&host.changes, wide).into_iter().map(|line| format!("  {line}")));
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    for (stage, number) in plan.stages.iter().zip(1..) {
        let shown = if wide { usize::MAX } else { STAGE_HOSTS_SHOWN };
        let named: Vec<&str> = stage.names.iter().take(shown).map(String::as_str).collect();
        let more = if stage.hosts > named.len() as u64 { ", …" } else { "" };
        let hosts = words::count(stage.hosts, "host");
        lines.push(format!("stage {number} ({}): {hosts}: {}{more}", stage.stage, named.join(", ")));
    }
    let hidden =
        if plan.hosts_hidden > 0 { format!(" ({} that you may not see)", plan.hosts_hidden) } else { String::new() };
    let changed = plan.hosts.len() as u64 + plan.hosts_hidden;
    lines.push(format!("{} would change{hidden}, {} would not", words::count(changed, "host"), plan.hosts_unchanged));
    lines.join("\n")
}
