//! What is asked for under a name is done once, and what operations wait for is fixed.

use std::collections::BTreeMap;

use holdfast_events::{Actor, ApiTokenCreated, CloseReason, Detail, Label128, NamespaceScope, OperationState, Role};
use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{ApiTokenId, HostId, OperationId};
use holdfast_model::numbers::Revision;
use holdfast_model::operation::HostOutcome;
use holdfast_store::intent::{Applied, ChangeKind, IntentChange, KeptChange};
use holdfast_store::once::{Once, RequestKey};
use holdfast_store::operation::{Cancelled, Seen};
use holdfast_store::render::RenderCommit;
use holdfast_store::session::Closing;
use holdfast_store::token::TokenHash;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::common::{Fleet, OPERATOR, mk_change, mk_namespace, mk_stamp};

fn mk_key(token: u128, key: &str, request: &str) -> Option<RequestKey> {
    let (token, request) = (ApiTokenId::new(Uuid::from_u128(token)), Digest::of(request.as_bytes()));
    Some(RequestKey { token, key: key.to_owned(), request })
}

fn changed(applied: Applied) -> KeptChange {
    match applied {
        Applied::Changed { revision, operation, .. } => {
            KeptChange { revision, operation: Some(operation), rollout: None }
        }
        other @ (Applied::Unchanged { .. }
        | Applied::Moved { .. }
        | Applied::Missing { .. }
        | Applied::Before(_)
        | Applied::NoRollout(_)
        | Applied::OtherRequest) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c39_i15_the_same_under_one_name_is_one_change_and_another_under_it_none() {
    let fleet = Fleet::start().await;
    let put = async |team: &str, key| {
        let change = IntentChange { key, ..mk_change(vec![mk_namespace("a", team)]) };
        fleet.operators.apply_intent(change).await.expect("answers")
    };
    let first = changed(put("x", mk_key(1, "k", "x")).await);
    assert_eq!(put("x", mk_key(1, "k", "x")).await, Applied::Before(first));
    // Somebody else changes the same; asking again answers as before, and changes nothing back.
    changed(put("y", None).await);
    assert_eq!(put("x", mk_key(1, "k", "x")).await, Applied::Before(first));
    assert_eq!(put("z", mk_key(1, "k", "z")).await, Applied::OtherRequest);
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), Revision::from_raw(2));
    assert_eq!(
        fleet.operators.changes_of(first.revision).await.expect("reads"),
        [(mk_namespace("a", "x").key(), ChangeKind::Created)]
    );
    // Another's same word is another name.
    changed(put("z", mk_key(2, "k", "z")).await);
    // What changed nothing is known too: later it would change something.
    let unchanged = put("z", mk_key(1, "none", "z")).await;
    assert_eq!(unchanged, Applied::Unchanged { revision: Revision::from_raw(3) });
    changed(put("w", None).await);
    let kept = KeptChange { revision: Revision::from_raw(3), operation: None, rollout: None };
    assert_eq!(put("z", mk_key(1, "none", "z")).await, Applied::Before(kept));
    // A refusal takes no name.
    let stale = IntentChange {
        expected: Some(Revision::ZERO),
        key: mk_key(1, "free", "s"),
        ..mk_change(vec![mk_namespace("a", "s")])
    };
    let refused = fleet.operators.apply_intent(stale).await.expect("answers");
    assert_eq!(refused, Applied::Moved { revision: Revision::from_raw(4) });
    changed(put("v", mk_key(1, "free", "v")).await);
}

