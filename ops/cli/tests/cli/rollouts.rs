//! Changes that go through the fleet in stages: each opens by evidence of those before, and what goes wrong stays where it began.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_identity::https::{Client, Request, Response};
use holdfast_identity::{TrustRoots, tls};
use holdfast_model::statement::OutcomeKind;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use serde_json::Value;

use crate::intent::POLICIES;
use crate::plane::Plane;

const HOSTS: [(&str, &str); 4] =
    [("db-1", "10.0.0.1"), ("db-2", "10.0.0.2"), ("web-1", "10.0.0.3"), ("web-2", "10.0.0.4")];
/// In stage 1 and on.
const CANARIES: [&str; 2] = ["db-1", "db-2"];
/// How long anything that is awaited here may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Hosts that have everything so far, and a change for all of them.
async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    for (name, address) in HOSTS {
        plane.enrol(name, address).await;
    }
    plane.file("policies.yaml", POLICIES);
    plane.file("change.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5433").replace("port: 443", "port: 444"));
    plane.file("later.yaml", &POLICIES.replace("name: web", "name: late").replace("port: 443", "port: 80"));
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane
}

/// Begins one with the databases first; its id.
async fn begin(plane: &Plane) -> String {
    let begun = plane.run(&["apply", "-f", "change.yaml", "--rollout", "--stage", "app=db", "-o", "json"]).await;
    assert!(begun.stderr.contains("no stage names 2 of them"), "{begun:?}");
    let id = begun.json()["rollout"].as_str().expect("it began").to_owned();
    plane.render().await;
    id
}

async fn get(plane: &Plane, id: &str) -> Value {
    plane.run(&["rollout", "get", id, "-o", "json"]).await.json()
}

/// Waits until it is in a state, or has opened so many stages.
async fn until(plane: &Plane, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let seen = get(plane, id).await;
            if is_so(&seen) {
                return seen;
            }
        }
    };
    tokio::time::timeout(DEADLINE, look).await.expect("it comes to that")
}

/// The version of the policy of each host.
async fn versions(plane: &Plane) -> BTreeMap<String, u64> {
    let hosts = plane.run(&["get", "hosts", "-o", "json"]).await.json();
    let one = |host: &Value| {
        let policy = host["components"].as_array()?.iter().find(|part| part["component"] == "policy")?;
        Some((host["name"].as_str()?.to_owned(), policy["latest"]["version"].as_u64()?))
    };
    hosts["items"].as_array().or_else(|| hosts.as_array()).expect("a list").iter().filter_map(one).collect()
}

fn of(versions: &BTreeMap<String, u64>, names: &[&str]) -> Vec<u64> {
    names.iter().map(|name| versions[*name]).collect()
}

