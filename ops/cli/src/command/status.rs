//! `status` and `wait`.

use std::cell::Cell;
use std::time::Duration;

use holdfast_api::object::Page;
use holdfast_api::status::{ComponentView, HostView, RevisionState, StatusView, WaitEnd, WaitFor};
use time::OffsetDateTime;

use super::wait::{Awaited, Next};
use crate::api::Api;
use crate::args::{Goal, Waiting};
use crate::error::{End, Error};
use crate::output::{Answer, Format, line, table, word};
use crate::progress::Progress;
use crate::words;

/// How many hosts that keep a wait from its goal are named.
const TROUBLED_SHOWN: usize = 5;
/// How many are read to name those: the list begins with those in trouble, and has more than one kind of it.
const TROUBLED_READ: usize = 20;
/// How often a watched status is read.
const WATCH: Duration = Duration::from_secs(1);

fn answer(status: &StatusView) -> Answer<'_, StatusView> {
    let hosts = status.hosts;
    let counts = [hosts.total, hosts.converged, hosts.degraded, hosts.progressing, hosts.failed, hosts.unknown];
    let [total, converged, degraded, progressing, failed, unknown] = counts.map(|count| count.to_string());
    let state = status.state.word().to_owned();
    let header = ["REVISION", "STATE", "HOSTS", "CONVERGED", "DEGRADED", "PROGRESSING", "FAILED", "UNKNOWN"];
    let row = [status.revision.to_string(), state, total, converged, degraded, progressing, failed, unknown];
    Answer { value: status, names: vec![status.state.word().to_owned()], text: table(header, vec![row]) }
}

/// One line for people.
pub(super) fn summary(status: &StatusView) -> String {
    let hosts = status.hosts;
    let mut parts = vec![format!("{} of {} converged", hosts.converged, words::count(hosts.total, "host"))];
    let others = [
        (hosts.degraded, "degraded"),
        (hosts.progressing, "progressing"),
        (hosts.failed, "failed"),
        (hosts.unknown, "unknown"),
    ];
    parts.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")));
    let (revision, rendered) = (status.revision, status.rendered_revision);
    if rendered < revision {
        // The counts are of what hosts were told before.
        return format!("revision {revision} is not rendered yet; with {rendered}: {}", parts.join(", "));
    }
    format!("revision {revision} is {}: {}", status.state.word(), parts.join(", "))
}

fn path(revision: Option<u64>, wait: Option<(Duration, WaitFor)>) -> String {
    let mut query = Vec::new();
    query.extend(revision.map(|revision| format!("revision={revision}")));
    query.extend(wait.map(|(wait, goal)| format!("wait={}ms&for={}", wait.as_millis(), goal.word())));
    if query.is_empty() { "/v1/status".to_owned() } else { format!("/v1/status?{}", query.join("&")) }
}

/// How far the fleet is with a revision.
pub(super) async fn read(api: &Api, revision: u64) -> Result<StatusView, Error> {
    api.get(&path(Some(revision), None)).await
}

/// How far the fleet is.
pub(super) async fn status(api: &Api, revision: Option<u64>, format: Format) -> Result<End, Error> {
    let status: StatusView = api.get(&path(revision, None)).await?;
    answer(&status).show(format)?;
    if let Some(held) = status.held.as_ref().filter(|_| !matches!(format, Format::Json | Format::Yaml)) {
        word(&held.text());
    }
    if let Some(open) = not_enforced(&status).filter(|_| matches!(format, Format::Table | Format::Wide)) {
        word(&format!("{open}; holdfast get hosts names them"));
    }
    Ok(End::Done)
}

/// The hosts that do not enforce, in words, if there are such.
pub(super) fn not_enforced(status: &StatusView) -> Option<String> {
    status.modes.and_then(|modes| modes.not_enforced())
}

