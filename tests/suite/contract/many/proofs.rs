//! What is no proof, through real processes: each single fact that a host's proof needs, taken from what is otherwise whole.
//!
//! - The hosts are scripted, of the newest protocol; gateway, operators' door and database are real.
//! - A host that a rollout holds is `a_host_that_a_rollout_holds_back_is_not_converged_however_well_it_is` in `emptied.rs`: a rollout needs a renderer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use holdfast_model::condition::{Basis, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::{UpdateSeq, Version};
use holdfast_model::report::{ComponentReport, HostReport, StatedCondition};
use holdfast_model::statement::OutcomeKind;
use holdfast_model::status::{Missing, State};
use holdfast_wire::limits::{FRAME_BYTES_MAX, STATUS_FRAME_BYTES_MAX};
use holdfast_wire::message::Kind;
use serde_json::Value;

use super::agent::{DEADLINE, Identity};
use super::agree::assert_agree;
use super::scripted::Scripted;
use super::stage::{Gateway, Stage};
use super::watch::Watch;
use crate::bad_input::frames::raw;

/// One way in which a proof lacks a fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// The host as a whole: every component lacks it.
    Whole(Whole),
    /// The answer to one component's update.
    Answer(Answer),
    /// One component's part of the report.
    Part(Part),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whole {
    NotRendered,
    NeverDials,
    Leaves,
    FallsSilent,
    ReportsNothing,
    ReportedBefore,
    ForgesItsReport,
    ReportsHalf,
    ReportsBeforeItsAnswers,
    ReportIsAltered,
    ReportIsLate,
    CannotBeRead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Missing,
    Before,
    Forged,
    OfAnotherVersion,
    OfOtherContent,
    Is(OutcomeKind),
    Altered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    HasNothing,
    HasAnotherVersion,
    HasOtherContent,
    IsOnTrial,
    Unseen(ConditionType),
    SeenAtAnotherVersion(ConditionType),
    SeenAtNoVersion(ConditionType),
    InferredOnly(ConditionType),
    IsFalse(ConditionType),
}

/// Every way that there is to lack a fact. A new fact does not compile before it has one here.
fn ways(missing: Missing) -> Vec<How> {
    let whole = |ways: &[Whole]| ways.iter().copied().map(How::Whole).collect();
    let answers = |ways: &[Answer]| ways.iter().copied().map(How::Answer).collect();
    let parts = |ways: &[Part]| ways.iter().copied().map(How::Part).collect();
    match missing {
        Missing::Readable => whole(&[Whole::CannotBeRead]),
        Missing::ReportInTime => whole(&[Whole::ReportIsLate]),
        Missing::Rendered => whole(&[Whole::NotRendered]),
        Missing::Session => whole(&[Whole::NeverDials]),
        Missing::OpenSession => whole(&[Whole::Leaves]),
        Missing::FreshSession => whole(&[Whole::FallsSilent]),
        // What is forged or contradicts itself is no answer.
        Missing::Answer => {
            answers(&[Answer::Missing, Answer::Forged, Answer::OfAnotherVersion, Answer::OfOtherContent])
        }
        Missing::AnswerInSession => answers(&[Answer::Before]),
        Missing::Signature => vec![How::Answer(Answer::Altered), How::Whole(Whole::ReportIsAltered)],
        Missing::Success => answers(&[Answer::Is(OutcomeKind::Failed)]),
        Missing::OwnPolicyGone => answers(&[Answer::Is(OutcomeKind::RetainedLocalOverride)]),
        Missing::Latest => parts(&[Part::HasNothing, Part::HasAnotherVersion]),
        Missing::SameContent => parts(&[Part::HasOtherContent]),
        Missing::Report => {
            whole(&[Whole::ReportsNothing, Whole::ReportedBefore, Whole::ForgesItsReport, Whole::ReportsHalf])
        }
        Missing::NewerReport => whole(&[Whole::ReportsBeforeItsAnswers]),
        Missing::Trial => parts(&[Part::IsOnTrial]),
        Missing::Condition(kind, Holds::False) | Missing::Degrading(kind) => parts(&[Part::IsFalse(kind)]),
        Missing::Condition(kind, Holds::Unknown | Holds::True) => {
            let mut all = vec![Part::Unseen(kind), Part::SeenAtAnotherVersion(kind), Part::SeenAtNoVersion(kind)];
            all.extend(kind.can_decay().then_some(Part::InferredOnly(kind)));
            parts(&all)
        }
        // By a rollout, which needs a renderer.
        Missing::Held => vec![],
    }
}

