//! A host's enrolment through real processes: its agent's, the gateway's, the renderer's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::client::{AgentProtocol, agent, https};
use holdfast_identity::tls::install_crypto_provider;
use holdfast_identity::{Credential, LeafKey, TrustRoots, files};
use hyper::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, program};

const DEADLINE: Duration = Duration::from_secs(30);

/// The line that a host's operator types.
fn enrol(plane: &ControlPlane) -> Command {
    let pin = fs::read_to_string(plane.keys("public").join("ca.pin")).expect("init made it");
    let mut command = Command::new(program("holdfast-agent"));
    command.env_clear().stdin(Stdio::null());
    command.arg("enrol").arg("--state").arg(plane.folder().join("state"));
    command.arg("--token-file").arg(plane.folder().join("late.token"));
    command.args(["--gateway", &format!("https://{}", plane.agents_door()), "--ca-pin", pin.trim(), "--name", "late"]);
    command
}

fn until(plane: &ControlPlane, what: &str, query: &str, wanted: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = plane.postgres.sql(query);
        if found.trim() == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a certificate is of use for: the next one.
async fn renewed(plane: &ControlPlane, identity: &Path) -> (u16, Value) {
    let roots = TrustRoots::load(&identity.join("ca.pem")).expect("the enrolment wrote it");
    let credential = Credential::load_named(identity, "host").expect("key and certificate are a pair");
    let config = agent(&credential, &roots, AgentProtocol::Http).expect("a configuration");
    let csr = STANDARD.encode(LeafKey::generate().and_then(|key| key.request()).expect("a key"));
    let url = format!("https://{}/agent/v1/renew", plane.agents_door());
    let request = Request::new(Method::POST, url).body(json!({ "csr": csr }).to_string());
    let response = Client::new(config).request(request).await.expect("the door answers");
    (response.status.as_u16(), serde_json::from_slice(&response.body).expect("JSON"))
}

/// What the API says of a host's policy.
async fn policy_of(plane: &ControlPlane, host: &str) -> Value {
    let roots = TrustRoots::load(&plane.keys("public").join("ca.pem")).expect("init made it");
    let client = Client::new(https(&roots).expect("a configuration"));
    let request = Request::new(Method::GET, format!("{}/v1/hosts/{host}/policy", plane.api()));
    let request = request.bearer(plane.admin()).expect("a header");
    let response = client.request(request).await.expect("the API answers");
    serde_json::from_slice(&response.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_while_the_renderer_is_held_still_is_enrolled_by_the_same_command_as_one_host() {
    install_crypto_provider();
    let plane = ControlPlane::start().await;
    let made = plane.holdfast(&["enrol-token", "create", "--uses", "1"]);
    assert!(made.status.success(), "{made:?}");
    files::write_secret(&plane.folder().join("late.token"), &made.stdout).expect("the folder is ours");
    let renderer = Pid::from_raw(i32::try_from(plane.renderer.pid()).expect("a pid"));

    kill(renderer, Signal::SIGSTOP).expect("it runs");
    let mut first = enrol(&plane).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    until(&plane, "the request is written", "select count(*) from requests", "1");
    first.kill().expect("it waits for the renderer");
    first.wait().expect("it is ours");
    kill(renderer, Signal::SIGCONT).expect("it runs");
    until(&plane, "the renderer decides", "select state from requests", "granted");
    let identity = plane.folder().join("state/identity");
    assert!(!identity.join("enrolment.json").exists(), "it died before it heard of it");

    let again = enrol(&plane).output().expect("it runs");
    assert!(again.status.success(), "{again:?}");
    let counts = "select (select count(*) from hosts) || ' ' || (select count(*) from requests) || ' ' || \
                  (select sum(uses) from enrol_tokens) || ' ' || (select count(*) from certificates)";
    assert_eq!(plane.postgres.sql(counts).trim(), "1 1 1 1", "hosts, requests, uses, certificates");
    let told: Value = serde_json::from_slice(&fs::read(identity.join("enrolment.json")).expect("it is enrolled"))
        .expect("the record is JSON");
    let listed = plane.holdfast(&["get", "hosts", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"));
    assert_eq!(listed["items"][0]["id"], told["host_id"], "{listed}");
    let policy = policy_of(&plane, "late").await;
    let limit = u64::try_from(holdfast_wire::limits::BODY_BYTES_MAX).expect("it fits");
    assert_eq!(policy["body_bytes_max"], limit, "{policy}");
    assert!(policy["body_bytes"].as_u64().is_some_and(|bytes| bytes > 0 && bytes < limit), "{policy}");
    let (status, renewal) = renewed(&plane, &identity).await;
    assert_eq!(status, 200, "{renewal}");
    assert!(!identity.join("pending.json").exists());
}
