//! What polls may cost a gateway, and what they lose: nothing.

use axum::Router;
use axum::routing::get;
use futures_util::StreamExt as _;
use holdfast_events::{Directive, DirectiveKind};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_runtime::accept::serve_http;
use holdfast_session::limits::{FAULTS_MAX, INVENTORIES_AT_ONCE};
use holdfast_wire::message::Delivery;
use holdfast_wire::sync::{SYNC_OUTCOMES_MAX, SYNC_PATH, SyncInventory, SyncOutcome, SyncRequest};

use super::super::limits::{
    OPENING_PAUSE, OPENINGS_BURST, POLL_SILENCE, POLL_TELL, SENDINGS_RECORDED_MAX, SYNC_BYTES_PER_SECOND_MIN,
    SYNC_TAIL_BYTES_MAX,
};
use super::super::polls::{Asked, Polls};
use super::super::recorder::Recorder;
use super::super::sync::{Piece, streamed};
use super::polls::{Poller, bodies, estate_of};
use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_that_travels_for_longer_than_45_s_is_no_silence_and_one_that_nobody_reads_is_let_go() {
    let polls = Polls::new(Recorder::default());
    let key = SigningKey::generate().unwrap().verifying_key();
    let poll = polls.insert(mk_host(1), SessionEpoch::from_raw(1), mk_authority(), key).unwrap();
    let directive = Directive { kind: DirectiveKind::Reconnect, host: mk_host(1) };
    let body: Arc<[u8]> = vec![7; 8 << 20].into();
    let answer = {
        let (poll, body) = (Arc::clone(&poll), Arc::clone(&body));
        async move || streamed(vec![Piece::Body(body)], poll.begin(), poll.asked())
    };
    let router = Router::new().route("/", get(answer));
    let held = Arc::strong_count(&body);
    let serve = |near| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        serve_http(near, address, router.clone(), (), Duration::from_secs(10), std::future::pending())
    };
    let ask = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
    let look = async {
        // 40 kbit/s: for 37 minutes.
        assert!(polls.direct(directive));
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let reading = async {
            far.write_all(ask).await.unwrap();
            let (mut bytes, mut buffer) = (0, vec![0; 5 * 1024]);
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let count = far.read(&mut buffer).await.unwrap();
                assert_eq!(polls.len(), 1, "taken for silent after {bytes} bytes");
                bytes += count;
                if count == 0 {
                    return bytes;
                }
            }
        };
        let ((), bytes) = tokio::join!(serve(near), reading);
        assert!(bytes > body.len() / 3 * 4, "{bytes}");
        assert_eq!(poll.asked().words().count(), 0, "it was answered");

        // Nobody reads: the connection ends, the body is let go, and what was asked stays.
        assert!(polls.direct(directive));
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(ask).await.unwrap();
        let began = tokio::time::Instant::now();
        serve(near).await;
        assert!(began.elapsed() < POLL_SILENCE * 2, "{:?}", began.elapsed());
        assert_eq!(Arc::strong_count(&body), held);
        assert_eq!((polls.len(), poll.asked().words().count()), (1, 1));
        tokio::time::sleep(POLL_SILENCE + Duration::from_secs(2)).await;
        assert_eq!(polls.len(), 0, "away");
    };
    tokio::select! {
        () = polls.clone().run_sweep() => {}
        () = look => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_answer_has_its_time_and_no_more() {
    let polls = Polls::new(Recorder::default());
    let key = SigningKey::generate().unwrap().verifying_key();
    let poll = polls.insert(mk_host(1), SessionEpoch::from_raw(1), mk_authority(), key).unwrap();
    // So long a host that vanished behind a largest answer keeps its session.
    let tail = Duration::from_secs(u64::try_from(SYNC_TAIL_BYTES_MAX).unwrap() / SYNC_BYTES_PER_SECOND_MIN);
    assert!(tail < Duration::from_secs(20 * 60));
    let look = async {
        poll.begin().answered(2 * SYNC_TAIL_BYTES_MAX, &Asked::default());
        tokio::time::sleep(POLL_SILENCE + tail - Duration::from_secs(1)).await;
        assert_eq!(polls.len(), 1, "it may be on its way");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(polls.len(), 0, "away");
    };
    tokio::select! {
        () = polls.clone().run_sweep() => {}
        () = look => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_reads_for_minutes_is_said_to_be_there_and_one_that_only_waits_is_not_said_again() {
    let recorder = Recorder::default();
    let polls = Polls::new(recorder.clone());
    let key = SigningKey::generate().unwrap().verifying_key();
    let poll = polls.insert(mk_host(1), SessionEpoch::from_raw(1), mk_authority(), key).unwrap();
    let look = async {
        let turn = poll.begin();
        tokio::time::sleep(POLL_TELL + Duration::from_secs(2)).await;
        assert_eq!(recorder.count().1, 0, "nothing is read yet");
        turn.is_read();
        tokio::time::sleep(POLL_TELL + Duration::from_secs(2)).await;
        assert_eq!(recorder.count().1, 1, "it reads");
    };
    tokio::select! {
        () = polls.clone().run_sweep() => {}
        () = look => {}
    }
}

#[tokio::test]
async fn an_answer_is_cut_off_when_its_host_asks_something_newer_and_goes_on_while_this_process_leaves() {
    let polls = Polls::new(Recorder::default());
    let key = SigningKey::generate().unwrap().verifying_key();
    let poll = polls.insert(mk_host(1), SessionEpoch::from_raw(1), mk_authority(), key).unwrap();
    let body: Arc<[u8]> = vec![7; 1 << 20].into();
    let answer = || streamed(vec![Piece::Body(Arc::clone(&body))], poll.begin(), poll.asked()).into_body();
    let mut older = answer().into_data_stream();
    assert!(older.next().await.unwrap().is_ok());
    let mut newer = answer().into_data_stream();
    assert!(older.next().await.unwrap().is_err(), "nobody waits for it");
    assert!(newer.next().await.unwrap().is_ok());
    polls.drain(std::iter::once(Duration::ZERO));
    polls.end(&poll, Some(CloseReason::GatewayStopped));
    assert!(newer.next().await.unwrap().is_ok(), "it is read to its end");
}

#[tokio::test]
async fn a_connection_whose_certificate_is_over_is_told_so_while_it_waits_and_whatever_it_asks() {
    let estate = estate_of(Delivery::Poll).await;
    let now = OffsetDateTime::now_utc();
    let life = estate.issue(9).credential.validity().not_after - now;
    let host = estate.issue_at(1, now - life + Duration::from_secs(4));
    estate.memory.enrol(host.id, host.keys.outcome.verifying_key());
    let mut poller = Poller::new(&estate, host);
    poller.poll(0).await;
    let config = tls::agent(&poller.host.credential, &estate.roots, AgentProtocol::Http).unwrap();
    let stream = TcpStream::connect(estate.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let waiting = serde_json::to_string(&poller.request(30_000)).unwrap();
    // One that waits as the time ends, and two that come behind it on the same connection.
    for (path, body) in [(SYNC_PATH, waiting.as_str()), (SYNC_PATH, "{}"), (RENEW_PATH, "{\"csr\":\"\"}")] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await.unwrap();
        let (mut text, mut buffer) = (String::new(), vec![0; 4 * 1024]);
        while !text.ends_with('}') {
            let read = tokio::time::timeout(DEADLINE, stream.read(&mut buffer));
            let count = read.await.expect("before its wait is over").unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        assert!(text.starts_with("HTTP/1.1 401 ") && text.contains("certificate-expired"), "{text}");
    }
    assert_eq!(estate.memory.requests(), 0, "no certificate is asked for with one that is over");
}

#[tokio::test]
async fn what_could_not_be_opened_while_the_database_was_away_is_no_opening_of_the_host() {
    let estate = estate_of(Delivery::Poll).await;
    let poller = Poller::new(&estate, estate.enrol(1));
    estate.memory.set_away(true);
    for _ in 0..OPENINGS_BURST + 2 {
        assert_eq!(poller.ask(&SyncRequest::default()).await.unwrap_err().code, "authority-away");
    }
}

#[tokio::test]
async fn a_host_whose_polls_make_more_than_64_faults_loses_its_session_as_one_with_a_connection_does() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    let lie = SyncOutcome { update_seq: UpdateSeq::from_raw(999), ..poller.outcome(&first.states[0]) };
    let lies = SyncRequest { outcomes: vec![lie; SYNC_OUTCOMES_MAX], ..poller.request(0) };
    for _ in 0..FAULTS_MAX / SYNC_OUTCOMES_MAX {
        assert_eq!(poller.ask(&lies).await.unwrap().faults.len(), SYNC_OUTCOMES_MAX);
    }
    let refused = poller.ask(&lies).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "too-many-faults"));
    assert_eq!(poller.ask(&lies).await.unwrap_err().code, "session-over");
    let closed = |seen: &Seen| *seen == Seen::Closed(CloseReason::ProtocolFault);
    let facts = estate.facts_until(|facts| count(facts, closed) == 1).await;
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::Fault { .. })), FAULTS_MAX + 1);
}

