//! What is on trial while a policy of the host's own is in force, and after it: in memory and on a real disk.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::ledger::Ledger;
use crate::ledger::tests::{IS_ALWAYS_LARGE, SYNC_FAILS, SYNC_FAILS_AT};

type OnDisk = Engine<FakeKernel, Ledger>;

/// An engine with trials over a ledger, as it starts from what is there.
fn start(world: &World, folder: &Path, local: Option<Body>) -> OnDisk {
    let (ledger, loaded, fault) = Ledger::open(folder, None, &|_| true).expect("opens");
    assert_eq!(fault, None, "what this agent wrote it reads");
    let engine = Engine::new(FakeKernel(world.clone()), ledger, Kept::default()).with_local(local);
    let mut engine = engine.with_trials();
    engine.start(loaded).expect("starts");
    engine
}

/// Memory and disk say the same of what is held, what is on trial and what is not tried any more; and of what is owed to the disk, that it is.
fn assert_agree(engine: &OnDisk, folder: &Path) {
    let (has_candidate, owes_taken_back) = engine.store.owes();
    let (ledger, loaded, fault) = Ledger::open(folder, None, &|_| true).expect("opens");
    assert_eq!(fault, None);
    let held = engine.held().map(|held| held.entry.clone());
    match loaded {
        Loaded::Missing => assert_eq!(held, None),
        Loaded::Unusable => panic!("it has no fault"),
        Loaded::Found { good, candidate } => {
            assert_eq!(candidate.is_some(), has_candidate);
            assert!(owes_taken_back || good == held, "{good:?} on disk, {held:?} in memory");
        }
    }
    if owes_taken_back {
        assert!(ledger.trial().fallback.is_some(), "a start has it on trial once more");
        return;
    }
    let fallback = engine.fallback.clone();
    let wanted = Trial { fallback, shunned: engine.shunned.clone(), is_opened: engine.owes_open };
    assert_eq!(ledger.trial(), wanted);
}

fn version_on_trial(engine: &OnDisk) -> Option<u64> {
    engine.on_trial().map(|stamp| stamp.version.raw())
}

fn local() -> Body {
    Body { mode: Mode::Simulation, ..isolated(true) }
}

#[test]
fn what_is_kept_beside_a_local_policy_is_on_trial_once_that_is_gone_also_after_a_restart() {
    let (world, folder) = (World::new(), tempdir().expect("a folder"));
    let mut engine = start(&world, folder.path(), None);
    engine.apply(&whole(4, &isolated(false)));
    assert!(engine.confirm().expect("kept"));
    engine.enforce_local(local()).expect("takes");
    assert_eq!(engine.apply(&whole(6, &isolated(true))).kind, OutcomeKind::RetainedLocalOverride);
    assert_eq!(version_on_trial(&engine), None, "the local one is nobody's to take back");
    assert!(!engine.confirm().expect("nothing to keep"), "an echo under the local policy is none of another's");
    drop(engine);
    let mut engine = start(&world, folder.path(), Some(local()));
    assert_agree(&engine, folder.path());
    assert!(engine.lift_local().expect("lifts"));
    assert_eq!(version_on_trial(&engine), Some(6));
    engine.take_back().expect("taken back");
    assert_eq!(world.kernel_holds(), Some(layout(&isolated(false), &Kept::default())));
    assert_eq!(engine.apply(&whole(7, &isolated(true))).reason(), Reason::SelfIsolation);
    // What says the same as what was confirmed has nothing to prove.
    engine.enforce_local(local()).expect("takes");
    engine.apply(&whole(8, &Body::default()));
    engine.apply(&whole(9, &isolated(false)));
    engine.lift_local().expect("lifts");
    assert_eq!(version_on_trial(&engine), None);
    assert_agree(&engine, folder.path());
}

#[test]
fn a_trial_that_a_local_policy_interrupts_goes_on_with_what_was_kept_and_its_end_is_read_after_a_restart() {
    let (world, folder) = (World::new(), tempdir().expect("a folder"));
    let mut engine = start(&world, folder.path(), None);
    engine.apply(&whole(4, &isolated(false)));
    assert!(engine.confirm().expect("kept"));
    engine.apply(&whole(5, &isolated(true)));
    engine.enforce_local(local()).expect("takes");
    engine.apply(&whole(6, &Body::default()));
    assert!(engine.lift_local().expect("lifts"));
    assert_eq!(version_on_trial(&engine), Some(6));
    assert!(engine.confirm().expect("kept"));
    drop(engine);
    let engine = start(&world, folder.path(), None);
    assert_eq!(engine.held().map(|held| held.entry.stamp.version.raw()), Some(6));
    assert_eq!(version_on_trial(&engine), None);
}