#[tokio::test]
async fn i15_many_that_ask_the_same_at_once_make_one_change_and_get_one_answer() {
    let fleet = Fleet::start().await;
    let one = |n: u32| {
        let other = fleet.server.store("holdfast_gateway_operators");
        let operators = if n.is_multiple_of(2) { fleet.operators.clone() } else { other };
        let change = IntentChange { key: mk_key(1, "k", "x"), ..mk_change(vec![mk_namespace("a", "x")]) };
        async move { operators.apply_intent(change).await.expect("answers") }
    };
    let answers = (0..12).map(one).collect::<JoinSet<Applied>>().join_all().await;
    let mut kept: Vec<KeptChange> = answers
        .iter()
        .filter_map(|answer| if let Applied::Before(kept) = answer { Some(*kept) } else { None })
        .collect();
    assert_eq!(kept.len(), 11, "{answers:?}");
    kept.extend(answers.into_iter().filter(|answer| matches!(answer, Applied::Changed { .. })).map(changed));
    kept.dedup();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fleet.server.sql("SELECT count(*) FROM operations").trim(), "1");
}

#[tokio::test]
async fn i15_a_token_or_a_life_that_is_asked_for_again_is_not_made_again() {
    let fleet = Fleet::start().await;
    let make = async |hash: u8, request: &str| {
        let token = ApiTokenId::new(Uuid::now_v7());
        let name = Label128::new("ci");
        let namespaces = NamespaceScope::All;
        let created = ApiTokenCreated { token, name, role: Role::Editor, namespaces, expires_at: None };
        let hash = TokenHash([hash; 32]);
        let made = fleet.operators.create_api_token_once(OPERATOR, created, hash, mk_key(1, "t", request)).await;
        (token, made.expect("answers"))
    };
    let (token, made) = make(1, "ci").await;
    assert_eq!(made, Once::Now(()));
    assert_eq!(make(2, "ci").await.1, Once::Before(token));
    assert_eq!(make(3, "cd").await.1, Once::Other);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM api_tokens").trim(), "1");
    let revoke = async |key| fleet.operators.revoke_api_token_once(OPERATOR, token, key).await.expect("answers");
    assert_eq!(revoke(mk_key(1, "r", "r")).await, Once::Now(true));
    assert_eq!(revoke(mk_key(1, "r", "r")).await, Once::Before(true));
    assert_eq!(revoke(mk_key(1, "r2", "r")).await, Once::Now(false), "another asks for what was done");
    let raise = async || {
        let raised = fleet.operators.raise_authority_epoch_once(OPERATOR, Detail::new("x"), None, mk_key(1, "e", "e"));
        raised.await.expect("answers")
    };
    let Once::Now(epoch) = raise().await else { panic!("it is raised") };
    assert_eq!(raise().await, Once::Before(epoch));
    assert_eq!(fleet.operators.load_authority().await.expect("reads").epoch, epoch);
}

#[tokio::test]
async fn what_made_no_operation_is_forgotten_after_a_day_and_what_made_one_is_not() {
    let fleet = Fleet::start().await;
    let put = async |team: &str, key: &str| {
        let change = IntentChange { key: mk_key(1, key, team), ..mk_change(vec![mk_namespace("a", team)]) };
        fleet.operators.apply_intent(change).await.expect("answers")
    };
    changed(put("x", "made").await);
    assert!(matches!(put("x", "passing").await, Applied::Unchanged { .. }));
    fleet.server.sql("UPDATE idempotency_keys SET at = at - interval '23 hours'");
    changed(put("y", "more").await);
    let names = || fleet.server.sql("SELECT string_agg(key, ' ' ORDER BY key) FROM idempotency_keys").trim().to_owned();
    assert_eq!(names(), "made more passing");
    fleet.server.sql("UPDATE idempotency_keys SET at = at - interval '2 hours'");
    changed(put("z", "most").await);
    assert_eq!(names(), "made more most");
}

