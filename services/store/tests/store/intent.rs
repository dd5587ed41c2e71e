//! Intent: dense revisions, nothing written for nothing, every past revision readable.

use std::collections::BTreeSet;

use holdfast_events::{Detail, OperationState, OperationVerb};
use holdfast_model::desired::Component;
use holdfast_model::intent::{AddressGroupSpec, Object, Spec};
use holdfast_model::numbers::Revision;
use holdfast_model::operation::HostOutcome;
use holdfast_store::intent::{Applied, IntentChange, Prune};
use holdfast_store::operation::Seen;
use holdfast_store::{Error, Store};
use tokio::task::JoinSet;

use crate::common::{Fleet, OPERATOR, mk_change, mk_name, mk_namespace};

#[tokio::test]
async fn a_change_makes_one_revision_and_the_same_again_makes_none() {
    let fleet = Fleet::start().await;
    let objects = vec![mk_namespace("a", "x"), mk_namespace("b", "x")];
    let Applied::Changed { revision, operation, put, .. } = fleet.put(objects.clone()).await else { panic!("changes") };
    assert_eq!((revision, put.len()), (Revision::from_raw(1), 2));
    let events = fleet.server.sql("SELECT count(*) FROM events");
    assert_eq!(fleet.put(objects).await, Applied::Unchanged { revision });
    assert_eq!(fleet.server.sql("SELECT count(*) FROM events"), events);
    let found = fleet.operators.load_operation(operation).await.expect("reads").expect("is there");
    assert_eq!((found.revision, found.changes, found.state), (revision, 2, OperationState::Accepted));
    assert_eq!(found.actor, OPERATOR);
}

#[tokio::test]
async fn a_version_has_the_outcome_of_the_operation_that_waited_for_it_and_no_other_of_the_same_operation() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    let Applied::Changed { revision, operation, .. } = fleet.put(vec![mk_namespace("a", "x")]).await else {
        panic!("changes")
    };
    for version in [1, 2] {
        fleet.render(revision.raw(), version, &[host]).await;
    }
    // Both were there when the last host was rendered with it: the operation waits for the first.
    fleet.server.sql("UPDATE operations SET rendered_revision = revision, rendered_at = clock_timestamp()");
    let targets = fleet.operators.operation_targets(operation).await.expect("reads");
    assert_eq!(targets.iter().map(|target| target.stamp.version.raw()).collect::<Vec<_>>(), [1]);
    let seen = Seen { host, component: Component::Policy, outcome: HostOutcome::Applied };
    fleet.operators.record_seen(operation, vec![seen]).await.expect("records");
    let history = fleet.operators.host_history(host, Component::Policy, None, 9).await.expect("reads");
    let told: Vec<_> = history.iter().map(|row| (row.stamp.version.raw(), row.outcome)).collect();
    assert_eq!(told, [(2, None), (1, Some(HostOutcome::Applied))]);
}

#[tokio::test]
async fn every_past_revision_is_read_as_it_was() {
    let fleet = Fleet::start().await;
    let cidr = |n: u32| ipnet::Ipv4Net::new((n << 8).into(), 24).expect("a prefix").into();
    let group = Object {
        namespace: mk_name("a"),
        name: mk_name("g"),
        spec: Spec::AddressGroup(AddressGroupSpec { cidrs: (0..50_000).map(cidr).collect() }),
    };
    fleet.put(vec![mk_namespace("a", "x"), group.clone()]).await;
    fleet.put(vec![mk_namespace("a", "y"), mk_namespace("b", "y")]).await;
    let deletion = |deletes| IntentChange { verb: OperationVerb::Delete, deletes, ..mk_change(Vec::new()) };
    let nowhere = mk_namespace("z", "z").key();
    let refused = fleet.operators.apply_intent(deletion(vec![group.key(), nowhere.clone()])).await;
    assert_eq!(refused.expect("is answered"), Applied::Missing { missing: vec![nowhere] });
    let applied = fleet.operators.apply_intent(deletion(vec![group.key()])).await.expect("applies");
    let Applied::Changed { deleted, .. } = applied else { panic!("changes") };
    assert_eq!(deleted, vec![group.key()]);
    let at = async |n| fleet.renderer.load_intent(Some(Revision::from_raw(n))).await.expect("loads").1.objects;
    let (first, second, third) = (at(1).await, at(2).await, at(3).await);
    assert_eq!(first.get(&group.key()), Some(&group.spec));
    assert_eq!(first.get(&mk_namespace("a", "x").key()), Some(&mk_namespace("a", "x").spec));
    assert_eq!(second.get(&mk_namespace("a", "y").key()), Some(&mk_namespace("a", "y").spec));
    assert_eq!((first.len(), second.len(), third.len()), (2, 3, 2));
    assert!(at(0).await.is_empty());
    let changes = fleet.renderer.changes_since(Revision::from_raw(1)).await.expect("loads");
    assert_eq!(changes.until, Revision::from_raw(3));
    let gone = changes.objects.iter().find(|change| change.key == group.key()).expect("the group");
    assert_eq!(gone.now, None);
    let put = changes.objects.iter().find(|change| change.key == mk_namespace("a", "y").key()).expect("the namespace");
    assert_eq!(put.now.as_ref(), Some(&mk_namespace("a", "y").spec));
    assert_eq!(changes.objects.len(), 3);
    assert!(fleet.renderer.changes_since(Revision::from_raw(3)).await.expect("loads").objects.is_empty());
}

