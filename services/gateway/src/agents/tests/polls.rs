//! Hosts that poll, at the real door over memory.

use std::collections::BTreeMap;

use holdfast_events::{Directive, DirectiveKind};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq};
use holdfast_model::statement::{Outcome, desired_bytes, outcome_bytes};
use holdfast_wire::message::Delivery;
use holdfast_wire::sync::{SYNC_PATH, SeenState, SyncAnswer, SyncOutcome, SyncRequest, SyncState};

use super::super::limits::POLL_SILENCE;
use super::super::polls::{Asked, Ending, Polls, Standing};
use super::super::recorder::Recorder;
use super::*;

/// A host that polls as it likes.
pub(super) struct Poller {
    pub(super) host: Host,
    pub(super) client: Client,
    address: SocketAddr,
    pub(super) session_epoch: Option<SessionEpoch>,
    last: UpdateSeq,
    pub(super) seen: BTreeMap<Component, SeenState>,
}

impl Poller {
    pub(super) fn new(estate: &Estate, host: Host) -> Self {
        let config = tls::agent(&host.credential, &estate.roots, AgentProtocol::Http).unwrap();
        let (client, address) = (Client::new(config), estate.address);
        Self { host, client, address, session_epoch: None, last: UpdateSeq::ZERO, seen: BTreeMap::new() }
    }

    pub(super) async fn ask(&self, request: &SyncRequest) -> Result<SyncAnswer, Problem> {
        let url = format!("https://{}{SYNC_PATH}", self.address);
        let asked = Request::new(Method::POST, url).body(serde_json::to_vec(request).unwrap());
        let response = self.client.request(asked.timeout(DEADLINE)).await.unwrap();
        if response.status.is_success() {
            return Ok(serde_json::from_slice(&response.body).unwrap());
        }
        Err(serde_json::from_slice(&response.body).unwrap())
    }

    pub(super) fn request(&self, wait_ms: u32) -> SyncRequest {
        SyncRequest {
            session_epoch: self.session_epoch,
            last_update_seq: self.last,
            seen: self.seen.values().copied().collect(),
            wait_ms: Some(wait_ms),
            ..SyncRequest::default()
        }
    }

    /// Polls once and takes what comes.
    pub(super) async fn poll(&mut self, wait_ms: u32) -> SyncAnswer {
        let answer = self.ask(&self.request(wait_ms)).await.unwrap();
        self.take(&answer);
        answer
    }

    fn take(&mut self, answer: &SyncAnswer) {
        assert_eq!(answer.host_id, self.host.id);
        self.session_epoch = Some(answer.session_epoch);
        for state in &answer.states {
            let desired =
                holdfast_model::desired::Desired { host: self.host.id, component: state.component, stamp: state.stamp };
            let statement = desired_bytes(mk_authority(), &desired);
            assert!(self.host.keys.is_genuine(&statement, &unbase64(&state.signature).try_into().unwrap()));
            let Some(update_seq) = state.update_seq else { continue };
            assert_eq!(Some(update_seq), self.last.next(), "numbers follow each other");
            self.last = update_seq;
            if let Some(body) = state.body.as_ref().filter(|_| state.component == Component::Policy) {
                let body = holdfast_model::artifact::decode(&unbase64(body)).unwrap();
                assert_eq!(body.digest(), state.stamp.digest, "the body is the one that was signed");
            }
            let seen = SeenState { component: state.component, stamp: state.stamp, applied: false };
            self.seen.insert(state.component, seen);
        }
    }

    pub(super) fn outcome(&self, state: &SyncState) -> SyncOutcome {
        let condition = |kind| Condition {
            kind,
            status: Holds::True,
            reason: Reason::Done,
            message: String::new(),
            observed_version: Some(state.stamp.version),
        };
        let conditions: Vec<Condition> = ConditionType::OF_ATTEMPT.into_iter().map(condition).collect();
        let (update_seq, session_epoch) = (state.update_seq.unwrap(), self.session_epoch.unwrap());
        let outcome = Outcome {
            host: self.host.id,
            session_epoch,
            update_seq,
            component: state.component,
            kind: OutcomeKind::Applied,
            wanted: state.stamp,
            applied: Some(state.stamp),
        };
        let signature = self.host.keys.sign(&outcome_bytes(mk_authority(), &outcome, &conditions));
        SyncOutcome {
            update_seq,
            component: state.component,
            kind: "applied".to_owned(),
            wanted: state.stamp,
            applied: Some(state.stamp),
            conditions,
            signature: base64(&signature),
        }
    }