#[tokio::test]
async fn stages_open_in_order_by_evidence_and_the_last_finishes_it() {
    let mut plane = mk_plane().await;
    let before = versions(&plane).await;
    let id = begin(&plane).await;
    let seen = get(&plane, &id).await;
    assert_eq!((&seen["state"], &seen["stage"], &seen["held_hosts"]), (&"progressing".into(), &1.into(), &2.into()));
    let after = versions(&plane).await;
    assert!(CANARIES.iter().all(|name| after[*name] == before[*name] + 1), "{before:?} {after:?}");
    assert_eq!(of(&after, &["web-1", "web-2"]), of(&before, &["web-1", "web-2"]));

    // One of two is no proof of the stage.
    plane.says("db-1", OutcomeKind::Applied).await;
    let watched = plane.run(&["rollout", "watch", &id, "--timeout", "2500ms"]).await;
    assert_eq!((watched.code, &get(&plane, &id).await["stage"]), (6, &Value::from(1)), "{watched:?}");
    plane.says("db-2", OutcomeKind::Applied).await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    // Another renderer takes over between: it knows what is stored, and nothing else.
    plane.render().await;
    let all = versions(&plane).await;
    assert!(HOSTS.iter().all(|(name, _)| all[*name] == before[*name] + 1), "{all:?}");
    plane.all_say(OutcomeKind::Applied).await;
    let watched = plane.run(&["rollout", "watch", &id]).await;
    assert!(watched.code == 0 && watched.stderr.contains("is finished"), "{watched:?}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["state"], "converged");
    let checked = plane.run(&["rebuild", "--check"]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
}

#[tokio::test]
async fn a_stage_that_is_not_rendered_has_proven_nothing_and_names_the_renderer_as_what_is_in_the_way() {
    let mut plane = mk_plane().await;
    let begun = plane.run(&["apply", "-f", "change.yaml", "--rollout", "--stage", "app=db", "-o", "json"]).await;
    let id = begun.json()["rollout"].as_str().expect("it began").to_owned();
    let stage = async |plane: &Plane| get(plane, &id).await["stages"][0].clone();
    let seen = stage(&plane).await;
    assert_eq!((&seen["now"]["converged"], &seen["now"]["progressing"]), (&0.into(), &2.into()), "{seen}");
    assert!(seen["in_the_way"][0].as_str().is_some_and(|said| said.starts_with("the renderer")), "{seen}");
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    let seen = stage(&plane).await;
    assert_eq!((&seen["now"]["converged"], &seen["now"]["progressing"]), (&1.into(), &1.into()), "{seen}");
    assert!(seen["in_the_way"][0].as_str().is_some_and(|said| said.starts_with("default/db-2")), "{seen}");
}

#[tokio::test]
async fn a_rollout_that_is_open_hides_nobody_who_is_in_trouble_and_waits_say_what_they_wait_for() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    let renewed = || plane.postgres.sql("UPDATE leases SET expires_at = now() + interval '1 hour'");
    renewed();
    plane.number_events().await;
    let fleet = async |plane: &Plane| {
        let checks = plane.run(&["doctor", "-o", "json"]).await;
        let checks: Value = serde_json::from_str(&checks.stdout).expect("JSON");
        checks["checks"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["name"] == "fleet")
            .expect("it is looked at")
            .clone()
    };
    let seen = fleet(&plane).await;
    let remedy = seen["remedy"].as_str().expect("what to do");
    assert!(seen["state"] == "watch" && remedy.contains(&format!("holdfast rollout get {id}")), "{seen}");
    // The whole fleet waits for the rollout, and that is said; who is held has what it had.
    plane.says("db-2", OutcomeKind::Applied).await;
    let waited = plane.run(&["wait", "--timeout", "1s"]).await;
    assert!(waited.code == 6 && waited.stderr.contains(&format!("holdfast rollout watch {id}")), "{waited:?}");
    assert!(!waited.stderr.contains("is the renderer up"), "{waited:?}");

    plane.says("db-1", OutcomeKind::Failed).await;
    until(&plane, &id, |seen| seen["state"] == "halted").await;
    let seen = fleet(&plane).await;
    let told = [seen["detail"].as_str().expect("what"), seen["remedy"].as_str().expect("what to do")].concat();
    assert!(seen["state"] == "trouble" && told.contains("default/db-1 is failed") && told.contains(&id), "{seen}");
    let waited = plane.run(&["wait", "--timeout", "25s"]).await;
    assert!(waited.code == 1, "a host that has it did not take it: {waited:?}");
    let revision = get(&plane, &id).await["revision"].clone();
    let shown = plane.run(&["get", "revision", &revision.to_string(), "-o", "json"]).await.json();
    let told = (&shown["status"]["hosts"]["total"], &shown["status"]["held"]["rollout"]);
    assert_eq!(told, (&4.into(), &id.clone().into()), "{shown}");
}

#[tokio::test]
async fn a_bad_canary_halts_it_and_no_other_host_has_a_new_version_and_an_abort_brings_the_canary_back() {
    let mut plane = mk_plane().await;
    let before = versions(&plane).await;
    let id = begin(&plane).await;
    let operation = plane.run(&["operation", "list", "-o", "json"]).await.json();
    let operation = operation["items"].as_array().or_else(|| operation.as_array()).expect("a list")[0].clone();
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.says("db-2", OutcomeKind::Failed).await;
    let watched = plane.run(&["rollout", "watch", &id, "--timeout", "30s"]).await;
    assert_eq!(watched.code, 1, "{watched:?}");
    assert!(
        watched.stderr.contains("is halted") && watched.stderr.contains("default/db-2 (failed: kernel_refused)"),
        "{watched:?}"
    );
    plane.render().await;
    let halted = versions(&plane).await;
    assert_eq!(of(&halted, &["web-1", "web-2"]), of(&before, &["web-1", "web-2"]), "only the canaries were touched");

    let aborted = plane.run(&["rollout", "abort", &id, "-o", "json"]).await.json();
    assert_eq!((&aborted["state"], &aborted["left"]), (&"aborted".into(), &Value::Null));
    plane.render().await;
    let after = versions(&plane).await;
    assert!(CANARIES.iter().all(|name| after[*name] == before[*name] + 2), "back, as new versions: {after:?}");
    assert_eq!(of(&after, &["web-1", "web-2"]), of(&before, &["web-1", "web-2"]), "they never saw it");
    plane.all_say(OutcomeKind::Applied).await;
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["state"], "converged");
    let wait = ["operation", aborted["abort_operation"].as_str().expect("it made one"), "--wait"];
    assert_eq!(plane.run(&wait).await.code, 0);
    let first = plane.run(&["operation", operation["id"].as_str().expect("an id"), "--wait"]).await;
    assert_eq!(first.code, 4, "the change itself is superseded: {first:?}");
    assert_eq!(plane.run(&["rollout", "abort", &id]).await.code, 4);
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}

