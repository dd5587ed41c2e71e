//! Modes of many hosts, what was before, and going back to it.

use std::collections::BTreeMap;

use holdfast_identity::https::{Client, Request, Response};
use holdfast_identity::{TrustRoots, tls};
use holdfast_model::intent::HostSpec;
use holdfast_model::statement::OutcomeKind;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use serde_json::{Value, json};

use crate::brake::{of_host, overtaken};
use crate::intent::POLICIES;
use crate::plane::{Plane, Ran};

const WEB: [(&str, &str); 2] = [("web-1", "10.0.0.1"), ("web-2", "10.0.0.2")];

async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    for (name, address) in WEB {
        plane.enrol(name, address).await;
    }
    plane.enrol("db-1", "10.0.0.9").await;
    plane
}

async fn modes(plane: &Plane) -> BTreeMap<String, String> {
    let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
    let items = listed["items"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    items.map(|host| (text(&host["name"]), text(&host["mode"]))).collect()
}

fn is_conflict(ran: &Ran, words: &str) {
    assert!(ran.code == 4 && ran.stderr.contains(words), "{words}: {ran:?}");
}

#[tokio::test]
async fn all_hosts_of_a_selector_go_into_a_mode_by_one_change_or_none_if_another_number_matches() {
    let plane = mk_plane().await;
    plane.file(
        "label.yaml",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: web-2}\nspec: {labels: {a: b}}\n",
    );
    plane.run(&["apply", "-f", "label.yaml"]).await.ended(0);
    let before = plane.run(&["status", "-o", "json"]).await.json()["latest_revision"].as_u64().expect("a number");
    let few = plane.run(&["mode", "set", "app=web", "simulation", "--expect", "3"]).await;
    is_conflict(&few, "2 hosts match (default/web-1, default/web-2), 1 fewer than the 3 expected; nothing was changed");
    let none = plane.run(&["mode", "set", "app=web", "simulation", "--expect", "2", "-n", "elsewhere"]).await;
    is_conflict(&none, "0 hosts match, 2 fewer");
    let set = ["mode", "set", "app=web", "simulation", "--expect", "2", "--idempotency-key", "m", "-o", "json"];
    let done = plane.run(&set).await.json();
    assert_eq!(done["revision"], Value::from(before + 1), "one change: {done}");
    assert_eq!(done["objects"].as_array().map(Vec::len), Some(2));
    assert_eq!(plane.run(&set).await.json()["operation"], done["operation"], "asked for again, it is answered");
    let words = |name: &str, mode: &str| (name.to_owned(), mode.to_owned());
    let expected = [("db-1", "visibility"), ("web-1", "simulation"), ("web-2", "simulation")];
    assert_eq!(modes(&plane).await, expected.map(|(name, mode)| words(name, mode)).into());
    // What else the document says stays.
    let kept = plane.run(&["get", "Host/web-2", "-o", "json"]).await.json();
    assert_eq!(kept["document"]["spec"], json!({"labels": {"a": "b"}, "mode": "simulation"}));
    let operation = plane.run(&["operation", "get", done["operation"].as_str().expect("an id"), "-o", "json"]).await;
    assert_eq!(operation.json()["verb"], "mode");

    // The limit of this plane is two hosts: three that leave enforcement are many, though each is said.
    plane.run(&["mode", "set", "all", "enforced", "--expect", "3"]).await.ended(0);
    let many = plane.run(&["mode", "set", "all", "visibility", "--expect", "3"]).await;
    is_conflict(&many, "it takes 3 hosts out of enforced mode");
    plane.run(&["mode", "set", "app=web", "visibility", "--expect", "2"]).await.ended(0);
    let stale = plane.run(&["mode", "set", "all", "enforced", "--expect", "3", "--if-revision", "1"]).await;
    is_conflict(&stale, "revision 1 was expected");
    plane.run(&["mode", "set", "app in (web, nobody)", "enforced", "--expect", "2"]).await.ended(0);
    assert_eq!(plane.run(&["mode", "set", "app in ()", "enforced", "--expect", "2"]).await.code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c59_a_label_that_moves_while_a_mode_is_set_changes_the_count_and_nothing_is_set() {
    let plane = mk_plane().await;
    let labels = [("app".to_owned(), "db".to_owned())].into();
    let moved = of_host("web-2", HostSpec { labels, ..HostSpec::default() });
    let set = overtaken(&plane, moved, &["mode", "set", "app=web", "enforced", "--expect", "2"]);
    is_conflict(&set, "1 host matches (default/web-1), 1 fewer than the 2 expected; nothing was changed");
    assert!(modes(&plane).await.values().all(|mode| mode == "visibility"));
}

#[tokio::test]
async fn a_restore_is_a_new_change_that_is_planned_braked_and_may_be_of_one_object() {
    let mut plane = mk_plane().await;
    plane.file("policies.yaml", POLICIES);
    let first = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json()["revision"].to_string();
    plane.file("other.yaml", &POLICIES.replace("5432", "5433").replace("443", "444"));
    plane.run(&["apply", "-f", "other.yaml"]).await.ended(0);
    plane.run(&["delete", "NetworkPolicy/web"]).await.ended(0);
    let documents = async |plane: &Plane| plane.run(&["get", "objects", "-o", "yaml"]).await.ended(0);
    let between = documents(&plane).await;

    let plan = plane.run(&["restore", &first, "--plan-only"]).await;
    assert!(plan.stderr.contains(&format!("holdfast restore {first} --if-revision")), "{}", plan.stderr);
    let text = plan.ended(0);
    assert!(text.contains("NetworkPolicy/default/web created") && text.contains("allow tcp 5432"), "{text}");
    assert_eq!(documents(&plane).await, between, "a plan writes nothing");

    is_conflict(&plane.run(&["restore", &first, "--if-revision", &first]).await, "was expected");
    let one = plane.run(&["restore", &first, "--object", "Policy/db", "-o", "json"]).await.json();
    assert_eq!(one["objects"], json!([{"object": "Policy/default/db", "change": "updated"}]));
    let done = plane.run(&["restore", &first, "-o", "json"]).await.json();
    assert_eq!(done["objects"], json!([{"object": "NetworkPolicy/default/web", "change": "created"}]));
    plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json()["unchanged"].as_bool().expect("a word");
    let again = plane.run(&["restore", &first, "-o", "json"]).await.json();
    assert_eq!(again["unchanged"], Value::from(true), "it is as it was: {again}");
    for (revision, code) in [("9999", 3), ("0", 3)] {
        assert_eq!(plane.run(&["restore", revision]).await.code, code, "{revision}");
    }
    assert_eq!(plane.run(&["restore", &first, "--object", "Policy/never"]).await.code, 3);
    // What was enrolled before anything was authored had no document: going there would open the enforced host.
    is_conflict(&plane.run(&["restore", "1"]).await, "out of enforced mode");
    plane.enrol("late-1", "10.0.0.30").await;
    let check = plane.run(&["rebuild", "--check", "-o", "json"]).await.json();
    assert_eq!(check["clean"], Value::from(true), "{check}");
}

#[tokio::test]
async fn a_flow_is_explained_as_it_was_at_a_revision_or_a_time_and_denied_ones_have_an_exit_code() {
    let plane = mk_plane().await;
    let flow = async |more: &[&str]| {
        plane.run(&[["explain", "flow", "db-1", "web-1", "80/tcp"].as_slice(), more].concat()).await
    };
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.run(&["mode", "set", "app=web", "enforced", "--expect", "2"]).await.ended(0);
    let time = |order: &str| {
        let sql = "SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM revisions ORDER BY";
        plane.postgres.sql(&format!("{sql} revision {order} LIMIT 1")).trim().to_owned()
    };
    let (first, last) = (time("ASC"), time("DESC"));
    assert_eq!(flow(&["--exit-code"]).await.code, 9, "denied");
    assert_eq!(flow(&[]).await.code, 0, "only if that was the question");
    assert_eq!(flow(&["--exit-code", "--at", &last]).await.code, 9);
    let before = flow(&["--exit-code", "--at", "3"]).await.ended(0);
    assert!(before.starts_with("at revision 3\nallowed: host default/db-1 (visibility)"), "{before}");
    let early = flow(&["--at", &first]).await;
    assert!(early.code == 3 && early.stderr.contains("at revision 1: it is there now"), "not enrolled yet: {early:?}");
    for (at, code, words) in [
        ("2001-01-01T00:00:00Z", 3, "the first came later"),
        ("2901-01-01T00:00:00Z", 1, "is not yet"),
        ("9999", 3, "the last is"),
        ("0", 3, "the last is"),
        ("yesterday", 1, "a moment is a revision, or a time"),
    ] {
        let ran = flow(&["--at", at]).await;
        assert!(ran.code == code && ran.stderr.contains(words), "{at}: {ran:?}");
    }
}

#[tokio::test]
async fn the_history_of_a_host_and_of_an_object_says_who_changed_what_and_what_became_of_it() {
    let mut plane = mk_plane().await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane.file("policies.yaml", POLICIES);
    let applied = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json();
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let operation = applied["operation"].as_str().expect("an id");
    plane.run(&["operation", operation, "--wait", "--timeout", "20s"]).await.ended(0);
    plane.run(&["delete", "Policy/db"]).await.ended(0);
    plane.render().await;

    let history = plane.run(&["history", "db-1", "-o", "json"]).await.json();
    let versions: Vec<_> = history["items"].as_array().expect("a list").iter().collect();
    let part = |n: usize, field: &str| versions[n][field].clone();
    assert_eq!(versions.len(), 3, "{history}");
    assert_eq!([part(0, "verb"), part(1, "verb"), part(2, "verb")], ["delete".into(), "apply".into(), Value::Null]);
    assert_eq!((part(1, "outcome"), part(0, "outcome")), ("applied".into(), Value::Null), "{history}");
    assert_eq!((&part(1, "operation"), &part(1, "revision")), (&operation.into(), &applied["revision"]));
    let newest = plane.run(&["history", "host", "db-1", "--limit", "1"]).await;
    assert!(newest.stderr.contains("there are older ones"), "{}", newest.stderr);
    assert_eq!(newest.ended(0).lines().count(), 2);

    let object = plane.run(&["history", "Policy/db", "-o", "json"]).await.json();
    let changes: Vec<&str> =
        object["items"].as_array().expect("a list").iter().filter_map(|one| one["change"].as_str()).collect();
    assert_eq!(changes, ["deleted", "created"], "also of one that is gone");
    for nobody in [&["history", "nobody"][..], &["history", "Policy/default/never"]] {
        assert_eq!(plane.run(nobody).await.code, 3, "{nobody:?}");
    }
    let gone = versions[0]["actor"].as_str().expect("who").to_owned();
    let id =
        plane.run(&["get", "hosts", "-o", "json"]).await.json()["items"][0]["id"].as_str().expect("an id").to_owned();
    plane.run(&["host", "decommission", &id]).await.ended(0);
    assert!(plane.run(&["history", &id]).await.ended(0).contains(&gone), "by its id, also when it is out");
}

#[tokio::test]
async fn a_revision_is_judged_by_the_hosts_that_it_is_for_and_one_that_is_for_none_by_the_whole_fleet() {
    let mut plane = mk_plane().await;
    let get = async |plane: &Plane, revision: &Value| {
        plane.run(&["get", "revision", &revision.to_string(), "-o", "json"]).await.json()
    };
    let apply = async |plane: &Plane, file: &str| {
        plane.run(&["apply", "-f", file, "-o", "json"]).await.json()["revision"].clone()
    };
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane.file("db.yaml", POLICIES.split("---\n").next().expect("the policy of the database"));
    let db = apply(&plane, "db.yaml").await;
    assert_eq!(get(&plane, &db).await["status"]["state"], "published");
    plane.render().await;
    let on_its_way = get(&plane, &db).await;
    let counts = |view: &Value| (view["status"]["hosts"]["total"].clone(), view["status"]["state"].clone());
    assert_eq!(counts(&on_its_way), (1.into(), "progressing".into()), "{on_its_way}");
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(counts(&get(&plane, &db).await), (1.into(), "converged".into()));

    // A group that nobody names is for no host: it is converged when the whole fleet is, and not because nobody is asked.
    let group = "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: g}\nspec: {cidrs: [192.0.2.0/24]}\n";
    plane.file("group.yaml", group);
    let none = apply(&plane, "group.yaml").await;
    plane.render().await;
    let whole = get(&plane, &none).await;
    assert_eq!((counts(&whole), &whole["has_hosts"]), ((3.into(), "converged".into()), &false.into()), "{whole}");
    let text = plane.run(&["describe", "revision", &none.to_string()]).await.ended(0);
    assert!(text.contains("AddressGroup/default/g created") && text.contains("of         the whole fleet"), "{text}");

    // Who may still hold what was removed is asked for it.
    let removed = plane.run(&["delete", "Policy/db", "-o", "json"]).await.json()["revision"].clone();
    plane.render().await;
    assert_eq!(counts(&get(&plane, &removed).await), (1.into(), "progressing".into()));
    plane.says("db-1", OutcomeKind::Failed).await;
    assert_eq!(counts(&get(&plane, &removed).await), (1.into(), "failed".into()));
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(counts(&get(&plane, &removed).await), (1.into(), "converged".into()));
    let list = plane.run(&["get", "revisions", "-o", "json"]).await.json();
    assert_eq!(list["items"][0]["revision"], removed);
    assert_eq!(plane.run(&["get", "revision", "9999"]).await.code, 3);
    let enrolled = get(&plane, &Value::from(1)).await;
    assert_eq!(enrolled["hosts_changed"][0]["change"], "created", "{enrolled}");
}

#[tokio::test]
async fn whoever_shows_the_tag_of_what_they_read_changes_that_or_nothing() {
    let plane = mk_plane().await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let object = "/v1/objects/Policy/default/db";
    let read = ask(&plane, Method::GET, object, None, None).await;
    let (old, head) = (tag(&read), tag(&ask(&plane, Method::GET, "/v1/objects", None, None).await));
    plane.file("other.yaml", &POLICIES.replace("443", "444"));
    plane.run(&["apply", "-f", "other.yaml"]).await.ended(0);
    assert_eq!(tag(&ask(&plane, Method::GET, object, None, None).await), old, "another object changed");
    plane.file("mine.yaml", &POLICIES.replace("5432", "5433").replace("443", "444"));
    plane.run(&["apply", "-f", "mine.yaml"]).await.ended(0);

    let refused = ask(&plane, Method::DELETE, object, Some(&old), None).await;
    let problem: Value = serde_json::from_slice(&refused.body).expect("a problem");
    assert_eq!((refused.status.as_u16(), &problem["type"]), (412, &"urn:holdfast:problem:stale-object".into()));
    let now = tag(&ask(&plane, Method::GET, object, None, None).await);
    assert_eq!(format!("\"{}\"", problem["revision"]), now, "it says what is there now");
    for (path, body) in [
        ("/v1/apply", json!({"sources": [{"name": "x", "text": POLICIES}]})),
        ("/v1/delete", json!({"objects": ["Policy/default/db"]})),
        ("/v1/mode", json!({"selector": "all", "mode": "enforced", "expect": 3})),
        ("/v1/restore", json!({"revision": 4})),
    ] {
        let stale = ask(&plane, Method::POST, path, Some(&head), Some(&body)).await;
        let problem: Value = serde_json::from_slice(&stale.body).expect("a problem");
        assert_eq!(problem["type"], "urn:holdfast:problem:stale-revision", "{path}: {problem}");
    }
    assert_eq!(ask(&plane, Method::DELETE, object, Some("W/\"1\""), None).await.status.as_u16(), 400);
    assert_eq!(ask(&plane, Method::DELETE, object, Some(&now), None).await.status.as_u16(), 200);
    assert_eq!(ask(&plane, Method::DELETE, object, Some(&now), None).await.status.as_u16(), 412, "it is gone");
}

/// Each is asked as the description has it: a form of tag that none takes, and one that is good but of something else.
#[tokio::test]
async fn every_changing_call_takes_a_tag_as_it_says_or_refuses_it_and_does_nothing() {
    let plane = mk_plane().await;
    plane.file("policies.yaml", POLICIES);
    let applied = plane.run(&["apply", "-f", "policies.yaml", "-o", "json"]).await.json();
    let operation = applied["operation"].as_str().expect("it changed something").to_owned();
    let count =
        "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM operations), (SELECT count(*) FROM api_tokens)";
    let before = plane.postgres.sql(count);
    let described = ask(&plane, Method::GET, "/openapi.json", None, None).await;
    let described: Value = serde_json::from_slice(&described.body).expect("JSON");
    let mut seen = BTreeMap::from([(true, 0), (false, 0)]);
    for (path, calls) in described["paths"].as_object().expect("paths") {
        let id = match path.split('/').nth(2).expect("a part") {
            "operations" => operation.clone(),
            "rollouts" => "ro_01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            _ => "1".to_owned(),
        };
        let filled = [("{host}", "web-1"), ("{kind}", "Policy"), ("{namespace}", "default"), ("{name}", "db")];
        let filled = filled.iter().fold(path.replace("{id}", &id), |path, (field, value)| path.replace(field, value));
        let calls = calls.as_object().expect("calls").iter();
        for (method, call) in calls.filter(|(method, _)| *method != "get") {
            assert!(!filled.contains('{'), "{filled}");
            let method: Method = method.to_uppercase().parse().expect("a method");
            let takes = call["parameters"].as_array().into_iter().flatten().any(|one| one["name"] == "If-Match");
            *seen.get_mut(&takes).expect("both") += 1;
            // Who takes one takes no such form of it.
            for shown in if takes { &["W/\"1\""][..] } else { &["W/\"1\"", "\"1\"", "*"] } {
                let body = (method == Method::POST).then(|| json!({}));
                let refused = ask(&plane, method.clone(), &filled, Some(shown), body.as_ref()).await;
                let problem: Value = serde_json::from_slice(&refused.body).expect("a problem");
                let finding = &problem["findings"][0];
                assert_eq!((refused.status.as_u16(), &finding["rule"]), (400, &"if-match".into()), "{path}: {problem}");
                let text = finding["message"].as_str().expect("a text");
                assert_eq!(text.contains("takes no `if-match`"), !takes, "{method} {path}: {problem}");
            }
        }
    }
    assert_eq!(seen, BTreeMap::from([(true, 9), (false, 13)]), "a new call is counted here");
    assert_eq!(plane.postgres.sql(count), before);
    let open = plane.run(&["operation", "get", &operation, "-o", "json"]).await.json();
    assert_eq!(open["ended_at"], Value::Null, "{open}");
    // Without one it is as ever.
    let cancel = format!("/v1/operations/{operation}/cancel");
    assert_eq!(ask(&plane, Method::POST, &cancel, None, None).await.status.as_u16(), 200);
}

fn tag(response: &Response) -> String {
    response.headers[ETAG].to_str().expect("a text").to_owned()
}

async fn ask(plane: &Plane, method: Method, path: &str, shown: Option<&str>, body: Option<&Value>) -> Response {
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("the CA");
    let client = Client::new(tls::https(&roots).expect("a configuration"));
    let mut request = Request::new(method, format!("{}{path}", plane.api())).bearer(plane.admin()).expect("a request");
    if let Some(shown) = shown {
        request = request.header(IF_MATCH, shown).expect("a header");
    }
    if let Some(body) = body {
        let kind = request.header(CONTENT_TYPE, "application/json").expect("a header");
        request = kind.body(serde_json::to_vec(body).expect("JSON"));
    }
    client.request(request).await.expect("an answer")
}

#[tokio::test]
async fn a_flow_between_many_addresses_is_judged_by_all_of_them_and_what_denies_is_listed() {
    let plane = mk_plane().await;
    let addresses: Vec<String> = (1..=80).map(|n| format!("203.0.113.{n}")).collect();
    let endpoint = format!(
        "apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {{name: many}}\nspec: {{addresses: [{}]}}\n",
        addresses.join(", ")
    );
    plane.file("many.yaml", &endpoint);
    let db = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: db}\nspec:\n  hostSelector: {matchLabels: {app: db}}\n  \
              ingress:\n  - from: [{cidr: 203.0.113.0/26}, {cidr: 203.0.113.64/32}]\n    services: [{tcp: 5432}]\n";
    plane.file("db.yaml", db);
    plane.run(&["apply", "-f", "many.yaml", "-f", "db.yaml"]).await.ended(0);
    plane.run(&["mode", "set", "app=db", "enforced", "--expect", "1"]).await.ended(0);
    let question = ["explain", "flow", "Endpoint/many", "db-1", "5432/tcp"];
    let view = plane.run(&[question.as_slice(), &["-o", "json"]].concat()).await.json();
    let counts = (&view["verdict"], &view["pairs"], &view["pairs_allowed"]);
    assert_eq!(counts, (&"mixed".into(), &80.into(), &64.into()), "{view}");
    let flows = view["flows"].as_array().expect("a list");
    let denied = flows.iter().filter(|flow| flow["allowed"] == false).count();
    assert_eq!((flows.len(), denied), (64, 16), "all that are denied are among those that are listed");
    let told = plane.run(&[question.as_slice(), &["--exit-code"]].concat()).await;
    assert!(told.code == 9 && told.stdout.contains("64 of 80 pairs of addresses are allowed; 64 of them:"), "{told:?}");
}

#[tokio::test]
async fn a_name_of_several_endpoints_is_asked_back_and_a_revision_that_no_column_holds_is_not_there() {
    let plane = mk_plane().await;
    let in_namespace = |namespace: &str| {
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {{name: bank, namespace: {namespace}}}\nspec: {{addresses: [203.0.113.9]}}\n"
        )
    };
    plane.file("two.yaml", &[in_namespace("one"), in_namespace("two")].join("---\n"));
    plane.run(&["apply", "-f", "two.yaml"]).await.ended(0);
    let several = plane.run(&["explain", "flow", "bank", "db-1", "443/tcp"]).await;
    assert!(several.code == 1 && several.stderr.contains("say one/bank or two/bank"), "{several:?}");
    for number in ["9223372036854775807", "18446744073709551615"] {
        let nobody = plane.run(&["describe", "revision", number]).await;
        assert!(nobody.code == 3, "{nobody:?}");
    }
    let none = plane.run(&["status", "--revision", "0"]).await;
    assert!(none.code == 3 && none.stderr.contains("the last is"), "{none:?}");
    plane.file("typo.yaml", "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: db1}\nspec: {mode: enforced}\n");
    let typo = plane.run(&["apply", "-f", "typo.yaml"]).await;
    assert!(typo.code == 0 && typo.stderr.contains("warning: Host/default/db1 is for no host"), "{typo:?}");
}

#[tokio::test]
async fn intent_of_another_history_of_the_database_is_read_anew_though_its_revisions_have_the_same_numbers() {
    let plane = mk_plane().await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let names = async |plane: &Plane| plane.run(&["get", "objects", "-o", "name"]).await.ended(0);
    assert!(names(&plane).await.contains("Policy/default/db"));
    // As after a restore, where others made as many changes meanwhile.
    plane.postgres.sql(
        "SET session_replication_role = replica; UPDATE revisions SET at = at - interval '1 hour'; \
         UPDATE objects SET name = 'db-of-then' WHERE kind = 'Policy' AND name = 'db'",
    );
    plane.file("more.yaml", "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: other}\n");
    plane.run(&["apply", "-f", "more.yaml"]).await.ended(0);
    let listed = names(&plane).await;
    assert!(listed.contains("Policy/default/db-of-then") && !listed.contains("Policy/default/db\n"), "{listed}");
}
