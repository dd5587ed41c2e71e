//! The gate against a plain reading of its rules, over generated histories.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const ROLLOUT: RolloutId = RolloutId::new(Uuid::from_u128(1));
const RULES: Rules = Rules { max_failed: 0, max_unknown: 0, stage_timeout_ms: 600_000 };
const EVERY_MS: Millis = 1_000;

fn host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

fn mk_hosts(states: &[State]) -> Vec<(HostId, State)> {
    states.iter().zip(1..).map(|(state, n)| (host(n), *state)).collect()
}

fn mk_look(hosts: &[(HostId, State)]) -> Look<'_> {
    Look {
        rollout: ROLLOUT,
        attempt: 1,
        rules: RULES,
        is_last: false,
        stage_age_ms: 0,
        is_rendered: true,
        hosts,
        late: &[],
        in_last_stage: hosts.len(),
        is_excused: false,
        is_known_to_renderer: true,
    }
}

/// Looks once a second for so long.
fn look_for(gate: &mut Gate, look: &Look<'_>, from: Millis, lasts: Millis) -> Step {
    let mut step = Step::Wait;
    for second in 0..=lasts / EVERY_MS {
        step = gate.handle_look(look, from + second * EVERY_MS);
        if step != Step::Wait {
            break;
        }
    }
    step
}

#[test]
fn a_stage_opens_when_all_of_the_opened_ones_are_proven_and_the_last_finishes() {
    let hosts = mk_hosts(&[State::Converged, State::Degraded]);
    let look = mk_look(&hosts);
    assert_eq!(Gate::default().handle_look(&look, 0), Step::Open);
    assert_eq!(Gate::default().handle_look(&Look { is_last: true, ..look.clone() }, 0), Step::Finish);
    assert_eq!(Gate::default().handle_look(&Look { is_rendered: false, ..look.clone() }, 0), Step::Wait);
    let hosts = mk_hosts(&[State::Converged, State::Progressing]);
    assert_eq!(Gate::default().handle_look(&mk_look(&hosts), 0), Step::Wait);
}

#[test]
fn a_failure_halts_when_it_lasts_and_one_that_recovers_at_once_does_not() {
    let (failed, well) = (mk_hosts(&[State::Failed, State::Converged]), mk_hosts(&[State::Progressing; 2]));
    let mut gate = Gate::default();
    for round in 0..5 {
        let from = round * 10 * EVERY_MS;
        assert_eq!(look_for(&mut gate, &mk_look(&failed), from, FAILED_LASTS_MS - EVERY_MS), Step::Wait);
        assert_eq!(gate.handle_look(&mk_look(&well), from + FAILED_LASTS_MS), Step::Wait);
    }
    let halted = look_for(&mut gate, &mk_look(&failed), 100_000, FAILED_LASTS_MS);
    assert_eq!(halted, Step::Halt(Halt::Failed(vec![host(1)])));
}

#[test]
fn silence_halts_after_a_minute_and_not_when_the_looker_was_away() {
    let hosts = mk_hosts(&[State::Unknown]);
    let look = mk_look(&hosts);
    let mut gate = Gate::default();
    assert_eq!(gate.handle_look(&look, 0), Step::Wait);
    assert_eq!(gate.handle_look(&look, 10 * UNKNOWN_LASTS_MS), Step::Wait, "nobody looked meanwhile");
    let halted = look_for(&mut gate, &look, 10 * UNKNOWN_LASTS_MS, UNKNOWN_LASTS_MS);
    assert_eq!(halted, Step::Halt(Halt::Unknown(vec![host(1)])));
}

#[test]
fn what_may_fail_keeps_nothing_waiting() {
    let hosts = mk_hosts(&[State::Failed, State::Unknown, State::Converged]);
    let rules = Rules { max_failed: 1, max_unknown: 1, ..RULES };
    let look = Look { rules, ..mk_look(&hosts) };
    assert_eq!(look_for(&mut Gate::default(), &look, 0, UNKNOWN_LASTS_MS), Step::Open);
}

#[test]
fn a_resumed_rollout_counts_anew() {
    let hosts = mk_hosts(&[State::Failed]);
    let mut gate = Gate::default();
    assert!(matches!(look_for(&mut gate, &mk_look(&hosts), 0, FAILED_LASTS_MS), Step::Halt(_)));
    let again = Look { attempt: 2, ..mk_look(&hosts) };
    assert_eq!(gate.handle_look(&again, FAILED_LASTS_MS + EVERY_MS), Step::Wait);
}

