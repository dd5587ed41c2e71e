//! Sessions, outcomes and what they prove.

use holdfast_events::{CloseReason, Fault, VerifyingKeyBytes};
use holdfast_model::condition::{Basis, ConditionType, Holds};
use holdfast_model::desired::{Component, Desired};
use holdfast_model::drift::DriftKind;
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::OutcomeKind;
use holdfast_model::status::{Missing, State, Verdict};
use holdfast_store::render::SignedState;
use holdfast_store::session::{
    Closing, DriftSaid, Fact, FactsRecorded, HostNewest, Instance, Opened, Opening, Recorded, Seen, SnapshotReport,
    StatusSaid,
};
use holdfast_store::status::Signed;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::common::{Fleet, mk_addresses, mk_drift, mk_opening, mk_report, mk_serial, mk_stamp, mk_status};

async fn mk_fleet() -> (Fleet, HostId) {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    fleet.render(1, 1, &[host]).await;
    (fleet, host)
}

#[tokio::test]
async fn a_newer_session_ends_the_older_and_epochs_only_rise() {
    let (fleet, host) = mk_fleet().await;
    let stranger = HostId::new(Uuid::from_u128(1));
    let openings = vec![mk_opening(host), mk_opening(stranger), mk_opening(host)];
    let opened = fleet.agents.open_sessions(fleet.gateway, openings).await.expect("opens");
    let epoch = SessionEpoch::from_raw;
    let outcome_key = VerifyingKeyBytes::from_bytes([3; 32]);
    let session = |n| Opened::Session {
        namespace: Name::default_namespace(),
        session_epoch: epoch(n),
        outcome_key,
        is_between_lives: false,
    };
    assert_eq!(opened, vec![session(1), Opened::UnknownHost, session(2)]);
    let foreign = Opening { certificate_serial: mk_serial(stranger), ..mk_opening(host) };
    let opened = fleet.agents.open_sessions(fleet.gateway, vec![foreign]).await.expect("answers");
    assert_eq!(opened, vec![Opened::UnknownCertificate]);
    let close = |session_epoch| Closing { host, session_epoch, reason: CloseReason::Lost };
    let closed = fleet.agents.close_sessions(fleet.gateway, vec![close(epoch(1)), close(epoch(2)), close(epoch(2))]);
    assert_eq!(closed.await.expect("closes"), vec![false, true, false]);
    assert_eq!(fleet.open(host).await, epoch(3));
    let heard = vec![(host, epoch(2), 0), (host, epoch(3), 5), (stranger, epoch(1), 0)];
    let mut stale = fleet.agents.record_presence(heard).await.expect("records");
    stale.sort_unstable();
    let mut wanted = vec![host, stranger];
    wanted.sort_unstable();
    assert_eq!(stale, wanted);
    let closed = fleet.server.sql("SELECT count(*) FROM events WHERE kind = 'session.closed'");
    assert_eq!(closed, "2\n", "the first was superseded, the second lost");
}

#[tokio::test]
async fn an_outcome_counts_in_its_own_session_once_and_in_order() {
    let (fleet, host) = mk_fleet().await;
    let first = fleet.open(host).await;
    let applied = |epoch, seq| mk_report(host, epoch, seq, 1, OutcomeKind::Applied);
    let record = async |reports| fleet.agents.record_outcomes(fleet.gateway, reports).await.expect("records");
    assert_eq!(record(vec![applied(first, 1), applied(first, 2)]).await, [Recorded::Current, Recorded::Current]);
    assert_eq!(record(vec![applied(first, 2)]).await, [Recorded::Repeated]);
    assert_eq!(record(vec![applied(first, 1)]).await, [Recorded::OutOfOrder]);
    let second = fleet.open(host).await;
    assert_eq!(record(vec![applied(first, 3), applied(second, 1)]).await, [Recorded::StaleSession, Recorded::Current]);
    let stranger = mk_report(HostId::new(Uuid::from_u128(1)), second, 9, 1, OutcomeKind::Applied);
    assert_eq!(record(vec![stranger]).await, [Recorded::UnknownHost]);
    let close = Closing { host, session_epoch: second, reason: CloseReason::AgentLeft };
    fleet.agents.close_sessions(fleet.gateway, vec![close]).await.expect("closes");
    assert_eq!(record(vec![applied(second, 2)]).await, [Recorded::StaleSession]);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM events WHERE kind = 'protocol.fault'"), "3\n");
    assert_eq!(fleet.server.sql("SELECT count(*) FROM events WHERE kind = 'outcome.recorded'"), "3\n");
}

