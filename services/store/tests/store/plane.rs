//! What the database knows of gateway processes: which hold their lease, and which fell silent.

use holdfast_events::Actor;
use holdfast_model::ids::GatewayId;
use holdfast_store::lease::Claim;
use time::OffsetDateTime;
use uuid::{NoContext, Timestamp, Uuid};

use crate::common::Fleet;

/// The gateways that hold a lease, and those that are told as silent.
async fn seen(fleet: &Fleet) -> (Vec<String>, Vec<String>) {
    let facts = fleet.operators.plane_facts(None).await.expect("reads");
    let holders =
        |leases: Vec<holdfast_store::plane::LeaseFacts>| leases.into_iter().map(|lease| lease.holder).collect();
    (holders(facts.gateways), holders(facts.silent_gateways))
}

/// A gateway process that began so many seconds ago and holds its lease.
async fn start(fleet: &Fleet, seconds_ago: i64) -> (String, holdfast_model::numbers::LeaseTerm) {
    let began = OffsetDateTime::now_utc().unix_timestamp() - seconds_ago;
    let began = Timestamp::from_unix(NoContext, began.try_into().expect("after 1970"), 0);
    let gateway = GatewayId::new(Uuid::new_v7(began));
    let name = gateway.to_string();
    let claim = fleet.agents.acquire_lease(Actor::Gateway(gateway), &name, &name).await.expect("asks");
    let Claim::Acquired(term) = claim else { panic!("{claim:?}") };
    (name, term)
}

#[tokio::test]
async fn a_gateway_that_was_killed_is_told_and_one_that_gave_its_lease_back_is_not() {
    let fleet = Fleet::start().await;
    // It began just now, and would stand in for whoever fell silent before.
    fleet.server.sql(&format!("DELETE FROM leases WHERE name = '{}'", fleet.gateway));
    let ((stays, _), (leaves, term)) = (start(&fleet, 9_000).await, start(&fleet, 9_000).await);
    let (killed, _) = start(&fleet, 9_000).await;
    assert!(fleet.agents.release_lease(&leaves, term).await.expect("asks"));
    assert_eq!(seen(&fleet).await.1, [] as [&str; 0], "it gave its lease back");

    let ended = format!("UPDATE leases SET expires_at = now() - interval '5 min' WHERE name = '{killed}'");
    fleet.server.sql(&ended);
    assert_eq!(seen(&fleet).await, (vec![stays.clone()], vec![killed.clone()]));
    let (successor, _) = start(&fleet, 0).await;
    assert_eq!(seen(&fleet).await, (vec![stays, successor], vec![]), "what is started again has another id");
}
