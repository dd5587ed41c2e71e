//! Hosts that a rollout holds back are told as they are to be: by the revision that they are held at.

use serde_json::Value;

use crate::plane::Plane;

/// Two web hosts in a mode, and a policy by which they let the database in at a port.
fn documents(mode: &str, port: u16) -> String {
    let host = |n: u8| {
        format!(
            "---\napiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: web-{n}}}\n\
             spec: {{mode: {mode}, labels: {{wave: w{n}, port: p{port}}}}}\n"
        )
    };
    let policy = format!(
        "---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: web}}\nspec:\n  hostSelector: {{matchLabels: {{app: web}}}}\n  \
         ingress: [{{from: [{{hostSelector: {{matchLabels: {{app: db}}}}}}], services: [{{tcp: {port}}}]}}]\n"
    );
    host(1) + &host(2) + &policy
}

/// The verdict on a flow, and the revisions that its ends are held at.
async fn flow(plane: &Plane, from: &str, to: &str, port: u16) -> (String, [Option<u64>; 2]) {
    let service = format!("{port}/tcp");
    let view = plane.run(&["explain", "flow", from, to, &service, "-o", "json"]).await.json();
    let held = |end: &str| view[end]["held_revision"].as_u64();
    (view["verdict"].as_str().expect("a word").to_owned(), [held("from"), held("to")])
}

async fn modes(plane: &Plane) -> [u64; 3] {
    let status = plane.run(&["status", "-o", "json"]).await.json();
    ["visibility", "simulation", "enforced"].map(|mode| status["modes"][mode].as_u64().expect("a count"))
}

#[tokio::test]
async fn a_host_that_a_rollout_holds_is_told_by_the_revision_that_it_is_held_at_and_each_end_of_a_flow_by_its_own() {
    let mut plane = Plane::start().await;
    for (name, address) in [("db-1", "10.0.0.1"), ("web-1", "10.0.0.2"), ("web-2", "10.0.0.3")] {
        plane.enrol(name, address).await;
    }
    plane.file("before.yaml", &documents("enforced", 80));
    plane.file("after.yaml", &documents("visibility", 443));
    let applied = plane.run(&["apply", "-f", "before.yaml", "-o", "json"]).await.json();
    let before = applied["revision"].as_u64().expect("a number");
    plane.render().await;
    let begun = plane.run(&["apply", "-f", "after.yaml", "--rollout", "--stage", "wave=w1", "-o", "json"]).await.json();
    let (id, now) = (begun["rollout"].as_str().expect("it began"), begun["revision"].as_u64().expect("a number"));
    plane.render().await;

    assert_eq!(modes(&plane).await, [1 + 1, 0, 1], "the database is in visibility as ever");
    let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
    let listed = listed["items"].as_array().or_else(|| listed.as_array()).expect("a list").clone();
    for (name, mode, port, revision) in [("web-1", "visibility", 443_u16, now), ("web-2", "enforced", 80, before)] {
        let shown = plane.run(&["describe", "host", name, "-o", "json"]).await.json();
        let in_list = listed.iter().find(|host| host["name"] == name).expect("it is listed");
        for host in [in_list, &shown] {
            let label = Value::from(format!("p{port}"));
            assert_eq!((host["mode"].as_str(), &host["labels"]["port"]), (Some(mode), &label), "{host}");
        }
        let policy = &shown["policy"];
        assert_eq!((policy["mode"].as_str(), policy["revision"].as_u64()), (Some(mode), Some(revision)), "{policy}");
        assert_eq!(policy["rules"][0]["service"], format!("tcp {port}"), "{policy}");
    }

    // All but the first are held. What is held lets in what it let in; the other lets everything in, since it enforces no more.
    let word = |word: &str| word.to_owned();
    assert_eq!(flow(&plane, "db-1", "web-2", 80).await, (word("allowed"), [Some(before); 2]));
    assert_eq!(flow(&plane, "db-1", "web-2", 443).await, (word("denied"), [Some(before); 2]));
    assert_eq!(flow(&plane, "db-1", "web-1", 80).await, (word("allowed"), [Some(before), None]));
    assert_eq!(flow(&plane, "web-1", "web-2", 80).await, (word("denied"), [None, Some(before)]));
    assert_eq!(flow(&plane, "web-2", "web-1", 80).await, (word("allowed"), [Some(before), None]));
    let told = plane.run(&["explain", "flow", "db-1", "web-2", "80/tcp"]).await.ended(0);
    assert!(told.contains(&format!("web-2 (enforced, held at revision {before})")), "{told}");
    let at = now.to_string();
    let wanted = plane.run(&["explain", "flow", "db-1", "web-2", "80/tcp", "--at", &at, "-o", "json"]).await.json();
    assert_eq!(
        (&wanted["to"]["mode"], &wanted["to"]["held_revision"]),
        (&"visibility".into(), &Value::Null),
        "{wanted}"
    );
    assert_eq!(wanted["flows"][0]["allowed_if_enforced"], false, "{wanted}");

    // Back: nobody is held any more, and nothing of it is told.
    plane.run(&["rollout", "abort", id]).await.ended(0);
    assert_eq!(modes(&plane).await, [1, 0, 2]);
    assert_eq!(flow(&plane, "db-1", "web-1", 443).await, (word("denied"), [None, None]));
}
