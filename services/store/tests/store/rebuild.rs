//! `rebuild --check`: silent on what the store wrote, and awake for a hand in any column.

use std::collections::BTreeSet;

use holdfast_events::{
    ApiTokenCreated, CloseReason, Detail, Directive, DirectiveKind, Fault, HaltReason, Label128, NamespaceScope,
    OperationState, ProtocolFault, Role,
};
use holdfast_model::desired::Component;
use holdfast_model::drift::DriftKind;
use holdfast_model::ids::ApiTokenId;
use holdfast_model::intent::{AddressGroupSpec, Object, Spec};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::OutcomeKind;
use holdfast_store::authority::Confirmed;
use holdfast_store::intent::{Applied, Decommission, Decommissioned, IntentChange};
use holdfast_store::order::Horizon;
use holdfast_store::rebuild::{OUTSIDE, RebuildReport, compared_tables};
use holdfast_store::request::Decision;
use holdfast_store::rollout::RolloutStep;
use holdfast_store::session::{Closing, Fact, HOLD, Instance, Opened, Opening, Seen, SnapshotReport};
use holdfast_store::token::TokenHash;
use uuid::Uuid;

use crate::common::{
    Fleet, OPERATOR, mk_addresses, mk_certificate, mk_change, mk_drift, mk_enrolment, mk_finish, mk_name, mk_namespace,
    mk_opening, mk_report, mk_stamp, mk_status,
};

/// A fleet in which every kind of event has happened, and every column of every table has a value in some row.
async fn mk_lived_in() -> Fleet {
    let fleet = Fleet::start().await;
    let token = fleet.create_token("10.0.0.0/8", 9).await;
    live_intent(&fleet).await;
    let host = fleet.enrol("a", "10.0.0.1").await;
    let other = fleet.enrol("b", "10.0.0.2").await;
    let taken = fleet.agents.request_enrolment(fleet.gateway, mk_enrolment("a", &["10.0.0.3"])).await;
    assert!(taken.expect("asks").is_ok(), "the name is found taken only when it is decided");
    fleet.agents.report_addresses(fleet.gateway, vec![(host, mk_addresses(&["10.0.0.4"]))]).await.expect("reports");
    fleet.agents.request_certificate(fleet.gateway, other, vec![1]).await.expect("asks");
    for (request, n) in fleet.renderer.waiting_requests(10).await.expect("reads").into_iter().zip(1..) {
        let grant = Decision::Grant(Some(mk_certificate(&format!("c{n}"))));
        fleet.renderer.decide_request(fleet.term, request, grant).await.expect("decides");
    }
    fleet.render(5, 1, &[host, other]).await;
    fleet.renderer.number_events(fleet.term, Horizon::default()).await.expect("numbers");
    fleet.render(6, 2, &[host]).await;
    live_session(&fleet, host).await;
    live_session(&fleet, other).await;
    contest(&fleet, other).await;
    fleet.open(host).await;
    let asked = Directive { kind: DirectiveKind::Reconnect, host };
    fleet.operators.record_directive(OPERATOR, asked).await.expect("records");
    let gone = fleet.enrol("gone", "10.0.0.9").await;
    live_session(&fleet, gone).await;
    fleet.open(gone).await;
    let asked =
        Decommission { actor: OPERATOR, host: gone, detail: Detail::new("a drill"), expected: None, because: None };
    assert!(matches!(fleet.operators.decommission(asked).await, Ok(Decommissioned::Out { .. })));
    fleet.operators.revoke_enrol_token(OPERATOR, token).await.expect("revokes");
    let detail = Detail::new("a drill");
    fleet.operators.raise_authority_epoch(OPERATOR, detail, None).await.expect("raises");
    fleet.come_back(host, 9).await;
    assert_eq!(fleet.operators.confirm_rollback(OPERATOR, 1).await.expect("confirms"), Confirmed::Hosts(1));
    assert_eq!(fleet.follow(2).await, [host]);
    live_rollouts(&fleet, &[host, other]).await;
    fleet.renderer.number_events(fleet.term, Horizon::default()).await.expect("numbers");
    fleet.put(vec![mk_namespace("late", "x")]).await;
    fleet
}