#[tokio::test]
async fn a_stage_whose_hosts_are_all_taken_out_halts_it_and_a_resume_goes_on_without_their_proof() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    for name in CANARIES {
        plane.run(&["host", "decommission", name]).await.ended(0);
    }
    plane.render().await;
    let halted = plane.run(&["rollout", "watch", &id, "--timeout", "30s"]).await;
    let said = "no host of stage 1 is left: nobody can prove the change; resumed, it goes on without that proof";
    assert!(halted.code == 1 && halted.stderr.contains(said), "{halted:?}");
    plane.run(&["rollout", "resume", &id]).await.ended(0);
    plane.render().await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    plane.render().await;
    for name in ["web-1", "web-2"] {
        plane.says(name, OutcomeKind::Applied).await;
    }
    let watched = plane.run(&["rollout", "watch", &id]).await;
    assert!(watched.code == 0 && watched.stderr.contains("2 of 4 hosts have it"), "{watched:?}");
    let checked = plane.run(&["rebuild", "--check"]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
}

#[tokio::test]
async fn a_renderer_of_an_older_build_begins_no_rollout_and_halts_the_one_that_it_takes_over() {
    let plane = mk_plane().await;
    // What such a build writes when it takes over, and what the present one does.
    let older = "UPDATE leases SET term = term + 1, holder = 'older' WHERE name = 'renderer'";
    let present = "UPDATE leases SET term = term - 1, holder = 'the test' WHERE name = 'renderer'";
    plane.postgres.sql(older);
    let refused = plane.run(&["apply", "-f", "change.yaml", "--rollout", "--stage", "app=db"]).await;
    assert!(refused.code == 4 && refused.stderr.contains("knows no rollouts"), "{refused:?}");
    plane.postgres.sql(present);

    let id = begin(&plane).await;
    plane.run(&["rollout", "pause", &id]).await.ended(0);
    plane.postgres.sql(older);
    let paused = get(&plane, &id).await;
    assert!(paused["state"] == "paused" && paused["detail"].to_string().contains("holds nobody back"), "{paused}");
    for _ in 0..2 {
        plane.run(&["rollout", "resume", &id]).await.ended(0);
        plane.wake();
        let halted = plane.run(&["rollout", "watch", &id, "--timeout", "30s"]).await;
        assert!(halted.code == 1 && halted.stderr.contains("holds nobody back: update it"), "{halted:?}");
    }
    plane.postgres.sql(present);
    plane.run(&["rollout", "resume", &id]).await.ended(0);
    assert_eq!(get(&plane, &id).await["state"], "progressing");
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}

#[tokio::test]
async fn a_host_that_enrols_meanwhile_is_waited_for_by_nobody_and_its_failure_halts() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    plane.enrol("web-3", "10.0.0.5").await;
    plane.render().await;
    assert_eq!(get(&plane, &id).await["held_hosts"], 2, "it is held by nobody");
    for name in CANARIES {
        plane.says(name, OutcomeKind::Applied).await;
    }
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    plane.render().await;
    plane.says("web-3", OutcomeKind::Failed).await;
    let halted = plane.run(&["rollout", "watch", &id, "--timeout", "30s"]).await;
    let said = "in stage 2, 1 failed and 0 may: default/web-3 (failed: kernel_refused)";
    assert!(halted.code == 1 && halted.stderr.contains(said), "{halted:?}");
    plane.says("web-3", OutcomeKind::Applied).await;
    plane.run(&["rollout", "resume", &id]).await.ended(0);
    plane.all_say(OutcomeKind::Applied).await;
    let watched = plane.run(&["rollout", "watch", &id]).await;
    assert!(watched.code == 0 && !watched.stderr.contains("hosts have it"), "all four of its stages: {watched:?}");
}

