//! With the feature `test-hooks`: an element altered between commit and read-back is found, told and undone.

use crate::support::agent::Host;
use crate::support::output_of;

const BEFORE: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
    {"action": "allow", "protocol": "tcp", "ports": [80], "peers": ["10.0.0.1", "10.0.0.9"]}]}}"#;

#[test]
fn an_altered_element_fails_the_update_and_the_last_good_comes_back() {
    let host = Host::with_environment(BEFORE, &[("HOLDFAST_AGENT_TEST_ALTER_FILE", "alter")]);
    host.start();
    let listed = || host.namespace.run(|| output_of("nft", &["--stateless", "list", "table", "inet", "holdfast"]));
    let good = listed();
    host.write_policy(&BEFORE.replace("10.0.0.9", "10.0.0.7"));
    std::fs::write(host.path("alter"), "").unwrap();
    let reload = host.ask(&["reload", "-o", "json"]);
    assert!(!reload.status.success());
    let outcome: serde_json::Value = serde_json::from_slice(&reload.stdout).unwrap();
    assert_eq!(outcome["outcome"], "failed");
    assert_eq!(outcome["applied"]["version"], 1);
    assert_eq!(outcome["conditions"][2]["reason"], "read_back_differs");
    assert_eq!(listed(), good);
    assert_eq!(host.status()["policy"]["proven"], true);
    // The file is gone, so the same update goes through.
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!(host.applied_version(), Some(2));
}
