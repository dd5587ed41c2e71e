//! The one derivation of truth about the fleet, used by the API, the commands, metrics and audit alike.
//!
//! - `converged` is a proof from complete, fresh evidence. Absence of evidence is `unknown`, never good news.
//! - A state that is not converged comes with the first fact that its proof lacks: the state is a function of that fact alone.
//! - An empty set of hosts is never converged.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::condition::{Condition, ConditionType, Holds, Reason};
use crate::desired::{Component, Stamp};
use crate::report::{REPORT_LATE_MS, StatedCondition};
use crate::statement::OutcomeKind;

mod initialized;

pub use initialized::{BOOTSTRAP_MS, Bootstrap, Initialized, Part, initialized};

/// How long evidence is fresh, in milliseconds: three liveness intervals of 15 s.
pub const FRESH_MS: u64 = 45_000;

/// The state of one (host, component), of a host, or of a revision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Proven to hold the latest version.
    Converged,
    /// Holds the latest version, but a condition that does not block is false.
    Degraded,
    /// On its way.
    Progressing,
    /// Did not take the latest version; holds its last good one.
    Failed,
    /// Not known.
    Unknown,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Converged, Self::Degraded, Self::Progressing, Self::Failed, Self::Unknown];

    /// The word in columns and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Degraded => "degraded",
            Self::Progressing => "progressing",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What of a session a host has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It never had one.
    Never,
    /// None that is open.
    Closed,
    /// An open one.
    Open {
        /// How long ago the gateway last heard the host in it, by the authority's clock.
        heard_ms_ago: u64,
    },
}

/// What a host last said of one component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said<'a> {
    /// Whether it was said in the session that is the host's newest.
    pub in_this_session: bool,
    /// Whether the signature on it is the host's.
    pub is_genuine: bool,
    /// How the update ended.
    pub kind: OutcomeKind,
    /// What the update named.
    pub wanted: Stamp,
    /// What is in force, by its word.
    pub applied: Option<Stamp>,
    /// Conditions as reported.
    pub conditions: &'a [Condition],
}

/// What a host can say in its session, by the protocol of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Words {
    /// How updates ended, and no more: a proof is made of that alone.
    Outcomes,
    /// Also how it is as a whole: a proof needs every condition of that.
    Reports,
}

/// The first protocol that has words for reports.
pub const REPORTS_SINCE_PROTOCOL: u16 = 3;

impl Words {
    /// Those of a protocol; where none is known, as in polls, the least.
    #[must_use]
    pub const fn of_protocol(protocol: Option<u16>) -> Self {
        match protocol {
            Some(REPORTS_SINCE_PROTOCOL..) => Self::Reports,
            Some(_) | None => Self::Outcomes,
        }
    }
}

/// What a host last said of itself as a whole, as far as it is about one component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported<'a> {
    /// Whether it was said in the session that is the host's newest.
    pub in_this_session: bool,
    /// Whether the signature on it is the host's.
    pub is_genuine: bool,
    /// Whether it was said after the last outcome of the component.
    pub is_newer: bool,
    /// What is in force, by its word.
    pub applied: Option<Stamp>,
    /// Every condition.
    pub conditions: &'a [StatedCondition],
}

/// Evidence about one (host, component).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence<'a> {
    /// Which component.
    pub component: Component,
    /// What the host can say in its newest session.
    pub words: Words,
    /// What it last said of itself as a whole.
    pub reported: Option<Reported<'a>>,
    /// For how long it has said nothing of itself as a whole in its newest session, by the authority's clock and without the time in which that was
    /// away.
    pub untold_ms: u64,
    /// Whether everything that is stored of the host can be read.
    pub is_readable: bool,
    /// What was rendered last; absent before the first render.
    pub latest: Option<Stamp>,
    /// The host's newest session.
    pub link: Link,
    /// What the host last said, in whichever session.
    pub said: Option<Said<'a>>,
    /// Whether a rollout holds it at an earlier revision than the last: what it has is then no proof of the last.
    pub is_held: bool,
}

/// The first fact that a proof of convergence lacks, in the order in which facts come about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Missing {
    /// Something that is stored of the host cannot be read: nothing else of it is believed.
    Readable,
    /// Nothing was rendered for it.
    Rendered,
    /// The host never had a session.
    Session,
    /// It has none that is open.
    OpenSession,
    /// It was not heard for [`FRESH_MS`].
    FreshSession,
    /// It has said nothing of this component.
    Answer,
    /// What it said is of a session before this one.
    AnswerInSession,
    /// The signature on what it said is not its own.
    Signature,
    /// It did not take the latest version; its last good one is in force.
    Success,
    /// A policy of its own is in force.
    OwnPolicyGone,
    /// It has said nothing of itself as a whole in this session for [`REPORT_LATE_MS`]: it does not say it any more, or its gateway takes nothing of it.
    ReportInTime,
    /// The latest version is not what it holds.
    Latest,
    /// It holds the latest version under another digest.
    SameContent,
    /// It said in this session nothing of itself as a whole.
    Report,
    /// What it said of itself as a whole is older than its last outcome.
    NewerReport,
    /// The policy has still to prove that it leads to a gateway.
    Trial,
    /// A condition that blocks is not true at the latest version.
    Condition(
        /// Which.
        ConditionType,
        /// Whether it is false, or was not seen.
        Holds,
    ),
    /// A rollout holds it at an earlier revision: it has what it is to have there.
    Held,
    /// A condition that does not block is false.
    Degrading(
        /// Which.
        ConditionType,
    ),
}

