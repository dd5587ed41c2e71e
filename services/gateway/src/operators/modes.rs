//! `POST /v1/mode`: all hosts that a selector matches, into one mode, by one change.
//!
//! - Which hosts those are is found on the revision that the change is stored on; it then holds for them by name, whatever labels move afterwards.
//! - Another number of hosts than was expected is refused: nobody opens or closes more than they counted.

use std::sync::Arc;

use axum::extract::State;
use holdfast_api::mode::ModeRequest;
use holdfast_api::object::ApplyResponse;
use holdfast_api::problem::Problem;
use holdfast_events::OperationVerb;
use holdfast_model::intent::{EnrolledHost, Object, Spec};
use holdfast_model::label::{Selector, SelectorError};
use holdfast_model::name::Name;
use holdfast_runtime::Chain;

use super::auth::{Act, Caller};
use super::brake::{self, Asked};
use super::door::Shared;
use super::etag::{IfMatch, expected};
use super::intent::Snapshot;
use super::names::{host_name, hosts};
use super::objects::{Answered, answer};
use super::plan::Wanted;
use super::refuse::Refusal;
use super::request::Body;
use super::rollouts::InStages;

/// How many hosts a refusal names.
const NAMED_MAX: usize = 5;

/// Puts all hosts that a selector matches into a mode, or none of them.
#[utoipa::path(post, path = "/v1/mode", operation_id = "set_mode", tag = "hosts", request_body = ModeRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "The name of this request, the caller's own: the same again is answered, not done"),
    ("If-Match" = Option<String>, Header, description = "The `etag` of the intent that was read: refused if there is a later revision"),
), responses(
    (status = 200, body = ApplyResponse),
    (status = 409, description = "Another number of hosts matches, there is a later revision, or it takes much away", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn set_mode(
    State(door): State<Shared>,
    caller: Caller,
    tag: IfMatch,
    Body { value: request, key }: Body<ModeRequest>,
) -> Result<Answered, Refusal> {
    caller.may(Act::Edit)?;
    let on = expected(request.expected_revision, tag)?;
    let choice = Arc::new(Choice::read(&request)?);
    if let Some(namespace) = &choice.namespace {
        caller.may_in(Act::Edit, namespace)?;
    }
    let (mode, count) = (request.mode, request.expect);
    let (asker, chosen) = (caller.clone(), Arc::clone(&choice));
    let asked = Asked {
        wanted: Box::new(move |base| {
            let hosts = chosen.hosts(base, &asker);
            if hosts.len() as u64 != count {
                return Err(Refusal::unexpected(&host_names(&hosts), count));
            }
            let put = |host: &&EnrolledHost| {
                let mut spec = base.host_spec(&host.namespace, &host.name).cloned().unwrap_or_default();
                spec.mode = Some(mode);
                Object { namespace: host.namespace.clone(), name: host.name.clone(), spec: Spec::Host(spec) }
            };
            Ok(Arc::new(Wanted { puts: hosts.iter().map(put).collect(), ..Wanted::default() }))
        }),
        verb: OperationVerb::Mode,
        expected: on,
        only_if: None,
        key: key.map(|key| key.of(&caller)),
        acknowledge: request.acknowledge,
        in_stages: InStages::read(&caller, Act::Edit, request.rollout)?,
    };
    let (base, applied) = brake::store(&door, &caller, asked).await?;
    answer(&door, Some(&base), applied, Vec::new(), on).await
}

fn host_names(hosts: &[&EnrolledHost]) -> Vec<String> {
    let mut names: Vec<String> = hosts.iter().map(|host| host_name(host)).collect();
    names.sort();
    names
}

/// Which hosts are meant.
struct Choice {
    selector: Selector,
    namespace: Option<Name>,
}

impl Choice {
    fn read(request: &ModeRequest) -> Result<Self, Refusal> {
        let name = |text: &String| {
            text.parse().map_err(|error: holdfast_model::name::NameError| {
                Refusal::invalid("namespace", "name", error.to_string())
            })
        };
        Ok(Self {
            selector: selector(&request.selector)?,
            namespace: request.namespace.as_ref().map(name).transpose()?,
        })
    }

    /// Those of them that a caller may see, in the order of their ids.
    fn hosts<'a>(&self, base: &'a Snapshot, caller: &'a Caller) -> Vec<&'a EnrolledHost> {
        let is_meant = |host: &&EnrolledHost| {
            let is_there = self.namespace.as_ref().is_none_or(|namespace| *namespace == host.namespace);
            is_there && self.selector.matches(&base.labels_of(host))
        };
        hosts(base, caller).filter(is_meant).collect()
    }
}

/// Reads `all`, or conditions with commas.
/// `all`, or conditions on labels as everywhere.
fn selector(text: &str) -> Result<Selector, Refusal> {
    if text.trim() == "all" {
        return Ok(Selector::everything());
    }
    text.parse().map_err(|error: SelectorError| {
        let forms = "labels are named as app=web, app!=web, app in (web, db), app or !app, several with commas; all hosts as `all`";
        Refusal::invalid("selector", "selector", format!("{}: {forms}", Chain(&error)))
    })
}

impl Refusal {
    /// Another number of hosts matches than was expected.
    fn unexpected(found: &[String], expected: u64) -> Self {
        let count = found.len() as u64;
        let difference =
            if count > expected { format!("{} more", count - expected) } else { format!("{} fewer", expected - count) };
        let named = match found {
            [] => String::new(),
            some => {
                let more = if some.len() > NAMED_MAX { ", …" } else { "" };
                let first: Vec<&str> = some.iter().take(NAMED_MAX).map(String::as_str).collect();
                format!(" ({}{more})", first.join(", "))
            }
        };
        let hosts = if count == 1 { "host matches" } else { "hosts match" };
        let text = format!("{count} {hosts}{named}, {difference} than the {expected} expected; nothing was changed");
        Self::new(holdfast_api::problem::ProblemType::UnexpectedCount, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_all_or_conditions_that_all_hold() {
        let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let matches = |text: &str, pairs: &[(&str, &str)]| selector(text).expect("reads").matches(&labels(pairs));
        assert!(matches("all", &[]) && matches("app=web", &[("app", "web")]) && matches("app==web", &[("app", "web")]));
        assert!(!matches("app=web,env=prod", &[("app", "web")]));
        assert!(matches("app != web, !old", &[("app", "db")]) && !matches("!old", &[("old", "")]));
        assert!(matches("app", &[("app", "")]) && !matches("app", &[]));
        assert!(matches("app in (web, db)", &[("app", "db")]) && !matches("app notin (web, db)", &[("app", "db")]));
        for wrong in ["", ",", "app=web,", "=web", "app=we b", "a b", "!", "app in ()"] {
            assert!(selector(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_refusal_of_another_number_says_both_and_the_difference() {
        let names: Vec<String> = (1..=7).map(|n| format!("default/web-{n}")).collect();
        let text = |count: usize, expected| Refusal::unexpected(names.get(..count).expect("some"), expected);
        assert!(text(7, 5).problem().detail.starts_with("7 hosts match (default/web-1"), "{:?}", text(7, 5).problem());
        assert!(text(7, 5).problem().detail.contains("…), 2 more than the 5 expected; nothing was changed"));
        assert!(text(1, 2).problem().detail.contains("1 host matches (default/web-1), 1 fewer than the 2 expected"));
        assert!(text(0, 2).problem().detail.starts_with("0 hosts match, 2 fewer"));
    }
}