/// One that finishes, after it was paused; one that is halted, resumed and aborted.
async fn live_rollouts(fleet: &Fleet, hosts: &[holdfast_model::ids::HostId]) {
    let finished = fleet.begin("r", "1", hosts).await;
    let (asks, key) = (|| finished.id, None);
    fleet.operators.pause_rollout(OPERATOR, asks(), None, key.clone()).await.expect("pauses");
    fleet.operators.resume_rollout(OPERATOR, asks(), None, key).await.expect("resumes");
    for step in [RolloutStep::Open, mk_finish()] {
        fleet.let_go(finished.id).await;
        let seen = fleet.operators.load_rollout(finished.id).await.expect("reads").expect("is there");
        assert!(fleet.operators.step_rollout(OPERATOR, &seen, step).await.expect("steps"));
    }
    let aborted = fleet.begin("r", "2", hosts).await;
    let halt = RolloutStep::Halt { reason: HaltReason::Failed, hosts: hosts.to_vec(), detail: Detail::new("2 failed") };
    assert!(fleet.operators.step_rollout(OPERATOR, &aborted, halt).await.expect("steps"));
    fleet.operators.abort_rollout(OPERATOR, aborted.id, None, None).await.expect("aborts");
}

async fn live_intent(fleet: &Fleet) {
    let cidr = |n: u32| ipnet::Ipv4Net::new((n << 8).into(), 24).expect("a prefix").into();
    let group = Object {
        namespace: mk_name("a"),
        name: mk_name("g"),
        spec: Spec::AddressGroup(AddressGroupSpec { cidrs: (0..5_000).map(cidr).collect() }),
    };
    let Applied::Changed { operation, .. } = fleet.put(vec![mk_namespace("a", "x"), group.clone()]).await else {
        panic!("changes")
    };
    fleet.put(vec![mk_namespace("a", "y")]).await;
    let deletion = IntentChange { deletes: vec![group.key()], ..mk_change(Vec::new()) };
    fleet.operators.apply_intent(deletion).await.expect("applies");
    fleet.put(vec![group]).await;
    let (state, detail) = (OperationState::Applied, Detail::new("everywhere"));
    assert!(fleet.operators.finish_operation(OPERATOR, operation, state, detail.clone()).await.expect("finishes"));
    assert!(!fleet.operators.finish_operation(OPERATOR, operation, state, detail).await.expect("answers"));
    let token = ApiTokenId::new(Uuid::now_v7());
    let created = ApiTokenCreated {
        token,
        name: Label128::new("ci"),
        role: Role::Editor,
        namespaces: NamespaceScope::All,
        expires_at: Some(time::OffsetDateTime::now_utc()),
    };
    fleet.operators.create_api_token(OPERATOR, created, TokenHash([1; 32])).await.expect("creates");
    fleet.operators.revoke_api_token(OPERATOR, token).await.expect("revokes");
}

async fn live_session(fleet: &Fleet, host: holdfast_model::ids::HostId) {
    let first = fleet.open(host).await;
    let epoch = fleet.open(host).await;
    let (component, update_seq) = (Component::Policy, UpdateSeq::from_raw(1));
    let sent = SnapshotReport { host, session_epoch: epoch, component, stamp: mk_stamp(1), update_seq };
    fleet.agents.record_snapshots_sent(fleet.gateway, vec![sent]).await.expect("records");
    let reports = vec![
        mk_report(host, first, 1, 1, OutcomeKind::Applied),
        mk_report(host, epoch, 1, 1, OutcomeKind::Applied),
        mk_report(host, epoch, 2, 2, OutcomeKind::Failed),
        mk_report(host, epoch, 3, 2, OutcomeKind::Applied),
    ];
    fleet.agents.record_outcomes(fleet.gateway, reports).await.expect("records");
    let fault = ProtocolFault {
        host,
        session_epoch: epoch,
        fault: Fault::UnknownUpdate,
        component: None,
        update_seq: Some(UpdateSeq::from_raw(9)),
    };
    fleet.agents.record_faults(fleet.gateway, vec![fault]).await.expect("records");
    let said = DriftKind::ALL.map(|kind| mk_drift(kind, 1)).into_iter().chain([mk_drift(DriftKind::Found, 3)]);
    let drift = said.map(|said| Fact { host, session_epoch: epoch, seen: Seen::Drift(Box::new(said)) });
    fleet.agents.record_facts(fleet.gateway, drift.collect()).await.expect("records");
    // The first is said again, and then something else.
    let statuses = [mk_status(1, 0, 1), mk_status(2, 2, 1), mk_status(3, 3, 2)];
    let statuses = statuses.map(|said| Fact { host, session_epoch: epoch, seen: Seen::Status(Box::new(said)) });
    fleet.agents.record_facts(fleet.gateway, statuses.into()).await.expect("records");
    let closing = Closing { host, session_epoch: epoch, reason: CloseReason::Lost };
    fleet.agents.close_sessions(fleet.gateway, vec![closing]).await.expect("closes");
}

