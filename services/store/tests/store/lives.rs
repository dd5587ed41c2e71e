//! A database that was restored or promoted: who is ahead of it, who would go back, and who may follow.

use std::collections::BTreeMap;

use holdfast_events::{Detail, SignatureBytes};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_store::Error;
use holdfast_store::authority::{AuthorityFacts, Confirmed, LifeCounts};
use holdfast_store::render::{RenderCommit, SignedState};
use holdfast_store::session::{Opened, Opening};
use holdfast_store::status::HeldBack;

use crate::common::{Fleet, OPERATOR, mk_opening, mk_stamp};

const NOBODY: LifeCounts = LifeCounts { ahead: 0, going_back: 0, unheard: 0, following: 0 };

/// Three hosts at the second version of their policies, as a backup has them.
async fn mk_backup() -> (Fleet, [HostId; 3]) {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let mut hosts = Vec::new();
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        hosts.push(fleet.enrol(name, address).await);
    }
    fleet.render(4, 1, &hosts).await;
    fleet.render(5, 2, &hosts).await;
    (fleet, hosts.try_into().expect("three"))
}

async fn facts(fleet: &Fleet) -> AuthorityFacts {
    fleet.operators.authority_facts().await.expect("reads")
}

async fn raise(fleet: &Fleet, above: Option<u64>) -> u64 {
    let above = above.map(AuthorityEpoch::from_raw);
    let raised = fleet.operators.raise_authority_epoch(OPERATOR, Detail::new("restored"), above).await;
    raised.expect("raises").epoch.raw()
}

#[tokio::test]
async fn a_host_that_holds_what_was_never_rendered_is_ahead_until_versions_have_passed_it_and_no_other_leaves_a_row() {
    let (fleet, [a, b, c]) = mk_backup().await;
    for (host, version) in [(a, 2), (b, 1)] {
        let opened = fleet.come_back(host, version).await;
        assert!(matches!(opened, Opened::Session { is_between_lives: false, .. }), "{opened:?}");
    }
    assert_eq!(fleet.server.sql("SELECT count(*) FROM claims").trim(), "0", "what is held or older is nothing to tell");
    let opened = fleet.come_back(c, 3).await;
    assert!(matches!(opened, Opened::Session { is_between_lives: true, .. }), "{opened:?}");
    let found = facts(&fleet).await;
    assert_eq!(found.hosts, LifeCounts { ahead: 1, ..NOBODY });
    let claim = &found.claims[0];
    assert_eq!((claim.host, claim.held, claim.latest), (c, mk_stamp(3), mk_stamp(2)));
    assert!(!claim.waits_for_confirmation);
    let status = fleet.operators.fleet_status(Some(vec![c])).await.expect("reads");
    let held: Vec<_> = status.hosts[0].components.iter().filter_map(|part| part.held_back).collect();
    assert_eq!(held, [HeldBack::Ahead(mk_stamp(3))]);
    // Nobody is let go back without a new life.
    assert_eq!(fleet.operators.confirm_rollback(OPERATOR, 0).await.expect("answers"), Confirmed::Hosts(0));
    assert_eq!(fleet.follow(1).await, []);
    fleet.render(6, 3, &[a, b, c]).await;
    assert_eq!(facts(&fleet).await.hosts, NOBODY, "what is rendered now is what it holds");
    fleet.come_back(c, 3).await;
    assert_eq!(fleet.server.sql("SELECT count(*) FROM claims").trim(), "0");
}

#[tokio::test]
async fn after_a_bump_nothing_is_signed_for_whom_it_would_take_back_until_as_many_are_confirmed_as_go_back() {
    let (fleet, [a, b, c]) = mk_backup().await;
    fleet.come_back(a, 4).await;
    assert_eq!(raise(&fleet, None).await, 2);
    assert_eq!(facts(&fleet).await.hosts, LifeCounts { unheard: 3, ..NOBODY }, "the word of an earlier life is none");
    assert_eq!(fleet.follow(2).await, []);
    fleet.come_back(a, 4).await;
    fleet.come_back(b, 2).await;
    let found = facts(&fleet).await;
    assert_eq!(found.hosts, LifeCounts { going_back: 1, unheard: 1, following: 1, ahead: 0 });
    assert_eq!(found.raised.expect("raised").because, "restored");
    assert!(found.claims[0].waits_for_confirmation && found.claims.len() == 1);
    assert_eq!(fleet.follow(2).await, [b]);
    // What is rendered meanwhile passes the version that the host holds, and is of another history all the same.
    for (revision, version) in [(6, 3), (7, 4), (8, 5)] {
        let commit = fleet.mk_commit(revision, version, &[a]);
        let earlier = BTreeMap::from([(a, AuthorityEpoch::from_raw(1))]);
        let epoch = AuthorityEpoch::from_raw(2);
        fleet
            .renderer
            .commit_render(RenderCommit { authority_epoch: epoch, earlier, ..commit })
            .await
            .expect("commits");
        fleet.come_back(a, 4).await;
        assert_eq!(facts(&fleet).await.hosts.going_back, 1, "version {version}");
        assert_eq!(fleet.follow(2).await, []);
    }
    let status = fleet.operators.fleet_status(Some(vec![a, c])).await.expect("reads");
    let held: Vec<_> =
        status.hosts.iter().flat_map(|host| &host.components).filter_map(|part| part.held_back).collect();
    assert!(held.contains(&HeldBack::Confirmation(mk_stamp(4))) && held.contains(&HeldBack::Unheard), "{held:?}");
    for wrong in [0, 2] {
        let refused = fleet.operators.confirm_rollback(OPERATOR, wrong).await.expect("answers");
        assert_eq!(refused, Confirmed::Unexpected(1));
    }
    assert_eq!(fleet.follow(2).await, []);
    assert_eq!(fleet.operators.confirm_rollback(OPERATOR, 1).await.expect("confirms"), Confirmed::Hosts(1));
    // A confirmation is of a host as it was: with the same word it holds, with another it does not.
    fleet.come_back(a, 4).await;
    assert_eq!(fleet.follow(2).await, [a]);
    // Who comes late is asked about anew.
    fleet.come_back(c, 3).await;
    assert_eq!(facts(&fleet).await.hosts, LifeCounts { going_back: 1, ..NOBODY });
    assert_eq!(fleet.operators.confirm_rollback(OPERATOR, 1).await.expect("confirms"), Confirmed::Hosts(1));
    fleet.come_back(c, 9).await;
    assert_eq!(facts(&fleet).await.hosts.going_back, 1, "it holds something else than was confirmed");
    assert_eq!(fleet.operators.confirm_rollback(OPERATOR, 1).await.expect("confirms"), Confirmed::Hosts(1));
    assert_eq!(fleet.follow(2).await, [c]);
    assert_eq!(facts(&fleet).await.hosts, NOBODY);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM claims").trim(), "0");
    let latest = fleet.renderer.all_latest().await.expect("reads");
    assert!(latest.iter().all(|state| state.authority_epoch.raw() == 2));
    let report = fleet.operators.rebuild_check().await.expect("checks");
    assert_eq!(report.differences, Vec::new());
}