#[test]
fn an_echo_confirms_nothing_that_the_kernel_is_not_known_to_hold() {
    let (world, folder) = (World::new(), tempdir().expect("a folder"));
    let mut engine = start(&world, folder.path(), None);
    engine.enforce_local(local()).expect("takes");
    engine.apply(&whole(6, &isolated(true)));
    world.next_attempt(Script::Refuse);
    assert!(engine.lift_local().is_err());
    assert!(!engine.confirm().expect("nothing to keep"), "what leads to the gateway is the local policy");
    assert!(engine.lift_local().expect("lifts"));
    assert_eq!(version_on_trial(&engine), Some(6));
    engine.doubt();
    assert!(!engine.confirm().expect("nothing to keep"), "what leads to the gateway may be another's");
    assert_eq!((version_on_trial(&engine), engine.find_drift().expect("reads")), (Some(6), None));
    assert!(engine.confirm().expect("kept"));
    assert_agree(&engine, folder.path());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    SendChanges(usize),
    Local,
    Lift,
    Echo,
    Cut,
    Restart,
    RestartWithoutLocal,
    /// The slow tick.
    Tick,
    /// The disk keeps nothing of what it takes, or does again.
    DiskFails(bool),
    /// It does not keep the n-th thing that it takes from now on.
    DiskFailsAt(u32),
    /// It keeps an update, and not that it is in force.
    SendUnsettled(usize),
    /// The next change of the kernel goes wrong.
    KernelFails(Script),
    /// The log is made small on each occasion, or once it is long.
    Small(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..3).prop_map(Step::Send),
        2 => (0_usize..3).prop_map(Step::SendChanges),
        2 => Just(Step::Local),
        2 => Just(Step::Lift),
        2 => Just(Step::Echo),
        1 => Just(Step::Cut),
        1 => Just(Step::Restart),
        1 => Just(Step::RestartWithoutLocal),
        1 => Just(Step::Tick),
        1 => any::<bool>().prop_map(Step::DiskFails),
        1 => (1_u32..4).prop_map(Step::DiskFailsAt),
        2 => (0_usize..3).prop_map(Step::SendUnsettled),
        1 => prop_oneof![Just(Script::Refuse), Just(Script::CommitAndAlter), Just(Script::CommitAndGoDark)]
            .prop_map(Step::KernelFails),
        1 => any::<bool>().prop_map(Step::Small),
    ]
}

fn update(engine: &OnDisk, raw: u64, step: Step) -> Option<Update> {
    let bodies = [isolated(true), isolated(false), Body::default()];
    match step {
        Step::Send(of) | Step::SendUnsettled(of) => bodies.get(of).map(|body| whole(raw, body)),
        Step::SendChanges(of) => {
            let (held, body) = (&engine.held()?.entry, bodies.get(of)?);
            (held.body != *body).then(|| changes(raw, held.stamp, &held.body, body))
        }
        Step::Local
        | Step::Lift
        | Step::Echo
        | Step::Cut
        | Step::Restart
        | Step::RestartWithoutLocal
        | Step::Tick
        | Step::DiskFails(_)
        | Step::DiskFailsAt(_)
        | Step::KernelFails(_)
        | Step::Small(_) => None,
    }
}

/// All is well again, for this thread's next case too.
fn heal(world: &World) {
    SYNC_FAILS.set(false);
    SYNC_FAILS_AT.set(0);
    IS_ALWAYS_LARGE.set(false);
    world.0.borrow_mut().script.clear();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_disk_agree_on_what_is_on_trial_over_any_run_of_updates_local_policies_echoes_failures_and_restarts(
        is_always_small in any::<bool>(),
        steps in vec(step(), 1..24)
    ) {
        let (world, folder) = (World::new(), tempdir().expect("a folder"));
        heal(&world);
        IS_ALWAYS_LARGE.set(is_always_small);
        let mut engine = start(&world, folder.path(), None);
        for (raw, step) in (1..).zip(steps) {
            match step {
                Step::Send(_) | Step::SendChanges(_) | Step::SendUnsettled(_) => {
                    if matches!(step, Step::SendUnsettled(_)) {
                        SYNC_FAILS_AT.set(2);
                    }
                    if let Some(update) = update(&engine, raw, step) {
                        engine.apply(&update);
                    }
                }
                // Each may fail where disk or kernel do: what is left of it is what counts.
                Step::Local => drop(engine.enforce_local(local())),
                Step::Lift => drop(engine.lift_local()),
                Step::Echo => drop(engine.confirm()),
                Step::Cut => drop(engine.take_back()),
                Step::Tick => {
                    drop(engine.ensure_kept());
                    if matches!(engine.find_drift(), Ok(Some(_))) {
                        drop(engine.repair());
                    }
                }
                Step::DiskFails(fails) => SYNC_FAILS.set(fails),
                Step::DiskFailsAt(nth) => SYNC_FAILS_AT.set(nth),
                Step::KernelFails(script) => world.next_attempt(script),
                Step::Small(is_always) => IS_ALWAYS_LARGE.set(is_always),
                Step::Restart | Step::RestartWithoutLocal => {
                    let own = engine.local().filter(|_| matches!(step, Step::Restart)).map(|own| own.body.clone());
                    drop(engine);
                    heal(&world);
                    engine = start(&world, folder.path(), own);
                }
            }
            assert_agree(&engine, folder.path());
        }
        heal(&world);
    }
}
