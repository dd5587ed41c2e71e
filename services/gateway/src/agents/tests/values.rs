//! What can never be written, of one host among others.

use std::net::Ipv4Addr;

use holdfast_events::AgentVersion;
use holdfast_model::numbers::UpdateSeq;
use holdfast_store::session::{Instance, Opening};
use holdfast_wire::limits::NUMBER_MAX;
use holdfast_wire::message::Delivery;
use holdfast_wire::sync::{SYNC_LAST_UPDATE_SEQ_MAX, SeenState, SyncOutcome, SyncRequest};

use super::super::absence::Absence;
use super::super::start::open_all;
use super::super::store::Admitted;
use super::polls::{Poller, estate_of};
use super::*;

#[tokio::test]
async fn what_one_host_says_and_can_never_be_written_is_left_out_and_nobody_waits_behind_it() {
    let estate = Estate::start().await;
    let mut agents = Vec::new();
    for n in 1..=3 {
        let mut agent = estate.agent(n).await;
        agent.converge(4).await;
        agents.push(agent);
    }
    let outcomes = |facts: &[Fact]| count(facts, |seen| matches!(seen, Seen::Outcome(_)));
    estate.facts_until(|facts| outcomes(facts) == 12).await;
    // All of it comes together: what is written next is one batch with the bad one in its midst.
    estate.memory.hold_facts(true);
    estate.memory.poison(agents[1].host);
    for (nth, agent) in agents.iter_mut().enumerate() {
        let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
        estate.hint(agent.host, stamp.version).await;
        agent.converge(5).await;
        assert_eq!(agent.last().stamp, stamp, "{nth}");
    }
    let waiting = async {
        while estate.door.facts_wait().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("they wait");
    estate.memory.hold_facts(false);
    let facts = estate.facts_until(|facts| outcomes(facts) == 14).await;
    let of = |host| facts.iter().filter(|fact| fact.host == host && matches!(fact.seen, Seen::Outcome(_))).count();
    assert_eq!(agents.iter().map(|agent| of(agent.host)).collect::<Vec<_>>(), [5, 4, 5]);
    assert!(estate.memory.poisoned() > 0, "it was refused");
    // And it is done with: what comes next is written at once.
    let written = async {
        while estate.door.recorder().count().0 > 0 || estate.door.facts_wait().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, written).await.expect("nothing waits");
}

#[tokio::test]
async fn a_session_that_can_never_be_opened_keeps_nobody_out_who_comes_with_it() {
    let estate = Estate::start().await;
    let opening = |n: u128| {
        let host = estate.enrol(n).id;
        Opening {
            host,
            certificate_serial: Vec::new(),
            agent_version: AgentVersion::new("0.1"),
            instance: Instance { boot_id: Uuid::nil(), address: Ipv4Addr::LOCALHOST.into() },
            applied: Vec::new(),
            protocol: Some(2),
        }
    };
    let openings: Vec<Opening> = (1..=7).map(opening).collect();
    estate.memory.poison(openings[4].host);
    let opened = open_all(&estate.memory, openings.clone(), &Absence::default()).await;
    let is_open: Vec<bool> = opened.iter().map(|opened| matches!(opened, Some(Admitted::Session { .. }))).collect();
    assert_eq!(is_open, [true, true, true, true, false, true, true]);
    // Of a database that is away nothing is asked twice.
    estate.memory.set_away(true);
    assert_eq!(open_all(&estate.memory, openings, &Absence::default()).await, vec![None; 7]);
}

#[tokio::test]
async fn a_number_that_no_column_holds_is_refused_by_name_in_a_poll() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    let first = poller.poll(0).await;
    let good = poller.outcome(&first.states[0]);
    let large = Version::from_raw(NUMBER_MAX + 1).unwrap();
    let stamp = Stamp { version: large, ..good.wanted };
    let mut observed = good.clone();
    observed.conditions[0].observed_version = Some(large);
    let seen = SeenState { component: Component::Policy, stamp, applied: true };
    let begin = |request| SyncRequest { wait_ms: Some(0), ..request };
    let say = |outcome| SyncRequest { outcomes: vec![outcome], ..poller.request(0) };
    for (field, request) in [
        (
            "last_update_seq",
            begin(SyncRequest {
                last_update_seq: UpdateSeq::from_raw(SYNC_LAST_UPDATE_SEQ_MAX + 1),
                ..SyncRequest::default()
            }),
        ),
        ("seen.version", begin(SyncRequest { seen: vec![seen], ..SyncRequest::default() })),
        ("outcomes.update_seq", say(SyncOutcome { update_seq: UpdateSeq::from_raw(u64::MAX), ..good.clone() })),
        ("outcomes.wanted", say(SyncOutcome { wanted: stamp, ..good.clone() })),
        ("outcomes.applied", say(SyncOutcome { applied: Some(stamp), ..good.clone() })),
        ("outcomes.conditions.observed_version", say(observed)),
    ] {
        let refused = poller.ask(&request).await.unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (422, "bad-field"), "{refused:?}");
        assert!(refused.detail.contains(&format!("`{field}`")), "{field}: {refused:?}");
    }
    // The largest that is taken leaves room for what is answered.
    let last = UpdateSeq::from_raw(SYNC_LAST_UPDATE_SEQ_MAX);
    let most = SyncRequest { last_update_seq: last, seen: Vec::new(), ..poller.request(0) };
    let answer = poller.ask(&most).await.unwrap();
    let numbers = answer.states.iter().filter_map(|state| state.update_seq).map(UpdateSeq::raw);
    assert_eq!(numbers.max(), Some(NUMBER_MAX));
}
