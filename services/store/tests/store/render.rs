//! Renders: all or nothing, under the lease, each version after its predecessor.

use std::collections::BTreeMap;
use std::time::Instant;

use holdfast_events::{Actor, SignatureBytes};
use holdfast_model::artifact::tree_of;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, Revision, Version};
use holdfast_model::policy::Body;
use holdfast_store::Error;
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{Committed, RenderCommit, SignedState};
use uuid::Uuid;

use crate::common::{Fleet, acquired, mk_stamp};

#[tokio::test]
async fn a_render_is_stored_once_and_found_by_the_session_path() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let (a, b) = (fleet.enrol("a", "10.0.0.1").await, fleet.enrol("b", "10.0.0.2").await);
    let commit = fleet.mk_commit(2, 1, &[a, b]);
    assert_eq!(fleet.renderer.commit_render(commit.clone()).await.expect("commits"), Committed::Stored);
    let nothing = RenderCommit { states: Vec::new(), artifacts: BTreeMap::new(), ..commit };
    let events = fleet.server.sql("SELECT count(*) FROM events");
    assert_eq!(fleet.renderer.commit_render(nothing).await.expect("commits"), Committed::Nothing);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM events"), events);
    fleet.render(3, 2, &[a]).await;
    let latest = fleet.agents.latest_of(vec![a, b]).await.expect("loads");
    let stamps: BTreeMap<HostId, Stamp> =
        latest.iter().map(|latest| (latest.state.desired.host, latest.state.desired.stamp)).collect();
    assert_eq!(stamps, BTreeMap::from([(a, mk_stamp(2)), (b, mk_stamp(1))]));
    let newest = fleet.agents.newest_of(vec![a, b]).await.expect("compares").hosts;
    let versions: BTreeMap<HostId, Vec<_>> = newest.into_iter().map(|newest| (newest.host, newest.versions)).collect();
    let of = |version| vec![(Component::Policy, mk_stamp(version).version)];
    assert_eq!(versions, BTreeMap::from([(a, of(2)), (b, of(1))]));
    let digest = mk_stamp(2).digest;
    assert!(fleet.agents.fetch_artifacts(vec![digest]).await.expect("fetches").contains_key(&digest));
    assert_eq!(fleet.renderer.rendered_revision().await.expect("reads"), Revision::from_raw(3));
    assert_eq!(fleet.renderer.all_latest().await.expect("loads").len(), 2);
}

#[tokio::test]
async fn a_stale_lease_a_gap_and_a_step_back_refuse_the_whole_render() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let (a, b) = (fleet.enrol("a", "10.0.0.1").await, fleet.enrol("b", "10.0.0.2").await);
    fleet.render(2, 1, &[a]).await;
    let tables =
        "SELECT (SELECT count(*) FROM desired_states), (SELECT count(*) FROM artifacts), (SELECT count(*) FROM events)";
    let before = fleet.server.sql(tables);
    // `b` would follow, `a` would not: neither is stored.
    let gap = fleet.renderer.commit_render(fleet.mk_commit(2, 1, &[a, b])).await;
    assert!(matches!(gap, Err(Error::VersionGap(_))), "{gap:?}");
    let skips = fleet.renderer.commit_render(fleet.mk_commit(2, 3, &[a])).await;
    assert!(matches!(skips, Err(Error::VersionGap(_))), "{skips:?}");
    let nobody = fleet.renderer.commit_render(fleet.mk_commit(2, 1, &[HostId::new(Uuid::from_u128(1))])).await;
    assert!(matches!(nobody, Err(Error::VersionGap(_))), "{nobody:?}");
    let back = fleet.renderer.commit_render(fleet.mk_commit(1, 2, &[a])).await;
    assert!(matches!(back, Err(Error::Value { .. })), "{back:?}");
    assert!(fleet.renderer.release_lease(RENDERER_LEASE, fleet.term).await.expect("releases"));
    let fenced = fleet.renderer.commit_render(fleet.mk_commit(2, 2, &[a])).await;
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    assert_eq!(fleet.server.sql(tables), before);
}

#[tokio::test]
async fn a_lease_that_was_given_before_the_databases_clock_was_set_back_is_free_and_its_holder_writes_no_more() {
    let fleet = Fleet::start().await;
    let claim =
        async || fleet.renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "renderer-2").await.expect("asks");
    // As a clock that is set back by so much leaves it: a holder that lives renews within ten seconds, by which it is as any other.
    let set_back = |by: &str| {
        fleet.server.sql(&format!(
            "UPDATE leases SET expires_at = now() + interval '30 s' + interval '{by}' WHERE name = 'renderer'"
        ));
    };
    set_back("20 s");
    assert!(matches!(claim().await, Claim::Held { .. }), "a small step is waited for");
    set_back("1 hour");
    assert!(fleet.renderer.renew_lease(RENDERER_LEASE, fleet.term).await.expect("asks"), "who lives renews");
    assert!(matches!(claim().await, Claim::Held { .. }));
    set_back("1 hour");
    let Claim::Acquired(term) = claim().await else { panic!("nobody renewed it") };
    assert!(term > fleet.term);
    assert!(!fleet.renderer.renew_lease(RENDERER_LEASE, fleet.term).await.expect("asks"));
    let fenced = fleet.renderer.commit_render(fleet.mk_commit(2, 2, &[])).await;
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
}