/// Every fact that a component's proof needs.
fn facts(component: Component) -> Vec<Missing> {
    let mut facts = vec![
        Missing::Readable,
        Missing::Rendered,
        Missing::Session,
        Missing::OpenSession,
        Missing::FreshSession,
        Missing::Answer,
        Missing::AnswerInSession,
        Missing::Signature,
        Missing::Success,
        Missing::OwnPolicyGone,
        Missing::Latest,
        Missing::SameContent,
        Missing::Report,
        Missing::ReportInTime,
        Missing::NewerReport,
        Missing::Held,
    ];
    for kind in ConditionType::of(component).iter().copied() {
        if kind.is_blocking() {
            facts.extend([Missing::Condition(kind, Holds::Unknown), Missing::Condition(kind, Holds::False)]);
        } else {
            facts.push(Missing::Degrading(kind));
        }
        if kind == ConditionType::Confirmed {
            facts.push(Missing::Trial);
        }
    }
    facts
}

fn another(stamp: Stamp) -> Stamp {
    Stamp { version: Version::from_raw(stamp.version.raw() + 7).expect("above zero"), ..stamp }
}

fn other(stamp: Stamp) -> Stamp {
    Stamp { digest: Digest::of(b"other"), ..stamp }
}

/// What a component's part of a report is then.
fn alter(part: &mut ComponentReport, how: Part) {
    let stamp = part.applied.expect("it has one");
    let mut change = |kind: ConditionType, change: &dyn Fn(&mut StatedCondition)| {
        let found = part.conditions.iter_mut().find(|one| one.condition.kind == kind);
        change(found.expect("every condition of it"));
    };
    match how {
        Part::HasNothing => part.applied = None,
        Part::HasAnotherVersion => part.applied = Some(another(stamp)),
        Part::HasOtherContent => part.applied = Some(other(stamp)),
        Part::IsOnTrial => change(ConditionType::Confirmed, &|one| {
            (one.condition.status, one.condition.reason) = (Holds::Unknown, Reason::OnTrial);
        }),
        Part::Unseen(kind) => change(kind, &|one| {
            (one.condition.status, one.condition.reason) = (Holds::Unknown, Reason::NotReached);
        }),
        Part::SeenAtAnotherVersion(kind) => {
            change(kind, &|one| one.condition.observed_version = Some(another(stamp).version));
        }
        Part::SeenAtNoVersion(kind) => change(kind, &|one| one.condition.observed_version = None),
        Part::InferredOnly(kind) => change(kind, &|one| one.basis = Basis::Inferred),
        Part::IsFalse(kind) => change(kind, &|one| {
            (one.condition.status, one.condition.reason) = (Holds::False, Reason::NotReached);
        }),
    }
}

/// One host and what its proof lacks.
#[derive(Clone, Debug)]
struct Case {
    component: Component,
    missing: Missing,
    how: How,
}

/// Every (component, fact, way); those of a host as a whole once.
fn cases() -> Vec<Case> {
    let of = |component: Component| {
        let each = move |missing: Missing| ways(missing).into_iter().map(move |how| Case { component, missing, how });
        facts(component).into_iter().flat_map(each)
    };
    let is_new = |case: &Case| case.component == Component::Policy || !matches!(case.how, How::Whole(_));
    Component::ALL.into_iter().flat_map(of).filter(is_new).collect()
}

