//! Rollouts: one at a time, each step once, and back without a trace for whoever was held.

use std::collections::BTreeSet;

use holdfast_events::{Actor, Detail, HaltReason};
use holdfast_model::ids::HostId;
use holdfast_model::intent::ObjectKey;
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use holdfast_store::intent::{Applied, Decommission, Decommissioned, IntentChange};
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::once::{Once, RequestKey};
use holdfast_store::operation::Operation;
use holdfast_store::rollout::{AbortAnswer, Aborted, Moved, Obstacle, Rollout, RolloutStep};

use crate::common::{Fleet, OPERATOR, mk_change, mk_finish, mk_namespace, mk_start};

#[tokio::test]
async fn a_rollout_begins_with_its_change_and_no_other_beside_it() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    assert_eq!((rollout.held_revision.next(), rollout.stage, rollout.version), (Some(rollout.revision), 1, 1));
    assert_eq!((rollout.state, rollout.held_hosts, rollout.is_rendered()), (RolloutState::Progressing, 1, false));
    let changes = fleet.renderer.changes_since(rollout.held_revision).await.expect("reads");
    let open = changes.rollout.expect("it is open with its revision");
    assert_eq!((open.rollout, open.stage, open.held_revision), (rollout.id, 1, rollout.held_revision));
    let held = fleet.renderer.hosts_after_stage(rollout.id, 1).await.expect("reads");
    assert_eq!(held, BTreeSet::from([b]));
    let second = mk_change(vec![mk_namespace("n", "2")]);
    let refused = fleet.operators.apply_in_stages(second.clone(), mk_start(&[a, b])).await.expect("answers");
    assert_eq!(refused, Applied::NoRollout(Obstacle::Open(rollout.id)));
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), rollout.revision);
    let ordinary = fleet.operators.apply_intent(second).await.expect("applies");
    assert!(matches!(ordinary, Applied::Changed { .. }), "others go on: {ordinary:?}");
}

#[tokio::test]
async fn no_rollout_begins_under_a_renderer_of_an_older_build_and_one_that_is_open_says_so() {
    let (fleet, [a, b]) = mk_fleet().await;
    // As a build does that does not know the column: another holder, and the next term.
    let older = || {
        fleet.server.sql(
            "INSERT INTO leases AS l (name, holder, term, expires_at, lasts_s) \
             VALUES ('renderer', 'older', 1, clock_timestamp() + interval '30 s', 30) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, term = l.term + 1, expires_at = excluded.expires_at",
        )
    };
    let claim = async || {
        fleet.server.sql("UPDATE leases SET expires_at = 'epoch' WHERE name = 'renderer'");
        fleet.renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "this build").await.expect("claims")
    };
    let change = || mk_change(vec![mk_namespace("n", "1")]);
    let before = fleet.operators.latest_revision().await.expect("reads");
    older();
    let refused = fleet.operators.apply_in_stages(change(), mk_start(&[a, b])).await.expect("answers");
    assert_eq!(refused, Applied::NoRollout(Obstacle::Renderer));
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), before, "nothing was changed");
    fleet.server.sql("DELETE FROM leases WHERE name = 'renderer'");
    let refused = fleet.operators.apply_in_stages(change(), mk_start(&[a, b])).await.expect("answers");
    assert_eq!(refused, Applied::NoRollout(Obstacle::Renderer), "nobody ever led");
    for _ in 0..2 {
        assert!(matches!(claim().await, Claim::Acquired(_)));
    }
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    assert!(rollout.is_known_to_renderer);
    older();
    assert!(!load(&fleet, &rollout).await.is_known_to_renderer, "one of an older build took over");
    assert!(matches!(claim().await, Claim::Acquired(_)));
    assert!(load(&fleet, &rollout).await.is_known_to_renderer);
}