#[tokio::test]
async fn an_epoch_is_above_every_known_one_and_an_older_renderer_signs_nothing_in_it() {
    let (fleet, [a, ..]) = mk_backup().await;
    assert_eq!(raise(&fleet, Some(6)).await, 7);
    assert_eq!(raise(&fleet, Some(3)).await, 8);
    let old = fleet.mk_commit(6, 3, &[a]);
    assert!(matches!(fleet.renderer.commit_render(old).await, Err(Error::Value { .. })), "its epoch is over");
    fleet.come_back(a, 2).await;
    let found = fleet.renderer.states_to_sign_again(AuthorityEpoch::from_raw(8)).await.expect("looks");
    let signature = SignatureBytes::from_bytes([6; 64]);
    let signed = |version| {
        let state = found[0].state;
        let desired = holdfast_model::desired::Desired { stamp: mk_stamp(version), ..state.desired };
        vec![SignedState { desired, signature }]
    };
    let epoch = AuthorityEpoch::from_raw;
    let sign = async |term, at, version| fleet.renderer.sign_again(term, epoch(at), signed(version)).await;
    assert!(matches!(sign(fleet.term, 7, 2).await, Err(Error::Value { .. })), "another life");
    assert!(matches!(sign(fleet.term, 8, 1).await, Err(Error::VersionGap(_))), "another state");
    let later = fleet.term.next().expect("a later one");
    assert!(matches!(sign(later, 8, 2).await, Err(Error::Fenced { .. })));
    sign(fleet.term, 8, 2).await.expect("signs");
}

#[tokio::test]
async fn two_sessions_of_one_host_in_one_batch_leave_the_word_of_the_last() {
    let (fleet, [a, ..]) = mk_backup().await;
    let holding = |version| {
        let applied = vec![(holdfast_model::desired::Component::Policy, mk_stamp(version))];
        Opening { applied, ..mk_opening(a) }
    };
    fleet.agents.open_sessions(fleet.gateway, vec![holding(9), holding(2)]).await.expect("opens");
    assert_eq!(facts(&fleet).await.hosts, NOBODY);
    fleet.agents.open_sessions(fleet.gateway, vec![holding(2), holding(9)]).await.expect("opens");
    assert_eq!(facts(&fleet).await.hosts, LifeCounts { ahead: 1, ..NOBODY });
}

#[tokio::test]
async fn f25_a_promoted_standby_that_lacks_commits_takes_nobody_back_and_names_who_is_ahead_of_it() {
    let (mut fleet, [a, b, c]) = mk_backup().await;
    let mut standby = fleet.server.standby(5433);
    standby.stop_following();
    // Answered, proven by a host, and lost with the primary: nobody waited for the standby.
    fleet.render(6, 3, &[a, b, c]).await;
    fleet.come_back(a, 3).await;
    fleet.server.stop();
    standby.promote();
    standby.take_address_of(&mut fleet.server);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = fleet.agents.ping().await {
        assert!(std::time::Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let newest = "SELECT max(version) FROM desired_latest WHERE component = 1";
    assert_eq!(standby.sql(newest).trim(), "2", "versions went back");
    let opened = fleet.come_back(a, 3).await;
    assert!(matches!(opened, Opened::Session { is_between_lives: true, .. }), "{opened:?}");
    fleet.come_back(b, 2).await;
    let found = facts(&fleet).await;
    assert_eq!(found.hosts, LifeCounts { ahead: 1, ..NOBODY }, "told, and no other");
    let claim = &found.claims[0];
    assert_eq!((claim.host, claim.held, claim.latest), (a, mk_stamp(3), mk_stamp(2)));
    // After a bump the one that would go back waits to be confirmed, and who lost nothing follows.
    assert_eq!(raise(&fleet, None).await, 2);
    fleet.come_back(a, 3).await;
    fleet.come_back(b, 2).await;
    assert!(fleet.follow(2).await.iter().all(|host| *host == b));
    standby.stop();
}