#[tokio::test]
async fn what_an_operation_waits_for_is_the_first_version_of_each_host_with_it_until_all_are_rendered() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let (a, b, c) =
        (fleet.enrol("a", "10.0.0.1").await, fleet.enrol("b", "10.0.0.2").await, fleet.enrol("c", "10.0.0.3").await);
    fleet.render(3, 1, &[a, b, c]).await;
    let put =
        async |team: &str| changed(fleet.put(vec![mk_namespace("a", team)]).await).operation.expect("it made one");
    let (first, second) = (put("x").await, put("y").await);
    let targets = async |id: OperationId| -> Vec<(HostId, u64)> {
        let targets = fleet.operators.operation_targets(id).await.expect("reads");
        assert!(targets.iter().all(|one| one.component == Component::Policy && one.seen.is_none()));
        targets.into_iter().map(|one| (one.host, one.stamp.version.raw())).collect()
    };
    let commit = async |revision, intent, version, hosts: &[HostId]| {
        let commit = RenderCommit { intent: Revision::from_raw(intent), ..fleet.mk_commit(revision, version, hosts) };
        fleet.renderer.commit_render(commit).await.expect("commits");
    };
    // A goes at once, of the intent of revision 4; what is rendered everywhere is revision 3 still.
    commit(3, 4, 2, &[a]).await;
    assert_eq!(targets(first).await, []);
    assert!(!fleet.operators.load_operation(first).await.expect("reads").expect("is there").is_rendered);
    commit(4, 5, 2, &[b]).await;
    assert!(fleet.operators.load_operation(first).await.expect("reads").expect("is there").is_rendered);
    let of_first = targets(first).await;
    assert_eq!(of_first, [(a, 2), (b, 2)].into_iter().collect::<BTreeMap<_, _>>().into_iter().collect::<Vec<_>>());
    assert_eq!(targets(second).await, []);
    commit(5, 5, 3, &[a]).await;
    assert_eq!(targets(first).await, of_first, "it stays");
    let of_second = [(a, 3), (b, 2)].into_iter().collect::<BTreeMap<_, _>>().into_iter().collect::<Vec<_>>();
    assert_eq!(targets(second).await, of_second);
    commit(5, 5, 2, &[c]).await;
    assert_eq!(targets(second).await, of_second, "what is rendered later at the same revision is another's");
    let report = fleet.operators.rebuild_check().await.expect("checks");
    assert_eq!(report.differences, Vec::new());
    let revisions = fleet.operators.revisions_of(vec![(a, Component::Policy, mk_stamp(2))]).await.expect("reads");
    assert_eq!(revisions, BTreeMap::from([((a, Component::Policy), Revision::from_raw(4))]));
    let wrong = fleet.operators.revisions_of(vec![(a, Component::Policy, mk_stamp(9))]).await.expect("reads");
    assert_eq!(wrong, BTreeMap::new());
}

#[tokio::test]
async fn c43_a_host_is_stopped_once_its_agent_left_30_s_ago_and_by_no_other_end_of_its_session() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 1).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    let operation = changed(fleet.put(vec![mk_namespace("a", "x")]).await).operation.expect("it made one");
    fleet.render(2, 1, &[host]).await;
    let is_stopped = async || {
        let targets = fleet.operators.operation_targets(operation).await.expect("reads");
        targets.first().expect("the host is one").is_stopped
    };
    let close = async |reason| {
        let session_epoch = fleet.open(host).await;
        let closing = Closing { host, session_epoch, reason };
        fleet.agents.close_sessions(fleet.gateway, vec![closing]).await.expect("closes");
    };
    let age = |seconds: u32| {
        let set = format!("UPDATE sessions SET closed_at = clock_timestamp() - interval '{seconds} seconds'");
        fleet.server.sql(&set);
    };
    assert!(!is_stopped().await, "it was never there");
    close(CloseReason::AgentLeft).await;
    age(29);
    assert!(!is_stopped().await, "one that is started again is back by then");
    age(31);
    assert!(is_stopped().await);
    fleet.open(host).await;
    assert!(!is_stopped().await, "it is back");
    for reason in [CloseReason::Lost, CloseReason::ProtocolFault, CloseReason::GatewayStopped, CloseReason::Drained] {
        close(reason).await;
        age(3600);
        assert!(!is_stopped().await, "{reason:?}");
    }
}

