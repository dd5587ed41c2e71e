//! What a real renderer asks of hosts, and what counts as proven of it: that nothing is left, and that a rollout has not come to a host yet.

use holdfast_model::artifact;
use holdfast_model::desired::Component;
use holdfast_model::policy::Body;
use serde_json::Value;

use super::agree::assert_agree;
use super::few::{Few, HERE, json};
use super::scripted::Scripted;
use crate::control_plane::ControlPlane;

/// Deletes the one policy that there is, which is everything: the refusal is answered by what it asks for.
fn delete_everything(plane: &ControlPlane) -> Value {
    let delete = ["delete", "Policy/kept", "-o", "json"];
    let refused = plane.holdfast(&delete);
    if refused.status.success() {
        return json(&refused);
    }
    let problem: Value = serde_json::from_slice(&refused.stderr).unwrap_or_else(|error| panic!("{error}: {refused:?}"));
    let meant = format!("{}|the site is closed", problem["brake"]["acknowledge"].as_str().expect("a digest"));
    json(&plane.holdfast(&[delete.as_slice(), &["--acknowledge", &meant]].concat()))
}

/// Black-box 7: nothing is a state like any other, sent, proven and waited for, and nobody is nobody's proof.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_deleted_is_an_explicit_state_that_every_host_proves_or_leaves_by_being_taken_out() {
    let mut two = Box::pin(Few::start(2)).await;
    let deleted = delete_everything(&two.plane);
    let (revision, operation) = (&deleted["revision"], deleted["operation"].as_str().expect("it waits for hosts"));
    let of_revision = format!("/v1/revisions/{revision}");

    // One takes it and proves it. The other has its session, and says nothing.
    assert_eq!(two.hosts[0].take().await, Component::Policy);
    let empty = two.hosts[0].stamp(Component::Policy);
    assert_eq!(empty.digest, Component::Policy.empty_digest(), "what is empty has a digest and a version of its own");
    let before = two.host(0).await;
    assert_eq!(
        (&before["state"], &before["components"][0]["missing"]["fact"]),
        (&"progressing".into(), &"latest".into())
    );
    two.hosts[0].policy_is_well().await;
    two.until("/v1/hosts/web-1", |host| host["state"] == "converged").await;
    let waited = two.wait(operation, "1500ms");
    let counts = json(&waited)["hosts"].clone();
    assert_eq!(waited.status.code(), Some(6), "{waited:?}");
    assert_eq!([&counts["total"], &counts["applied"], &counts["pending"]], [2, 1, 1], "{counts}");
    let unproven = async |two: &Few| {
        for status in [two.get("/v1/status").await, two.get(&of_revision).await["status"].clone()] {
            assert_ne!(status["state"], "converged", "{status}");
            assert_eq!([&status["hosts"]["total"], &status["hosts"]["converged"]], [2, 1], "{status}");
        }
    };
    unproven(&two).await;

    // A session that begins then gets it whole, as bytes that say so, and not by their absence.
    let again = Scripted::open_whole(&two.who[0], two.plane.agents_door(), HERE).await;
    let came = &again.came[&Component::Policy];
    assert_eq!((came.stamp, came.body.as_deref()), (empty, Some(artifact::encode(&Body::default()).as_slice())));
    two.hosts[0] = again;
    two.hosts[0].be_well().await;
    two.until("/v1/hosts/web-1", |host| host["state"] == "converged").await;
    unproven(&two).await;

    // The silent one is taken out: what is left of the fleet is proven.
    let out = two.plane.holdfast(&["host", "decommission", "web-2", "--because", "it never answers"]);
    assert!(out.status.success(), "{out:?}");
    let waited = two.wait(operation, "20s");
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    let ended = json(&waited);
    assert_eq!((&ended["state"], &ended["hosts"]["applied"]), (&"applied".into(), &1.into()), "{ended}");
    let status = two.until("/v1/status", |status| status["state"] == "converged").await;
    assert_eq!(status["hosts"]["total"], 1, "{status}");
    assert_eq!(two.get(&of_revision).await["status"]["state"], "converged");

    // And nobody at all proves nothing.
    let out = two.plane.holdfast(&["host", "decommission", "web-1", "--because", "it is the last"]);
    assert!(out.status.success(), "{out:?}");
    let status = two.until("/v1/status", |status| status["hosts"]["total"] == 0).await;
    assert_ne!(status["state"], "converged", "{status}");
    two.plane.assert_runs();
}

/// The fact `held`, which `proofs.rs` leaves to this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_a_rollout_holds_back_is_not_converged_however_well_it_is() {
    let mut two = Box::pin(Few::start(2)).await;
    // The change is of their mode, too: a host that is held counts by the one that it has.
    let modes = two.who.iter().map(|one| {
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: {}}}\nspec: {{mode: enforced}}\n---\n",
            one.name
        )
    });
    let text = modes.collect::<String>()
        + "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: kept}\nspec:\n  hostSelector: {all: true}\n  \
                ingress: [{from: [{cidr: 198.51.100.0/24}]}]\n";
    let file = two.plane.file("next.yaml", &text).display().to_string();
    let begun = two.plane.holdfast(&["apply", "-f", &file, "--rollout", "--stage", "50%", "-o", "json"]);
    assert!(begun.status.success(), "{begun:?}");
    let rollout = format!("/v1/rollouts/{}", json(&begun)["rollout"].as_str().expect("it began"));
    let held = if two.host(0).await["held"].is_null() { 1 } else { 0 };
    let canary = 1 - held;
    assert_eq!(two.hosts[canary].take().await, Component::Policy);

    // All is well with the one that is held, and it says so again: it has what it is to have, and not what was asked for.
    let health = two.hosts[held].health();
    two.hosts[held].report(health).await;
    let path = format!("/v1/hosts/{}", two.who[held].name);
    for _look in 0..5 {
        let host = two.get(&path).await;
        assert_eq!(host["state"], "progressing", "{host}");
        for one in host["components"].as_array().expect("a list") {
            assert_eq!((&one["state"], &one["missing"]["fact"]), (&"progressing".into(), &"held".into()), "{one}");
        }
    }
    assert_ne!(two.get("/v1/status").await["state"], "converged");
    let status = || two.plane.holdfast(&["status", "-o", "json"]);
    assert_agree(&two.api, status, || two.plane.gateway_metrics()).await;
    assert_eq!(two.plane.counted("holdfast_fleet_hosts_held", &[]), 1);
    for (mode, count) in [("enforced", 1), ("visibility", 1)] {
        assert_eq!(two.plane.counted("holdfast_fleet_hosts_by_mode", &[("mode", mode)]), count, "{mode}");
    }

    two.hosts[canary].policy_is_well().await;
    assert_eq!(two.hosts[held].take().await, Component::Policy);
    two.hosts[held].policy_is_well().await;
    two.until(&rollout, |rollout| rollout["state"] == "finished").await;
    two.until("/v1/status", |status| status["state"] == "converged").await;
    two.plane.assert_runs();
}
