//! The derivation of states: a proof, what it is without any one fact, and an oracle.

use proptest::prelude::*;

use super::*;
use crate::condition::Reason;
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
    ConditionType::ALL.map(|kind| mk_condition(kind, Holds::True, 2)).to_vec()
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

/// Generated from the list of conditions: a new one that blocks is in it by itself.
#[test]
fn without_any_one_condition_that_blocks_a_host_is_unknown_or_failed_and_never_converged() {
    let blocking: Vec<ConditionType> = ConditionType::ALL.into_iter().filter(|kind| kind.is_blocking()).collect();
    assert!(!blocking.is_empty());
    for kind in blocking {
        let with = |replacement: Option<Condition>| {
            let mut conditions = mk_conditions();
            conditions.retain(|condition| condition.kind != kind);
            conditions.extend(replacement);
            derive(&mk_proof(&conditions))
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
        assert_eq!(with(Some(mk_condition(kind, Holds::False, 2))), is(State::Failed, Holds::False), "{kind} is false");
    }
}

#[test]
fn a_condition_that_is_said_twice_counts_as_the_worse_one() {
    for kind in ConditionType::ALL {
        for (first, second) in [(Holds::True, Holds::False), (Holds::False, Holds::True)] {
            let mut conditions = mk_conditions();
            conditions.retain(|condition| condition.kind != kind);
            conditions.extend([first, second].map(|status| mk_condition(kind, status, 2)));
            assert_ne!(derive(&mk_proof(&conditions)).state, State::Converged, "{kind}");
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
fn any_conditions() -> impl Strategy<Value = Vec<Condition>> {
    let seen = || (any_holds(), prop_oneof![5 => Just(2_u64), 1 => Just(1)]);
    let drawn = proptest::collection::vec(seen(), ConditionType::ALL.len());
    let left_out = proptest::option::weighted(0.2, 0..ConditionType::ALL.len());
    (drawn, left_out).prop_map(|(drawn, left_out)| {
        let all = ConditionType::ALL.into_iter().zip(drawn).enumerate();
        let kept = all.filter(|(nth, _)| Some(*nth) != left_out);
        kept.map(|(_, (kind, (status, version)))| mk_condition(kind, status, version)).collect()
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
        conditions in any_conditions(),
        is_held in proptest::bool::weighted(0.1),
    ) {
        let said = Said { in_this_session, is_genuine, kind, wanted, applied, conditions: &conditions };
        let verdict = derive(&Evidence { latest, link, said: Some(said), is_held });
        let is_fresh = matches!(link, Link::Open { heard_ms_ago } if heard_ms_ago < FRESH_MS);
        let holds = |kind: &ConditionType| conditions.iter().any(|c| {
            c.kind == *kind && c.status == Holds::True && c.observed_version == latest.map(|latest| latest.version)
        });
        let is_refused = kind != OutcomeKind::Applied && Some(wanted) == latest;
        let has_it = latest.is_some() && is_fresh && in_this_session && is_genuine && !is_refused && applied == latest;
        let all = has_it && ConditionType::ALL.iter().filter(|kind| kind.is_blocking()).all(holds);
        prop_assert_eq!(all && !is_held, matches!(verdict.state, State::Converged | State::Degraded));
        prop_assert_eq!(all, verdict.is_in_force());
        prop_assert_eq!(verdict.missing.is_none(), verdict.state == State::Converged);
    }
}

#[test]
fn nobody_is_not_everybody() {
    assert_eq!(Counts::default().roll_up(), State::Unknown);
    assert_eq!(Counts::from_iter([State::Converged, State::Failed, State::Unknown]).roll_up(), State::Failed);
    assert_eq!(Counts::from_iter([State::Converged; 3]).roll_up(), State::Converged);
}