#[tokio::test]
async fn a_stage_is_excused_by_a_resume_of_what_halted_for_want_of_its_hosts_and_by_nothing_else() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    let halt = async |reason| {
        let halt = RolloutStep::Halt { reason, hosts: Vec::new(), detail: Detail::new("why") };
        assert!(fleet.operators.step_rollout(OPERATOR, &load(&fleet, &rollout).await, halt).await.expect("steps"));
        assert_eq!(load(&fleet, &rollout).await.halt_reason, Some(reason));
        let resumed = fleet.operators.resume_rollout(OPERATOR, rollout.id, None, None).await.expect("answers");
        assert_eq!(resumed, Once::Now(Moved::Done));
        load(&fleet, &rollout).await
    };
    assert!(!halt(HaltReason::Failed).await.is_excused());
    fleet.operators.pause_rollout(OPERATOR, rollout.id, None, None).await.expect("pauses");
    fleet.operators.resume_rollout(OPERATOR, rollout.id, None, None).await.expect("resumes");
    assert!(!load(&fleet, &rollout).await.is_excused());
    let excused = halt(HaltReason::Nobody).await;
    assert_eq!((excused.is_excused(), excused.halt_reason), (true, None));
    assert!(fleet.operators.step_rollout(OPERATOR, &excused, RolloutStep::Open).await.expect("steps"));
    assert!(!load(&fleet, &rollout).await.is_excused(), "the next stage is another");
}

#[tokio::test]
async fn a_rollout_is_moved_as_it_was_read_or_not_at_all() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    let (id, read) = (rollout.id, Some(rollout.version));
    let paused = fleet.operators.pause_rollout(OPERATOR, id, read, None).await.expect("answers");
    assert_eq!(paused, Once::Now(Moved::Done));
    let stale = Once::Now(Moved::Stale(2));
    assert_eq!(fleet.operators.pause_rollout(OPERATOR, id, read, None).await.expect("answers"), stale);
    assert_eq!(fleet.operators.resume_rollout(OPERATOR, id, read, None).await.expect("answers"), stale);
    let kept = fleet.operators.abort_rollout(OPERATOR, id, read, None).await.expect("answers");
    assert_eq!(kept, Once::Now(AbortAnswer::Stale(2)));
    assert_eq!(load(&fleet, &rollout).await.state, RolloutState::Paused);
    let aborted = fleet.operators.abort_rollout(OPERATOR, id, Some(2), None).await.expect("answers");
    assert!(matches!(aborted, Once::Now(AbortAnswer::Done(_))), "{aborted:?}");
}

#[tokio::test]
async fn what_changes_nothing_begins_nothing() {
    let (fleet, [a, b]) = mk_fleet().await;
    let change = mk_change(vec![mk_namespace("n", "0")]);
    let unchanged = fleet.operators.apply_in_stages(change, mk_start(&[a, b])).await.expect("answers");
    assert!(matches!(unchanged, Applied::Unchanged { .. }), "{unchanged:?}");
    assert_eq!(fleet.operators.open_rollout().await.expect("reads"), None);
}

#[tokio::test]
async fn a_step_is_taken_on_the_row_as_it_was_seen_or_not_at_all() {
    let (fleet, [a, b]) = mk_fleet().await;
    let seen = fleet.begin("n", "1", &[a, b]).await;
    let step = |seen: &Rollout, step| {
        let (store, seen) = (fleet.operators.clone(), seen.clone());
        async move { store.step_rollout(OPERATOR, &seen, step).await.expect("answers") }
    };
    let (one, other) = tokio::join!(step(&seen, RolloutStep::Open), step(&seen, RolloutStep::Open));
    assert!(one != other, "one of two that step at once does");
    let opened = load(&fleet, &seen).await;
    assert_eq!((opened.stage, opened.version, opened.held_hosts), (2, 2, 0));
    assert!(!step(&seen, mk_finish()).await);
    fleet.operators.pause_rollout(OPERATOR, seen.id, None, None).await.expect("pauses");
    assert!(!step(&load(&fleet, &seen).await, mk_finish()).await, "one that is paused goes nowhere");
    let resumed = fleet.operators.resume_rollout(OPERATOR, seen.id, None, None).await.expect("resumes");
    assert_eq!(resumed, Once::Now(Moved::Done));
    assert!(step(&load(&fleet, &seen).await, mk_finish()).await);
    let ended = fleet.operators.resume_rollout(OPERATOR, seen.id, None, None).await.expect("answers");
    assert_eq!(ended, Once::Now(Moved::Not(RolloutState::Finished)));
    assert_eq!(fleet.operators.open_rollout().await.expect("reads"), None);
    assert_eq!(load(&fleet, &seen).await.detail, "1 of 2 hosts have it");
    let told = "SELECT payload->>'hosts', payload->>'detail' FROM events WHERE kind = 'rollout.finished'";
    assert_eq!(fleet.server.sql(told), "1|1 of 2 hosts have it\n");
    assert_eq!(count(&fleet, "rollout.%"), 7);
}

