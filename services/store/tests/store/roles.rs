//! Each role can do what its process needs and nothing else; nobody changes what happened.

use crate::common::{Fleet, mk_namespace};

fn is_refused(fleet: &Fleet, role: &str, sql: &str) -> bool {
    let config = fleet.server.config(role);
    let output = std::process::Command::new("psql")
        .args(["-h", &config.host, "-U", role, "-d", "holdfast", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .output()
        .expect("psql runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_refused = ["permission denied", "row-level security", "only ever added", "GENERATED ALWAYS"]
        .iter()
        .any(|part| text.contains(part));
    assert!(output.status.success() || is_refused, "{role}: {sql}: {text}");
    is_refused
}

const ROLES: [&str; 4] =
    ["holdfast_renderer", "holdfast_gateway_agents", "holdfast_gateway_operators", "holdfast_reader"];

#[tokio::test]
async fn no_role_changes_or_removes_an_event_or_its_place() {
    let fleet = Fleet::start().await;
    fleet.renderer.number_events(fleet.term, Default::default()).await.expect("numbers");
    for role in ROLES.into_iter().chain(["holdfast_owner", "postgres"]) {
        for sql in [
            "UPDATE events SET kind = kind",
            "DELETE FROM events",
            "TRUNCATE events",
            "UPDATE event_order SET seq = seq",
            "DELETE FROM event_order",
            "TRUNCATE event_order",
        ] {
            assert!(is_refused(&fleet, role, sql), "{role}: {sql}");
        }
    }
}

#[tokio::test]
async fn a_door_states_its_own_facts_only_and_never_their_time_or_number() {
    let fleet = Fleet::start().await;
    let insert = |kind: &str| {
        format!(
            "INSERT INTO events (event_id, actor, kind, subjects, payload) \
             VALUES (gen_random_uuid(), 'renderer', '{kind}', '{{}}', '{{}}')"
        )
    };
    let kinds = [
        ("render.desired", "holdfast_renderer"),
        ("host.enrolled", "holdfast_renderer"),
        ("outcome.recorded", "holdfast_gateway_agents"),
        ("session.opened", "holdfast_gateway_agents"),
        ("session.contested", "holdfast_gateway_agents"),
        ("drift.found", "holdfast_gateway_agents"),
        ("drift.settled", "holdfast_gateway_agents"),
        ("status.recorded", "holdfast_gateway_agents"),
        ("intent.object.put", "holdfast_gateway_operators"),
        ("token.api.created", "holdfast_gateway_operators"),
    ];
    for (kind, owner) in kinds {
        for role in ROLES {
            assert_eq!(is_refused(&fleet, role, &insert(kind)), role != owner, "{role}: {kind}");
        }
    }
    for column in ["lid", "xid", "at"] {
        let sql = insert("render.desired").replace("(event_id", &format!("({column}, event_id"));
        let value = if column == "at" {
            "now()"
        } else if column == "xid" {
            "'1'"
        } else {
            "1"
        };
        let sql = sql.replace("VALUES (gen", &format!("VALUES ({value}, gen"));
        assert!(is_refused(&fleet, "holdfast_renderer", &sql), "{column}");
    }
}

#[tokio::test]
async fn a_gateway_decides_nothing() {
    let fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let agents = "holdfast_gateway_agents";
    for sql in [
        "SELECT * FROM api_token_hashes",
        "SELECT * FROM objects",
        "SELECT * FROM events",
        "INSERT INTO hosts SELECT * FROM hosts",
        "INSERT INTO artifacts VALUES ('', '')",
        "UPDATE desired_latest SET version = version",
        "UPDATE requests SET state = 'granted'",
        "UPDATE enrol_tokens SET uses_max = 100",
        "INSERT INTO event_order VALUES (1, 1, gen_random_uuid())",
        "CREATE TABLE x (y int)",
        "CREATE TEMPORARY TABLE x (y int)",
    ] {
        assert!(is_refused(&fleet, agents, sql), "{sql}");
    }
    let operators = "holdfast_gateway_operators";
    for sql in [
        "SELECT * FROM enrol_token_hashes",
        "SELECT * FROM requests",
        "UPDATE desired_latest SET version = version",
        "UPDATE observed SET detail = ''",
        "UPDATE sessions SET session_epoch = 9",
        "UPDATE objects SET spec = '{}'",
        "DELETE FROM objects",
        "INSERT INTO desired_states SELECT * FROM desired_states",
        "UPDATE leases SET term = 9",
    ] {
        assert!(is_refused(&fleet, operators, sql), "{sql}");
    }
    assert!(is_refused(&fleet, "holdfast_renderer", "SELECT * FROM enrol_token_hashes"));
    assert!(is_refused(&fleet, "holdfast_renderer", "UPDATE observed SET detail = ''"));
    let touched = fleet.server.sql("SELECT term FROM leases WHERE name = 'renderer'");
    assert!(!is_refused(&fleet, agents, "UPDATE leases SET term = 99, expires_at = now()"));
    assert_eq!(fleet.server.sql("SELECT term FROM leases WHERE name = 'renderer'"), touched, "not visible to it");
}