#[tokio::test]
async fn a_stage_that_takes_too_long_halts_and_names_whom_it_waited_for() {
    let mut plane = mk_plane().await;
    let late = ["--rollout", "--stage", "app=db", "--stage-timeout", "3s", "-o", "json"];
    let begun = plane.run(&[["apply", "-f", "change.yaml"].as_slice(), &late].concat()).await.json();
    let id = begun["rollout"].as_str().expect("it began").to_owned();
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    let halted = plane.run(&["rollout", "watch", &id, "--timeout", "30s"]).await;
    let said = "stage 1 took its 3 s and waits for 1: default/db-2 (";
    assert!(halted.code == 1 && halted.stderr.contains(said), "{halted:?}");
}

#[tokio::test]
async fn a_plan_says_who_would_be_in_which_stage_and_its_digest_is_good_for_these_stages_alone() {
    let plane = mk_plane().await;
    let stages = ["--rollout", "--stage", "50%", "--stage", "100%"];
    let change = |command: &'static str, more: &[&str]| {
        [&[command, "-f", "change.yaml"], more].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = async |arguments: Vec<String>| plane.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let told = run(change("plan", &stages)).await;
    assert!(told.stdout.contains("stage 1 (50%): 2 hosts: default/") && told.code == 0, "{told:?}");
    assert!(told.stderr.contains("--rollout --stage 50% --stage 100% --stage-timeout 1800s --plan "), "{told:?}");
    let planned = run(change("plan", &[stages.as_slice(), &["-o", "json"]].concat())).await.json();
    let at_once = run(change("plan", &["-o", "json"])).await.json();
    assert!(planned["digest"] != at_once["digest"] && at_once["stages"] == Value::Null, "{at_once}");
    let digest = planned["digest"].as_str().expect("a digest");
    for other in [&[][..], &["--rollout", "--stage", "100%"], &[&stages[..], &["--max-failed", "1"]].concat()] {
        let refused = run(change("apply", &[&["--plan", digest], other].concat())).await;
        assert!(refused.code == 4 && refused.stderr.contains("something else than the plan"), "{refused:?}");
    }
    let nobody = run(change("plan", &["--rollout", "--stage", "app=ghost"])).await;
    assert!(nobody.code == 1 && nobody.stderr.contains("the stage `app=ghost` adds no host"), "{nobody:?}");

    let begun = run(change("apply", &[&["--plan", digest, "-o", "json"], &stages[..]].concat())).await.json();
    let id = begun["rollout"].as_str().expect("it began");
    let told = "SELECT string_agg(namespace || '/' || name, ',' ORDER BY namespace, name) FROM rollout_hosts JOIN hosts USING (host_id) WHERE stage = 1";
    let first: Vec<&str> =
        planned["stages"][0]["names"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert_eq!(plane.postgres.sql(told).trim(), first.join(","), "who was planned is who is in it");
    plane.file("change.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5434"));
    let refused = run(change("plan", &stages)).await;
    assert!(refused.code == 4 && refused.stderr.contains(&format!("rollout {id} is open")), "{refused:?}");
    let warned = run(change("plan", &[])).await;
    assert!(warned.stderr.contains("2 hosts are held at revision 5") && warned.code == 0, "{warned:?}");
    let created =
        plane.run(&["api-token", "create", "ci", "--role", "viewer", "--namespace", "default"]).await.ended(0);
    let narrow = [&["plan", "-f", "change.yaml"], &stages[..]].concat();
    assert_eq!(plane.run_as(created.trim(), &narrow).await.code, 5);
}

