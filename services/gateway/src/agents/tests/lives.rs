//! The door between two lives of the authority, and over a database that forgot sessions.

use holdfast_wire::message::Delivery;

use super::polls::{Poller, estate_of};
use super::*;

#[tokio::test]
async fn a_session_of_an_earlier_life_begins_anew_and_gets_nothing_before_it_is_signed_in_the_new_one() {
    let estate = Estate::start().await;
    let host = estate.enrol(1);
    let mut agent = estate.connect(host.clone()).await;
    agent.converge(4).await;
    // One compare without anything new: nobody is sent away.
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    agent.idle(Duration::from_millis(300)).await;
    assert_eq!(agent.ended, None);

    estate.memory.raise();
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    assert_eq!(agent.closed().await, CloseCause::Drained);
    let mut agent = estate.connect(host).await;
    agent.until(|agent| agent.machine.is_open()).await;
    agent.idle(Duration::from_millis(500)).await;
    assert!(agent.taken.is_empty(), "what is signed in another life is not sent");
    estate.memory.sign_again(agent.host);
    estate.hint(agent.host, Version::FIRST).await;
    agent.converge(4).await;
    // And in the new life it is left alone.
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    agent.idle(Duration::from_millis(300)).await;
    assert_eq!(agent.ended, None);
}

#[tokio::test]
async fn a_session_that_the_database_forgot_begins_anew_and_no_other() {
    let estate = Estate::start().await;
    let (mut forgotten, mut known) = (estate.agent(1).await, estate.agent(2).await);
    forgotten.converge(4).await;
    known.converge(4).await;
    estate.memory.forget_sessions_of(forgotten.host);
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    // By the compare, or by the first fact that is written in it: to the database it is another session than the host's.
    let cause = forgotten.closed().await;
    let superseded = CloseCause::Theirs { code: RefusalCode::Superseded, retry_after_ms: 0 };
    assert!(cause == CloseCause::Drained || cause == superseded, "{cause:?}");
    known.idle(Duration::from_millis(300)).await;
    assert_eq!(known.ended, None);
}

#[tokio::test]
async fn a_poll_that_waits_is_answered_at_once_when_the_authority_has_a_new_life_or_forgot_its_session() {
    let estate = estate_of(Delivery::Poll).await;
    let [mut anew, mut stays] = [1, 2].map(|n| Poller::new(&estate, estate.enrol(n)));
    for poller in [&mut anew, &mut stays] {
        let first = poller.poll(0).await;
        poller.say_applied(&first).await;
    }
    // A compare that finds nothing sends nobody away.
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    assert_eq!(anew.poll(300).await.states, []);
    assert_eq!(estate.door.polls(), 2);

    // Forgotten by the database: that one, and no other.
    let (waits, other) = (anew.request(30_000), stays.request(2_000));
    let began = tokio::time::Instant::now();
    let (refused, answered, ()) = tokio::join!(anew.ask(&waits), stays.ask(&other), async {
        estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 8).await;
        read_again(&estate, &anew).await;
        estate.memory.forget_sessions_of(anew.host.id);
        estate.wakes.send(Wake::Lapsed).await.unwrap();
    });
    // By the compare, or by the first fact that is written in it.
    let code = refused.unwrap_err().code;
    assert!(["begin-anew", "session-over"].contains(&code.as_str()), "{code}");
    assert_eq!(answered.unwrap().states.len(), 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    anew.session_epoch = None;
    anew.poll(0).await;

    // A new life: the one that waits is told at once, and the session of the one that does not is over as well.
    let waits = stays.request(30_000);
    let began = tokio::time::Instant::now();
    let (refused, ()) = tokio::join!(stays.ask(&waits), async {
        read_again(&estate, &stays).await;
        estate.memory.raise();
        estate.wakes.send(Wake::Lapsed).await.unwrap();
    });
    assert_eq!(refused.unwrap_err().code, "begin-anew");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // Each at its own moment.
    let both = async {
        while estate.door.polls() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, both).await.expect("both are over");
    assert_eq!(anew.ask(&anew.request(0)).await.unwrap_err().code, "session-over");
    // It begins anew in the new life, and gets nothing before it is signed in it.
    stays.session_epoch = None;
    stays.seen.clear();
    let answer = stays.ask(&stays.request(300)).await.unwrap();
    assert_eq!((answer.authority_epoch, answer.states.len()), (AuthorityEpoch::from_raw(2), 0));
}

