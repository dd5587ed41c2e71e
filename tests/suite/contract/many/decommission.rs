//! A host that is taken out while its session is open.

use holdfast_session::agent::CloseCause;
use holdfast_wire::code::RefusalCode;
use serde_json::json;

use super::agent::{Live, Manner};
use super::stage::Stage;
use super::watch::Watch;

/// Its agent obeys no directive: the session is ended by the gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_host_that_is_taken_out_ends_and_no_other_begins_and_nobody_counts_it() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "500ms")]);
    let hosts = stage.enrol("web", 2).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    let agents: Vec<Live> =
        (0..).zip(&hosts).map(|(n, who)| Live::start(who, &[gateway.address], Manner::default(), n)).collect();
    watch.until_all(&names, "converged").await;
    watch.forget();

    let path = format!("/v1/hosts/{}/decommission", hosts[0].name);
    let (status, out) = stage.api.post(&path, &json!({ "because": "its disk is gone" })).await;
    assert_eq!((status, out["name"].as_str()), (200, Some("default/web-1")), "{out}");
    let refused = |lived: &super::agent::Lived| {
        let is_unknown =
            |cause: &CloseCause| matches!(cause, CloseCause::Theirs { code: RefusalCode::HostUnknown, .. });
        lived.ended.iter().filter(|(_, cause)| is_unknown(cause)).count() >= 2
    };
    agents[0].until("is refused again and again", refused).await;
    assert_eq!(agents[0].lived().opened.len(), 1, "it had one session, and has no other");

    let listed = stage.api.get("/v1/hosts").await.expect("it answers");
    let listed: Vec<&str> =
        listed["items"].as_array().expect("items").iter().filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(listed, ["web-2"]);
    let fleet = stage.api.get("/v1/status").await.expect("it answers");
    assert_eq!((fleet["hosts"]["total"].as_u64(), fleet["state"].as_str()), (Some(1), Some("published")), "{fleet}");
    let (status, again) = stage.api.post(&path, &json!({})).await;
    assert_eq!(status, 404, "{again}");
    let told = "SELECT actor LIKE 'operator:%', payload ->> 'detail' FROM events WHERE kind = 'host.decommissioned'";
    assert_eq!(stage.postgres.sql(told).trim(), "t|its disk is gone");
    assert_eq!(watch.states(&names[1]), ["converged"], "nothing happened to the other one");
    assert_eq!(agents[1].lived().opened.len(), 1);
}
