//! `mode set`, `history`, `restore`, and revisions.

use holdfast_api::history::{HostVersionView, MadeView, ObjectVersionView, RestoreRequest, RevisionView};
use holdfast_api::mode::ModeRequest;
use holdfast_api::object::{ApplyResponse, Page};
use holdfast_api::policy::PlanView;
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;

use super::apply::{finish, full_name, object_path};
use super::{plan, rollout, status};
use crate::api::{Api, LONG_TIMEOUT, escape};
use crate::args::Waiting;
use crate::args::past::{History, ModeCommand, Restore};
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash, table, word};
use crate::progress::Progress;
use crate::words::{self, short_time, since};

/// Puts hosts into a mode.
pub(super) async fn mode(api: &Api, command: ModeCommand, format: Format) -> Result<End, Error> {
    let ModeCommand::Set { selector, mode, expect, namespace, careful } = command;
    let request = ModeRequest {
        selector,
        namespace,
        mode: mode.into(),
        expect,
        expected_revision: careful.if_revision,
        acknowledge: careful.acknowledge,
        rollout: rollout::request(&careful.stages),
    };
    let setting = api.change("/v1/mode", &request, Some(LONG_TIMEOUT));
    let response: ApplyResponse = Progress::new(format).during("setting modes", Box::pin(setting)).await?;
    word(&format!("{} to be in {} mode", words::count(expect, "host"), request.mode));
    finish(api, response, Waiting::of(careful.wait, careful.waiting), format).await
}

/// Goes back to a revision, or shows what that would change.
pub(super) async fn restore(api: &Api, restore: Restore, format: Format) -> Result<End, Error> {
    let Restore { revision, objects, plan_only, careful } = restore;
    let objects = objects.iter().map(|object| full_name(object)).collect::<Result<Vec<_>, _>>()?;
    let request = RestoreRequest {
        revision,
        objects,
        expected_revision: careful.if_revision,
        acknowledge: careful.acknowledge,
        rollout: rollout::request(&careful.stages),
    };
    if plan_only {
        let planning = api.post("/v1/restore/plan", &request, Some(LONG_TIMEOUT));
        let planned: PlanView = Progress::new(format).during("planning", Box::pin(planning)).await?;
        plan::show(&planned, format)?;
        if matches!(format, Format::Table | Format::Wide) {
            let only: String = request.objects.iter().map(|object| format!(" --object {object}")).collect();
            let base = planned.base_revision;
            let stages = rollout::flags(&careful.stages);
            word(&format!(
                "nothing was written; to do it: holdfast restore {revision}{only}{stages} --if-revision {base}"
            ));
        }
        return Ok(End::Done);
    }
    let restoring = api.change("/v1/restore", &request, Some(LONG_TIMEOUT));
    let response: ApplyResponse = Progress::new(format).during("restoring", Box::pin(restoring)).await?;
    finish(api, response, Waiting::of(careful.wait, careful.waiting), format).await
}

/// Shows what a host or an object was before.
pub(super) async fn history(api: &Api, history: History, format: Format) -> Result<End, Error> {
    let History { what, name, limit } = history;
    // Kinds of objects have a capital letter, or at least two parts behind them; a host has one at most.
    let host = match (what.as_str(), name.as_deref()) {
        ("host" | "hosts", Some(name)) => Some(name),
        (what, None) if what.starts_with("host/") => what.strip_prefix("host/"),
        (what, None) if !what.starts_with(char::is_uppercase) && what.matches('/').count() < 2 => Some(what),
        (_, _) => None,
    };
    if let Some(host) = host {
        let path = format!("/v1/hosts/{}/history?limit={limit}", escape(host));
        return of_host(&api.get(&path).await?, format);
    }
    let object = name.map_or_else(|| what.clone(), |name| format!("{what}/{name}"));
    let path = format!("{}/history?limit={limit}", object_path(&object)?);
    of_object(&api.get(&path).await?, format)
}

fn of_host(page: &Page<HostVersionView>, format: Format) -> Result<End, Error> {
    let now = OffsetDateTime::now_utc();
    let row = |one: &HostVersionView| {
        [
            one.stamp.version.to_string(),
            one.made.revision.to_string(),
            since(&one.rendered_at, now),
            verb(&one.made),
            one.made.actor.clone(),
            or_dash(one.outcome.as_ref()),
        ]
    };
    let rows = page.items.iter().map(row).collect();
    let text = table(["VERSION", "REVISION", "RENDERED", "VERB", "ACTOR", "OUTCOME"], rows);
    let names = page.items.iter().map(|one| one.stamp.version.to_string()).collect();
    Answer { value: page, names, text }.show(format)?;
    tell_more(page, format);
    Ok(End::Done)
}

