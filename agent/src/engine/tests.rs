//! What the engine holds to, over a kernel and a disk that fail on demand.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use holdfast_model::artifact;
use holdfast_model::condition::{ConditionType, Holds, Reason};
use holdfast_model::digest::Digest;
use holdfast_model::drift::DriftCounts;
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::{AuthorityEpoch, Version};
use holdfast_model::policy::{Chain, Mode, delta};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::encode_changes;
use uuid::Uuid;

use super::*;
use crate::plan::{Difference, RuleId};

mod beside_local;

#[test]
fn an_update_is_written_down_put_into_the_kernel_read_back_and_then_good() {
    let world = World::new();
    let mut engine = world.engine();
    let outcome = engine.apply(&whole(1, &isolated(true)));
    assert_eq!(outcome.kind, OutcomeKind::Applied);
    assert_eq!(statuses(&outcome), [Holds::True; 3]);
    assert_eq!(world.steps(), ["append 1", "apply whole", "good 1"]);
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn a_kernel_that_differs_after_the_commit_fails_the_update_and_gets_the_last_good_back() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    world.next_attempt(Script::CommitAndAlter);
    let outcome = engine.apply(&whole(2, &isolated(false)));
    assert_eq!((outcome.kind, outcome.reason()), (OutcomeKind::Failed, Reason::ReadBackDiffers));
    assert_eq!(statuses(&outcome), [Holds::True, Holds::True, Holds::False]);
    assert_eq!(outcome.applied.map(|stamp| stamp.version.raw()), Some(1));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
    assert_eq!(world.steps(), ["append 1", "apply whole", "good 1", "append 2", "apply", "apply whole", "failed"]);
    assert!(engine.is_proven());
}

#[test]
fn a_disk_that_gives_nothing_never_opens_a_table_that_enforces() {
    let cut_behind_its_head = Loaded::Found { good: None, candidate: None };
    for loaded in [Loaded::Missing, Loaded::Unusable, cut_behind_its_head] {
        let world = World::new();
        world.engine().apply(&whole(1, &isolated(true)));
        let enforced = world.kernel_holds();
        let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
        assert_eq!(engine.start(loaded).expect("starts"), Started::LeftAlone);
        assert!(!engine.is_proven() && world.kernel_holds() == enforced);
        assert_eq!(engine.find_drift().expect("reads"), None);
        assert_eq!(world.kernel_holds(), enforced, "nobody knows what else should be there");
    }
    let world = World::new();
    drop(world.engine());
    let mut again = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
    assert_eq!(again.start(Loaded::Missing).expect("starts"), Started::Fresh);
    assert!(again.is_proven(), "its own open table is known");
}

#[test]
fn an_update_or_a_local_policy_that_fails_opens_no_table_that_was_left_alone() {
    let open = layout(&Body::default(), &Kept::default());
    let enforced = layout(&isolated(true), &Kept::default());
    for (script, fails_on_disk) in [
        (Some(Script::Refuse), false),
        (Some(Script::CommitAndAlter), false),
        (Some(Script::CommitAndGoDark), false),
        (None, true),
    ] {
        let world = World::new();
        world.0.borrow_mut().kernel = Some(enforced.clone());
        let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
        assert_eq!(engine.start(Loaded::Unusable).expect("starts"), Started::LeftAlone);
        let fail = || {
            world.0.borrow_mut().good_fails = fails_on_disk;
            world.0.borrow_mut().failed_fails = true;
            script.into_iter().for_each(|script| world.next_attempt(script));
        };
        for _ in 0..2 {
            fail();
            let outcome = engine.apply(&whole(1, &isolated(false)));
            assert_eq!((outcome.kind, outcome.applied), (OutcomeKind::Failed, None));
            assert_ne!(world.kernel_holds(), Some(open.clone()));
            assert!(!engine.is_proven());
            assert_eq!(engine.find_drift().expect("reads"), None, "nobody knows what should be there");
        }
        if script.is_some() {
            fail();
            assert!(engine.enforce_local(isolated(false)).is_err());
            assert_ne!(world.kernel_holds(), Some(open.clone()));
        }
        world.0.borrow_mut().good_fails = false;
        assert_eq!(engine.apply(&whole(2, &isolated(true))).kind, OutcomeKind::Applied);
        assert!(engine.is_proven() && world.kernel_holds() == Some(enforced.clone()));
    }
}

