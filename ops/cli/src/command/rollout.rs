//! `rollout`, and waiting for the end of one.

use std::time::Duration;

use holdfast_api::rollout::{RolloutRequest, RolloutStageView, RolloutView};
use serde_json::json;

use super::wait::{Awaited, Next};
use crate::api::{Api, escape};
use crate::args::{Rollout, Stages};
use crate::documents::quoted;
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash, table, word};
use crate::progress::Progress;
use crate::words;

/// What is asked of the API, if a change is to go in stages.
pub(super) fn request(stages: &Stages) -> Option<RolloutRequest> {
    stages.rollout.then(|| RolloutRequest {
        stages: stages.stages.clone(),
        max_failed: stages.max_failed,
        max_unknown: stages.max_unknown,
        // A part of a second is a second more.
        stage_timeout_s: Some(u32::try_from(stages.stage_timeout.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)),
    })
}

/// The same flags again, each after a space.
pub(super) fn flags(stages: &Stages) -> String {
    if !stages.rollout {
        return String::new();
    }
    let mut flags = " --rollout".to_owned();
    stages.stages.iter().for_each(|stage| flags.push_str(&format!(" --stage {}", quoted(stage))));
    for (flag, count) in [("max-failed", stages.max_failed), ("max-unknown", stages.max_unknown)] {
        if count > 0 {
            flags.push_str(&format!(" --{flag} {count}"));
        }
    }
    flags.push_str(&format!(" --stage-timeout {}s", stages.stage_timeout.as_millis().div_ceil(1_000)));
    flags
}

/// Lists rollouts, shows one, waits for its end, or moves it.
pub(super) async fn run(api: &Api, command: Rollout, format: Format) -> Result<End, Error> {
    match command {
        Rollout::List => {
            let page = api.get_all("/v1/rollouts").await?;
            let list = page.items.iter().map(|item| serde_json::from_value(item.clone()));
            let list = list.collect::<Result<Vec<RolloutView>, _>>()?;
            let header = ["ROLLOUT", "STATE", "REVISION", "STAGE", "HELD", "CREATED"];
            let text = table(header, list.iter().map(list_row).collect());
            Answer { value: &page, names: list.iter().map(|one| one.id.clone()).collect(), text }.show(format)?;
            Ok(End::Done)
        }
        Rollout::Get { id } => show(&api.get(&path(&id)).await?, format),
        Rollout::Watch { id, timeout } => {
            let one = awaited(api, &id, timeout, format).await?;
            show(&one, format)?;
            Ok(end(&one))
        }
        Rollout::Pause { id } => moved(api, &id, "pause", format).await,
        Rollout::Resume { id } => moved(api, &id, "resume", format).await,
        Rollout::Abort { id } => {
            let one: RolloutView = api.change(&format!("{}/abort", path(&id)), &json!({}), None).await?;
            show(&one, format)?;
            if let Some(operation) = &one.abort_operation {
                let revision = one.abort_revision.unwrap_or_default();
                word(&format!("revision {revision}, operation {operation}"));
            }
            one.left.iter().for_each(|left| word(&format!("warning: {left} was changed again later, and stays")));
            Ok(End::Done)
        }
    }
}

async fn moved(api: &Api, id: &str, how: &str, format: Format) -> Result<End, Error> {
    show(&api.change(&format!("{}/{how}", path(id)), &json!({}), None).await?, format)
}

fn path(id: &str) -> String {
    format!("/v1/rollouts/{}", escape(id))
}

fn list_row(one: &RolloutView) -> [String; 6] {
    let stage = format!("{} of {}", one.stage, one.stages.len());
    let (held, created) = (one.held_hosts.to_string(), one.created_at.clone());
    [one.id.clone(), one.state.clone(), one.revision.to_string(), stage, held, created]
}

fn stage_row(number: usize, stage: &RolloutStageView) -> [String; 8] {
    let now = stage.now.unwrap_or_default();
    let count = |count: u64| if stage.now.is_some() { count.to_string() } else { "-".to_owned() };
    let opened = if stage.opened { "opened" } else { "held" };
    [
        number.to_string(),
        stage.stage.clone(),
        opened.to_owned(),
        stage.hosts.to_string(),
        count(now.converged + now.degraded),
        count(now.progressing),
        count(now.failed),
        count(now.unknown),
    ]
}

/// A rollout with its stages, and the words of its state.
pub(super) fn show(one: &RolloutView, format: Format) -> Result<End, Error> {
    let rows = one.stages.iter().zip(1..).map(|(stage, number)| stage_row(number, stage)).collect();
    let text = table(["STAGE", "OF", "STATE", "HOSTS", "PROVEN", "PROGRESSING", "FAILED", "UNKNOWN"], rows);
    Answer { value: one, names: vec![one.id.clone()], text }.show(format)?;
    if !matches!(format, Format::Json | Format::Yaml) {
        tell(one);
    }
    Ok(End::Done)
}