#[tokio::test]
async fn a_rollout_is_overwritten_by_what_changed_while_it_was_open_and_by_nothing_later() {
    let (fleet, [a, b]) = mk_fleet().await;
    let change = |labels: &str| mk_change(vec![mk_namespace("n", labels)]);
    let apply = async |change| {
        let applied = fleet.operators.apply_intent(change).await.expect("applies");
        let Applied::Changed { revision, .. } = applied else { panic!("{applied:?}") };
        revision
    };
    let at = async |rollout: &Rollout| {
        let rollout = load(&fleet, rollout).await;
        fleet.operators.rollout_overwritten_at(&rollout).await.expect("reads")
    };
    let finish = async |rollout: &Rollout| {
        assert!(
            fleet.operators.step_rollout(OPERATOR, &load(&fleet, rollout).await, mk_finish()).await.expect("steps")
        );
    };
    let first = fleet.begin("n", "1", &[a, b]).await;
    apply(mk_change(vec![mk_namespace("other", "x")])).await;
    assert_eq!(at(&first).await, None, "another object");
    finish(&first).await;
    apply(change("2")).await;
    assert_eq!(at(&first).await, None, "it had ended");
    let second = fleet.begin("n", "3", &[a, b]).await;
    let by = apply(change("4")).await;
    apply(change("5")).await;
    assert_eq!(at(&second).await, Some(by));
    finish(&second).await;
    assert_eq!(at(&second).await, Some(by), "also when it has ended");
}

#[tokio::test]
async fn what_the_renderer_says_counts_for_the_stages_that_are_opened_now() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    fleet.let_go(rollout.id).await;
    let rendered = load(&fleet, &rollout).await;
    assert!(rendered.is_rendered());
    assert!(fleet.operators.step_rollout(OPERATOR, &rendered, RolloutStep::Open).await.expect("steps"));
    assert!(!load(&fleet, &rollout).await.is_rendered(), "nobody said so of the second stage");
    let events = count(&fleet, "render.committed");
    fleet.let_go(rollout.id).await;
    fleet.let_go(rollout.id).await;
    assert_eq!(count(&fleet, "render.committed"), events + 1, "said once");
    assert!(load(&fleet, &rollout).await.is_rendered());
}

#[tokio::test]
async fn the_databases_absence_is_no_part_of_a_stages_time() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    fleet.server.sql("UPDATE rollouts SET stage_began_at = now() - interval '10 min'");
    let age_s = |rollout: Rollout| rollout.stage_age_ms / 1_000;
    assert!((600..660).contains(&age_s(load(&fleet, &rollout).await)), "nobody was away");
    let away = |from: u32| {
        let until = "away_until = now() - interval '1 min', beat_at = now()";
        fleet.server.sql(&format!("UPDATE pulse SET away_from = now() - interval '{from} min', {until}"))
    };
    away(9);
    assert!((120..180).contains(&age_s(load(&fleet, &rollout).await)), "8 minutes were nobody's");
    away(20);
    assert!((60..120).contains(&age_s(load(&fleet, &rollout).await)), "nor those before it");
    fleet.server.sql("UPDATE pulse SET beat_at = now() - interval '9 min'");
    assert!((60..120).contains(&age_s(load(&fleet, &rollout).await)), "one that lasts counts until now");
}

