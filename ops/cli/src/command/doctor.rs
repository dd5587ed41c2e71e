//! `doctor`: one screen that says what is wrong and what to do.
//!
//! - Checks depend on each other: after the first that leads nowhere the rest is not looked at, and that is said.
//! - What only the API can know it says itself; all that is concluded here is that a fleet nobody can hear is not itself the trouble.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdfast_api::object::Page;
use holdfast_api::plane::{CheckState, PlaneView};
use holdfast_api::problem::ProblemType;
use holdfast_api::rollout::HeldView;
use holdfast_api::status::{HostView, RevisionState, StatusView};
use holdfast_identity::https::{self, Client, Response};
use holdfast_identity::{ShownCertificate, TrustRoots, tls};
use holdfast_model::status::State;
use hyper::header::DATE;
use serde::Serialize;
use time::format_description::well_known::{Rfc2822, Rfc3339};
use time::{Duration, OffsetDateTime};

use super::status::{not_enforced, summary};
use crate::api::{Api, token};
use crate::args::Connection;
use crate::error::{End, Error};
use crate::output::{Answer, Format, word};
use crate::words::{count, short_time};

/// How far two clocks may be apart: a new certificate is five minutes old when it is made, and tokens end by the minute.
const SKEW_MAX: Duration = Duration::seconds(60);
/// How many hosts in trouble are named.
const HOSTS_NAMED_MAX: u8 = 3;
/// A certificate that ends sooner was not renewed when it should have been.
const RENEWAL: Duration = Duration::hours(1);

/// `init` replaces nothing that is there.
const ISSUE_ANEW: &str = "have it issued anew, where the CA's key is: take KEYS/gateway-operators/gateway-operators.pem away, run `holdfast-renderer init --dir KEYS` \
                          with the names that it had (--gateway-operators-name), give the gateway both new files and start it again";

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: String,
    state: CheckState,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Everything that was looked at, in order.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn well(&mut self, name: &str, detail: impl Into<String>) {
        self.put(name, CheckState::Ok, detail.into(), None);
    }

    fn watch(&mut self, name: &str, detail: impl Into<String>, remedy: impl Into<String>) {
        self.put(name, CheckState::Watch, detail.into(), Some(remedy.into()));
    }

    fn unwell(&mut self, name: &str, detail: impl Into<String>, remedy: impl Into<String>) {
        self.put(name, CheckState::Trouble, detail.into(), Some(remedy.into()));
    }

    fn put(&mut self, name: &str, state: CheckState, detail: String, remedy: Option<String>) {
        self.0.push(Check { name: name.to_owned(), state, ok: state == CheckState::Ok, detail, remedy });
    }

    fn error(&mut self, name: &str, error: &Error, remedy: &str) {
        let text = error.to_text();
        let text = text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default().to_owned();
        self.unwell(name, text, error.advice().unwrap_or(remedy.into()));
    }

    /// The names of those that are so.
    fn named(&self, state: CheckState) -> Vec<&str> {
        self.0.iter().filter(|check| check.state == state).map(|check| check.name.as_str()).collect()
    }
}

/// Looks at everything.
pub(super) async fn doctor(connection: &Connection, format: Format) -> Result<End, Error> {
    let mut checks = Checks::default();
    let reached_end = look(connection, &mut checks).await.is_some();
    let (troubles, watched) = (checks.named(CheckState::Trouble), checks.named(CheckState::Watch));
    let end = match (troubles.is_empty(), watched.is_empty()) {
        (true, true) => End::Done,
        (true, false) => End::UnderWay,
        (false, _) => End::Failed,
    };
    let value = serde_json::json!({ "ok": end == End::Done, "complete": reached_end, "checks": checks.0 });
    let names = troubles.iter().chain(&watched).map(|name| (*name).to_owned()).collect();
    Answer { value: &value, names, text: text(&checks.0) }.show(format)?;
    if matches!(format, Format::Table | Format::Wide) {
        word(&conclusion(troubles.len() as u64, watched.len() as u64, reached_end));
    }
    Ok(end)
}

fn conclusion(troubles: u64, watched: u64, reached_end: bool) -> String {
    let rest = if reached_end { "" } else { "; what depends on it was not looked at" };
    let to_watch = format!("{} to watch: look again in half a minute", count(watched, "check"));
    match (troubles, watched) {
        (0, 0) => "everything is well".to_owned(),
        (0, _) => format!("nothing is in trouble, {to_watch}"),
        (_, 0) => format!("{} in trouble{rest}", count(troubles, "check")),
        _ => format!("{} in trouble{rest}, {to_watch}", count(troubles, "check")),
    }
}

