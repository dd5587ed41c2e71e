//! Operations of a fleet of which some are away, between real processes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::agent::{DEADLINE, Live, Manner};
use super::stage::Stage;
use super::watch::Watch;

const HOSTS: usize = 100;
const AWAY: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c42_of_a_hundred_hosts_three_are_away_and_an_apply_that_waits_says_so_at_its_deadline_and_again() {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[]);
    let hosts = stage.enrol("web", HOSTS).await;
    let here = hosts.get(AWAY..).expect("most");
    let live = |(n, who)| {
        // A source has a number of handshakes of its own.
        let from = [127, 0, 1, u8::try_from(n % 8 + 1).expect("small")];
        Live::start(who, &[gateway.address], Manner { from, ..Manner::default() }, n)
    };
    let agents: Vec<Live> = (0_u64..).zip(here).map(live).collect();
    let names: Vec<String> = here.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    watch.until_all(&names, "converged").await;
    drop(watch);

    std::fs::write(stage.folder().join("team.yaml"), namespace("red")).expect("the folder is ours");
    std::fs::write(stage.folder().join("other.yaml"), namespace("blue")).expect("the folder is ours");
    let revisions = stage.postgres.sql("SELECT max(revision) FROM revisions").trim().to_owned();
    let began = Instant::now();
    let waiting = apply(&stage, "team.yaml").spawn().expect("it runs");
    let accepted = format!("SELECT count(*) FROM revisions WHERE revision > {revisions}");
    stage.sql_until(&accepted, "1").await;
    stage.render(&hosts, 40).await;
    stage.hint(&hosts).await;
    let first = ended(waiting.wait_with_output().expect("it ends"));
    assert!(began.elapsed() < DEADLINE, "it waits for four seconds");
    assert_counts(&first);

    // The door is killed and comes back: the same under its name is the same operation, and nothing is done twice.
    stage.restart_operators().await;
    let again = ended(apply(&stage, "team.yaml").output().expect("it runs"));
    assert_eq!(again["operation"], first["operation"]);
    assert_counts(&again);
    assert_eq!(stage.postgres.sql(&accepted).trim(), "1");
    let other = apply(&stage, "other.yaml").output().expect("it runs");
    assert_eq!(other.status.code(), Some(4), "{other:?}");

    // Those that were away come back, and it ends.
    let id = first["operation"].as_str().expect("an id").to_owned();
    let back: Vec<Live> = (200_u64..)
        .zip(&hosts[..AWAY])
        .map(|(n, who)| Live::start(who, &[gateway.address], Manner::default(), n))
        .collect();
    let end = stage.holdfast(&["wait", "operation", &id, "--timeout", "20s", "-o", "json"]).output().expect("it runs");
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    let end: Value = serde_json::from_slice(&end.stdout).expect("JSON");
    assert_eq!((&end["state"], &end["hosts"]["applied"]), (&"applied".into(), &HOSTS.into()), "{end}");
    drop((agents, back));
}

/// C42: whoever waits is in the middle of it as the door is killed, and loses nothing by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c42_an_apply_that_waits_while_the_operators_door_is_killed_goes_on_and_ends_with_the_counts_and_code_of_the_end()
 {
    let mut stage = Stage::start().await;
    let gateway = stage.gateway("gateway-1", &[]);
    let hosts = stage.enrol("web", 3).await;
    let live = |(n, who)| Live::start(who, &[gateway.address], Manner::default(), n);
    let mut agents: Vec<Live> = (0_u64..).zip(&hosts[..2]).map(live).collect();
    let watch = Watch::start(&stage.api);
    watch.until_all(&["web-1".to_owned(), "web-2".to_owned()], "converged").await;
    drop(watch);
    let revisions = stage.postgres.sql("SELECT max(revision) FROM revisions").trim().to_owned();
    let accepted = format!("SELECT count(*) FROM revisions WHERE revision > {revisions}");

    // With the third away to the end of the wait, and back before it.
    for (team, timeout, code, counts) in [("red", "--wait=14s", 6, [3, 2, 1]), ("blue", "--wait=60s", 0, [3, 3, 0])] {
        std::fs::write(stage.folder().join("team.yaml"), namespace(team)).expect("the folder is ours");
        let key = format!("release-{team}");
        let mut command = stage.holdfast(&["apply", "-f", "team.yaml", timeout, "--idempotency-key", &key]);
        let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut words = BufReader::new(waiting.stderr.take().expect("it is piped")).lines();
        let mut until = |what: &str| {
            let told = words.by_ref().map(|line| line.expect("text")).find(|line| line.contains(what));
            told.unwrap_or_else(|| panic!("it ended and never said: {what}"))
        };
        let first = until("operation op_");
        let id = first.rsplit(' ').next().expect("an id").to_owned();
        stage.render(&hosts, if team == "red" { 40 } else { 41 }).await;
        stage.hint(&hosts).await;
        // It is in its wait: it says how far that is.
        until("waiting: ");
        stage.restart_operators().await;
        // It saw that the door was away, or asked the new one in time; either way it says once more how far it is.
        if code == 0 {
            agents.push(Live::start(&hosts[2], &[gateway.address], Manner::default(), 9));
        } else {
            until("waiting: ");
        }
        let [total, applied, pending] = counts;
        let away = if pending > 0 { until("applied on") } else { String::new() };
        let ended = waiting.wait().expect("it ends");
        assert_eq!(ended.code(), Some(code), "{away}");
        let seen = stage.api.get(&format!("/v1/operations/{id}")).await.expect("it answers");
        let count = |field: &str| seen["hosts"][field].as_u64().expect("a count");
        assert_eq!(["total", "applied", "pending"].map(count), [total, applied, pending], "{seen}");
    }
    assert_eq!(stage.postgres.sql(&accepted).trim(), "2", "each was accepted once");
    stage.assert_runs();
    drop(agents);
}

/// Under one name each time.
fn apply(stage: &Stage, file: &str) -> Command {
    let mut command =
        stage.holdfast(&["apply", "-f", file, "--wait=4s", "--idempotency-key", "release-7", "-o", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn namespace(team: &str) -> String {
    format!("apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {{name: a}}\nspec: {{labels: {{team: {team}}}}}\n")
}

fn ended(output: Output) -> Value {
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn assert_counts(answer: &Value) {
    let hosts = &answer["waited"]["hosts"];
    let count = |field: &str| hosts[field].as_u64().expect("a count");
    let counts = ["total", "applied", "pending", "offline", "failed"].map(count);
    assert_eq!(counts, [100, 97, 3, 3, 0], "{answer}");
    assert_eq!(answer["waited"]["state"], "accepted");
}
