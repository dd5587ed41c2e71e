//! Directives between real doors over a real bus: heard by whoever holds the session, and lost on purpose where nobody hears.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Component;
use holdfast_wire::code::DirectiveCode;
use holdfast_wire::message::Message;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::{Peer, host_view};
use crate::versions::apply_policy;

const DEADLINE: Duration = Duration::from_secs(30);

/// What a directive was answered with.
fn ask(plane: &ControlPlane, directive: &str) -> Value {
    let asked = plane.holdfast(&["host", directive, "web", "-o", "json"]);
    assert!(asked.status.success(), "{asked:?}");
    serde_json::from_slice(&asked.stdout).expect("JSON")
}

/// Asks and looks whether the host obeys.
fn ask_and_wait(plane: &ControlPlane, directive: &str, timeout: &str) -> Child {
    let mut command = plane.holdfast_command();
    command.args(["host", directive, "web", "--wait", "--timeout", timeout, "-o", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

fn sent_at(plane: &ControlPlane) -> Value {
    host_view(plane, "web")["last_snapshot_sent_at"].clone()
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the gateway counted so many builds of a lane, begun, built, and waited for.
fn builds(plane: &ControlPlane, lane: &str, count: u64) {
    for happening in ["started", "built"] {
        plane.until_counted("holdfast_gateway_builds_total", &[("lane", lane), ("happening", happening)], count);
    }
    plane.until_counted("holdfast_gateway_build_wait_seconds_count", &[("lane", lane)], count);
    plane.until_counted("holdfast_gateway_builds_waiting", &[("lane", lane)], 0);
}

/// Waits until so many sessions of this gateway were told.
fn obeyed(plane: &ControlPlane, directive: &str, count: u64) {
    let labels = [("directive", directive), ("outcome", "obeyed")];
    plane.until_counted("holdfast_gateway_directives_total", &labels, count);
}

async fn take_whole_state(agent: &mut FirstAgent<'_>) {
    agent.forms.clear();
    for _ in Component::ALL {
        agent.take().await;
    }
    assert_eq!(agent.forms, ["snapshot"; 4]);
}

async fn hear_directive(agent: &mut FirstAgent<'_>, code: DirectiveCode) {
    let said = agent.hear().await;
    assert!(matches!(&said, Message::Directive(directive) if directive.code == code), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_c13_a_directive_moves_what_it_says_and_one_that_nobody_hears_moves_nothing_and_may_be_asked_again() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let (mut agent, _) = FirstAgent::open(plane.agents_door(), &peer).await;
    take_whole_state(&mut agent).await;
    until("the first state is recorded", || host_view(&plane, "web")["sync"] == "SYNCED");

    let parts = Component::ALL.len() as u64;
    builds(&plane, "first", parts);
    let before = sent_at(&plane);
    assert!(before.is_string(), "{before}");
    let asked = ask(&plane, "resend-snapshot");
    assert_eq!(asked["last_snapshot_sent_at"], before, "as it stood");
    take_whole_state(&mut agent).await;
    until("it moves", || sent_at(&plane) != before);
    builds(&plane, "host", parts);
    obeyed(&plane, "resend-snapshot", 1);
    // By themselves these two move nothing: what is sent when the host is back does.
    let before = sent_at(&plane);
    ask(&plane, "reconnect");
    hear_directive(&mut agent, DirectiveCode::Reconnect).await;
    ask(&plane, "re-enrol");
    hear_directive(&mut agent, DirectiveCode::Reenrol).await;
    assert_eq!(sent_at(&plane), before);

    // The bus is away: the operator is told nothing but how it stood, and nothing is kept for later.
    plane.nats().kill();
    until("both doors know", || plane.gateway.log().matches("disconnected from NATS").count() >= 2);
    assert_eq!(ask(&plane, "resend-snapshot")["last_snapshot_sent_at"], before);
    until("it is lost", || plane.gateway.log().contains("a directive is lost"));
    let sent = "holdfast_gateway_directives_sent_total";
    plane.until_counted(sent, &[("directive", "resend-snapshot"), ("outcome", "bus_away")], 1);
    plane.until_counted(sent, &[("directive", "resend-snapshot"), ("outcome", "said")], 1);
    plane.nats().resume();
    until("both doors are back", || plane.gateway.log().matches(" connected to NATS").count() >= 4);
    assert_eq!(sent_at(&plane), before);
    let again = ask_and_wait(&plane, "resend-snapshot", "20s");
    take_whole_state(&mut agent).await;
    let again = again.wait_with_output().expect("it ends");
    let told: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!((again.status.code(), &told["obeyed"]), (Some(0), &true.into()), "{again:?}");
    // Exactly one came: what was lost does not come late. An edit is the next thing that is said.
    apply_policy(&plane, "{cidr: 198.51.100.0/24}");
    agent.take().await;
    assert_eq!(agent.forms.last(), Some(&"delta"));
    drop(agent);

    // The record says that the host is there, and its gateway was killed: nobody hears, and nothing moves.
    let (other, door) = plane.another_gateway();
    let (mut agent, ack) = FirstAgent::open(door, &peer).await;
    take_whole_state(&mut agent).await;
    until("the record names the other gateway", || {
        let view = host_view(&plane, "web");
        view["session"]["session_epoch"] == ack.session_epoch.raw() && view["sync"] == "SYNCED"
    });
    drop(other);
    let before = sent_at(&plane);
    let asked = ask_and_wait(&plane, "resend-snapshot", "1s").wait_with_output().expect("it ends");
    assert_eq!(asked.status.code(), Some(6), "{asked:?}");
    assert_eq!(sent_at(&plane), before);
    plane.assert_runs();
}