#[tokio::test]
async fn the_state_of_a_host_follows_its_evidence() {
    let (fleet, host) = mk_fleet().await;
    let trusts = |_: &_, _: Signed<'_>| true;
    let state = async || {
        let status = fleet.operators.fleet_status(Some(vec![host])).await.expect("loads");
        let host = &status.hosts[0];
        host.verdict_of(&host.components[0], &trusts).state
    };
    assert_eq!(state().await, State::Unknown, "no session yet");
    let epoch = fleet.open(host).await;
    assert_eq!(state().await, State::Progressing);
    let failed = mk_report(host, epoch, 1, 1, OutcomeKind::Failed);
    fleet.agents.record_outcomes(fleet.gateway, vec![failed]).await.expect("records");
    assert_eq!(state().await, State::Failed);
    let sent = SnapshotReport {
        host,
        session_epoch: epoch,
        component: Component::Policy,
        stamp: mk_stamp(1),
        update_seq: UpdateSeq::from_raw(2),
    };
    let stale = SnapshotReport { session_epoch: SessionEpoch::ZERO, ..sent };
    let counted = fleet.agents.record_snapshots_sent(fleet.gateway, vec![sent, stale]).await.expect("records");
    assert_eq!(counted, [true, false]);
    let applied = mk_report(host, epoch, 2, 1, OutcomeKind::Applied);
    fleet.agents.record_outcomes(fleet.gateway, vec![applied]).await.expect("records");
    assert_eq!(state().await, State::Converged);
    let status = fleet.operators.fleet_status(None).await.expect("loads");
    let only = &status.hosts[0];
    assert!(only.components[0].last_snapshot_sent_at.is_some() && only.last_seen_at.is_some());
    assert_eq!(only.components.len(), Component::ALL.len(), "every component has an explicit state");
    assert_eq!(
        only.verdict_of(&only.components[0], &|_, _| false).state,
        State::Unknown,
        "a bad signature proves nothing"
    );
    fleet.server.sql("UPDATE presence SET heard_at = now() - interval '45 s'");
    assert_eq!(state().await, State::Unknown, "silence");
    fleet.agents.record_presence(vec![(host, epoch, 0)]).await.expect("records");
    assert_eq!(state().await, State::Converged);
    fleet.server.sql("UPDATE leases SET expires_at = now() WHERE name LIKE 'gw%'");
    assert_eq!(state().await, State::Unknown, "the gateway is dead");
    fleet.open(host).await;
    assert_eq!(state().await, State::Unknown, "what an older session said does not count");
}

#[tokio::test]
async fn a16_the_instant_of_a_failure_stays_after_a_success_and_that_of_a_success_after_a_failure() {
    let (fleet, host) = mk_fleet().await;
    let instants = async || {
        let status = fleet.operators.fleet_status(Some(vec![host])).await.expect("loads");
        let policy = &status.hosts[0].components[0];
        (policy.last_acked_at, policy.last_apply_failed_at, policy.outcome.as_ref().map(|said| said.at))
    };
    let epoch = fleet.open(host).await;
    assert_eq!(instants().await, (None, None, None));
    let say = async |kinds: &[(u64, OutcomeKind)]| {
        let reports = kinds.iter().map(|(seq, kind)| mk_report(host, epoch, *seq, 1, *kind)).collect();
        fleet.agents.record_outcomes(fleet.gateway, reports).await.expect("records");
        instants().await
    };
    let (none, failed, at) = say(&[(1, OutcomeKind::Failed)]).await;
    assert_eq!((none, failed, failed.is_some()), (None, at, true));
    let (acked, kept, at) = say(&[(2, OutcomeKind::Applied)]).await;
    assert_eq!((acked, kept), (at, failed));
    assert!(acked > failed);
    // What is neither moves neither; and a session that begins is none of them.
    let (still, kept, at) = say(&[(3, OutcomeKind::RetainedLocalOverride)]).await;
    assert_eq!((still, kept, at > acked), (acked, failed, true));
    // Both in one batch: both are of now, whichever is the last.
    let (newer, newest, at) = say(&[(4, OutcomeKind::Failed), (5, OutcomeKind::Applied)]).await;
    assert_eq!((newer, newest, newer > acked), (at, at, true));
    fleet.open(host).await;
    assert_eq!(instants().await, (newer, newest, at));
}

#[tokio::test]
async fn a_time_in_which_the_database_was_away_is_counted_neither_against_a_lease_nor_as_silence_of_a_host() {
    let (fleet, host) = mk_fleet().await;
    let state = async || {
        let status = fleet.operators.fleet_status(Some(vec![host])).await.expect("loads");
        let host = &status.hosts[0];
        host.verdict_of(&host.components[0], &|_, _| true).state
    };
    let epoch = fleet.open(host).await;
    fleet
        .agents
        .record_outcomes(fleet.gateway, vec![mk_report(host, epoch, 1, 1, OutcomeKind::Applied)])
        .await
        .expect("records");
    assert_eq!(state().await, State::Converged);

    // The last beat was a minute ago, the host was heard 10 s before that, and the lease ran out meanwhile.
    let heard = "UPDATE presence SET heard_at = now() - interval '70 s'";
    let lapsed = "UPDATE leases SET expires_at = now() - interval '40 s' WHERE name LIKE 'gw%'";
    let away = "UPDATE pulse SET beat_at = now() - interval '60 s', away_from = NULL, away_until = NULL";
    for sql in [heard, lapsed] {
        fleet.server.sql(sql);
    }
    assert_eq!(state().await, State::Unknown, "nobody ever beat: no absence is known");
    fleet.operators.beat().await.expect("beats");
    assert_eq!(state().await, State::Unknown, "the first beat tells of none");
    fleet.server.sql(away);
    assert_eq!(state().await, State::Converged, "nobody has written since");
    fleet.agents.beat().await.expect("beats");
    assert_eq!(state().await, State::Converged, "and somebody has just now");
    fleet.operators.beat().await.expect("beats");
    assert_eq!(state().await, State::Converged, "whoever beats next");
    fleet.server.sql("UPDATE presence SET heard_at = now() - interval '110 s'");
    assert_eq!(state().await, State::Unknown, "it was silent for 50 s before");
    fleet.server.sql(heard);
    fleet.server.sql("UPDATE leases SET expires_at = now() - interval '61 s' WHERE name LIKE 'gw%'");
    assert_eq!(state().await, State::Unknown, "the gateway was dead before");
    fleet.server.sql("UPDATE leases SET expires_at = 'epoch' WHERE name LIKE 'gw%'");
    assert_eq!(state().await, State::Unknown, "the lease was given back");
    fleet.server.sql(lapsed);
    assert_eq!(state().await, State::Converged);
    fleet
        .server
        .sql("UPDATE pulse SET away_from = away_from - interval '31 s', away_until = away_until - interval '31 s'");
    assert_eq!(state().await, State::Unknown, "everybody had the time to come back");
}

