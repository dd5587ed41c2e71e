//! `operation`, and waiting for the end of one.

use std::time::Duration;

use holdfast_api::object::Page;
use holdfast_api::operation::{OperationHostView, OperationHosts, OperationView};
use serde_json::json;

use super::wait::{Awaited, Next};
use crate::api::{Api, escape};
use crate::args::{Goal, Operation, Waiting};
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash, table, word};
use crate::progress::Progress;
use crate::words;

/// How many hosts that keep an operation from its end are named.
const MISSING_SHOWN: usize = 5;

/// Lists operations, shows one or its hosts, or ends the waiting for one.
pub(super) async fn run(api: &Api, command: Operation, format: Format) -> Result<End, Error> {
    match command {
        Operation::List => {
            let page = api.get_all("/v1/operations").await?;
            let list = page.items.iter().map(|item| serde_json::from_value(item.clone()));
            let list = list.collect::<Result<Vec<OperationView>, _>>()?;
            show(&page, &list, format)
        }
        Operation::Get { id } => {
            let one: OperationView = api.get(&path(&id)).await?;
            show(&one, std::slice::from_ref(&one), format)?;
            tell(&one, format);
            Ok(End::Done)
        }
        Operation::Hosts { id, outcome } => {
            let query = outcome.map_or_else(String::new, |outcome| format!("?outcome={}", escape(&outcome)));
            let page = api.get_all(&format!("{}/hosts{query}", path(&id))).await?;
            let list = page.items.iter().map(|item| serde_json::from_value(item.clone()));
            let list = list.collect::<Result<Vec<OperationHostView>, _>>()?;
            let header = ["HOST", "OUTCOME", "PRESENCE", "COMPONENTS", "ID"];
            let text = table(header, list.iter().map(host_row).collect());
            Answer { value: &page, names: list.iter().map(host_name).collect(), text }.show(format)?;
            Ok(End::Done)
        }
        Operation::Cancel { id } => {
            let one: OperationView = api.change(&format!("{}/cancel", path(&id)), &json!({}), None).await?;
            show(&one, std::slice::from_ref(&one), format)?;
            tell(&one, format);
            Ok(End::Done)
        }
    }
}

/// Waits for the end of an operation and shows it.
pub(super) async fn wait(api: &Api, id: &str, waiting: Waiting, format: Format) -> Result<End, Error> {
    let one = awaited(api, id, waiting, format).await?;
    show(&one, std::slice::from_ref(&one), format)?;
    let end = end(&one, waiting.goal);
    if !matches!(format, Format::Json | Format::Yaml) {
        tell_end(api, &one, end).await;
    }
    Ok(end)
}

fn path(id: &str) -> String {
    format!("/v1/operations/{}", escape(id))
}

fn host_name(host: &OperationHostView) -> String {
    host.name.clone().unwrap_or_else(|| host.host.clone())
}

fn host_row(host: &OperationHostView) -> [String; 5] {
    let part = |part: &holdfast_api::operation::OperationComponentView| {
        format!("{} {} {}", part.component, part.target.version, part.outcome)
    };
    let parts: Vec<String> = host.components.iter().map(part).collect();
    [host_name(host), host.outcome.clone(), or_dash(host.presence.as_ref()), parts.join(", "), host.host.clone()]
}

/// How far an operation is, in one line for people.
pub(super) fn summary(one: &OperationView) -> String {
    let Some(hosts) = one.hosts else {
        let how = if one.held.is_some() { "not rendered for every host" } else { "not rendered yet" };
        return format!("operation {} is {}, and {how}", one.id, one.state);
    };
    let OperationHosts { total, applied, inactive, failed, superseded, cancelled, pending, offline, unknown, degraded } =
        hosts;
    let mut parts = vec![format!("applied on {applied} of {}", words::count(total, "host"))];
    let others = [
        (degraded, "not all proven"),
        (failed, "failed"),
        (superseded, "superseded"),
        (inactive, "inactive"),
        (cancelled, "cancelled"),
        (pending, "pending"),
    ];
    parts.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")));
    let away: Vec<String> = [(offline, "offline"), (unknown, "silent")]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let away = if away.is_empty() { String::new() } else { format!(" ({})", away.join(", ")) };
    format!("operation {} is {}: {}{away}", one.id, one.state, parts.join(", "))
}

fn tell(one: &OperationView, format: Format) {
    if matches!(format, Format::Json | Format::Yaml) {
        return;
    }
    word(&summary(one));
    if let Some(held) = &one.held {
        word(&held.text());
    }
    if !one.detail.is_empty() {
        word(&one.detail);
    }
}

/// Says how a wait ended, and which hosts keep it from its goal.
pub(super) async fn tell_end(api: &Api, one: &OperationView, end: End) {
    tell(one, Format::Table);
    if end == End::Done {
        return;
    }
    if let Some(held) = &one.held {
        word(&format!("it waits for them: holdfast rollout watch {}", held.rollout));
        return;
    }
    if !one.rendered {
        word("nothing of it has come to the hosts yet: is the renderer up? ask: holdfast doctor");
        return;
    }
    let outcome = if one.state == "failed" { "failed" } else { "pending" };
    // That nothing can be said of them is no failure of the wait.
    let query = format!("{}/hosts?outcome={outcome}&limit=100", path(&one.id));
    let Ok(page) = api.get::<Page<OperationHostView>>(&query).await else { return };
    let named = |host: &OperationHostView| {
        let why = host.presence.as_deref().unwrap_or(&host.outcome);
        format!("{} ({why})", host_name(host))
    };
    let names: Vec<String> = page.items.iter().map(named).collect();
    if !names.is_empty() {
        word(&format!("not applied: {}", words::some_of(&names, MISSING_SHOWN)));
        word(&format!("ask: holdfast operation hosts {}, holdfast wait operation {}", one.id, one.id));
    }
}