#[tokio::test]
async fn prune_takes_out_what_is_not_listed_in_its_namespaces_only() {
    let fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x"), mk_namespace("b", "x")]).await;
    let group = |name: &str| Object {
        namespace: mk_name("a"),
        name: mk_name(name),
        spec: Spec::AddressGroup(AddressGroupSpec::default()),
    };
    fleet.put(vec![group("one"), group("two")]).await;
    let prune = Prune::Namespaces(BTreeSet::from([mk_name("a")]));
    let change = IntentChange { prune, ..mk_change(vec![mk_namespace("a", "x"), group("two")]) };
    let Applied::Changed { put, deleted, .. } = fleet.operators.apply_intent(change).await.expect("applies") else {
        panic!("changes")
    };
    assert_eq!((put, deleted), (Vec::new(), vec![group("one").key()]));
    assert_eq!(fleet.operators.load_intent(None).await.expect("loads").1.objects.len(), 3);
}

#[tokio::test]
async fn a_stale_or_contradictory_change_writes_nothing() {
    let fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let stale = IntentChange { expected: Some(Revision::ZERO), ..mk_change(vec![mk_namespace("a", "y")]) };
    let moved = fleet.operators.apply_intent(stale).await.expect("answers");
    assert_eq!(moved, Applied::Moved { revision: Revision::from_raw(1) });
    let twice = mk_change(vec![mk_namespace("a", "y"), mk_namespace("a", "z")]);
    assert!(matches!(fleet.operators.apply_intent(twice).await, Err(Error::NamedTwice(_))));
    let both = IntentChange { deletes: vec![mk_namespace("a", "x").key()], ..mk_change(vec![mk_namespace("a", "y")]) };
    assert!(matches!(fleet.operators.apply_intent(both).await, Err(Error::NamedTwice(_))));
    assert_eq!(fleet.operators.latest_revision().await.expect("reads"), Revision::from_raw(1));
}

#[tokio::test]
async fn revisions_of_many_writers_are_dense() {
    let fleet = Fleet::start().await;
    let one = |n: u32| {
        let operators = fleet.operators.clone();
        async move {
            let change = mk_change(vec![mk_namespace(&format!("n{n}"), "x")]);
            match operators.apply_intent(change).await.expect("applies") {
                Applied::Changed { revision, .. } => revision.raw(),
                other @ (Applied::Unchanged { .. }
                | Applied::Moved { .. }
                | Applied::Missing { .. }
                | Applied::Before(_)
                | Applied::NoRollout(_)
                | Applied::OtherRequest) => {
                    panic!("{other:?}")
                }
            }
        }
    };
    let mut revisions = (0..24).map(one).collect::<JoinSet<u64>>().join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=24).collect::<Vec<_>>());
}

#[tokio::test]
async fn c45_i18_two_doors_that_end_one_operation_at_the_same_moment_make_one_end_and_one_event() {
    let fleet = Fleet::start().await;
    let other = fleet.server.store("holdfast_gateway_operators");
    let mut winners = Vec::new();
    for n in 1..=20_u32 {
        let changed = fleet.put(vec![mk_namespace("a", &format!("x{n}"))]).await;
        let Applied::Changed { operation, .. } = changed else { panic!("changes") };
        let end = |store: &Store, state| {
            let (store, detail) = (store.clone(), Detail::new(&format!("{state:?}")));
            async move { store.finish_operation(OPERATOR, operation, state, detail).await.expect("answers") }
        };
        let (here, there) = (OperationState::Applied, OperationState::Failed);
        let ended = tokio::join!(end(&fleet.operators, here), end(&other, there));
        let winner = match ended {
            (true, false) => here,
            (false, true) => there,
            both @ ((true, true) | (false, false)) => panic!("round {n}: {both:?}"),
        };
        let found = fleet.operators.load_operation(operation).await.expect("reads").expect("is there");
        assert_eq!((found.state, found.detail), (winner, format!("{winner:?}")), "round {n}");
        let row = || {
            fleet.server.sql(&format!("SELECT xmin, ctid FROM operations WHERE operation_id = '{}'", operation.uuid()))
        };
        let before = row();
        assert!(!end(&other, there).await, "round {n}");
        assert_eq!(row(), before, "who comes too late writes no row");
        winners.push(winner.word());
    }
    let told = "SELECT payload->>'state' FROM events WHERE kind = 'operation.finished' ORDER BY lid";
    assert_eq!(fleet.server.sql(told).lines().collect::<Vec<_>>(), winners, "one event each, of the end that counts");
}
