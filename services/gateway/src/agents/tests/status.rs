//! What hosts say of themselves as a whole: taken, or refused without harm to anything else.

use holdfast_model::numbers::UpdateSeq;
use holdfast_model::report::{HostReport, REPORT_TEXT_BYTES_MAX};
use holdfast_model::statement::{StatusPlace, status_bytes};
use holdfast_session::agent::Settling;
use holdfast_store::session::StatusSaid;
use holdfast_wire::encode;
use holdfast_wire::limits::{ENVELOPE_BYTES, LENGTH_BYTES, REPORT_FRAME_BYTES_MAX, STATUS_FRAME_BYTES_MAX};
use holdfast_wire::message::{Kind, Message, StatusReport};
use holdfast_wire::negotiate::Protocol;

use super::*;

fn said(facts: &[Fact]) -> Vec<StatusSaid> {
    let status = |fact: &Fact| match &fact.seen {
        Seen::Status(said) => Some((**said).clone()),
        _ => None,
    };
    facts.iter().filter_map(status).collect()
}

fn refused(facts: &[Fact]) -> usize {
    use holdfast_events::Fault;
    count(facts, |seen| matches!(seen, Seen::Fault { fault: Fault::StatusRefused, .. }))
}

/// All is well, and each message is as long as it may be.
fn mk_report(agent: &Agent) -> HostReport {
    let held: Vec<_> = Component::ALL.map(|component| (component, agent.last().stamp)).into();
    let mut report = HostReport::of_health(&held, UpdateSeq::ZERO, 1_790_000_000_000);
    for one in report.components.iter_mut().flat_map(|one| &mut one.conditions) {
        one.condition.message = "m".repeat(10 * REPORT_TEXT_BYTES_MAX);
    }
    report
}

/// A frame of the third protocol.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).unwrap();
    let (protocol, kind) = (Protocol::V3.number(), Kind::Status.number());
    [&length.to_be_bytes()[..], &protocol.to_be_bytes(), &kind.to_be_bytes(), payload].concat()
}

/// The largest status that an agent says is taken, and recorded with the host's own signature.
#[tokio::test]
async fn the_largest_status_through_the_agents_machine_is_taken_and_recorded_as_it_was_signed() {
    let estate = Estate::start().await;
    let host = estate.enrol(1);
    let keys = host.keys.clone();
    let mut agent = estate.connect(host).await;
    agent.converge(4).await;
    let (report, now) = (mk_report(&agent), agent.now());
    agent.machine.handle_status(report.clone(), Settling::Stands, now);
    agent.idle(Duration::from_millis(100)).await;
    let facts = estate.facts_until(|facts| said(facts).len() == 1).await;
    let told = said(&facts).remove(0);
    assert_eq!((told.seq, told.report.digest(), told.report.answered.raw()), (1, report.digest(), 4));
    let longest = |report: &HostReport| {
        let all = report.components.iter().flat_map(|one| &one.conditions);
        all.map(|one| one.condition.message.len()).max()
    };
    assert_eq!(longest(&told.report), Some(REPORT_TEXT_BYTES_MAX), "cut by its maker");
    let session_epoch = facts.iter().find(|fact| matches!(fact.seen, Seen::Status(_))).unwrap().session_epoch;
    let place = StatusPlace { host: agent.host, session_epoch, seq: 1 };
    let statement = status_bytes(mk_authority(), place, &told.report);
    let signature = *told.signature.as_bytes();
    assert_eq!(keys.sign(&statement), signature);
    let status = StatusReport { seq: 1, report: told.report, signature };
    let mut bytes = Vec::new();
    encode(Protocol::V3, &Message::Status(status), &mut bytes).unwrap();
    assert!(bytes.len() <= REPORT_FRAME_BYTES_MAX && bytes.len() > REPORT_FRAME_BYTES_MAX / 3, "{}", bytes.len());
    assert_eq!(refused(&facts), 0);
}

/// A status that the host said and signed, once it is recorded.
async fn genuine(estate: &Estate, agent: &mut Agent) -> StatusReport {
    let (report, now) = (mk_report(agent), agent.now());
    agent.machine.handle_status(report, Settling::Stands, now);
    agent.idle(Duration::from_millis(100)).await;
    let facts = estate.facts_until(|facts| said(facts).len() == 1).await;
    let StatusSaid { seq, report, signature } = said(&facts).remove(0);
    StatusReport { seq, report, signature: *signature.as_bytes() }
}

/// What is no status: garbage, an oversized one, one that is forged, one that is replayed, those that are above any message.
fn hostile(genuine: &StatusReport) -> Vec<Vec<u8>> {
    let encoded = |status: &StatusReport| {
        let mut bytes = Vec::new();
        encode(Protocol::V3, &Message::Status(status.clone()), &mut bytes).unwrap();
        bytes
    };
    let forged = StatusReport { seq: 9, ..genuine.clone() };
    let whole = encoded(genuine);
    vec![
        frame(b""),
        frame(&[0xff; 64]),
        frame(&[whole.get(8..).unwrap(), &[0]].concat()),
        frame(whole.get(8..whole.len() / 2).unwrap()),
        frame(&vec![0; REPORT_FRAME_BYTES_MAX]),
        frame(&vec![1; STATUS_FRAME_BYTES_MAX - ENVELOPE_BYTES]),
        encoded(&forged),
        frame(&vec![2; STATUS_FRAME_BYTES_MAX - ENVELOPE_BYTES + 1]),
        frame(&vec![3; FRAME_BYTES_MAX - ENVELOPE_BYTES]),
        whole,
    ]
}

