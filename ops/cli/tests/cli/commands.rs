//! Tokens and roles, and what needs no API.

use serde_json::Value;

use crate::plane::Plane;

#[tokio::test]
async fn a_token_does_what_its_role_and_scope_allow_until_it_is_revoked() {
    let plane = Plane::start().await;
    plane.file("p.yaml", crate::intent::POLICIES);
    let create =
        |role: &'static str| ["api-token", "create", "ci", "--role", role, "--namespace", "shop", "-o", "json"];
    let editor = plane.run(&create("editor")).await.json();
    let secret = editor["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(plane.run_as(&secret, &["status"]).await.code, 0);
    let refused = plane.run_as(&secret, &["apply", "-f", "p.yaml"]).await;
    assert_eq!(refused.code, 5, "another namespace");
    assert!(refused.stderr.contains("the token does not reach the namespace default"), "{}", refused.stderr);
    plane.file("own.yaml", &crate::intent::POLICIES.replace("{name: ", "{namespace: shop, name: "));
    assert_eq!(plane.run_as(&secret, &["apply", "-f", "own.yaml"]).await.code, 0);
    assert_eq!(plane.run_as(&secret, &["api-token", "list"]).await.code, 5);
    assert_eq!(plane.run_as(&secret, &["enrol-token", "create"]).await.code, 5);
    assert_eq!(plane.run_as(&secret, &["rebuild", "--check"]).await.code, 5);

    let viewer = plane.run(&create("viewer")).await.json();
    let viewer = viewer["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(plane.run_as(&viewer, &["apply", "-f", "own.yaml"]).await.code, 5);
    assert_eq!(plane.run_as(&viewer, &["get", "objects", "-o", "name"]).await.ended(0).lines().count(), 3);

    let list = plane.run(&["api-token", "list", "-o", "json"]).await.ended(0);
    assert!(!list.contains(&secret), "a secret is shown once");
    let id = editor["token"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(plane.run(&["api-token", "revoke", &id]).await.code, 0);
    assert_eq!(plane.run(&["api-token", "revoke", &id]).await.code, 4);
    assert_eq!(plane.run_as(&secret, &["status"]).await.code, 5, "at once");
    assert_eq!(plane.run(&["api-token", "revoke", "at_00000000-0000-0000-0000-000000000000"]).await.code, 3);
    let unknown = plane.run_as(&format!("hfa_{}", "A".repeat(43)), &["status", "-o", "json"]).await;
    let problem: Value = serde_json::from_str(&unknown.stderr).expect("a problem");
    assert_eq!((unknown.code, &problem["type"]), (5, &"urn:holdfast:problem:unauthenticated".into()));
}

#[tokio::test]
async fn an_enrolment_token_is_made_listed_and_revoked() {
    let plane = Plane::start().await;
    let made =
        plane.run(&["enrol-token", "create", "--uses", "3", "--ttl", "2h", "--port", "http=80", "-o", "json"]).await;
    let made = made.json();
    assert_eq!((&made["token"]["uses_max"], &made["token"]["ports"][0]["protocol"]), (&3.into(), &"tcp".into()));
    let bad = plane.run(&["enrol-token", "create", "--label=-x=y", "--address", "nowhere", "--uses", "0"]).await;
    assert_eq!(bad.code, 1);
    for rule in ["[label-key]", "[cidr]", "[uses]"] {
        assert!(bad.stderr.contains(rule), "{}", bad.stderr);
    }
    // More than one event has room for: refused with its number, and no defect.
    let prefixes: Vec<String> = (0..5_000).map(|n| format!("--address=10.{}.{}.0/24", n / 250, n % 250)).collect();
    let arguments: Vec<&str> =
        ["enrol-token", "create"].into_iter().chain(prefixes.iter().map(String::as_str)).collect();
    let much = plane.run(&arguments).await;
    assert!(much.code == 1 && much.stderr.contains("[event-bytes]"), "{much:?}");
    let id = made["token"]["id"].as_str().expect("an id");
    assert_eq!(plane.run(&["enrol-token", "list", "-o", "name"]).await.ended(0), format!("{id}\n"));
    assert_eq!(plane.run(&["enrol-token", "revoke", id]).await.code, 0);
    let list = plane.run(&["enrol-token", "list", "-o", "json"]).await.json();
    assert!(list[0]["revoked_at"].is_string(), "{list}");
}

#[tokio::test]
async fn wrong_usage_is_64_and_help_manual_and_completions_need_no_api() {
    let run = |arguments: &'static [&'static str]| async move {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let output = command.args(arguments).env_clear().output().await.expect("it runs");
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
            String::from_utf8(output.stderr).expect("text"),
        )
    };
    assert_eq!(run(&["frobnicate"]).await.0, Some(64));
    assert_eq!(run(&["apply"]).await.0, Some(64));
    assert_eq!(run(&["wait", "--timeout", "soon"]).await.0, Some(64));
    let (code, _, words) = run(&["status"]).await;
    assert_eq!(code, Some(64));
    assert!(words.contains("HOLDFAST_API"), "{words}");
    let (code, help, _) = run(&["apply", "--help"]).await;
    assert!(code == Some(0) && help.contains("Examples:"), "{help}");
    assert!(run(&["man"]).await.1.contains(".TH"));
    assert!(run(&["completion", "bash"]).await.1.contains("_holdfast"));
}

/// The shell itself says whether it takes them.
#[test]
fn bash_loads_the_completions_and_completes_a_command() {
    let script = format!(
        "source <({} completion bash) && complete -p holdfast && COMP_WORDS=(holdfast doc) COMP_CWORD=1 && \
         _holdfast holdfast doc holdfast && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_holdfast")
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(said.lines().any(|line| line == "doctor"), "{said}");
}

#[test]
fn there_is_a_manual_page_for_every_command_with_its_examples() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let output = command.args(["man", "--folder"]).arg(folder.path()).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    for page in
        ["holdfast.1", "holdfast-apply.1", "holdfast-doctor.1", "holdfast-audit-tail.1", "holdfast-explain-flow.1"]
    {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", "Exit codes:"] {
            assert!(text.contains(part), "{page} lacks {part}: {text}");
        }
        // Where there is a reader of manual pages, it has nothing to complain about.
        let mut man = std::process::Command::new("man");
        man.args(["--warnings", "-l"]).arg(folder.path().join(page)).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
        if let Ok(output) = man.output() {
            assert!(output.status.success() && output.stderr.is_empty(), "{page}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("  holdfast "), "{page}: {output:?}");
        }
    }
}