fn text(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let word = match check.state {
            CheckState::Ok => "ok     ",
            CheckState::Watch => "watch  ",
            CheckState::Trouble => "TROUBLE",
        };
        lines.push(format!("{word}  {:<14}  {}", check.name, check.detail));
        lines.extend(check.remedy.as_ref().map(|remedy| format!("         {:<14}  -> {remedy}", "")));
    }
    lines.join("\n")
}

/// Every check in order; nothing once one leads nowhere.
async fn look(connection: &Connection, checks: &mut Checks) -> Option<()> {
    let base = settings(connection, checks);
    let roots = authority(connection, checks);
    let has_token = shown_token(connection, checks);
    let (base, roots) = (base?, roots?);
    let response = reached(&base, &roots, checks).await?;
    certificate(&response, checks);
    clock(&response, checks);
    let api = Api::new(connection).ok().filter(|_| has_token)?;
    match api.get::<PlaneView>("/v1/plane").await {
        Ok(plane) => the_plane(&plane, checks),
        Err(error) => {
            checks.error(blamed(&error), &error, "look at the gateway's log");
            return None;
        }
    }
    fleet(&api, checks).await;
    Some(())
}

/// The part that an answer to the question for the plane is about.
fn blamed(error: &Error) -> &'static str {
    let Error::Refused(problem) = error else { return "connection" };
    match (problem.known_type(), problem.status) {
        (Some(ProblemType::DatabaseUnavailable), _) => "database",
        (Some(ProblemType::Unauthenticated | ProblemType::NotAllowed), _) => "token",
        (_, 404) => "version",
        (Some(_) | None, _) => "gateway",
    }
}

fn settings(connection: &Connection, checks: &mut Checks) -> Option<String> {
    let Some(base) = &connection.api else {
        checks.unwell(
            "address",
            "the API's address is not set",
            "set HOLDFAST_API or --api; for the demo: . .holdfast/env",
        );
        return None;
    };
    if !base.starts_with("https://") {
        checks.unwell(
            "address",
            format!("`{base}` ({})", connection.origins.api),
            "an address is written as https://HOST:PORT",
        );
        return None;
    }
    checks.well("address", format!("{base} ({})", connection.origins.api));
    Some(base.clone())
}

fn authority(connection: &Connection, checks: &mut Checks) -> Option<TrustRoots> {
    let Some(path) = &connection.ca else {
        checks.unwell(
            "CA",
            "the CA's certificate is not set",
            "set HOLDFAST_CA or --ca; for the demo: . .holdfast/env",
        );
        return None;
    };
    match TrustRoots::load(path) {
        Ok(roots) => {
            checks.well("CA", format!("{} ({})", path.display(), connection.origins.ca));
            Some(roots)
        }
        Err(error) => {
            checks.error(
                "CA",
                &Error::Ca(error),
                "have the CA's certificate given anew: keys/public/ca.pem of the plane",
            );
            None
        }
    }
}

fn shown_token(connection: &Connection, checks: &mut Checks) -> bool {
    if let Err(error) = token(connection) {
        checks.error("token file", &error, "set HOLDFAST_TOKEN_FILE or --token-file; for the demo: . .holdfast/env");
        return false;
    }
    match &connection.token_file {
        Some(path) => checks
            .well("token file", format!("{} (mode {}, {})", path.display(), mode(path), connection.origins.token_file)),
        None => checks.well("token file", "none: the token itself is in HOLDFAST_TOKEN"),
    }
    true
}

fn mode(path: &Path) -> String {
    let mode = std::fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
    mode.map_or_else(|_| "?".to_owned(), |mode| format!("{mode:04o}"))
}

async fn reached(base: &str, roots: &TrustRoots, checks: &mut Checks) -> Option<Response> {
    let config = match tls::https(roots) {
        Ok(config) => config,
        Err(error) => {
            checks.error("connection", &Error::Tls(error), "this build cannot speak TLS with that CA");
            return None;
        }
    };
    match Api::probe(&Client::new(config), base).await {
        Ok(response) if response.status.is_success() => {
            checks.well("connection", "answers, over TLS under this CA");
            Some(response)
        }
        Ok(response) => {
            let remedy =
                "the address must be the operators' door of holdfast-gateway, not the agents' or the audit service's";
            checks.unwell("connection", format!("something else answers there: {}", response.status), remedy);
            None
        }
        Err(error) => {
            let remedy = if matches!(error, Error::Exchange(https::Error::Tls { .. })) {
                "the server's certificate is of another CA, for another name, or outside its dates: compare HOLDFAST_CA and the address"
            } else if matches!(error, Error::Exchange(https::Error::HungUp { .. })) {
                "something listens there and hangs up: is the gateway behind it up? the demo's: ./ops/up --detach"
            } else {
                "is the gateway up, and the address right? the demo's: ./ops/up --detach"
            };
            let text = error.to_text();
            let text = text.lines().next().unwrap_or_default();
            checks.unwell("connection", text.strip_prefix("error: ").unwrap_or(text), remedy);
            None
        }
    }
}