#[tokio::test]
async fn modes_and_restores_go_in_stages_too_and_what_changes_meanwhile_says_who_is_held() {
    let mut plane = mk_plane().await;
    let set = ["mode", "set", "all", "simulation", "--expect", "4", "--rollout", "--stage", "app=db", "-o", "json"];
    let begun = plane.run(&set).await.json();
    let id = begun["rollout"].as_str().expect("it began").to_owned();
    plane.render().await;
    assert_eq!(get(&plane, &id).await["held_hosts"], 2);

    let held = |revision: u64, hosts: &str| format!("{hosts} held at revision {revision} by {id}");
    let restored = plane.run(&["restore", "5", "--object", "Policy/default/db"]).await;
    assert!(restored.code == 0, "{restored:?}");
    let later = plane.run(&["mode", "set", "app=web", "visibility", "--expect", "2"]).await;
    assert!(later.code == 0 && later.stderr.contains(&held(5, "2 hosts are")), "{later:?}");
    let out = plane.run(&["host", "decommission", "web-2"]).await;
    let said = format!("{} (progressing): those that let default/web-2 in go on until", held(5, "1 host is"));
    assert!(out.code == 0 && out.stderr.contains(&said), "{out:?}");
    plane.run(&["rollout", "abort", &id]).await.ended(0);
    plane.render().await;
    for name in ["db-1", "db-2", "web-1"] {
        plane.says(name, OutcomeKind::Applied).await;
    }
    let back = ["restore", "5", "--rollout", "--stage", "app=db", "-o", "json"];
    let planned = plane.run(&[&back[..], &["--plan-only"]].concat()).await.json();
    assert_eq!(planned["stages"][0]["names"], serde_json::json!(["default/db-1", "default/db-2"]), "{planned}");
    let begun = plane.run(&back).await.json();
    assert!(begun["rollout"].is_string(), "{begun}");
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}

#[tokio::test]
async fn what_is_acknowledged_of_a_change_at_once_is_good_for_no_change_in_stages() {
    let plane = mk_plane().await;
    let all = ["delete", "Policy/default/db", "NetworkPolicy/default/web"];
    let stages = ["--rollout", "--stage", "app=db"];
    let digest_of = async |more: &[&str]| {
        let braked = plane.run(&[&all[..], more, &["-o", "json"]].concat()).await;
        let problem: Value = serde_json::from_str(&braked.stderr).expect("a problem");
        problem["brake"]["acknowledge"].as_str().expect("it leaves no host a rule").to_owned()
    };
    let (at_once, in_stages) = (digest_of(&[]).await, digest_of(&stages).await);
    assert_ne!(at_once, in_stages);
    let refused = plane.run(&[&all[..], &stages, &["--acknowledge", &at_once]].concat()).await;
    assert!(refused.code == 4 && refused.stderr.contains("what was acknowledged is another change"), "{refused:?}");
    let refused = plane.run(&[&all[..], &["--acknowledge", &in_stages]].concat()).await;
    assert_eq!(refused.code, 4, "{refused:?}");
    plane.run(&[&all[..], &stages, &["--acknowledge", &in_stages]].concat()).await.ended(0);
}

#[tokio::test]
async fn a_rollout_and_a_host_are_moved_as_they_were_read_or_not_at_all() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    let path = format!("/v1/rollouts/{id}");
    let read = ask(&plane, Method::GET, &path, None).await;
    let tag = tag_of(&read);
    let paused = ask(&plane, Method::POST, &format!("{path}/pause"), Some(&tag)).await;
    assert!(paused.status.as_u16() == 200 && tag_of(&paused) != tag, "{paused:?}");
    for moved in ["pause", "resume", "abort"] {
        let refused = ask(&plane, Method::POST, &format!("{path}/{moved}"), Some(&tag)).await;
        let problem: Value = serde_json::from_slice(&refused.body).expect("a problem");
        let wanted = (412, Value::from("urn:holdfast:problem:stale-rollout"));
        assert_eq!((refused.status.as_u16(), problem["type"].clone()), wanted, "{moved}: {problem}");
    }
    assert_eq!(get(&plane, &id).await["state"], "paused");
    let resumed = ask(&plane, Method::POST, &format!("{path}/resume"), Some(&tag_of(&paused))).await;
    assert_eq!(resumed.status.as_u16(), 200);

    // Somebody takes the host out and enrols another by its name meanwhile.
    let read = ask(&plane, Method::GET, "/v1/hosts/web-2", None).await;
    plane.run(&["host", "decommission", "web-2"]).await.ended(0);
    plane.enrol("web-2", "10.0.0.9").await;
    let out = "/v1/hosts/web-2/decommission";
    let refused = ask(&plane, Method::POST, out, Some(&tag_of(&read))).await;
    let problem: Value = serde_json::from_slice(&refused.body).expect("a problem");
    assert_eq!((refused.status.as_u16(), &problem["type"]), (412, &"urn:holdfast:problem:stale-object".into()));
    let read = ask(&plane, Method::GET, "/v1/hosts/web-2", None).await;
    assert_eq!(ask(&plane, Method::POST, out, Some(&tag_of(&read))).await.status.as_u16(), 200);
}