    /// Says that what came is in force.
    pub(super) async fn say_applied(&mut self, answer: &SyncAnswer) -> SyncAnswer {
        let states: Vec<&SyncState> = answer.states.iter().filter(|state| state.update_seq.is_some()).collect();
        for state in &states {
            self.seen.get_mut(&state.component).unwrap().applied = true;
        }
        let outcomes = states.into_iter().map(|state| self.outcome(state)).collect();
        self.ask(&SyncRequest { outcomes, ..self.request(0) }).await.unwrap()
    }
}

fn unbase64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

pub(super) async fn estate_of(delivery: Delivery) -> Estate {
    Estate::start_as(Hooks::default(), |session| session.delivery = delivery).await
}

pub(super) fn bodies(answer: &SyncAnswer) -> usize {
    answer.states.iter().filter(|state| state.body.is_some()).count()
}

#[tokio::test]
async fn a_poll_answers_the_whole_state_at_once_then_waits_and_answers_as_soon_as_something_changes() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    estate.memory.publish(poller.host.id, &mk_body(0..500));
    let first = poller.poll(30_000).await;
    assert_eq!((first.delivery, first.states.len(), bodies(&first)), (Delivery::Poll, 4, 4));
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::SnapshotSent { .. })) == 4).await;
    // Said at once, whatever the wait: nothing is desired that was not seen.
    let said = poller.say_applied(&first).await;
    assert_eq!((said.states.len(), said.faults.len()), (0, 0), "{said:?}");
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4).await;
    assert!(facts.iter().all(|fact| Some(fact.session_epoch) == poller.session_epoch), "one session");

    // Nothing changes: the wait is over at its end and not before.
    let began = tokio::time::Instant::now();
    assert_eq!(poller.poll(400).await.states, []);
    assert!((Duration::from_millis(400)..Duration::from_secs(5)).contains(&began.elapsed()));
    // Something changes: at once, and only what changed has a body.
    let began = tokio::time::Instant::now();
    let waiting = poller.request(30_000);
    let (answer, stamp) = tokio::join!(poller.ask(&waiting), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let stamp = estate.memory.publish(poller.host.id, &mk_body(0..501));
        estate.hint(poller.host.id, stamp.version).await;
        stamp
    });
    let answer = answer.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!((answer.states.len(), bodies(&answer), answer.states[0].stamp), (4, 1, stamp));
    poller.take(&answer);
    poller.say_applied(&answer).await;
    // The same content under a newer version needs no body once it is in force.
    let again = estate.memory.publish_again(poller.host.id, stamp.digest);
    let answer = poller.poll(30_000).await;
    assert_eq!((answer.states[0].stamp, bodies(&answer)), (again, 0));
    assert!(answer.states[0].update_seq.is_some());
    estate.tasks.shutdown().ask();
}

#[tokio::test]
async fn g02_poll_mode_leaves_push_dormant_whatever_is_published_and_a_session_is_answered_and_handed_over() {
    let estate = estate_of(Delivery::Poll).await;
    let host = estate.enrol(1);
    let mut agent = estate.connect(host.clone()).await;
    assert_eq!(agent.closed_quietly().await, CloseCause::Polls);
    assert_eq!(agent.taken.len(), 0, "nothing was pushed");
    assert_eq!((estate.door.sessions(), estate.door.polls()), (0, 1), "it goes on by polls");
    // At each reach: one host, a namespace's worth, all, and a doubt about everything.
    for of in [1, 30, 1_000, 100_000] {
        let stamp = estate.memory.publish(host.id, &mk_body(0..of));
        estate.hint_of(host.id, stamp.version, Some(u64::from(of))).await;
    }
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    let compared = async {
        while estate.memory.compares() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, compared).await.expect("it compares");
    assert_eq!(estate.door.builds(), (0, 0), "the scheduler has nothing to do");
    assert_eq!(estate.memory.reads_of(host.id), 0, "and nothing is read for whom nobody asked");
    let facts = estate.memory.facts();
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::SnapshotSent { .. } | Seen::Closed(_))), 0, "{facts:?}");
    // The first poll goes on with the session of the answer.
    let mut poller = Poller::new(&estate, host);
    poller.session_epoch = Some(facts[0].session_epoch);
    let answer = poller.poll(30_000).await;
    assert_eq!((Some(answer.session_epoch), bodies(&answer)), (Some(facts[0].session_epoch), 4));
    assert_eq!((estate.door.sessions(), estate.door.polls()), (0, 1));
}