#[tokio::test]
async fn addresses_that_come_with_every_poll_are_recorded_when_they_are_others_and_some_times_at_once() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    poller.poll(0).await;
    for last in [1, 1, 2, 2, 1, 2, 1, 2, 1] {
        let inventory = SyncInventory { addresses: vec![[10, 0, 0, last].into()], ..SyncInventory::default() };
        poller.ask(&SyncRequest { inventory: Some(inventory), ..poller.request(0) }).await.unwrap();
    }
    // An outcome comes behind them.
    let lie = SyncOutcome { update_seq: UpdateSeq::from_raw(999), ..mk_lie() };
    poller.ask(&SyncRequest { outcomes: vec![lie], ..poller.request(0) }).await.unwrap();
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Fault { .. })) == 1).await;
    let recorded = u32::try_from(count(&facts, |seen| matches!(seen, Seen::Addresses(_)))).unwrap();
    assert_eq!(recorded, INVENTORIES_AT_ONCE, "the others are said again by the polls that follow");
}

#[tokio::test]
async fn a_host_that_has_the_same_state_sent_over_and_over_gets_it_and_writes_no_event_each_time() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    for _ in 0..2 * SENDINGS_RECORDED_MAX {
        poller.seen.clear();
        assert_eq!(bodies(&poller.poll(0).await), 4);
    }
    // For an operator it is recorded once more, and so is what is new; what is behind them is recorded after them.
    assert!(estate.door.direct(Directive { kind: DirectiveKind::ResendSnapshot, host: poller.host.id }));
    assert_eq!(bodies(&poller.poll(30_000).await), 4);
    estate.memory.publish(poller.host.id, &mk_body(0..3));
    assert_eq!(bodies(&poller.poll(30_000).await), 1);
    poller.ask(&SyncRequest { outcomes: vec![mk_lie()], ..poller.request(0) }).await.unwrap();
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Fault { .. })) == 1).await;
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::SnapshotSent { .. })), 4 * SENDINGS_RECORDED_MAX + 4 + 1);
}

