//! A host that polls a real gateway in poll mode: by the words of the documentation, by requests of its own, and by nothing that pushes.

use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::artifact;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::enrol::Problem;
use holdfast_wire::limits::NUMBER_MAX;
use holdfast_wire::message::{Delivery, Message};
use holdfast_wire::sync::{SYNC_PATH, SeenState, SyncAnswer, SyncOutcome, SyncRequest};
use hyper::Method;

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::{Peer, host_view};
use crate::versions::{apply_policy, until_synced};

const DEADLINE: Duration = Duration::from_secs(40);

/// What a host that polls keeps of its session.
struct Poller<'a> {
    plane: &'a ControlPlane,
    peer: &'a mut Peer,
    next: SyncRequest,
}

impl Poller<'_> {
    async fn ask(&self, request: &SyncRequest) -> SyncAnswer {
        self.try_ask(request).await.unwrap_or_else(|problem| panic!("{problem:?}"))
    }

    async fn try_ask(&self, request: &SyncRequest) -> Result<SyncAnswer, Problem> {
        let url = format!("https://{}{SYNC_PATH}", self.plane.agents_door());
        let body = serde_json::to_vec(request).expect("JSON");
        let request = Request::new(Method::POST, url).timeout(DEADLINE).body(body);
        let client = Client::new(self.peer.tls(AgentProtocol::Http));
        let response = client.request(request).await.expect("the door answers");
        let text = String::from_utf8_lossy(&response.body);
        if response.status.is_success() {
            return Ok(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")));
        }
        Err(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// Checks what came and says that it is in force; how many bodies came.
    async fn take(&mut self, answer: &SyncAnswer) -> usize {
        assert_eq!((answer.host_id, answer.delivery), (self.peer.host, Delivery::Poll));
        assert_eq!((answer.authority_id, answer.authority_epoch), (self.peer.authority.id, self.peer.authority.epoch));
        let mut outcomes = Vec::new();
        for state in &answer.states {
            let signature = STANDARD.decode(&state.signature).expect("base64").try_into().expect("64 bytes");
            self.peer.assert_genuine(state.component, state.stamp, &signature);
            let Some(update_seq) = state.update_seq else { continue };
            if let Some(body) = state.body.as_ref().filter(|_| state.component == Component::Policy) {
                let body = artifact::decode(&STANDARD.decode(body).expect("base64")).expect("a policy");
                assert_eq!(body.digest(), state.stamp.digest, "the body is the one that was signed");
            }
            let report = self.peer.applied(answer.session_epoch, update_seq, state.component, state.stamp);
            outcomes.push(SyncOutcome {
                update_seq,
                component: state.component,
                kind: report.kind.word().to_owned(),
                wanted: report.wanted,
                applied: report.applied,
                conditions: report.conditions,
                signature: STANDARD.encode(report.signature),
            });
            self.next.last_update_seq = update_seq;
            self.next.seen.retain(|seen| seen.component != state.component);
            self.next.seen.push(SeenState { component: state.component, stamp: state.stamp, applied: true });
        }
        self.next.session_epoch = Some(answer.session_epoch);
        let said = self.ask(&SyncRequest { outcomes, wait_ms: Some(0), ..self.next.clone() }).await;
        assert_eq!((said.faults.len(), said.states.len()), (0, 0), "{said:?}");
        answer.states.iter().filter(|state| state.body.is_some()).count()
    }
}

/// The example of the page, as it stands there.
fn documented() -> String {
    let page = include_str!("../../../docs/poll.md");
    let start = page.find("```sh\ncurl").expect("the page has an example") + "```sh\n".len();
    page[start..].split("```").next().expect("it ends").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g01_a_host_polls_by_the_documented_command_takes_changes_as_they_come_and_is_proven_by_its_outcomes() {
    install_crypto_provider();
    let mut plane = ControlPlane::start_with(&[("HOLDFAST_DELIVERY_MODE", "poll".to_owned())]).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let mut peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let identity = plane.folder().join("identity");
    std::fs::create_dir(&identity).expect("the folder is ours");
    peer.credential.save(&identity, "host").expect("the folder is ours");
    std::fs::copy(plane.keys("public").join("ca.pem"), identity.join("ca.pem")).expect("init made it");

    // The command of the page, to the letter.
    let mut command = Command::new("bash");
    command.args(["-c", &documented()]).env("IDENTITY", &identity);
    let said = command.env("GATEWAY", plane.agents_door().to_string()).output().expect("bash is there");
    assert!(said.status.success(), "{said:?}");
    let first: SyncAnswer = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!(first.states.len(), 4, "every component");
    let mut poller = Poller { plane: &plane, peer: &mut peer, next: SyncRequest::default() };
    assert_eq!(poller.take(&first).await, 4, "each with its body");
    until_synced(&plane, "web", first.states[0].stamp.version.raw());
    assert!(host_view(&plane, "web")["last_snapshot_sent_at"].is_string());

    // One that waits hears of a change as it comes.
    let waiting = poller.next.clone();
    let began = Instant::now();
    let (answer, ()) = tokio::join!(poller.ask(&waiting), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| apply_policy(&plane, "{cidr: 198.51.100.0/24}"));
    });
    assert!(began.elapsed() < Duration::from_secs(20), "before the wait is over: {:?}", began.elapsed());
    assert_eq!(poller.take(&answer).await, 1, "what did not change has no body");
    until_synced(&plane, "web", answer.states[0].stamp.version.raw());
    assert_eq!(poller.next.last_update_seq, UpdateSeq::from_raw(5));

    // Both changes are at their end, by its word, and are counted.
    plane.until_counted("holdfast_gateway_operations_ended_total", &[], 2);
    assert!(plane.counted("holdfast_gateway_operations_ended_total", &[("state", "applied")]) > 0);
    assert_eq!(plane.counted("holdfast_gateway_operation_seconds_count", &[]), 2);
    plane.until_counted("holdfast_gateway_operations_open", &[], 0);
    // And nothing of push was awake in all of this.
    assert_push_sleeps(&plane);
    assert!(plane.counted("holdfast_gateway_syncs_total", &[]) > 0);
    plane.assert_runs();
}

fn assert_push_sleeps(plane: &ControlPlane) {
    let awake = ["sessions", "updates_total", "builds_total"]
        .map(|name| plane.counted(&format!("holdfast_gateway_{name}"), &[]));
    assert_eq!(awake, [0; 3], "{}", plane.gateway_metrics());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c31_what_cannot_be_served_where_hosts_poll_is_refused_in_words_counted_by_name_and_left_alone() {
    install_crypto_provider();
    let mut plane = ControlPlane::start_with(&[("HOLDFAST_DELIVERY_MODE", "poll".to_owned())]).await;
    let mut peer = Peer::enrol(&plane, "web", "10.0.0.1").await;

    // An agent that can only be pushed to is told so, each time that it comes, and a change is no reason to try it.
    for _ in 0..2 {
        let mut old = FirstAgent::dial(plane.agents_door(), &peer).await;
        let said = old.hear().await;
        let Message::Refusal(refusal) = &said else { panic!("{said:?}") };
        assert_eq!(refusal.code, RefusalCode::NoCommonProtocol);
        assert!(refusal.detail.contains("delivers by poll"), "{refusal:?}");
    }
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let refused = "holdfast_gateway_sessions_refused_total";
    assert_eq!(plane.counted(refused, &[("by", "gateway"), ("code", "no_common_protocol")]), 2);
    assert_push_sleeps(&plane);

    // A number of no session, and an outcome of what was never answered: the first is refused, the second a fault.
    let mut poller = Poller { plane: &plane, peer: &mut peer, next: SyncRequest::default() };
    let foreign = SyncRequest { session_epoch: Some(SessionEpoch::from_raw(99)), ..SyncRequest::default() };
    assert_eq!(poller.try_ask(&foreign).await.expect_err("there is no such session").code, "session-over");
    let first = poller.ask(&SyncRequest::default()).await;
    poller.take(&first).await;
    let state = &first.states[0];
    let report = poller.peer.applied(first.session_epoch, UpdateSeq::from_raw(77), state.component, state.stamp);
    let unsent = SyncOutcome {
        update_seq: report.update_seq,
        component: report.component,
        kind: report.kind.word().to_owned(),
        wanted: report.wanted,
        applied: report.applied,
        conditions: report.conditions,
        signature: STANDARD.encode(report.signature),
    };
    let said = poller.ask(&SyncRequest { outcomes: vec![unsent], wait_ms: Some(0), ..poller.next.clone() }).await;
    assert_eq!(said.faults.len(), 1, "{said:?}");
    assert_eq!(plane.counted("holdfast_gateway_calls_refused_total", &[("code", "session-over")]), 1);
    assert_eq!(plane.counted("holdfast_gateway_calls_refused_total", &[]), 1);
    assert_eq!(plane.counted("holdfast_gateway_faults_total", &[("kind", "outcome_unmatched"), ("by", "gateway")]), 1);
    assert_eq!((plane.counted("holdfast_gateway_faults_total", &[]), plane.counted(refused, &[])), (1, 2));
    plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_waits_over_a_bump_of_the_authority_is_told_at_once_and_gets_what_is_signed_in_the_new_life() {
    install_crypto_provider();
    let settings = [("HOLDFAST_DELIVERY_MODE", "poll"), ("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1s")];
    let mut plane = ControlPlane::start_with(&settings.map(|(name, value)| (name, value.to_owned()))).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let mut peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let mut poller = Poller { plane: &plane, peer: &mut peer, next: SyncRequest::default() };
    let first = poller.ask(&SyncRequest::default()).await;
    poller.take(&first).await;
    let waiting = poller.next.clone();
    let began = Instant::now();
    let (told, ()) = tokio::join!(poller.try_ask(&waiting), async {
        tokio::task::block_in_place(|| {
            let bumped = plane.holdfast(&["authority", "bump", "--because", "a-test"]);
            assert!(bumped.status.success(), "{bumped:?}");
        });
    });
    let problem = told.expect_err("the session is of an earlier life");
    // Whether the request was there before the session ended or came behind it.
    assert!(
        (problem.status, ["begin-anew", "session-over"].contains(&problem.code.as_str())) == (409, true),
        "{problem:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(20), "before the wait is over: {:?}", began.elapsed());

    // It begins anew, and what it gets is signed in the new life.
    poller.peer.authority.epoch = poller.peer.authority.epoch.next().expect("there is one");
    poller.next = SyncRequest::default();
    let (again, version) = loop {
        let answer = poller.ask(&poller.next.clone()).await;
        poller.next.session_epoch = Some(answer.session_epoch);
        if let Some(policy) = answer.states.iter().find(|state| state.component == Component::Policy) {
            break (answer.clone(), policy.stamp.version);
        }
    };
    assert!(again.session_epoch > first.session_epoch);
    poller.take(&again).await;
    until_synced(&plane, "web", version.raw());
    plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_a_number_that_no_column_holds_keeps_nothing_of_another_from_being_recorded() {
    install_crypto_provider();
    let mut plane = ControlPlane::start_with(&[("HOLDFAST_DELIVERY_MODE", "poll".to_owned())]).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let mut liar = Peer::enrol(&plane, "liar", "10.0.0.2").await;
    let mut peer = Peer::enrol(&plane, "web", "10.0.0.1").await;
    let liar = Poller { plane: &plane, peer: &mut liar, next: SyncRequest::default() };
    let mut poller = Poller { plane: &plane, peer: &mut peer, next: SyncRequest::default() };
    let first = poller.ask(&SyncRequest::default()).await;

    // What it is answered would have numbers after this one; what it holds would have this version.
    let numbered = SyncRequest { last_update_seq: UpdateSeq::from_raw(NUMBER_MAX), ..SyncRequest::default() };
    let version = Version::from_raw(NUMBER_MAX + 1).expect("not zero");
    let stamp = Stamp { version, digest: Component::Policy.empty_digest() };
    let seen = vec![SeenState { component: Component::Policy, stamp, applied: true }];
    for request in [numbered, SyncRequest { seen, ..SyncRequest::default() }] {
        let refused = liar.try_ask(&request).await.expect_err("it is refused by itself");
        assert_eq!((refused.status, refused.code.as_str()), (422, "bad-field"), "{refused:?}");
    }
    let answer = liar.ask(&SyncRequest::default()).await;
    let state = &answer.states[0];
    let update_seq = state.update_seq.expect("it is news");
    let report = liar.peer.applied(answer.session_epoch, update_seq, state.component, state.stamp);
    let outcome = SyncOutcome {
        update_seq,
        component: state.component,
        kind: OutcomeKind::Failed.word().to_owned(),
        wanted: report.wanted,
        applied: Some(stamp),
        conditions: report.conditions,
        signature: STANDARD.encode(report.signature),
    };
    let session_epoch = Some(answer.session_epoch);
    let said = SyncRequest { session_epoch, outcomes: vec![outcome], ..SyncRequest::default() };
    assert_eq!(liar.try_ask(&said).await.expect_err("nor is this taken").code, "bad-field");

    poller.take(&first).await;
    until_synced(&plane, "web", first.states[0].stamp.version.raw());
    plane.assert_runs();
}