#[test]
fn what_this_process_did_not_get_into_the_kernel_is_no_drift_when_it_is_found_missing() {
    let world = World::new();
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
    world.next_attempt(Script::Refuse);
    assert!(engine.start(Loaded::Found { good: Some(entry(1, &isolated(true))), candidate: None }).is_err());
    let make_good = |engine: &mut FakeEngine, drifts| {
        assert!(engine.owes_table() && engine.find_drift().expect("reads").is_some());
        assert_eq!(engine.drifts(), drifts);
        engine.repair().expect("repairs");
        assert!(!engine.owes_table() && engine.is_proven());
    };
    make_good(&mut engine, 0);
    // What another one did is drift, once, however often its repair fails.
    world.0.borrow_mut().kernel = None;
    assert!(!engine.owes_table() && engine.find_drift().expect("reads").is_some());
    world.next_attempt(Script::Refuse);
    assert!(engine.repair().is_err());
    make_good(&mut engine, 1);
    // An update that went wrong, and what brings the last good back did too.
    world.next_attempt(Script::CommitAndAlter);
    world.next_attempt(Script::Refuse);
    assert_eq!(engine.apply(&whole(2, &isolated(false))).kind, OutcomeKind::Failed);
    make_good(&mut engine, 1);
    // A doubt in a war is none of ours.
    engine.doubt();
    world.0.borrow_mut().kernel = None;
    assert!(engine.find_drift().expect("reads").is_some());
    assert_eq!(engine.drifts(), 2);
}

#[test]
fn a_local_policy_whose_end_the_kernel_refuses_stays_in_force() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    for script in [Script::Refuse, Script::CommitAndAlter, Script::CommitAndGoDark] {
        engine.enforce_local(isolated(false)).expect("takes");
        world.next_attempt(script);
        assert!(engine.lift_local().is_err());
        assert!(engine.local().is_some() && engine.is_proven());
        assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())));
        assert!(engine.lift_local().expect("lifts"));
        assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
    }
}

#[test]
fn a_kernel_that_refuses_keeps_what_it_has_and_later_steps_are_not_reached() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    world.next_attempt(Script::Refuse);
    let outcome = engine.apply(&whole(2, &isolated(false)));
    assert_eq!(outcome.reason(), Reason::KernelRefused);
    assert_eq!(statuses(&outcome), [Holds::True, Holds::False, Holds::Unknown]);
    assert_eq!(outcome.conditions[2].reason, Reason::NotReached);
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn a_kernel_that_cannot_be_read_is_not_believed() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    world.next_attempt(Script::CommitAndGoDark);
    let outcome = engine.apply(&whole(2, &isolated(false)));
    assert_eq!(outcome.reason(), Reason::ReadBackFailed);
    assert_eq!(statuses(&outcome), [Holds::True, Holds::Unknown, Holds::Unknown]);
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn what_the_disk_does_not_take_does_not_reach_the_kernel_and_what_it_does_not_settle_is_taken_back() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    world.0.borrow_mut().append_fails = true;
    assert_eq!(engine.apply(&whole(2, &isolated(false))).reason(), Reason::NotDurable);
    assert_eq!(world.steps().last().map(String::as_str), Some("append 2"));
    world.0.borrow_mut().append_fails = false;
    world.0.borrow_mut().good_fails = true;
    let outcome = engine.apply(&whole(2, &isolated(false)));
    assert_eq!((outcome.reason(), outcome.applied.map(|stamp| stamp.version.raw())), (Reason::NotDurable, Some(1)));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn without_a_last_good_a_failed_first_update_leaves_an_open_table() {
    let world = World::new();
    let mut engine = world.engine();
    world.next_attempt(Script::CommitAndAlter);
    let outcome = engine.apply(&whole(1, &isolated(true)));
    assert_eq!((outcome.kind, outcome.applied), (OutcomeKind::Failed, None));
    assert_eq!(world.kernel_holds(), Some(layout(&Body::default(), &Kept::default())));
}