#[tokio::test]
async fn a_host_that_begins_session_after_session_by_polls_is_told_to_wait_and_its_last_one_goes_on() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    for _ in 0..OPENINGS_BURST {
        poller.session_epoch = None;
        let answer = poller.ask(&poller.request(0)).await.unwrap();
        poller.session_epoch = Some(answer.session_epoch);
    }
    let url = format!("https://{}{SYNC_PATH}", estate.address);
    let refused = poller.client.request(Request::new(Method::POST, url).body("{}")).await.unwrap();
    let problem: Problem = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((problem.status, problem.code.as_str()), (429, "overloaded"));
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=OPENING_PAUSE.as_secs() + 1).contains(&wait), "{wait}");
    assert!(poller.ask(&poller.request(0)).await.is_ok(), "the last one goes on");
    // Another host, and a session with a connection, are not in question.
    assert!(Poller::new(&estate, estate.enrol(2)).ask(&SyncRequest::default()).await.is_ok());
    assert_eq!(estate.connect(poller.host.clone()).await.closed_quietly().await, CloseCause::Polls);
}

#[tokio::test]
async fn a_gateway_that_goes_away_ends_each_poll_that_waits_at_its_own_moment() {
    let pace = Pace { drain_spread: Duration::from_millis(1_200), ..Pace::default() };
    let estate = Estate::start_at(pace, Hooks::default(), |session| session.delivery = Delivery::Poll).await;
    let mut waits = JoinSet::new();
    for n in 1..=4 {
        let mut poller = Poller::new(&estate, estate.enrol(n));
        let (host, first) = (poller.host.id, poller.poll(0).await);
        poller.say_applied(&first).await;
        let reads = estate.memory.reads_of(host);
        waits.spawn(async move {
            let refused = poller.ask(&poller.request(30_000)).await.unwrap_err();
            (refused.status, refused.code, tokio::time::Instant::now())
        });
        let looked = async {
            while estate.memory.reads_of(host) == reads {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, looked).await.expect("it waits");
    }
    let began = tokio::time::Instant::now();
    estate.tasks.shutdown().ask();
    let mut ends = waits.join_all().await;
    ends.sort_unstable_by_key(|(.., at)| *at);
    assert!(ends.iter().all(|(status, code, _)| (*status, code.as_str()) == (503, "draining")), "{ends:?}");
    // At 0, 300, 600 and 900 ms.
    for (nth, (.., at)) in (0..).zip(&ends) {
        let after = at.duration_since(began);
        assert!(after >= Duration::from_millis(300 * nth), "{nth} after {after:?}");
    }
    assert_eq!(estate.door.polls(), 0);
}

#[tokio::test]
async fn what_is_asked_of_a_host_stays_asked_until_it_was_answered_however_a_read_fails() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(30_000).await;
    poller.say_applied(&first).await;
    let direct = |kind| assert!(estate.door.direct(Directive { kind, host: poller.host.id }));
    estate.memory.set_away(true);
    direct(DirectiveKind::ResendSnapshot);
    let answer = poller.ask(&poller.request(0)).await.unwrap();
    assert_eq!((answer.states.len(), answer.unread), (0, true), "it cannot be read");
    direct(DirectiveKind::Reconnect);
    let answer = poller.ask(&poller.request(30_000)).await.unwrap();
    assert_eq!((answer.states.len(), answer.directives), (0, vec!["reconnect".to_owned()]));
    estate.memory.set_away(false);
    let answer = poller.poll(30_000).await;
    assert_eq!((bodies(&answer), answer.directives.len()), (4, 0));
    // And no more.
    let answer = poller.poll(0).await;
    assert_eq!((answer.states.len(), answer.unread), (0, false));
}

