//! What hosts say of their kernels, by session and by poll.

use holdfast_model::drift::{DriftCounts, DriftKind};
use holdfast_store::session::DriftSaid;
use holdfast_wire::message::{Delivery, DriftReport, Writer};
use holdfast_wire::sync::{SYNC_DRIFTS_MAX, SyncDrift, SyncRequest};

use super::polls::{Poller, estate_of};
use super::*;

fn mk_report(kind: DriftKind, total: u64) -> DriftReport {
    let counts = DriftCounts { rules_foreign: 1, ..DriftCounts::default() };
    let writer = Some(Writer { pid: 7, name: "nft".to_owned() });
    DriftReport { kind, instance: Uuid::from_u128(3), total, age_ms: 20, writer, counts }
}

fn mk_sync(kind: DriftKind, total: u64) -> SyncDrift {
    let DriftReport { instance, age_ms, counts, .. } = mk_report(kind, total);
    SyncDrift { kind, instance, total, age_ms, process: Some("nft".to_owned()), pid: Some(7), counts }
}

fn said(facts: &[Fact]) -> Vec<DriftSaid> {
    let drift = |fact: &Fact| match &fact.seen {
        Seen::Drift(said) => Some((**said).clone()),
        _ => None,
    };
    facts.iter().filter_map(drift).collect()
}

#[tokio::test]
async fn drift_in_a_session_is_recorded_with_the_process_and_what_differed() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    for kind in [DriftKind::Found, DriftKind::Repaired] {
        let now = agent.now();
        agent.machine.handle_drift(mk_report(kind, 1), now);
    }
    agent.idle(Duration::from_millis(100)).await;
    let facts = estate.facts_until(|facts| said(facts).len() == 2).await;
    let told = said(&facts);
    assert_eq!((told[0].kind, told[1].kind), (DriftKind::Found, DriftKind::Repaired));
    let (process, pid) = told[0].process.clone().expect("a process");
    assert_eq!((process.as_str(), pid, told[0].counts.rules_foreign), ("nft", 7, 1));
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::Fault { .. })), 0);
}

#[tokio::test]
async fn drift_by_poll_is_recorded_and_what_is_too_much_or_never_happened_is_not() {
    let estate = estate_of(Delivery::Poll).await;
    let mut poller = Poller::new(&estate, estate.enrol(1));
    poller.poll(0).await;
    let drifts = DriftKind::ALL.map(|kind| mk_sync(kind, 1)).to_vec();
    assert_eq!(drifts.len(), SYNC_DRIFTS_MAX);
    poller.ask(&SyncRequest { drifts: drifts.clone(), ..poller.request(0) }).await.unwrap();
    let facts = estate.facts_until(|facts| said(facts).len() == 4).await;
    assert_eq!(said(&facts)[0].process.as_ref().map(|(name, pid)| (name.as_str(), *pid)), Some(("nft", 7)));
    let refused = async |drifts: Vec<SyncDrift>| {
        let asked = poller.ask(&SyncRequest { drifts, ..poller.request(0) }).await;
        asked.expect_err("refused").code
    };
    assert_eq!(refused([drifts.clone(), drifts.clone()].concat()).await, "bad-field");
    assert_eq!(refused(vec![mk_sync(DriftKind::Found, 0)]).await, "bad-field");
    let long = SyncDrift { process: Some("x".repeat(33)), ..mk_sync(DriftKind::Found, 2) };
    assert_eq!(refused(vec![long]).await, "bad-field");
    // A flood is passed over, and the session goes on: the next one counts what was in it.
    for total in 2..40 {
        let drifts = vec![mk_sync(DriftKind::Found, total)];
        poller.ask(&SyncRequest { drifts, ..poller.request(0) }).await.unwrap();
    }
    let told = said(&estate.memory.facts()).len();
    assert!((32..42).contains(&told), "{told} of 42");
}
