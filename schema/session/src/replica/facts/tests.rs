//! Facts that wait, one case at a time and by chance.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

/// Facts of a test: which host, which session, and what.
#[derive(Debug)]
struct Said;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Fact {
    host: u8,
    epoch: u64,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Answer(u64),
    /// One that can never be written.
    Broken(u64),
    Status(u64),
    Goodbye,
    Heard {
        age_ms: u64,
    },
}

impl Kind for Said {
    type Fact = Fact;

    fn place(fact: &Fact) -> (HostId, SessionEpoch) {
        (mk_host(fact.host), SessionEpoch::from_raw(fact.epoch))
    }

    fn sort(fact: &Fact) -> Sort {
        match fact.what {
            What::Answer(_) | What::Broken(_) => Sort::Kept,
            What::Status(_) => Sort::Status,
            What::Goodbye => Sort::Goodbye,
            What::Heard { .. } => Sort::Presence,
        }
    }

    fn presence(host: HostId, session_epoch: SessionEpoch, age: Duration) -> Fact {
        let host = u8::try_from(host.uuid().as_u128()).expect("a small one");
        let age_ms = u64::try_from(age.as_millis()).expect("not long ago");
        Fact { host, epoch: session_epoch.raw(), what: What::Heard { age_ms } }
    }
}

#[test]
fn the_first_fact_goes_at_once_and_then_batches_begin_a_gathering_apart_and_one_at_a_time() {
    let mut facts = mk_facts(10, 10);
    facts.put(mk_answer(1), at(100)).expect("there is room");
    assert_eq!(facts.poll_batch(at(100)).map(|batch| batch.len()), Some(1));
    for n in 2..=4 {
        facts.put(mk_answer(n), at(101)).expect("there is room");
    }
    assert_eq!((facts.poll_timeout(), facts.poll_batch(at(200))), (None, None), "one is under way");
    assert_eq!(facts.handle_written(at(101)), [mk_answer(1)]);
    assert_eq!((facts.poll_batch(at(102)), facts.poll_timeout().map(|(due, _)| due)), (None, Some(at(103))));
    assert_eq!(facts.poll_batch(at(103)), Some((2..=4).map(mk_answer).collect()));
}

#[test]
fn presence_is_gathered_alone_goes_along_with_facts_and_is_as_old_as_it_is_when_it_goes() {
    let mut facts = mk_facts(10, 10);
    facts.put_heard(mk_host(1), SessionEpoch::from_raw(1), at(1_000));
    facts.put_heard(mk_host(1), SessionEpoch::from_raw(1), at(1_100));
    assert_eq!((facts.waiting(), facts.poll_timeout().map(|(due, _)| due)), ((0, 1), Some(at(1_250))));
    facts.put(mk_answer(1), at(1_120)).expect("there is room");
    let heard = Fact { host: 1, epoch: 1, what: What::Heard { age_ms: 20 } };
    assert_eq!(facts.poll_batch(at(1_120)), Some(vec![mk_answer(1), heard]));
}

#[test]
fn presence_that_was_not_written_at_once_is_none_and_the_rest_is_tried_again_after_waits_that_double() {
    let mut facts = mk_facts(10, 10);
    facts.put_heard(mk_host(1), SessionEpoch::from_raw(1), at(0));
    facts.put(mk_answer(1), at(0)).expect("there is room");
    let mut now = 3;
    assert_eq!(facts.poll_batch(at(now)).map(|batch| batch.len()), Some(2));
    for wait in [100, 200, 400, 800, 1_000, 1_000] {
        facts.handle_failed(at(now));
        assert_eq!(facts.poll_timeout().map(|(due, _)| due), Some(at(now + wait)));
        assert_eq!(facts.poll_batch(at(now + wait - 1)), None);
        now += wait;
        assert_eq!(facts.poll_batch(at(now)), Some(vec![mk_answer(1)]));
    }
    assert_eq!((facts.writing(), facts.waits(at(now))), (1, Some(Duration::from_millis(3_500))));
    facts.handle_written(at(now));
    assert_eq!((facts.writing(), facts.waits(at(now)), facts.poll_timeout()), (0, None, None));
    facts.put_heard(mk_host(1), SessionEpoch::from_raw(1), at(now));
    assert_eq!(facts.poll_batch(at(now + 250)).map(|batch| batch.len()), Some(1));
    facts.handle_failed(at(now + 300));
    assert_eq!(facts.poll_timeout(), None, "there is nothing to try again");
}

