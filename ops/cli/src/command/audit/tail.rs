//! `audit tail`: the end of the log, as a table for people and as it is kept for programs; what comes is `follow`'s.
//!
//! - Names stand for ids where the token may read them; what has no name keeps its id.
//! - `-o json` passes entries on byte for byte, one a line: what comes out can be verified.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use holdfast_api::status::HostView;
use holdfast_api::token::ApiTokenView;
use holdfast_model::drift::DriftCounts;
use serde_json::Value;

use super::Lines;
use super::follow::follow;
use crate::api::{Api, escape};
use crate::error::{End, Error};
use crate::output::{Format, line, table, yaml};
use crate::words::short_time;

/// How many entries are shown if nothing else is asked for.
const LINES_DEFAULT: u64 = 20;
/// The widths of columns in which what comes later is put.
const FOLLOWED_WIDTHS: [usize; 3] = [19, 22, 26];

/// Which entries are wanted.
pub(in super::super) struct Asked {
    pub(in super::super) lines: Option<u64>,
    pub(in super::super) since: Option<String>,
    pub(in super::super) from: Option<u64>,
    pub(in super::super) follow: bool,
    /// How long a followed log may be away.
    pub(in super::super) retry_for: Duration,
}

impl Asked {
    /// How many of those that are there already; all of them if absent.
    const fn last(&self) -> Option<u64> {
        match (self.lines, &self.since, self.from) {
            (Some(lines), ..) => Some(lines),
            (None, None, None) => Some(LINES_DEFAULT),
            (None, Some(_), _) | (None, None, Some(_)) => None,
        }
    }

    /// The first entry to ask for, where one is known; the service keeps the end of the log, and says where it is.
    pub(super) async fn first(&self, api: &Api) -> Result<Option<u64>, Error> {
        match (self.from, self.last()) {
            (Some(from), _) => Ok(Some(from)),
            (None, Some(last)) if self.since.is_none() => {
                let status: Value = api.get("/v1/audit/status").await?;
                let head = status.pointer("/head/n").and_then(Value::as_u64).unwrap_or_default();
                Ok(Some(head.saturating_sub(last).saturating_add(1)))
            }
            (None, _) => Ok(None),
        }
    }

    /// The path of the entries from one on.
    pub(super) fn path(&self, from: Option<u64>) -> String {
        let mut query: Vec<String> = self.since.iter().map(|since| format!("since={}", escape(since))).collect();
        query.extend(from.map(|from| format!("from={from}")));
        if self.follow {
            query.push("follow=true".to_owned());
        }
        let mark = if query.is_empty() { "" } else { "?" };
        format!("/v1/audit/entries{mark}{}", query.join("&"))
    }
}

/// Shows entries.
pub(in super::super) async fn tail(api: &Api, asked: &Asked, format: Format) -> Result<End, Error> {
    if asked.follow {
        return follow(api, asked, format).await;
    }
    let mut lines = Lines::open(api, &asked.path(asked.first(api).await?)).await?;
    match format {
        Format::Json if asked.last().is_none() => {
            while let Some(bytes) = lines.next().await? {
                pass(&bytes)?;
            }
        }
        Format::Json => last_of(&mut lines, asked).await?.iter().try_for_each(|bytes| pass(bytes))?,
        Format::Yaml | Format::Name => {
            let names = Names::load(api).await;
            for bytes in last_of(&mut lines, asked).await? {
                show_one(&bytes, &Row::of(&bytes, &names), format)?;
            }
        }
        Format::Table | Format::Wide => {
            let entries = last_of(&mut lines, asked).await?;
            let names = Names::load(api).await;
            let rows = entries.iter().map(|bytes| Row::of(bytes, &names).cells).collect();
            line(&table(["TIME", "ACTOR", "EVENT", "SUBJECT"], rows))?;
        }
    }
    Ok(End::Done)
}

/// Those that are wanted of those that are there, in memory no more than that.
async fn last_of(lines: &mut Lines, asked: &Asked) -> Result<Vec<Vec<u8>>, Error> {
    let last = asked.last().map_or(usize::MAX, |last| usize::try_from(last).unwrap_or(usize::MAX));
    let mut held = std::collections::VecDeque::new();
    while let Some(bytes) = lines.next().await? {
        held.push_back(bytes);
        if held.len() > last {
            held.pop_front();
        }
    }
    Ok(held.into())
}

fn pass(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.write_all(b"\n")?;
    // Whoever follows wants it now.
    Ok(stdout.flush()?)
}

pub(super) fn show_one(bytes: &[u8], row: &Row, format: Format) -> Result<(), Error> {
    match format {
        Format::Json => pass(bytes),
        Format::Yaml => {
            line("---")?;
            line(yaml(&serde_json::from_slice::<Value>(bytes)?)?.trim_end())
        }
        Format::Name => line(&row.id),
        Format::Table | Format::Wide => {
            let [time, actor, event, subject] = &row.cells;
            let [first, second, third] = FOLLOWED_WIDTHS;
            line(&format!("{time:<first$}  {actor:<second$}  {event:<third$}  {subject}"))
        }
    }
}

/// What ids are called.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// As far as the token may read: an auditor sees hosts, and not the tokens of others.
    pub(super) async fn load(api: &Api) -> Self {
        let mut names = BTreeMap::new();
        if let Ok(page) = api.get_all("/v1/hosts").await {
            let hosts = page.items.into_iter().filter_map(|item| serde_json::from_value::<HostView>(item).ok());
            names.extend(hosts.map(|host| (host.id, format!("{}/{}", host.namespace, host.name))));
        }
        if let Ok(tokens) = api.get::<Vec<ApiTokenView>>("/v1/api-tokens").await {
            names.extend(tokens.into_iter().map(|token| (token.id, token.name)));
        }
        Self(names)
    }

    fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }
}