#[tokio::test]
async fn c48_a_local_override_is_no_failure_of_delivery_and_the_desired_version_is_not_in_force() {
    let (fleet, host) = mk_fleet().await;
    let epoch = fleet.open(host).await;
    let retained = mk_report(host, epoch, 1, 1, OutcomeKind::RetainedLocalOverride);
    fleet.agents.record_outcomes(fleet.gateway, vec![retained]).await.expect("records");
    let status = fleet.operators.fleet_status(Some(vec![host])).await.expect("loads");
    let (host, policy) = (&status.hosts[0], &status.hosts[0].components[0]);
    assert_eq!(
        host.verdict_of(policy, &|_, _| true).state,
        State::Failed,
        "an operation that waits for it ends as failed"
    );
    let said = policy.outcome.as_ref().expect("it is told").outcome.kind;
    assert_eq!(said, OutcomeKind::RetainedLocalOverride);
}

#[tokio::test]
async fn two_gateways_that_open_and_record_at_once_do_not_lock_each_other_out() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 20).await;
    let mut hosts = Vec::new();
    for n in 1..=12 {
        hosts.push(fleet.enrol(&format!("h{n}"), &format!("10.0.0.{n}")).await);
    }
    let one = |backwards: bool| {
        let (agents, gateway, mut hosts) = (fleet.agents.clone(), GatewayId::new(Uuid::now_v7()), hosts.clone());
        if backwards {
            hosts.reverse();
        }
        async move {
            for _ in 0..20 {
                let openings = hosts.iter().copied().map(mk_opening).collect();
                let opened = agents.open_sessions(gateway, openings).await.expect("opens");
                let reports = hosts.iter().zip(opened).map(|(host, opened)| match opened {
                    Opened::Session { session_epoch, .. } => {
                        mk_report(*host, session_epoch, 1, 1, OutcomeKind::Applied)
                    }
                    Opened::Contested { .. } | Opened::UnknownHost | Opened::UnknownCertificate => panic!("enrolled"),
                });
                agents.record_outcomes(gateway, reports.collect()).await.expect("records");
            }
        }
    };
    [false, true].map(one).into_iter().collect::<JoinSet<()>>().join_all().await;
    let highest = fleet.server.sql("SELECT min(session_epoch), max(session_epoch) FROM sessions");
    assert_eq!(highest, "40|40\n", "no number was given twice");
}

#[tokio::test]
async fn two_agents_that_rest_and_take_a_session_from_each_other_anew_are_told_anew_and_in_one_batch_as_in_many() {
    let (fleet, host) = mk_fleet().await;
    let by = |n: u8| {
        let instance = Instance { boot_id: Uuid::from_u128(n.into()), address: [10, 0, 1, n].into() };
        Opening { instance, ..mk_opening(host) }
    };
    let told = || fleet.server.sql("SELECT count(*) FROM events WHERE kind = 'session.contested'").trim().to_owned();
    let open = async |by: Vec<Opening>| fleet.agents.open_sessions(fleet.gateway, by).await.expect("asks");
    for n in [1, 2, 1, 2] {
        open(vec![by(n)]).await;
    }
    assert_eq!(told(), "1");
    // They were not up together for an hour.
    fleet.server.sql("UPDATE instances SET turned_at = turned_at - interval '1 hour'");
    open(vec![by(1)]).await;
    assert_eq!(told(), "1", "one turn tells nothing");
    let opened = open(vec![by(2), by(1), by(2)]).await;
    assert_eq!(told(), "2");
    let [Opened::Session { .. }, Opened::Contested { .. }, Opened::Session { .. }] = opened.as_slice() else {
        panic!("{opened:?}")
    };
    let noted = fleet.server.sql("SELECT boot_id, other_boot_id, turns, contested FROM instances");
    let boots = [2, 1].map(Uuid::from_u128);
    assert_eq!(noted.trim(), format!("{}|{}|2|t", boots[0], boots[1]), "who has it, and from whom it was taken");
}

