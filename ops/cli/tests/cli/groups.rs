//! A group that a policy names and that is not there.

use crate::plane::Plane;

const GROUP: &str = "\
apiVersion: holdfast.dev/v1
kind: AddressGroup
metadata: {name: partners}
spec: {cidrs: [203.0.113.0/24]}
";
/// One rule allows by the group, another denies by it, at a host that enforces.
const POLICY: &str = "\
apiVersion: holdfast.dev/v1
kind: Policy
metadata: {name: db}
spec:
  hostSelector: {all: true}
  ingress:
  - from: [{addressGroup: partners}]
    services: [{tcp: 443}]
  - action: deny
    from: [{addressGroup: partners}]
    services: [{tcp: 5432}]
  - from: [{cidr: 0.0.0.0/0}]
    services: [{tcp: 5432}]
---
apiVersion: holdfast.dev/v1
kind: Host
metadata: {name: db-1}
spec: {mode: enforced}
";
const WARNING: &str =
    "warning: Policy/default/db names AddressGroup/default/partners, which is not there: it means nobody";

#[tokio::test]
async fn b22_a_group_in_use_may_be_deleted_is_warned_of_by_name_and_means_nobody_until_it_is_back() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("group.yaml", GROUP);
    plane.file("policy.yaml", POLICY);
    // The policy before its group: told by plan and apply, and taken.
    for command in ["plan", "apply"] {
        let ran = plane.run(&[command, "-f", "policy.yaml"]).await;
        assert!(ran.code == 0 && ran.stderr.contains(WARNING), "{ran:?}");
    }
    assert_eq!(verdicts(&plane).await, ["denied", "allowed"], "nobody is allowed, nobody denied by it");

    let ran = plane.run(&["apply", "-f", "group.yaml"]).await;
    assert!(ran.code == 0 && !ran.stderr.contains("warning"), "{ran:?}");
    assert_eq!(verdicts(&plane).await, ["allowed", "denied"]);

    let ran = plane.run(&["delete", "AddressGroup/default/partners"]).await;
    assert!(ran.code == 0 && ran.stderr.contains(WARNING), "{ran:?}");
    assert_eq!(verdicts(&plane).await, ["denied", "allowed"]);

    // And one that a prune takes out, as a plan shows before.
    plane.run(&["apply", "-f", "group.yaml"]).await.ended(0);
    for command in ["plan", "apply"] {
        let ran = plane.run(&[command, "-f", "policy.yaml", "--prune"]).await;
        assert!(ran.code == 0 && ran.stderr.matches(WARNING).count() == 1, "{ran:?}");
    }
    assert_eq!(verdicts(&plane).await, ["denied", "allowed"]);
}

/// Of a member of the group: by the rule that allows it, and by the one that denies it.
async fn verdicts(plane: &Plane) -> [String; 2] {
    let mut said = [String::new(), String::new()];
    for (said, service) in said.iter_mut().zip(["443/tcp", "5432/tcp"]) {
        let ran = plane.run(&["explain", "flow", "203.0.113.9", "db-1", service]).await;
        *said = ran.stdout.split(':').next().unwrap_or_default().to_owned();
    }
    said
}
