//! Requests to the agents' door that enrol nobody.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::world::{Leaves, Said, World, ask_agents_door, enrol_request, enrol_token};

const ENROL: &str = "/agent/v1/enrol";

async fn ask(world: &World, path: &str, body: &[u8]) -> Said {
    let answer = ask_agents_door(&world.plane, &world.roots, path, body).await;
    Said::by_door(answer.status.as_u16(), &answer.body)
}

/// Tries all of them.
pub(super) async fn check(world: &mut World) {
    let spent = enrol_token(&world.plane, &["--uses", "1"]);
    let (request, _) = enrol_request(&spent, "spender", "10.0.0.2");
    let answer = ask_agents_door(&world.plane, &world.roots, ENROL, request.to_string().as_bytes()).await;
    assert!(answer.status.is_success(), "{answer:?}");
    let expired = enrol_token(&world.plane, &["--ttl", "1s"]);
    let revoked = enrol_token(&world.plane, &[]);
    let listed = world.plane.holdfast(&["enrol-token", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    // The newest is the first.
    let id = listed.pointer("/0/id").or_else(|| listed.pointer("/items/0/id")).and_then(Value::as_str);
    let taken = world.plane.holdfast(&["enrol-token", "revoke", id.unwrap_or_else(|| panic!("{listed}"))]);
    assert!(taken.status.success(), "{taken:?}");
    let unknown = format!("hfe_{}", "A".repeat(43));
    world.settle();
    // Its second is over by the clock of the database.
    let is_over = "select count(*) from enrol_tokens where expires_at < now()";
    while world.plane.postgres.sql(is_over).trim() == "0" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let tokens = [
        ("token-malformed", "malformed", "hfe_short".to_owned()),
        ("token-unknown", "not known", unknown),
        ("token-expired", "time is over", expired),
        ("token-revoked", "taken back", revoked),
        ("token-spent", "as often", spent),
    ];
    for (rule, place, token) in tokens {
        let (request, _) = enrol_request(&token, "new", "10.0.0.3");
        let said = ask(world, ENROL, request.to_string().as_bytes()).await;
        world.refused(rule, place, Leaves::Nothing, &said);
        assert!(!said.text.contains(&token), "the token is repeated: {said:?}");
    }
    let good = world.good.clone();
    for (place, field, value) in [
        ("`csr`", "csr", json!("bm90aGluZw==")),
        ("`csr`", "csr", json!(STANDARD.encode(unproven_request()))),
        ("`outcome_key`", "outcome_key", json!("ed25519:00")),
        ("`inventory`", "kernel", json!("k".repeat(10_000))),
        ("`addresses`", "addresses", json!(vec!["10.0.0.1"; 10_000])),
    ] {
        let (mut request, _) = enrol_request(&good, "new", "10.0.0.3");
        request[field] = value;
        let said = ask(world, ENROL, request.to_string().as_bytes()).await;
        if field == "outcome_key" {
            world.refused("bad-field", place, Leaves::Nothing, &said);
        } else {
            let rule =
                if field == "addresses" && said.rules == ["body-too-large"] { "body-too-large" } else { "bad-field" };
            world.refused_again(rule, if rule == "bad-field" { place } else { "98304 bytes" }, Leaves::Nothing, &said);
        }
    }
    check_shapes(world, &good).await;
    let (taken, _) = enrol_request(&good, "both", "10.0.0.3");
    let said = ask(world, ENROL, taken.to_string().as_bytes()).await;
    world.refused("name-taken", "name-taken", Leaves::Trace, &said);
    let (outside, _) = enrol_request(&good, "new", "192.0.2.3");
    let said = ask(world, ENROL, outside.to_string().as_bytes()).await;
    world.refused("address-out-of-scope", "address-out-of-scope", Leaves::Trace, &said);
    let said = ask(world, "/agent/v1/renew", json!({ "csr": "" }).to_string().as_bytes()).await;
    world.refused("no-certificate", "client certificate", Leaves::Nothing, &said);
    world.settle();
}

async fn check_shapes(world: &mut World, good: &str) {
    let said = ask(world, ENROL, format!("{{\"token\": \"{good}\", \"nam").as_bytes()).await;
    world.refused("malformed", "line 1, column", Leaves::Nothing, &said);
    let (mut unknown, _) = enrol_request(good, "new", "10.0.0.3");
    unknown["mode"] = json!("enforced");
    let (mut name, _) = enrol_request(good, "new", "10.0.0.3");
    name["name"] = json!("New_1");
    for request in [unknown, name, json!([good]), json!(null)] {
        let said = ask(world, ENROL, request.to_string().as_bytes()).await;
        world.refused_again("malformed", "line 1, column", Leaves::Nothing, &said);
        assert!(!said.text.contains(good), "the token is repeated: {said:?}");
    }
    let said = ask(world, "/agent/v1/nothing", b"{}").await;
    world.refused_again("not-found", ENROL, Leaves::Nothing, &said);
    let said = ask(world, ENROL, &vec![b' '; 97 * 1024]).await;
    world.refused_again("body-too-large", "98304 bytes", Leaves::Nothing, &said);
}

/// A request whose signature is another's.
fn unproven_request() -> Vec<u8> {
    let mut request = holdfast_identity::LeafKey::generate().and_then(|key| key.request()).expect("a request");
    let last = request.len() - 1;
    request[last] ^= 1;
    request
}