#[tokio::test]
async fn a_lease_has_one_holder_and_a_successor_a_higher_term() {
    let fleet = Fleet::start().await;
    let others = fleet.renderer.release_lease_of("renderer-2", RENDERER_LEASE, fleet.term).await.expect("asks");
    assert!(!others, "it is another's, whatever the term");
    let second = fleet.renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "renderer-2").await.expect("asks");
    let Claim::Held { holder, remaining } = second else { panic!("held") };
    assert_eq!(holder, "renderer-1");
    assert!(remaining.as_secs() >= 20);
    assert!(fleet.renderer.renew_lease(RENDERER_LEASE, fleet.term).await.expect("renews"));
    fleet.server.sql("UPDATE leases SET expires_at = now() - interval '1 s' WHERE name = 'renderer'");
    assert!(!fleet.renderer.renew_lease(RENDERER_LEASE, fleet.term).await.expect("answers"));
    let second = fleet.renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "renderer-2").await.expect("asks");
    let term = acquired(second);
    assert_eq!(term, LeaseTerm::from_raw(fleet.term.raw() + 1));
    assert!(!fleet.renderer.release_lease(RENDERER_LEASE, fleet.term).await.expect("answers"));
    let stale = fleet.renderer.number_events(fleet.term, holdfast_store::order::Horizon::default()).await;
    assert!(matches!(stale, Err(Error::Fenced { .. })));
}

#[tokio::test]
async fn a_tree_is_read_back_level_by_level() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    let (root, nodes) = tree_of(&mk_body(), |_| false);
    assert!(nodes.len() > 3);
    let stamp = Stamp { version: Version::FIRST, digest: root };
    let desired = Desired { host, component: Component::Policy, stamp };
    let commit = RenderCommit {
        states: vec![SignedState { desired, signature: SignatureBytes::from_bytes([1; 64]) }],
        artifacts: nodes.clone(),
        ..fleet.mk_commit(1, 1, &[host])
    };
    fleet.renderer.commit_render(commit).await.expect("commits");
    let fetched = fleet.agents.fetch_trees(vec![root], |_| false).await.expect("fetches");
    assert_eq!(fetched, nodes);
    assert!(fleet.agents.fetch_trees(vec![root], |_| true).await.expect("fetches").is_empty());
    fleet.server.sql("UPDATE artifacts SET bytes = bytes || '\\x00'");
    assert!(matches!(fleet.agents.fetch_artifacts(vec![root]).await, Err(Error::Value { .. })));
}

#[tokio::test]
async fn ten_thousand_hosts_are_rendered_in_one_transaction() {
    let fleet = Fleet::start().await;
    fleet.server.sql(
        "INSERT INTO hosts SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'default', 'h' || n, \
         NULL, NULL, '{}', gen_random_uuid(), decode(repeat('00', 32), 'hex'), now() FROM generate_series(1, 10000) n",
    );
    fleet.server.sql("INSERT INTO sessions (host_id, session_epoch) SELECT host_id, 0 FROM hosts");
    let hosts: Vec<HostId> = (1..=10_000).map(|n| HostId::new(Uuid::from_u128(n))).collect();
    let mut commit = fleet.mk_commit(1, 1, &hosts);
    // A body of its own for each host, 4 kB each, and every component.
    let mut states = Vec::new();
    for (state, n) in commit.states.iter().zip(0_u32..) {
        let mut bytes = vec![200; 4096];
        bytes[1..5].copy_from_slice(&n.to_be_bytes());
        let digest = holdfast_model::digest::Digest::of(&bytes);
        commit.artifacts.insert(digest, bytes);
        for component in Component::ALL {
            let mut state = *state;
            state.desired.component = component;
            state.desired.stamp.digest = if component == Component::Policy { digest } else { component.empty_digest() };
            states.push(state);
        }
    }
    commit.states = states;
    let started = Instant::now();
    fleet.renderer.commit_render(commit).await.expect("commits");
    let first = started.elapsed();
    let started = Instant::now();
    let numbered = fleet.renderer.number_events(fleet.term, holdfast_store::order::Horizon::default()).await;
    println!("40,000 states with 10,000 bodies of 4 kB: {first:?}; numbered {numbered:?} in {:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(fleet.agents.latest_of(hosts.clone()).await.expect("loads").len(), 40_000);
    println!("read in {:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(fleet.agents.newest_of(hosts).await.expect("compares").hosts.len(), 10_000);
    println!("compared in {:?}", started.elapsed());
    assert!(first.as_secs() < 30, "one transaction took {first:?}");
}

fn mk_body() -> Body {
    use holdfast_model::address::Interval;
    use holdfast_model::interval_set::IntervalSet;
    use holdfast_model::policy::{Set, SetKey};
    let intervals = |count: u32| (0..count).map(|n| Interval::single(n * 4096)).collect::<Vec<_>>();
    let set = |byte, count| Set {
        key: SetKey::from_bytes([byte; 16]),
        v4: IntervalSet::from_canonical(&intervals(count)).expect("canonical"),
        v6: IntervalSet::from_canonical(&[]).expect("canonical"),
    };
    Body { sets: vec![set(1, 3000), set(2, 5)], ..Body::default() }
}
