//! Command lines, with the files that they name.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use super::world::{Leaves, Said, World};
use crate::control_plane::program;

/// Rule, place and command line of `holdfast`.
const OPERATORS: &[(&str, &str, &[&str])] = &[
    ("argument-value", "--output <FORM>", &["status", "-o", "xml"]),
    ("input-unreadable", "gone.yaml", &["apply", "-f", "gone.yaml"]),
    ("folder-empty", "empty", &["plan", "-f", "empty"]),
    ("object", "`web`", &["delete", "web"]),
    ("host-missing", "describe host NAME", &["describe", "host"]),
    ("time", "`yesterday`", &["audit", "tail", "--since", "yesterday"]),
    ("checkpoint-missing", "none.json", &["audit", "verify", "--log", "log", "--key", "KEY", "--against", "none.json"]),
    ("checkpoint-malformed", "bad.json", &["audit", "verify", "--log", "log", "--key", "KEY", "--against", "bad.json"]),
    ("checkpoint-signature", "entry 1", &["audit", "verify", "--log", "log", "--key", "KEY", "--against", "cut.json"]),
    ("checkpoint-forged", "entry 1", &["audit", "verify", "--log", "log", "--key", "KEY", "--against", "forged.json"]),
    (
        "public-key-malformed",
        "64",
        &["audit", "verify", "--log", "log", "--key", "none.json", "--against", "none.json"],
    ),
];

/// Rule, place, program and command line.
const OTHERS: &[(&str, &str, &str, &[&str])] = &[
    ("argument-unknown", "--nats-ulr", "holdfast-gateway", &["--nats-ulr", "x"]),
    ("argument-missing", "--dir", "holdfast-renderer", &["init"]),
    ("command-unknown", "frobnicate", "holdfast-audit", &["frobnicate"]),
    (
        "argument-conflict",
        "--standalone",
        "holdfast-lab",
        &["verify", "--render-only", "--standalone", "--estate", "x"],
    ),
    (
        "argument-form",
        "--ca-pin",
        "holdfast-agent",
        &["enrol", "--token-file", "t", "--gateway", "https://127.0.0.1:1", "--ca-pin", "sha256:12"],
    ),
    ("agent-not-running", "no-agent", "holdfast-agent", &["--state", "no-agent", "status"]),
    ("server-name", "`a b`", "holdfast-renderer", &["init", "--dir", "new-keys", "--nats-name", "a b"]),
];

/// Tries all of them.
pub(super) fn check(world: &mut World) {
    mk_files(world);
    for (rule, place, arguments) in OPERATORS {
        let key = world.plane.keys("public").join("audit-signing.pub").display().to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|argument| if *argument == "KEY" { key.as_str() } else { argument }).collect();
        let said = Said::by_program(&world.plane.holdfast(&arguments));
        world.refused(rule, place, Leaves::Nothing, &said);
    }
    for (rule, place, name, arguments) in OTHERS {
        let mut command = Command::new(program(name));
        let output = command.args(*arguments).current_dir(world.plane.folder()).env_clear().output().expect("it runs");
        world.refused(rule, place, Leaves::Nothing, &Said::by_program(&output));
    }
    for (rule, place, name, value) in connections(world) {
        let output = world.plane.holdfast_command().env(name, value).arg("status").output().expect("it runs");
        let said = Said::by_program(&output);
        world.refused(rule, &place, Leaves::Nothing, &said);
    }
    check_enrolment(world);
    check_logs(world);
}

fn mk_files(world: &World) {
    std::fs::create_dir_all(world.plane.folder().join("empty")).expect("the folder is ours");
    let listed = world.plane.holdfast(&["audit", "tail", "--from", "1", "-o", "json"]);
    assert!(listed.status.success(), "{listed:?}");
    world.plane.file("log", &listed.stdout);
    // A checkpoint by its form, which the service did not sign.
    let checkpoint = |signature: String| json!({ "log": "x", "n": 1, "hash": "0".repeat(64), "at": "2026-01-01T00:00:00Z", "signature": signature });
    world.plane.file("none.json", "");
    world.plane.file("bad.json", "{\"n\": 1}");
    world.plane.file("forged.json", checkpoint("0".repeat(128)).to_string());
    world.plane.file("cut.json", checkpoint("00".to_owned()).to_string());
    let exposed = world.plane.file("exposed.token", world.plane.admin());
    std::fs::set_permissions(exposed, Permissions::from_mode(0o644)).expect("it is ours");
}