#[tokio::test]
async fn an_abort_puts_back_what_was_changed_but_for_what_was_changed_again() {
    let (fleet, [a, b]) = mk_fleet().await;
    let (kept, again, gone) = (mk_namespace("n", "0"), mk_namespace("again", "0"), mk_namespace("gone", "0"));
    fleet.put(vec![again.clone(), gone.clone()]).await;
    let base = fleet.operators.load_intent(None).await.expect("loads").1;
    let change = IntentChange {
        deletes: vec![gone.key()],
        ..mk_change(vec![mk_namespace("n", "1"), mk_namespace("again", "1"), mk_namespace("new", "1")])
    };
    let start = mk_start(&[a, b]);
    let id = start.rollout;
    fleet.operators.apply_in_stages(change, start).await.expect("applies");
    fleet.put(vec![mk_namespace("again", "2")]).await;
    let key =
        RequestKey { token: holdfast_model::ids::ApiTokenId::new(id.uuid()), key: "k".to_owned(), request: digest() };
    let aborted = fleet.operators.abort_rollout(OPERATOR, id, None, Some(key.clone())).await.expect("aborts");
    let Once::Now(AbortAnswer::Done(Aborted { change: Some((revision, operation)), left })) = aborted else {
        panic!("{aborted:?}")
    };
    assert_eq!(left, vec![again.key()]);
    let (_, now) = fleet.operators.load_intent(None).await.expect("loads");
    let mut wanted = base;
    wanted.put(mk_namespace("again", "2"));
    assert_eq!(now.objects, wanted.objects);
    assert!(now.objects.contains_key(&kept.key()) && !now.objects.contains_key(&key_of("new")));
    let operation: Operation = fleet.operators.load_operation(operation).await.expect("reads").expect("is there");
    assert_eq!((operation.verb.word(), operation.changes, operation.revision), ("abort", 3, revision));
    let rollout = fleet.operators.load_rollout(id).await.expect("reads").expect("is there");
    assert_eq!((rollout.state, rollout.abort_revision, rollout.held_hosts), (RolloutState::Aborted, Some(revision), 0));
    let before = fleet.operators.abort_rollout(OPERATOR, id, None, Some(key)).await.expect("answers");
    assert!(matches!(before, Once::Before(_)), "{before:?}");
    let twice = fleet.operators.abort_rollout(OPERATOR, id, None, None).await.expect("answers");
    assert_eq!(twice, Once::Now(AbortAnswer::EndedBefore(RolloutState::Aborted)));
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), revision);
}

#[tokio::test]
async fn a_host_is_held_until_its_stage_opens_and_one_that_enrols_meanwhile_is_not() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    let late = fleet.enrol("late", "10.0.0.3").await;
    let held = |fleet: &Fleet| {
        let store = fleet.operators.clone();
        async move {
            let status = store.fleet_status(None).await.expect("loads");
            let one = |host: holdfast_store::status::HostStatus| host.held.map(|held| (host.host, held.revision));
            status.hosts.into_iter().filter_map(one).collect::<Vec<(HostId, Revision)>>()
        }
    };
    assert_eq!(held(&fleet).await, [(b, rollout.held_revision)]);
    assert_eq!(load(&fleet, &rollout).await.held_hosts, 1);
    let halt = RolloutStep::Halt { reason: HaltReason::Failed, hosts: vec![a], detail: Detail::new("a failed") };
    assert!(fleet.operators.step_rollout(OPERATOR, &rollout, halt).await.expect("steps"));
    assert_eq!(held(&fleet).await, [(b, rollout.held_revision)], "a halt lets nobody go");
    fleet.operators.resume_rollout(OPERATOR, rollout.id, None, None).await.expect("resumes");
    let seen = load(&fleet, &rollout).await;
    assert!(fleet.operators.step_rollout(OPERATOR, &seen, RolloutStep::Open).await.expect("steps"));
    assert_eq!(held(&fleet).await, []);
    assert_eq!(fleet.operators.hosts_outside_rollout(rollout.id).await.expect("reads"), [late]);
}

#[tokio::test]
async fn a_host_that_was_taken_out_is_held_by_nobody() {
    let (fleet, [a, b]) = mk_fleet().await;
    let rollout = fleet.begin("n", "1", &[a, b]).await;
    assert_eq!(rollout.held_hosts, 1);
    let out = Decommission { actor: OPERATOR, host: b, detail: Detail::default(), expected: None, because: None };
    assert!(matches!(fleet.operators.decommission(out).await.expect("answers"), Decommissioned::Out { .. }));
    assert_eq!(load(&fleet, &rollout).await.held_hosts, 0);
}

async fn load(fleet: &Fleet, rollout: &Rollout) -> Rollout {
    fleet.operators.load_rollout(rollout.id).await.expect("reads").expect("it is there")
}

/// Two hosts, and a namespace.
async fn mk_fleet() -> (Fleet, [HostId; 2]) {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let hosts = [fleet.enrol("a", "10.0.0.1").await, fleet.enrol("b", "10.0.0.2").await];
    fleet.put(vec![mk_namespace("n", "0")]).await;
    (fleet, hosts)
}

fn count(fleet: &Fleet, kind: &str) -> u32 {
    let count = fleet.server.sql(&format!("SELECT count(*) FROM events WHERE kind LIKE '{kind}'"));
    count.trim().parse().expect("a number")
}

fn key_of(name: &str) -> ObjectKey {
    mk_namespace(name, "1").key()
}

fn digest() -> holdfast_model::digest::Digest {
    holdfast_model::digest::Digest::of(b"abort")
}