#[test]
fn c48_a_local_policy_goes_before_what_is_sent_which_is_kept_and_in_force_once_it_is_gone() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    let local = Body { mode: Mode::Simulation, ..isolated(true) };
    engine.enforce_local(local.clone()).expect("takes");
    let in_kernel = |body: &Body| Some(layout(body, &Kept::default()));
    assert_eq!(world.kernel_holds(), in_kernel(&local));
    let steps = world.steps().len();
    let outcome = engine.apply(&whole(2, &isolated(false)));
    assert_eq!((outcome.kind, outcome.applied), (OutcomeKind::RetainedLocalOverride, None));
    assert_eq!(
        (statuses(&outcome), outcome.reason()),
        ([Holds::True, Holds::False, Holds::Unknown], Reason::LocalOverride)
    );
    assert_eq!(world.steps().split_off(steps), ["append 2", "good 2"], "kept on disk, and the kernel is not touched");
    assert_eq!(world.kernel_holds(), in_kernel(&local));
    // What is unacceptable is so all the same.
    assert_eq!(engine.apply(&whole(1, &isolated(true))).reason(), Reason::Backward);
    // A foreign change is repaired to the local policy.
    world.0.borrow_mut().kernel = None;
    assert!(engine.find_drift().expect("reads").is_some());
    engine.repair().expect("repairs");
    assert_eq!(world.kernel_holds(), in_kernel(&local));
    assert!(engine.lift_local().expect("lifts") && engine.is_proven());
    assert_eq!(world.kernel_holds(), in_kernel(&isolated(false)), "the newest that was sent");
    assert!(!engine.lift_local().expect("there is none"));
    assert_eq!(engine.apply(&whole(3, &isolated(true))).kind, OutcomeKind::Applied);
}

#[test]
fn a_local_policy_that_the_kernel_refuses_leaves_what_was_in_force_and_one_that_differs_brings_it_back() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    for script in [Script::Refuse, Script::CommitAndAlter, Script::CommitAndGoDark] {
        world.next_attempt(script);
        assert!(engine.enforce_local(isolated(false)).is_err());
        assert!(engine.local().is_none());
        assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
    }
}

#[test]
fn a_start_with_a_local_policy_never_shows_the_kernel_another_one() {
    let world = World::new();
    world.engine().apply(&whole(1, &isolated(true)));
    let local = Body { mode: Mode::Simulation, ..isolated(true) };
    let start = |candidate| {
        let engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
        let mut engine = engine.with_local(Some(local.clone()));
        let loaded = Loaded::Found { good: Some(entry(1, &isolated(true))), candidate };
        (engine.start(loaded).expect("starts"), engine)
    };
    assert_eq!(start(None).0, Started::Restored);
    let steps = world.steps().len();
    let (started, mut engine) = start(Some(entry(2, &isolated(false))));
    assert_eq!(started, Started::Untouched);
    assert_eq!(world.steps().split_off(steps), ["failed"], "what was on its way was never in the kernel");
    assert!(engine.lift_local().expect("lifts"));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn unacceptable_updates_touch_neither_disk_nor_kernel() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(5, &isolated(true)));
    let before = world.steps().len();
    let good = whole(6, &isolated(false));
    let cases = [
        (Update { content: Content::Whole(vec![9]), ..good.clone() }, Reason::Malformed),
        (Update { stamp: Stamp { digest: Digest::of(b"other"), ..good.stamp }, ..good.clone() }, Reason::WrongDigest),
        (whole(4, &isolated(false)), Reason::Backward),
        (whole(5, &isolated(false)), Reason::SameVersionOtherContent),
        (Update { origin: authority(2, 1), ..good.clone() }, Reason::WrongHost),
        (Update { origin: authority(1, 0), ..good.clone() }, Reason::Backward),
        (changes(6, good.stamp, &isolated(true), &isolated(false)), Reason::WrongBase),
    ];
    for (update, reason) in cases {
        let outcome = engine.apply(&update);
        assert_eq!(outcome.reason(), reason);
        assert_eq!(outcome.conditions[0].status, Holds::False);
    }
    assert_eq!(world.steps().len(), before);
}

