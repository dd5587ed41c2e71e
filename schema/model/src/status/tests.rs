//! The derivation of states: a proof, what it is without any one fact, and an oracle.

use proptest::prelude::*;

use super::*;
use crate::condition::{Basis, Reason};
use crate::digest::Digest;
use crate::numbers::Version;

fn mk_stamp(version: u64) -> Stamp {
    Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(&version.to_be_bytes()) }
}

fn mk_condition(kind: ConditionType, status: Holds, version: u64) -> Condition {
    let observed_version = Version::from_raw(version);
    Condition { kind, status, reason: Reason::Done, message: String::new(), observed_version }
}

fn mk_conditions() -> Vec<Condition> {
    ConditionType::OF_ATTEMPT.map(|kind| mk_condition(kind, Holds::True, 2)).to_vec()
}

fn mk_stated(conditions: Vec<Condition>) -> Vec<StatedCondition> {
    let one = |condition| StatedCondition { condition, basis: Basis::Observed, observed_at_ms: 0 };
    conditions.into_iter().map(one).collect()
}

/// Every condition of a policy's report.
fn mk_report() -> Vec<StatedCondition> {
    mk_report_of(Component::Policy)
}

fn mk_report_of(component: Component) -> Vec<StatedCondition> {
    let all = ConditionType::of(component).iter();
    mk_stated(all.map(|kind| mk_condition(*kind, Holds::True, 2)).collect())
}

/// The same in a session that has words for reports, with one.
fn with_report<'a>(evidence: Evidence<'a>, conditions: &'a [StatedCondition]) -> Evidence<'a> {
    let applied = Some(mk_stamp(2));
    let reported = Reported { in_this_session: true, is_genuine: true, is_newer: true, applied, conditions };
    Evidence { words: Words::Reports, reported: Some(reported), ..evidence }
}

fn of_report(change: impl FnOnce(&mut Reported<'_>)) -> Verdict {
    let (said, conditions) = (mk_conditions(), mk_report());
    let mut evidence = with_report(mk_proof(&said), &conditions);
    change(evidence.reported.as_mut().expect("it reported"));
    derive(&evidence)
}

/// What a healthy host with version 2 amounts to: each case below changes one thing of it.
fn mk_proof(conditions: &[Condition]) -> Evidence<'_> {
    let said = Said {
        in_this_session: true,
        is_genuine: true,
        kind: OutcomeKind::Applied,
        wanted: mk_stamp(2),
        applied: Some(mk_stamp(2)),
        conditions,
    };
    Evidence {
        component: Component::Policy,
        words: Words::Outcomes,
        reported: None,
        untold_ms: 0,
        is_readable: true,
        latest: Some(mk_stamp(2)),
        link: Link::Open { heard_ms_ago: FRESH_MS - 1 },
        said: Some(said),
        is_held: false,
    }
}

