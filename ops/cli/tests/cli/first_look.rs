//! What somebody meets who types the wrong thing, or asks for the first time.

use std::os::unix::fs::PermissionsExt as _;

use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::plane::Plane;

/// Hosts of one namespace that is not `default`, governed by one policy.
async fn mk_booking() -> Plane {
    let mut plane = Plane::start().await;
    plane.enrol_in("booking", "db-1", "10.0.0.1").await;
    plane.enrol_in("booking", "web-1", "10.0.0.2").await;
    plane.file("booking.yaml", &crate::intent::POLICIES.replace("{name: ", "{namespace: booking, name: "));
    plane.run(&["apply", "-f", "booking.yaml"]).await.ended(0);
    plane
}

#[tokio::test]
async fn without_settings_it_is_said_where_those_of_the_demo_are() {
    let plane = Plane::start().await;
    let ran = plane.run_with(&[("HOLDFAST_API", "")], &["status"]).await;
    assert_eq!(ran.code, 64);
    assert!(ran.stderr.contains("set HOLDFAST_API or --api; for the demo: . .holdfast/env"), "{}", ran.stderr);
    let ran = plane.run_with(&[("HOLDFAST_API", "https://127.0.0.1:9")], &["status"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("./ops/up") && ran.stderr.contains("holdfast doctor"), "{}", ran.stderr);
    let ran = plane.run_with(&[("HOLDFAST_CA", "/nowhere/ca.pem")], &["status"]).await;
    assert!(ran.code == 1 && ran.stderr.contains(". .holdfast/env"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_name_that_one_namespace_alone_has_is_enough_and_a_slip_is_answered_with_what_was_meant() {
    let mut plane = mk_booking().await;
    for (from, to) in [("web-1", "db-1"), ("booking/web-1", "booking/db-1"), ("ip:10.0.0.2", "10.0.0.1")] {
        let verdict = plane.run(&["explain", "flow", from, to, "5432/tcp"]).await.ended(0);
        assert!(verdict.starts_with("allowed: host booking/web-1"), "{verdict}");
        assert!(verdict.contains("booking/db-1 may hold something else: it is unknown: "), "{verdict}");
    }
    let outside = plane.run(&["explain", "flow", "ip:192.0.2.9", "db-1", "proto/47"]).await.ended(0);
    assert_eq!(
        outside,
        plane
            .run(&["explain", "flow", "192.0.2.9", "db-1", "protocol/47"])
            .await
            .ended(0)
            .replace("protocol/47", "proto/47")
    );
    for wrong in ["wbe-1", "default/web-1", "bokking/web-1"] {
        let ran = plane.run(&["explain", "flow", wrong, "db-1", "5432/tcp"]).await;
        assert_eq!(ran.code, 3);
        assert!(ran.stderr.contains("; did you mean `booking/web-1`?"), "{}", ran.stderr);
        let ran = plane.run(&["describe", "host", wrong]).await;
        assert!(ran.code == 3 && ran.stderr.contains("; did you mean `booking/web-1`?"), "{}", ran.stderr);
    }
    let ran = plane.run(&["get", "Policy/default/db"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("; did you mean `Policy/booking/db`?"), "{}", ran.stderr);
    let ran = plane.run(&["get", "polices"]).await;
    assert!(ran.stderr.contains("; did you mean `Policy`?"), "{}", ran.stderr);
    let ran = plane.run(&["stauts"]).await;
    assert!(ran.code == 64 && ran.stderr.contains("'status'"), "{}", ran.stderr);

    plane.enrol_in("edge", "web-1", "10.0.0.3").await;
    let ran = plane.run(&["diff", "web-1"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("say booking/web-1 or edge/web-1"), "{}", ran.stderr);
    plane.enrol("web-1", "10.0.0.4").await;
    let shown = plane.run(&["describe", "host", "web-1", "-o", "json"]).await.json();
    assert_eq!(shown["namespace"], "default", "its own name comes first there");
}

#[tokio::test]
async fn a_token_of_one_namespace_is_told_no_name_of_another() {
    let plane = mk_booking().await;
    let made = plane.run(&["api-token", "create", "x", "--role", "viewer", "--namespace", "edge"]).await.ended(0);
    let ran = plane.run_as(made.trim(), &["explain", "flow", "web-1", "db-1", "5432/tcp"]).await;
    assert_eq!(ran.code, 3);
    assert!(!ran.stderr.contains("booking"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_policy_that_governs_nobody_is_told_by_plan_and_apply_and_taken_all_the_same() {
    let plane = mk_booking().await;
    plane.file("elsewhere.yaml", crate::intent::POLICIES);
    for command in ["plan", "apply"] {
        let ran = plane.run(&[command, "-f", "elsewhere.yaml"]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        let warning = "warning: Policy/default/db governs no host: no host is enrolled in the namespace default";
        assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    }
    plane.file("booking.yaml", &crate::intent::POLICIES.replace("{name: ", "{namespace: booking, name: "));
    let ran = plane.run(&["apply", "-f", "booking.yaml"]).await;
    assert!(ran.code == 0 && !ran.stderr.contains("warning"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_port_that_nobody_declares_under_its_name_is_told_by_plan() {
    let plane = mk_booking().await;
    let policies =
        crate::intent::POLICIES.replace("{name: ", "{namespace: booking, name: ").replace("5432", "postgres");
    plane.file("booking.yaml", &policies);
    let ran = plane.run(&["plan", "-f", "booking.yaml"]).await;
    let warning = "names the port `postgres` (ingress[0]), which no host that it governs declares: it means no port";
    assert!(ran.code == 0 && ran.stderr.contains(warning), "{}", ran.stderr);
    let declared = policies.replace("{mode: enforced}", "{mode: enforced, ports: [{name: postgres, port: 5432}]}");
    plane.file("booking.yaml", &declared);
    let ran = plane.run(&["plan", "-f", "booking.yaml"]).await;
    assert!(ran.code == 0 && !ran.stderr.contains("names the port"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_misspelt_field_or_kind_is_told_with_the_one_that_was_meant() {
    let plane = Plane::start().await;
    plane.file("field.yaml", &crate::intent::POLICIES.replacen("ingress:", "ingres:", 1));
    let ran = plane.run(&["plan", "-f", "field.yaml"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("did you mean `ingress`?"), "{}", ran.stderr);
    plane.file("kind.yaml", &crate::intent::POLICIES.replacen("kind: Policy", "kind: Polcy", 1));
    let ran = plane.run(&["plan", "-f", "kind.yaml"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("did you mean `Policy`?"), "{}", ran.stderr);
}

#[tokio::test]
async fn what_one_apply_cannot_take_is_read_no_further_than_that() {
    let plane = Plane::start().await;
    let path = plane.file("large.yaml", "");
    std::fs::File::options().write(true).open(path).and_then(|file| file.set_len(70 << 20)).expect("grows");
    let ran = plane.run(&["apply", "-f", "large.yaml"]).await;
    assert_eq!(ran.code, 1);
    // It has no end: a pipe that somebody forgot is no other.
    let endless = plane.run(&["apply", "-f", "/dev/zero"]).await;
    assert!(endless.code == 1 && endless.stderr.contains("do not end within 64 MiB"), "{}", endless.stderr);
    assert!(
        ran.stderr.contains("large.yaml") && ran.stderr.contains("70 MiB") && ran.stderr.contains("at most 64 MiB"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_token_file_that_others_can_read_is_refused_with_the_mode_that_it_wants() {
    let plane = Plane::start().await;
    let path = plane.file("open.token", plane.admin());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("sets");
    let settings = [("HOLDFAST_TOKEN", ""), ("HOLDFAST_TOKEN_FILE", path.to_str().expect("text"))];
    let ran = plane.run_with(&settings, &["status"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("0600"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_wait_that_is_not_reached_says_who_is_missing_and_shows_meanwhile_that_it_waits() {
    let mut plane = mk_booking().await;
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    let lines = plane.running(&["wait", "--timeout", "7s"]);
    let json = plane.run(&["wait", "--timeout", "7s", "-o", "json"]).await;
    let ran = lines.await.expect("it ends");
    assert_eq!((ran.code, json.code), (6, 6));
    assert!(ran.stderr.contains("waiting: revision 3 is unknown: 1 of 2 hosts converged, 1 unknown"), "{}", ran.stderr);
    assert!(ran.stderr.contains("not converged: booking/web-1 (OFFLINE, last seen never)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("holdfast describe host booking/web-1"), "{}", ran.stderr);
    assert_eq!(json.stderr, "", "programs are not talked to");
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).expect("JSON")["wait"], "time-over");
}

#[tokio::test]
async fn a_host_is_described_with_what_governs_it_and_a_policy_with_whom_it_governs() {
    let plane = mk_booking().await;
    let host = plane.run(&["describe", "host", "db-1", "-o", "json"]).await.json();
    assert_eq!(host["policy"]["policies"], serde_json::json!(["Policy/booking/db"]));
    assert_eq!(host["policy"]["rules"][0]["peers"]["names"], serde_json::json!(["booking/web-1"]));
    let policy = plane.run(&["describe", "policy", "booking/db"]).await.ended(0);
    assert!(policy.starts_with("Policy/booking/db governs 1 host: booking/db-1\n"), "{policy}");
    let plan = {
        plane.file(
            "other.yaml",
            &crate::intent::POLICIES
                .replace("{name: ", "{namespace: booking, name: ")
                .replace("tcp: 5432", "tcp: 5433"),
        );
        plane.run(&["plan", "-f", "other.yaml"]).await
    };
    assert!(plan.stdout.contains("+ ingress allow tcp 5433 with booking/web-1\n"), "{}", plan.stdout);
    let (_, typed) = plan.stderr.split_once("to do exactly this and nothing else: holdfast ").expect("it says how");
    let applied = plane.run(&typed.split_whitespace().collect::<Vec<_>>()).await;
    assert!(
        applied.code == 0
            && applied.stdout.lines().any(|line| line.starts_with("Policy/booking/db ") && line.ends_with("updated")),
        "{applied:?}"
    );
    for written_as_in_lists in [["describe", "host/booking/db-1"], ["get", "host/booking/db-1"]] {
        let shown = plane.run(&written_as_in_lists).await.ended(0);
        assert!(shown.contains("booking/db-1") && !shown.contains("apiVersion"), "{shown}");
    }
}

#[tokio::test]
async fn input_without_a_document_is_no_success() {
    let plane = Plane::start().await;
    plane.file("remark.yaml", "# nothing yet\n---\n");
    for arguments in [["apply", "-f", "-"], ["plan", "-f", "-"], ["apply", "-f", "remark.yaml"]] {
        let ran = plane.run(&arguments).await;
        assert!(ran.code == 1 && ran.stderr.contains("[input-empty]"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_list_without_a_line_says_what_is_not_there_and_where() {
    let plane = Plane::start().await;
    let ran = plane.run(&["get", "policies", "-n", "bookng"]).await;
    assert_eq!((ran.code, ran.stderr.trim()), (0, "no object in the namespace bookng"));
    let ran = plane.run(&["get", "hosts"]).await;
    assert_eq!((ran.code, ran.stderr.trim()), (0, "no host"));
}

#[tokio::test]
async fn a_new_token_goes_into_a_file_that_its_owner_alone_can_read_and_nowhere_else() {
    let plane = Plane::start().await;
    let made = plane.run(&["api-token", "create", "ci", "--role", "viewer", "--out", "ci.token"]).await;
    assert!(made.code == 0 && made.stdout.is_empty() && made.stderr.contains("it is in ci.token"), "{made:?}");
    let path = plane.folder().join("ci.token");
    let settings = [("HOLDFAST_TOKEN", ""), ("HOLDFAST_TOKEN_FILE", path.to_str().expect("text"))];
    assert_eq!(plane.run_with(&settings, &["status"]).await.code, 0, "it is good as it is");
    let again = plane.run(&["enrol-token", "create", "--out", "ci.token"]).await;
    assert!(again.code == 1 && again.stderr.contains("[output-unwritable]"), "{again:?}");
    assert_eq!(plane.run(&["enrol-token", "list", "-o", "name"]).await.ended(0), "", "nothing was made for nothing");
    let made = plane.run(&["enrol-token", "create", "--out", "web.token", "-o", "json"]).await.json();
    assert!(made["secret"].is_null() && made["file"] == "web.token", "{made}");
}
