//! Ends of operations, as a table.

use super::*;

#[test]
fn a_host_that_has_the_version_applied_it_whatever_came_later() {
    for overwritten_at in [None, Some(6), Some(9)] {
        let facts = TargetFacts { in_force: rendered(2, 5), ..mk_facts(overwritten_at) };
        assert_eq!(outcome_of(&facts), HostOutcome::Applied, "{overwritten_at:?}");
        let gone = TargetFacts { is_enrolled: false, latest: None, ..facts };
        assert_eq!(outcome_of(&gone), HostOutcome::Applied, "what was in force was");
    }
}

#[test]
fn c38_i14_a_later_version_applies_an_operation_that_it_includes_and_supersedes_one_that_it_has_something_else_in_place_of()
 {
    let later = |overwritten_at| TargetFacts { latest: rendered(3, 7), ..mk_facts(overwritten_at) };
    let has = |overwritten_at| TargetFacts { in_force: rendered(3, 7), ..later(overwritten_at) };
    assert_eq!(outcome_of(&has(None)), HostOutcome::Applied);
    assert_eq!(outcome_of(&has(Some(8))), HostOutcome::Applied, "the version is of the revision before");
    assert_eq!(outcome_of(&has(Some(7))), HostOutcome::Superseded);
    // On its way: nobody will be sent the older version any more.
    assert_eq!(outcome_of(&later(None)), HostOutcome::Pending);
    assert_eq!(outcome_of(&later(Some(8))), HostOutcome::Pending);
    assert_eq!(outcome_of(&later(Some(7))), HostOutcome::Superseded);
    // It was overwritten elsewhere; this host's newest version is the one that is waited for.
    assert_eq!(outcome_of(&mk_facts(Some(7))), HostOutcome::Pending);
    // It has one between: of before it was overwritten, and of after.
    let between =
        |revision| TargetFacts { latest: rendered(4, 9), in_force: rendered(3, revision), ..mk_facts(Some(8)) };
    assert_eq!(outcome_of(&between(7)), HostOutcome::Applied);
    assert_eq!(outcome_of(&between(8)), HostOutcome::Superseded);
}

#[test]
fn c38_c44_an_operation_whose_first_version_was_rendered_with_what_overwrote_it_is_superseded_and_was_never_applied() {
    // Revisions 5 to 7 were rendered together, and 6 has something else in the place of what 5 changed.
    let together =
        TargetFacts { target: rendered(2, 7).expect("above zero"), latest: rendered(2, 7), ..mk_facts(Some(6)) };
    assert_eq!(outcome_of(&together), HostOutcome::Superseded);
    let has = TargetFacts { in_force: rendered(2, 7), ..together };
    assert_eq!(outcome_of(&has), HostOutcome::Superseded);
    assert_eq!(
        outcome_of(&TargetFacts { in_force: rendered(3, 9), latest: rendered(3, 9), ..has }),
        HostOutcome::Superseded
    );
    assert_eq!(outcome_of(&TargetFacts { has_failed: true, ..together }), HostOutcome::Superseded);
    assert_eq!(outcome_of(&TargetFacts { overwritten_at: None, ..has }), HostOutcome::Applied, "7 includes it");
}

#[test]
fn an_older_version_in_force_is_not_what_is_waited_for() {
    assert_eq!(outcome_of(&TargetFacts { in_force: rendered(1, 4), ..mk_facts(None) }), HostOutcome::Pending);
}

#[test]
fn a_failure_counts_of_the_newest_version_and_not_where_the_operation_is_superseded_by_it() {
    let failed = |overwritten_at| TargetFacts { has_failed: true, latest: rendered(3, 7), ..mk_facts(overwritten_at) };
    assert_eq!(outcome_of(&failed(None)), HostOutcome::Failed);
    assert_eq!(outcome_of(&failed(Some(7))), HostOutcome::Superseded);
    // The one that is waited for was in force; that a later one failed is the later one's end.
    assert_eq!(outcome_of(&TargetFacts { in_force: rendered(2, 5), ..failed(None) }), HostOutcome::Applied);
}

#[test]
fn c43_i11_a_stopped_host_is_inactive_and_one_that_is_no_more_cancelled_at_once() {
    let stopped = TargetFacts { is_stopped: true, ..mk_facts(None) };
    assert_eq!(outcome_of(&stopped), HostOutcome::Inactive);
    assert_eq!(outcome_of(&TargetFacts { has_failed: true, ..stopped }), HostOutcome::Failed);
    let gone = TargetFacts { is_enrolled: false, latest: None, ..stopped };
    assert_eq!(outcome_of(&gone), HostOutcome::Cancelled);
}

#[test]
fn i12_an_operation_ends_by_its_hosts_as_the_table_says() {
    use HostOutcome::{Applied, Cancelled, Failed, Inactive, Pending, Superseded};
    let table: [(&[HostOutcome], Option<HostOutcome>); 11] = [
        (&[], Some(Inactive)),
        (&[Applied, Applied], Some(Applied)),
        (&[Applied, Pending], None),
        (&[Superseded, Pending], None),
        (&[Inactive, Pending], None),
        (&[Applied, Pending, Failed], Some(Failed)),
        (&[Applied, Superseded, Inactive], Some(Superseded)),
        (&[Applied, Inactive, Cancelled], Some(Applied)),
        (&[Inactive, Cancelled], Some(Inactive)),
        (&[Inactive, Inactive], Some(Inactive)),
        (&[Cancelled], Some(Cancelled)),
    ];
    for (outcomes, end) in table {
        let counts: OutcomeCounts = outcomes.iter().copied().collect();
        assert_eq!(counts.end(), end, "{outcomes:?}");
        let sum =
            counts.applied + counts.inactive + counts.cancelled + counts.superseded + counts.pending + counts.failed;
        assert_eq!((sum, counts.total), (outcomes.len() as u64, outcomes.len() as u64));
    }
}

#[test]
fn every_outcome_has_a_word_that_reads_back_and_the_worst_comes_last() {
    for outcome in HostOutcome::ALL {
        assert_eq!(outcome.word().parse(), Ok(outcome));
    }
    assert!(HostOutcome::ALL.is_sorted() && "done".parse::<HostOutcome>().is_err());
}

fn rendered(version: u64, revision: u64) -> Option<Rendered> {
    Version::from_raw(version).map(|version| Rendered { version, revision: Revision::from_raw(revision) })
}

/// Version 2 of revision 5 is waited for, and is the newest.
fn mk_facts(overwritten_at: Option<u64>) -> TargetFacts {
    TargetFacts {
        target: rendered(2, 5).expect("above zero"),
        overwritten_at: overwritten_at.map(Revision::from_raw),
        is_enrolled: true,
        latest: rendered(2, 5),
        in_force: None,
        has_failed: false,
        is_stopped: false,
    }
}