/// One entry for people.
#[derive(Debug)]
pub(super) struct Row {
    id: String,
    cells: [String; 4],
    pub(super) has_unknown_host: bool,
}

impl Row {
    /// What cannot be read is shown as it is: `audit verify` says what is wrong with it.
    pub(super) fn of(bytes: &[u8], names: &Names) -> Self {
        let entry: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let actor = text("/event/actor");
        // With its kind: a token may be named as any service or host is.
        let actor = match actor.split_once(':') {
            Some((kind @ ("host" | "operator"), id)) => format!("{kind}:{}", names.of(id)),
            Some(_) | None => actor,
        };
        let kind = text("/event/type");
        let kind = kind.strip_prefix("dev.holdfast.").unwrap_or(&kind).to_owned();
        let subject = text("/event/subject");
        let about = about(&subject, entry.pointer("/event/data").unwrap_or(&Value::Null), names);
        let has_unknown_host = about.starts_with("ho_") || actor.starts_with("host:ho_");
        Self { id: text("/event/id"), cells: [short_time(&text("/event/time")), actor, kind, about], has_unknown_host }
    }
}

/// Where the kind of an authored object is: in what went out of force, in what came into it, and where that is too large for an event.
const KINDS: [&str; 3] = ["/kind", "/content/inline/kind", "/content/artifact/kind"];

/// Which policy a host says that it holds, as its session begins.
fn claimed(data: &Value) -> Option<String> {
    let held = data.get("applied")?.as_array()?;
    let policy = held.iter().find(|one| one.get("component").and_then(Value::as_str) == Some("policy"))?;
    Some(format!("holds policy version {}", policy.pointer("/stamp/version").and_then(Value::as_u64)?))
}

/// What differed in a kernel, in words.
fn drifted(data: &Value) -> Option<String> {
    let counts = serde_json::from_value::<DriftCounts>(data.get("counts")?.clone());
    Some(format!("({})", counts.ok()?))
}

/// What an event is about: names, and the few fields that say most.
fn about(subject: &str, data: &Value, names: &Names) -> String {
    let text = |path: &str| match data.pointer(path) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    let name = match (text("/namespace"), text("/name")) {
        (Some(namespace), Some(name)) => {
            let kind = KINDS.iter().find_map(|path| text(path)).map(|kind| format!("{kind}/")).unwrap_or_default();
            format!("{kind}{namespace}/{name}")
        }
        (None, Some(name)) => name,
        (Some(_) | None, None) if subject == "fleet" => String::new(),
        (Some(_) | None, None) => names.of(subject),
    };
    let word = |name: &str, path: &str| text(path).map(|value| format!("{name}{value}"));
    let said = [
        word("", "/verb"),
        word("", "/state"),
        word("", "/component"),
        word("version ", "/wanted/version").or_else(|| word("version ", "/stamp/version")),
        word("", "/reason"),
        word("revision ", "/revision"),
        word("held by ", "/holder"),
        word("", "/role"),
        word("by ", "/process"),
        drifted(data),
        claimed(data),
    ];
    let kind = if data.get("wanted").is_some() { text("/kind") } else { None };
    let parts: Vec<String> =
        [name].into_iter().chain(kind).chain(said.into_iter().flatten()).filter(|one| !one.is_empty()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_by_names_and_the_fields_that_say_most() {
        let names =
            Names([("ho_1".to_owned(), "booking/web-1".to_owned()), ("at_1".to_owned(), "admin".to_owned())].into());
        let row = |event: &str| Row::of(format!(r#"{{"event":{event}}}"#).as_bytes(), &names).cells;
        let put = r#"{"actor":"operator:at_1","type":"dev.holdfast.intent.object.put","subject":"ob_1","time":"2026-01-02T03:04:05.6Z",
            "data":{"namespace":"booking","name":"web","revision":7,"content":{"inline":{"kind":"Policy"}}}}"#;
        assert_eq!(
            row(put),
            ["2026-01-02 03:04:05", "operator:admin", "intent.object.put", "Policy/booking/web revision 7"]
        );
        let outcome = r#"{"actor":"host:ho_1","type":"dev.holdfast.outcome.recorded","subject":"ho_1","time":"2026-01-02T03:04:05Z",
            "data":{"host":"ho_1","kind":"applied","component":"policy","wanted":{"version":4},"reason":"done"}}"#;
        assert_eq!(
            row(outcome)[1..],
            ["host:booking/web-1", "outcome.recorded", "booking/web-1 applied policy version 4 done"]
        );
        let drift = r#"{"actor":"host:ho_1","type":"dev.holdfast.drift.found","subject":"ho_1","time":"2026-01-02T03:04:05Z",
            "data":{"host":"ho_1","total":4,"process":"nft","pid":7,"counts":{"rules_missing":2}}}"#;
        assert_eq!(row(drift)[1..], ["host:booking/web-1", "drift.found", "booking/web-1 by nft (rules missing: 2)"]);
        let opened = r#"{"actor":"gateway:gw_1","type":"dev.holdfast.session.opened","subject":"ho_1","time":"2026-01-02T03:04:05Z",
            "data":{"host":"ho_1","applied":[{"component":"policy","stamp":{"version":3}},{"component":"settings","stamp":{"version":1}}]}}"#;
        assert_eq!(row(opened)[3], "booking/web-1 holds policy version 3");
        let unknown = Row::of(br#"{"event":{"actor":"host:ho_9","subject":"ho_9"}}"#, &names);
        assert!(unknown.has_unknown_host, "{unknown:?}");
        assert_eq!(Row::of(b"no entry", &names).cells, ["", "", "", ""]);
    }
}
