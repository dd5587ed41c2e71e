//! The real binary: starts, crashes, repairs, ends.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::agent::Host;
use crate::support::{load_nft, output_of};

fn policy(mode: &str, peers: &[String]) -> String {
    let peers: Vec<String> = peers.iter().map(|peer| format!("\"{peer}\"")).collect();
    format!(
        r#"{{"mode": "{mode}", "ingress": {{"isolated": true, "rules": [
            {{"action": "allow", "protocol": "tcp", "ports": [80, "8000-8099"], "peers": [{}]}}]}}}}"#,
        peers.join(", ")
    )
}

fn peers(count: u32, first: u32) -> Vec<String> {
    (first..first + count).map(|n| format!("10.{}.{}.{}", n >> 15, n >> 7 & 255, (n << 1) & 255)).collect()
}

/// How many intervals the one IPv4 set of peers has, and with which it begins.
fn held(host: &Host) -> Option<(usize, String)> {
    let listed = host.namespace.run(|| output_of("nft", &["-j", "list", "ruleset"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let set = listed["nftables"].as_array().unwrap().iter().find_map(|object| {
        let set = object.get("set")?;
        set["name"].as_str()?.starts_with("s4_").then_some(set)
    })?;
    let elements = set["elem"].as_array()?;
    Some((elements.len(), elements.first()?.to_string()))
}

#[test]
fn a_policy_is_enforced_changed_by_signal_and_command_and_outlives_the_agent() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(1), Some(3)));
    host.write_policy(&policy("enforced", &peers(4, 0)));
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(2), Some(4)));
    host.write_policy(&policy("enforced", &peers(5, 0)));
    host.signal(Signal::SIGHUP);
    host.wait_until("the signal is obeyed", || host.applied_version() == Some(3));
    host.write_policy("{}");
    let refused = host.ask(&["reload"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("missing field"));
    assert_eq!(host.end(Signal::SIGTERM), Some(0));
    assert_eq!(held(&host).map(|held| held.0), Some(5));
    // The file gives nothing; the disk does.
    host.start();
    assert_eq!(host.applied_version(), Some(3));
    assert!(host.ask(&["healthcheck"]).status.success());
}

#[test]
fn a_doctor_without_rights_says_what_it_lacks_and_blames_no_kernel_and_with_them_all_is_well() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    assert_eq!(host.troubles(), []);
    let found = host.troubles_without_rights();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["CAP_NET_ADMIN", "nf_tables"], "{found:?}");
    assert!(found[1].1.contains("was not tried") && !found[1].1.contains("modprobe"), "{found:?}");
}

#[test]
fn one_agent_per_state_folder() {
    let host = Host::new(&policy("enforced", &peers(1, 0)));
    host.start();
    let second = host.ask(&["run", "--standalone", "/dev/null"]);
    assert!(!second.status.success() && String::from_utf8_lossy(&second.stderr).contains("another agent runs"));
}

#[test]
fn down_takes_only_our_table_and_the_next_run_brings_it_back() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.namespace.run(|| load_nft("table ip other {\nchain c { counter; }\n}"));
    host.start();
    let down = host.ask(&["down"]);
    assert!(down.status.success() && String::from_utf8_lossy(&down.stdout).contains("is removed"));
    assert_eq!(host.ended(), Some(0));
    let tables = || host.namespace.run(|| output_of("nft", &["list", "tables"]));
    assert_eq!(tables(), "table ip other\n");
    assert!(host.ledger().exists());
    assert!(String::from_utf8_lossy(&host.ask(&["down"]).stdout).contains("there was no table"));
    host.start();
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(1), Some(3)));
    // Without an agent the same command does it by itself.
    host.end(Signal::SIGKILL);
    assert!(host.ask(&["down"]).status.success());
    assert_eq!(tables(), "table ip other\n");
}

#[test]
fn what_another_process_changes_is_repaired_at_once_and_counted() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    for (drifts, change) in
        [(1, "flush ruleset"), (2, "insert rule inet holdfast in accept"), (3, "delete table inet holdfast")]
    {
        host.namespace.run(move || load_nft(change));
        host.wait_until(change, || {
            let status = host.status();
            status["policy"]["drifts"] == drifts && status["policy"]["proven"] == true
        });
        assert_eq!(held(&host).map(|held| held.0), Some(3), "{change}");
    }
}

