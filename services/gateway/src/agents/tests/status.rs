//! What hosts say of themselves as a whole: taken, or refused without harm to anything else.

use holdfast_model::numbers::UpdateSeq;
use holdfast_model::report::{HostReport, REPORT_TEXT_BYTES_MAX};
use holdfast_model::statement::{StatusPlace, status_bytes};
use holdfast_session::agent::Settling;
use holdfast_store::session::StatusSaid;
use holdfast_wire::encode;
use holdfast_wire::limits::{REPORT_FRAME_BYTES_MAX, STATUS_FRAME_BYTES_MAX};
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

/// Garbage, an oversized one, one that is forged, one that is replayed: hundreds of them.
#[tokio::test]
async fn a_status_that_is_garbage_oversized_forged_or_stale_is_refused_and_harms_neither_liveness_nor_session_nor_updates()
 {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    let (report, now) = (mk_report(&agent), agent.now());
    agent.machine.handle_status(report, Settling::Stands, now);
    agent.idle(Duration::from_millis(100)).await;
    let facts = estate.facts_until(|facts| said(facts).len() == 1).await;
    let StatusSaid { seq, report, signature } = said(&facts).remove(0);
    let genuine = StatusReport { seq, report, signature: *signature.as_bytes() };
    let encoded = |status: &StatusReport| {
        let mut bytes = Vec::new();
        encode(Protocol::V3, &Message::Status(status.clone()), &mut bytes).unwrap();
        bytes
    };
    let forged = StatusReport { seq: 9, ..genuine.clone() };
    let whole = encoded(&genuine);
    let hostile = [
        frame(b""),
        frame(&[0xff; 64]),
        frame(&[whole.get(8..).unwrap(), &[0]].concat()),
        frame(whole.get(8..whole.len() / 2).unwrap()),
        frame(&vec![0; REPORT_FRAME_BYTES_MAX]),
        frame(&vec![1; STATUS_FRAME_BYTES_MAX - 4]),
        encoded(&forged),
        whole,
    ];
    let heard = count(&estate.memory.facts(), |seen| matches!(seen, Seen::Heard { .. }));
    for round in 0..40 {
        for bytes in &hostile {
            agent.stream.write_all(bytes).await.unwrap();
        }
        agent.idle(Duration::from_millis(if round == 0 { 100 } else { 1 })).await;
    }
    // The session goes on: it carries the next update and the next status.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..9));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    let (report, now) = (mk_report(&agent), agent.now());
    agent.machine.handle_status(report, Settling::Stands, now);
    agent.idle(Duration::from_millis(100)).await;
    let facts = estate.facts_until(|facts| said(facts).len() >= 2).await;
    assert!(said(&facts).iter().all(|said| said.seq != 9), "what is forged is not taken");
    let told = refused(&facts);
    assert!((1..=8).contains(&told), "{told} of 320 are told");
    let heard_since = count(&facts, |seen| matches!(seen, Seen::Heard { .. })) - heard;
    assert!(heard_since > 0, "garbage is a sign of life");
    assert_eq!(agent.ended, None);
}