#[tokio::test]
async fn an_outcome_that_found_no_room_counts_when_it_comes_again() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    let sent = |seen: &Seen| matches!(seen, Seen::SnapshotSent { .. });
    estate.facts_until(|facts| count(facts, sent) == 4).await;
    // The recorder holds a batch that it cannot write, and behind that there is no room.
    let seen = Seen::Fault { fault: holdfast_events::Fault::Malformed, component: None, update_seq: None };
    let filler = Fact { host: mk_host(99), session_epoch: SessionEpoch::from_raw(1), seen };
    estate.memory.set_away(true);
    estate.door.recorder().put(filler.clone()).unwrap();
    let taken = async {
        while estate.door.recorder().count().0 > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, taken).await.expect("a batch is under way");
    estate.door.recorder().fill(&filler);
    let request = SyncRequest { outcomes: vec![poller.outcome(&first.states[0])], ..poller.request(0) };
    let refused = poller.ask(&request).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (503, "authority-away"));
    estate.memory.set_away(false);
    let again = async {
        loop {
            match poller.ask(&request).await {
                Ok(answer) => return answer,
                Err(refused) => assert_eq!(refused.code, "authority-away"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answer = tokio::time::timeout(DEADLINE, again).await.expect("there is room again");
    assert_eq!(answer.faults, [], "it counts");
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 1).await;
}

#[tokio::test]
async fn a_request_that_is_no_object_or_too_large_is_refused_in_words_that_are_read() {
    let estate = estate_of(Delivery::Poll).await;
    let poller = Poller::new(&estate, estate.enrol(1));
    let long = SyncRequest { agent_version: "v".repeat(65), ..SyncRequest::default() };
    for (body, status, code) in [
        (b"[]".to_vec(), 400, "malformed"),
        (b" \n[1, \"0.1\"]".to_vec(), 400, "malformed"),
        (serde_json::to_vec(&long).unwrap(), 422, "bad-field"),
    ] {
        let url = format!("https://{}{SYNC_PATH}", estate.address);
        let answer = poller.client.request(Request::new(Method::POST, url).body(body)).await.unwrap();
        let problem: Problem = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status.as_u16(), problem.code.as_str()), (status, code), "{problem:?}");
    }
    // One that sends all of it before it reads, as many do.
    let config = tls::agent(&poller.host.credential, &estate.roots, AgentProtocol::Http).unwrap();
    let stream = TcpStream::connect(estate.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let head =
        format!("POST {SYNC_PATH} HTTP/1.1\r\nhost: here\r\ncontent-length: 2000000\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..20 {
        stream.write_all(&[b' '; 100_000]).await.unwrap();
        stream.flush().await.unwrap();
        // The gateway answers, and hangs up if it does, before all of it is sent.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body-too-large"), "{answer}");
    assert_eq!(estate.door.polls(), 0, "and begins nothing");
}

/// An outcome that nobody signed.
fn mk_lie() -> SyncOutcome {
    let stamp = Stamp { version: Version::FIRST, digest: Component::Policy.empty_digest() };
    SyncOutcome {
        update_seq: UpdateSeq::ZERO,
        component: Component::Policy,
        kind: "applied".to_owned(),
        wanted: stamp,
        applied: Some(stamp),
        conditions: Vec::new(),
        signature: String::new(),
    }
}
