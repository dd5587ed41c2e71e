//! Requests to the API, made by hand.

use hyper::Method;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{Leaves, Said, World};

/// Rule, place, method, path, body.
const CASES: &[(&str, &str, Method, &str, &[u8])] = &[
    ("json", "line 1 column 14", Method::POST, "/v1/apply", b"{\"sources\": nope}"),
    ("json-cut", "line 1 column 13", Method::POST, "/v1/apply", b"{\"sources\": ["),
    ("json-utf8", "byte 12", Method::POST, "/v1/plan", b"{\"sources\":[\xff]}"),
    ("json-shape", "`later`", Method::POST, "/v1/apply", b"{\"sources\": [], \"later\": 1}"),
    ("query", "`limt`", Method::GET, "/v1/objects?limt=1", b""),
    ("limit", "limit: ", Method::GET, "/v1/hosts?limit=501", b""),
    ("invalid-cursor", "cursor", Method::GET, "/v1/objects?cursor=MTIz", b""),
    ("duration", "wait: ", Method::GET, "/v1/status?wait=1h", b""),
    ("flow", "service: ", Method::GET, "/v1/explain/flow?from=192.0.2.1&to=192.0.2.9&service=443", b""),
    ("family", "to: ", Method::GET, "/v1/explain/flow?from=2001:db8::1&to=192.0.2.9&service=icmp", b""),
    ("at", "at: ", Method::GET, "/v1/explain/flow?from=192.0.2.1&to=192.0.2.9&service=443/tcp&at=then", b""),
    (
        "selector",
        "selector: ",
        Method::POST,
        "/v1/mode",
        b"{\"selector\": \"a b\", \"mode\": \"enforced\", \"expect\": 0}",
    ),
    ("ambiguous", "`from`", Method::GET, "/v1/explain/flow?from=both&to=192.0.2.9&service=icmp", b""),
    ("required", "objects: ", Method::POST, "/v1/delete", b"{\"objects\": []}"),
    ("id", "id: ", Method::GET, "/v1/operations/op_x", b""),
    ("role", "role: ", Method::POST, "/v1/api-tokens", b"{\"name\": \"t\", \"role\": \"root\"}"),
    ("text", "name: ", Method::POST, "/v1/api-tokens", b"{\"name\": \"\", \"role\": \"viewer\"}"),
    (
        "namespaces",
        "namespaces: ",
        Method::POST,
        "/v1/api-tokens",
        b"{\"name\": \"t\", \"role\": \"viewer\", \"namespaces\": []}",
    ),
    ("ttl", "ttl_s: ", Method::POST, "/v1/enrol-tokens", b"{\"ttl_s\": 0}"),
    ("uses", "uses: ", Method::POST, "/v1/enrol-tokens", b"{\"uses\": 0}"),
    ("method-not-allowed", "openapi.json", Method::PUT, "/v1/apply", b"{}"),
    ("not-found", "openapi.json", Method::GET, "/v2/objects", b""),
    (
        "stale-revision",
        "revision 7 was expected",
        Method::POST,
        "/v1/delete",
        b"{\"objects\": [\"Policy/default/kept\"], \"expected_revision\": 7}",
    ),
];

/// Others that break the same rules.
const AGAIN: &[(&str, &str, Method, &str, &[u8])] = &[
    (
        "json-shape",
        "duplicate field `prune`",
        Method::POST,
        "/v1/apply",
        b"{\"sources\": [], \"prune\": true, \"prune\": false}",
    ),
    ("json-shape", "line 1 column", Method::POST, "/v1/delete", b"[]"),
    ("json-cut", "line 1 column 0", Method::POST, "/v1/apply", b""),
    ("kind-unknown", "kind: `pod`", Method::GET, "/v1/objects?kind=pod", b""),
    ("object", "objects: `Policy`", Method::POST, "/v1/delete", b"{\"objects\": [\"Policy\"]}"),
    ("name", "namespace: ", Method::POST, "/v1/enrol-tokens", b"{\"namespace\": \"A B\"}"),
    ("cidr", "address_scope", Method::POST, "/v1/enrol-tokens", b"{\"address_scope\": [\"10.0.0.0/99\"]}"),
    (
        "not-found",
        "Policy/default/gone",
        Method::POST,
        "/v1/delete",
        b"{\"objects\": [\"Policy/default/kept\", \"Policy/default/gone\"]}",
    ),
];

/// Tries all of them.
pub(super) async fn check(world: &mut World) {
    let admin = world.plane.admin().to_owned();
    for (rule, place, method, path, body) in CASES {
        let answer = world.ask(method.clone(), path, &admin, &[], body).await;
        let said = Said::by_door(answer.status.as_u16(), &answer.body);
        world.refused(rule, place, Leaves::Nothing, &said);
    }
    for (rule, place, method, path, body) in AGAIN {
        let answer = world.ask(method.clone(), path, &admin, &[], body).await;
        let said = Said::by_door(answer.status.as_u16(), &answer.body);
        world.refused_again(rule, place, Leaves::Nothing, &said);
    }
    check_nesting(world, &admin).await;
    check_heads(world, &admin).await;
    check_tokens(world, &admin).await;
    check_broken_body(world, &admin).await;
}