impl Case {
    /// Says everything that a proof needs, but for the one fact; and how many reports that were.
    async fn say(&self, stage: &Stage, who: &Identity, to: SocketAddr, from: [u8; 4]) -> (Option<Scripted>, usize) {
        let (mut before, is) = (0, |how| self.how == how);
        if is(How::Whole(Whole::NeverDials)) {
            return (None, 0);
        }
        if is(How::Whole(Whole::NotRendered)) {
            return (Some(Scripted::open(who, to, from).await), 0);
        }
        if is(How::Answer(Answer::Before)) || is(How::Whole(Whole::ReportedBefore)) {
            let mut earlier = Scripted::open_whole(who, to, from).await;
            earlier.be_well().await;
            // What is stored later than a newer session begins is of no session that counts.
            let stored = format!(
                "SELECT count(*) FROM observed JOIN statuses USING (host_id) WHERE outcome IS NOT NULL AND host_id = '{}'",
                who.host.uuid()
            );
            stage.sql_until(&stored, "4").await;
            before = 1;
        }
        let mut host = Scripted::open_whole(who, to, from).await;
        let mut report = host.health();
        if let How::Part(how) = self.how {
            let part = report.components.iter_mut().find(|part| part.component == self.component);
            alter(part.expect("every component"), how);
        }
        if is(How::Whole(Whole::ReportsBeforeItsAnswers)) {
            host.report(HostReport { answered: UpdateSeq::ZERO, ..report.clone() }).await;
        }
        for component in Component::ALL {
            match self.how {
                How::Answer(how) if component == self.component => answer(&mut host, component, how).await,
                How::Answer(_) | How::Whole(_) | How::Part(_) => host.applied(component).await,
            }
        }
        match self.how {
            How::Whole(Whole::ReportsNothing | Whole::ReportedBefore) => return (Some(host), before),
            How::Whole(Whole::ReportsBeforeItsAnswers) => {}
            How::Whole(Whole::ForgesItsReport) => host.report_forged(report).await,
            How::Whole(Whole::ReportsHalf) => host.report_half(report).await,
            How::Whole(_) | How::Answer(_) | How::Part(_) => host.report(report).await,
        }
        (Some(host), before + 1)
    }

    /// What becomes of it after it was whole.
    fn befall(&self, stage: &Stage, who: &Identity, host: &mut Option<Scripted>) {
        let of = format!("host_id = '{}'", who.host.uuid());
        let altered = "signature = set_byte(signature, 7, 1 + get_byte(signature, 7) % 200)";
        match self.how {
            How::Whole(Whole::Leaves) => drop(host.take()),
            How::Whole(Whole::FallsSilent) => {
                let ago = "heard_at = clock_timestamp() - interval '46 s'";
                stage.postgres.sql(&format!("UPDATE presence SET {ago} WHERE {of}"));
            }
            How::Whole(Whole::ReportIsAltered) => {
                stage.postgres.sql(&format!("UPDATE statuses SET {altered} WHERE {of}"));
            }
            How::Whole(Whole::ReportIsLate) => {
                let ago = "told_at = clock_timestamp() - interval '15 min 1 s'";
                stage.postgres.sql(&format!("UPDATE statuses SET {ago} WHERE {of}"));
            }
            How::Whole(Whole::CannotBeRead) => {
                stage.postgres.sql(&format!("UPDATE statuses SET components = '{{}}' WHERE {of}"));
            }
            How::Answer(Answer::Altered) => {
                let of = format!("{of} AND component = {}", self.component.number());
                stage.postgres.sql(&format!("UPDATE observed SET {altered} WHERE {of}"));
            }
            How::Whole(_) | How::Answer(_) | How::Part(_) => {}
        }
    }

    /// Fails unless the API says of this host that it lacks this fact, and of its other components nothing.
    fn assert_shown(&self, view: &Value) {
        let components = view["components"].as_array().expect("a list");
        assert_eq!(components.len(), Component::ALL.len(), "{self:?}: {view}");
        assert_eq!(view["state"], self.missing.state().word(), "{self:?}: {view}");
        for one in components {
            let lacks = matches!(self.how, How::Whole(_)) || one["component"] == self.component.word();
            let wanted = lacks.then_some(self.missing);
            let state = wanted.map_or(State::Converged, Missing::state);
            assert_eq!(one["state"], state.word(), "{self:?}: {one}");
            assert_eq!(one["missing"]["fact"].as_str(), wanted.map(Missing::word), "{self:?}: {one}");
            let condition = wanted.and_then(Missing::condition).map(ConditionType::word);
            assert_eq!(one["missing"]["condition"].as_str(), condition, "{self:?}: {one}");
        }
    }
}

async fn answer(host: &mut Scripted, component: Component, how: Answer) {
    let stamp = host.stamp(component);
    match how {
        Answer::Missing | Answer::Before => {}
        Answer::Forged => host.answer_forged(component).await,
        Answer::OfAnotherVersion => host.answer(component, OutcomeKind::Applied, Some(another(stamp))).await,
        Answer::OfOtherContent => host.answer(component, OutcomeKind::Applied, Some(other(stamp))).await,
        Answer::Is(kind) => host.answer(component, kind, None).await,
        Answer::Altered => host.applied(component).await,
    }
}