/// Two agents take the session of one host from each other in turn.
async fn contest(fleet: &Fleet, host: holdfast_model::ids::HostId) {
    let by = |n: u8| {
        let instance = Instance { boot_id: Uuid::from_u128(n.into()), address: [10, 0, 1, n].into() };
        Opening { instance, ..mk_opening(host) }
    };
    for n in [1, 2, 1, 2] {
        let opened = fleet.agents.open_sessions(fleet.gateway, vec![by(n)]).await.expect("asks");
        assert!(matches!(opened.as_slice(), [Opened::Session { .. }]), "{opened:?}");
    }
    let opened = fleet.agents.open_sessions(fleet.gateway, vec![by(1), by(2)]).await.expect("asks");
    let [Opened::Contested { retry_after }, Opened::Session { .. }] = opened.as_slice() else { panic!("{opened:?}") };
    assert!(*retry_after <= HOLD, "{retry_after:?}");
}

async fn check(fleet: &Fleet) -> RebuildReport {
    fleet.operators.rebuild_check().await.expect("checks")
}

#[tokio::test]
async fn what_the_store_wrote_is_what_its_events_say() {
    let fleet = mk_lived_in().await;
    let report = check(&fleet).await;
    assert_eq!(report.differences, Vec::new());
    assert!(report.events > 40 && report.rows > 40 && report.artifacts == 3, "{report:?}");
    assert_eq!(report.unnumbered, 2, "the last change");
    let kinds = fleet.server.sql("SELECT count(DISTINCT kind) FROM events");
    assert_eq!(kinds.trim().parse::<usize>().expect("a number"), holdfast_events::Kind::ALL.len());
    let reader = fleet.server.store("holdfast_reader").rebuild_check().await.expect("checks");
    assert_eq!(reader.differences, Vec::new());
}

#[tokio::test]
async fn a16_instants_of_outcomes_from_before_they_had_columns_are_those_of_the_events() {
    let fleet = mk_lived_in().await;
    fleet.server.sql("UPDATE observed SET last_acked_at = NULL, last_apply_failed_at = NULL");
    let missing: BTreeSet<String> = check(&fleet).await.differences.into_iter().map(|found| found.column).collect();
    assert_eq!(missing.iter().map(String::as_str).collect::<Vec<_>>(), ["last_acked_at", "last_apply_failed_at"]);
    fleet.server.sql(include_str!("../../../../schema/sql/migrations/0022_instants_of_outcomes.sql"));
    assert_eq!(check(&fleet).await.differences, Vec::new());
}

#[tokio::test]
async fn every_table_is_compared_or_said_to_be_outside() {
    let fleet = Fleet::start().await;
    let tables = fleet.server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1");
    let found: BTreeSet<&str> = tables.lines().collect();
    let listed = compared_tables().into_iter().map(|(name, _)| name).chain(OUTSIDE.iter().map(|(name, _)| *name));
    assert_eq!(listed.collect::<BTreeSet<_>>(), found);
}

/// How a hand changes a column of a type.
fn edit(column: &str, kind: &str) -> String {
    match kind {
        "bigint" | "integer" | "smallint" => format!("coalesce({column}, 0) + 1000"),
        "text" => format!("coalesce({column}, '') || 'x'"),
        "timestamp with time zone" => format!("coalesce({column}, now()) + interval '1 microsecond'"),
        "uuid" => "gen_random_uuid()".to_owned(),
        "jsonb" => "'{\"hand\": 1}'".to_owned(),
        "boolean" => format!("NOT {column}"),
        "bytea" => {
            format!("set_byte(coalesce({column}, '\\x00'), 0, (get_byte(coalesce({column}, '\\x00'), 0) + 1) % 256)")
        }
        "ARRAY" => format!("array_append({column}, '203.0.113.9'::inet)"),
        other => panic!("{column} has a type that no test edits: {other}"),
    }
}