/// How the API is reached, and how not: rule, place, variable, value.
fn connections(world: &World) -> Vec<(&'static str, String, &'static str, String)> {
    let file = |name: &str| world.plane.folder().join(name).display().to_string();
    let nothing = world.plane.file("nothing.pem", "no certificate\n");
    let garbage = world.plane.file("garbage.pem", "-----BEGIN CERTIFICATE-----\nbm9wZQ==\n-----END CERTIFICATE-----\n");
    let closed = format!("https://127.0.0.1:{}", holdfast_suite::ports::free_port());
    vec![
        ("url", "`http://127.0.0.1/v1/status`".to_owned(), "HOLDFAST_API", "http://127.0.0.1".to_owned()),
        ("unreachable", closed.trim_start_matches("https://").to_owned(), "HOLDFAST_API", closed),
        ("token-kind", "an API token is wanted".to_owned(), "HOLDFAST_TOKEN", world.good.clone()),
        ("file-exposed", "exposed.token".to_owned(), "HOLDFAST_TOKEN_FILE", file("exposed.token")),
        ("file-unreadable", "gone.token".to_owned(), "HOLDFAST_TOKEN_FILE", file("gone.token")),
        ("certificate-malformed", "nothing.pem".to_owned(), "HOLDFAST_CA", nothing.display().to_string()),
        ("trust-root", "garbage.pem".to_owned(), "HOLDFAST_CA", garbage.display().to_string()),
    ]
}

fn check_enrolment(world: &mut World) {
    let token = world.plane.file("good.token", world.good.as_bytes());
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("it is ours");
    let mut command = Command::new(program("holdfast-agent"));
    let pin = format!("sha256:{}", "0".repeat(64));
    let door = format!("https://{}", world.plane.agents_door());
    let output = command
        .args(["--state", "host-state", "enrol", "--name", "new", "--ca-pin", &pin, "--gateway", &door, "--token-file"])
        .arg(&token)
        .current_dir(world.plane.folder())
        .env_clear()
        .output()
        .expect("it runs");
    // Whoever is not the pinned one is not told the token.
    let said = Said::by_program(&output);
    world.refused("tls-refused", &world.plane.agents_door().to_string(), Leaves::Nothing, &said);
    assert!(!world.plane.folder().join("host-state/identity").exists(), "half enrolled");
}

/// Copies of the log that are not the log: what is told of them is the fault's own word.
fn check_logs(world: &mut World) {
    let log = std::fs::read_to_string(world.plane.folder().join("log")).expect("it was made");
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.len() > 3, "{log}");
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let hashed = |text: &str| text.replacen("holdfast", "Holdfast", 1);
    let copies = [
        ("missing", 3, joined(&[&lines[..1], &lines[2..]].concat())),
        ("reordered", 2, joined(&swapped)),
        ("changed", 2, joined(&[&lines[..1], &[hashed(lines[1]).as_str()][..], &lines[2..]].concat())),
        ("unreadable", 3, joined(&[&lines[..2], &["{cut"][..], &lines[3..]].concat())),
    ];
    for (rule, n, text) in copies {
        world.plane.file("copy", text);
        let output = world.plane.holdfast(&["audit", "verify", "--log", "copy", "-o", "json"]);
        assert!(!output.status.success(), "{rule}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let faults = report["faults"].as_array().expect("a list");
        let rules = faults.iter().filter_map(|fault| fault["fault"].as_str()).map(str::to_owned).collect();
        let said = Said { rules, text: report["faults"].to_string() };
        world.refused(rule, &format!("\"n\":{n}"), Leaves::Nothing, &said);
    }
}