/// What the door answers, to who shows this tag.
async fn ask(plane: &Plane, method: Method, path: &str, tag: Option<&str>) -> Response {
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("the CA");
    let client = Client::new(tls::https(&roots).expect("a configuration"));
    let body = if method == Method::GET { Vec::new() } else { b"{}".to_vec() };
    let request = Request::new(method, format!("{}{path}", plane.api())).bearer(plane.admin()).expect("a token");
    let request = request.header(CONTENT_TYPE, "application/json").expect("a header");
    let request = match tag {
        Some(tag) => request.header(IF_MATCH, tag).expect("a header"),
        None => request,
    };
    client.request(request.body(body)).await.expect("an answer")
}

fn tag_of(response: &Response) -> String {
    let tag = response.headers.get(ETAG).unwrap_or_else(|| panic!("{response:?}"));
    tag.to_str().expect("text").to_owned()
}

#[tokio::test]
async fn a_rollout_that_ends_counts_those_that_have_it_and_names_those_that_do_not() {
    let mut plane = mk_plane().await;
    let stages = ["--rollout", "--stage", "100%", "--max-failed", "1", "-o", "json"];
    let begun = plane.run(&[["apply", "-f", "change.yaml"].as_slice(), &stages].concat()).await.json();
    let id = begun["rollout"].as_str().expect("it began").to_owned();
    plane.run(&["host", "decommission", "web-2"]).await.ended(0);
    plane.render().await;
    for name in ["db-1", "web-1"] {
        plane.says(name, OutcomeKind::Applied).await;
    }
    plane.says("db-2", OutcomeKind::Failed).await;
    let watched = plane.run(&["rollout", "watch", &id]).await;
    let said =
        "2 of 4 hosts have it; 1 failed, as may be: default/db-2 (failed: kernel_refused); 1 taken out of the fleet";
    assert!(watched.code == 0 && watched.stderr.contains(said), "{watched:?}");
    let told = "SELECT payload->>'hosts' FROM events WHERE kind = 'rollout.finished'";
    assert_eq!(plane.postgres.sql(told).trim(), "2");
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}

#[tokio::test]
async fn a_rollout_whose_change_was_taken_back_meanwhile_says_so_at_its_end_and_ends_no_command_well() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    let restored = plane.run(&["restore", "5", "-o", "json"]).await.json();
    let by = restored["revision"].as_u64().expect("it changed something");
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let watched = plane.run(&["rollout", "watch", &id]).await;
    let said = format!("revision {by} has something else in the place of what it changed");
    assert!(
        watched.code == 4 && watched.stderr.contains("is finished") && watched.stderr.contains(&said),
        "{watched:?}"
    );
    assert_eq!(get(&plane, &id).await["overwritten_at"], by);
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}

#[tokio::test]
async fn a_failure_that_recovers_at_once_halts_nothing() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    for _ in 0..2 {
        plane.says("db-1", OutcomeKind::Failed).await;
        let watched = plane.run(&["rollout", "watch", &id, "--timeout", "2500ms"]).await;
        assert_eq!(watched.code, 6, "{watched:?}");
        plane.says("db-1", OutcomeKind::Applied).await;
        assert_eq!(plane.run(&["rollout", "watch", &id, "--timeout", "2500ms"]).await.code, 6);
    }
    plane.says("db-2", OutcomeKind::Applied).await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
}