#[test]
fn without_room_a_fact_is_refused_and_a_status_and_a_goodbye_are_taken() {
    let mut facts = mk_facts(2, 10);
    let put = |facts: &mut Facts<Said>, what| facts.put(Fact { host: 1, epoch: 1, what }, at(0));
    assert_eq!([1, 2, 3].map(|n| put(&mut facts, What::Answer(n))), [Ok(()), Ok(()), Err(NoRoom)]);
    assert_eq!([1, 2].map(|n| put(&mut facts, What::Status(n))), [Ok(()), Ok(())]);
    assert_eq!(facts.waiting(), (3, 0), "of one host one status");
    assert_eq!(put(&mut facts, What::Goodbye), Ok(()));
    let batch = facts.poll_batch(at(3)).expect("it is time");
    assert_eq!(
        batch.iter().map(|fact| fact.what).collect::<Vec<_>>(),
        [What::Answer(1), What::Answer(2), What::Status(2), What::Goodbye]
    );
}

#[test]
fn a_fact_that_can_never_be_written_is_found_by_halves_and_left_out_alone() {
    let mut facts = mk_facts(20, 20);
    for n in 0..9 {
        let what = if n == 5 { What::Broken(n) } else { What::Answer(n) };
        facts.put(Fact { host: 1, epoch: 1, what }, at(0)).expect("there is room");
    }
    let (mut written, mut left_out) = (Vec::new(), Vec::new());
    while let Some(batch) = facts.poll_batch(at(3)) {
        if batch.iter().any(|fact| matches!(fact.what, What::Broken(_))) {
            left_out.extend(facts.handle_refused(at(3)));
        } else {
            written.extend(facts.handle_written(at(3)));
        }
    }
    assert_eq!(left_out.iter().map(|fact| fact.what).collect::<Vec<_>>(), [What::Broken(5)]);
    let order: Vec<What> = written.iter().map(|fact| fact.what).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 6, 7, 8].map(What::Answer));
}

#[test]
fn a_sign_of_life_in_a_batch_that_is_halved_is_as_old_as_it_is_at_each_try() {
    let mut facts = mk_facts(20, 20);
    facts.put(Fact { host: 1, epoch: 1, what: What::Broken(1) }, at(0)).expect("there is room");
    facts.put_heard(mk_host(2), SessionEpoch::from_raw(1), at(0));
    assert_eq!(facts.poll_batch(at(3)).map(|batch| batch[1].what), Some(What::Heard { age_ms: 3 }));
    assert_eq!(facts.handle_refused(at(50)), None);
    assert_eq!(facts.poll_batch(at(50)).map(|batch| batch[0].what), Some(What::Broken(1)));
    assert!(facts.handle_refused(at(90)).is_some());
    assert_eq!(facts.poll_batch(at(90)).map(|batch| batch[0].what), Some(What::Heard { age_ms: 90 }));
}

/// What a test does with them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8, u8),
    Heard(u8),
    Goodbye(u8),
    Begin,
    Fail,
    Answer,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4_u8, 0..5_u8).prop_map(|(host, what)| Step::Put(host, what)),
        2 => (0..4_u8).prop_map(Step::Heard),
        1 => (0..4_u8).prop_map(Step::Goodbye),
        4 => Just(Step::Begin),
        1 => Just(Step::Fail),
        4 => Just(Step::Answer),
        2 => (1..300_u64).prop_map(Step::Wait),
    ]
}

/// What was put in, and what came out, in their orders.
#[derive(Default)]
struct Model {
    kept: Vec<Fact>,
    written: Vec<Fact>,
    left_out: Vec<Fact>,
    newest: BTreeMap<(u8, u64), u64>,
    epochs: [u64; 4],
    under_way: Option<Vec<Fact>>,
}