#[tokio::test]
async fn facts_of_one_batch_are_one_transaction_and_the_same_again_is_nothing() {
    let (fleet, host) = mk_fleet().await;
    let first = fleet.open(host).await;
    let epoch = fleet.open(host).await;
    let fact = |session_epoch, seen| Fact { host, session_epoch, seen };
    let sent =
        Seen::SnapshotSent { component: Component::Policy, stamp: mk_stamp(1), update_seq: UpdateSeq::from_raw(1) };
    let outcome = |epoch| Seen::Outcome(Box::new(mk_report(host, epoch, 1, 1, OutcomeKind::Applied)));
    let facts = vec![
        fact(epoch, sent),
        fact(epoch, outcome(epoch)),
        fact(epoch, Seen::Heard { age_ms: 3 }),
        fact(epoch, Seen::Addresses(mk_addresses(&["10.0.0.9"]))),
    ];
    let before = fleet.server.sql("SELECT count(*) FROM events");
    let wanted = FactsRecorded { requests: 1, ..FactsRecorded::default() };
    assert_eq!(fleet.agents.record_facts(fleet.gateway, facts.clone()).await.expect("records"), wanted);
    let after = fleet.server.sql(
        "SELECT count(*), count(DISTINCT xid) FILTER (WHERE kind LIKE '%sent' OR kind LIKE 'outcome%') FROM events",
    );
    let count: u64 = before.trim().parse().expect("a number");
    assert_eq!(after, format!("{}|1\n", count + 2));
    fleet.agents.record_facts(fleet.gateway, facts).await.expect("records");
    assert_eq!(fleet.server.sql("SELECT count(*) FROM events"), format!("{}\n", count + 2));
    let facts = vec![
        fact(first, outcome(first)),
        fact(first, Seen::Closed(CloseReason::Lost)),
        fact(epoch, Seen::Fault { fault: Fault::UnknownUpdate, component: None, update_seq: None }),
        fact(epoch, Seen::Closed(CloseReason::AgentLeft)),
    ];
    let (stale, faults) = (vec![(host, first)], vec![Fault::StaleSession]);
    let stale = FactsRecorded { stale, faults, ..FactsRecorded::default() };
    assert_eq!(fleet.agents.record_facts(fleet.gateway, facts).await.expect("records"), stale);
    let closed = fleet.server.sql("SELECT session_epoch, close_reason FROM sessions");
    assert_eq!(closed, "2|agent_left\n");
    let newest = fleet.agents.newest_of(vec![host, HostId::new(Uuid::from_u128(1))]).await.expect("reads");
    let versions = vec![(Component::Policy, mk_stamp(1).version)];
    assert_eq!(newest.hosts, vec![HostNewest { host, session_epoch: epoch, versions }]);
    assert_eq!(newest.authority, fleet.agents.load_authority().await.expect("reads"));
    let nobody = fleet.agents.newest_of(vec![HostId::new(Uuid::from_u128(1))]).await.expect("reads");
    assert_eq!((nobody.authority, nobody.hosts), (newest.authority, Vec::new()));
}