impl Missing {
    /// The word in JSON and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Readable => "readable",
            Self::Rendered => "rendered",
            Self::Session => "session",
            Self::OpenSession => "open_session",
            Self::FreshSession => "fresh_session",
            Self::Answer => "answer",
            Self::AnswerInSession => "answer_in_session",
            Self::Signature => "signature",
            Self::Success => "success",
            Self::OwnPolicyGone => "own_policy_gone",
            Self::ReportInTime => "report_late",
            Self::Latest => "latest",
            Self::SameContent => "same_content",
            Self::Report => "report",
            Self::NewerReport => "newer_report",
            Self::Trial => "trial",
            Self::Condition(..) => "condition",
            Self::Held => "held",
            Self::Degrading(_) => "degrading_condition",
        }
    }

    /// Which condition it is about, where it is about one.
    #[must_use]
    pub const fn condition(self) -> Option<ConditionType> {
        match self {
            Self::Condition(kind, _) | Self::Degrading(kind) => Some(kind),
            Self::Readable
            | Self::Rendered
            | Self::Session
            | Self::OpenSession
            | Self::FreshSession
            | Self::Answer
            | Self::AnswerInSession
            | Self::Signature
            | Self::ReportInTime
            | Self::Success
            | Self::OwnPolicyGone
            | Self::Latest
            | Self::Held
            | Self::SameContent
            | Self::Report
            | Self::NewerReport => None,
            Self::Trial => Some(ConditionType::Confirmed),
        }
    }

    /// The state of a (host, component) whose proof lacks this.
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Self::Readable
            | Self::Rendered
            | Self::Session
            | Self::OpenSession
            | Self::FreshSession
            | Self::Signature
            | Self::ReportInTime
            | Self::Report
            | Self::Condition(_, Holds::Unknown | Holds::True) => State::Unknown,
            Self::Answer
            | Self::AnswerInSession
            | Self::Latest
            | Self::SameContent
            | Self::Held
            | Self::NewerReport
            | Self::Trial => State::Progressing,
            Self::Success | Self::OwnPolicyGone | Self::Condition(_, Holds::False) => State::Failed,
            Self::Degrading(_) => State::Degraded,
        }
    }
}

/// What evidence amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The state.
    pub state: State,
    /// The first fact that a proof lacks; absent if, and only if, the state is converged.
    pub missing: Option<Missing>,
}

impl Verdict {
    /// Whether the host is proven to have what was rendered for it last, be that of an earlier revision than the last.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self.state, State::Converged | State::Degraded) || self.missing == Some(Missing::Held)
    }
}

/// The state of one (host, component), and why it is not converged. There is no other way to a state than this one.
#[must_use]
pub fn derive(evidence: &Evidence<'_>) -> Verdict {
    let missing = first_missing(evidence);
    Verdict { state: missing.map_or(State::Converged, Missing::state), missing }
}

fn first_missing(evidence: &Evidence<'_>) -> Option<Missing> {
    let Evidence { component, words, reported, untold_ms, is_readable, latest, link, said, is_held } = evidence;
    if !is_readable {
        return Some(Missing::Readable);
    }
    let Some(latest) = latest else { return Some(Missing::Rendered) };
    match link {
        Link::Never => return Some(Missing::Session),
        Link::Closed => return Some(Missing::OpenSession),
        Link::Open { heard_ms_ago } if *heard_ms_ago >= FRESH_MS => return Some(Missing::FreshSession),
        Link::Open { .. } => {}
    }
    let Some(said) = said else { return Some(Missing::Answer) };
    let Said { in_this_session, is_genuine, kind, wanted, applied, conditions } = said;
    if !in_this_session {
        return Some(Missing::AnswerInSession);
    }
    if !is_genuine {
        return Some(Missing::Signature);
    }
    match kind {
        OutcomeKind::Failed if wanted == latest => return Some(Missing::Success),
        OutcomeKind::RetainedLocalOverride if wanted == latest => return Some(Missing::OwnPolicyGone),
        OutcomeKind::Applied | OutcomeKind::Failed | OutcomeKind::RetainedLocalOverride => {}
    }
    if *words == Words::Reports && *untold_ms >= REPORT_LATE_MS {
        return Some(Missing::ReportInTime);
    }
    // What is not the host's own word in this session says nothing of what it has.
    let report = reported.as_ref().filter(|reported| *words == Words::Reports && reported.in_this_session);
    let newer = report.filter(|report| report.is_genuine && report.is_newer);
    match newer.map_or(*applied, |report| report.applied) {
        Some(applied) if applied == *latest => {}
        Some(applied) if applied.version == latest.version => return Some(Missing::SameContent),
        Some(_) | None => return Some(Missing::Latest),
    }
    match (words, report) {
        (Words::Outcomes, _) => first_of_outcome(*latest, conditions, *is_held),
        (Words::Reports, None) => Some(Missing::Report),
        (Words::Reports, Some(report)) if !report.is_genuine => Some(Missing::Signature),
        (Words::Reports, Some(report)) if !report.is_newer => Some(Missing::NewerReport),
        (Words::Reports, Some(report)) => first_of_report(*component, *latest, report.conditions, *is_held),
    }
}