proptest! {
    /// Whatever fails: what was taken comes out once, in its order, each goodbye behind everything of its session, and the newest status before it.
    #[test]
    fn what_is_taken_is_written_once_and_in_order(steps in prop::collection::vec(step(), 1..300), batch_max in 1..8_usize) {
        let (mut facts, mut model, mut now) = (mk_facts(30, batch_max), Model::default(), 10);
        for (n, step) in steps.into_iter().enumerate() {
            take_step(&mut facts, &mut model, &mut now, (n as u64, step));
            prop_assert!(facts.waiting().0 <= 30 + 4 + model.kept.iter().filter(|fact| fact.what == What::Goodbye).count());
        }
        // Then nothing fails any more.
        for _ in 0..2_000 {
            take_step(&mut facts, &mut model, &mut now, (0, Step::Answer));
            take_step(&mut facts, &mut model, &mut now, (0, Step::Wait(300)));
            take_step(&mut facts, &mut model, &mut now, (0, Step::Begin));
        }
        prop_assert_eq!((facts.waiting(), facts.writing()), ((0, 0), 0));
        let is_kept = |fact: &&Fact| Said::sort(fact) == Sort::Kept || fact.what == What::Goodbye;
        let written: Vec<Fact> = model.written.iter().filter(is_kept).copied().collect();
        let kept: Vec<Fact> = model.kept.iter().filter(|fact| !matches!(fact.what, What::Broken(_))).copied().collect();
        prop_assert_eq!(written, kept, "in their order, each once");
        let left_out: BTreeSet<Fact> = model.left_out.iter().copied().collect();
        let broken: BTreeSet<Fact> = model.kept.iter().filter(|fact| matches!(fact.what, What::Broken(_))).copied().collect();
        prop_assert_eq!(left_out, broken);
        let mut last: BTreeMap<(u8, u64), u64> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for fact in &model.written {
            let place = (fact.host, fact.epoch);
            prop_assert!(matches!(fact.what, What::Heard { .. }) || !gone.contains(&place), "{:?} after its goodbye", fact);
            match fact.what {
                What::Status(n) => prop_assert!(last.insert(place, n).is_none_or(|before| before < n)),
                What::Goodbye => {
                    gone.insert(place);
                }
                What::Answer(_) | What::Broken(_) | What::Heard { .. } => {}
            }
        }
        prop_assert_eq!(last, model.newest, "the newest word of each session is written");
    }
}

fn take_step(facts: &mut Facts<Said>, model: &mut Model, now: &mut u64, (n, step): (u64, Step)) {
    match step {
        Step::Put(host, what) => {
            let what = match what {
                0 => What::Broken(n),
                1 | 2 => What::Status(n),
                _ => What::Answer(n),
            };
            let fact = Fact { host, epoch: model.epochs[usize::from(host)], what };
            if facts.put(fact, at(*now)).is_ok() {
                match what {
                    What::Status(n) => _ = model.newest.insert((host, fact.epoch), n),
                    What::Answer(_) | What::Broken(_) | What::Goodbye | What::Heard { .. } => model.kept.push(fact),
                }
            }
        }
        Step::Heard(host) => {
            facts.put_heard(mk_host(host), SessionEpoch::from_raw(model.epochs[usize::from(host)]), at(*now));
        }
        Step::Goodbye(host) => {
            let epoch = &mut model.epochs[usize::from(host)];
            let fact = Fact { host, epoch: *epoch, what: What::Goodbye };
            *epoch += 1;
            facts.put(fact, at(*now)).expect("it is always taken");
            model.kept.push(fact);
        }
        Step::Begin => {
            if let Some(batch) = facts.poll_batch(at(*now)) {
                assert!(model.under_way.is_none(), "one at a time");
                model.under_way = Some(batch);
            }
        }
        Step::Fail if model.under_way.take().is_some() => facts.handle_failed(at(*now)),
        Step::Answer => {
            let Some(batch) = model.under_way.take() else { return };
            if batch.iter().any(|fact| matches!(fact.what, What::Broken(_))) {
                model.left_out.extend(facts.handle_refused(at(*now)));
            } else {
                assert_eq!(facts.handle_written(at(*now)).len(), batch.len());
                model.written.extend(batch);
            }
        }
        Step::Fail => {}
        Step::Wait(ms) => *now += ms,
    }
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn mk_host(number: u8) -> HostId {
    HostId::new(Uuid::from_u128(u128::from(number)))
}

const fn mk_answer(n: u64) -> Fact {
    Fact { host: 1, epoch: 1, what: What::Answer(n) }
}

fn mk_facts(waiting_max: usize, batch_max: usize) -> Facts<Said> {
    Facts::new(Limits {
        waiting_max,
        batch_max,
        gather: Duration::from_millis(3),
        presence_gather: Duration::from_millis(250),
        retry: Duration::from_millis(100),
        retry_max: Duration::from_secs(1),
    })
}