/// What a status says through its row, and what is judged by it.
async fn judge(fleet: &Fleet, trusts: impl Fn(Signed<'_>) -> bool) -> Verdict {
    let (component, verdict) = verdicts(fleet, trusts).await.remove(0);
    assert_eq!(component, Component::Policy);
    verdict
}

/// What the evidence of each component amounts to.
async fn verdicts(fleet: &Fleet, trusts: impl Fn(Signed<'_>) -> bool) -> Vec<(Component, Verdict)> {
    let status = fleet.operators.fleet_status(None).await.expect("loads");
    let [host] = status.hosts.as_slice() else { panic!("one host") };
    let trusts = |_: &_, signed: Signed<'_>| trusts(signed);
    host.components.iter().map(|one| (one.component, host.verdict_of(one, &trusts))).collect()
}

#[tokio::test]
async fn a_host_that_can_report_is_converged_by_a_report_of_its_session_after_its_last_outcome_and_by_nothing_less() {
    let (fleet, host) = mk_fleet().await;
    let open = async || {
        let opening = Opening { protocol: Some(3), ..mk_opening(host) };
        match fleet.agents.open_sessions(fleet.gateway, vec![opening]).await.expect("opens").as_slice() {
            [Opened::Session { session_epoch, .. }] => *session_epoch,
            other => panic!("{other:?}"),
        }
    };
    let say = async |session_epoch, said| {
        let fact = Fact { host, session_epoch, seen: Seen::Status(Box::new(said)) };
        fleet.agents.record_facts(fleet.gateway, vec![fact]).await.expect("records").stale
    };
    let missing = async || judge(&fleet, |_| true).await.missing;
    let first = open().await;
    let applied = |epoch, seq| vec![mk_report(host, epoch, seq, 1, OutcomeKind::Applied)];
    fleet.agents.record_outcomes(fleet.gateway, applied(first, 1)).await.expect("records");
    assert_eq!(missing().await, Some(Missing::Report));
    assert_eq!(say(first, mk_status(1, 0, 1)).await, []);
    assert_eq!(missing().await, Some(Missing::NewerReport));
    assert_eq!(say(first, mk_status(2, 1, 1)).await, []);
    assert_eq!(missing().await, None);
    let no_report = |signed: Signed<'_>| matches!(signed, Signed::Outcome(_));
    assert_eq!(judge(&fleet, no_report).await.missing, Some(Missing::Signature));
    fleet.agents.record_outcomes(fleet.gateway, applied(first, 2)).await.expect("records");
    assert_eq!(missing().await, Some(Missing::NewerReport), "it answered something since");
    assert_eq!(say(first, mk_status(1, 9, 1)).await, [], "one that comes late changes nothing");
    assert_eq!(missing().await, Some(Missing::NewerReport));

    let second = open().await;
    fleet.agents.record_outcomes(fleet.gateway, applied(second, 1)).await.expect("records");
    assert_eq!(missing().await, Some(Missing::Report), "what it said was of the session before");
    assert_eq!(say(first, mk_status(9, 9, 1)).await, [(host, first)]);
    assert_eq!(missing().await, Some(Missing::Report));
    assert_eq!(say(second, mk_status(1, 1, 1)).await, []);
    assert_eq!(missing().await, None);
    let told = fleet.server.sql("SELECT count(*) FROM events WHERE kind = 'status.recorded'");
    assert_eq!(told, "1\n", "what is the same is told once");
}

#[tokio::test]
async fn a_status_is_news_if_it_says_something_else_or_counts_anew_and_not_if_it_is_said_again() {
    let (fleet, host) = mk_fleet().await;
    let first = fleet.open(host).await;
    let news = async |session_epoch, said: Vec<StatusSaid>| {
        let fact = |said| Fact { host, session_epoch, seen: Seen::Status(Box::new(said)) };
        let facts = said.into_iter().map(fact).collect();
        fleet.agents.record_facts(fleet.gateway, facts).await.expect("records").statuses_new
    };
    assert_eq!(news(first, vec![mk_status(1, 0, 1), mk_status(2, 0, 1)]).await, 1, "the first");
    assert_eq!(news(first, vec![mk_status(3, 0, 1)]).await, 0, "the same again");
    assert_eq!(news(first, vec![mk_status(4, 1, 1)]).await, 1, "it answered something since");
    assert_eq!(news(first, vec![mk_status(5, 1, 2)]).await, 1, "it has something else");
    assert_eq!(news(first, vec![mk_status(5, 1, 2), mk_status(4, 9, 9)]).await, 0, "late ones");
    let second = fleet.open(host).await;
    assert_eq!(news(second, vec![mk_status(1, 1, 2)]).await, 1, "another session");
    assert_eq!(news(first, vec![mk_status(9, 9, 3)]).await, 0, "one that is over");
}

/// A host with version 1 in a session that has words for reports, by an outcome and a report of it.
async fn mk_reporting() -> (Fleet, HostId, SessionEpoch) {
    let (fleet, host) = mk_fleet().await;
    let session_epoch = open_with(&fleet, host, Some(3)).await;
    let applied = mk_report(host, session_epoch, 1, 1, OutcomeKind::Applied);
    fleet.agents.record_outcomes(fleet.gateway, vec![applied]).await.expect("records");
    say(&fleet, host, session_epoch, mk_status(1, 1, 1)).await;
    (fleet, host, session_epoch)
}

async fn open_with(fleet: &Fleet, host: HostId, protocol: Option<u16>) -> SessionEpoch {
    let opening = Opening { protocol, ..mk_opening(host) };
    let opened = fleet.agents.open_sessions(fleet.gateway, vec![opening]).await.expect("opens");
    let [Opened::Session { session_epoch, .. }] = opened.as_slice() else { panic!("{opened:?}") };
    *session_epoch
}

async fn say(fleet: &Fleet, host: HostId, session_epoch: SessionEpoch, said: StatusSaid) {
    let fact = Fact { host, session_epoch, seen: Seen::Status(Box::new(said)) };
    fleet.agents.record_facts(fleet.gateway, vec![fact]).await.expect("records");
}

#[tokio::test]
async fn a_report_that_is_not_said_again_in_time_proves_nothing_and_the_databases_absence_is_no_age() {
    let (fleet, host, session_epoch) = mk_reporting().await;
    let missing = async || judge(&fleet, |_| true).await.missing;
    fleet.server.sql("UPDATE statuses SET told_at = now() - interval '14 min 50 s'");
    assert_eq!(missing().await, None);
    fleet.server.sql("UPDATE statuses SET told_at = now() - interval '15 min 1 s'");
    assert_eq!(missing().await, Some(Missing::ReportInTime));
    // Nobody could write it for the most of that.
    fleet.server.sql(
        "UPDATE pulse SET beat_at = now(), away_from = now() - interval '14 min', away_until = now() - interval '40 s'",
    );
    assert_eq!(missing().await, None, "it is away no more, and had no time to say it again");
    fleet
        .server
        .sql("UPDATE pulse SET away_until = now() - interval '15 min 1 s', away_from = now() - interval '16 min'");
    assert_eq!(missing().await, Some(Missing::ReportInTime));
    fleet.server.sql("UPDATE pulse SET beat_at = now() - interval '16 min', away_from = NULL, away_until = NULL");
    assert_eq!(missing().await, None, "it is away now");
    fleet.server.sql("UPDATE pulse SET beat_at = now()");
    say(&fleet, host, session_epoch, mk_status(2, 1, 1)).await;
    assert_eq!(missing().await, None, "it says it again");

    // A gateway that refuses each of them from the beginning of the session: what was on its way then is unknown now.
    let second = open_with(&fleet, host, Some(3)).await;
    let applied = mk_report(host, second, 1, 1, OutcomeKind::Applied);
    fleet.agents.record_outcomes(fleet.gateway, vec![applied]).await.expect("records");
    assert_eq!(missing().await, Some(Missing::Report));
    fleet.render(1, 2, &[host]).await;
    assert_eq!(missing().await, Some(Missing::Latest));
    fleet.server.sql("UPDATE sessions SET opened_at = now() - interval '15 min 1 s'");
    assert_eq!(missing().await, Some(Missing::ReportInTime));
}

#[tokio::test]
async fn since_when_a_report_says_that_something_fails_stays_while_it_is_said_again_of_one_version_in_one_session() {
    let (fleet, host, first) = mk_reporting().await;
    let read = async || {
        let status = fleet.operators.fleet_status(None).await.expect("loads");
        let report = status.hosts[0].report.as_ref().expect("it reported");
        (report.failing_since(Component::Policy), report.at)
    };
    let with = |seq, version, kinds: &[ConditionType]| {
        let mut said = mk_status(seq, 1, version);
        for one in &mut said.report.components[0].conditions {
            if kinds.contains(&one.condition.kind) {
                one.condition.status = Holds::False;
            }
        }
        said
    };
    assert_eq!(read().await.0, None);
    say(&fleet, host, first, with(2, 1, &[ConditionType::Verified])).await;
    let (since, told) = read().await;
    assert_eq!(since, Some(told), "the first of them");
    say(&fleet, host, first, with(3, 1, &[ConditionType::Verified])).await;
    let again = read().await;
    assert!(again.0 == since && again.1 > told, "told again: {again:?}");
    say(&fleet, host, first, with(4, 1, &[ConditionType::Verified, ConditionType::NoDrift])).await;
    assert_eq!(read().await.0, since, "what does not block is beside it");
    say(&fleet, host, first, with(5, 2, &[ConditionType::Verified])).await;
    let (other, told) = read().await;
    assert_eq!(other, Some(told), "another version is tried");
    say(&fleet, host, first, with(6, 2, &[ConditionType::NoDrift])).await;
    assert_eq!(read().await.0, None, "nothing that blocks");
    say(&fleet, host, first, with(7, 2, &[ConditionType::Verified])).await;
    let second = open_with(&fleet, host, Some(3)).await;
    say(&fleet, host, second, with(1, 2, &[ConditionType::Verified])).await;
    let (since, told) = read().await;
    assert_eq!(since, Some(told), "another session");
}

#[tokio::test]
async fn of_a_session_that_an_earlier_build_opens_no_protocol_is_known() {
    let (fleet, host, _) = mk_reporting().await;
    let protocol = || fleet.server.sql("SELECT coalesce(protocol::text, 'none') FROM sessions");
    assert_eq!(protocol(), "3\n");
    // Word for word what a gateway says that knows of no protocol.
    fleet.server.sql(
        "UPDATE sessions s SET session_epoch = s.session_epoch + 1, agent_version = '0.0.9', opened_at = transaction_timestamp(), closed_at = NULL, \
         close_reason = NULL",
    );
    assert_eq!(protocol(), "none\n");
    fleet.server.sql("UPDATE sessions SET closed_at = now(), close_reason = 'lost'");
    open_with(&fleet, host, Some(3)).await;
    assert_eq!(protocol(), "3\n");
    open_with(&fleet, host, None).await;
    assert_eq!(protocol(), "none\n", "it polls");
}

/// Each word that a foreign hand, or a newer build, may have written of the one host; the other one is told as ever.
#[tokio::test]
async fn a_stored_word_that_cannot_be_read_costs_the_host_that_it_is_of_and_names_its_column() {
    let (fleet, host, session_epoch) = mk_reporting().await;
    let drift = Fact { host, session_epoch, seen: Seen::Drift(Box::new(mk_drift(DriftKind::Found, 1))) };
    fleet.agents.record_facts(fleet.gateway, vec![drift]).await.expect("records");
    let other = fleet.enrol("b", "10.0.0.2").await;
    fleet.render(2, 1, &[other]).await;
    let epoch = fleet.open(other).await;
    let applied = mk_report(other, epoch, 1, 1, OutcomeKind::Applied);
    fleet.agents.record_outcomes(fleet.gateway, vec![applied]).await.expect("records");
    let read = async || {
        let status = fleet.operators.fleet_status(None).await.expect("the others are told");
        let of = |wanted| {
            let one = status.hosts.iter().find(|one| one.host == wanted).expect("it is a host");
            (one.verdict_of(&one.components[0], &|_: &_, _: Signed<'_>| true).missing, one.unreadable)
        };
        (of(host), of(other))
    };
    let well = (None, None);
    assert_eq!(read().await, (well, well));
    let words = [
        ("observed", "reason", "'nonsense'", "observed.reason"),
        ("observed", "outcome", "77", "observed.outcome"),
        ("observed", "conditions", "'[{}]'", "observed.conditions"),
        ("statuses", "components", "'{}'", "statuses.components"),
        ("statuses", "failing", "'[1]'", "statuses.failing"),
        ("drifts", "counts", "'[7]'", "drifts.counts"),
        ("host_facts", "labels", "'[]'", "host_facts.labels"),
    ];
    // Who it is says its id then, which is no name that anybody may give; the row is what others hang on, and is put right in its place.
    for (column, named) in [("name", "hosts.name"), ("namespace", "hosts.namespace")] {
        let of = format!("host_id = '{}'", host.uuid());
        let right = fleet.server.sql(&format!("SELECT {column} FROM hosts WHERE {of}")).trim().to_owned();
        fleet.server.sql(&format!("UPDATE hosts SET {column} = 'No Name' WHERE {of}"));
        assert_eq!(read().await, ((Some(Missing::Readable), Some(named)), well), "hosts.{column}");
        let status = fleet.operators.fleet_status(Some(vec![host])).await.expect("the host is told");
        let told = if column == "name" { &status.hosts[0].name } else { &status.hosts[0].namespace };
        assert_eq!((told.as_str(), told.as_str().parse::<Name>().is_err()), (host.to_string().as_str(), true));
        fleet.server.sql(&format!("UPDATE hosts SET {column} = '{right}' WHERE {of}"));
        assert_eq!(read().await, (well, well), "hosts.{column} is put right");
    }
    for (table, column, wrong, named) in words {
        let of = format!("host_id = '{}'", host.uuid());
        let cast = if wrong.starts_with("'[") || wrong.starts_with("'{") { "::jsonb" } else { "" };
        fleet.server.sql(&format!("CREATE TABLE kept AS SELECT * FROM {table} WHERE {of}"));
        fleet.server.sql(&format!("UPDATE {table} SET {column} = {wrong}{cast} WHERE {of}"));
        assert_eq!(read().await, ((Some(Missing::Readable), Some(named)), well), "{table}.{column}");
        fleet
            .server
            .sql(&format!("DELETE FROM {table} WHERE {of}; INSERT INTO {table} SELECT * FROM kept; DROP TABLE kept"));
        assert_eq!(read().await, (well, well), "{table}.{column} is put right");
    }
    // What it says anew stands in the place of what cannot be read.
    fleet.server.sql("UPDATE statuses SET failing = '[1]'::jsonb, components = '{}'::jsonb");
    say(&fleet, host, session_epoch, mk_status(9, 1, 1)).await;
    assert_eq!(read().await, (well, well));
}

#[tokio::test]
async fn the_time_in_which_most_hosts_were_silent_is_held_against_none_of_them_afterwards() {
    use holdfast_model::silence::Presence;
    let (fleet, a) = mk_fleet().await;
    let mut hosts = vec![a];
    for (name, address) in [("b", "10.0.0.2"), ("c", "10.0.0.3"), ("d", "10.0.0.4")] {
        hosts.push(fleet.enrol(name, address).await);
    }
    for host in &hosts {
        fleet.open(*host).await;
    }
    let heard = |hosts: &[HostId], ago: &str| {
        for host in hosts {
            let set =
                format!("UPDATE presence SET heard_at = now() - interval '{ago}' WHERE host_id = '{}'", host.uuid());
            fleet.server.sql(&set);
        }
    };
    let presence = async || {
        let status = fleet.operators.fleet_status(None).await.expect("loads");
        let of = |wanted: &HostId| status.hosts.iter().find(|one| one.host == *wanted).expect("a host").presence;
        hosts.iter().map(of).collect::<Vec<_>>()
    };
    let (present, silent, lost) = (Presence::Present, Presence::Silent, Presence::Lost);
    // The first was lost before anything happened to the others.
    heard(&hosts[..1], "30 min");
    fleet.agents.beat().await.expect("beats");
    assert_eq!(presence().await, [lost, present, present, present]);
    assert_eq!(fleet.server.sql("SELECT silent_from IS NULL FROM pulse"), "t\n");
    heard(&hosts[1..], "12 min");
    fleet.agents.beat().await.expect("beats");
    assert_eq!(presence().await, [silent; 4], "most are silent");
    // It was seen as it began, and lasts.
    fleet.server.sql("UPDATE pulse SET silent_from = now() - interval '12 min', silent_until = now() - interval '5 s'");
    fleet.operators.beat().await.expect("beats");
    assert_eq!(
        fleet
            .server
            .sql("SELECT silent_from < now() - interval '11 min', silent_until > now() - interval '3 s' FROM pulse"),
        "t|t\n"
    );
    // Two come back: the other has as long as it would have had.
    heard(&[hosts[1], hosts[3]], "0 s");
    fleet.operators.beat().await.expect("beats");
    assert_eq!(presence().await, [lost, present, silent, present]);
    fleet
        .server
        .sql("UPDATE pulse SET silent_from = now() - interval '21 min', silent_until = now() - interval '9 min 50 s'");
    heard(&hosts[2..3], "21 min");
    assert_eq!(presence().await, [lost, present, silent, present]);
    fleet
        .server
        .sql("UPDATE pulse SET silent_from = now() - interval '21 min', silent_until = now() - interval '10 min 1 s'");
    assert_eq!(presence().await, [lost, present, lost, present], "ten minutes alone");
}

/// Generated from the vocabulary, through the row and the read: a condition of any component that blocks and is not seen is never converged.
#[tokio::test]
async fn a_report_that_lacks_the_truth_of_any_condition_that_blocks_is_stored_and_never_converged() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    let mut commit = fleet.mk_commit(1, 1, &[host]);
    let policy = commit.states.remove(0);
    let state = |component| SignedState { desired: Desired { component, ..policy.desired }, ..policy };
    commit.states = Component::ALL.map(state).to_vec();
    fleet.renderer.commit_render(commit).await.expect("commits");
    let opening = Opening { protocol: Some(3), ..mk_opening(host) };
    let opened = fleet.agents.open_sessions(fleet.gateway, vec![opening]).await.expect("opens");
    let [Opened::Session { session_epoch, .. }] = opened.as_slice() else { panic!("{opened:?}") };
    let session_epoch = *session_epoch;
    let mut applied: Vec<_> = (1..=4).map(|seq| mk_report(host, session_epoch, seq, 1, OutcomeKind::Applied)).collect();
    for (one, component) in applied.iter_mut().zip(Component::ALL) {
        one.outcome.component = component;
    }
    fleet.agents.record_outcomes(fleet.gateway, applied).await.expect("records");
    let mut seq = 0;
    let of = |component: Component| ConditionType::of(component).iter().map(move |kind| (component, *kind));
    for (component, kind) in Component::ALL.into_iter().flat_map(of) {
        for (status, basis) in
            [(Holds::Unknown, Basis::Observed), (Holds::False, Basis::Observed), (Holds::True, Basis::Inferred)]
        {
            seq += 1;
            let held = Component::ALL.map(|component| (component, mk_stamp(1)));
            let mut said = StatusSaid { seq, ..mk_status(1, 4, 1) };
            said.report = HostReport::of_health(&held, UpdateSeq::from_raw(4), 1_790_000_000_000 + seq);
            let mut of_component = said.report.components.iter_mut().filter(|one| one.component == component);
            let conditions = of_component.next().expect("every component").conditions.iter_mut();
            let one = conditions.into_iter().find(|one| one.condition.kind == kind).expect("each of its conditions");
            (one.condition.status, one.basis) = (status, basis);
            let fact = Fact { host, session_epoch, seen: Seen::Status(Box::new(said)) };
            fleet.agents.record_facts(fleet.gateway, vec![fact]).await.expect("records");
            let counts = basis == Basis::Observed || kind.can_decay();
            let wanted = match (status, kind.is_blocking() && counts) {
                (Holds::False, true) => State::Failed,
                (Holds::False, false) => State::Degraded,
                (_, true) => State::Unknown,
                (_, false) => State::Converged,
            };
            for (found, verdict) in verdicts(&fleet, |_| true).await {
                let wanted = if found == component { wanted } else { State::Converged };
                assert_eq!(verdict.state, wanted, "{found}, by {component} {kind} {status:?} {basis:?}");
            }
        }
    }
}

#[tokio::test]
async fn drift_is_told_once_with_what_was_lost_and_the_newest_of_each_kind_is_kept() {
    let (fleet, host) = mk_fleet().await;
    let first = fleet.open(host).await;
    let tell = async |session_epoch, said: Vec<DriftSaid>| {
        let fact = |said| Fact { host, session_epoch, seen: Seen::Drift(Box::new(said)) };
        fleet.agents.record_facts(fleet.gateway, said.into_iter().map(fact).collect()).await.expect("records").stale
    };
    let found = |total| mk_drift(DriftKind::Found, total);
    assert_eq!(tell(first, vec![found(1), mk_drift(DriftKind::Repaired, 1)]).await, []);
    assert_eq!(tell(first, vec![found(1), found(1)]).await, [], "a repetition says nothing new");
    let second = fleet.open(host).await;
    assert_eq!(tell(first, vec![found(9)]).await, [(host, first)], "of a session that is over");
    // What was lost on the way is in the next one's count.
    assert_eq!(tell(second, vec![found(5), found(4)]).await, []);
    let anew = DriftSaid { instance: Uuid::from_u128(7), process: None, age_ms: u64::MAX, ..found(u64::MAX) };
    assert_eq!(tell(second, vec![anew.clone(), DriftSaid { total: 2, ..anew }]).await, []);
    let events = fleet.server.sql(
        "SELECT payload->>'count', payload->>'process', payload->'counts'->>'rules_foreign' FROM events \
         WHERE kind = 'drift.found' ORDER BY lid",
    );
    let counts: Vec<&str> = events.lines().collect();
    assert_eq!(counts, ["1|nft|2", "4|nft|2", &format!("{}||2", i64::MAX)]);
    let kept = fleet.server.sql("SELECT kind, instance, total, process FROM drifts ORDER BY kind");
    let instance = |n: u128| Uuid::from_u128(n).to_string();
    assert_eq!(kept, format!("1|{}|{}|\n2|{}|1|nft\n", instance(7), i64::MAX, instance(6)));
}
