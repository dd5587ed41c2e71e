//! What is on trial while a policy of the host's own is in force, and after it: in memory and on a real disk.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::ledger::Ledger;

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

/// Memory and disk say the same of what is held, what is on trial and what is not tried any more.
fn assert_agree(engine: &OnDisk, folder: &Path) {
    let (ledger, loaded, fault) = Ledger::open(folder, None, &|_| true).expect("opens");
    assert_eq!(fault, None);
    let held = engine.held().map(|held| held.entry.clone());
    match loaded {
        Loaded::Missing => assert_eq!(held, None),
        Loaded::Unusable => panic!("it has no fault"),
        Loaded::Found { good, candidate } => assert_eq!((good, candidate), (held, None)),
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
    assert_eq!(version_on_trial(&engine), Some(6));
    assert!(!engine.confirm().expect("nothing to keep"), "what leads to the gateway is the local policy");
    assert_eq!(version_on_trial(&engine), Some(6));
    engine.repair().expect("repairs");
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
    ]
}

fn update(engine: &OnDisk, raw: u64, step: Step) -> Option<Update> {
    let bodies = [isolated(true), isolated(false), Body::default()];
    match step {
        Step::Send(of) => bodies.get(of).map(|body| whole(raw, body)),
        Step::SendChanges(of) => {
            let (held, body) = (&engine.held()?.entry, bodies.get(of)?);
            (held.body != *body).then(|| changes(raw, held.stamp, &held.body, body))
        }
        Step::Local | Step::Lift | Step::Echo | Step::Cut | Step::Restart | Step::RestartWithoutLocal => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_disk_agree_on_what_is_on_trial_over_any_run_of_updates_local_policies_echoes_and_restarts(
        steps in vec(step(), 1..16)
    ) {
        let (world, folder) = (World::new(), tempdir().expect("a folder"));
        let mut engine = start(&world, folder.path(), None);
        for (raw, step) in (1..).zip(steps) {
            match step {
                Step::Send(_) | Step::SendChanges(_) => {
                    if let Some(update) = update(&engine, raw, step) {
                        engine.apply(&update);
                    }
                }
                Step::Local => engine.enforce_local(local()).expect("takes"),
                Step::Lift => {
                    engine.lift_local().expect("lifts");
                }
                Step::Echo => {
                    engine.confirm().expect("kept");
                }
                Step::Cut => {
                    engine.take_back().expect("kept");
                }
                Step::Restart | Step::RestartWithoutLocal => {
                    let own = engine.local().filter(|_| matches!(step, Step::Restart)).map(|own| own.body.clone());
                    drop(engine);
                    engine = start(&world, folder.path(), own);
                }
            }
            assert_agree(&engine, folder.path());
        }
    }
}