#[test]
fn a_stage_that_takes_too_long_or_has_no_host_left_halts() {
    let hosts = mk_hosts(&[State::Progressing, State::Converged]);
    let late = Look { stage_age_ms: RULES.stage_timeout_ms, ..mk_look(&hosts) };
    assert_eq!(Gate::default().handle_look(&late, 0), Step::Halt(Halt::Late(vec![host(1)])));
    let unrendered = Look { is_rendered: false, ..late };
    assert_eq!(Gate::default().handle_look(&unrendered, 0), Step::Halt(Halt::Late(vec![])));
    let nobody = Look { in_last_stage: 0, ..mk_look(&hosts) };
    assert_eq!(Gate::default().handle_look(&nobody, 0), Step::Halt(Halt::Nobody));
}

#[test]
fn a_stage_that_has_no_host_left_passes_if_an_operator_says_so_and_the_others_are_proven_all_the_same() {
    let hosts = mk_hosts(&[State::Converged]);
    let excused = Look { in_last_stage: 0, is_excused: true, ..mk_look(&hosts) };
    assert_eq!(Gate::default().handle_look(&excused, 0), Step::Open);
    assert_eq!(Gate::default().handle_look(&Look { is_last: true, ..excused.clone() }, 0), Step::Finish);
    assert_eq!(
        Gate::default().handle_look(&Look { hosts: &[], ..excused.clone() }, 0),
        Step::Open,
        "nobody at all is left"
    );
    let hosts = mk_hosts(&[State::Progressing]);
    assert_eq!(Gate::default().handle_look(&Look { hosts: &hosts, ..excused }, 0), Step::Wait);
}

#[test]
fn a_host_that_enrolled_meanwhile_counts_where_it_failed_for_long_and_is_waited_for_by_nobody() {
    let (hosts, waiting) = (mk_hosts(&[State::Converged]), mk_hosts(&[State::Progressing]));
    for state in [State::Converged, State::Degraded, State::Progressing, State::Unknown] {
        let late = [(host(7), state)];
        let look = Look { late: &late, ..mk_look(&hosts) };
        assert_eq!(Gate::default().handle_look(&look, 0), Step::Open, "{state}");
        let look = Look { late: &late, ..mk_look(&waiting) };
        assert_eq!(look_for(&mut Gate::default(), &look, 0, 2 * UNKNOWN_LASTS_MS), Step::Wait, "{state}");
    }
    let late = [(host(7), State::Failed)];
    let look = Look { late: &late, ..mk_look(&waiting) };
    let halted = look_for(&mut Gate::default(), &look, 0, FAILED_LASTS_MS);
    assert_eq!(halted, Step::Halt(Halt::Failed(vec![host(7)])));
    let allowed = Look { rules: Rules { max_failed: 1, ..RULES }, ..look };
    assert_eq!(look_for(&mut Gate::default(), &allowed, 0, 2 * FAILED_LASTS_MS), Step::Wait);
}

#[test]
fn a_renderer_that_knows_no_rollouts_halts_whatever_is_proven() {
    let hosts = mk_hosts(&[State::Converged]);
    let look = Look { is_known_to_renderer: false, ..mk_look(&hosts) };
    assert_eq!(Gate::default().handle_look(&look, 0), Step::Halt(Halt::Renderer));
}

fn states() -> impl Strategy<Value = State> {
    prop::sample::select(vec![State::Converged, State::Degraded, State::Progressing, State::Failed, State::Unknown])
}

proptest! {
    /// A gate that opens has seen each host proven now, or in trouble for as long as counts and no more of them than allowed.
    #[test]
    fn no_stage_opens_without_evidence_of_every_host(
        history in prop::collection::vec(prop::collection::vec(states(), 3), 1..90),
        max_failed in 0_u32..2, max_unknown in 0_u32..2, is_last: bool,
    ) {
        let rules = Rules { max_failed, max_unknown, ..RULES };
        let mut gate = Gate::default();
        let mut since = [0_u64; 3];
        for (at, states) in history.iter().enumerate() {
            let now = at as u64 * EVERY_MS;
            for (n, state) in states.iter().enumerate() {
                if at == 0 || history[at - 1][n] != *state {
                    since[n] = now;
                }
            }
            let hosts = mk_hosts(states);
            let step = gate.handle_look(&Look { rules, is_last, ..mk_look(&hosts) }, now);
            let count = |wanted: State, lasts: Millis| {
                states.iter().zip(since).filter(|(state, since)| **state == wanted && now - since >= lasts).count()
            };
            let (failed, unknown) = (count(State::Failed, FAILED_LASTS_MS), count(State::Unknown, UNKNOWN_LASTS_MS));
            let proven = states.iter().filter(|state| matches!(state, State::Converged | State::Degraded)).count();
            let is_halted = failed > max_failed as usize || unknown > max_unknown as usize;
            prop_assert_eq!(is_halted, matches!(step, Step::Halt(_)));
            let opens = !is_halted && proven + failed + unknown == states.len();
            prop_assert_eq!(opens, matches!(step, Step::Open | Step::Finish), "{:?}", step);
        }
    }
}