/// Tells every change, until it is interrupted.
pub(super) async fn watch(api: &Api, revision: Option<u64>, format: Format) -> Result<End, Error> {
    let mut last: Option<StatusView> = None;
    loop {
        match api.get::<StatusView>(&path(revision, None)).await {
            Ok(status) if last.as_ref() != Some(&status) => {
                match format {
                    // One object a line, so that a reader need not guess where one ends.
                    Format::Json => line(&serde_json::to_string(&status)?)?,
                    Format::Yaml => {
                        line("---")?;
                        answer(&status).show(format)?;
                    }
                    Format::Table | Format::Wide => line(&summary(&status))?,
                    Format::Name => line(status.state.word())?,
                }
                last = Some(status);
            }
            Ok(_) => {}
            Err(error) if error.is_passing() && last.is_some() => word(&error.to_text()),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// Waits and shows what came of it.
pub(super) async fn wait(api: &Api, revision: Option<u64>, waiting: Waiting, format: Format) -> Result<End, Error> {
    let status = waited(api, revision, waiting, format).await?;
    answer(&status).show(format)?;
    let end = end(&status);
    if end != End::Done && !matches!(format, Format::Json | Format::Yaml) {
        word(&summary(&status));
        tell_missing(api, &status).await;
    }
    Ok(end)
}

/// A revision that is waited for on the whole fleet. The first answer names it: one that comes later is not waited for.
struct Wanted {
    revision: Cell<Option<u64>>,
    goal: WaitFor,
}

impl Awaited for Wanted {
    type View = StatusView;

    const REQUEST_WAIT: Duration = Duration::from_secs(5);

    fn subject(&self) -> String {
        "the fleet".to_owned()
    }

    fn path(&self, once: Duration) -> String {
        path(self.revision.get(), Some((once, self.goal)))
    }

    fn see(&self, status: &StatusView, progress: &Progress) -> Next {
        self.revision.set(Some(status.revision));
        progress.say(&format!("waiting: {}", summary(status)));
        let is_over = matches!(status.wait, Some(WaitEnd::Reached | WaitEnd::Failed));
        if is_over { Next::Over } else { Next::Ask }
    }

    fn again(&self) -> String {
        let revision = self.revision.get().map_or_else(String::new, |revision| format!(" --revision {revision}"));
        format!("wait{revision}")
    }
}

/// Waits until the goal is reached or a host failed.
pub(super) async fn waited(
    api: &Api,
    revision: Option<u64>,
    waiting: Waiting,
    format: Format,
) -> Result<StatusView, Error> {
    let goal = match waiting.goal {
        Goal::Applied => WaitFor::Applied,
        Goal::Converged => WaitFor::Converged,
    };
    super::wait::wait(api, &Wanted { revision: Cell::new(revision), goal }, waiting.timeout, format).await
}

/// How a wait ends the command.
pub(super) fn end(status: &StatusView) -> End {
    match (status.wait, status.state) {
        (Some(WaitEnd::Reached), _) => End::Done,
        (Some(WaitEnd::Failed), _) | (_, RevisionState::Failed) => End::Failed,
        (_, RevisionState::Degraded) => End::NotConverged,
        (
            _,
            RevisionState::Published
            | RevisionState::Progressing
            | RevisionState::Unknown
            // Reached between the last look and the end; the API said that it was not.
            | RevisionState::Converged,
        ) => End::NotApplied,
    }
}

/// Says which hosts keep a wait from its goal, and how to ask further. That nothing can be said of them is no failure of the wait.
pub(super) async fn tell_missing(api: &Api, status: &StatusView) {
    if let Some(held) = status.held.as_ref().filter(|_| status.rendered_revision < status.revision) {
        word(&format!("{}; it waits for them: holdfast rollout watch {}", held.text(), held.rollout));
        return;
    }
    if status.rendered_revision < status.revision {
        word("nothing of it has come to the hosts yet: is the renderer up? ask: holdfast doctor");
        return;
    }
    let path = format!("/v1/hosts?limit={TROUBLED_READ}");
    let Ok(page) = api.get::<Page<HostView>>(&path).await else { return };
    let now = OffsetDateTime::now_utc();
    // Who is held at the revision or a later one, and lacks nothing else, has it.
    let has_it = |host: &HostView| {
        let is_held_later = host.held.as_ref().is_some_and(|held| held.revision >= status.revision);
        let lacks =
            |component: &ComponentView| component.missing.as_ref().is_some_and(|missing| missing.fact != "held");
        is_held_later && !host.components.iter().any(lacks)
    };
    let is_missing = |host: &&HostView| host.state != holdfast_model::status::State::Converged && !has_it(host);
    let one = |host: &HostView| {
        let seen = words::last_seen(host, now);
        format!("{}/{} ({}, last seen {seen})", host.namespace, host.name, host.sync.word())
    };
    let mut missing: Vec<String> = page.items.iter().filter(is_missing).map(one).collect();
    let Some(first) = page.items.iter().find(is_missing) else { return };
    let more = status.hosts.total.saturating_sub(status.hosts.converged).saturating_sub(TROUBLED_SHOWN as u64);
    missing.truncate(TROUBLED_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    word(&format!("not converged: {}{more}", missing.join(", ")));
    word(&format!("ask: holdfast describe host {}/{}, holdfast get hosts", first.namespace, first.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::status::HostCounts;

    fn mk_status(state: RevisionState, wait: Option<WaitEnd>) -> StatusView {
        let hosts = HostCounts { total: 3, converged: 1, failed: 2, ..HostCounts::default() };
        StatusView {
            revision: 7,
            state,
            hosts,
            latest_revision: 8,
            rendered_revision: 7,
            held: None,
            modes: None,
            wait,
        }
    }

    #[test]
    fn a_wait_ends_as_the_table_of_exit_codes_says() {
        let end = |state, wait| end(&mk_status(state, Some(wait)));
        assert_eq!(end(RevisionState::Converged, WaitEnd::Reached), End::Done);
        assert_eq!(end(RevisionState::Degraded, WaitEnd::Reached), End::Done);
        assert_eq!(end(RevisionState::Degraded, WaitEnd::TimeOver), End::NotConverged);
        assert_eq!(end(RevisionState::Progressing, WaitEnd::TimeOver), End::NotApplied);
        assert_eq!(end(RevisionState::Failed, WaitEnd::Failed), End::Failed);
        assert_eq!(end(RevisionState::Unknown, WaitEnd::TimeOver), End::NotApplied);
    }

    #[test]
    fn a_revision_that_is_not_rendered_is_not_told_with_the_hosts_of_the_one_before() {
        let hosts = HostCounts { total: 3, converged: 3, ..HostCounts::default() };
        let status = StatusView { hosts, rendered_revision: 6, ..mk_status(RevisionState::Published, None) };
        assert_eq!(summary(&status), "revision 7 is not rendered yet; with 6: 3 of 3 hosts converged");
    }

    #[test]
    fn the_words_name_what_is_not_converged() {
        let text = summary(&mk_status(RevisionState::Failed, None));
        assert_eq!(text, "revision 7 is failed: 1 of 3 hosts converged, 2 failed");
        assert_eq!(
            path(Some(7), Some((Wanted::REQUEST_WAIT, WaitFor::Applied))),
            "/v1/status?revision=7&wait=5000ms&for=applied"
        );
    }
}