#[test]
fn changes_of_what_is_held_apply_and_a_later_epoch_may_go_back() {
    let world = World::new();
    let mut engine = world.engine();
    let first = whole(5, &isolated(true));
    engine.apply(&first);
    let outcome = engine.apply(&changes(6, first.stamp, &isolated(true), &isolated(false)));
    assert_eq!(outcome.kind, OutcomeKind::Applied);
    let restored = Update { origin: authority(1, 2), ..whole(2, &isolated(true)) };
    assert_eq!(engine.apply(&restored).kind, OutcomeKind::Applied);
}

#[test]
fn a_version_alone_rises_over_the_same_content() {
    let world = World::new();
    let mut engine = world.engine();
    let first = whole(1, &isolated(true));
    engine.apply(&first);
    let stamp = Stamp { version: version(2), ..first.stamp };
    let outcome = engine.apply(&Update { stamp, content: Content::Same, ..first });
    assert_eq!((outcome.kind, outcome.applied), (OutcomeKind::Applied, Some(stamp)));
}

#[test]
fn a_start_leaves_a_kernel_alone_that_holds_the_last_good() {
    let world = World::new();
    world.0.borrow_mut().kernel = Some(layout(&isolated(true), &Kept::default()));
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
    let loaded = Loaded::Found { good: Some(entry(1, &isolated(true))), candidate: None };
    assert_eq!(engine.start(loaded).expect("starts"), Started::Untouched);
    assert!(world.steps().is_empty() && engine.is_proven());
}

#[test]
fn a_start_after_a_crash_settles_the_candidate_by_what_the_kernel_holds() {
    let loaded =
        || Loaded::Found { good: Some(entry(1, &isolated(true))), candidate: Some(entry(2, &isolated(false))) };
    for (in_kernel, started, held, steps) in [
        (Some(isolated(false)), Started::Completed, 2, vec!["good 2"]),
        (Some(isolated(true)), Started::Untouched, 1, vec!["failed"]),
        (Some(Body::default()), Started::Restored, 1, vec!["failed", "apply whole"]),
        (None, Started::Restored, 1, vec!["failed", "apply whole"]),
    ] {
        let world = World::new();
        world.0.borrow_mut().kernel = in_kernel.map(|body| layout(&body, &Kept::default()));
        let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
        assert_eq!(engine.start(loaded()).expect("starts"), started);
        assert_eq!(engine.held().map(|held| held.entry.stamp.version.raw()), Some(held));
        assert_eq!(world.steps(), steps);
    }
}

#[test]
fn a_start_with_an_unusable_disk_keeps_the_table_that_is_there() {
    let world = World::new();
    let left = layout(&isolated(true), &Kept::default());
    world.0.borrow_mut().kernel = Some(left.clone());
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default());
    assert_eq!(engine.start(Loaded::Unusable).expect("starts"), Started::LeftAlone);
    assert_eq!(world.kernel_holds(), Some(left));
    assert!(!engine.is_proven() && engine.held().is_none());
}

#[test]
fn drift_is_found_counted_and_repaired() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    assert_eq!(engine.find_drift().expect("reads"), None);
    world.0.borrow_mut().kernel = None;
    let found = engine.find_drift().expect("reads");
    assert_eq!(found, Some(Deviation::of_table(Difference::NoTable)));
    assert!(!engine.is_proven(), "until it is put right");
    engine.repair().expect("repairs");
    assert_eq!((engine.drifts(), engine.is_proven()), (1, true));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
}