#[test]
fn doctor_says_whether_something_is_enforced_while_no_agent_runs() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    host.end(Signal::SIGKILL);
    let names = || host.troubles().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names().iter().filter(|name| ["agent", "table"].contains(&name.as_str())).count(), 1, "{:?}", names());
    host.namespace.run(|| load_nft("delete table inet holdfast"));
    assert!(names().contains(&"table".to_owned()), "{:?}", names());
}

#[test]
fn a_table_that_another_process_fights_for_is_not_called_proven_until_it_was_read_again() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    for round in 1..=6 {
        host.namespace.run(|| load_nft("delete table inet holdfast"));
        host.wait_until("it is repaired", || {
            let status = host.status();
            status["policy"]["drifts"] == round && status["policy"]["proven"] == true
        });
    }
    assert_eq!(host.status()["policy"]["contended"], true);
    let found = host.troubles();
    assert!(
        matches!(found.as_slice(), [(name, text)] if name == "agent" && text.contains("another tool undoes")),
        "{found:?}"
    );
    host.namespace.run(|| load_nft("delete table inet holdfast"));
    host.wait_until("it is doubted", || host.status()["policy"]["proven"] == false);
    assert!(!host.ask(&["healthcheck"]).status.success());
    // A change is put into force from whatever is there, and read.
    host.write_policy(&policy("enforced", &peers(4, 0)));
    host.signal(Signal::SIGHUP);
    host.wait_until("the change is proven", || host.status()["policy"]["proven"] == true);
    assert_eq!(held(&host).map(|held| held.0), Some(4));
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_policy_or_the_new_one_and_the_next_start_knows_which() {
    let host = Host::new(&policy("enforced", &peers(2_000, 0)));
    host.start();
    for round in 1..=8_u32 {
        let old = held(&host).unwrap();
        // Another first peer and another number of peers each time: a mixture would show.
        host.write_policy(&policy("enforced", &peers(2_000 + round, round * 4_000)));
        host.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(u64::from(round) * 10));
        host.end(Signal::SIGKILL);
        let left = held(&host).unwrap();
        let is_new = left.0 == usize::try_from(2_000 + round).unwrap() && left.1 != old.1;
        assert!(left == old || is_new, "round {round}: {left:?} after {old:?}");
        host.start();
        let status = host.status();
        assert_eq!(status["policy"]["proven"], true, "round {round}");
        assert_eq!(status["policy"]["ledger"]["state"], "loaded", "round {round}");
        host.wait_until("the file's policy is in force", || {
            held(&host).is_some_and(|held| held.0 == usize::try_from(2_000 + round).unwrap())
        });
    }
}

#[test]
fn c52_a_start_before_anything_else_restores_the_last_good_in_an_empty_namespace() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    host.end(Signal::SIGKILL);
    host.namespace.run(|| load_nft("flush ruleset"));
    host.write_policy("no policy at all");
    host.start();
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(1), Some(3)));
}

#[test]
fn a_ledger_that_is_gone_opens_nothing_that_the_kernel_still_enforces() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    host.end(Signal::SIGKILL);
    std::fs::remove_file(host.ledger()).unwrap();
    host.write_policy("no policy at all");
    host.spawn();
    assert_eq!(host.ended(), Some(1), "without disk and file there is nothing to run with");
    assert_eq!(held(&host).map(|held| held.0), Some(3));
    host.write_policy(&policy("enforced", &peers(4, 0)));
    host.start();
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(1), Some(4)));
}

#[test]
fn a_damaged_ledger_loads_nothing_is_told_and_the_table_in_the_kernel_stays() {
    let host = Host::new(&policy("enforced", &peers(3, 0)));
    host.start();
    host.end(Signal::SIGKILL);
    let mut bytes = std::fs::read(host.ledger()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(host.ledger(), &bytes).unwrap();
    host.write_policy("no policy at all");
    host.spawn();
    assert_eq!(host.ended(), Some(1), "without disk and file there is nothing to run with");
    assert_eq!(held(&host).map(|held| held.0), Some(3));
    assert_eq!(std::fs::read(host.ledger()).unwrap(), bytes, "an unusable file is evidence");
    host.write_policy(&policy("enforced", &peers(4, 0)));
    host.start();
    assert_eq!(host.status()["policy"]["ledger"]["state"], "unusable");
    assert_eq!((host.applied_version(), held(&host).map(|held| held.0)), (Some(1), Some(4)));
}