#[tokio::test]
async fn what_is_paused_opens_no_stage_until_it_is_resumed() {
    let mut plane = mk_plane().await;
    let id = begin(&plane).await;
    plane.run(&["rollout", "pause", &id]).await.ended(0);
    let again = plane.run(&["rollout", "pause", &id]).await;
    assert!(again.code == 4 && again.stderr.contains("is paused"), "{again:?}");
    plane.all_say(OutcomeKind::Applied).await;
    let watched = plane.run(&["rollout", "watch", &id, "--timeout", "3s"]).await;
    assert_eq!((watched.code, &get(&plane, &id).await["stage"]), (6, &Value::from(1)), "{watched:?}");
    plane.run(&["rollout", "resume", &id]).await.ended(0);
    plane.render().await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
}

#[tokio::test]
async fn a_later_change_waits_for_hosts_that_are_held_and_says_so_everywhere() {
    let mut plane = mk_plane().await;
    let before = versions(&plane).await;
    let id = begin(&plane).await;
    let applied = plane.run(&["apply", "-f", "later.yaml", "-o", "json"]).await;
    let held = format!("2 hosts are held at revision 5 by {id} (progressing)");
    assert!(applied.stderr.contains(&format!("warning: {held}")), "{applied:?}");
    let operation = applied.json()["operation"].as_str().expect("it changed something").to_owned();
    plane.run(&["rollout", "pause", &id]).await.ended(0);
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    assert_eq!(of(&versions(&plane).await, &["web-1", "web-2"]), of(&before, &["web-1", "web-2"]));
    let held = held.replace("progressing", "paused");
    for command in [["status"].as_slice(), &["operation", "get", &operation]] {
        let told = plane.run(command).await;
        assert!(told.code == 0 && told.stderr.contains(&held), "{told:?}");
    }
    let waited = plane.run(&["wait", "operation", &operation, "--timeout", "300ms"]).await;
    assert!(waited.code == 6 && waited.stderr.contains(&held) && waited.stderr.contains("rollout watch"), "{waited:?}");
    let status = plane.run(&["status", "-o", "json"]).await.json();
    assert_eq!((&status["hosts"]["converged"], &status["held"]["hosts"]), (&2.into(), &2.into()), "{status}");
    assert_eq!(plane.run(&["status", "--revision", "5", "-o", "json"]).await.json()["state"], "converged");
    let host = plane.run(&["explain", "host", "web-1", "-o", "json"]).await.json();
    assert!(host.to_string().contains("\"fact\":\"held\""), "{host}");
    let explained = plane.run(&["explain", "host", "web-1"]).await.ended(0);
    assert!(explained.contains(&format!("1 host is held at revision 5 by {id} (paused)")), "{explained}");
    let described = plane.run(&["describe", "host", "web-1"]).await.ended(0);
    assert!(described.contains(&format!("at revision 5 by {id}")), "{described}");

    plane.run(&["rollout", "resume", &id]).await.ended(0);
    plane.wake();
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    assert_eq!(plane.run(&["operation", &operation, "--wait"]).await.code, 0, "it reached those that were held");
}

