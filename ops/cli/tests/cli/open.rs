//! What is open, and that it is said: hosts that do not enforce, ports that nothing closes, states that are empty.

use holdfast_model::desired::Component;
use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::intent::POLICIES;
use crate::plane::Plane;

async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane
}

#[tokio::test]
async fn hosts_that_do_not_enforce_are_told_by_status_doctor_and_describe() {
    let plane = mk_plane().await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let told = plane.run(&["status"]).await;
    assert!(told.stderr.contains("1 of 2 hosts does not enforce: 1 in visibility"), "{}", told.stderr);
    let fleet = |doctor: &Value| {
        let checks = doctor["checks"].as_array().expect("a list").clone();
        checks.into_iter().find(|check| check["name"] == "fleet").expect("it looks at the fleet")
    };
    let doctor: Value = serde_json::from_str(&plane.run(&["doctor", "-o", "json"]).await.stdout).expect("JSON");
    let said = fleet(&doctor).to_string();
    assert!(said.contains("1 of 2 hosts does not enforce: 1 in visibility"), "{said}");
    let shown = |mode: &str| format!("would be denied, but for what these rules allow ({mode}");
    let described = plane.run(&["describe", "host", "web-1"]).await.ended(0);
    assert!(described.contains(&shown("visibility: nothing is dropped)")), "{described}");
    assert!(described.contains("Kept open:    ") && described.contains("failsafe ports: tcp 22"), "{described}");
    plane.run(&["mode", "set", "app=web", "simulation", "--expect", "1"]).await.ended(0);
    let described = plane.run(&["describe", "host", "web-1"]).await.ended(0);
    assert!(described.contains(&shown("simulation: it is counted")), "{described}");
    plane.run(&["mode", "set", "all", "enforced", "--expect", "2"]).await.ended(0);
    assert!(!plane.run(&["status"]).await.stderr.contains("enforce"));
    assert!(!plane.run(&["describe", "host", "web-1"]).await.ended(0).contains("would be"));
}

#[tokio::test]
async fn a_policy_that_denies_a_failsafe_port_by_name_is_warned_of_by_its_name() {
    let plane = mk_plane().await;
    let policy = |name: &str, services: &str| {
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {name}}}\nspec:\n  hostSelector: {{all: true}}\n  \
             ingress:\n  - services: [{{tcp: 80}}]\n  - action: deny\n    services: {services}\n---\n"
        )
    };
    plane.file("deny.yaml", &(policy("shut", "[{tcp: 20-30}]") + &policy("other", "[{tcp: 23}, {udp: 22}]")));
    for verb in ["plan", "apply"] {
        let told = plane.run(&[verb, "-f", "deny.yaml"]).await;
        let warned = "warning: Policy/default/shut denies tcp 22 (ingress[1]), which agents keep open to everybody";
        assert!(told.code == 0 && told.stderr.contains(warned), "{told:?}");
        assert!(!told.stderr.contains("Policy/default/other denies"), "{}", told.stderr);
    }
}

#[tokio::test]
async fn an_empty_desired_state_is_a_version_that_all_hosts_prove_or_none_and_a_decommission_unblocks() {
    let mut plane = mk_plane().await;
    plane.render().await;
    let state = async |plane: &Plane| plane.run(&["status", "-o", "json"]).await.json()["state"].clone();
    let host = plane.run(&["get", "host", "db-1", "-o", "json"]).await.json();
    let latest: Vec<&Value> =
        host["components"].as_array().expect("a list").iter().map(|one| &one["latest"]["version"]).collect();
    assert_eq!(latest, [1, 1, 1, 1], "every component has an explicit state from enrolment on");
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(state(&plane).await, "unknown", "one of two confirmed, and the other was never heard");
    assert_eq!(plane.run(&["wait", "--timeout", "300ms"]).await.code, 6);
    plane.run(&["host", "decommission", "web-1"]).await.ended(0);
    assert_eq!(state(&plane).await, "published");
    plane.render().await;
    assert_eq!(state(&plane).await, "converged");
    let last = plane.run(&["get", "revision", "3", "-o", "json"]).await.json();
    assert_eq!((&last["verb"], &last["hosts_changed"][0]["change"]), (&"decommission".into(), &"deleted".into()));
    assert_eq!(last["status"]["state"], "converged", "{last}");
    // Nobody is no proof.
    plane.run(&["host", "decommission", "db-1"]).await.ended(0);
    plane.render().await;
    assert_eq!(state(&plane).await, "unknown");
    assert_eq!(plane.run(&["get", "revision", "4", "-o", "json"]).await.json()["status"]["state"], "unknown");
}

#[tokio::test]
async fn a_name_of_one_byte_more_than_the_limit_is_refused_where_it_is_authored_and_the_longest_is_in_force_on_a_host()
{
    let mut plane = Plane::start().await;
    let policy = |length: usize| {
        let name = "n".repeat(length);
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {name}, namespace: {name}}}\nspec:\n  \
             hostSelector: {{all: true}}\n  ingress: [{{services: [{{tcp: 80}}]}}]\n"
        )
    };
    plane.file("longest.yaml", &policy(253));
    plane.file("longer.yaml", &policy(254));
    let refused = plane.run(&["apply", "-f", "longer.yaml"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("1 to 253 bytes"), "{refused:?}");
    // The longest that is taken goes all the way: into events, the table, the plan's digest, and what a host of such a name in such a namespace has in
    // force, and back.
    plane.run(&["apply", "-f", "longest.yaml"]).await.ended(0);
    let name = "n".repeat(253);
    let host = format!("h-{}", "n".repeat(251));
    plane.enrol_in(&name, &host, "10.0.0.1").await;
    plane.render().await;
    assert_ne!(
        plane.policy_of(&host).await.stamp.digest,
        Component::Policy.empty_digest(),
        "it is rendered for the host"
    );
    plane.says(&host, OutcomeKind::Applied).await;
    let whole = format!("{name}/{host}");
    let described = plane.run(&["describe", "host", &whole, "-o", "json"]).await.json();
    assert_eq!((&described["name"], &described["state"]), (&host.clone().into(), &"converged".into()), "{described}");
    assert!(described.to_string().contains(&format!("{name}/{name}")), "the policy governs it: {described}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["state"], "converged");
    plane.run(&["explain", "flow", "198.51.100.1", &whole, "80/tcp"]).await.ended(0);
    let shown = plane.run(&["get", &format!("Policy/{name}/{name}"), "-o", "json"]).await.json();
    assert_eq!(shown["name"], Value::from(name.clone()));
    assert_eq!(plane.run(&["rebuild", "--check", "-o", "json"]).await.json()["clean"], Value::from(true));
    assert_eq!(plane.run(&["delete", &format!("Policy/{name}/{name}")]).await.code, 0);
}