#[test]
fn what_cannot_be_read_is_not_proven_until_it_was_read_again() {
    let world = World::new();
    let mut engine = world.engine();
    world.0.borrow_mut().is_dark = true;
    assert!(engine.has_moved().is_err() && engine.is_proven(), "nothing is to be there that could be missing");
    world.0.borrow_mut().is_dark = false;
    engine.apply(&whole(1, &isolated(true)));
    let reads: [fn(&mut FakeEngine) -> bool; 2] =
        [|engine| engine.find_drift().is_err(), |engine| engine.has_moved().is_err()];
    for read in reads {
        assert!(engine.is_proven());
        world.0.borrow_mut().is_dark = true;
        assert!(read(&mut engine) && !engine.is_proven());
        world.0.borrow_mut().is_dark = false;
        assert_eq!((engine.find_drift().expect("reads"), engine.drifts()), (None, 0));
    }
    // What comes meanwhile is written from whatever is there.
    world.0.borrow_mut().is_dark = true;
    assert!(engine.find_drift().is_err());
    engine.apply(&whole(2, &isolated(false)));
    assert_eq!(world.steps().iter().filter(|step| *step == "apply whole").count(), 2);
    assert!(engine.is_proven());
}

#[test]
fn what_is_kept_open_changes_without_a_version_and_not_at_all_if_the_kernel_refuses() {
    let world = World::new();
    let mut engine = world.engine();
    engine.apply(&whole(1, &isolated(true)));
    let kept = Kept { gateways: vec!["192.0.2.1:7443".parse().expect("an address")], ..Kept::default() };
    engine.keep(kept.clone()).expect("kept");
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &kept)));
    world.next_attempt(Script::Refuse);
    assert!(engine.keep(Kept::default()).is_err());
    assert_eq!(engine.kept(), &kept);
    assert_eq!(engine.held().map(|held| held.entry.stamp.version.raw()), Some(1));
}

#[test]
fn a_policy_on_trial_is_confirmed_with_all_before_it_and_only_what_changes_what_is_enforced_is_tried() {
    let world = World::new();
    let mut engine = world.engine().with_trials();
    engine.apply(&whole(1, &isolated(true)));
    assert_eq!(engine.on_trial().map(|stamp| stamp.version.raw()), Some(1));
    engine.apply(&whole(2, &isolated(false)));
    assert!(engine.confirm().expect("confirmed"));
    assert_eq!(engine.on_trial(), None);
    let same = Update { content: Content::Same, ..whole(3, &isolated(false)) };
    engine.apply(&same);
    assert_eq!(engine.on_trial(), None, "only the version rises");
    assert!(engine.confirm().expect("an echo, and nothing to keep"));
    assert_eq!(engine.take_back().expect("nothing to take back"), None);
    let settled: Vec<String> = world.steps().into_iter().filter(|step| !step.contains("app")).collect();
    assert_eq!(settled, ["trial", "trial", "confirmed 2", "good 3"]);
}

#[test]
fn what_is_taken_back_brings_what_was_confirmed_last_and_is_never_tried_again() {
    let world = World::new();
    let mut engine = world.engine().with_trials();
    engine.apply(&whole(1, &isolated(false)));
    engine.confirm().expect("confirmed");
    engine.apply(&whole(2, &isolated(true)));
    // A version more of the same, before anybody knows: it is of the same trial.
    engine.apply(&Update { content: Content::Same, ..whole(3, &isolated(true)) });
    let taken = engine.take_back().expect("taken back");
    assert_eq!(taken.map(|stamp| stamp.version.raw()), Some(3));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())));
    assert_eq!(engine.held().map(|held| held.entry.stamp.version.raw()), Some(1));
    assert_eq!((engine.on_trial(), engine.is_proven()), (None, true));
    for again in [whole(3, &isolated(true)), whole(9, &isolated(true))] {
        let outcome = engine.apply(&again);
        assert_eq!((outcome.kind, outcome.reason()), (OutcomeKind::Failed, Reason::SelfIsolation));
        assert_eq!(outcome.applied.map(|stamp| stamp.version.raw()), Some(1));
    }
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())), "it was not tried");
    assert_eq!(engine.apply(&whole(10, &Body::default())).kind, OutcomeKind::Applied, "another content is");
}