fn without(change: impl FnOnce(&mut Evidence<'_>)) -> Missing {
    let conditions = mk_conditions();
    let mut evidence = mk_proof(&conditions);
    change(&mut evidence);
    let verdict = derive(&evidence);
    let missing = verdict.missing.expect("a proof without one fact is none");
    assert_eq!(verdict.state, missing.state());
    missing
}

fn without_said(change: impl FnOnce(&mut Said<'_>)) -> Missing {
    without(|evidence| change(evidence.said.as_mut().expect("it said something")))
}

#[test]
fn a_proof_is_converged_and_without_any_one_fact_it_is_not_and_says_which() {
    assert_eq!(derive(&mk_proof(&mk_conditions())), Verdict { state: State::Converged, missing: None });
    let other = Stamp { digest: Digest::of(b"other"), ..mk_stamp(2) };
    let cases = [
        (without(|e| e.is_readable = false), Missing::Readable, State::Unknown),
        (without(|e| e.latest = None), Missing::Rendered, State::Unknown),
        (without(|e| e.link = Link::Never), Missing::Session, State::Unknown),
        (without(|e| e.link = Link::Closed), Missing::OpenSession, State::Unknown),
        (without(|e| e.link = Link::Open { heard_ms_ago: FRESH_MS }), Missing::FreshSession, State::Unknown),
        (without(|e| e.said = None), Missing::Answer, State::Progressing),
        (without_said(|s| s.in_this_session = false), Missing::AnswerInSession, State::Progressing),
        (without_said(|s| s.is_genuine = false), Missing::Signature, State::Unknown),
        (without_said(|s| s.kind = OutcomeKind::Failed), Missing::Success, State::Failed),
        (without_said(|s| s.kind = OutcomeKind::RetainedLocalOverride), Missing::OwnPolicyGone, State::Failed),
        (without_said(|s| s.applied = None), Missing::Latest, State::Progressing),
        (without_said(|s| s.applied = Some(mk_stamp(1))), Missing::Latest, State::Progressing),
        (without_said(|s| s.applied = Some(mk_stamp(3))), Missing::Latest, State::Progressing),
        (without_said(|s| s.applied = Some(other)), Missing::SameContent, State::Progressing),
        (without(|e| e.is_held = true), Missing::Held, State::Progressing),
    ];
    for (found, wanted, state) in cases {
        assert_eq!((found, found.state()), (wanted, state));
    }
}

/// The verdict on a policy with the conditions of a kind replaced.
fn with_replaced(words: Words, kind: ConditionType, replacement: Vec<Condition>) -> Verdict {
    with_replaced_of(Component::Policy, words, kind, replacement)
}

/// The same of any component, where a session has words for outcomes alone and where it has them for reports.
fn with_replaced_of(component: Component, words: Words, kind: ConditionType, replacement: Vec<Condition>) -> Verdict {
    let replaced = |mut conditions: Vec<Condition>| {
        conditions.retain(|condition| condition.kind != kind);
        conditions.extend(replacement.clone());
        conditions
    };
    match words {
        Words::Outcomes => derive(&Evidence { component, ..mk_proof(&replaced(mk_conditions())) }),
        Words::Reports => {
            let whole = mk_report_of(component).into_iter().map(|stated| stated.condition).collect();
            let (said, stated) = (mk_conditions(), mk_stated(replaced(whole)));
            derive(&Evidence { component, ..with_report(mk_proof(&said), &stated) })
        }
    }
}

/// Every kind that counts in a session, by what can be said in it of a policy.
fn counted(words: Words) -> Vec<ConditionType> {
    counted_of(Component::Policy, words)
}

fn counted_of(component: Component, words: Words) -> Vec<ConditionType> {
    match words {
        Words::Outcomes => ConditionType::OF_ATTEMPT.to_vec(),
        Words::Reports => ConditionType::of(component).to_vec(),
    }
}

/// Generated from the lists of components and conditions: a new one that blocks is in it by itself.
#[test]
fn without_any_one_condition_that_blocks_a_host_is_unknown_or_failed_and_never_converged() {
    let all: Vec<ConditionType> = ConditionType::ALL.into_iter().filter(|kind| kind.is_blocking()).collect();
    let reported: Vec<ConditionType> = counted(Words::Reports).into_iter().filter(|kind| kind.is_blocking()).collect();
    assert_eq!(reported, all, "a report says everything that blocks");
    let each = |component| [(component, Words::Outcomes), (component, Words::Reports)];
    for (component, words) in Component::ALL.into_iter().flat_map(each) {
        for kind in counted_of(component, words).into_iter().filter(|kind| kind.is_blocking()) {
            let with = |replacement: Option<Condition>| {
                with_replaced_of(component, words, kind, replacement.into_iter().collect())
            };
            let lacks = |status| Some(Missing::Condition(kind, status));
            let is = |state, status| Verdict { state, missing: lacks(status) };
            assert_eq!(with(None), is(State::Unknown, Holds::Unknown), "{kind} is absent");
            let unseen = Some(mk_condition(kind, Holds::Unknown, 2));
            assert_eq!(with(unseen), is(State::Unknown, Holds::Unknown), "{kind} was not reached");
            let earlier = Some(mk_condition(kind, Holds::True, 1));
            assert_eq!(with(earlier), is(State::Unknown, Holds::Unknown), "{kind} was seen at another version");
            let at_no_version = Condition { observed_version: None, ..mk_condition(kind, Holds::True, 2) };
            assert_eq!(with(Some(at_no_version)), is(State::Unknown, Holds::Unknown), "{kind} was seen at no version");
            let no = Some(mk_condition(kind, Holds::False, 2));
            assert_eq!(with(no), is(State::Failed, Holds::False), "{kind} is false");
        }
    }
}

#[test]
fn a_report_is_needed_where_there_are_words_for_it_of_this_session_genuine_and_after_the_last_outcome() {
    let converged = Verdict { state: State::Converged, missing: None };
    assert_eq!(of_report(|_| {}), converged);
    let said = mk_conditions();
    let none = derive(&Evidence { words: Words::Reports, ..mk_proof(&said) });
    let other = Stamp { digest: Digest::of(b"other"), ..mk_stamp(2) };
    let cases = [
        (none, Missing::Report, State::Unknown),
        (of_report(|r| r.in_this_session = false), Missing::Report, State::Unknown),
        (of_report(|r| r.is_genuine = false), Missing::Signature, State::Unknown),
        (of_report(|r| r.is_newer = false), Missing::NewerReport, State::Progressing),
        (of_report(|r| r.applied = None), Missing::Latest, State::Progressing),
        (of_report(|r| r.applied = Some(mk_stamp(1))), Missing::Latest, State::Progressing),
        (of_report(|r| r.applied = Some(other)), Missing::SameContent, State::Progressing),
        (
            of_report(|r| r.conditions = &[]),
            Missing::Condition(ConditionType::SnapshotAccepted, Holds::Unknown),
            State::Unknown,
        ),
    ];
    for (found, missing, state) in cases {
        assert_eq!(found, Verdict { state, missing: Some(missing) });
    }
    // A forged or an old one says nothing of what is in force.
    let forged = of_report(|r| (r.is_genuine, r.applied) = (false, None));
    assert_eq!(forged.missing, Some(Missing::Signature));
    // In a session without words for it, it is of no account, for better or worse.
    let all_false = mk_stated(ConditionType::ALL.map(|kind| mk_condition(kind, Holds::False, 2)).to_vec());
    let old = Evidence { words: Words::Outcomes, ..with_report(mk_proof(&said), &all_false) };
    assert_eq!(derive(&old), converged);
}

/// To the millisecond; what goes before is what it said itself of how an update ended.
#[test]
fn a_host_that_does_not_say_again_how_it_is_is_unknown_whatever_else_is_on_its_way() {
    let (said, conditions) = (mk_conditions(), mk_report());
    let with = |untold_ms: u64, change: &dyn Fn(&mut Evidence<'_>)| {
        let mut evidence = Evidence { untold_ms, ..with_report(mk_proof(&said), &conditions) };
        change(&mut evidence);
        derive(&evidence).missing
    };
    assert_eq!(with(REPORT_LATE_MS - 1, &|_| {}), None);
    let late = Some(Missing::ReportInTime);
    assert_eq!(with(REPORT_LATE_MS, &|_| {}), late);
    assert_eq!(Missing::ReportInTime.state(), State::Unknown);
    let on_their_way: [&dyn Fn(&mut Evidence<'_>); 3] = [
        &|evidence| evidence.reported = None,
        &|evidence| evidence.reported.as_mut().expect("one").is_newer = false,
        &|evidence| evidence.latest = Some(mk_stamp(3)),
    ];
    for change in on_their_way {
        assert_eq!(with(REPORT_LATE_MS, change), late);
        assert_ne!(with(REPORT_LATE_MS - 1, change), late);
    }
    let refused = |evidence: &mut Evidence<'_>| evidence.said.as_mut().expect("one").kind = OutcomeKind::Failed;
    assert_eq!(with(REPORT_LATE_MS, &refused), Some(Missing::Success));
    let polls = |evidence: &mut Evidence<'_>| evidence.words = Words::Outcomes;
    assert_eq!(with(u64::MAX, &polls), None, "who has no word for it is not asked");
}

#[test]
fn a_policy_on_trial_is_progressing_unless_something_else_is_missing() {
    let trial = Condition { reason: Reason::OnTrial, ..mk_condition(ConditionType::Confirmed, Holds::Unknown, 2) };
    let with = |change: &dyn Fn(&mut Vec<StatedCondition>)| {
        let mut conditions = mk_report();
        conditions.retain(|stated| stated.condition.kind != ConditionType::Confirmed);
        conditions.extend(mk_stated(vec![trial.clone()]));
        change(&mut conditions);
        let said = mk_conditions();
        derive(&with_report(mk_proof(&said), &conditions))
    };
    assert_eq!(with(&|_| {}), Verdict { state: State::Progressing, missing: Some(Missing::Trial) });
    for kind in
        counted(Words::Reports).into_iter().filter(|kind| kind.is_blocking() && *kind != ConditionType::Confirmed)
    {
        let lacks = with(&|conditions| conditions.retain(|stated| stated.condition.kind != kind));
        assert_eq!(lacks.missing, Some(Missing::Condition(kind, Holds::Unknown)));
    }
    let degraded = with(&|conditions| {
        conditions.retain(|stated| stated.condition.kind != ConditionType::NoDrift);
        conditions.extend(mk_stated(vec![mk_condition(ConditionType::NoDrift, Holds::False, 2)]));
    });
    assert_eq!(degraded.missing, Some(Missing::Trial));
}

#[test]
fn what_is_inferred_of_what_can_decay_is_not_known_and_what_does_not_block_only_degrades() {
    for kind in counted(Words::Reports) {
        let inferred = |stated: StatedCondition| {
            let basis = if stated.condition.kind == kind { Basis::Inferred } else { Basis::Observed };
            StatedCondition { basis, ..stated }
        };
        let (said, conditions): (_, Vec<_>) = (mk_conditions(), mk_report().into_iter().map(inferred).collect());
        let verdict = derive(&with_report(mk_proof(&said), &conditions));
        let lacks = (kind.can_decay() && kind.is_blocking()).then_some(Missing::Condition(kind, Holds::Unknown));
        assert_eq!(verdict.missing, lacks, "{kind}");
        if !kind.is_blocking() {
            let no = with_replaced(Words::Reports, kind, vec![mk_condition(kind, Holds::False, 2)]);
            assert_eq!(no, Verdict { state: State::Degraded, missing: Some(Missing::Degrading(kind)) });
            let unseen = with_replaced(Words::Reports, kind, vec![mk_condition(kind, Holds::Unknown, 2)]);
            assert_eq!(unseen.state, State::Converged, "{kind} is told and blocks nothing");
        }
    }
}

#[test]
fn words_are_those_of_the_protocol_and_the_least_where_none_is_known() {
    let words = [None, Some(0), Some(1), Some(2), Some(3), Some(9)].map(Words::of_protocol);
    let outcomes = [Words::Outcomes; 4];
    assert_eq!((&words[..4], &words[4..]), (&outcomes[..], &[Words::Reports; 2][..]));
}

#[test]
fn a_condition_that_is_said_twice_counts_as_the_worse_one() {
    for words in [Words::Outcomes, Words::Reports] {
        for kind in counted(words) {
            for (first, second) in [(Holds::True, Holds::False), (Holds::False, Holds::True)] {
                let twice = [first, second].map(|status| mk_condition(kind, status, 2)).to_vec();
                assert_ne!(with_replaced(words, kind, twice).state, State::Converged, "{kind}");
            }
        }
    }
}

fn any_holds() -> impl Strategy<Value = Holds> {
    prop_oneof![4 => Just(Holds::True), 1 => Just(Holds::False), 1 => Just(Holds::Unknown)]
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    prop_oneof![4 => Just(mk_stamp(2)), 1 => (1_u64..4).prop_map(mk_stamp), 1 => Just(Stamp { digest: Digest::of(b"other"), ..mk_stamp(2) })]
}

fn any_link() -> impl Strategy<Value = Link> {
    prop_oneof![
        1 => Just(Link::Never),
        1 => Just(Link::Closed),
        6 => (0..FRESH_MS * 2).prop_map(|heard_ms_ago| Link::Open { heard_ms_ago }),
    ]
}

/// All of them, or all but one.
fn any_conditions(of: &'static [ConditionType]) -> impl Strategy<Value = Vec<Condition>> {
    let seen = || (any_holds(), prop_oneof![5 => Just(2_u64), 1 => Just(1)]);
    let drawn = proptest::collection::vec(seen(), of.len());
    let left_out = proptest::option::weighted(0.2, 0..of.len());
    (drawn, left_out).prop_map(|(drawn, left_out)| {
        let all = of.iter().zip(drawn).enumerate();
        let kept = all.filter(|(nth, _)| Some(*nth) != left_out);
        kept.map(|(_, (kind, (status, version)))| mk_condition(*kind, status, version)).collect()
    })
}

fn any_kind() -> impl Strategy<Value = OutcomeKind> {
    prop_oneof![5 => Just(OutcomeKind::Applied), 1 => Just(OutcomeKind::Failed), 1 => Just(OutcomeKind::RetainedLocalOverride)]
}

proptest! {
    /// The oracle names every fact of the proof by itself and shares no code with the derivation.
    #[test]
    fn converged_is_exactly_the_conjunction_of_all_facts(
        latest in proptest::option::weighted(0.9, any_stamp()),
        link in any_link(),
        (in_this_session, is_genuine) in (proptest::bool::weighted(0.9), proptest::bool::weighted(0.9)),
        (kind, wanted, applied) in (any_kind(), any_stamp(), proptest::option::weighted(0.9, any_stamp())),
        conditions in any_conditions(&ConditionType::OF_ATTEMPT),
        (is_poll, is_held) in (any::<bool>(), proptest::bool::weighted(0.1)),
        (untold_ms, is_readable) in (0..REPORT_LATE_MS * 2, proptest::bool::weighted(0.9)),
    ) {
        let said = Said { in_this_session, is_genuine, kind, wanted, applied, conditions: &conditions };
        let words = Words::of_protocol(if is_poll { None } else { Some(2) });
        let component = Component::Policy;
        let said = Some(said);
        let evidence =
            Evidence { component, words, reported: None, untold_ms, is_readable, latest, link, said, is_held };
        let verdict = derive(&evidence);
        let is_fresh = matches!(link, Link::Open { heard_ms_ago } if heard_ms_ago < FRESH_MS);
        let holds = |kind: &ConditionType| conditions.iter().any(|c| {
            c.kind == *kind && c.status == Holds::True && c.observed_version == latest.map(|latest| latest.version)
        });
        let is_refused = kind != OutcomeKind::Applied && Some(wanted) == latest;
        let has_it = latest.is_some() && is_fresh && in_this_session && is_genuine && !is_refused && applied == latest;
        let all = is_readable && has_it && ConditionType::OF_ATTEMPT.iter().filter(|kind| kind.is_blocking()).all(holds);
        prop_assert_eq!(all && !is_held, matches!(verdict.state, State::Converged | State::Degraded));
        prop_assert_eq!(all, verdict.is_in_force());
        prop_assert_eq!(verdict.missing.is_none(), verdict.state == State::Converged);
    }
}

proptest! {
    /// The same where there are words for reports: of the outcome's conditions nothing is asked.
    #[test]
    fn converged_by_a_report_is_exactly_the_conjunction_of_all_its_facts(
        (in_this_session, is_genuine, is_newer) in (proptest::bool::weighted(0.9), proptest::bool::weighted(0.9), proptest::bool::weighted(0.9)),
        applied in proptest::option::weighted(0.9, any_stamp()),
        conditions in any_conditions(ConditionType::of(Component::Policy)),
        inferred in proptest::option::weighted(0.3, 0..ConditionType::ALL.len()),
        untold_ms in 0..REPORT_LATE_MS * 2,
    ) {
        let mut stated = mk_stated(conditions);
        let kind = inferred.and_then(|nth| ConditionType::ALL.get(nth)).copied();
        stated.iter_mut().filter(|one| Some(one.condition.kind) == kind).for_each(|one| one.basis = Basis::Inferred);
        let reported = Reported { in_this_session, is_genuine, is_newer, applied, conditions: &stated };
        let verdict =
            derive(&Evidence { words: Words::Reports, reported: Some(reported), untold_ms, ..mk_proof(&[]) });
        let holds = |kind: &ConditionType| stated.iter().any(|one| {
            let Condition { kind: of, status, observed_version, .. } = &one.condition;
            let is_observed = one.basis == Basis::Observed || !kind.can_decay();
            of == kind && *status == Holds::True && *observed_version == Version::from_raw(2) && is_observed
        });
        let in_time = untold_ms < REPORT_LATE_MS;
        let all = in_time && in_this_session && is_genuine && is_newer && applied == Some(mk_stamp(2))
            && ConditionType::ALL.iter().filter(|kind| kind.is_blocking()).all(holds);
        prop_assert_eq!(all, matches!(verdict.state, State::Converged | State::Degraded));
        prop_assert_eq!(verdict.missing.is_none(), verdict.state == State::Converged);
    }
}

#[test]
fn nobody_is_not_everybody() {
    assert_eq!(Counts::default().roll_up(), State::Unknown);
    assert_eq!(Counts::from_iter([State::Converged, State::Failed, State::Unknown]).roll_up(), State::Failed);
    assert_eq!(Counts::from_iter([State::Converged; 3]).roll_up(), State::Converged);
}
