//! The door between two lives of the authority, and over a database that forgot sessions.

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
