//! What a host says of itself as a whole, as answers have it: its conditions, their age, and whether it had its bootstrap.

use holdfast_api::status::{ConditionView, InitializedView, ReportView};
use holdfast_model::condition::{Basis, Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::Version;
use holdfast_model::report::{ComponentReport, StatedCondition};
use holdfast_model::status::{Bootstrap, Initialized, Part, Words};
use holdfast_store::report::ObservedReport;
use holdfast_store::status::{ComponentStatus, HostStatus};
use time::OffsetDateTime;

use super::fleet::{JudgedComponent, JudgedHost};
use super::hosts::rfc3339;

/// The genuine report of the newest session, where that has a word for one.
fn report_of(host: &JudgedHost) -> Option<&ObservedReport> {
    let session = host.status.session.as_ref().filter(|session| session.words == Words::Reports)?;
    let is_of_session = |report: &&ObservedReport| report.place.session_epoch == session.session_epoch;
    host.status.report.as_ref().filter(|_| host.report_valid).filter(is_of_session)
}

/// The genuine report of the newest session with what it says of a component, and whether it was said after the component's last genuine outcome.
fn stated_of<'a>(
    host: &'a JudgedHost,
    status: &ComponentStatus,
    judged: JudgedComponent,
) -> Option<(&'a ObservedReport, &'a ComponentReport, bool)> {
    let report = report_of(host)?;
    let genuine = status.outcome.as_ref().filter(|_| judged.signature_valid);
    let place = genuine.map(|said| (said.outcome.session_epoch, said.outcome.update_seq));
    let is_newer = place.is_none_or(|place| place <= (report.place.session_epoch, report.report.answered));
    Some((report, report.of(status.component)?, is_newer))
}

/// What a host last said that it has in force of a component, and when: by its report or its outcome, whichever is newer, as in the derivation.
pub(super) fn applied_of(
    host: &JudgedHost,
    status: &ComponentStatus,
    judged: JudgedComponent,
) -> Option<(Option<Stamp>, OffsetDateTime)> {
    if let Some((report, stated, true)) = stated_of(host, status, judged) {
        return Some((stated.applied, report.at));
    }
    let said = status.outcome.as_ref().filter(|_| judged.signature_valid)?;
    Some((said.outcome.applied, said.at))
}

/// Every condition of a component as it was last said: what stands beside attempts by the report, the rest by whichever is newer.
pub(super) fn conditions_of(
    host: &JudgedHost,
    status: &ComponentStatus,
    judged: JudgedComponent,
) -> Vec<ConditionView> {
    let genuine = status.outcome.as_ref().filter(|_| judged.signature_valid);
    let of_outcome = genuine.map(|said| said.conditions.as_slice()).unwrap_or_default();
    let attempt = of_outcome.iter().map(|condition| view(condition, Basis::Observed, None));
    let stated = |one: &StatedCondition| view(&one.condition, one.basis, Some(one.observed_at_ms));
    match stated_of(host, status, judged) {
        None => attempt.collect(),
        Some((_, of, true)) => of.conditions.iter().map(stated).collect(),
        Some((_, of, false)) => {
            let stands = |one: &&StatedCondition| !ConditionType::OF_ATTEMPT.contains(&one.condition.kind);
            attempt.chain(of.conditions.iter().filter(stands).map(stated)).collect()
        }
    }
}

fn view(condition: &Condition, basis: Basis, observed_at_ms: Option<u64>) -> ConditionView {
    let status = match condition.status {
        Holds::True => "True",
        Holds::False => "False",
        Holds::Unknown => "Unknown",
    };
    let at = observed_at_ms.and_then(|ms| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok());
    ConditionView {
        kind: condition.kind.word().to_owned(),
        status: status.to_owned(),
        reason: condition.reason.word().to_owned(),
        message: condition.message.clone(),
        observed_version: condition.observed_version.map(Version::raw),
        basis: basis.word().to_owned(),
        observed_at: at.map(rfc3339),
    }
}

/// What a host last said of itself, and how old that is.
pub(super) fn report_view(host: &JudgedHost, now: OffsetDateTime) -> Option<ReportView> {
    let report = host.status.report.as_ref()?;
    let session = host.status.session.as_ref();
    Some(ReportView {
        at: rfc3339(report.at),
        age_ms: u64::try_from((now - report.at).whole_milliseconds()).unwrap_or(0),
        digest: report.report.digest().to_string(),
        in_this_session: session.is_some_and(|session| session.session_epoch == report.place.session_epoch),
        signature_valid: host.report_valid,
    })
}

/// Whether what is not there yet of a host may be so since it does not travel.
pub(super) fn may_be_too_large(host: &JudgedHost) -> bool {
    match initialized(host, false).bootstrap {
        Bootstrap::Pending | Bootstrap::TimedOut => true,
        Bootstrap::Complete | Bootstrap::Missing | Bootstrap::Failed | Bootstrap::Oversized | Bootstrap::Mismatched => {
            false
        }
    }
}

/// Whether a host says that it forwards, and that what passes is not held to its policy.
pub(super) fn forwards_uncovered(host: &JudgedHost) -> bool {
    let is_it = |one: &ConditionView| {
        one.kind == ConditionType::ForwardingCovered.word() && one.reason == Reason::ForwardedNotEnforced.word()
    };
    host.judged().any(|(status, judged)| conditions_of(host, status, *judged).iter().any(is_it))
}

/// Whether a host had its bootstrap.
pub(super) fn initialized(host: &JudgedHost, is_too_large: bool) -> Initialized {
    let parts: Vec<Part> =
        host.judged().map(|(status, judged)| part(&host.status, status, *judged, is_too_large)).collect();
    let session = host.status.session.as_ref();
    holdfast_model::status::initialized(session.map(|session| session.opened_ms_ago), &parts)
}

/// The same for those who ask.
pub(super) fn initialized_view(host: &JudgedHost, is_too_large: bool) -> InitializedView {
    InitializedView::of(initialized(host, is_too_large))
}

fn part(host: &HostStatus, status: &ComponentStatus, judged: JudgedComponent, is_too_large: bool) -> Part {
    let session = host.session.as_ref();
    let said = status.outcome.as_ref().filter(|said| {
        judged.signature_valid && session.is_some_and(|session| session.session_epoch == said.outcome.session_epoch)
    });
    let opened_at = session.map(|session| session.opened_at);
    Part {
        component: status.component,
        latest: status.latest,
        // Only what was said with the host's own signature is recorded as said.
        is_acked: status.last_acked_at.zip(opened_at).is_some_and(|(acked, opened)| acked >= opened),
        said: said.map(|said| (said.outcome.kind, said.outcome.applied, said.reason)),
        is_too_large: is_too_large && status.component == Component::Policy,
    }
}