#[tokio::test]
async fn a_hand_in_any_column_of_any_projection_is_found_and_named() {
    let fleet = mk_lived_in().await;
    // The hand is the superuser's: no constraint stops it.
    fleet.server.sql(
        "DO $$ DECLARE c record; BEGIN FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint \
         WHERE contype = 'c' AND connamespace = 'public'::regnamespace LOOP \
         EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$",
    );
    let mut edited = 0;
    for (table, outside) in compared_tables() {
        let columns = fleet.server.sql(&format!(
            "SELECT column_name || '|' || data_type FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name = '{table}' ORDER BY ordinal_position"
        ));
        fleet.server.sql(&format!("CREATE TABLE kept AS SELECT * FROM {table}"));
        let restore = format!("TRUNCATE {table}; INSERT INTO {table} SELECT * FROM kept");
        let last = format!("ctid = (SELECT max(ctid) FROM {table})");
        for line in columns.lines() {
            let (column, kind) = line.split_once('|').expect("two fields");
            if outside.contains(&column) {
                continue;
            }
            let value = edit(column, kind);
            fleet.server.sql(&format!("{restore}; UPDATE {table} SET {column} = {value} WHERE {last}"));
            let differences = check(&fleet).await.differences;
            // A hand in what names a row makes it another row.
            let is_named = differences.iter().any(|found| {
                let is_row = found.column == "*" && found.key.contains(&format!("{column}="));
                found.table == table && (found.column == column || is_row)
            });
            assert!(is_named, "a hand in {table}.{column} is not found: {differences:?}");
            let is_only = differences.iter().all(|found| found.table == table || found.table == "artifacts");
            assert!(is_only, "{differences:?}");
            edited += 1;
        }
        fleet.server.sql(&format!("{restore}; DELETE FROM {table} WHERE {last}"));
        let differences = check(&fleet).await.differences;
        assert!(differences.iter().any(|found| found.table == table && found.found == "no row"), "{table}");
        fleet.server.sql(&format!("{restore}; DROP TABLE kept"));
    }
    assert!(edited > 110, "{edited} columns");
    assert_eq!(check(&fleet).await.differences, Vec::new(), "everything was put back");
}

#[tokio::test]
async fn altered_artifacts_events_and_places_are_found() {
    let fleet = mk_lived_in().await;
    let expect = async |sql: &str, table: &str, column: &str| {
        let differences = check(&fleet).await.differences;
        let is_named = differences.iter().any(|found| found.table == table && found.column == column);
        assert!(is_named, "{sql}: {differences:?}");
    };
    fleet.server.sql("ALTER TABLE events DISABLE TRIGGER ALL; ALTER TABLE event_order DISABLE TRIGGER ALL");
    for (table, sql, column) in [
        (
            "artifacts",
            "UPDATE artifacts SET bytes = bytes || '\\x00' WHERE ctid = (SELECT max(ctid) FROM artifacts)",
            "bytes",
        ),
        ("artifacts", "DELETE FROM artifacts WHERE ctid = (SELECT max(ctid) FROM artifacts)", "*"),
        ("event_order", "DELETE FROM event_order WHERE authority_epoch = 1 AND seq = 3", "seq"),
        (
            "event_order",
            "UPDATE event_order SET event_id = gen_random_uuid() WHERE authority_epoch = 1 AND seq = 3",
            "event_id",
        ),
        ("events", "UPDATE events SET subjects = '{x}' WHERE lid = 3", "subjects"),
    ] {
        fleet.server.sql(&format!("CREATE TABLE kept AS SELECT * FROM {table}"));
        fleet.server.sql(sql);
        expect(sql, table, column).await;
        let overriding = if table == "events" { "OVERRIDING SYSTEM VALUE" } else { "" };
        fleet
            .server
            .sql(&format!("TRUNCATE {table}; INSERT INTO {table} {overriding} SELECT * FROM kept; DROP TABLE kept"));
    }
    assert_eq!(check(&fleet).await.differences, Vec::new(), "everything was put back");
    // A payload that was changed differs from the projection that it made.
    fleet.server.sql(
        "UPDATE events SET payload = jsonb_set(payload, '{name}', '\"someone-else\"') WHERE kind = 'host.enrolled'",
    );
    expect("payload", "hosts", "name").await;
}