#[test]
fn the_first_policy_of_all_is_taken_back_to_the_open_table_which_is_kept() {
    let world = World::new();
    let mut engine = world.engine().with_trials();
    engine.apply(&whole(1, &isolated(true)));
    assert!(engine.take_back().expect("taken back").is_some());
    let open = layout(&Body::default(), &Kept::default());
    assert_eq!((world.kernel_holds(), engine.held().is_none()), (Some(open.clone()), true));
    world.0.borrow_mut().kernel = None;
    assert!(engine.find_drift().expect("reads").is_some());
    engine.repair().expect("repairs");
    assert_eq!(world.kernel_holds(), Some(open));
}

#[test]
fn a_crash_between_the_disk_and_the_kernel_as_the_first_policy_of_all_is_taken_back_leaves_nobody_cut_off() {
    let world = World::new();
    world.0.borrow_mut().kernel = Some(layout(&isolated(true), &Kept::default()));
    let shunned = vec![isolated(true).digest()];
    world.0.borrow_mut().trial = Trial { fallback: None, shunned, is_opened: true };
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default()).with_trials();
    let started = engine.start(Loaded::Found { good: None, candidate: None }).expect("starts");
    assert_eq!((started, engine.is_proven()), (Started::Restored, true));
    assert_eq!(world.kernel_holds(), Some(layout(&Body::default(), &Kept::default())));
    assert_eq!(engine.apply(&whole(1, &isolated(true))).reason(), Reason::SelfIsolation);
}

#[test]
fn a_trial_goes_on_after_a_restart_and_what_was_shunned_stays_so() {
    let world = World::new();
    let (before, tried) = (entry(1, &isolated(false)), entry(2, &isolated(true)));
    let shunned = vec![Body::default().digest()];
    world.0.borrow_mut().trial = Trial { fallback: Some(Some(before)), shunned, is_opened: false };
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default()).with_trials();
    engine.start(Loaded::Found { good: Some(tried), candidate: None }).expect("starts");
    assert_eq!(engine.on_trial().map(|stamp| stamp.version.raw()), Some(2));
    assert_eq!(engine.apply(&whole(3, &Body::default())).reason(), Reason::SelfIsolation);
    engine.take_back().expect("taken back");
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())));
}

#[test]
fn a_disk_that_does_not_remember_leaves_a_trial_as_it_is_and_keeps_nobody_cut_off() {
    let world = World::new();
    let mut engine = world.engine().with_trials();
    engine.apply(&whole(1, &isolated(false)));
    assert!(engine.confirm().expect("kept"));
    engine.apply(&whole(2, &isolated(true)));
    world.0.borrow_mut().good_fails = true;
    assert!(engine.confirm().is_err() && engine.on_trial().is_some());
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(true), &Kept::default())));
    assert_eq!(engine.take_back().expect("taken back").map(|stamp| stamp.version.raw()), Some(2));
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())));
    assert_eq!((engine.on_trial(), engine.is_proven()), (None, true));
    assert_eq!(engine.apply(&whole(3, &isolated(true))).reason(), Reason::SelfIsolation);
}

#[test]
fn what_is_gone_back_to_keeps_the_gateways_of_now_open_and_not_those_of_then() {
    let gateway = |last: u8| Kept { gateways: vec![([192, 0, 2, last], 7443).into()], ..Kept::default() };
    let world = World::new();
    let mut engine = world.engine().with_trials();
    engine.keep(gateway(1)).expect("kept");
    engine.apply(&whole(1, &isolated(false)));
    engine.confirm().expect("confirmed");
    engine.apply(&whole(2, &isolated(true)));
    engine.keep(gateway(2)).expect("kept");
    engine.take_back().expect("taken back");
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &gateway(2))));
    assert_eq!(engine.find_drift().expect("reads"), None);
}