#[tokio::test]
async fn an_operation_is_overwritten_by_the_first_later_revision_that_touches_what_it_touched() {
    let fleet = Fleet::start().await;
    let put = async |names: &[&str], team: &str| {
        changed(fleet.put(names.iter().map(|name| mk_namespace(name, team)).collect()).await).revision
    };
    let (ab, c) = (put(&["a", "b"], "x").await, put(&["c"], "x").await);
    let deleted = {
        let deletion = IntentChange { deletes: vec![mk_namespace("c", "x").key()], ..mk_change(Vec::new()) };
        changed(fleet.operators.apply_intent(deletion).await.expect("applies")).revision
    };
    let b = put(&["b"], "y").await;
    put(&["d"], "x").await;
    let again = put(&["a", "c"], "z").await;
    let all = (1..=6).map(Revision::from_raw).collect();
    let found = fleet.operators.overwritten_at(all).await.expect("reads");
    assert_eq!(found, BTreeMap::from([(ab, b), (c, deleted), (deleted, again)]));
}

#[tokio::test]
async fn what_is_seen_of_an_operation_is_kept_once_and_not_after_its_end() {
    let fleet = Fleet::start().await;
    let put =
        async |team: &str| changed(fleet.put(vec![mk_namespace("a", team)]).await).operation.expect("it made one");
    let id = put("x").await;
    let seen = |n: u128, outcome| Seen { host: HostId::new(Uuid::from_u128(n)), component: Component::Policy, outcome };
    let rows = || {
        let sql =
            "SELECT string_agg(right(host_id::text, 1) || ' ' || outcome, ', ' ORDER BY host_id) FROM operation_hosts";
        fleet.server.sql(sql).trim().to_owned()
    };
    let record = async |rows| fleet.operators.record_seen(id, rows).await.expect("records");
    record(vec![seen(1, HostOutcome::Applied), seen(2, HostOutcome::Superseded)]).await;
    record(vec![seen(1, HostOutcome::Superseded)]).await;
    assert_eq!(rows(), "1 applied, 2 superseded");
    let end = async |last| {
        let (state, detail) = (OperationState::Superseded, Detail::new("x"));
        fleet.operators.settle_operation(OPERATOR, id, state, detail, last).await.expect("answers")
    };
    assert!(end(vec![seen(3, HostOutcome::Inactive)]).await);
    assert!(!end(vec![seen(4, HostOutcome::Inactive)]).await);
    record(vec![seen(5, HostOutcome::Applied)]).await;
    assert_eq!(rows(), "1 applied, 2 superseded, 3 inactive");
}

#[tokio::test]
async fn i11_a_cancelled_operation_stays_so_and_one_that_ended_cannot_be_cancelled() {
    let fleet = Fleet::start().await;
    let put =
        async |team: &str| changed(fleet.put(vec![mk_namespace("a", team)]).await).operation.expect("it made one");
    let (first, second) = (put("x").await, put("y").await);
    let cancel =
        async |id, key: Option<RequestKey>| fleet.operators.cancel_operation(OPERATOR, id, key).await.expect("answers");
    assert_eq!(cancel(first, mk_key(1, "c", "1")).await, Once::Now(Cancelled::Ended));
    assert_eq!(cancel(first, mk_key(1, "c", "1")).await, Once::Before(Cancelled::Ended));
    let before = Once::Now(Cancelled::EndedBefore(OperationState::Cancelled));
    assert_eq!(cancel(first, None).await, before);
    let (state, detail) = (OperationState::Applied, Detail::default());
    let actor: Actor = OPERATOR;
    assert!(!fleet.operators.finish_operation(actor, first, state, detail.clone()).await.expect("answers"));
    assert!(fleet.operators.finish_operation(actor, second, state, detail).await.expect("answers"));
    assert_eq!(cancel(second, None).await, Once::Now(Cancelled::EndedBefore(OperationState::Applied)));
    assert_eq!(cancel(OperationId::new(Uuid::from_u128(9)), None).await, Once::Now(Cancelled::Unknown));
    let found = fleet.operators.load_operation(first).await.expect("reads").expect("is there");
    assert_eq!((found.state, found.detail), (OperationState::Cancelled, format!("cancelled by {OPERATOR}")));
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), Revision::from_raw(2), "no intent is undone");
}