/// A host, its agent with everything, and its keys.
async fn whole(estate: &Estate) -> (Agent, FileKeys) {
    let host = estate.enrol(1);
    let keys = host.keys.clone();
    let mut agent = estate.connect(host).await;
    agent.converge(4).await;
    (agent, keys)
}

/// The session carries the next update and the next status: past the agent's machine, which says less and less often what is not taken.
async fn assert_goes_on(estate: &Estate, agent: &mut Agent, keys: &FileKeys) -> Vec<Fact> {
    let stamp = estate.memory.publish(agent.host, &mk_body(0..9));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    let report = mk_report(agent).bounded();
    let facts = estate.memory.facts();
    let session_epoch = facts.iter().find(|fact| matches!(fact.seen, Seen::Status(_))).unwrap().session_epoch;
    let place = StatusPlace { host: agent.host, session_epoch, seq: 100 };
    let signature = keys.sign(&status_bytes(mk_authority(), place, &report));
    let mut bytes = Vec::new();
    encode(Protocol::V3, &Message::Status(StatusReport { seq: 100, report, signature }), &mut bytes).unwrap();
    agent.stream.write_all(&bytes).await.and(agent.stream.flush().await).unwrap();
    let facts = estate.facts_until(|facts| said(facts).iter().any(|said| said.seq == 100)).await;
    assert_eq!(agent.ended, None);
    facts
}

/// Hundreds of each.
#[tokio::test]
async fn a_status_that_is_garbage_oversized_forged_or_stale_is_refused_and_harms_neither_liveness_nor_session_nor_updates()
 {
    let estate = Estate::start().await;
    let (mut agent, keys) = whole(&estate).await;
    let genuine = genuine(&estate, &mut agent).await;
    let hostile = hostile(&genuine);
    for round in 0..40 {
        for bytes in &hostile {
            agent.stream.write_all(bytes).await.unwrap();
        }
        agent.idle(Duration::from_millis(if round == 0 { 100 } else { 1 })).await;
    }
    let facts = assert_goes_on(&estate, &mut agent, &keys).await;
    assert!(said(&facts).iter().all(|said| said.seq != 9), "what is forged is not taken");
    let told = refused(&facts);
    assert!((1..=8).contains(&told), "{told} of 400 are told");
}

/// Nothing else is sent: whatever is heard of the host is heard by that.
#[tokio::test]
async fn each_kind_of_status_that_is_none_is_a_sign_of_life_by_itself() {
    let estate = Estate::start().await;
    let (mut agent, keys) = whole(&estate).await;
    let genuine = genuine(&estate, &mut agent).await;
    let hostile = hostile(&genuine);
    let heard = |facts: &[Fact]| count(facts, |seen| matches!(seen, Seen::Heard { .. }));
    // Of what was good before, one sign of life may still be to come: it is that of the first round at most.
    for _round in 0..2 {
        for bytes in &hostile {
            let before = heard(&estate.memory.facts());
            agent.stream.write_all(bytes).await.and(agent.stream.flush().await).unwrap();
            estate.facts_until(|facts| heard(facts) > before).await;
        }
    }
    assert_goes_on(&estate, &mut agent, &keys).await;
}

/// A frame that is longer than an agent may send is passed over by its length if it is a status, in pieces of any size, and ends the session if it
/// is longer than any frame or anything else.
#[tokio::test]
async fn a_status_above_the_cap_of_a_frame_is_passed_over_and_anything_else_above_it_ends_the_session() {
    let estate = Estate::start().await;
    let (mut agent, keys) = whole(&estate).await;
    let genuine = genuine(&estate, &mut agent).await;
    let (_recorder, counted) = counters();
    let refused = r#"holdfast_gateway_statuses_total{outcome="bad_value"}"#;
    for (n, bytes_max) in [STATUS_FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX].into_iter().enumerate() {
        let bytes = frame(&vec![0; bytes_max - ENVELOPE_BYTES]);
        let (head, rest) = bytes.split_at(LENGTH_BYTES);
        for piece in [head, rest.get(..3).unwrap(), rest.get(3..70_000).unwrap(), rest.get(70_000..).unwrap()] {
            agent.stream.write_all(piece).await.and(agent.stream.flush().await).unwrap();
            tokio::task::yield_now().await;
        }
        agent.until(|_| counted().contains(&format!("{refused} {}\n", n + 1))).await;
    }
    let stale = {
        let mut bytes = Vec::new();
        encode(Protocol::V3, &Message::Status(genuine), &mut bytes).unwrap();
        bytes
    };
    // What follows is read from its first byte.
    agent.stream.write_all(&stale).await.unwrap();
    agent.until(|_| counted().contains("holdfast_gateway_statuses_total{outcome=\"stale_status\"} 1\n")).await;
    assert_goes_on(&estate, &mut agent, &keys).await;

    let other = |kind: u16, bytes: usize| {
        let length = u32::try_from(bytes).unwrap();
        let (protocol, filled) = (Protocol::V3.number(), vec![0; 1_000]);
        [&length.to_be_bytes()[..], &protocol.to_be_bytes(), &kind.to_be_bytes(), &filled].concat()
    };
    let status = Kind::Status.number();
    let too_large = CloseCause::Theirs { code: RefusalCode::TooLarge, retry_after_ms: 0 };
    agent.stream.write_all(&other(status, FRAME_BYTES_MAX + 1)).await.unwrap();
    assert_eq!(agent.closed().await, too_large, "longer than any frame");
    for (n, kind) in [(2, Kind::Inventory.number()), (3, 9_999)] {
        let mut agent = estate.agent(n).await;
        agent.converge(4).await;
        agent.stream.write_all(&other(kind, STATUS_FRAME_BYTES_MAX + 1)).await.unwrap();
        assert_eq!(agent.closed().await, too_large, "a frame of kind {kind}");
    }
}