/// From one of eight addresses: a source has a number of handshakes of its own.
fn source(n: usize) -> [u8; 4] {
    [127, 0, 1, u8::try_from(n % 8 + 1).expect("small")]
}

/// Waits until what these hosts said is processed and stored: facts are stored in the order in which they came, and those of one more host, with which
/// all is well, are the last.
async fn settle(stage: &mut Stage, gateway: &Gateway, reports: f64) -> Scripted {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let heard = gateway.metric("holdfast_gateway_statuses_total").await;
        if heard >= reports {
            assert_eq!(heard, reports, "each is counted once");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{heard} of {reports} reports");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = stage.enrol("last", 1).await;
    let mut host = Scripted::open_whole(&last[0], gateway.address, source(0)).await;
    host.be_well().await;
    let watch = Watch::start(&stage.api);
    watch.until_all(&["last-1".to_owned()], "converged").await;
    host
}

/// Has the last host say that it forwards, and that nothing holds what passes: it is converged all the same, and counted by a gauge of its own.
async fn forwards_uncovered(stage: &Stage, last: &mut Scripted) {
    let mut report = last.health();
    let part = report.components.iter_mut().find(|part| part.component == Component::Policy).expect("every component");
    let mut covered = part.conditions.iter_mut().filter(|one| one.condition.kind == ConditionType::ForwardingCovered);
    let covered = &mut covered.next().expect("every condition of it").condition;
    (covered.status, covered.reason) = (Holds::Unknown, Reason::ForwardedNotEnforced);
    last.report(report).await;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let host = stage.api.get("/v1/hosts/last-1").await.expect("it answers");
        let conditions = host["components"][0]["conditions"].as_array().expect("a list");
        if conditions.iter().any(|one| one["reason"] == "forwarded_not_enforced") {
            assert_eq!(host["state"], "converged", "{host}");
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{host}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn shown(stage: &Stage) -> BTreeMap<String, Value> {
    let page = stage.api.get("/v1/hosts?limit=500").await.expect("it answers");
    let items = page["items"].as_array().expect("a page of hosts").iter();
    items.map(|host| (host["name"].as_str().expect("text").to_owned(), host.clone())).collect()
}

/// Generated from the facts, the components and the conditions that there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_proof_lacks_any_single_fact_is_shown_with_that_fact_and_never_as_converged() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")]);
    let cases = cases();
    assert!(cases.len() > 80 && Component::ALL.iter().all(|one| cases.iter().any(|case| case.component == *one)));
    let (bare, rendered): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| case.how == How::Whole(Whole::NotRendered));
    let unrendered = stage.enrol_unrendered("bare", bare.len()).await;
    let hosts = stage.enrol("web", rendered.len()).await;
    let all: Vec<(Case, Identity)> =
        bare.into_iter().chain(rendered).zip(unrendered.iter().chain(&hosts).cloned()).collect();

    let say = |n: usize| {
        let (stage, gateway, (case, who)) = (&stage, &gateway, &all[n]);
        async move { case.say(stage, who, gateway.address, source(n)).await }
    };
    let said: Vec<_> = stream::iter(0..all.len()).map(say).buffered(16).collect().await;
    let reports: usize = said.iter().map(|(_, reports)| reports).sum();
    let mut last = settle(&mut stage, &gateway, reports as f64).await;
    forwards_uncovered(&stage, &mut last).await;
    let mut open = Vec::new();
    for ((case, who), (mut host, _)) in all.iter().zip(said) {
        case.befall(&stage, who, &mut host);
        open.push(host);
    }
    let left: Vec<String> = all.iter().filter(|(case, _)| case.missing == Missing::OpenSession).map(name).collect();
    let watch = Watch::start(&stage.api);
    watch.until_all(&left, "unknown").await;

    let page = shown(&stage).await;
    for case in &all {
        case.0.assert_shown(&page[&case.1.name]);
    }
    let fleet = stage.api.get("/v1/status").await.expect("it answers");
    for state in State::ALL {
        let lacking = all.iter().filter(|(case, _)| case.missing.state() == state).count();
        let wanted = lacking + usize::from(state == State::Converged);
        assert_eq!(fleet["hosts"][state.word()], wanted, "{state}: {fleet}");
    }
    let status = || stage.holdfast(&["status", "-o", "json"]).output().expect("it runs");
    assert_agree(&stage.api, status, || stage.operators_metrics()).await;
    let metrics = stage.operators_metrics();
    let uncovered = "\nholdfast_fleet_hosts_forwarding_uncovered 1\n";
    assert!(metrics.contains(uncovered), "of one host: {metrics}");
    for outcome in ["missing", "pending", "failed"] {
        let none = format!("holdfast_fleet_hosts_uninitialized{{outcome=\"{outcome}\"}} 0\n");
        assert!(!metrics.contains(&none), "some of them: {none}");
    }
    watch.more_looks(3).await;
    let ever = |(_, who): &&(Case, Identity)| watch.states(&who.name).iter().any(|state| state == "converged");
    assert_eq!(all.iter().filter(ever).map(name).collect::<Vec<_>>(), [""; 0], "seen as converged");
    drop((watch, open, last));

    // It was that fact alone: with it each of them is.
    stage.first_states(&unrendered).await;
    let well = |n: usize| {
        let (gateway, (_, who)) = (&gateway, &all[n]);
        async move {
            let mut host = Scripted::open_whole(who, gateway.address, source(n)).await;
            host.be_well().await;
            host
        }
    };
    let open: Vec<Scripted> = stream::iter(0..all.len()).map(well).buffered(16).collect().await;
    let watch = Watch::start(&stage.api);
    watch.until_all(&all.iter().map(name).collect::<Vec<_>>(), "converged").await;
    drop(open);
}

fn name((_, who): &(Case, Identity)) -> String {
    who.name.clone()
}

/// A frame of the third protocol that calls itself a status: of no bytes, some, more than a report has, as many as an agent may send, and more.
fn garbage(n: usize) -> Vec<u8> {
    const BYTES: [usize; 6] =
        [0, 64, 20_000, STATUS_FRAME_BYTES_MAX - 4, STATUS_FRAME_BYTES_MAX - 3, FRAME_BYTES_MAX - 4];
    raw(3, Kind::Status.number(), &vec![0xff; BYTES[n % BYTES.len()]])
}

/// For longer than a host may be silent: nothing but that keeps its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_says_garbage_of_itself_and_nothing_else_is_alive_keeps_its_session_and_is_not_converged() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[]);
    let hosts = stage.enrol("web", 1).await;
    let mut host = Scripted::open_whole(&hosts[0], gateway.address, source(0)).await;
    for component in Component::ALL {
        host.applied(component).await;
    }
    let view = async || {
        let view = stage.api.get("/v1/hosts/web-1").await.expect("it answers");
        assert_ne!(view["state"], "converged", "{view}");
        view
    };
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while view().await["components"][3]["missing"]["fact"] != "report" {
        assert!(tokio::time::Instant::now() < deadline, "{}", view().await);
    }
    let first = view().await;
    let (began, mut said, mut seen) = (tokio::time::Instant::now(), 0_usize, first["last_seen_at"].clone());
    while began.elapsed() < Duration::from_secs(47) {
        host.send(&garbage(said)).await;
        said += 1;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let now = view().await["last_seen_at"].clone();
            if now.as_str() > seen.as_str() {
                seen = now;
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{said}: not heard since {seen}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let last = view().await;
    assert_eq!(last["session"]["session_epoch"], first["session"]["session_epoch"], "{last}");
    assert_eq!((&last["session"]["open"], &last["presence"]), (&true.into(), &"present".into()), "{last}");
    for one in last["components"].as_array().expect("a list") {
        assert_eq!((&one["state"], &one["missing"]["fact"]), (&"unknown".into(), &"report".into()), "{one}");
    }
    assert_eq!(gateway.metric("holdfast_gateway_statuses_total").await, said as f64, "each is counted");
    let told = "SELECT count(*) BETWEEN 1 AND 8 FROM events WHERE kind = 'protocol.fault' AND payload ->> 'fault' = 'status_refused'";
    stage.sql_until(told, "t").await;

    // In the same session the truth is heard.
    let health = host.health();
    host.report(health).await;
    Watch::start(&stage.api).until_all(&["web-1".to_owned()], "converged").await;
}