fn certificate(response: &Response, checks: &mut Checks) {
    let shown = response.peer_certificates.first().map(ShownCertificate::of);
    match shown {
        Some(Ok(shown)) => dates(&shown, OffsetDateTime::now_utc(), checks),
        Some(Err(_)) | None => {
            checks.unwell("certificate", "the server's certificate cannot be read", ISSUE_ANEW);
        }
    }
}

fn dates(shown: &ShownCertificate, now: OffsetDateTime, checks: &mut Checks) {
    let until = shown.validity.not_after;
    let date = until.format(&Rfc3339).unwrap_or_else(|_| until.to_string());
    let detail = format!("for {}, until {}", shown.names.join(", "), short_time(&date));
    if until - now < RENEWAL {
        checks.unwell("certificate", detail, ISSUE_ANEW);
    } else {
        checks.well("certificate", detail);
    }
}

fn clock(response: &Response, checks: &mut Checks) {
    let told = response.headers.get(DATE).and_then(|date| date.to_str().ok());
    match told.and_then(http_date) {
        Some(theirs) => skew(OffsetDateTime::now_utc() - theirs, checks),
        None => {
            let remedy = "something stands between you and the gateway: ask it directly";
            checks.unwell("clock", "the gateway does not say what time it is", remedy);
        }
    }
}

fn skew(skew: Duration, checks: &mut Checks) {
    let detail = match skew.whole_seconds() {
        // The other side tells whole seconds, and the answer was on its way.
        -2..=2 => "the same as the gateway's".to_owned(),
        ahead @ 3.. => format!("{ahead} s ahead of the gateway's"),
        behind => format!("{} s behind the gateway's", behind.unsigned_abs()),
    };
    if skew.abs() > SKEW_MAX {
        checks.unwell(
            "clock",
            detail,
            "set both clocks by NTP (timedatectl): certificates and tokens end by the clock",
        );
    } else {
        checks.well("clock", detail);
    }
}

/// A time as HTTP writes it: RFC 2822 with `GMT`.
fn http_date(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822).ok()
}

fn the_plane(plane: &PlaneView, checks: &mut Checks) {
    let own = env!("CARGO_PKG_VERSION");
    if plane.version == own {
        checks.well("version", format!("{own} on both sides"));
    } else {
        let detail = format!("this is {own}, the gateway is {}", plane.version);
        checks.unwell("version", detail, "install the same release on both sides");
    }
    let scope = plane.token.namespaces.as_ref().map_or_else(|| "all namespaces".to_owned(), |names| names.join(", "));
    let until =
        plane.token.expires_at.as_ref().map_or_else(|| "no end".to_owned(), |at| format!("until {}", short_time(at)));
    checks.well("token", format!("{} is {} of {scope}, {until}", plane.token.name, plane.token.role));
    for check in &plane.checks {
        // Who reaches some namespaces only is not told what was seen.
        let detail = check.detail.clone().unwrap_or_else(|| "only a token for all namespaces is told more".to_owned());
        checks.put(&check.name, check.state, detail, check.remedy.clone());
    }
}