#[tokio::test]
async fn an_outcome_by_poll_counts_by_the_rules_of_a_session_and_any_other_is_a_fault() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    let good = poller.outcome(&first.states[0]);
    let other = poller.outcome(&first.states[1]);
    let cases = [
        (
            "outcome_unmatched",
            Fault::UnknownUpdate,
            SyncOutcome { update_seq: UpdateSeq::from_raw(999), ..good.clone() },
        ),
        ("outcome_mismatch", Fault::OutcomeMismatch, SyncOutcome { component: other.component, ..good.clone() }),
        ("outcome_mismatch", Fault::OutcomeMismatch, SyncOutcome { wanted: other.wanted, ..good.clone() }),
        ("outcome_contradiction", Fault::OutcomeContradiction, SyncOutcome { applied: None, ..good.clone() }),
        ("bad_signature", Fault::BadSignature, SyncOutcome { signature: other.signature.clone(), ..good.clone() }),
        ("bad_signature", Fault::BadSignature, SyncOutcome { conditions: Vec::new(), ..good.clone() }),
        ("bad_signature", Fault::BadSignature, SyncOutcome { signature: "!".to_owned(), ..good.clone() }),
    ];
    for (nth, (code, word, outcome)) in cases.into_iter().enumerate() {
        let answer = poller.ask(&SyncRequest { outcomes: vec![outcome], ..poller.request(0) }).await.unwrap();
        let codes: Vec<&str> = answer.faults.iter().map(|fault| fault.code.as_str()).collect();
        assert_eq!(codes, [code]);
        let faults = |facts: &[Fact]| count(facts, |seen| matches!(seen, Seen::Fault { .. }));
        let facts = estate.facts_until(|facts| faults(facts) == nth + 1).await;
        let last = facts.iter().rev().find(|fact| matches!(fact.seen, Seen::Fault { .. }));
        assert!(matches!(&last.unwrap().seen, Seen::Fault { fault, .. } if *fault == word), "{code}: {last:?}");
    }
    assert_eq!(count(&estate.memory.facts(), |seen| matches!(seen, Seen::Outcome(_))), 0);
    // And the true one counts after all of them, once: said again, since an answer may be lost, it is no fault; another word for it is.
    for (faults, outcome) in
        [(0, good.clone()), (0, good.clone()), (1, SyncOutcome { signature: other.signature, ..good })]
    {
        let request = SyncRequest { outcomes: vec![outcome], ..poller.request(0) };
        assert_eq!(poller.ask(&request).await.unwrap().faults.len(), faults);
    }
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 1).await;
}

#[tokio::test]
async fn of_a_session_and_polls_of_one_host_the_newer_stays_and_a_gateway_that_pushes_answers_polls_too() {
    let estate = estate_of(Delivery::Push).await;
    let host = estate.enrol(1);
    let mut poller = Poller::new(&estate, host.clone());
    let first = poller.poll(30_000).await;
    assert_eq!((first.delivery, bodies(&first)), (Delivery::Push, 4), "an agent is told to dial");
    let waiting = poller.request(30_000);
    let (over, mut agent) = tokio::join!(poller.ask(&waiting), async {
        let mut agent = estate.connect(host.clone()).await;
        agent.converge(4).await;
        agent
    });
    assert_eq!(over.unwrap_err().code, "session-over");
    assert_eq!((estate.door.sessions(), estate.door.polls()), (1, 0));
    assert_eq!(poller.ask(&poller.request(0)).await.unwrap_err().code, "session-over");
    let mut newer = Poller::new(&estate, host);
    newer.poll(0).await;
    let ended = agent.closed_quietly().await;
    assert!(matches!(ended, CloseCause::Theirs { code: RefusalCode::Superseded, .. }), "{ended:?}");
    // Nobody who is not enrolled.
    let stranger = estate.issue(2);
    let nobody = Poller::new(&estate, stranger);
    assert_eq!(nobody.ask(&SyncRequest::default()).await.unwrap_err().code, "host-unknown");
}

#[tokio::test]
async fn what_is_asked_of_a_host_that_polls_comes_with_an_answer_at_once() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(30_000).await;
    poller.say_applied(&first).await;
    for (kind, states, words) in [
        (DirectiveKind::ResendSnapshot, 4, vec![]),
        (DirectiveKind::Reconnect, 0, vec!["reconnect".to_owned()]),
        (DirectiveKind::Reenrol, 0, vec!["re-enrol".to_owned()]),
    ] {
        assert!(estate.door.direct(Directive { kind, host: poller.host.id }));
        let answer = poller.poll(30_000).await;
        assert_eq!((bodies(&answer), &answer.directives), (states, &words), "{kind}");
    }
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::SnapshotSent { .. })) == 8).await;
}

