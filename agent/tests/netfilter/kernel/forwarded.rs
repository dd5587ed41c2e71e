//! What a host passes on for others: told as it is, also when somebody switches it on later.

use crate::support::agent::Host;

const SHUT: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": []}}"#;
pub(super) const UPLINKS: &str = "HOLDFAST_AGENT_UPLINKS";

/// Switches forwarding off in both families: a namespace may begin with what its machine has.
pub(super) fn forward_nothing(host: &Host) {
    host.namespace.run(|| {
        for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{switch}"), "0").unwrap();
        }
    });
}

fn forwarded(host: &Host) -> String {
    let status = host.status();
    let told = status["table"]["forwarded"].as_str().unwrap().to_owned();
    assert_eq!(status["table"]["forwarded_enforced"], told == "enforced");
    told
}

#[test]
fn forwarding_that_no_rule_sees_is_told_as_soon_as_it_is_switched_on_and_not_where_an_uplink_is_declared() {
    let mut host = Host::new(SHUT);
    host.set_variable(UPLINKS, Some(""));
    forward_nothing(&host);
    host.start();
    assert_eq!(forwarded(&host), "nothing");
    host.namespace.forward();
    assert_eq!(forwarded(&host), "not-enforced");
    let shown = String::from_utf8(host.ask(&["status"]).stdout).unwrap();
    assert!(shown.contains("NOT ENFORCED"), "{shown}");
    host.end(nix::sys::signal::Signal::SIGTERM);
    host.set_variable(UPLINKS, Some("lo"));
    host.start();
    assert_eq!(forwarded(&host), "enforced");
    host.write_policy(r#"{"mode": "visibility"}"#);
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!(forwarded(&host), "not-asked");
}