#[test]
fn what_an_earlier_process_confirmed_stays_and_is_owed_an_echo_until_this_one_has_one_under_it() {
    let version_owed = |engine: &FakeEngine| engine.owes_echo().map(|stamp| stamp.version.raw());
    let world = World::new();
    world.0.borrow_mut().kernel = Some(layout(&isolated(true), &Kept::default()));
    let mut engine = Engine::new(FakeKernel(world.clone()), FakeStore(world.clone()), Kept::default()).with_trials();
    engine.start(Loaded::Found { good: Some(entry(1, &isolated(true))), candidate: None }).expect("starts");
    assert_eq!((engine.on_trial(), version_owed(&engine)), (None, Some(1)));
    assert_eq!(engine.take_back().expect("nothing to take back"), None);
    engine.apply(&Update { content: Content::Same, ..whole(2, &isolated(true)) });
    assert_eq!(version_owed(&engine), Some(2), "the same content under another version is no echo");
    engine.doubt();
    assert!(!engine.confirm().expect("nothing to keep"), "nobody knows what led to the gateway");
    assert_eq!(engine.find_drift().expect("reads"), None);
    assert!(engine.confirm().expect("nothing to keep"));
    assert_eq!(version_owed(&engine), None);
    assert!(!world.steps().iter().any(|step| step.starts_with("confirmed")), "the disk knows it already");
    // What is taken back leads to what had its echo; what has not had one in this process is owed it.
    engine.apply(&whole(3, &isolated(false)));
    assert_eq!((engine.on_trial().is_some(), version_owed(&engine)), (true, None));
    engine.take_back().expect("taken back");
    assert_eq!(version_owed(&engine), None);
    engine.enforce_local(Body::default()).expect("takes");
    assert!(!engine.confirm().expect("nothing to keep"), "what leads to the gateway is the local policy");
    assert_eq!(version_owed(&engine), None);
}

#[derive(Clone, Copy, Debug)]
enum Script {
    Refuse,
    CommitAndAlter,
    CommitAndGoDark,
}

#[derive(Default)]
struct State {
    kernel: Option<Ruleset>,
    script: VecDeque<Script>,
    steps: Vec<String>,
    append_fails: bool,
    good_fails: bool,
    failed_fails: bool,
    /// The kernel cannot be read.
    is_dark: bool,
    trial: Trial,
}

type FakeEngine = Engine<FakeKernel, FakeStore>;

#[derive(Clone, Default)]
struct World(Rc<RefCell<State>>);

impl World {
    fn new() -> Self {
        Self::default()
    }

    /// A started engine that holds nothing.
    fn engine(&self) -> FakeEngine {
        let mut engine = Engine::new(FakeKernel(self.clone()), FakeStore(self.clone()), Kept::default());
        assert_eq!(engine.start(Loaded::Missing).expect("starts"), Started::Fresh);
        self.0.borrow_mut().steps.clear();
        engine
    }

    fn next_attempt(&self, script: Script) {
        self.0.borrow_mut().script.push_back(script);
    }

    fn steps(&self) -> Vec<String> {
        self.0.borrow().steps.clone()
    }

    fn kernel_holds(&self) -> Option<Ruleset> {
        self.0.borrow().kernel.clone()
    }
}

struct FakeKernel(World);

impl Kernel for FakeKernel {
    fn apply(&mut self, base: Option<&Ruleset>, target: &Ruleset, _: Depth) -> Attempt {
        let mut state = self.0.0.borrow_mut();
        state.steps.push(if base.is_some() { "apply" } else { "apply whole" }.to_owned());
        if let Some(base) = base {
            assert_eq!(state.kernel.as_ref(), Some(base), "an edit stands on what the kernel holds");
        }
        match state.script.pop_front() {
            None => {
                state.kernel = Some(target.clone());
                Attempt::Holds
            }
            Some(Script::Refuse) => Attempt::Refused("no".into()),
            Some(Script::CommitAndAlter) => {
                state.kernel = None;
                Attempt::Differs(Difference::Rule { chain: "in".to_owned(), id: RuleId::new("x") })
            }
            Some(Script::CommitAndGoDark) => {
                state.kernel = Some(target.clone());
                Attempt::Unreadable("dark".into())
            }
        }
    }