#[tokio::test]
async fn an_answer_is_bounded_in_bytes_and_a_body_that_does_not_travel_is_told_and_costs_no_loop() {
    let small = |session: &mut SessionConfig| {
        session.delivery = Delivery::Poll;
        session.limits.body_bytes_max = 20_000;
        session.limits.bytes_in_flight_max = 10_000;
    };
    let (_counting, counted) = counters();
    let estate = Estate::start_as(Hooks::default(), small).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    // As many as fit together, the first whatever its size; the rest with the next.
    estate.memory.publish(poller.host.id, &mk_body(0..2_000));
    let whole = holdfast_model::artifact::encode(&mk_body(0..2_000)).len();
    assert!((10_001..20_000).contains(&whole), "{whole}");
    let first = poller.poll(30_000).await;
    assert_eq!((bodies(&first), first.states[0].body.is_some()), (1, true));
    let rest = poller.poll(30_000).await;
    assert_eq!((bodies(&rest), rest.states[0].update_seq), (3, None));

    let stamp = estate.memory.publish(poller.host.id, &mk_body(0..9_000));
    let told = poller.poll(30_000).await;
    let bytes = u64::try_from(holdfast_model::artifact::encode(&mk_body(0..9_000)).len()).unwrap();
    assert_eq!((told.states[0].stamp, told.states[0].too_large_bytes), (stamp, Some(bytes)));
    assert_eq!((bodies(&told), told.states[0].update_seq), (0, None));
    let began = tokio::time::Instant::now();
    assert_eq!(poller.poll(300).await.states, [], "it was told");
    assert!(began.elapsed() >= Duration::from_millis(300));

    let many = vec![SyncOutcome { ..poller.outcome(&rest.states[1]) }; 9];
    let refused = poller.ask(&SyncRequest { outcomes: many, ..poller.request(0) }).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (422, "bad-field"));
    let url = format!("https://{}{SYNC_PATH}", estate.address);
    let huge = Request::new(Method::POST, url).body(vec![b' '; holdfast_wire::sync::SYNC_REQUEST_BYTES_MAX + 1]);
    assert_eq!(poller.client.request(huge).await.unwrap().status.as_u16(), 413);
    let counted = counted();
    assert!(counted.contains("holdfast_gateway_bodies_too_large_total{component=\"policy\"} 1\n"), "{counted}");
    for code in ["bad-field", "body-too-large"] {
        assert!(counted.contains(&format!("calls_refused_total{{code=\"{code}\"}} 1\n")), "{counted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_polls_and_falls_silent_is_away_after_45_s_and_one_that_waits_is_not() {
    let polls = Polls::new(Recorder::default());
    let key = SigningKey::generate().unwrap().verifying_key();
    let epoch = SessionEpoch::from_raw;
    let silent = polls.insert(mk_host(1), epoch(1), mk_authority(), key).unwrap();
    let waiting = polls.insert(mk_host(2), epoch(1), mk_authority(), key).unwrap();
    let (done, turn) = (silent.begin(), waiting.begin());
    done.answered(0, &Asked::default());
    let sweep = polls.clone().run_sweep();
    let look = async {
        tokio::time::sleep(POLL_SILENCE - Duration::from_secs(2)).await;
        assert_eq!(polls.len(), 2);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(polls.hosts(), [mk_host(2)]);
        assert_eq!(turn.standing(), Standing::Current);
        // A newer request of the same session, and a newer session.
        let newer = waiting.begin();
        assert_eq!((turn.standing(), newer.standing()), (Standing::Replaced, Standing::Current));
        assert!(polls.insert(mk_host(2), epoch(3), mk_authority(), key).is_some());
        assert_eq!(newer.standing(), Standing::Ended(Ending::Over));
        assert!(polls.insert(mk_host(2), epoch(2), mk_authority(), key).is_none(), "late, and older");
    };
    tokio::select! {
        () = sweep => {}
        () = look => {}
    }
}

#[tokio::test(start_paused = true)]
async fn polls_of_another_life_begin_anew_each_at_its_moment_whether_they_wait_or_not() {
    let polls = Polls::new(Recorder::default());
    let key = SigningKey::generate().unwrap().verifying_key();
    let [one, two, of_this_life] = [1, 2, 3].map(|n| {
        let authority = Authority { epoch: AuthorityEpoch::from_raw(if n == 3 { 9 } else { 1 }), ..mk_authority() };
        polls.insert(mk_host(n), SessionEpoch::from_raw(1), authority, key).unwrap()
    });
    let turns = [&one, &two, &of_this_life].map(|poll| poll.begin());
    let sweep = polls.clone().run_sweep();
    let look = async {
        let anew = || turns.each_ref().map(|turn| turn.standing() == Standing::Ended(Ending::Anew));
        let now = Authority { epoch: AuthorityEpoch::from_raw(9), ..mk_authority() };
        let told = [0, 10].map(Duration::from_secs);
        polls.tell_life(now, told.into_iter());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(anew().iter().filter(|is| **is).count(), 1, "one now, one later");
        // Told once more, as sessions are: its moment does not move away.
        polls.tell_life(now, [Duration::from_secs(60)].into_iter());
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!((anew(), polls.hosts()), ([true, true, false], vec![mk_host(3)]));
    };
    tokio::select! {
        () = sweep => {}
        () = look => {}
    }
}
