//! Taking a host out: what goes, what stays, and what comes too late.

use holdfast_events::{Detail, EnrolmentRefusal};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::Revision;
use holdfast_model::statement::OutcomeKind;
use holdfast_store::intent::{Decommission, Decommissioned};
use holdfast_store::order::Horizon;
use holdfast_store::request::{Decided, Decision, RequestAnswer};
use holdfast_store::session::{Opened, Recorded};

use crate::common::{Fleet, OPERATOR, mk_addresses, mk_certificate, mk_opening, mk_report};

async fn take_out(fleet: &Fleet, host: HostId) -> Decommissioned {
    let asked =
        Decommission { actor: OPERATOR, host, detail: Detail::new("its disk is gone"), expected: None, because: None };
    fleet.operators.decommission(asked).await.expect("answers")
}

#[tokio::test]
async fn a_host_that_is_taken_out_is_in_no_read_its_name_is_free_and_what_it_was_stays() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let (gone, stays) = (fleet.enrol("a", "10.0.0.1").await, fleet.enrol("b", "10.0.0.2").await);
    fleet.render(2, 1, &[gone, stays]).await;
    let epoch = fleet.open(gone).await;
    let said = mk_report(gone, epoch, 1, 1, OutcomeKind::Applied);
    let record = async |report| fleet.agents.record_outcomes(fleet.gateway, vec![report]).await.expect("records");
    assert_eq!(record(said).await, [Recorded::Current]);

    let out = take_out(&fleet, gone).await;
    assert!(matches!(out, Decommissioned::Out { revision, .. } if revision == Revision::from_raw(3)), "{out:?}");
    assert_eq!(take_out(&fleet, gone).await, Decommissioned::Unknown, "it is out once");
    let status = fleet.operators.fleet_status(None).await.expect("loads");
    assert_eq!(status.hosts.iter().map(|host| host.host).collect::<Vec<_>>(), [stays]);
    let (revision, intent) = fleet.renderer.load_intent(None).await.expect("loads");
    assert_eq!((revision, intent.hosts.len()), (Revision::from_raw(3), 1));
    let changes = fleet.renderer.changes_since(Revision::from_raw(2)).await.expect("loads");
    assert_eq!(
        changes.hosts.iter().map(|change| (change.host, change.now.is_none())).collect::<Vec<_>>(),
        [(gone, true)]
    );
    assert!(fleet.renderer.all_latest().await.expect("loads").iter().all(|state| state.state.desired.host == stays));
    // Then it was there, and what was desired of it then is known.
    let (_, before) = fleet.renderer.load_intent(Some(Revision::from_raw(2))).await.expect("loads");
    assert_eq!(before.hosts.len(), 2);
    let history = format!("SELECT count(*) FROM desired_states WHERE host_id = '{}'", gone.uuid());
    assert_eq!(fleet.server.sql(&history).trim(), "1");

    let late = mk_report(gone, epoch, 2, 1, OutcomeKind::Applied);
    assert_eq!(record(late).await, [Recorded::UnknownHost]);
    assert_eq!(
        fleet.agents.open_sessions(fleet.gateway, vec![mk_opening(gone)]).await.expect("answers"),
        [Opened::UnknownHost]
    );
    let again = fleet.enrol("a", "10.0.0.1").await;
    assert_ne!(again, gone, "the name is free, and another host has it");
    fleet.open(again).await;

    let told = "SELECT string_agg(kind || ' ' || coalesce(payload ->> 'reason', payload ->> 'detail', ''), ', ' ORDER BY lid) \
                FROM events WHERE kind IN ('session.closed', 'host.decommissioned')";
    assert_eq!(fleet.server.sql(told).trim(), "session.closed decommissioned, host.decommissioned its disk is gone");
    fleet.renderer.number_events(fleet.term, Horizon::default()).await.expect("numbers");
    let report = fleet.operators.rebuild_check().await.expect("checks");
    assert_eq!(report.differences, [], "the events explain every row");
}

#[tokio::test]
async fn what_a_host_asked_for_before_it_was_taken_out_is_not_granted_after_it() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let gone = fleet.enrol("a", "10.0.0.1").await;
    let certificate = fleet.agents.request_certificate(fleet.gateway, gone, vec![1]).await.expect("asks");
    let moved = fleet.agents.report_addresses(fleet.gateway, vec![(gone, mk_addresses(&["10.0.0.4"]))]).await;
    assert_eq!(moved.expect("reports").len(), 1);
    let waiting = fleet.renderer.waiting_requests(10).await.expect("reads");
    take_out(&fleet, gone).await;
    let mut decided = Vec::new();
    for request in waiting {
        let grant = Decision::Grant(Some(mk_certificate("c9")));
        decided.push(fleet.renderer.decide_request(fleet.term, request, grant).await.expect("decides"));
    }
    assert_eq!(decided, [Decided::Refused(EnrolmentRefusal::Decommissioned), Decided::NothingNew]);
    let answers = fleet.agents.request_answers(vec![certificate]).await.expect("reads");
    assert_eq!(answers, [(certificate, gone, RequestAnswer::Refused(EnrolmentRefusal::Decommissioned))]);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM certificates WHERE serial = 'c9'").trim(), "0");
    // A render that was under way with it is refused whole, and the next one is without it.
    let commit = fleet.mk_commit(3, 1, &[gone]);
    assert!(fleet.renderer.commit_render(commit).await.is_err());
}
