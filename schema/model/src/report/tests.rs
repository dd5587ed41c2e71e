//! Reports: complete or refused, and what their digest and their statement cover.

use uuid::Uuid;

use super::*;
use crate::ids::{AuthorityId, HostId};
use crate::numbers::{AuthorityEpoch, SessionEpoch};
use crate::statement::{Authority, StatusPlace, status_bytes};

fn mk_stamp(version: u64) -> Stamp {
    Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(b"body") }
}

fn mk_report() -> HostReport {
    let held = Component::ALL.map(|component| (component, mk_stamp(2)));
    HostReport::of_health(&held, UpdateSeq::from_raw(4), 1_000)
}

/// The report with one change of its first component.
fn with(change: impl FnOnce(&mut ComponentReport)) -> HostReport {
    let mut report = mk_report();
    change(report.components.first_mut().expect("every component"));
    report
}

fn with_condition(change: impl FnOnce(&mut StatedCondition)) -> HostReport {
    with(|component| change(component.conditions.get_mut(3).expect("every condition")))
}

#[test]
fn a_report_that_lacks_repeats_or_moves_anything_is_refused() {
    assert_eq!(mk_report().check(), Ok(()));
    let mut short = mk_report();
    short.components.pop();
    let mut twice = mk_report();
    twice.components.push(twice.components.first().expect("one").clone());
    let mut moved = mk_report();
    moved.components.swap(1, 2);
    for report in [short, twice, moved] {
        assert_eq!(report.check(), Err(ReportError::Components));
    }
    let lacks = Err(ReportError::Conditions { component: Component::Policy });
    for nth in 0..ConditionType::of(Component::Policy).len() {
        assert_eq!(with(|policy| drop(policy.conditions.remove(nth))).check(), lacks, "{nth}");
    }
    assert_eq!(with(|policy| policy.conditions.swap(0, 1)).check(), lacks);
    let twice = with(|policy| policy.conditions.push(policy.conditions.first().expect("one").clone()));
    assert_eq!(twice.check(), lacks);
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_cut_by_its_maker() {
    for message in ["m".repeat(REPORT_TEXT_BYTES_MAX + 1), "a\u{1b}b".to_owned()] {
        let report = with_condition(|one| one.condition.message = message);
        assert_eq!(report.check(), Err(ReportError::Message { component: Component::Policy }));
        assert_eq!(report.bounded().check(), Ok(()));
    }
}

#[test]
fn the_digest_is_of_what_is_said_and_the_statement_also_of_when_and_where() {
    let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
    let (host, session_epoch) = (HostId::new(Uuid::from_u128(2)), SessionEpoch::from_raw(3));
    let place = StatusPlace { host, session_epoch, seq: 1 };
    let base = mk_report();
    let bytes = |report: &HostReport| status_bytes(authority, place, report);
    let said = [
        with(|policy| policy.applied = None),
        with(|policy| policy.applied = Some(mk_stamp(3))),
        with_condition(|one| one.condition.status = Holds::False),
        with_condition(|one| one.condition.reason = Reason::OnTrial),
        with_condition(|one| one.condition.observed_version = None),
        with_condition(|one| one.basis = Basis::Inferred),
    ];
    for report in said {
        assert_ne!(report.digest(), base.digest(), "{report:?}");
        assert_ne!(bytes(&report), bytes(&base), "{report:?}");
    }
    for report in
        [with_condition(|one| one.observed_at_ms += 1), HostReport { answered: UpdateSeq::from_raw(5), ..base.clone() }]
    {
        assert_eq!(report.digest(), base.digest());
        assert_ne!(bytes(&report), bytes(&base));
    }
    let told = with_condition(|one| one.condition.message = "for people".to_owned());
    assert_eq!((told.digest(), bytes(&told)), (base.digest(), bytes(&base)));
    let places = [
        StatusPlace { host: HostId::new(Uuid::from_u128(9)), ..place },
        StatusPlace { session_epoch: SessionEpoch::from_raw(9), ..place },
        StatusPlace { seq: 2, ..place },
    ];
    for other in places {
        assert_ne!(status_bytes(authority, other, &base), bytes(&base), "{other:?}");
    }
}

#[test]
fn what_is_inferred_proves_nothing_that_can_decay() {
    for kind in ConditionType::ALL {
        let mut stated = unreached(kind, None, 0);
        stated.condition.status = Holds::True;
        assert_eq!(stated.proves(), Holds::True, "{kind}");
        stated.basis = Basis::Inferred;
        assert_eq!(stated.proves(), if kind.can_decay() { Holds::Unknown } else { Holds::True }, "{kind}");
    }
    assert!(ConditionType::ALL.iter().any(|kind| kind.can_decay()));
}