    fn check(&mut self, target: &Ruleset) -> Result<Option<Deviation>, Cause> {
        let state = self.0.0.borrow();
        if state.is_dark {
            return Err("dark".into());
        }
        Ok(match &state.kernel {
            None => Some(Deviation::of_table(Difference::NoTable)),
            Some(held) if held == target => None,
            Some(_) => Some(Deviation { first: Difference::Chain("in".to_owned()), counts: DriftCounts::default() }),
        })
    }

    fn has_moved(&mut self) -> Result<bool, Cause> {
        if self.0.0.borrow().is_dark { Err("dark".into()) } else { Ok(false) }
    }

    fn rules(&mut self) -> Result<Vec<ObservedRule>, Cause> {
        Ok(Vec::new())
    }

    fn holds_table(&mut self) -> Result<bool, Cause> {
        Ok(self.0.0.borrow().kernel.is_some())
    }

    fn remove(&mut self) -> Result<bool, Cause> {
        Ok(self.0.0.borrow_mut().kernel.take().is_some())
    }
}

struct FakeStore(World);

impl FakeStore {
    fn step(&self, step: String, fails: fn(&State) -> bool) -> Result<(), Cause> {
        let mut state = self.0.0.borrow_mut();
        state.steps.push(step);
        if fails(&state) { Err("disk".into()) } else { Ok(()) }
    }
}

impl Store for FakeStore {
    fn append(&mut self, record: &Record) -> Result<(), Cause> {
        self.step(format!("append {}", record.stamp.version), |state| state.append_fails)
    }

    fn settle_good(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.step(format!("good {}", good(after)), |state| state.good_fails)
    }

    fn settle_trial(&mut self, _: &After<'_>) -> Result<(), Cause> {
        self.step("trial".to_owned(), |state| state.good_fails)
    }

    fn settle_confirmed(&mut self, after: &After<'_>) -> Result<(), Cause> {
        self.step(format!("confirmed {}", good(after)), |state| state.good_fails)
    }

    fn settle_taken_back(&mut self, digest: Digest, _: &After<'_>) -> Result<(), Cause> {
        self.step(format!("taken back {}", digest.short()), |state| state.good_fails)
    }

    fn trial(&self) -> Trial {
        self.0.0.borrow().trial.clone()
    }

    fn ensure_kept(&mut self, _: &After<'_>) -> Result<bool, Cause> {
        Ok(false)
    }

    fn settle_failed(&mut self, _: &After<'_>) -> Result<(), Cause> {
        self.step("failed".to_owned(), |state| state.failed_fails)
    }
}

fn good(after: &After<'_>) -> Version {
    after.good.expect("something is good").stamp.version
}

fn isolated(isolated: bool) -> Body {
    Body { mode: Mode::Enforced, ingress: Chain { isolated, rules: Vec::new() }, ..Body::default() }
}

fn version(raw: u64) -> Version {
    Version::from_raw(raw).expect("not zero")
}

fn authority(id: u128, epoch: u64) -> Option<Origin> {
    let authority = Authority { id: AuthorityId::new(Uuid::from_u128(id)), epoch: AuthorityEpoch::from_raw(epoch) };
    Some(Origin { authority, signature: [7; 64] })
}

fn entry(raw: u64, body: &Body) -> Entry {
    let stamp = Stamp { version: version(raw), digest: body.digest() };
    Entry { origin: authority(1, 1), stamp, body: body.clone() }
}

fn whole(raw: u64, body: &Body) -> Update {
    let Entry { origin, stamp, .. } = entry(raw, body);
    Update { origin, stamp, content: Content::Whole(artifact::encode(body)) }
}

fn changes(raw: u64, base: Stamp, from: &Body, to: &Body) -> Update {
    let changes = encode_changes(&delta::diff(from, to).changes).expect("small");
    Update { content: Content::Changes { base, changes }, ..whole(raw, to) }
}

fn statuses(outcome: &Outcome) -> [Holds; 3] {
    ConditionType::OF_ATTEMPT.map(|kind| {
        outcome.conditions.iter().find(|condition| condition.kind == kind).expect("every condition is told").status
    })
}