/// What was seen on the way of the last attempt.
fn first_of_outcome(latest: Stamp, conditions: &[Condition], is_held: bool) -> Option<Missing> {
    let seen = conditions.iter().map(|condition| (condition, condition.status));
    first_condition(&ConditionType::OF_ATTEMPT, latest, seen, is_held)
}

/// What a report says; that a policy is on trial is no lack of evidence, where nothing else is missing.
fn first_of_report(
    component: Component,
    latest: Stamp,
    conditions: &[StatedCondition],
    is_held: bool,
) -> Option<Missing> {
    let first = |without: Option<ConditionType>| {
        let wanted: Vec<ConditionType> =
            ConditionType::of(component).iter().copied().filter(|kind| Some(*kind) != without).collect();
        first_condition(&wanted, latest, conditions.iter().map(|stated| (&stated.condition, stated.proves())), is_held)
    };
    let is_trial = |stated: &StatedCondition| {
        let Condition { kind, reason, observed_version, .. } = &stated.condition;
        (*kind, *reason) == (ConditionType::Confirmed, Reason::OnTrial) && *observed_version == Some(latest.version)
    };
    match first(None) {
        Some(Missing::Condition(ConditionType::Confirmed, Holds::Unknown)) if conditions.iter().any(is_trial) => {
            match first(Some(ConditionType::Confirmed)) {
                Some(worse @ Missing::Condition(..)) => Some(worse),
                Some(_) | None => Some(Missing::Trial),
            }
        }
        other => other,
    }
}

/// The first condition that is not as a proof needs it: those that block before the others, false before unseen. That a host is held comes between:
/// what is degraded counts as applied, and it is not.
fn first_condition<'a>(
    wanted: &[ConditionType],
    latest: Stamp,
    conditions: impl Iterator<Item = (&'a Condition, Holds)> + Clone,
    is_held: bool,
) -> Option<Missing> {
    let seen = |kind: ConditionType| {
        let at = |(condition, _): &(&Condition, Holds)| {
            condition.kind == kind && condition.observed_version == Some(latest.version)
        };
        // Several of one kind: the worst counts.
        let all = conditions.clone().filter(at).map(|(_, status)| status);
        all.max_by_key(|status| rank(*status)).unwrap_or(Holds::Unknown)
    };
    let with = |status: Holds, blocking: bool| {
        let is_so = move |kind: &ConditionType| kind.is_blocking() == blocking && seen(*kind) == status;
        wanted.iter().copied().find(is_so)
    };
    let block = |status: Holds| with(status, true).map(|kind| Missing::Condition(kind, status));
    let blocked = block(Holds::False).or_else(|| block(Holds::Unknown)).or(is_held.then_some(Missing::Held));
    blocked.or_else(|| with(Holds::False, false).map(Missing::Degrading))
}

/// The worst comes last.
const fn rank(holds: Holds) -> u8 {
    match holds {
        Holds::True => 0,
        Holds::Unknown => 1,
        Holds::False => 2,
    }
}

/// How many hosts are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// All of them.
    pub total: u64,
    /// See [`State::Converged`].
    pub converged: u64,
    /// See [`State::Degraded`].
    pub degraded: u64,
    /// See [`State::Progressing`].
    pub progressing: u64,
    /// See [`State::Failed`].
    pub failed: u64,
    /// See [`State::Unknown`].
    pub unknown: u64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, state: State) {
        self.total += 1;
        *match state {
            State::Converged => &mut self.converged,
            State::Degraded => &mut self.degraded,
            State::Progressing => &mut self.progressing,
            State::Failed => &mut self.failed,
            State::Unknown => &mut self.unknown,
        } += 1;
    }

    /// The state of them together: the first of failed, unknown, progressing, degraded that any is in. None at all is unknown.
    #[must_use]
    pub fn roll_up(&self) -> State {
        if self.total == 0 {
            return State::Unknown;
        }
        let worst = [
            (self.failed, State::Failed),
            (self.unknown, State::Unknown),
            (self.progressing, State::Progressing),
            (self.degraded, State::Degraded),
        ];
        worst.into_iter().find(|(count, _)| *count > 0).map_or(State::Converged, |(_, state)| state)
    }
}

impl FromIterator<State> for Counts {
    fn from_iter<T: IntoIterator<Item = State>>(states: T) -> Self {
        let mut counts = Self::default();
        states.into_iter().for_each(|state| counts.add(state));
        counts
    }
}

#[cfg(test)]
mod tests;
