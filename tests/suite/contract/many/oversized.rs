//! A policy that is rendered and too large to travel, through real processes: what is told of the host that waits for it.

use holdfast_model::desired::Component;
use serde_json::Value;

use super::agree::assert_agree;
use super::few::{Few, HERE};
use super::scripted::Scripted;

/// More than 32 MiB: no two addresses touch, and each rule has all of them, one that is its own, and a port of its own.
fn policy() -> String {
    const ADDRESSES: u32 = 249_000;
    const RULES: u32 = 30;
    let address = |n: u32| format!("{}/32", std::net::Ipv4Addr::from(0x3000_0000 + 2 * n));
    let group: String = (0..ADDRESSES).map(|n| format!("    {}\n", address(n))).collect();
    let rule = |n| {
        let own = address(ADDRESSES + n);
        format!("  - from: [{{addressGroup: many}}, {{cidr: {own}}}]\n    services: [{{tcp: {}}}]\n", 1_000 + 2 * n)
    };
    let rules: String = (0..RULES).map(rule).collect();
    format!(
        "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {{name: many}}\nspec:\n  cidrs: |\n{group}---\n\
         apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: big}}\nspec:\n  hostSelector: {{all: true}}\n  ingress:\n{rules}"
    )
}

/// Its other components come and are in force; what does not come is told as what it is, by the list and by the gauges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_policy_does_not_travel_is_oversized_in_the_list_and_counted_so_and_its_other_components_go_on() {
    let mut few = Box::pin(Few::start(1)).await;
    let outcome = |host: &Value| host["initialized"]["outcome"].clone();
    assert_eq!(outcome(&few.host(0).await), "complete");
    let file = few.plane.file("big.yaml", policy()).display().to_string();
    let applied = few.plane.holdfast(&["apply", "-f", &file, "-o", "json"]);
    assert!(applied.status.success(), "{applied:?}");
    few.until("/v1/status", |status| status["rendered_revision"] == status["latest_revision"]).await;
    few.hosts.clear();
    let mut host = Scripted::open(&few.who[0], few.plane.agents_door(), HERE).await;
    for _ in 1..Component::ALL.len() {
        let component = host.take().await;
        assert_ne!(component, Component::Policy, "it is too large");
        host.applied(component).await;
    }
    // Its answers of this session are recorded a moment after the policy was found too large; of itself as a whole it says nothing here.
    let others_lack_a_report = |host: &Value| {
        let components = host["components"].as_array().map(Vec::as_slice).unwrap_or_default();
        let others: Vec<_> = components.iter().filter(|one| one["component"] != "policy").collect();
        others.len() == Component::ALL.len() - 1 && others.iter().all(|one| one["missing"]["fact"] == "report")
    };
    let host = few.until("/v1/hosts/web-1", |host| outcome(host) == "oversized" && others_lack_a_report(host)).await;
    assert_eq!(host["initialized"]["component"], "policy", "{host}");
    assert_eq!((&host["components"][0]["state"], &host["state"]), (&"progressing".into(), &"unknown".into()), "{host}");
    let status = || few.plane.holdfast(&["status", "-o", "json"]);
    assert_agree(&few.api, status, || few.plane.gateway_metrics()).await;
    assert_eq!(few.plane.counted("holdfast_fleet_hosts_uninitialized", &[("outcome", "oversized")]), 1);
    few.plane.assert_runs();
}