#[tokio::test]
async fn a_poll_that_finds_a_state_of_a_new_life_is_told_to_begin_anew_without_any_compare() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    poller.say_applied(&first).await;
    // The first hint that is heard raises a doubt: what comes behind it does not.
    estate.hint(poller.host.id, Version::FIRST).await;
    let compared = async {
        while estate.memory.compares() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, compared).await.expect("it compares");
    let waits = poller.request(30_000);
    let (refused, ()) = tokio::join!(poller.ask(&waits), async {
        read_again(&estate, &poller).await;
        estate.memory.raise();
        let stamp = estate.memory.publish(poller.host.id, &mk_body(0..3));
        estate.hint(poller.host.id, stamp.version).await;
    });
    assert_eq!(refused.unwrap_err().code, "begin-anew");
    assert_eq!((estate.memory.compares(), estate.door.polls()), (1, 0));
}

#[tokio::test]
async fn a_poll_whose_host_has_a_newer_session_elsewhere_is_over_at_the_next_compare() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    poller.say_applied(&first).await;
    let waits = poller.request(30_000);
    let began = tokio::time::Instant::now();
    let (refused, ()) = tokio::join!(poller.ask(&waits), async {
        estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4).await;
        read_again(&estate, &poller).await;
        estate.memory.open_elsewhere(poller.host.id);
        estate.wakes.send(Wake::Lapsed).await.unwrap();
    });
    assert_eq!(refused.unwrap_err().code, "session-over");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(estate.door.polls(), 0);
}

/// Waits until a request of this host is there: it looked once more at what is desired.
async fn read_again(estate: &Estate, poller: &Poller) {
    let before = estate.memory.reads_of(poller.host.id);
    let read = async {
        while estate.memory.reads_of(poller.host.id) == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("it asks");
}

/// A backup knows each session that was open when it was made.
#[tokio::test]
async fn a_session_that_has_a_version_that_the_database_lost_begins_anew_and_no_other() {
    let estate = Estate::start().await;
    let (mut ahead, mut other) = (estate.agent(1).await, estate.agent(2).await);
    ahead.converge(4).await;
    other.converge(4).await;
    let [saved, lost] = [3, 4].map(|members| estate.memory.publish(ahead.host, &mk_body(0..members)));
    estate.hint(ahead.host, lost.version).await;
    ahead.until(|agent| agent.taken.last().is_some_and(|taken| taken.stamp == lost)).await;
    estate.memory.go_back(ahead.host, saved);
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    assert_eq!(ahead.closed().await, CloseCause::Drained);
    other.idle(Duration::from_millis(300)).await;
    assert_eq!(other.ended, None);
}

#[tokio::test]
async fn a_compare_that_the_database_did_not_answer_is_tried_again_before_the_next_turn_of_the_clock() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    estate.memory.set_away(true);
    let began = tokio::time::Instant::now();
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    agent.idle(Duration::from_millis(300)).await;
    estate.memory.set_away(false);
    // Nobody hints at it.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
    agent.until(|agent| agent.taken.last().is_some_and(|taken| taken.stamp == stamp)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_compare_that_hangs_keeps_no_hint_waiting_and_what_is_doubted_meanwhile_is_looked_into_after_it() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    estate.memory.set_compares_hang(true);
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    let compared = async {
        while estate.memory.compares() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, compared).await.expect("it compares");
    // The first hint that is heard is a doubt.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    assert_eq!((agent.last().stamp, estate.memory.compares()), (stamp, 1), "by the hint");
    // What nobody hints at was not there yet when the compare read.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..4));
    let began = tokio::time::Instant::now();
    estate.memory.set_compares_hang(false);
    agent.converge(6).await;
    assert_eq!((agent.last().stamp, estate.memory.compares()), (stamp, 2));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