async fn check_nesting(world: &mut World, admin: &str) {
    let deep = format!("{{\"sources\": {}", "[".repeat(100_000));
    let answer = world.ask(Method::POST, "/v1/apply", admin, &[], deep.as_bytes()).await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    // The first bracket that is no source ends the reading, however many follow.
    assert!(said.rules[0].starts_with("json"), "{said:?}");
    let rule = said.rules[0].clone();
    world.refused_again(&rule, "line 1 column", Leaves::Nothing, &said);
}

async fn check_heads(world: &mut World, admin: &str) {
    let body = json!({ "sources": [] }).to_string();
    let heads: [(&str, &str, HeaderName, &str); 1] =
        [("media-type", "`content-type`", CONTENT_TYPE, "application/x-www-form-urlencoded")];
    for (rule, place, name, value) in heads {
        let answer = world.ask(Method::POST, "/v1/apply", admin, &[(name, value)], body.as_bytes()).await;
        world.refused(rule, place, Leaves::Nothing, &Said::by_door(answer.status.as_u16(), &answer.body));
    }
    // A body that says that it is too large is refused before any of it is read.
    let head = format!(
        "POST /v1/delete HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\n{CONTENT_LENGTH}: 999999999\r\n\r\n"
    );
    let said = exchange(world, head.as_bytes()).await;
    world.refused("body-too-large", "262144 bytes", Leaves::Nothing, &said);
}

async fn check_tokens(world: &mut World, admin: &str) {
    let viewer = world.plane.holdfast(&["api-token", "create", "viewer", "--role", "viewer"]);
    assert!(viewer.status.success(), "{viewer:?}");
    let viewer = String::from_utf8(viewer.stdout).expect("text").trim().to_owned();
    world.settle();
    let body = json!({ "sources": [{ "name": "a", "text": "" }], "prune": true }).to_string();
    let answer = world.ask(Method::POST, "/v1/apply", &viewer, &[], body.as_bytes()).await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused("not-allowed", "viewer", Leaves::Nothing, &said);
    let answer = world.ask(Method::POST, "/v1/apply", &format!("{viewer}x"), &[], body.as_bytes()).await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused("unauthenticated", "token", Leaves::Nothing, &said);
    // One that enrols hosts calls no API, and is not repeated.
    let enrols = world.good.clone();
    let answer = world.ask(Method::GET, &format!("/v1/hosts/{enrols}"), &enrols, &[], b"").await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused_again("unauthenticated", "an API token is wanted", Leaves::Nothing, &said);
    let answer = world.ask(Method::GET, &format!("/v1/hosts/{enrols}"), admin, &[], b"").await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused_again("not-found", "hfe_…", Leaves::Nothing, &said);
    assert!(!String::from_utf8_lossy(&answer.body).contains(&enrols), "{answer:?}");

    let plan = json!({ "sources": [{ "name": "a", "text": "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: new}\n" }],
        "expected_plan": "0".repeat(64) });
    let answer = world.ask(Method::POST, "/v1/apply", admin, &[], plan.to_string().as_bytes()).await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused("stale-plan", "plan again", Leaves::Nothing, &said);

    let listed = world.ask(Method::GET, "/v1/api-tokens", admin, &[], b"").await;
    let listed: serde_json::Value = serde_json::from_slice(&listed.body).expect("JSON");
    let tokens = listed.as_array().expect("a list");
    let id = tokens.iter().find(|token| token["name"] == "viewer").and_then(|token| token["id"].as_str());
    let path = format!("/v1/api-tokens/{}", id.expect("an id"));
    assert!(world.ask(Method::DELETE, &path, admin, &[], b"").await.status.is_success());
    world.settle();
    let answer = world.ask(Method::DELETE, &path, admin, &[], b"").await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused("already-revoked", "revoked before", Leaves::Nothing, &said);
    let answer = world.ask(Method::GET, "/v1/status", &viewer, &[], b"").await;
    let said = Said::by_door(answer.status.as_u16(), &answer.body);
    world.refused_again("unauthenticated", "revoked", Leaves::Nothing, &said);
}

/// A body whose parts are no parts.
async fn check_broken_body(world: &mut World, admin: &str) {
    let text = format!(
        "POST /v1/apply HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n"
    );
    let said = exchange(world, text.as_bytes()).await;
    world.refused("body", "body: ", Leaves::Nothing, &said);
}

/// Sends bytes to the door as they are, and reads the answer.
async fn exchange(world: &World, bytes: &[u8]) -> Said {
    let config = holdfast_identity::tls::https(&world.roots).expect("a configuration");
    let address = world.plane.api().trim_start_matches("https://").to_owned();
    let stream = tokio::net::TcpStream::connect(&address).await.expect("it listens");
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").expect("an address");
    let mut stream = connector.connect(name, stream).await.expect("TLS");
    stream.write_all(bytes).await.expect("it takes them");
    let mut answer = Vec::new();
    // It ends by closing, or has said all after the head's length: both are read to the end of the problem.
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
            if answer.ends_with(b"}") {
                break;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), read).await.expect("in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = body.find('{').map_or("", |at| body.get(at..).unwrap_or_default());
    Said::by_door(status, body.as_bytes())
}