#[tokio::test]
async fn there_is_one_rollout_at_a_time_and_what_cannot_be_a_stage_is_refused_by_its_name() {
    let plane = mk_plane().await;
    let with = |stages: &[&str]| {
        let stages = stages.iter().flat_map(|stage| ["--stage".to_owned(), (*stage).to_owned()]);
        let all = ["apply", "-f", "change.yaml", "--rollout"].map(str::to_owned).into_iter().chain(stages);
        all.collect::<Vec<String>>()
    };
    let run = |arguments: Vec<String>| {
        let plane = &plane;
        async move { plane.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    for (stages, named) in [
        (["app=ghost"].as_slice(), "the stage `app=ghost` adds no host: none has these labels"),
        (&["app=db", "50%"], "the stage `50%` adds no host"),
        (&["0%"], "`0%` is no share of hosts"),
        (&["a b"], "`a b` is no stage"),
    ] {
        let refused = run(with(stages)).await;
        assert!(refused.code == 1 && refused.stderr.contains(named), "{refused:?}");
    }
    assert_eq!(run(with(&[])).await.code, 64, "a rollout without a stage is none");
    let revision = plane.run(&["status", "-o", "json"]).await.json()["revision"].clone();
    let created = plane.run(&["api-token", "create", "ci", "--role", "editor", "--namespace", "default", "-o", "json"]);
    let secret = created.await.json()["secret"].as_str().expect("a secret").to_owned();
    let narrow = plane.run_as(&secret, &["apply", "-f", "change.yaml", "--rollout", "--stage", "50%"]).await;
    assert!(narrow.code == 5 && narrow.stderr.contains("for all namespaces"), "{narrow:?}");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["revision"], revision, "nothing was changed");

    let id = begin(&plane).await;
    let second = ["delete", "Policy/default/db", "--rollout", "--stage", "50%"];
    let refused = plane.run(&second).await;
    assert!(refused.code == 4 && refused.stderr.contains(&format!("rollout {id} is open")), "{refused:?}");
    let listed = plane.run(&["rollout", "list", "-o", "name"]).await.ended(0);
    assert_eq!(listed.trim(), id);
    // Told that it is open is whoever asks for another; whoever asks for the same again is answered.
    plane.run(&["rollout", "abort", &id]).await.ended(0);
    let named = [["--idempotency-key", "once"].as_slice(), &second].concat();
    let first = plane.run(&[named.as_slice(), &["-o", "json"]].concat()).await.json();
    let again = plane.run(&[named.as_slice(), &["-o", "json"]].concat()).await.json();
    assert_eq!((&again["rollout"], &again["operation"]), (&first["rollout"], &first["operation"]));
}

/// Shares of all hosts, those of the stages before included, and the halt over a host of which nothing is known.
#[tokio::test]
async fn shares_open_in_order_and_a_host_that_stays_unknown_halts_it_before_the_others_are_touched() {
    let mut plane = mk_plane().await;
    let before = versions(&plane).await;
    let stages = ["--rollout", "--stage", "25%", "--stage", "75%", "-o", "json"];
    let begun = plane.run(&[["apply", "-f", "change.yaml"].as_slice(), &stages].concat()).await.json();
    let id = begun["rollout"].as_str().expect("it began").to_owned();
    let touched = async |plane: &Plane| -> Vec<String> {
        let now = versions(plane).await;
        now.into_iter().filter(|(name, version)| *version > before[name]).map(|(name, _)| name).collect()
    };
    plane.render().await;
    let sizes: Vec<_> =
        get(&plane, &id).await["stages"].as_array().expect("a list").iter().map(|one| one["hosts"].clone()).collect();
    assert_eq!(sizes, [1, 2, 1], "of four hosts");
    let first = touched(&plane).await;
    assert_eq!(first.len(), 1);
    plane.says(&first[0], OutcomeKind::Applied).await;
    until(&plane, &id, |seen| seen["stage"] == 2).await;
    plane.render().await;
    let second: Vec<String> = touched(&plane).await.into_iter().filter(|name| !first.contains(name)).collect();
    assert_eq!(second.len(), 2);
    plane.says(&second[0], OutcomeKind::Applied).await;

    // The other one is silent, and has been for as long as evidence is fresh. Whoever else is there is heard all the time.
    let of = format!("host_id = (SELECT host_id FROM hosts WHERE name = '{}')", second[1]);
    let ago = "heard_at = clock_timestamp() - interval '46 s'";
    plane.postgres.sql(&format!("UPDATE presence SET {ago} WHERE {of}"));
    let silent = std::time::Instant::now();
    let halted = async {
        loop {
            plane.postgres.sql(&format!("UPDATE presence SET heard_at = clock_timestamp() WHERE NOT {of}"));
            plane.wake();
            let watched = plane.run(&["rollout", "watch", &id, "--timeout", "2s"]).await;
            if watched.code != 6 {
                return watched;
            }
        }
    };
    let watched = tokio::time::timeout(DEADLINE * 4, halted).await.expect("it halts");
    assert_eq!(watched.code, 1, "{watched:?}");
    let said = format!("in stage 2, 1 are unknown and 0 may be: default/{} (unknown", second[1]);
    assert!(watched.stderr.contains("is halted") && watched.stderr.contains(&said), "{watched:?}");
    assert!(silent.elapsed() >= Duration::from_secs(60), "an agent that restarts is back by then");
    plane.render().await;
    assert_eq!(touched(&plane).await.len(), 3, "the last host has what it had");
    let told = "SELECT payload->>'reason' FROM events WHERE kind = 'rollout.halted'";
    assert_eq!(plane.postgres.sql(told).trim(), "unknown");
    assert_eq!(plane.run(&["rebuild", "--check"]).await.code, 0);
}