async fn fleet(api: &Api, checks: &mut Checks) {
    match api.get::<StatusView>("/v1/status").await {
        Ok(status) => {
            let open = not_enforced(&status).map(|open| format!("; {open}")).unwrap_or_default();
            let detail = summary(&status) + &open;
            let is_all_else_well = checks.named(CheckState::Trouble).is_empty();
            // What a rollout holds back may stay so for days: it hides nobody who is in trouble.
            let is_in_trouble = status.hosts.failed > 0 || (status.hosts.unknown > 0 && is_all_else_well);
            match (status.state, &status.held) {
                (RevisionState::Converged, _) => checks.well("fleet", detail),
                (RevisionState::Published | RevisionState::Progressing, Some(held)) => {
                    if is_in_trouble {
                        in_trouble(api, detail, Some(held), checks).await;
                    } else {
                        let remedy = format!("holdfast rollout get {} says what it waits for", held.rollout);
                        checks.watch("fleet", format!("{detail}; {}", held.text()), remedy);
                    }
                }
                (RevisionState::Published | RevisionState::Progressing, None) => checks.watch(
                    "fleet",
                    detail,
                    "a change is under way: holdfast wait --for converged, or holdfast get hosts",
                ),
                (RevisionState::Unknown, _) if status.hosts.total == 0 => {
                    let remedy = "enrol one: holdfast enrol-token create --help";
                    checks.unwell("fleet", "no host is enrolled that this token may see", remedy);
                }
                // Hosts are heard through what is in trouble: that is told once, where it is.
                (RevisionState::Unknown, _) if !is_all_else_well => {
                    checks.watch("fleet", detail, "it is not known while what is told above is in trouble");
                }
                (RevisionState::Degraded | RevisionState::Failed | RevisionState::Unknown, _) => {
                    in_trouble(api, detail, status.held.as_ref(), checks).await;
                }
            }
        }
        Err(error) => checks.error("fleet", &error, "look at the gateway's log"),
    }
}

/// Tells that hosts are in trouble, and which first; a rollout that is open beside that is named.
async fn in_trouble(api: &Api, detail: String, held: Option<&HeldView>, checks: &mut Checks) {
    let worst = worst(api).await;
    let named = worst.as_ref().map_or(String::new(), |(named, _)| format!("; {named}"));
    let name = worst.map_or("NAMESPACE/NAME".to_owned(), |(_, first)| first);
    let held =
        held.map_or(String::new(), |held| format!("; holdfast rollout get {} has what is held back", held.rollout));
    let remedy = format!("holdfast explain host {name} says what is missing; holdfast get hosts has the others{held}");
    checks.unwell("fleet", format!("{detail}{named}"), remedy);
}

/// The first hosts in trouble, as words, and the name of the very first. Without an answer there are none: the fleet is told by its counts.
async fn worst(api: &Api) -> Option<(String, String)> {
    let page: Page<HostView> = api.get(&format!("/v1/hosts?limit={HOSTS_NAMED_MAX}")).await.ok()?;
    let is_in_trouble = |host: &&HostView| matches!(host.state, State::Failed | State::Unknown | State::Degraded);
    let hosts: Vec<&HostView> = page.items.iter().filter(is_in_trouble).collect();
    let first = hosts.first().map(|host| format!("{}/{}", host.namespace, host.name))?;
    let named = hosts.iter().map(|host| format!("{}/{} is {}", host.namespace, host.name, host.state));
    Some((named.collect::<Vec<_>>().join(", "), first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_identity::Validity;

    #[test]
    fn the_time_of_an_answer_is_read() {
        let time = http_date("Sun, 29 Nov 2026 20:00:01 GMT").expect("a time");
        assert_eq!(time.format(&Rfc3339).expect("text"), "2026-11-29T20:00:01Z");
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn a_certificate_that_ends_within_the_hour_and_a_clock_a_minute_off_are_trouble() {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(1);
        let validity = |left| Validity { not_before: OffsetDateTime::UNIX_EPOCH, not_after: now + left };
        let seen = |left| {
            let mut checks = Checks::default();
            dates(&ShownCertificate { names: vec!["x".to_owned()], validity: validity(left) }, now, &mut checks);
            checks.0.remove(0)
        };
        assert!(seen(Duration::hours(2)).ok);
        let ending = seen(Duration::minutes(59));
        assert!(!ending.ok && ending.remedy.is_some(), "{ending:?}");
        let apart = |seconds| {
            let mut checks = Checks::default();
            skew(Duration::seconds(seconds), &mut checks);
            checks.0.remove(0)
        };
        assert_eq!(apart(-1).detail, "the same as the gateway's");
        assert_eq!((apart(60).ok, apart(60).detail.as_str()), (true, "60 s ahead of the gateway's"));
        let behind = apart(-61);
        assert!(!behind.ok && behind.remedy.is_some(), "{behind:?}");
    }

    #[test]
    fn what_is_not_well_is_told_with_what_to_do() {
        let mut checks = Checks::default();
        checks.well("address", "https://x");
        checks.unwell("CA", "is not set", "set it");
        let shown = text(&checks.0);
        assert_eq!(
            shown,
            "ok       address         https://x\nTROUBLE  CA              is not set\n                         -> set it"
        );
    }
}