fn of_object(page: &Page<ObjectVersionView>, format: Format) -> Result<End, Error> {
    let now = OffsetDateTime::now_utc();
    let row = |one: &ObjectVersionView| {
        let made = &one.made;
        [made.revision.to_string(), one.change.word().to_owned(), since(&made.at, now), verb(made), made.actor.clone()]
    };
    let text = table(["REVISION", "CHANGE", "WHEN", "VERB", "ACTOR"], page.items.iter().map(row).collect());
    let names = page.items.iter().map(|one| one.made.revision.to_string()).collect();
    Answer { value: page, names, text }.show(format)?;
    tell_more(page, format);
    Ok(End::Done)
}

fn tell_more<T>(page: &Page<T>, format: Format) {
    if page.next_cursor.is_some() && matches!(format, Format::Table | Format::Wide) {
        word("there are older ones: --limit shows up to 500");
    }
}

/// What nobody asked for has no verb.
fn verb(made: &MadeView) -> String {
    or_dash(made.verb.as_ref())
}

/// Lists revisions, newest first.
pub(super) async fn revisions(api: &Api, format: Format) -> Result<End, Error> {
    let page: Page<Value> = api.get_all("/v1/revisions").await?;
    let made = all::<MadeView>(&page)?;
    let now = OffsetDateTime::now_utc();
    let row = |one: &MadeView| {
        [one.revision.to_string(), since(&one.at, now), verb(one), one.actor.clone(), or_dash(one.operation.as_ref())]
    };
    let text = table(["REVISION", "WHEN", "VERB", "ACTOR", "OPERATION"], made.iter().map(row).collect());
    let names = made.iter().map(|one| one.revision.to_string()).collect();
    Answer { value: &page, names, text }.show(format)?;
    Ok(End::Done)
}

fn all<T: DeserializeOwned>(page: &Page<Value>) -> Result<Vec<T>, Error> {
    Ok(page.items.iter().map(|item| serde_json::from_value(item.clone())).collect::<Result<_, _>>()?)
}

/// Shows one revision: what it changed, and how far it is.
pub(super) async fn revision(api: &Api, number: &str, format: Format) -> Result<End, Error> {
    let view: RevisionView = api.get(&format!("/v1/revisions/{}", escape(number))).await?;
    Answer { value: &view, names: vec![view.made.revision.to_string()], text: revision_text(&view) }.show(format)?;
    Ok(End::Done)
}

fn revision_text(view: &RevisionView) -> String {
    let made = &view.made;
    let by = made.verb.as_ref().map_or_else(String::new, |verb| format!(", by {verb}"));
    let mut lines = vec![
        format!("revision {} of {}{by}", made.revision, made.actor),
        format!("  made       {} ({})", since(&made.at, OffsetDateTime::now_utc()), short_time(&made.at)),
    ];
    lines.extend(made.operation.as_ref().map(|operation| format!("  operation  {operation}")));
    lines.push(format!("  state      {}", status::summary(&view.status)));
    let is_rendered = view.status.rendered_revision >= made.revision;
    lines.push(match (view.has_hosts, is_rendered) {
        (true, _) => "  of         the hosts whose desired state it changed".to_owned(),
        (false, true) => {
            "  of         the whole fleet: it changed the desired state of no host that is there".to_owned()
        }
        (false, false) => "  of         the whole fleet: which hosts it is for is known once it is rendered".to_owned(),
    });
    lines.extend(view.status.held.as_ref().map(|held| format!("  held       {}", held.text())));
    let overwritten = |at| {
        format!(
            "  overwritten  by revision {at}, at least in part: hosts that were rendered with both at once never had it"
        )
    };
    lines.extend(view.overwritten_at.map(overwritten));
    lines.push(String::new());
    lines.extend(view.objects.iter().map(|one| format!("{} {}", one.object, one.change.word())));
    let host = |one: &holdfast_api::history::HostChangeView| format!("host {} {}", one.name, one.change.word());
    lines.extend(view.hosts_changed.iter().map(host));
    if view.hidden > 0 {
        lines.push(format!("and {} that you may not see", view.hidden));
    }
    lines.join("\n")
}