/// An operation that is waited for.
struct Wanted<'a> {
    id: &'a str,
    goal: Goal,
}

impl Awaited for Wanted<'_> {
    type View = OperationView;

    const REQUEST_WAIT: Duration = Duration::from_secs(2);

    fn subject(&self) -> String {
        self.id.to_owned()
    }

    fn path(&self, once: Duration) -> String {
        format!("{}?wait={}ms", path(self.id), once.as_millis())
    }

    fn see(&self, one: &OperationView, progress: &Progress) -> Next {
        let hosts = one.hosts.unwrap_or_default();
        progress.amount(hosts.total.saturating_sub(hosts.pending), hosts.total);
        progress.say(&format!("waiting: {}", summary(one)));
        match (one.finished, end(one, self.goal)) {
            (false, _) => Next::Ask,
            // It has come to its end, and is not proven everywhere: no request waits for that.
            (true, End::NotConverged) => Next::Pause,
            (true, _) => Next::Over,
        }
    }

    fn again(&self) -> String {
        format!("wait operation {}", self.id)
    }
}

/// Waits until an operation came to its goal or another end.
pub(super) async fn awaited(api: &Api, id: &str, waiting: Waiting, format: Format) -> Result<OperationView, Error> {
    super::wait::wait(api, &Wanted { id, goal: waiting.goal }, waiting.timeout, format).await
}

/// How an operation ends the command that waited for it.
pub(super) fn end(one: &OperationView, goal: Goal) -> End {
    if !one.finished {
        return End::NotApplied;
    }
    let degraded = one.hosts.is_some_and(|hosts| hosts.degraded > 0);
    match one.state.as_str() {
        "applied" if degraded && goal == Goal::Converged => End::NotConverged,
        "applied" | "inactive" => End::Done,
        // Something newer is there.
        "superseded" => End::Conflict,
        _ => End::Failed,
    }
}

fn show<T: serde::Serialize>(value: &T, list: &[OperationView], format: Format) -> Result<End, Error> {
    let row = |one: &OperationView| {
        [
            one.id.clone(),
            one.verb.clone(),
            one.revision.to_string(),
            one.changes.to_string(),
            one.state.clone(),
            one.created_at.clone(),
        ]
    };
    let text = if format.is_wide() {
        let wide = |one: &OperationView| {
            let [id, verb, revision, changes, state, created] = row(one);
            let detail = if one.detail.is_empty() { "-".to_owned() } else { one.detail.clone() };
            [id, verb, revision, changes, state, created, or_dash(one.finished_at.as_ref()), one.actor.clone(), detail]
        };
        let header = ["OPERATION", "VERB", "REVISION", "CHANGES", "STATE", "CREATED", "FINISHED", "ACTOR", "DETAIL"];
        table(header, list.iter().map(wide).collect())
    } else {
        table(["OPERATION", "VERB", "REVISION", "CHANGES", "STATE", "CREATED"], list.iter().map(row).collect())
    };
    Answer { value, names: list.iter().map(|one| one.id.clone()).collect(), text }.show(format)?;
    Ok(End::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_view(state: &str, finished: bool, hosts: OperationHosts) -> OperationView {
        OperationView {
            id: "op_1".to_owned(),
            verb: "apply".to_owned(),
            actor: "at_1".to_owned(),
            revision: 7,
            changes: 1,
            state: state.to_owned(),
            finished,
            detail: String::new(),
            created_at: String::new(),
            finished_at: None,
            rendered: true,
            hosts: Some(hosts),
            held: None,
        }
    }

    #[test]
    fn a_wait_for_an_operation_ends_as_the_table_of_exit_codes_says() {
        let all = OperationHosts { total: 3, applied: 3, ..OperationHosts::default() };
        let some = OperationHosts { degraded: 1, ..all };
        let end = |state, finished, hosts, goal| end(&mk_view(state, finished, hosts), goal);
        assert_eq!(end("applied", true, all, Goal::Converged), End::Done);
        assert_eq!(end("applied", true, some, Goal::Converged), End::NotConverged);
        assert_eq!(end("applied", true, some, Goal::Applied), End::Done);
        assert_eq!(end("inactive", true, all, Goal::Converged), End::Done);
        assert_eq!(end("superseded", true, all, Goal::Converged), End::Conflict);
        assert_eq!(end("failed", true, all, Goal::Applied), End::Failed);
        assert_eq!(end("cancelled", true, all, Goal::Applied), End::Failed);
        assert_eq!(end("accepted", false, all, Goal::Applied), End::NotApplied);
    }

    #[test]
    fn the_words_have_every_count_that_is_not_zero() {
        let hosts =
            OperationHosts { total: 100, applied: 97, pending: 3, offline: 2, unknown: 1, ..OperationHosts::default() };
        let text = summary(&mk_view("accepted", false, hosts));
        assert_eq!(text, "operation op_1 is accepted: applied on 97 of 100 hosts, 3 pending (2 offline, 1 silent)");
    }
}