/// Says how far a rollout is, what is in its way, and what to do.
pub(super) fn tell(one: &RolloutView) {
    word(&summary(one));
    if !one.detail.is_empty() {
        word(&one.detail);
    }
    let in_the_way: Vec<&str> = one.stages.iter().flat_map(|stage| &stage.in_the_way).map(String::as_str).collect();
    if !in_the_way.is_empty() {
        word(&format!("in the way: {}", in_the_way.join(", ")));
    }
    if let Some(revision) = one.overwritten_at.filter(|_| !one.finished) {
        word(&format!("revision {revision} has something else in the place of what it changed, or of a part of it"));
    }
    if one.state == "halted" {
        word(&match one.may_move {
            true => format!("ask: holdfast rollout resume {}, holdfast rollout abort {}", one.id, one.id),
            false => "it takes a token for all namespaces that may edit to resume or abort it".to_owned(),
        });
    }
}

/// How far a rollout is, in one line for people.
pub(super) fn summary(one: &RolloutView) -> String {
    let stages = format!("stage {} of {}", one.stage, one.stages.len());
    let held = match one.held_hosts {
        0 => String::new(),
        hosts => format!(", {} held at revision {}", words::count(hosts, "host"), one.held_revision),
    };
    let ended = or_dash(one.finished_at.as_ref());
    let ended = if one.finished { format!(" since {ended}") } else { String::new() };
    format!("rollout {} of revision {} is {}{ended}: {stages}{held}", one.id, one.revision, one.state)
}

/// A rollout that is waited for.
struct Wanted<'a>(&'a str);

impl Awaited for Wanted<'_> {
    type View = RolloutView;

    const REQUEST_WAIT: Duration = Duration::from_secs(2);

    fn subject(&self) -> String {
        self.0.to_owned()
    }

    fn path(&self, once: Duration) -> String {
        format!("{}?wait={}ms", path(self.0), once.as_millis())
    }

    fn see(&self, one: &RolloutView, progress: &Progress) -> Next {
        let total = one.stages.iter().map(|stage| u64::from(stage.hosts)).sum();
        let proven = one.stages.iter().filter(|stage| stage.opened).filter_map(|stage| stage.now);
        progress.amount(proven.map(|now| now.converged + now.degraded).sum(), total);
        progress.say(&format!("waiting: {}", summary(one)));
        match (end(one), one.state.as_str()) {
            // No request waits for somebody to resume it.
            (End::NotApplied, "paused") => Next::Pause,
            (End::NotApplied, _) => Next::Ask,
            _ => Next::Over,
        }
    }

    fn again(&self) -> String {
        format!("rollout watch {}", self.0)
    }
}

/// Waits until a rollout ended or halted.
pub(super) async fn awaited(api: &Api, id: &str, timeout: Duration, format: Format) -> Result<RolloutView, Error> {
    super::wait::wait(api, &Wanted(id), timeout, format).await
}

/// How a rollout ends the command that waited for it.
pub(super) fn end(one: &RolloutView) -> End {
    match one.state.as_str() {
        // It went through the fleet, and something else was in its place by then.
        "finished" if one.overwritten_at.is_some() => End::Conflict,
        "finished" => End::Done,
        "halted" | "aborted" => End::Failed,
        _ => End::NotApplied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_view(state: &str) -> RolloutView {
        let stage = |stage: &str, hosts, opened| RolloutStageView {
            stage: stage.to_owned(),
            hosts,
            opened,
            now: None,
            in_the_way: Vec::new(),
        };
        RolloutView {
            id: "ro_1".to_owned(),
            version: 1,
            operation: "op_1".to_owned(),
            revision: 8,
            held_revision: 7,
            state: state.to_owned(),
            finished: false,
            may_move: true,
            detail: String::new(),
            stage: 1,
            stages: vec![stage("canary=true", 1, true), stage("100%", 9, false)],
            held_hosts: 9,
            max_failed: 0,
            max_unknown: 0,
            stage_timeout_s: 60,
            actor: "at_1".to_owned(),
            created_at: String::new(),
            stage_began_at: String::new(),
            finished_at: None,
            abort_revision: None,
            overwritten_at: None,
            abort_operation: None,
            left: Vec::new(),
        }
    }

    #[test]
    fn a_watch_of_a_rollout_ends_as_the_table_of_exit_codes_says() {
        let ends = ["finished", "halted", "aborted", "progressing", "paused"].map(|state| end(&mk_view(state)));
        assert_eq!(ends, [End::Done, End::Failed, End::Failed, End::NotApplied, End::NotApplied]);
        let overwritten = |state| end(&RolloutView { overwritten_at: Some(9), ..mk_view(state) });
        assert_eq!(["finished", "progressing"].map(overwritten), [End::Conflict, End::NotApplied]);
    }

    #[test]
    fn the_words_say_the_stage_and_who_is_held_where() {
        let text = summary(&mk_view("progressing"));
        assert_eq!(text, "rollout ro_1 of revision 8 is progressing: stage 1 of 2, 9 hosts held at revision 7");
    }
}
